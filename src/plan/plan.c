/* Plans in memory: made, completed and freed; the scale from one GPU of each stage to all. */
#include "plan/plan_internal.h"

#include "base/clock.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- methods ---- */

const char *erg_method_label(enum erg_method method)
{
    static const char *const labels[ERG_METHOD_COUNT] = {
        [ERG_METHOD_SEQUENTIAL] = "sequential, full clock (Megatron-LM)",
        [ERG_METHOD_SEQUENTIAL_CLOCKS] = "sequential + clocks (Perseus)",
        [ERG_METHOD_NANOBATCHING] = "nanobatching, full clock",
        [ERG_METHOD_NANOBATCHING_CLOCKS] = "nanobatching + clocks",
        [ERG_METHOD_ERGON] = "ergon",
    };
    return labels[method];
}

int erg_method_parse(const char *name, enum erg_method *method, struct erg_error *err)
{
    const char *names[ERG_METHOD_COUNT + 1] = {NULL};
    for (int i = 0; i < ERG_METHOD_COUNT; i++) {
        names[i] = erg_method_name((enum erg_method)i);
        if (!strcmp(name, names[i])) {
            *method = (enum erg_method)i;
            return 0;
        }
    }
    const char *meant = erg_closest(name, names);
    return erg_fail(err, ERG_USAGE,
                    "unknown method '%s'%s%s%s; expected sequential, sequential+clocks, "
                    "nanobatching, nanobatching+clocks or ergon",
                    name, meant ? ", did you mean '" : "", meant ? meant : "", meant ? "'" : "");
}

/* ---- the scale ---- */

/* Exactly that of every stage where all are alike. */
static double mean(const double *stage_w, int stages)
{
    assert(stages > 0);
    double mean_w = stage_w[0];
    for (int s = 1; s < stages; s++)
        mean_w += (stage_w[s] - stage_w[0]) / stages;
    return mean_w;
}

void erg_scale_set_powers(struct erg_scale *scale, double *blocking_w, const double *static_w)
{
    scale->blocking_power_w = mean(blocking_w, scale->stages);
    scale->static_power_w = mean(static_w, scale->stages);
    for (int s = 0; s < scale->stages; s++)
        blocking_w[s] -= scale->blocking_power_w;
    scale->beyond_w = blocking_w;
}

double erg_scale_option_energy(const struct erg_scale *scale, size_t stage, double time_s,
                               double energy_j)
{
    return scale->beyond_w ? energy_j - scale->beyond_w[stage] * time_s : energy_j;
}

double erg_scale_time(const struct erg_scale *scale, double planned_s)
{
    return planned_s * (1 + scale->overhead);
}

double erg_scale_energy(const struct erg_scale *scale, double planned_s, double planned_j)
{
    double waiting = scale->blocking_power_w * scale->stages * planned_s * scale->overhead;
    return (planned_j + waiting) * scale->gpus_per_stage;
}

double erg_scale_waiting_w(const struct erg_scale *scale)
{
    return scale->blocking_power_w * scale->stages * scale->gpus_per_stage;
}

struct erg_plan_point erg_scale_point(const struct erg_scale *scale,
                                      const struct erg_iteration_plan *plan)
{
    struct erg_plan_point point = {
        .time_s = erg_scale_time(scale, plan->time_s),
        .energy_j = erg_scale_energy(scale, plan->time_s, plan->energy_j),
        .planned_time_s = erg_scale_time(scale, plan->planned_time_s),
        .planned_energy_j = erg_scale_energy(scale, plan->planned_time_s, plan->planned_energy_j),
        .option = plan->option,
    };
    point.static_energy_j =
        scale->static_power_w * scale->stages * scale->gpus_per_stage * point.time_s;
    point.dynamic_energy_j = point.energy_j - point.static_energy_j;
    return point;
}

void erg_plan_list_points(struct erg_frontier *out, const struct erg_plan_point *points,
                          size_t count)
{
    erg_frontier_clear(out);
    for (size_t i = 0; i < count; i++)
        erg_frontier_add(out, points[i].time_s, points[i].energy_j, (int64_t)i);
}

/* ---- the plan ---- */

struct erg_plan *erg_plan_new(void)
{
    struct erg_plan *plan = erg_xcalloc(1, sizeof *plan);
    char now[32];
    erg_utc_now(now, sizeof now);
    plan->ergon_version = ERGON_VERSION;
    plan->created_utc = erg_arena_strdup(&plan->arena, now);
    plan->window_s = plan->cooldown_s = plan->warmup_s = NAN;
    return plan;
}

void erg_plan_free(struct erg_plan *plan)
{
    if (!plan)
        return;
    erg_schedule_release(&plan->schedule);
    erg_arena_release(&plan->arena);
    free(plan);
}

void erg_plan_set_powers(struct erg_plan *plan)
{
    const size_t stages = (size_t)plan->layout.pipeline;
    double *waiting_w = erg_arena_alloc(&plan->arena, stages * sizeof *waiting_w);
    double *static_w = erg_arena_alloc(&plan->arena, stages * sizeof *static_w);
    for (size_t s = 0; s < stages; s++) {
        const struct erg_plan_kind *kind = erg_plan_stage_kind(plan, s);
        waiting_w[s] = kind->blocking_power_w;
        static_w[s] = kind->static_power_w;
    }
    plan->scale.stages = (int)stages;
    erg_scale_set_powers(&plan->scale, waiting_w, static_w);
}

