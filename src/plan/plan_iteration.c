/* The plan of a pipeline whose instructions differ in their clocks alone. */
#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

static void set_stage(struct erg_plan *plan, const struct erg_frontier *tables, size_t x,
                      size_t kind, double beyond_w)
{
    const size_t stages = (size_t)plan->layout.pipeline;
    struct erg_plan_stage *stage = &plan->stages[x];
    *stage = (struct erg_plan_stage){
        .stage = (int)(x % stages),
        .chunk = (int)(x / stages),
        .kind = kind,
        .layers = plan->layout.chunk_layers ? plan->layout.chunk_layers[x] : 0,
    };
    for (size_t d = 0; d < 2; d++) {
        const struct erg_frontier *table = &tables[2 * x + d];
        struct erg_plan_options *options = &stage->passes[d];
        options->count = table->count;
        options->items = erg_arena_alloc(&plan->arena, table->count * sizeof *options->items);
        for (size_t k = 0; k < table->count; k++)
            options->items[k] = (struct erg_plan_option){
                .mode = ERG_MODE_SEQUENTIAL,
                .clock_mhz = (int)table->points[k].recipe,
                .time_s = table->points[k].time_s,
                .energy_j = table->points[k].energy_j + beyond_w * table->points[k].time_s,
            };
    }
}

static int by_clock(const void *left, const void *right)
{
    const int a = *(const int *)left, b = *(const int *)right;
    return (a < b) - (a > b);
}

/* All clocks of the options of stages on a kind, each once, decreasing. */
static void set_clocks(struct erg_plan *plan, size_t kind)
{
    struct erg_plan_kind *gpus = &plan->kinds[kind];
    size_t count = 0;
    for (size_t t = 0; t < 2 * plan->stage_count; t++)
        count += plan->stages[t / 2].kind == kind ? plan->stages[t / 2].passes[t % 2].count : 0;
    gpus->clocks_mhz = erg_arena_alloc(&plan->arena, (count + 1) * sizeof *gpus->clocks_mhz);
    count = 0;
    for (size_t t = 0; t < 2 * plan->stage_count; t++) {
        const struct erg_plan_options *options = &plan->stages[t / 2].passes[t % 2];
        for (size_t k = 0; plan->stages[t / 2].kind == kind && k < options->count; k++)
            gpus->clocks_mhz[count++] = options->items[k].clock_mhz;
    }
    qsort(gpus->clocks_mhz, count, sizeof *gpus->clocks_mhz, by_clock);
    gpus->clock_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!i || gpus->clocks_mhz[i] != gpus->clocks_mhz[i - 1])
            gpus->clocks_mhz[gpus->clock_count++] = gpus->clocks_mhz[i];
}

static void set_pipeline(struct erg_plan *plan, const struct erg_pipeline *pipeline)
{
    plan->layout.pipeline = (long)pipeline->stages;
    plan->layout.virtual_stages = (long)pipeline->chunks;
    plan->layout.microbatches = (long)pipeline->microbatches;
    plan->hop_latency_s =
        erg_arena_alloc(&plan->arena, pipeline->stages * sizeof *plan->hop_latency_s);
    for (size_t s = 0; pipeline->hop_latency_s && s < pipeline->stages; s++)
        plan->hop_latency_s[s] = pipeline->hop_latency_s[s];
}

/* With options of its own. */
static struct erg_plan_point make_point(struct erg_plan *plan, const struct erg_schedule *schedule,
                                        const struct erg_iteration_plan *from)
{
    const size_t bytes = schedule->count * sizeof *from->option;
    struct erg_plan_point point = erg_scale_point(&plan->scale, from);
    point.option = memcpy(erg_arena_alloc(&plan->arena, bytes), from->option, bytes);
    return point;
}

/* Everything at the highest clock of its table. */
static void set_sequential(struct erg_plan *plan, const struct erg_schedule *schedule,
                           const struct erg_frontier *tables)
{
    struct erg_plan_method *method = &plan->methods[ERG_METHOD_SEQUENTIAL];
    uint32_t *highest = erg_arena_alloc(&plan->arena, schedule->count * sizeof *highest);
    double time_s, energy_j;
    erg_profile_highest_clock(schedule, tables, highest);
    erg_iteration_evaluate(schedule, tables, highest, NULL, &time_s, &energy_j);
    method->label = erg_method_label(ERG_METHOD_SEQUENTIAL);
    method->points = erg_arena_alloc(&plan->arena, sizeof *method->points);
    method->points[0] = erg_scale_point(
        &plan->scale, &(struct erg_iteration_plan){time_s, energy_j, time_s, energy_j, highest});
    method->point_count = 1;
}

static void compare(struct erg_plan *plan)
{
    struct erg_plan_method *sequential = &plan->methods[ERG_METHOD_SEQUENTIAL];
    struct erg_plan_method *clocks = &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    const struct erg_point full_clock = {sequential->points[0].time_s,
                                         sequential->points[0].energy_j, 0};
    struct erg_frontier own = {0}, reference = {0};
    erg_plan_list_points(&reference, clocks->points, clocks->point_count);
    erg_plan_list_points(&own, sequential->points, sequential->point_count);
    sequential->versus = erg_compare(&own, full_clock, &reference);
    clocks->versus = erg_compare(&reference, full_clock, &reference);
    erg_frontier_release(&own);
    erg_frontier_release(&reference);
}

void erg_plan_set_iteration(struct erg_plan *plan, const struct erg_iteration *iteration,
                            const struct erg_frontier *tables, const size_t *stage_kind,
                            size_t chosen, const char *rule)
{
    const struct erg_schedule *schedule = &iteration->schedule;
    const struct erg_frontier *frontier = &iteration->frontier;
    const size_t stages = schedule->pipeline.stages;
    set_pipeline(plan, &schedule->pipeline);
    plan->stage_count = stages * schedule->pipeline.chunks;
    plan->stages = erg_arena_alloc(&plan->arena, plan->stage_count * sizeof *plan->stages);
    for (size_t x = 0; x < plan->stage_count; x++) {
        const size_t kind = stage_kind ? stage_kind[x % stages] : 0;
        set_stage(plan, tables, x, kind,
                  plan->kinds[kind].blocking_power_w - schedule->pipeline.blocking_power_w);
    }
    erg_plan_set_powers(plan);
    for (size_t k = 0; k < plan->kind_count; k++)
        set_clocks(plan, k);
    set_sequential(plan, schedule, tables);
    struct erg_plan_method *method = &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    *method = (struct erg_plan_method){
        .label = erg_method_label(ERG_METHOD_SEQUENTIAL_CLOCKS),
        .points = erg_arena_alloc(&plan->arena, frontier->count * sizeof *method->points),
        .point_count = frontier->count,
    };
    plan->selected = (struct erg_plan_selection){ERG_METHOD_SEQUENTIAL_CLOCKS, 0, rule, 0};
    for (size_t i = 0; i < frontier->count; i++) {
        const struct erg_iteration_plan *from = &iteration->plans[frontier->points[i].recipe];
        method->points[i] = make_point(plan, schedule, from);
        if (frontier->points[i].time_s <= iteration->plans[chosen].time_s)
            plan->selected.point = i;
    }
    compare(plan);
}
