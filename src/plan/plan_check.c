/* Whether a plan that was read is one: every index, the order of its instructions, every sum. */
#include "plan/plan_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Recomputed numbers differ from the file's by rounding only. */
static const double slack = 1e-6;

struct checker {
    struct erg_plan *plan;
    const struct erg_json_place *root;
    struct erg_error *err;
};

#define FAIL(checker, key, ...) erg_json_fail((checker)->root, key, (checker)->err, __VA_ARGS__)

static int check_count(const struct checker *c, const char *key, size_t count, size_t expected,
                       const char *what)
{
    return count == expected ? 0 : FAIL(c, key, "expected %zu %s, got %zu", expected, what, count);
}

/* ---- the data of the pipeline ---- */

static int check_job(const struct checker *c)
{
    const struct erg_plan *plan = c->plan;
    const struct erg_layout *layout = &plan->layout;
    const size_t stages = (size_t)layout->pipeline;
    const size_t virtual_stages = stages * (size_t)layout->virtual_stages;
    if (check_count(c, "job.hop_latency_s", plan->hop_count, stages, "entries, one for each stage"))
        return -1;
    if (plan->stage_count != virtual_stages)
        return FAIL(c, "stages",
                    "expected %zu entries (pipeline %zu x virtual_stages %ld), got %zu",
                    virtual_stages, stages, layout->virtual_stages, plan->stage_count);
    if (layout->chunk_layers &&
        check_count(c, "job.layers", plan->layer_count, virtual_stages, "entries"))
        return -1;
    if (layout->stage_recompute &&
        check_count(c, "job.stage_recompute", plan->recompute_count, stages, "entries"))
        return -1;
    if (layout->stage_offload &&
        check_count(c, "job.stage_offload", plan->offload_count, stages, "entries"))
        return -1;
    if (plan->step_ends &&
        check_count(c, "step_ends", plan->step_end_count, stages, "entries, one for each stage"))
        return -1;
    if (plan->kind != erg_layout_schedule(layout))
        return FAIL(c, "job.schedule", "%s with %ld virtual stages per stage is not possible",
                    plan->kind == ERG_SCHEDULE_1F1B ? "1f1b" : "interleaved",
                    layout->virtual_stages);
    return plan->kind_count ? 0 : FAIL(c, "kinds", "expected at least one kind of GPU");
}

static int check_kind(const struct checker *c, const char *key, size_t kind)
{
    return kind < c->plan->kind_count ? 0
                                      : FAIL(c, key, "expected an integer from 0 to %zu, got %zu",
                                             c->plan->kind_count - 1, kind);
}

/* ---- stages and their options ---- */

static bool lists_text(const char *const *list, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], text))
            return true;
    return false;
}

static bool lists_number(const int *list, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == number)
            return true;
    return false;
}

/* The searched configurations: on the GPU's SMs, at launch slots and clocks that the plan lists. */
static int check_partition(const struct checker *c, size_t i)
{
    const struct erg_plan_partition *partition = &c->plan->partitions[i];
    char key[96];
    snprintf(key, sizeof key, "partitions[%zu].kind", i);
    if (check_kind(c, key, partition->kind))
        return -1;
    const struct erg_plan_kind *gpus = &c->plan->kinds[partition->kind];
    for (size_t k = 0; gpus->sms && k < partition->sms_count; k++)
        if (partition->sms[k] > gpus->sms) {
            snprintf(key, sizeof key, "partitions[%zu].sms[%zu]", i, k);
            return FAIL(c, key, "expected at most the %d SMs of %s, got %d", gpus->sms, gpus->gpu,
                        partition->sms[k]);
        }
    for (size_t k = 0; k < partition->frontier_count; k++) {
        const struct erg_plan_estimate *estimate = &partition->frontier[k];
        snprintf(key, sizeof key, "partitions[%zu].frontier[%zu]", i, k);
        if (!lists_number(gpus->clocks_mhz, gpus->clock_count, estimate->clock_mhz) ||
            !lists_number(partition->sms, partition->sms_count, estimate->sms) ||
            !lists_text(partition->slots, partition->slot_count, estimate->slot))
            return FAIL(
                c, key, "%d MHz, slot %s and %d SMs are not a configuration of partition %s on %s",
                estimate->clock_mhz, estimate->slot, estimate->sms, partition->key, gpus->gpu);
    }
    return 0;
}

