/*
 * The plan document: docs/plan-format.md. Options that no point uses are left out, so a stage's
 * list is short and every index in it is meant.
 */
#include "optimize/optimization_internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *op_kind_name(enum erg_op_kind kind)
{
    switch (kind) {
    case ERG_OP_MEMORY:
        return "memory";
    case ERG_OP_GEMM:
        return "gemm";
    case ERG_OP_ATTENTION_FORWARD:
    case ERG_OP_ATTENTION_BACKWARD:
        return "attention";
    }
    return "unknown";
}

/* ---- what was asked and on what ---- */

static json_t *job_document(const struct erg_optimization *o)
{
    const struct erg_job *job = o->job;
    json_t *layers = json_array(), *hops = json_array();
    for (int s = 0; s < job->pipeline; s++)
        json_array_append_new(hops, erg_json_number(o->hop_latency_s[s]));
    for (int x = 0; x < job->pipeline * job->virtual_stages; x++)
        json_array_append_new(layers, json_integer(job->chunk_layers[x]));
    return erg_json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:i, s:s, s:o, s:i, s:o, s:f}",
        "name", job->name, "model", job->model->name, "stack", job->stack->name, "tensor",
        job->tensor, "context", job->context, "pipeline", job->pipeline, "data", job->data,
        "virtual_stages", job->virtual_stages, "schedule",
        job->schedule == ERG_JOB_INTERLEAVED ? "interleaved" : "1f1b", "microbatch_size",
        job->microbatch_size, "microbatches", job->microbatches, "sequence", job->sequence,
        "recompute", job->stage_recompute ? "stages" : erg_job_recompute_name(job->recompute),
        "layers", layers, "gpus_per_stage", job->tensor * job->context, "hop_latency_s", hops,
        "overhead", o->plan_request.scale.overhead);
}

/* The GPUs of one kind, and what stood for them. */
static json_t *kind_document(const struct erg_optimization *o,
                             const struct erg_optimization_kind *kind)
{
    json_t *clocks = json_array();
    for (size_t i = kind->survey.clock_count; i-- > 0;)
        json_array_append_new(clocks, json_integer(kind->survey.clocks_mhz[i]));
    const struct erg_gpu *gpu = kind->on->gpu;
    const struct erg_device *device = o->request->device;
    struct erg_text name = {0};
    erg_text_printf(&name, "%s%s", device ? "" : "emulated ",
                    device && device->board ? device->board : gpu->name);
    json_t *document = erg_json_pack(
        "{s:s, s:i, s:i, s:I, s:s, s:s, s:b, s:f, s:f, s:f, s:i, s:o}", "gpu", gpu->name, "nodes",
        kind->on->nodes->nodes, "gpus_per_node", kind->on->nodes->gpus_per_node, "gpus_used",
        (json_int_t)erg_cluster_gpus(kind->on->nodes), "device", name.data, "identity",
        erg_lab_identity(kind->lab), "emulated", !device, "blocking_power_w", gpu->blocking_power_w,
        "static_power_w", gpu->static_power_w, "power_cap_w", gpu->power_cap_w, "sms", gpu->sms,
        "clocks_mhz", clocks);
    erg_text_release(&name);
    if (!device)
        json_object_set_new(document, "confidence", erg_json_new_string(gpu->confidence));
    if (erg_lab_fixed_clock(kind->lab))
        json_object_set_new(document, "mean_clock_mhz",
                            erg_json_number(erg_lab_counts(kind->lab).mean_clock_mhz));
    return document;
}

static json_t *kinds_document(const struct erg_optimization *o)
{
    json_t *kinds = json_array();
    for (size_t k = 0; k < o->job->kind_count; k++)
        json_array_append_new(kinds, kind_document(o, &o->kinds[k]));
    return kinds;
}

/* Budgets are those of each partition; the largest stands for all. Only models have a start and
 * batches. */
static void find_largest(const struct erg_optimization *o, const struct erg_optimization_kind *kind,
                         struct erg_search_options *largest)
{
    for (size_t i = 0; i < kind->survey.partition_count; i++) {
        struct erg_search_options own =
            erg_survey_search_options(o->job, kind->on->gpu, kind->workload.partitions[i].run_ops);
        if (own.method == ERG_SEARCH_EXHAUSTIVE)
            own.budget = erg_space_size(&kind->survey.spaces[i]);
        if (own.budget > largest->budget)
            *largest = own;
    }
}

