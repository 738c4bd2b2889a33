/*
 * The cost of an instruction at a clock for which it was not planned, from the plan alone: from its
 * options in the same mode, or from the rows of the plan's stage profile. Costs are interpolated
 * linearly between known clocks. Above the highest one the time stays constant, and the energy
 * grows with the clock.
 */
#ifndef ERG_HOOKS_OPTION_AT_H
#define ERG_HOOKS_OPTION_AT_H

#include "plan/plan.h"

/* For one GPU; planned seconds. */
struct erg_option_cost {
    double time_s, energy_j;
};

/* Instruction i of the schedule, planned with `option`, at a clock not below the option's. */
struct erg_option_cost erg_option_at(const struct erg_plan *plan, size_t i,
                                     const struct erg_plan_option *option, int clock_mhz);

#endif
