/*
 * Rows of a profile that hooks make: seconds and joules of each instruction at each clock, averaged
 * over the ranks of its stage, as "ergon frontier" reads them (iteration/iteration.h).
 *
 * Clocks come from the highest down. One that lacks a row of some instruction is left out, since
 * every instruction needs the same clocks. Lower clocks than those tried can be left alone once
 * each instruction's energy has risen at three clocks in a row: no plan would take them.
 */
#ifndef ERG_HOOKS_HOOK_ROWS_H
#define ERG_HOOKS_HOOK_ROWS_H

#include "base/text.h"
#include "iteration/iteration.h"

struct erg_hook_shape {
    size_t stages, chunks, microbatches;
};

struct erg_hook_row {
    double time_s, energy_j; /* sums over ranks while the clock is tried, then means */
    size_t ranks;            /* in the sums */
    bool lacks;              /* a rank could not tell */
};

struct erg_hook_rows {
    struct erg_hook_shape shape;
    struct erg_hook_row *rows; /* [count][2 * chunks * stages]; one more while a clock is tried */
    int *clocks_mhz;           /* [count], likewise */
    size_t count, left_out;    /* clocks */
    int *rises;                /* in a row, [2 * chunks * stages]; held once they are enough */
    double waiting_w;          /* sum over clocks and ranks */
    size_t waits;
    double worst; /* uncertainty of a row, as a share; 0 of none */
};

void erg_hook_rows_init(struct erg_hook_rows *rows, const struct erg_hook_shape *shape);
void erg_hook_rows_release(struct erg_hook_rows *rows);

/* Another clock, below all others. */
void erg_hook_rows_begin(struct erg_hook_rows *rows, int clock_mhz);

/* The measurement of one rank for an instruction of its stage, `uncertainty` as a share; NaN: not
 * known. */
void erg_hook_rows_add(struct erg_hook_rows *rows, size_t stage, size_t chunk,
                       enum erg_direction direction, double time_s, double energy_j,
                       double uncertainty);
void erg_hook_rows_wait(struct erg_hook_rows *rows, double power_w); /* NaN: not known */

/* All ranks have reported. False: the clock is left out. */
bool erg_hook_rows_end(struct erg_hook_rows *rows);

/* Whether no lower clock is worth to be tried. */
bool erg_hook_rows_suffice(const struct erg_hook_rows *rows);

/* The whole file. */
void erg_hook_rows_write(const struct erg_hook_rows *rows, struct erg_text *csv);

/* Describes the file at `path` and the command that makes a plan from it; at least one clock. */
void erg_hook_rows_say(const struct erg_hook_rows *rows, const char *path, struct erg_text *text);

#endif
