/*
 * Prices: a lower bound of an iteration's energy, from the time value of each instruction; and the
 * planned frontier without plans, at whose end they are found.
 */
#include "iteration/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void init_prices(struct erg_prices *prices, const struct erg_pipeline *pipeline)
{
    size_t instructions = 2 * pipeline->stages * pipeline->chunks * pipeline->microbatches;
    *prices = (struct erg_prices){.stages = pipeline->stages,
                                  .microbatches = pipeline->microbatches,
                                  .chunks = pipeline->chunks};
    prices->instruction_w = erg_xcalloc(instructions, sizeof *prices->instruction_w);
    prices->hop_w = erg_xcalloc(pipeline->stages, sizeof *prices->hop_w);
}

/* From flows of a unit each: of the instructions, then of the dependencies of the schedule's
 * problem (tables_internal.h). */
static void set_prices(struct erg_prices *prices, const struct erg_schedule *schedule,
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

/* ---- the planned frontier alone ---- */

struct passing {
    struct timecost_visitor visitor;
    const struct option_tables *tables;
    const struct erg_schedule *schedule;
    struct erg_prices *prices;
    bool (*each)(void *context, struct erg_breakpoint at, double slope_w);
    void *context;
    double cost_j; /* C where the sweep is */
};

static void pass_on(struct passing *passing, int64_t ticks, double slope_w)
{
    const struct erg_breakpoint at = {(double)ticks * passing->tables->tick_s, passing->cost_j};
    passing->visitor.enough |= !passing->each(passing->context, at, slope_w);
}

static void pass_piece(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope)
{
    struct passing *passing = visitor->context;
    double slope_w = (double)slope * passing->tables->slope_unit_w;
    passing->cost_j += slope_w * (double)(from - to) * passing->tables->tick_s;
    pass_on(passing, to, slope_w);
    if (visitor->enough)
        visitor->deadline = to;
}

/* The only plan that is asked for is the last one. */
static void take_prices(struct timecost_visitor *visitor, const struct timecost_plan *plan)
{
    const struct passing *passing = visitor->context;
    set_prices(passing->prices, passing->schedule, plan->flow, passing->tables->slope_unit_w);
    visitor->deadline = -1;
}

static int sweep(struct passing *passing, struct erg_error *err)
{
    const struct erg_schedule *schedule = passing->schedule;
    struct timecost_problem problem;
    erg_option_tables_problem(passing->tables, schedule, &problem);
    passing->visitor = (struct timecost_visitor){.context = passing,
                                                 .deadline = erg_timecost_longest_path(&problem, 1),
                                                 .piece = pass_piece,
                                                 .plan = take_prices};
    passing->cost_j = erg_option_tables_cheapest_j(passing->tables, schedule);
    pass_on(passing, erg_timecost_longest_path(&problem, 0), 0);
    int result = passing->visitor.enough ? 0 : erg_timecost_sweep(&problem, &passing->visitor, err);
    erg_option_tables_problem_release(&problem);
    return result;
}

int erg_iteration_sweep(const struct erg_pipeline *pipeline, const struct erg_frontier *tables,
                        bool (*each)(void *context, struct erg_breakpoint at, double slope_w),
                        void *context, struct erg_prices *prices, struct erg_error *err)
{
    struct erg_schedule schedule;
    struct option_tables options = {0};
    struct passing passing = {.tables = &options,
                              .schedule = &schedule,
                              .prices = prices,
                              .each = each,
                              .context = context};
    *prices = (struct erg_prices){0};
    if (erg_schedule_init(&schedule, pipeline, err) != 0)
        return -1;
    init_prices(prices, pipeline);
    int result = erg_option_tables_init(&options, &schedule, tables, 0, err);
    if (result == 0)
        result = sweep(&passing, err);
    erg_option_tables_release(&options);
    erg_schedule_release(&schedule);
    return result;
}
