/*
 * From a continuous plan to one measured option per instruction, never beyond the deadline.
 *
 * Candidates, of which the cheapest feasible one wins:
 *  - error diffusion: in topological order, the option just above the planned duration when the
 *    actual start leaves room for it, otherwise the one just below; unused time flows downstream;
 *  - floor: always the option just below;
 *  - nearest, then repaired where a finish comes too late for fast successors.
 * Each then has its slack reclaimed: instructions move to slower options, the best savings per
 * second first. An optional local search perturbs the winner.
 */
#ifndef ERG_ITERATION_ROUNDING_INTERNAL_H
#define ERG_ITERATION_ROUNDING_INTERNAL_H

#include "base/random.h"
#include "iteration/tables_internal.h"

struct rounding;

struct rounding *rounding_new(const struct erg_schedule *schedule,
                              const struct option_tables *tables);
void rounding_free(struct rounding *rounding);

/*
 * start and duration in ticks per instruction; deadline_s at least the true shortest time.
 * Writes the index of the chosen option into `option` (as the caller's tables count). `effort` is
 * the number of single evaluations the local search may spend, 0 for none.
 */
void rounding_round(struct rounding *rounding, const int32_t *start, const int32_t *duration,
                    double deadline_s, size_t effort, uint32_t *option);

#endif