static int check_partitions(const struct checker *c)
{
    for (size_t i = 0; i < c->plan->partition_count; i++)
        if (check_partition(c, i))
            return -1;
    return 0;
}

static const struct erg_plan_partition *find_partition(const struct erg_plan *plan, size_t kind,
                                                       const char *key)
{
    for (size_t i = 0; i < plan->partition_count; i++)
        if (plan->partitions[i].kind == kind && !strcmp(plan->partitions[i].key, key))
            return &plan->partitions[i];
    return NULL;
}

static int check_configuration(const struct checker *c, const char *path, size_t kind,
                               const struct erg_plan_configuration *configuration)
{
    char key[160];
    const struct erg_plan_partition *partition =
        find_partition(c->plan, kind, configuration->partition);
    snprintf(key, sizeof key, "%s.%s", path, "partition");
    if (!partition)
        return FAIL(c, key, "the plan has no partition %s of %s", configuration->partition,
                    c->plan->kinds[kind].gpu);
    snprintf(key, sizeof key, "%s.%s", path, "slot");
    if (!lists_text(partition->slots, partition->slot_count, configuration->slot))
        return FAIL(c, key, "partition %s has no slot %s", configuration->partition,
                    configuration->slot);
    snprintf(key, sizeof key, "%s.%s", path, "sms");
    if (!lists_number(partition->sms, partition->sms_count, configuration->sms))
        return FAIL(c, key, "partition %s has no choice of %d SMs", configuration->partition,
                    configuration->sms);
    return 0;
}

static int check_option(const struct checker *c, const char *path, size_t kind,
                        const struct erg_plan_option *option)
{
    char key[128];
    const struct erg_plan_kind *gpus = &c->plan->kinds[kind];
    snprintf(key, sizeof key, "%s.clock_mhz", path);
    if (!lists_number(gpus->clocks_mhz, gpus->clock_count, option->clock_mhz))
        return FAIL(c, key, "%d is none of the clocks_mhz of %s", option->clock_mhz, gpus->gpu);
    snprintf(key, sizeof key, "%s.configurations", path);
    if (option->mode == ERG_MODE_OVERLAP && !option->configurations)
        return FAIL(c, key, "the key is missing, expected a list […]");
    if (option->mode != ERG_MODE_OVERLAP && option->configurations)
        return FAIL(c, key, "only the mode overlap has them, got mode %s",
                    erg_mode_name(option->mode));
    for (size_t i = 0; i < option->configuration_count; i++) {
        snprintf(key, sizeof key, "%s.configurations[%zu]", path, i);
        if (check_configuration(c, key, kind, &option->configurations[i]))
            return -1;
    }
    return 0;
}

static int check_options(const struct checker *c, size_t x, int direction)
{
    const struct erg_plan_stage *stage = &c->plan->stages[x];
    const struct erg_plan_options *options = &stage->passes[direction];
    char path[96];
    for (size_t i = 0; i < options->count; i++) {
        snprintf(path, sizeof path, "stages[%zu].%s.options[%zu]", x,
                 erg_direction_names[direction], i);
        if (check_option(c, path, stage->kind, &options->items[i]))
            return -1;
    }
    return 0;
}

