/*
 * Comparison of a method with the two references of the published evaluation (Kareus section 6.1):
 * sequential execution at full clock ("what a training framework does today"), and the frontier
 * of sequential execution with planned clocks.
 */
#ifndef ERG_OPTIMIZE_COMPARE_H
#define ERG_OPTIMIZE_COMPARE_H

#include "ergon/frontier.h"

/* Reductions in percent, positive = better than the reference; NAN = undefined. */
struct erg_versus {
    /* The method's fastest point against sequential execution at full clock. */
    double max_throughput_time, max_throughput_energy;
    /* Against the frontier of sequential execution with clocks: least energy within the time of
     * its fastest point, and least time within the energy of its cheapest point. Undefined when
     * the method has no such point. */
    double iso_time_energy, iso_energy_time;
};

/*
 * `full_clock` is the one point of sequential execution at full clock. The lists need not be
 * filtered; points are compared as they are, never interpolated, with a relative slack of 1e-9.
 * An empty `method` gives all NAN, an empty `clocks` the latter two.
 */
struct erg_versus erg_compare(const struct erg_frontier *method, struct erg_point full_clock,
                              const struct erg_frontier *clocks);

#endif
