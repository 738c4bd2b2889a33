/* The plans of an iteration once they are realised. */
#ifndef ERG_ITERATION_INTERNAL_H
#define ERG_ITERATION_INTERNAL_H

#include "iteration/iteration.h"

/*
 * Sorts the plans, gives each the tightest of all their deadlines that it meets, with what is
 * planned for that, and makes the frontier.
 */
void erg_iteration_sort_plans(struct erg_iteration *iteration);

/*
 * With few options the plan of least energy may be slower than the time of least planned energy:
 * gaps between options cost more than a little more waiting. No plan at T costs less than what is
 * planned for T, which bounds where to look. Adds what it finds there.
 */
int erg_iteration_refine_least(struct erg_iteration *iteration,
                               const struct erg_iteration_request *request, struct erg_error *err);

#endif
