/* Reading a plan: what it is of (optimize/plan_file.h). */
#include "optimize/plan_file_internal.h"

#include <string.h>

enum { PLAN_SCHEMA_VERSION = 2 };

static int read_head(struct erg_plan_reader *reader, struct erg_error *err)
{
    const char *schema = json_string_value(json_object_get(reader->plan->document, "schema"));
    if (!schema || strcmp(schema, "ergon.plan") != 0)
        return erg_json_fail(&reader->root, "schema", err,
                             "this is no plan of \"ergon optimize\", expected \"ergon.plan\", got "
                             "%s%s%s",
                             schema ? "\"" : "", schema ? schema : "nothing", schema ? "\"" : "");
    long version;
    if (erg_json_long(&reader->root, "schema_version", 0, ERG_PLAN_MOST_COUNT, &version, err))
        return -1;
    if (version != PLAN_SCHEMA_VERSION)
        return erg_json_fail(&reader->root, "schema_version", err,
                             "the plan has version %ld, but this ergon reads version %d; make it "
                             "again with \"ergon optimize\"",
                             version, PLAN_SCHEMA_VERSION);
    return 0;
}

/* As many as stages, however many a file claims to have. */
static int read_hops(const struct erg_plan_reader *reader, struct erg_pipeline *pipeline,
                     struct erg_error *err)
{
    const json_t *list;
    if (erg_json_array(&reader->job, "hop_latency_s", &list, err))
        return -1;
    if (json_array_size(list) != pipeline->stages)
        return erg_json_fail(&reader->job, "hop_latency_s", err,
                             "expected %zu entries, one for each stage, got %zu", pipeline->stages,
                             json_array_size(list));
    double *hops_s = erg_arena_alloc(&reader->plan->arena, pipeline->stages * sizeof *hops_s);
    for (size_t s = 0; s < pipeline->stages; s++) {
        const json_t *hop = json_array_get(list, s);
        hops_s[s] = json_is_number(hop) ? json_number_value(hop) : -1;
        if (!(hops_s[s] >= 0 && hops_s[s] <= 1e6))
            return erg_json_fail(&reader->job, "hop_latency_s", err,
                                 "expected numbers from 0 to 1e+06, but that of stage %zu is none",
                                 s);
    }
    pipeline->hop_latency_s = hops_s;
    return 0;
}

