/* Which options all stages can repeat: for times of a cycle, one forward and backward of each. */
#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <stdlib.h>

/* All pairs of options of a forward and a backward that no other pair beats. */
static void find_pairs(struct erg_frontier *pairs, const struct option_table *tables)
{
    struct erg_frontier options[2] = {{0}, {0}};
    for (int d = 0; d < 2; d++)
        for (size_t o = 0; o < tables[d].count; o++)
            erg_frontier_add(&options[d], tables[d].options[o].time_s, tables[d].options[o].cost_j,
                             (int64_t)o);
    erg_frontier_sum(pairs, &options[ERG_FORWARD], &options[ERG_BACKWARD]);
    erg_frontier_release(&options[0]);
    erg_frontier_release(&options[1]);
}

/* The slowest pair within a time, the first one being within it. */
static const struct erg_point *pair_within(const struct erg_frontier *pairs, double time_s)
{
    size_t low = 0, high = pairs->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (pairs->points[middle].time_s <= time_s)
            low = middle;
        else
            high = middle;
    }
    return &pairs->points[low];
}

/* The hull of the cost of all stages when each keeps a time. */
static void find_hull(struct rounding_cycles *cycles, const struct erg_frontier *pairs,
                      size_t stages)
{
    double shortest_s = 0;
    for (size_t s = 0; s < stages; s++)
        if (pairs[s].points[0].time_s > shortest_s)
            shortest_s = pairs[s].points[0].time_s;
    for (size_t s = 0; s < stages; s++)
        for (size_t i = 0; i < pairs[s].count; i++) {
            double time_s = pairs[s].points[i].time_s, cost_j = 0;
            if (time_s < shortest_s)
                continue;
            for (size_t other = 0; other < stages; other++)
                cost_j += pair_within(&pairs[other], time_s)->energy_j;
            erg_frontier_add(&cycles->hull, time_s, cost_j, 0);
        }
    erg_frontier_hull(&cycles->hull);
}

void erg_rounding_cycles_init(struct rounding_cycles *cycles, const struct erg_schedule *schedule,
                              const struct option_tables *tables)
{
    *cycles = (struct rounding_cycles){.table_count = tables->count};
    if (schedule->pipeline.chunks > 1)
        return;
    size_t stages = schedule->pipeline.stages;
    struct erg_frontier *pairs = erg_xcalloc(stages, sizeof *pairs);
    for (size_t s = 0; s < stages; s++)
        find_pairs(&pairs[s], &tables->tables[2 * s]);
    find_hull(cycles, pairs, stages);
    cycles->option = erg_xcalloc(cycles->hull.count * tables->count, sizeof *cycles->option);
    for (size_t c = 0; c < cycles->hull.count; c++)
        for (size_t s = 0; s < stages; s++) {
            uint16_t *option = &cycles->option[c * tables->count + 2 * s];
            int64_t recipe = pair_within(&pairs[s], cycles->hull.points[c].time_s)->recipe;
            int64_t backwards = (int64_t)tables->tables[2 * s + ERG_BACKWARD].count;
            option[ERG_FORWARD] = (uint16_t)(recipe / backwards);
            option[ERG_BACKWARD] = (uint16_t)(recipe % backwards);
        }
    for (size_t s = 0; s < stages; s++)
        erg_frontier_release(&pairs[s]);
    free(pairs);
}

void erg_rounding_cycles_release(struct rounding_cycles *cycles)
{
    erg_frontier_release(&cycles->hull);
    free(cycles->option);
}