static int check_stage(const struct checker *c, size_t x)
{
    const struct erg_plan *plan = c->plan;
    const struct erg_plan_stage *stage = &plan->stages[x];
    const size_t stages = (size_t)plan->layout.pipeline;
    const long *layers = plan->layout.chunk_layers;
    const struct erg_plan_stage *first = &plan->stages[x % stages];
    char key[64];
    snprintf(key, sizeof key, "stages[%zu].stage", x);
    if ((size_t)stage->stage != x % stages || (size_t)stage->chunk != x / stages)
        return FAIL(c, key, "expected stage %zu and chunk %zu here, got %d and %d", x % stages,
                    x / stages, stage->stage, stage->chunk);
    snprintf(key, sizeof key, "stages[%zu].layers", x);
    if (stage->layers != (layers ? layers[x] : 0))
        return FAIL(c, key, "%ld differs from job.layers[%zu]", stage->layers, x);
    snprintf(key, sizeof key, "stages[%zu].kind", x);
    if (check_kind(c, key, stage->kind))
        return -1;
    if (stage->kind != first->kind)
        return FAIL(c, key,
                    "chunk %d of stage %d is on GPUs of kind %zu, but its first is on kind "
                    "%zu",
                    stage->chunk, stage->stage, stage->kind, first->kind);
    return check_options(c, x, ERG_FORWARD) || check_options(c, x, ERG_BACKWARD) ? -1 : 0;
}

static int check_stages(const struct checker *c)
{
    for (size_t x = 0; x < c->plan->stage_count; x++)
        if (check_stage(c, x))
            return -1;
    return 0;
}

/* The stage profile is of the plan's stages, at clocks of their GPUs. */
static int check_profile(const struct checker *c)
{
    const struct erg_plan *plan = c->plan;
    char key[64];
    for (size_t i = 0; i < plan->profile_count; i++) {
        const struct erg_plan_row *row = &plan->profile[i];
        snprintf(key, sizeof key, "stage_profile[%zu].stage", i);
        if (row->stage >= plan->stage_count)
            return FAIL(c, key, "expected an integer from 0 to %zu, got %zu", plan->stage_count - 1,
                        row->stage);
        const struct erg_plan_kind *gpus = &plan->kinds[plan->stages[row->stage].kind];
        snprintf(key, sizeof key, "stage_profile[%zu].frequency", i);
        if (!lists_number(gpus->clocks_mhz, gpus->clock_count, row->clock_mhz))
            return FAIL(c, key, "%d is none of the clocks_mhz of %s", row->clock_mhz, gpus->gpu);
    }
    return 0;
}

/* ---- the order of instructions ---- */

/* First the sizes: nothing as large as a job claims is allocated for a file that is not. */
static int check_sizes(const struct checker *c)
{
    const struct erg_plan *plan = c->plan;
    const struct erg_layout *layout = &plan->layout;
    const size_t per_stage = 2 * (size_t)(layout->microbatches * layout->virtual_stages);
    char key[48];
    if (check_count(c, "schedule", plan->order_count, (size_t)layout->pipeline,
                    "lists, one per stage"))
        return -1;
    for (size_t s = 0; s < plan->order_count; s++)
        if (plan->order[s].count != per_stage) {
            snprintf(key, sizeof key, "schedule[%zu]", s);
            return FAIL(c, key,
                        "expected a list of %zu entries, one per instruction of the stage, got %zu",
                        per_stage, plan->order[s].count);
        }
    return 0;
}

static int check_order(const struct checker *c, const struct erg_plan_order *order)
{
    const struct erg_schedule *schedule = &c->plan->schedule;
    char key[64];
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *expected = &schedule->instructions[i];
        const struct erg_instruction *got = &order[expected->stage].items[i % schedule->per_stage];
        if (got->direction == expected->direction && got->microbatch == expected->microbatch &&
            got->chunk == expected->chunk)
            continue;
        snprintf(key, sizeof key, "schedule[%u][%zu].type", expected->stage,
                 i % schedule->per_stage);
        return FAIL(c, key,
                    "the job's schedule has the %s of microbatch %u on chunk %u here, got the %s "
                    "of microbatch %u on chunk %u",
                    erg_direction_names[expected->direction], expected->microbatch, expected->chunk,
                    erg_direction_names[got->direction], got->microbatch, got->chunk);
    }
    return 0;
}

