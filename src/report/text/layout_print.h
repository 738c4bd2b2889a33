/* The text of ergon layout for people. */
#ifndef ERG_REPORT_TEXT_LAYOUT_PRINT_H
#define ERG_REPORT_TEXT_LAYOUT_PRINT_H

#include "layout/document/layouts.h"

#include <stdio.h>

void erg_layout_print_heading(FILE *out, const struct erg_layout_answer *answer);

/* Layouts at the highest clock, as a table. */
void erg_layout_print_rows(FILE *out, const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *const *rows, size_t count);
/* How many layouts were tried, and how many were rejected for which reason. */
void erg_layout_print_tried(FILE *out, const struct erg_layout_results *found);

/* The kind of GPU and the layers of each stage, if there are several kinds. */
void erg_layout_print_stages(FILE *out, const char *what, const struct erg_layout_answer *answer,
                             const struct erg_layout_candidate *candidate);
/* For software that supports one kind of GPU: the kind of each rank, as comments. */
void erg_layout_print_ranks(FILE *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *candidate);

/* The best layouts over clocks, at most `top`, the frontier of the best one, and what is proven
 * about the others. */
void erg_layout_print_choice(FILE *out, const struct erg_layout_answer *answer, size_t top);

/* A line for every number of GPUs, with several kinds for every set of them: the fastest layout,
 * and whether it is on the frontier of all (layout_counts.c). */
void erg_layout_print_counts(FILE *out, const struct erg_layout_answer *answer);

/*
 * The parts of the time and energy of an iteration at the highest clock, and of the bytes of the
 * GPU that needs most; next to those of another layout unless `other` is NULL (layout_items.c).
 */
void erg_layout_print_items(FILE *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *one,
                            const struct erg_layout_candidate *other);

#endif
