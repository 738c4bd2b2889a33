/*
 * Rows of a profile made by hooks: seconds and joules of each instruction at each clock, averaged
 * over the ranks of its stage, in the format of "ergon frontier" (iteration/iteration.h).
 *
 * Clocks go from the highest down. A clock that lacks the row of some instruction is excluded,
 * since every instruction needs the same clocks. The trial can stop once each instruction's energy
 * has risen at three clocks in a row: no plan would use lower clocks.
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
    bool lacks;              /* a rank has no value */
};

struct erg_hook_rows {
    struct erg_hook_shape shape;
    /* [count][2 * chunks * stages]; one more while a clock is under trial. */
    struct erg_hook_row *rows;
    int *clocks_mhz;        /* [count], and one more under trial */
    size_t count, left_out; /* clocks */
    int *rises; /* consecutive rises of energy, [2 * chunks * stages]; kept once they are enough */
    double waiting_w; /* sum over clocks and ranks */
    size_t waits;
    double worst; /* highest uncertainty of a row, as a share; 0: no rows */
};

void erg_hook_rows_init(struct erg_hook_rows *rows, const struct erg_hook_shape *shape);
void erg_hook_rows_release(struct erg_hook_rows *rows);

/* Begins another clock, below all others. */
void erg_hook_rows_begin(struct erg_hook_rows *rows, int clock_mhz);

/*
 * Adds the measurement of one rank for an instruction of its stage, `uncertainty` as a share; NaN:
 * unknown.
 */
void erg_hook_rows_add(struct erg_hook_rows *rows, size_t stage, size_t chunk,
                       enum erg_direction direction, double time_s, double energy_j,
                       double uncertainty);
void erg_hook_rows_wait(struct erg_hook_rows *rows, double power_w); /* NaN: unknown */

/* All ranks have reported. False: the clock is excluded. */
bool erg_hook_rows_end(struct erg_hook_rows *rows);

/* Whether no lower clock is worth a trial. */
bool erg_hook_rows_suffice(const struct erg_hook_rows *rows);

/* The whole file. */
void erg_hook_rows_write(const struct erg_hook_rows *rows, struct erg_text *csv);

/* Describes the file at `path` and the command that makes a plan from it; at least one clock. */
void erg_hook_rows_say(const struct erg_hook_rows *rows, const char *path, struct erg_text *text);

#endif
