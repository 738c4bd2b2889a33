/* Plans as JSON and back: the tables of their fields, which docs/formats/plan.md describes. */
#include "plan/plan_internal.h"

#include "io/field_table.h"
#include "io/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COUNT 1e8 /* of anything counted in a job */

static const char *const schedules[] = {
    [ERG_SCHEDULE_1F1B] = "1f1b", [ERG_SCHEDULE_INTERLEAVED] = "interleaved", NULL};
static const char *const methods[] = {
    [ERG_METHOD_SEQUENTIAL] = "sequential",
    [ERG_METHOD_SEQUENTIAL_CLOCKS] = "sequential+clocks",
    [ERG_METHOD_NANOBATCHING] = "nanobatching",
    [ERG_METHOD_NANOBATCHING_CLOCKS] = "nanobatching+clocks",
    [ERG_METHOD_ERGON] = "ergon",
    [ERG_METHOD_COUNT] = NULL,
};

/* clang-format off */
#define COUNT(low) RANGE(low, MOST_COUNT)
#define UNKNOWN_COUNT UNKNOWN(1, MOST_COUNT)
#define POSITIVE RANGE(DBL_MIN, DBL_MAX)
#define NOT_NEGATIVE RANGE(0, DBL_MAX)
#define ANY_NUMBER RANGE(-DBL_MAX, DBL_MAX)

/* Items of lists that are values. */
VALUE(texts, const char *, .type = ERG_FIELD_TEXT);
VALUE(counts_int, int, .type = ERG_FIELD_INT, COUNT(1));
VALUE(counts_long, long, .type = ERG_FIELD_LONG, COUNT(1));
VALUE(numbers, double, .type = ERG_FIELD_DOUBLE, NOT_NEGATIVE);
VALUE(shares, double, .type = ERG_FIELD_DOUBLE, RANGE(0, 1));
VALUE(hops, double, .type = ERG_FIELD_DOUBLE, RANGE(0, 1e6));
VALUE(indices, uint32_t, .type = ERG_FIELD_U32, COUNT(0));
VALUE(recompute_names, enum erg_recompute, .type = ERG_FIELD_NAME, .names = erg_recompute_names);

#define T struct erg_plan
TABLE(job, T,
    TEXT("name", name),
    TEXT_OR_NONE("model", model),
    TEXT_OR_NONE("stack", stack),
    LONG("tensor", layout.tensor, COUNT(1)),
    FIELD("sequence_parallel", ERG_FIELD_BOOL, sequence_parallel, .optional = true),
    LONG("context", layout.context, COUNT(1)),
    LONG("pipeline", layout.pipeline, COUNT(1)),
    LONG("data", layout.data, COUNT(1)),
    LONG("virtual_stages", layout.virtual_stages, COUNT(1)),
    LONG("fsdp", layout.fsdp, COUNT(2), .optional = true),
    NAME("schedule", kind, schedules),
    LONG("microbatch_size", layout.microbatch, UNKNOWN_COUNT),
    LONG("microbatches", layout.microbatches, COUNT(1)),
    LONG("sequence", layout.sequence, UNKNOWN_COUNT),
    NAME("recompute", layout.recompute, erg_recompute_names),
    LIST_OR_NONE("stage_recompute", layout.stage_recompute, recompute_count, recompute_names),
    DOUBLE("offload", layout.offload, RANGE(0, 1)),
    LIST_OR_NONE("stage_offload", layout.stage_offload, offload_count, shares),
    LIST_OR_NONE("layers", layout.chunk_layers, layer_count, counts_long),
    INT("gpus_per_stage", scale.gpus_per_stage, COUNT(1)),
    LIST("hop_latency_s", hop_latency_s, hop_count, hops),
    DOUBLE("overhead", scale.overhead, RANGE(0, 1e6)));
#undef T