int erg_plan_complete_schedule(struct erg_plan *plan, struct erg_error *err)
{
    const struct erg_layout *layout = &plan->layout;
    struct erg_pipeline pipeline = {
        .stages = (size_t)layout->pipeline,
        .microbatches = (size_t)layout->microbatches,
        .chunks = (size_t)layout->virtual_stages,
        .hop_latency_s = plan->hop_latency_s,
    };
    if (!plan->scale.beyond_w)
        erg_plan_set_powers(plan);
    pipeline.blocking_power_w = plan->scale.blocking_power_w;
    if (erg_schedule_init(&plan->schedule, &pipeline, err))
        return -1;
    const struct erg_schedule *schedule = &plan->schedule;
    plan->kind = erg_layout_schedule(layout);
    plan->hop_count = plan->order_count = pipeline.stages;
    plan->layer_count = layout->chunk_layers ? pipeline.stages * pipeline.chunks : 0;
    plan->recompute_count = layout->stage_recompute ? pipeline.stages : 0;
    plan->offload_count = layout->stage_offload ? pipeline.stages : 0;
    plan->order = erg_arena_alloc(&plan->arena, pipeline.stages * sizeof *plan->order);
    for (size_t s = 0; s < pipeline.stages; s++)
        plan->order[s] = (struct erg_plan_order){schedule->instructions + s * schedule->per_stage,
                                                 schedule->per_stage};
    return 0;
}

void erg_plan_complete_points(struct erg_plan *plan)
{
    const struct erg_schedule *schedule = &plan->schedule;
    const size_t stages = schedule->pipeline.stages;
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        struct erg_plan_method *method = &plan->methods[m];
        method->slower = method->points + method->point_count;
        for (size_t i = 0; i < method->point_count + method->slower_count; i++) {
            struct erg_plan_point *point = &method->points[i];
            assert(point->option && stages * schedule->per_stage == schedule->count);
            point->recipe = erg_arena_alloc(&plan->arena, stages * sizeof *point->recipe);
            point->recipe_count = stages;
            for (size_t s = 0; s < stages; s++)
                point->recipe[s] = (struct erg_plan_recipe){point->option + s * schedule->per_stage,
                                                            schedule->per_stage};
        }
    }
}

/* The options of every pass that some point runs, by number. To be freed. */
static bool *find_used(const struct erg_plan *plan, const size_t *first, size_t count)
{
    const struct erg_schedule *schedule = &plan->schedule;
    bool *used = erg_xcalloc(count + 1, sizeof *used);
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        const struct erg_plan_method *method = &plan->methods[m];
        for (size_t p = 0; p < method->point_count + method->slower_count; p++)
            for (size_t i = 0; i < schedule->count; i++) {
                size_t table = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
                assert(method->points[p].option[i] < first[table + 1] - first[table]);
                used[first[table] + method->points[p].option[i]] = true;
            }
    }
    return used;
}

/* Leaves out the options that no point runs, so that a stage's list is short and every index in it
 * is meant. */
static void drop_unused(struct erg_plan *plan)
{
    const struct erg_schedule *schedule = &plan->schedule;
    const size_t tables = 2 * plan->stage_count;
    size_t *first = erg_xcalloc(tables + 1, sizeof *first);
    for (size_t t = 0; t < tables; t++)
        first[t + 1] = first[t] + plan->stages[t / 2].passes[t % 2].count;
    bool *used = find_used(plan, first, first[tables]);
    uint32_t *number = erg_xcalloc(first[tables] + 1, sizeof *number);
    for (size_t t = 0; t < tables; t++) {
        struct erg_plan_options *options = &plan->stages[t / 2].passes[t % 2];
        options->count = 0;
        for (size_t k = first[t]; k < first[t + 1]; k++)
            if (used[k]) {
                number[k] = (uint32_t)options->count;
                options->items[options->count++] = options->items[k - first[t]];
            }
    }
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        struct erg_plan_method *method = &plan->methods[m];
        for (size_t p = 0; p < method->point_count + method->slower_count; p++)
            for (size_t i = 0; i < schedule->count; i++) {
                uint32_t *option = &method->points[p].option[i];
                size_t table = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
                *option = number[first[table] + *option];
            }
    }
    free(number);
    free(used);
    free(first);
}

/* How many layers each chunk has, also where all have as many. */
static void set_layers(struct erg_plan *plan)
{
    if (plan->layout.chunk_layers || !plan->stages[0].layers)
        return;
    long *layers = erg_arena_alloc(&plan->arena, plan->stage_count * sizeof *layers);
    for (size_t x = 0; x < plan->stage_count; x++)
        layers[x] = plan->stages[x].layers;
    plan->layout.chunk_layers = layers;
}

int erg_plan_complete(struct erg_plan *plan, struct erg_error *err)
{
    set_layers(plan);
    if (erg_plan_complete_schedule(plan, err))
        return -1;
    drop_unused(plan);
    erg_plan_complete_points(plan);
    return 0;
}

const struct erg_plan_kind *erg_plan_stage_kind(const struct erg_plan *plan, size_t stage)
{
    assert(plan->stages[stage].kind < plan->kind_count);
    return &plan->kinds[plan->stages[stage].kind];
}

const struct erg_plan_option *erg_plan_option(const struct erg_plan *plan,
                                              const struct erg_plan_point *point, size_t i)
{
    const struct erg_schedule *schedule = &plan->schedule;
    const struct erg_instruction *instruction = &schedule->instructions[i];
    size_t x = erg_table_index(&schedule->pipeline, instruction) / 2;
    assert(i < schedule->count &&
           point->option[i] < plan->stages[x].passes[instruction->direction].count);
    return &plan->stages[x].passes[instruction->direction].items[point->option[i]];
}
