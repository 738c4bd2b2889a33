/*
 * Shared by the files of the screen: the grid during drawing, and the block of one GPU. Private to
 * the room.
 */
#ifndef ERG_OBSERVE_SCREEN_INTERNAL_H
#define ERG_OBSERVE_SCREEN_INTERNAL_H

#include "observe/screen.h"

struct erg_canvas {
    struct erg_screen *screen;
    bool ascii;
};

/* Puts one character; does nothing outside the grid. */
void erg_canvas_put(const struct erg_canvas *canvas, int row, int column, uint32_t code,
                    enum erg_style style);

/* Puts a text, cut to `width` columns; returns the columns that it took. */
int erg_canvas_text(const struct erg_canvas *canvas, int row, int column, const char *text,
                    int columns, enum erg_style style);

/* One GPU in 1 to 4 lines; the fourth stays empty. */
void erg_canvas_gpu(const struct erg_canvas *canvas, int row, int lines,
                    const struct erg_live_gpu *gpu);

#endif