#define T struct erg_plan_kind
TABLE(kind, T,
    TEXT("gpu", gpu),
    LONG("nodes", nodes, UNKNOWN_COUNT),
    LONG("gpus_per_node", gpus_per_node, UNKNOWN_COUNT),
    LONG("gpus_used", gpus_used, UNKNOWN_COUNT),
    TEXT("device", device),
    TEXT("identity", identity),
    BOOL("emulated", emulated),
    TEXT_OR_NONE("confidence", confidence),
    DOUBLE("blocking_power_w", blocking_power_w, RANGE(0, 1e6)),
    DOUBLE("static_power_w", static_power_w, UNKNOWN(0, 1e6)),
    DOUBLE("power_cap_w", power_cap_w, UNKNOWN(0, 1e6)),
    INT("sms", sms, UNKNOWN_COUNT),
    LIST("clocks_mhz", clocks_mhz, clock_count, counts_int),
    DOUBLE("mean_clock_mhz", mean_clock_mhz, UNKNOWN(0, 1e5)));
#undef T

#define T struct erg_plan
TABLE(profiler, T,
    DOUBLE("window_s", window_s, UNKNOWN(0, 1e6)),
    DOUBLE("cooldown_s", cooldown_s, UNKNOWN(0, 1e6)),
    DOUBLE("warmup_s", warmup_s, UNKNOWN(0, 1e6)));
#undef T

#define T struct erg_plan_search
TABLE(search, T,
    TEXT_OR_NONE("method", method),
    TEXT_OR_NONE("prior", prior),
    SIZE("budget", budget, COUNT(0)),
    SIZE("start", start, COUNT(0)),
    SIZE("batch", batch, COUNT(0)),
    SIZE("sweep_clocks", sweep_clocks, COUNT(0)));
#undef T

#define T struct erg_plan_op
TABLE(op, T, TEXT("name", name), TEXT("kind", kind));
#undef T

#define T struct erg_plan_estimate
TABLE(estimate, T,
    INT("clock_mhz", clock_mhz, COUNT(1)),
    TEXT("slot", slot),
    INT("sms", sms, COUNT(1)),
    DOUBLE("time_s", time_s, POSITIVE),
    DOUBLE("energy_j", energy_j, ANY_NUMBER),
    DOUBLE("time_sd", time_sd, UNKNOWN(0, DBL_MAX)),
    DOUBLE("energy_sd", energy_sd, UNKNOWN(0, DBL_MAX)),
    BOOL("measured", measured));
#undef T

#define T struct erg_plan_partition
TABLE(partition, T,
    TEXT("key", key),
    SIZE("kind", kind, COUNT(0)),
    NAME("direction", direction, erg_direction_names),
    INT("occurrences", occurrences, COUNT(1)),
    TEXT("communication", communication),
    DOUBLE("wire_bytes", wire_bytes, NOT_NEGATIVE),
    LIST("ops", ops, op_count, op),
    LIST("slots", slots, slot_count, texts),
    LIST("sms", sms, sms_count, counts_int),
    SIZE("configurations", configurations, COUNT(0)),
    SIZE("measured", measured, COUNT(0)),
    SIZE("swept", swept, COUNT(0)),
    LIST("hypervolume", hypervolume, hypervolume_count, numbers),
    LIST("frontier", frontier, frontier_count, estimate));
#undef T

#define T struct erg_plan_configuration
TABLE(configuration, T,
    TEXT("partition", partition),
    TEXT("slot", slot),
    INT("sms", sms, COUNT(1)));
#undef T

#define T struct erg_plan_option
TABLE(option, T,
    NAME("mode", mode, erg_mode_names),
    INT("clock_mhz", clock_mhz, COUNT(1)),
    DOUBLE("time_s", time_s, POSITIVE),
    DOUBLE("energy_j", energy_j, NOT_NEGATIVE),
    LIST_OR_NONE("configurations", configurations, configuration_count, configuration));
#undef T

#define T struct erg_plan_options
TABLE(options, T, LIST("options", items, count, option));
#undef T

#define T struct erg_plan_stage
TABLE(stage, T,
    INT("stage", stage, COUNT(0)),
    INT("chunk", chunk, COUNT(0)),
    SIZE("kind", kind, COUNT(0)),
    LONG("layers", layers, UNKNOWN_COUNT),
    OBJECT("forward", passes[ERG_FORWARD], options),
    OBJECT("backward", passes[ERG_BACKWARD], options));