static json_t *search_document(const struct erg_optimization *o)
{
    struct erg_search_options largest = erg_survey_search_options(o->job, o->job->gpu, 0);
    bool exhaustive = largest.method == ERG_SEARCH_EXHAUSTIVE;
    if (exhaustive)
        largest.budget = 0;
    for (size_t k = 0; k < o->job->kind_count; k++)
        find_largest(o, &o->kinds[k], &largest);
    if (exhaustive || largest.method == ERG_SEARCH_RANDOM)
        largest.start = largest.batch = 0;
    return erg_json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I}", "method", erg_search_method_name(largest.method), "prior",
        o->job->search.prior == ERG_JOB_EMULATOR_PRIOR ? "emulator" : "none", "budget",
        (json_int_t)largest.budget, "start", (json_int_t)largest.start, "batch",
        (json_int_t)largest.batch, "sweep_clocks", (json_int_t)largest.sweep_clocks);
}

/* ---- partitions ---- */

static json_t *partition_document(const struct erg_optimization *o, size_t kind_index, size_t index)
{
    const struct erg_optimization_kind *kind = &o->kinds[kind_index];
    const struct erg_partition *partition = &kind->workload.partitions[index];
    const struct erg_search_result *search = kind->survey.searches[index];
    const struct erg_space *space = &kind->survey.spaces[index];
    json_t *ops = json_array(), *slots = json_array(), *sms = json_array();
    for (size_t i = 0; i < partition->task.op_count; i++)
        json_array_append_new(ops,
                              erg_json_pack("{s:s, s:s}", "name", partition->op_names[i], "kind",
                                            op_kind_name(partition->task.ops[i].kind)));
    for (size_t i = 0; i < partition->slot_count; i++)
        json_array_append_new(slots, erg_json_new_string(partition->slots[i].name));
    for (size_t i = 0; i < partition->sms_count; i++)
        json_array_append_new(sms, json_integer(partition->sms[i]));
    json_t *progress = json_array(), *front = json_array();
    for (size_t i = 0; i < search->evaluation_count; i++)
        json_array_append_new(progress, erg_json_number(search->progress[i]));
    struct erg_frontier frontier = {0};
    erg_search_front(search, kind->on->gpu->blocking_power_w, &frontier);
    for (size_t i = 0; i < frontier.count; i++) {
        size_t config = (size_t)frontier.points[i].recipe;
        struct erg_choice choice = erg_space_choice(space, config);
        const struct erg_estimate *estimate = &search->table[config];
        json_array_append_new(
            front, erg_json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:b}", "clock_mhz",
                                 space->clocks_mhz[choice.clock], "slot",
                                 partition->slots[choice.slot].name, "sms", space->sms[choice.sm],
                                 "time_s", estimate->time_s, "energy_j", estimate->energy_j,
                                 "time_sd", estimate->time_sd, "energy_sd", estimate->energy_sd,
                                 "measured", estimate->knowledge == ERG_MEASURED));
    }
    erg_frontier_release(&frontier);
    return erg_json_pack(
        "{s:s, s:i, s:s, s:i, s:s, s:f, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "key",
        partition->key, "kind", (int)kind_index, "direction",
        partition->backward ? "backward" : "forward", "occurrences", partition->occurrences,
        "communication", erg_comm_name(partition->task.comm.kind), "wire_bytes",
        partition->task.comm.wire_bytes, "ops", ops, "slots", slots, "sms", sms, "configurations",
        (json_int_t)search->config_count, "measured", (json_int_t)search->full_count, "swept",
        (json_int_t)search->swept_count, "hypervolume", progress, "frontier", front);
}

/* ---- options, methods and points ---- */

/* Where each option of each method's table stands in the document's list; -1 = unused. */
struct numbering {
    int **numbers[ERG_METHOD_COUNT]; /* [method][table][option] */
};

static json_t *option_document(const struct erg_optimization_kind *kind, int direction,
                               const struct erg_microbatch *table,
                               const struct erg_microbatch_option *option)
{
    json_t *document = erg_json_pack("{s:s, s:i, s:f, s:f}", "mode", erg_mode_name(option->mode),
                                     "clock_mhz", kind->survey.clocks_mhz[option->clock], "time_s",
                                     option->time_s, "energy_j", option->energy_j);
    if (!option->configurations)
        return document;
    json_t *configurations = json_array();
    for (size_t k = 0; k < table->partition_count; k++) {
        size_t index = erg_optimization_partition(kind, direction, k);
        const struct erg_partition *partition = &kind->workload.partitions[index];
        const struct erg_space *space = &kind->survey.spaces[index];
        struct erg_choice choice = erg_space_choice(space, (size_t)option->configurations[k]);
        json_array_append_new(configurations,
                              erg_json_pack("{s:s, s:s, s:i}", "partition", partition->key, "slot",
                                            partition->slots[choice.slot].name, "sms",
                                            space->sms[choice.sm]));
    }
    json_object_set_new(document, "configurations", configurations);
    return document;
}

