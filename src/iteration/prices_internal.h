/* Prices from the flows of a sweep. */
#ifndef ERG_ITERATION_PRICES_INTERNAL_H
#define ERG_ITERATION_PRICES_INTERNAL_H

#include "iteration/iteration.h"

/* Of nothing; to be released. */
void erg_prices_init(struct erg_prices *prices, const struct erg_pipeline *pipeline);

/* From flows of a unit each: of the instructions, then of the dependencies of the schedule's
 * problem (tables_internal.h). */
void erg_prices_set(struct erg_prices *prices, const struct erg_schedule *schedule,
                    const int64_t *flow, double unit_w);

#endif