#undef T

#define T struct erg_step_end
TABLE(step_end, T,
    DOUBLE("gradients_s", gradients_s, NOT_NEGATIVE),
    DOUBLE("gradients_j", gradients_j, NOT_NEGATIVE),
    DOUBLE("optimizer_s", optimizer_s, NOT_NEGATIVE),
    DOUBLE("optimizer_j", optimizer_j, NOT_NEGATIVE));
#undef T

#define T struct erg_instruction
TABLE(instruction, T,
    NAME("type", direction, erg_direction_names),
    U32("microbatch", microbatch, COUNT(0)),
    U32("chunk", chunk, COUNT(0)));
#undef T

#define T struct erg_plan_order
TABLE(order, T, LIST(NULL, items, count, instruction));
#undef T

#define T struct erg_plan_recipe
TABLE(recipe, T, LIST(NULL, items, count, indices));
#undef T

#define T struct erg_plan_point
TABLE(point, T,
    DOUBLE("time_s", time_s, POSITIVE),
    DOUBLE("energy_j", energy_j, NOT_NEGATIVE),
    DOUBLE("planned_time_s", planned_time_s, POSITIVE),
    DOUBLE("planned_energy_j", planned_energy_j, NOT_NEGATIVE),
    DOUBLE("static_energy_j", static_energy_j, UNKNOWN(0, DBL_MAX)),
    DOUBLE("dynamic_energy_j", dynamic_energy_j, UNKNOWN(-DBL_MAX, DBL_MAX)),
    LIST("options", recipe, recipe_count, recipe));
#undef T

#define T struct erg_versus
#define PERCENT(key, member) DOUBLE(key, member, UNKNOWN(-DBL_MAX, DBL_MAX))
TABLE(versus, T,
    PERCENT("max_throughput_time_reduction_percent", max_throughput_time),
    PERCENT("max_throughput_energy_reduction_percent", max_throughput_energy),
    PERCENT("iso_time_energy_reduction_percent", iso_time_energy),
    PERCENT("iso_energy_time_reduction_percent", iso_energy_time));
#undef T

#define T struct erg_plan_method
TABLE(method, T,
    TEXT("label", label),
    LIST("points", points, point_count, point),
    LIST("slower", slower, slower_count, point),
    OBJECT("versus", versus, versus));
#undef T

#define T struct erg_plan
#define METHOD(name, index)                                                                        \
    FIELD(name, ERG_FIELD_OBJECT, methods[index], .optional = true,                                \
          .count_offset = offsetof(T, methods[index].point_count), .of = &method_fields)
TABLE(method_table, T,
    METHOD("sequential", ERG_METHOD_SEQUENTIAL),
    METHOD("sequential+clocks", ERG_METHOD_SEQUENTIAL_CLOCKS),
    METHOD("nanobatching", ERG_METHOD_NANOBATCHING),
    METHOD("nanobatching+clocks", ERG_METHOD_NANOBATCHING_CLOCKS),
    METHOD("ergon", ERG_METHOD_ERGON));
#undef T

#define T struct erg_plan_selection
TABLE(selected, T,
    NAME("method", method, methods),
    SIZE("point", point, COUNT(0)),
    TEXT("rule", rule));
#undef T

#define T struct erg_plan_span
TABLE(span, T,
    TEXT("name", name),
    DOUBLE("start_s", start_s, NOT_NEGATIVE),
    DOUBLE("end_s", end_s, NOT_NEGATIVE));
#undef T

#define T struct erg_plan_lane
TABLE(lane, T, TEXT("name", name), LIST("spans", spans, span_count, span));
#undef T

#define T struct erg_plan_picture
TABLE(picture, T,
    TEXT("key", key),
    SIZE("kind", kind, COUNT(0)),
    INT("clock_mhz", clock_mhz, COUNT(1)),
    DOUBLE("clock_effective_mhz", clock_effective_mhz, NOT_NEGATIVE),
    TEXT("slot", slot),
    INT("sms", sms, COUNT(1)),
    DOUBLE("time_s", time_s, POSITIVE),
    DOUBLE("energy_j", energy_j, POSITIVE),
    LIST("lanes", lanes, lane_count, lane));