static bool reported(const struct erg_optimization *o, int method)
{
    return o->request->methods[method] && o->methods[method].point_count > 0;
}

/* Numbers the options that the points of one method use, and appends them to the lists. */
static void number_method(const struct erg_optimization *o, struct numbering *numbering, int method,
                          json_t *stages)
{
    const struct erg_method_result *result = &o->methods[method];
    const struct erg_schedule *schedule = &result->iteration.schedule;
    numbering->numbers[method] = erg_xcalloc(result->table_count, sizeof(int *));
    for (size_t t = 0; t < result->table_count; t++) {
        size_t count = result->tables[t].count;
        numbering->numbers[method][t] = erg_xcalloc(count, sizeof(int));
        for (size_t k = 0; k < count; k++)
            numbering->numbers[method][t][k] = -1;
    }
    for (size_t p = 0; p < result->point_count + result->slower_count; p++)
        for (size_t i = 0; i < schedule->count; i++) {
            const struct erg_instruction *instruction = &schedule->instructions[i];
            size_t t = erg_table_index(&schedule->pipeline, instruction);
            uint32_t k = result->points[p].option[i];
            int *number = &numbering->numbers[method][t][k];
            if (*number >= 0)
                continue;
            json_t *direction = json_object_get(json_array_get(stages, t / 2),
                                                erg_direction_name(instruction->direction));
            json_t *options = json_object_get(direction, "options");
            *number = (int)json_array_size(options);
            json_array_append_new(options,
                                  option_document(erg_optimization_kind(o, t / 2),
                                                  (int)instruction->direction, &result->tables[t],
                                                  &result->tables[t].options[k]));
        }
}

static json_t *stages_document(const struct erg_optimization *o, struct numbering *numbering)
{
    json_t *stages = json_array();
    for (int x = 0; x < o->job->pipeline * o->job->virtual_stages; x++)
        json_array_append_new(stages,
                              erg_json_pack("{s:i, s:i, s:i, s:i, s:{s:[]}, s:{s:[]}}", "stage",
                                            x % o->job->pipeline, "chunk", x / o->job->pipeline,
                                            "kind", (int)o->job->stage_kind[x % o->job->pipeline],
                                            "layers", o->job->chunk_layers[x], "forward", "options",
                                            "backward", "options"));
    for (int method = 0; method < ERG_METHOD_COUNT; method++)
        if (reported(o, method))
            number_method(o, numbering, method, stages);
    return stages;
}

/* What every stage runs, in execution order: the same for all points of all methods. */
static json_t *schedule_document(const struct erg_schedule *schedule)
{
    json_t *stages = json_array();
    for (size_t s = 0; s < schedule->pipeline.stages; s++) {
        json_t *instructions = json_array();
        for (size_t i = s * schedule->per_stage; i < (s + 1) * schedule->per_stage; i++) {
            const struct erg_instruction *instruction = &schedule->instructions[i];
            json_array_append_new(instructions,
                                  erg_json_pack("{s:s, s:i, s:i}", "type",
                                                erg_direction_name(instruction->direction),
                                                "microbatch", (int)instruction->microbatch, "chunk",
                                                (int)instruction->chunk));
        }
        json_array_append_new(stages, instructions);
    }
    return stages;
}

/* A point and its recipe: for each stage the option of each instruction of the schedule. */
static json_t *point_document(const struct erg_method_result *result, size_t index,
                              int *const *numbers)
{
    const struct erg_method_point *point = &result->points[index];
    const struct erg_schedule *schedule = &result->iteration.schedule;
    json_t *stages = json_array();
    for (size_t s = 0; s < schedule->pipeline.stages; s++) {
        json_t *options = json_array();
        for (size_t i = s * schedule->per_stage; i < (s + 1) * schedule->per_stage; i++) {
            size_t t = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
            json_array_append_new(options, json_integer(numbers[t][point->option[i]]));
        }
        json_array_append_new(stages, options);
    }
    return erg_json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "time_s", point->time_s, "energy_j",
                         point->energy_j, "planned_time_s", point->planned_time_s,
                         "planned_energy_j", point->planned_energy_j, "static_energy_j",
                         point->static_energy_j, "dynamic_energy_j",
                         point->energy_j - point->static_energy_j, "options", stages);
}

