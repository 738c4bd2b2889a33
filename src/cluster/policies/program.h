/*
 * Linear and mixed integer programs: maximize c x, subject to low <= A x <= high and
 * 0 <= x <= upper. Linear ones are solved by Clp, integer ones by Cbc (COIN-OR).
 */
#ifndef ERG_CLUSTER_POLICIES_PROGRAM_H
#define ERG_CLUSTER_POLICIES_PROGRAM_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Column by column. Zeros are an empty program. */
struct erg_program {
    struct {
        double *low, *high;
        size_t count, capacity;
    } rows;
    struct {
        double *values, *upper; /* of the objective; bounds */
        int *first;             /* entry */
        size_t count, capacity;
    } columns;
    struct {
        int *rows;
        double *values;
        size_t count, capacity;
    } entries;
};

void erg_program_release(struct erg_program *program);

/* Clears the program, but keeps its memory. */
void erg_program_reset(struct erg_program *program);

/* Both return an index; infinite bounds are none. Entries belong to the last column. */
int erg_program_row(struct erg_program *program, double low, double high);
int erg_program_column(struct erg_program *program, double value, double upper);
void erg_program_entry(struct erg_program *program, int row, double value);

/*
 * Fills `solution`, by column. With `integers`, all columns are whole numbers, and the value is
 * within a share `gap` of the best. Fails if the program is infeasible or unbounded.
 */
int erg_program_solve(const struct erg_program *program, bool integers, double gap,
                      double *solution, struct erg_error *err);

#endif