/* ---- points ---- */

static int check_recipe(const struct checker *c, const char *path,
                        const struct erg_plan_point *point)
{
    const struct erg_plan *plan = c->plan;
    const struct erg_schedule *schedule = &plan->schedule;
    char key[160];
    snprintf(key, sizeof key, "%s.options", path);
    if (check_count(c, key, point->recipe_count, schedule->pipeline.stages, "lists, one per stage"))
        return -1;
    for (size_t s = 0; s < point->recipe_count; s++) {
        snprintf(key, sizeof key, "%s.options[%zu]", path, s);
        if (point->recipe[s].count != schedule->per_stage)
            return FAIL(c, key,
                        "expected a list of %zu entries, one per instruction of the stage, got %zu",
                        schedule->per_stage, point->recipe[s].count);
    }
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        const size_t position = i % schedule->per_stage;
        const size_t x = erg_table_index(&schedule->pipeline, instruction) / 2;
        const size_t count = plan->stages[x].passes[instruction->direction].count;
        if (point->recipe[instruction->stage].items[position] < count)
            continue;
        snprintf(key, sizeof key, "%s.options[%u][%zu]", path, instruction->stage, position);
        return FAIL(c, key,
                    "expected a whole number below %zu, the number of %s options of stages[%zu]",
                    count, erg_direction_names[instruction->direction], x);
    }
    return 0;
}

/* The file's number against the one that follows from its instructions. */
static int check_sum(const struct checker *c, const char *path, const char *name, double value,
                     double recomputed)
{
    char key[160];
    if (isfinite(recomputed) && fabs(value - recomputed) <= slack * fabs(recomputed))
        return 0;
    snprintf(key, sizeof key, "%s.%s", path, name);
    if (isnan(value))
        return FAIL(c, key, "expected the %.9g that its instructions make, got nothing",
                    recomputed);
    return FAIL(c, key, "the plan has %.9g, but its instructions add up to %.9g", value,
                recomputed);
}

/* The least power of the GPUs during the point, where it is known. */
static int check_static(const struct checker *c, const char *path,
                        const struct erg_plan_point *point)
{
    const struct erg_scale *scale = &c->plan->scale;
    const double static_j =
        scale->static_power_w * scale->stages * scale->gpus_per_stage * point->time_s;
    if (isnan(static_j) || isnan(point->static_energy_j))
        return 0;
    return check_sum(c, path, "static_energy_j", point->static_energy_j, static_j) ||
                   check_sum(c, path, "dynamic_energy_j", point->dynamic_energy_j,
                             point->energy_j - point->static_energy_j)
               ? -1
               : 0;
}

/* Whether a point belongs after another one: on the frontier less energy for more time, among the
 * slower ones less energy beyond waiting. */
static bool follows(const struct erg_scale *scale, bool slower, const struct erg_plan_point *last,
                    const struct erg_plan_point *next)
{
    const double waiting_w = slower ? erg_scale_waiting_w(scale) : 0;
    return next->time_s > last->time_s &&
           next->energy_j - waiting_w * next->time_s < last->energy_j - waiting_w * last->time_s;
}

static int check_point(const struct checker *c, const char *path,
                       const struct erg_plan_method *method, size_t i)
{
    const struct erg_plan_point *point = &method->points[i];
    const bool slower = i >= method->point_count;
    double time_s, energy_j;
    char key[160];
    erg_plan_evaluate(c->plan, point, NULL, &time_s, &energy_j);
    if (check_sum(c, path, "time_s", point->time_s, time_s) ||
        check_sum(c, path, "energy_j", point->energy_j, energy_j) || check_static(c, path, point))
        return -1;
    if (!i || follows(&c->plan->scale, slower, point - 1, point))
        return 0;
    snprintf(key, sizeof key, "%s.time_s", path);
    return FAIL(c, key,
                "points must rise in time and fall in energy%s, but this one does not follow the "
                "one before it",
                slower ? " beyond waiting" : "");
}

