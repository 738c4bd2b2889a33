/* Reading a plan: the order of its instructions, its methods and their points. */
#include "optimize/plan_file_internal.h"

#include "io/file.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Recomputed numbers differ from the file's by rounding only. */
static const double slack = 1e-6;

/* A list with one list of `per_stage` entries for each stage. */
static int check_lists(const struct erg_json_place *place, const char *key, size_t stages,
                       size_t per_stage, struct erg_error *err)
{
    const json_t *list;
    if (erg_json_array(place, key, &list, err))
        return -1;
    if (json_array_size(list) != stages)
        return erg_json_fail(place, key, err, "expected %zu lists, one per stage, got %zu", stages,
                             json_array_size(list));
    for (size_t s = 0; s < stages; s++) {
        size_t count = json_array_size(json_array_get(list, s));
        char item[48];
        snprintf(item, sizeof item, "%s[%zu]", key, s);
        if (count != per_stage)
            return erg_json_fail(place, item, err,
                                 "expected a list of %zu entries, one per instruction of the "
                                 "stage, got %zu",
                                 per_stage, count);
    }
    return 0;
}

/* The file's order of instructions must be that of the schedule it names. */
static int read_schedule(struct erg_plan_reader *reader, const struct erg_pipeline *pipeline,
                         struct erg_error *err)
{
    struct erg_schedule *schedule = &reader->plan->schedule;
    /* First the sizes: nothing as large as a job claims is allocated for a file that is not. */
    if (check_lists(&reader->root, "schedule", pipeline->stages,
                    2 * pipeline->microbatches * pipeline->chunks, err))
        return -1;
    struct erg_error inner = {0};
    if (erg_schedule_init(schedule, pipeline, &inner))
        return erg_json_fail(&reader->root, "job", err, "%.600s", inner.message);
    const json_t *stages = json_object_get(reader->root.object, "schedule");
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *expected = &schedule->instructions[i];
        size_t position = i % schedule->per_stage;
        struct erg_json_place place = reader->root;
        place.object = json_array_get(json_array_get(stages, expected->stage), position);
        snprintf(place.path, sizeof place.path, "schedule[%u][%zu]", expected->stage, position);
        const char *type;
        long microbatch, chunk;
        if (erg_json_string(&place, "type", &type, err) ||
            erg_json_long(&place, "microbatch", 0, ERG_PLAN_MOST_COUNT, &microbatch, err) ||
            erg_json_long(&place, "chunk", 0, ERG_PLAN_MOST_COUNT, &chunk, err))
            return -1;
        const char *direction = expected->direction == ERG_FORWARD ? "forward" : "backward";
        if (strcmp(type, direction) != 0 || microbatch != (long)expected->microbatch ||
            chunk != (long)expected->chunk)
            return erg_json_fail(&place, "type", err,
                                 "the job's schedule has the %s of microbatch %u on chunk %u here, "
                                 "got the %s of microbatch %ld on chunk %ld",
                                 direction, expected->microbatch, expected->chunk, type, microbatch,
                                 chunk);
    }
    return 0;
}

/* The option of each instruction of a point. */
static int read_recipe(const struct erg_plan_reader *reader, const struct erg_json_place *point,
                       uint32_t **option, struct erg_error *err)
{
    const struct erg_schedule *schedule = &reader->plan->schedule;
    if (check_lists(point, "options", schedule->pipeline.stages, schedule->per_stage, err))
        return -1;
    const json_t *stages = json_object_get(point->object, "options");
    *option = erg_arena_alloc(&reader->plan->arena, schedule->count * sizeof **option);
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        size_t position = i % schedule->per_stage;
        const json_t *value = json_array_get(json_array_get(stages, instruction->stage), position);
        size_t table = erg_table_index(&schedule->pipeline, instruction);
        size_t count = reader->plan->options[table].count;
        json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
        if (number < 0 || (size_t)number >= count) {
            char key[64];
            snprintf(key, sizeof key, "options[%u][%zu]", instruction->stage, position);
            return erg_json_fail(point, key, err,
                                 "expected a whole number below %zu, since stages[%zu] has so many "
                                 "%s options",
                                 count, table / 2,
                                 instruction->direction == ERG_FORWARD ? "forward" : "backward");
        }
        (*option)[i] = (uint32_t)number;
    }
    return 0;
}

/* The file's number against the one that follows from its instructions. */
static int check_sum(const struct erg_json_place *point, const char *key, double value,
                     double recomputed, struct erg_error *err)
{
    if (isfinite(recomputed) && fabs(value - recomputed) <= slack * recomputed)
        return 0;
    return erg_json_fail(point, key, err, "the plan says %.9g, but its instructions make %.9g",
                         value, recomputed);
}

static int read_point(const struct erg_plan_reader *reader, const struct erg_json_place *place,
                      struct erg_plan_point *out, struct erg_error *err)
{
    if (erg_plan_positive(place, "time_s", &out->time_s, err) ||
        erg_plan_positive(place, "energy_j", &out->energy_j, err) ||
        erg_plan_positive(place, "planned_time_s", &out->planned_time_s, err) ||
        erg_plan_positive(place, "planned_energy_j", &out->planned_energy_j, err) ||
        erg_json_double(place, "static_energy_j", 0, DBL_MAX, &out->static_energy_j, err) ||
        read_recipe(reader, place, &out->option, err))
        return -1;
    double time_s, energy_j;
    erg_plan_file_evaluate(reader->plan, out, NULL, &time_s, &energy_j);
    return check_sum(place, "time_s", out->time_s, time_s, err) ||
                   check_sum(place, "energy_j", out->energy_j, energy_j, err)
               ? -1
               : 0;
}

