/*
 * Screen: the picture of `ergon monitor`, as a grid of cells. Pure: the same view and size give the
 * same picture, and the code that shows it (ncurses in src/cli/, through ergon/telemetry.h) adds
 * nothing.
 *
 * The grid is filled for any size. With few rows each GPU gets fewer lines; with few columns each
 * line keeps its most important parts.
 */
#ifndef ERG_OBSERVE_SCREEN_H
#define ERG_OBSERVE_SCREEN_H

#include "base/text.h"
#include "ergon/telemetry.h"
#include "observe/live.h"

#include <stdbool.h>
#include <stdint.h>

struct erg_cell {
    uint32_t code; /* Unicode, one column wide */
    enum erg_style style;
};

struct erg_screen {
    int rows, columns;
    struct erg_cell *cells; /* row-major */
};

struct erg_screen_options {
    const char *host;
    size_t first; /* GPU shown at the top, for more GPUs than fit */
    bool ascii;   /* only characters below 128 */
};

/* Resizes the grid and draws it. Release with erg_screen_release(); all-zero is valid. */
void erg_screen_draw(struct erg_screen *screen, int rows, int columns,
                     const struct erg_live_view *view, const struct erg_screen_options *options);
void erg_screen_release(struct erg_screen *screen);

/* How many of `count` GPUs a screen with this number of rows shows at once. */
size_t erg_screen_page(int rows, size_t count);

/* Adds a cell's character as UTF-8. */
void erg_screen_cell_text(struct erg_text *out, const struct erg_cell *cell);

#endif