/* The paths of a method's points in messages. */
static void point_path(char *path, size_t bytes, enum erg_method name,
                       const struct erg_plan_method *method, size_t i)
{
    const bool slower = i >= method->point_count;
    snprintf(path, bytes, "methods.%s.%s[%zu]", erg_method_name(name), slower ? "slower" : "points",
             slower ? i - method->point_count : i);
}

/* Points and slower ones become one list, the options of a point one after the other. */
static int join_points(const struct checker *c, enum erg_method name)
{
    struct erg_plan *plan = c->plan;
    struct erg_plan_method *method = &plan->methods[name];
    const size_t count = method->point_count + method->slower_count;
    struct erg_plan_point *points = erg_arena_alloc(&plan->arena, (count + 1) * sizeof *points);
    char path[128];
    memcpy(points, method->points, method->point_count * sizeof *points);
    memcpy(points + method->point_count, method->slower, method->slower_count * sizeof *points);
    method->points = points;
    method->slower = points + method->point_count;
    for (size_t i = 0; i < count; i++) {
        const struct erg_schedule *schedule = &plan->schedule;
        point_path(path, sizeof path, name, method, i);
        if (check_recipe(c, path, &points[i]))
            return -1;
        points[i].option =
            erg_arena_alloc(&plan->arena, schedule->count * sizeof *points[i].option);
        for (size_t s = 0; s < schedule->pipeline.stages; s++)
            memcpy(points[i].option + s * schedule->per_stage, points[i].recipe[s].items,
                   schedule->per_stage * sizeof *points[i].option);
    }
    return 0;
}

static int check_methods(const struct checker *c)
{
    char path[128];
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        struct erg_plan_method *method = &c->plan->methods[m];
        snprintf(path, sizeof path, "methods.%s.points", erg_method_name((enum erg_method)m));
        if (method->points && !method->point_count)
            return FAIL(c, path, "expected at least one point");
        if (method->points && join_points(c, (enum erg_method)m))
            return -1;
    }
    return 0;
}

static int check_points(const struct checker *c)
{
    char path[128];
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        const struct erg_plan_method *method = &c->plan->methods[m];
        for (size_t i = 0; i < method->point_count + method->slower_count; i++) {
            point_path(path, sizeof path, (enum erg_method)m, method, i);
            if (check_point(c, path, method, i))
                return -1;
        }
    }
    return 0;
}

static int check_selected(const struct checker *c)
{
    const struct erg_plan_selection *selected = &c->plan->selected;
    const size_t count = c->plan->methods[selected->method].point_count;
    if (!count)
        return FAIL(c, "selected.method", "the plan has no points of method %s",
                    erg_method_name(selected->method));
    if (selected->point >= count)
        return FAIL(c, "selected.point", "expected an integer from 0 to %zu, got %zu", count - 1,
                    selected->point);
    return 0;
}

int erg_plan_check(struct erg_plan *plan, const struct erg_json_place *root, struct erg_error *err)
{
    const struct checker checker = {plan, root, err}, *c = &checker;
    struct erg_error inner = {0};
    if (check_job(c) || check_partitions(c) || check_stages(c) || check_profile(c) ||
        check_sizes(c))
        return -1;
    const struct erg_plan_order *order = plan->order;
    if (erg_plan_complete_schedule(plan, &inner))
        return FAIL(c, "job", "%.600s", inner.message);
    if (check_order(c, order) || check_methods(c))
        return -1;
    erg_plan_complete_points(plan);
    return check_points(c) || check_selected(c) ? -1 : 0;
}
