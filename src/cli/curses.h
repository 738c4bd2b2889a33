/* The terminal of `ergon monitor`, by ncurses: opens it, draws screens, reads keys, and restores it
 * on every exit, even a crash. */
#ifndef ERG_CLI_CURSES_H
#define ERG_CLI_CURSES_H

#include "ergon/telemetry.h"

#include <stdbool.h>
#include <stdint.h>

enum erg_key {
    ERG_KEY_NONE,
    ERG_KEY_QUIT,
    ERG_KEY_UP,
    ERG_KEY_DOWN,
    ERG_KEY_PAGE_UP,
    ERG_KEY_PAGE_DOWN,
    ERG_KEY_RESIZE
};

/* Sets *ascii if the terminal shows only characters below 128. */
int erg_curses_open(bool *ascii, struct erg_error *err);
void erg_curses_close(void);

void erg_curses_size(int32_t *rows, int32_t *columns);
void erg_curses_show(const struct erg_monitor *monitor);

/* Waits for a key for at most this time. */
enum erg_key erg_curses_key(int timeout_ms);

#endif