#undef T

#define T struct erg_plan_row
TABLE(row, T,
    SIZE("stage", stage, COUNT(0)),
    NAME("instruction", direction, erg_direction_names),
    INT("frequency", clock_mhz, COUNT(1)),
    DOUBLE("time", time_s, POSITIVE),
    DOUBLE("energy", energy_j, NOT_NEGATIVE));
#undef T

#define T struct erg_plan_counts
TABLE(measurements, T,
    SIZE("energy", energy, COUNT(0)),
    SIZE("time_only", time_only, COUNT(0)),
    SIZE("cached", cached, COUNT(0)),
    SIZE("verified", verified, COUNT(0)),
    DOUBLE("device_seconds", device_seconds, NOT_NEGATIVE));
#undef T

#define T struct erg_plan
TABLE(plan, T,
    TEXT("ergon_version", ergon_version),
    TEXT("created_utc", created_utc),
    LONG("seed", seed, RANGE(0, 9e18)),
    GROUP("job", job),
    LIST("kinds", kinds, kind_count, kind),
    GROUP("profiler", profiler),
    OBJECT("search", search, search),
    LIST("partitions", partitions, partition_count, partition),
    LIST("stages", stages, stage_count, stage),
    LIST_OR_NONE("step_ends", step_ends, step_end_count, step_end),
    LIST("schedule", order, order_count, order),
    GROUP("methods", method_table),
    OBJECT("selected", selected, selected),
    LIST_OR_NONE("partition_timelines", pictures, picture_count, picture),
    LIST_OR_NONE("stage_profile", profile, profile_count, row),
    OBJECT("measurements", measurements, measurements));
#undef T
/* clang-format on */

const char *erg_method_name(enum erg_method method)
{
    return methods[method];
}

/* ---- writing ---- */

/* The iteration at one point, instruction by instruction, in planned seconds. */
static json_t *timeline_json(const struct erg_plan *plan, const char *title, enum erg_method method,
                             size_t index)
{
    const struct erg_schedule *schedule = &plan->schedule;
    const struct erg_plan_point *point = &plan->methods[method].points[index];
    double *start_s = erg_xcalloc(schedule->count, sizeof *start_s), time_s, energy_j, end_s = 0;
    erg_plan_evaluate(plan, point, start_s, &time_s, &energy_j);
    json_t *stages = json_array();
    for (size_t s = 0; s < schedule->pipeline.stages; s++) {
        const double mean_mhz = erg_plan_stage_kind(plan, s)->mean_clock_mhz;
        json_t *spans = json_array();
        for (size_t i = s * schedule->per_stage; i < (s + 1) * schedule->per_stage; i++) {
            const struct erg_instruction *instruction = &schedule->instructions[i];
            const struct erg_plan_option *run = erg_plan_option(plan, point, i);
            const double span_end_s = start_s[i] + run->time_s;
            end_s = span_end_s > end_s ? span_end_s : end_s;
            json_array_append_new(
                spans, erg_json_pack("{s:s, s:i, s:i, s:f, s:f, s:i, s:f, s:f, s:s}", "type",
                                     erg_direction_names[instruction->direction], "microbatch",
                                     (int)instruction->microbatch, "chunk", (int)instruction->chunk,
                                     "start_s", start_s[i], "end_s", span_end_s, "clock_mhz",
                                     mean_mhz > 0 ? (int)(mean_mhz + 0.5) : run->clock_mhz,
                                     "power_w", run->energy_j / run->time_s, "energy_j",
                                     run->energy_j, "mode", erg_mode_name(run->mode)));
        }
        json_array_append_new(stages, spans);
    }
    free(start_s);
    return erg_json_pack("{s:s, s:s, s:I, s:f, s:o}", "title", title, "method", methods[method],
                         "point", (json_int_t)index, "time_s", end_s, "stages", stages);
}