static int read_percentage(const struct erg_json_place *place, const char *key, double *value,
                           struct erg_error *err)
{
    *value = NAN;
    return erg_json_has(place, key) ? erg_json_double(place, key, -DBL_MAX, DBL_MAX, value, err)
                                    : 0;
}

/* Whether a point belongs after another one: on the frontier less energy for more time, among the
 * slower ones less energy beyond waiting. */
static bool follows(const struct erg_scale *scale, bool slower, const struct erg_plan_point *last,
                    const struct erg_plan_point *next)
{
    double waiting_w = slower ? scale->blocking_power_w * scale->stages * scale->gpus_per_stage : 0;
    return next->time_s > last->time_s &&
           next->energy_j - waiting_w * next->time_s < last->energy_j - waiting_w * last->time_s;
}

static int read_points(const struct erg_plan_reader *reader, const struct erg_json_place *place,
                       struct erg_plan_method *out, struct erg_error *err)
{
    const json_t *points, *slower;
    if (erg_json_array(place, "points", &points, err) ||
        erg_json_array(place, "slower", &slower, err))
        return -1;
    if (!json_array_size(points))
        return erg_json_fail(place, "points", err, "expected at least one point");
    out->point_count = json_array_size(points);
    out->slower_count = json_array_size(slower);
    size_t count = out->point_count + out->slower_count;
    out->points = erg_arena_alloc(&reader->plan->arena, count * sizeof *out->points);
    for (size_t i = 0; i < count; i++) {
        struct erg_json_place point;
        bool is_slower = i >= out->point_count;
        if (erg_json_enter_item(&point, place, is_slower ? "slower" : "points",
                                is_slower ? i - out->point_count : i, err) ||
            read_point(reader, &point, &out->points[i], err))
            return -1;
        if (i && !follows(&reader->plan->scale, is_slower, &out->points[i - 1], &out->points[i]))
            return erg_json_fail(&point, "time_s", err,
                                 "points must rise in time and fall in energy%s, but this one does "
                                 "not follow the one before it",
                                 is_slower ? " beyond waiting" : "");
    }
    return 0;
}

static int read_method(const struct erg_plan_reader *reader, const struct erg_json_place *place,
                       struct erg_plan_method *out, struct erg_error *err)
{
    struct erg_json_place versus;
    if (erg_json_enter(&versus, place, "versus", err) ||
        read_percentage(&versus, "max_throughput_time_reduction_percent",
                        &out->versus.max_throughput_time, err) ||
        read_percentage(&versus, "max_throughput_energy_reduction_percent",
                        &out->versus.max_throughput_energy, err) ||
        read_percentage(&versus, "iso_time_energy_reduction_percent", &out->versus.iso_time_energy,
                        err) ||
        read_percentage(&versus, "iso_energy_time_reduction_percent", &out->versus.iso_energy_time,
                        err))
        return -1;
    return read_points(reader, place, out, err);
}

static int read_methods(struct erg_plan_reader *reader, struct erg_error *err)
{
    struct erg_json_place methods;
    if (erg_json_enter(&methods, &reader->root, "methods", err))
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)methods.object, key, value)
    {
        struct erg_json_place place;
        int method = erg_method_from_name(key);
        if (method < 0)
            return erg_json_fail(&methods, key, err, "there is no such method");
        if (erg_json_enter(&place, &methods, key, err) ||
            read_method(reader, &place, &reader->plan->methods[method], err))
            return -1;
    }
    return 0;
}

static int read_selected(struct erg_plan_reader *reader, struct erg_error *err)
{
    struct erg_plan_file *plan = reader->plan;
    struct erg_json_place place;
    const char *name;
    long point;
    if (erg_json_enter(&place, &reader->root, "selected", err) ||
        erg_json_string(&place, "method", &name, err) ||
        erg_json_string(&place, "rule", &plan->selected_rule, err))
        return -1;
    int method = erg_method_from_name(name);
    if (method < 0 || !plan->methods[method].point_count)
        return erg_json_fail(&place, "method", err, "the plan has no points of method %s", name);
    if (erg_json_long(&place, "point", 0, (long)plan->methods[method].point_count - 1, &point, err))
        return -1;
    plan->selected_method = (enum erg_method)method;
    plan->selected_point = (size_t)point;
    return 0;
}

/* ---- the door ---- */

int erg_plan_file_parse(struct erg_plan_file **out, const char *name, const char *text,
                        size_t length, struct erg_error *err)
{
    struct erg_plan_file *plan = erg_xcalloc(1, sizeof *plan);
    struct erg_plan_reader reader = {.plan = plan};
    struct erg_pipeline pipeline;
    if (erg_json_open(&reader.root, &plan->document, name, text, length, err) ||
        erg_plan_read_job(&reader, &pipeline, err) ||
        erg_plan_read_stages(&reader, &pipeline, err) || read_schedule(&reader, &pipeline, err) ||
        read_methods(&reader, err) || read_selected(&reader, err)) {
        erg_plan_file_free(plan);
        return -1;
    }
    *out = plan;
    return 0;
}

int erg_plan_file_load(struct erg_plan_file **plan, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err))
        return -1;
    int status = erg_plan_file_parse(plan, path, text, length, err);
    free(text);
    return status;
}

void erg_plan_file_free(struct erg_plan_file *plan)
{
    if (!plan)
        return;
    erg_schedule_release(&plan->schedule);
    erg_arena_release(&plan->arena);
    json_decref(plan->document);
    free(plan);
}
