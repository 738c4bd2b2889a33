/* Where the time, the energy and the bytes of a layout go. */
#ifndef ERG_CLI_PLAN_ITEMS_H
#define ERG_CLI_PLAN_ITEMS_H

#include "layout/document/layouts.h"

/*
 * Prints the seconds and joules of an iteration with everything at the highest clock, and the bytes
 * of the GPU that needs most, item by item; beside those of another layout unless `other` is NULL.
 */
void erg_plan_print_items(const struct erg_layout_answer *answer,
                          const struct erg_layout_candidate *one,
                          const struct erg_layout_candidate *other);

#endif
