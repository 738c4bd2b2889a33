/* What ergon plan prints for people. */
#ifndef ERG_CLI_PLAN_PRINT_H
#define ERG_CLI_PLAN_PRINT_H

#include "base/table.h"
#include "layout/document/layouts.h"

/* Releases it. */
void erg_plan_print_table(struct erg_table *table);

void erg_plan_print_heading(const struct erg_layout_answer *answer);

/* Layouts at the highest clock, as a table. */
void erg_plan_print_rows(const struct erg_layout_answer *answer,
                         const struct erg_layout_candidate *const *rows, size_t count);
/* How many were tried and what became of them. */
void erg_plan_print_tried(const struct erg_layout_found *found);

/* The best layouts over clocks, at most `top`, the frontier of the best one, and what is proven. */
void erg_plan_print_choice(const struct erg_layout_answer *answer, size_t top);

/* Every number of GPUs, of several kinds on every set of them: the fastest layout, and whether it
 * is on the frontier of all (plan_counts.c). */
void erg_plan_print_counts(const struct erg_layout_answer *answer);

#endif
