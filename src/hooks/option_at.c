/* The cost of an instruction at a clock other than its own. */
#include "hooks/option_at.h"

#include <assert.h>

/* The nearest clocks on both sides of the requested one. */
struct around {
    int wanted_mhz;
    int below_mhz, above_mhz; /* 0: none; equal: the clock itself */
    struct erg_option_cost below, above;
};

/* Among equal clocks, the one with the least energy. */
static void consider(struct around *around, int clock_mhz, struct erg_option_cost cost)
{
    if (clock_mhz <= around->wanted_mhz &&
        (clock_mhz > around->below_mhz ||
         (clock_mhz == around->below_mhz && cost.energy_j < around->below.energy_j))) {
        around->below_mhz = clock_mhz;
        around->below = cost;
    }
    if (clock_mhz >= around->wanted_mhz &&
        (!around->above_mhz || clock_mhz < around->above_mhz ||
         (clock_mhz == around->above_mhz && cost.energy_j < around->above.energy_j))) {
        around->above_mhz = clock_mhz;
        around->above = cost;
    }
}

struct erg_option_cost erg_option_at(const struct erg_plan *plan, size_t i,
                                     const struct erg_plan_option *option, int clock_mhz)
{
    const struct erg_instruction *instruction = &plan->schedule.instructions[i];
    const size_t table = erg_table_index(&plan->schedule.pipeline, instruction);
    const struct erg_plan_options *options =
        &plan->stages[table / 2].passes[instruction->direction];
    struct around around = {.wanted_mhz = clock_mhz};
    assert(clock_mhz >= option->clock_mhz);
    if (clock_mhz == option->clock_mhz)
        return (struct erg_option_cost){option->time_s, option->energy_j};
    for (size_t k = 0; k < options->count; k++)
        if (options->items[k].mode == option->mode)
            consider(
                &around, options->items[k].clock_mhz,
                (struct erg_option_cost){options->items[k].time_s, options->items[k].energy_j});
    for (size_t k = 0; k < plan->profile_count && option->mode == ERG_MODE_SEQUENTIAL; k++) {
        const struct erg_plan_row *row = &plan->profile[k];
        if (row->stage == table / 2 && row->direction == instruction->direction)
            consider(&around, row->clock_mhz, (struct erg_option_cost){row->time_s, row->energy_j});
    }
    assert(around.below_mhz); /* the option itself */
    if (!around.above_mhz)
        return (struct erg_option_cost){around.below.time_s,
                                        around.below.energy_j * clock_mhz / around.below_mhz};
    if (around.above_mhz == around.below_mhz)
        return around.below;
    const double share =
        (double)(clock_mhz - around.below_mhz) / (double)(around.above_mhz - around.below_mhz);
    return (struct erg_option_cost){
        around.below.time_s + share * (around.above.time_s - around.below.time_s),
        around.below.energy_j + share * (around.above.energy_j - around.below.energy_j)};
}
