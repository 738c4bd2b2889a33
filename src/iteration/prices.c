/* Prices: a lower bound of an iteration's energy, from the time value of each instruction. */
#include "iteration/prices_internal.h"

#include "base/memory.h"
#include "iteration/tables_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void erg_prices_init(struct erg_prices *prices, const struct erg_pipeline *pipeline)
{
    size_t instructions = 2 * pipeline->stages * pipeline->chunks * pipeline->microbatches;
    *prices = (struct erg_prices){.stages = pipeline->stages,
                                  .microbatches = pipeline->microbatches,
                                  .chunks = pipeline->chunks};
    prices->instruction_w = erg_xcalloc(instructions, sizeof *prices->instruction_w);
    prices->hop_w = erg_xcalloc(pipeline->stages, sizeof *prices->hop_w);
}

void erg_prices_set(struct erg_prices *prices, const struct erg_schedule *schedule,
                    const int64_t *flow, double unit_w)
{
    const int64_t *along = flow + schedule->count;
    memset(prices->hop_w, 0, prices->stages * sizeof *prices->hop_w);
    prices->total_w = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        const uint32_t *before = schedule->before[i];
        size_t table = erg_table_index(&schedule->pipeline, instruction);
        double own_w = (double)flow[i] * unit_w;
        prices->instruction_w[table * prices->microbatches + instruction->microbatch] = own_w;
        if (before[0] == ERG_NONE && before[1] == ERG_NONE)
            prices->total_w += own_w; /* all of it comes from the beginning */
        for (int k = 0; k < 2; k++) {
            if (!option_tables_depends(schedule, i, k))
                continue;
            uint32_t hop = erg_schedule_hop(schedule, before[k], i);
            if (hop != ERG_NONE)
                prices->hop_w[hop] += (double)*along * unit_w;
            along++;
        }
    }
}

bool erg_prices_suit(const struct erg_prices *prices, const struct erg_pipeline *pipeline)
{
    return prices->stages == pipeline->stages && prices->chunks == pipeline->chunks &&
           prices->microbatches == pipeline->microbatches;
}

/* What the best option costs with its time at this price. */
static double least_j(const struct erg_frontier *options, double blocking_power_w, double price_w)
{
    double least = INFINITY;
    for (size_t i = 0; i < options->count; i++)
        least = fmin(least, options->points[i].energy_j +
                                (price_w - blocking_power_w) * options->points[i].time_s);
    return least;
}

double erg_prices_cost(const struct erg_prices *prices, const struct erg_pipeline *pipeline,
                       const struct erg_frontier *tables)
{
    const double *price_w = prices->instruction_w;
    double cost_j = 0;
    for (size_t t = 0; t < 2 * prices->stages * prices->chunks; t++)
        for (size_t i = 0; i < prices->microbatches; i++)
            cost_j += least_j(&tables[t], pipeline->blocking_power_w, *price_w++);
    for (size_t s = 0; pipeline->hop_latency_s && s < prices->stages; s++)
        cost_j += prices->hop_w[s] * pipeline->hop_latency_s[s];
    return cost_j;
}

void erg_prices_release(struct erg_prices *prices)
{
    free(prices->instruction_w);
    free(prices->hop_w);
    *prices = (struct erg_prices){0};
}