static json_t *methods_document(const struct erg_optimization *o, const struct numbering *numbering)
{
    json_t *methods = json_object();
    for (int i = 0; i < ERG_METHOD_COUNT; i++) {
        if (!reported(o, i))
            continue;
        const struct erg_method_result *result = &o->methods[i];
        json_t *points = json_array(), *slower = json_array();
        for (size_t p = 0; p < result->point_count + result->slower_count; p++)
            json_array_append_new(p < result->point_count ? points : slower,
                                  point_document(result, p, numbering->numbers[i]));
        json_t *versus = erg_json_pack(
            "{s:o, s:o, s:o, s:o}", "max_throughput_time_reduction_percent",
            erg_json_number(result->versus.max_throughput_time),
            "max_throughput_energy_reduction_percent",
            erg_json_number(result->versus.max_throughput_energy),
            "iso_time_energy_reduction_percent", erg_json_number(result->versus.iso_time_energy),
            "iso_energy_time_reduction_percent", erg_json_number(result->versus.iso_energy_time));
        json_object_set_new(methods, erg_method_name((enum erg_method)i),
                            erg_json_pack("{s:s, s:o, s:o, s:o}", "label",
                                          erg_method_label((enum erg_method)i), "points", points,
                                          "slower", slower, "versus", versus));
    }
    return methods;
}

/* ---- the document ---- */

/* Of all kinds. */
static struct erg_lab_counts count_measurements(const struct erg_optimization *o,
                                                double *search_cpu_s)
{
    struct erg_lab_counts sum = {0};
    *search_cpu_s = 0;
    for (size_t k = 0; k < o->job->kind_count; k++) {
        struct erg_lab_counts own = erg_lab_counts(o->kinds[k].lab);
        sum.energy += own.energy;
        sum.time_only += own.time_only;
        sum.cached += own.cached;
        sum.device_s += own.device_s;
        *search_cpu_s += o->kinds[k].survey.search_cpu_s;
    }
    return sum;
}

json_t *erg_optimization_document(const struct erg_optimization *o, struct erg_error *err)
{
    char now[32];
    erg_utc_now(now, sizeof now);
    struct numbering numbering = {0};
    json_t *partitions = json_array();
    for (size_t k = 0; k < o->job->kind_count; k++)
        for (size_t i = 0; i < o->kinds[k].survey.partition_count; i++)
            json_array_append_new(partitions, partition_document(o, k, i));
    json_t *stages = stages_document(o, &numbering);
    json_t *methods = methods_document(o, &numbering);
    for (int i = 0; i < ERG_METHOD_COUNT; i++) {
        if (!numbering.numbers[i])
            continue;
        for (size_t t = 0; t < o->methods[i].table_count; t++)
            free(numbering.numbers[i][t]);
        free(numbering.numbers[i]);
    }
    json_t *timelines = erg_optimization_timelines(o);
    json_t *pictures = erg_optimization_partition_timelines(o, err);
    double search_cpu_s;
    struct erg_lab_counts counts = count_measurements(o, &search_cpu_s);
    const struct erg_profile_options *profiler = &o->profiler;
    json_t *document = erg_json_pack(
        "{s:s, s:i, s:s, s:s, s:I, s:o, s:o, s:{s:f, s:f, s:f}, s:o, s:o, s:o, s:o, s:o,"
        " s:{s:s, s:I, s:s}, s:o, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:f, s:f}}",
        "schema", "ergon.plan", "schema_version", 2, "ergon_version", ERGON_VERSION, "created_utc",
        now, "seed", (json_int_t)o->job->search.seed, "job", job_document(o), "kinds",
        kinds_document(o), "profiler", "window_s", profiler->window_s, "cooldown_s",
        profiler->cooldown_s, "warmup_s", profiler->warmup_s, "search", search_document(o),
        "partitions", partitions, "stages", stages, "schedule",
        schedule_document(&o->methods[ERG_METHOD_SEQUENTIAL].iteration.schedule), "methods",
        methods, "selected", "method", erg_method_name(o->selected_method), "point",
        (json_int_t)o->selected_point, "rule", o->selected_rule, "timelines", timelines,
        "partition_timelines", pictures, "stage_profile", erg_optimization_stage_profile(o),
        "measurements", "energy", (json_int_t)counts.energy, "time_only",
        (json_int_t)counts.time_only, "cached", (json_int_t)counts.cached, "verified",
        (json_int_t)o->verified, "device_seconds", counts.device_s, "search_cpu_s", search_cpu_s);
    if (!document && pictures)
        erg_fail(err, ERG_FAILED, "making the plan document: a value could not be encoded");
    return document;
}
