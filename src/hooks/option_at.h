/*
 * What an instruction costs at a clock that it was not planned at, from the plan alone: by an
 * option of its own in the same mode, or the rows of the plan's stage profile; between two clocks
 * that are known, on the line between them; above all of them it gets no faster, and its energy
 * grows with the clock.
 */
#ifndef ERG_HOOKS_OPTION_AT_H
#define ERG_HOOKS_OPTION_AT_H

#include "plan/plan.h"

/* Of one GPU; planned seconds. */
struct erg_option_cost {
    double time_s, energy_j;
};

/* Instruction i of the schedule, planned with `option`, at a clock not below the option's. */
struct erg_option_cost erg_option_at(const struct erg_plan *plan, size_t i,
                                     const struct erg_plan_option *option, int clock_mhz);

#endif