/* Sequential execution at full clock, where the plan has it, and the selected point. */
static json_t *timelines_json(const struct erg_plan *plan)
{
    json_t *timelines = json_array();
    if (plan->methods[ERG_METHOD_SEQUENTIAL].point_count)
        json_array_append_new(timelines, timeline_json(plan, "before: sequential at full clock",
                                                       ERG_METHOD_SEQUENTIAL, 0));
    json_array_append_new(timelines, timeline_json(plan, "after: the selected plan",
                                                   plan->selected.method, plan->selected.point));
    return timelines;
}

/* Values derived from the stages' ends, for readers. */
static json_t *beyond_json(const struct erg_plan *plan)
{
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, plan);
    return erg_json_pack("{s:f, s:f, s:f, s:f}", "time_s", beyond.time_s, "energy_j",
                         beyond.energy_j, "gradients_s", beyond.gradients_s, "optimizer_s",
                         beyond.optimizer_s);
}

json_t *erg_plan_json(const struct erg_plan *plan)
{
    json_t *root = erg_json_pack("{s:s, s:i}", "schema", "ergon.plan", "schema_version",
                                 ERG_PLAN_SCHEMA_VERSION);
    json_t *fields = erg_fields_json(&plan_fields, plan);
    json_object_update(root, fields);
    json_decref(fields);
    if (plan->step_ends)
        json_object_set_new(root, "beyond", beyond_json(plan));
    json_object_set_new(root, "timelines", timelines_json(plan));
    return root;
}

int erg_plan_write(const struct erg_plan *plan, const char *path, struct erg_error *err)
{
    json_t *document = erg_plan_json(plan);
    int status = erg_json_write(path, document, err);
    json_decref(document);
    return status;
}

/* ---- reading ---- */

static int check_head(const struct erg_json_place *root, struct erg_error *err)
{
    const char *schema = json_string_value(json_object_get(root->object, "schema"));
    if (!schema && json_is_string(json_object_get(root->object, "kind")))
        return erg_json_fail(
            root, "schema", err,
            "this plan is of an older ergon, which wrote plans of \"ergon "
            "frontier\" and \"ergon layout\" in formats of their own; make it again");
    if (!schema || strcmp(schema, "ergon.plan") != 0)
        return erg_json_fail(root, "schema", err, "not a plan: expected \"ergon.plan\", got %s%s%s",
                             schema ? "\"" : "", schema ? schema : "nothing", schema ? "\"" : "");
    long version;
    if (erg_json_long(root, "schema_version", 0, (long)MOST_COUNT, &version, err))
        return -1;
    if (version != ERG_PLAN_SCHEMA_VERSION)
        return erg_json_fail(root, "schema_version", err,
                             "the plan has version %ld, but this ergon reads version %d; make it "
                             "again with the command that wrote it",
                             version, ERG_PLAN_SCHEMA_VERSION);
    return 0;
}

static int check_methods(const struct erg_json_place *root, struct erg_error *err)
{
    struct erg_json_place place;
    const char *key;
    json_t *value;
    if (erg_json_enter(&place, root, "methods", err))
        return -1;
    json_object_foreach((json_t *)(uintptr_t)place.object, key, value)
    {
        size_t i = 0;
        while (methods[i] && strcmp(key, methods[i]) != 0)
            i++;
        if (!methods[i])
            return erg_json_fail(&place, key, err, "there is no such method");
    }
    return 0;
}

int erg_plan_parse(struct erg_plan **out, const char *name, const char *text, size_t length,
                   struct erg_error *err)
{
    struct erg_plan *plan = erg_plan_new();
    struct erg_json_place root;
    json_t *document = NULL;
    int status = erg_json_open(&root, &document, name, text, length, err) ||
                         check_head(&root, err) || check_methods(&root, err) ||
                         erg_fields_read(&plan_fields, &root, plan, &plan->arena, err) ||
                         erg_plan_check(plan, &root, err)
                     ? -1
                     : 0;
    json_decref(document);
    if (status)
        erg_plan_free(plan);
    else
        *out = plan;
    return status;
}

int erg_plan_load(struct erg_plan **plan, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err))
        return -1;
    int status = erg_plan_parse(plan, path, text, length, err);
    free(text);
    return status;
}