static int read_job(struct erg_plan_reader *reader, struct erg_pipeline *pipeline,
                    struct erg_error *err)
{
    struct erg_plan_file *plan = reader->plan;
    const struct erg_json_place *job = &reader->job;
    if (erg_json_enter(&reader->job, &reader->root, "job", err))
        return -1;
    const struct {
        const char *key, **value;
    } texts[] = {
        {"name", &plan->name},
        {"model", &plan->model},
        {"stack", &plan->stack},
        {"recompute", &plan->recompute},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (erg_json_string(job, texts[i].key, texts[i].value, err))
            return -1;
    long stages, chunks, microbatches;
    const struct {
        const char *key;
        long *value;
    } counts[] = {
        {"tensor", &plan->tensor},
        {"context", &plan->context},
        {"pipeline", &stages},
        {"data", &plan->data},
        {"virtual_stages", &chunks},
        {"microbatch_size", &plan->microbatch_size},
        {"microbatches", &microbatches},
        {"sequence", &plan->sequence},
        {"gpus_per_stage", &plan->gpus_per_stage},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (erg_json_long(job, counts[i].key, 1, ERG_PLAN_MOST_COUNT, counts[i].value, err))
            return -1;
    const char *schedule;
    if (erg_json_string(job, "schedule", &schedule, err))
        return -1;
    bool interleaved = !strcmp(schedule, "interleaved");
    if (!interleaved && strcmp(schedule, "1f1b") != 0)
        return erg_json_fail(job, "schedule", err, "expected 1f1b or interleaved, got %s",
                             schedule);
    *pipeline = (struct erg_pipeline){
        .schedule = interleaved ? ERG_SCHEDULE_INTERLEAVED : ERG_SCHEDULE_1F1B,
        .stages = (size_t)stages,
        .microbatches = (size_t)microbatches,
        .chunks = (size_t)chunks,
    };
    plan->scale.stages = (int)stages;
    plan->scale.gpus_per_stage = (int)plan->gpus_per_stage;
    return erg_json_double(job, "overhead", 0, 1e6, &plan->scale.overhead, err) ||
                   read_hops(reader, pipeline, err)
               ? -1
               : 0;
}

static int read_kind(const struct erg_json_place *place, struct erg_plan_kind *out,
                     struct erg_error *err)
{
    return erg_json_string(place, "gpu", &out->gpu, err) ||
                   erg_json_string(place, "device", &out->device, err) ||
                   erg_json_string(place, "identity", &out->identity, err) ||
                   erg_json_long(place, "nodes", 1, ERG_PLAN_MOST_COUNT, &out->nodes, err) ||
                   erg_json_long(place, "gpus_per_node", 1, ERG_PLAN_MOST_COUNT,
                                 &out->gpus_per_node, err) ||
                   erg_json_double(place, "blocking_power_w", 0, 1e6, &out->blocking_power_w,
                                   err) ||
                   erg_json_double(place, "static_power_w", 0, 1e6, &out->static_power_w, err) ||
                   erg_json_array(place, "clocks_mhz", &out->clocks_mhz, err) ||
                   (erg_json_has(place, "mean_clock_mhz") &&
                    erg_json_double(place, "mean_clock_mhz", 0, 1e5, &out->mean_clock_mhz, err))
               ? -1
               : 0;
}

static int read_kinds(struct erg_plan_reader *reader, struct erg_error *err)
{
    struct erg_plan_file *plan = reader->plan;
    const json_t *list;
    if (erg_json_array(&reader->root, "kinds", &list, err))
        return -1;
    plan->kind_count = json_array_size(list);
    if (plan->kind_count == 0)
        return erg_json_fail(&reader->root, "kinds", err, "expected at least one kind of GPU");
    plan->kinds = erg_arena_alloc(&plan->arena, plan->kind_count * sizeof *plan->kinds);
    for (size_t k = 0; k < plan->kind_count; k++) {
        struct erg_json_place place;
        if (erg_json_enter_item(&place, &reader->root, "kinds", k, err) ||
            read_kind(&place, &plan->kinds[k], err))
            return -1;
    }
    return 0;
}

static int check_partitions(struct erg_plan_reader *reader, struct erg_error *err)
{
    if (erg_json_array(&reader->root, "partitions", &reader->partitions, err))
        return -1;
    for (size_t i = 0; i < json_array_size(reader->partitions); i++) {
        struct erg_json_place place;
        const char *text;
        const json_t *list;
        long kind;
        if (erg_json_enter_item(&place, &reader->root, "partitions", i, err) ||
            erg_json_string(&place, "key", &text, err) ||
            erg_json_long(&place, "kind", 0, (long)reader->plan->kind_count - 1, &kind, err) ||
            erg_json_array(&place, "slots", &list, err) ||
            erg_json_array(&place, "sms", &list, err))
            return -1;
    }
    return 0;
}

int erg_plan_read_job(struct erg_plan_reader *reader, struct erg_pipeline *pipeline,
                      struct erg_error *err)
{
    return read_head(reader, err) || read_job(reader, pipeline, err) || read_kinds(reader, err) ||
                   check_partitions(reader, err)
               ? -1
               : 0;
}

void erg_plan_find_powers(struct erg_plan_file *plan, struct erg_pipeline *pipeline)
{
    struct erg_scale *scale = &plan->scale;
    size_t bytes = pipeline->stages * sizeof(double);
    double *waiting_w = erg_arena_alloc(&plan->arena, bytes);
    double *static_w = erg_arena_alloc(&plan->arena, bytes);
    for (size_t s = 0; s < pipeline->stages; s++) {
        waiting_w[s] = plan->kinds[plan->stage_kind[s]].blocking_power_w;
        static_w[s] = plan->kinds[plan->stage_kind[s]].static_power_w;
    }
    erg_scale_set_powers(scale, waiting_w, static_w);
    pipeline->blocking_power_w = scale->blocking_power_w;
}
