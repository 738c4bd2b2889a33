/*
 * What a plan looks like over time: the pipeline before and after, each partition under its most
 * used configuration, and the profile of whole sequential stages that other planners read.
 */
#include "optimize/optimization_internal.h"

#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>

const char *erg_comm_name(enum erg_comm_kind kind)
{
    switch (kind) {
    case ERG_COMM_ALLREDUCE:
        return "allreduce";
    case ERG_COMM_ALLGATHER_KV:
        return "allgather_kv";
    case ERG_COMM_REDUCESCATTER_KV:
        return "reducescatter_kv";
    case ERG_COMM_NONE:
        break;
    }
    return "none";
}

const char *erg_direction_name(enum erg_direction direction)
{
    return direction == ERG_FORWARD ? "forward" : "backward";
}

size_t erg_optimization_partition(const struct erg_optimization_kind *kind, int direction, size_t k)
{
    bool skips_forward = direction == ERG_BACKWARD && !kind->workload.replays_forward;
    return k + (skips_forward ? kind->workload.forward_count : 0);
}

/* What an instruction runs at: as set, or the mean of what the GPUs chose. */
static int clock_of(const struct erg_optimization_kind *kind,
                    const struct erg_microbatch_option *option)
{
    return erg_lab_fixed_clock(kind->lab) ? (int)lround(erg_lab_counts(kind->lab).mean_clock_mhz)
                                          : kind->survey.clocks_mhz[option->clock];
}

static json_t *timeline_document(const struct erg_optimization *o, const char *title,
                                 enum erg_method method, size_t point)
{
    const struct erg_method_result *result = &o->methods[method];
    const struct erg_schedule *schedule = &result->iteration.schedule;
    double *start_s = erg_xcalloc(schedule->count, sizeof *start_s);
    erg_method_starts(result, &o->plan_request.scale, point, start_s);
    json_t *stages = json_array();
    double end_s = 0;
    for (size_t s = 0; s < schedule->pipeline.stages; s++) {
        json_t *spans = json_array();
        for (size_t i = s * schedule->per_stage; i < (s + 1) * schedule->per_stage; i++) {
            const struct erg_instruction *instruction = &schedule->instructions[i];
            const struct erg_microbatch *table =
                &result->tables[erg_table_index(&schedule->pipeline, instruction)];
            const struct erg_microbatch_option *option =
                &table->options[result->points[point].option[i]];
            end_s = fmax(end_s, start_s[i] + option->time_s);
            json_array_append_new(
                spans, erg_json_pack("{s:s, s:i, s:i, s:f, s:f, s:i, s:f, s:f, s:s}", "type",
                                     erg_direction_name(instruction->direction), "microbatch",
                                     (int)instruction->microbatch, "chunk", (int)instruction->chunk,
                                     "start_s", start_s[i], "end_s", start_s[i] + option->time_s,
                                     "clock_mhz", clock_of(erg_optimization_kind(o, s), option),
                                     "power_w", option->energy_j / option->time_s, "energy_j",
                                     option->energy_j, "mode", erg_mode_name(option->mode)));
        }
        json_array_append_new(stages, spans);
    }
    free(start_s);
    return erg_json_pack("{s:s, s:s, s:I, s:f, s:o}", "title", title, "method",
                         erg_method_name(method), "point", (json_int_t)point, "time_s", end_s,
                         "stages", stages);
}

json_t *erg_optimization_timelines(const struct erg_optimization *o)
{
    json_t *timelines = json_array();
    json_array_append_new(timelines, timeline_document(o, "before: sequential at full clock",
                                                       ERG_METHOD_SEQUENTIAL, 0));
    json_array_append_new(timelines, timeline_document(o, "after: the selected plan",
                                                       o->selected_method, o->selected_point));
    return timelines;
}

/* One partition under one configuration. */
static int partition_timeline(const struct erg_optimization *o, size_t kind_index, size_t index,
                              size_t config, json_t *timelines, struct erg_error *err)
{
    const struct erg_optimization_kind *kind = &o->kinds[kind_index];
    const struct erg_gpu *gpu = kind->on->gpu;
    const struct erg_partition *partition = &kind->workload.partitions[index];
    const struct erg_space *space = &kind->survey.spaces[index];
    struct erg_choice choice = erg_space_choice(space, config);
    struct erg_step step = erg_partition_step(partition, choice.slot, space->sms[choice.sm]);
    int clock_mhz = space->clocks_mhz[choice.clock];
    struct erg_emulated_result result;
    struct erg_emulated_timeline timeline = {0};
    if (erg_emulated_run(gpu, o->job->stack, &step, 1, clock_mhz, &result, err) ||
        erg_emulated_timeline(gpu, o->job->stack, &step, 1, clock_mhz, &timeline, err))
        return -1;
    json_t *compute = json_array(), *communication = json_array();
    for (size_t i = 0; i < timeline.count; i++) {
        const struct erg_emulated_span *span = &timeline.spans[i];
        const char *name = span->lane == ERG_SPAN_COMPUTE ? partition->op_names[span->op]
                           : span->lane == ERG_SPAN_COMM  ? erg_comm_name(partition->task.comm.kind)
                                                          : "join";
        json_array_append_new(span->lane == ERG_SPAN_COMPUTE ? compute : communication,
                              erg_json_pack("{s:s, s:f, s:f}", "name", name, "start_s",
                                            span->start_s, "end_s", span->end_s));
    }
    erg_emulated_timeline_release(&timeline);
    const struct erg_estimate *estimate = &kind->survey.searches[index]->table[config];
    json_array_append_new(
        timelines,
        erg_json_pack("{s:s, s:i, s:i, s:f, s:s, s:i, s:f, s:f, s:[{s:s, s:o}, {s:s, s:o}]}", "key",
                      partition->key, "kind", (int)kind_index, "clock_mhz", clock_mhz,
                      "clock_effective_mhz", result.clock_effective_mhz, "slot",
                      partition->slots[choice.slot].name, "sms", space->sms[choice.sm], "time_s",
                      estimate->time_s, "energy_j", estimate->energy_j, "lanes", "name", "compute",
                      "spans", compute, "name", "communication", "spans", communication));
    return 0;
}

/* The configuration of a partition that most instructions of the selected point use on the GPUs of
 * a kind; false where none does. */
static bool find_most_used(const struct erg_optimization *o,
                           const struct erg_optimization_kind *kind, size_t index, size_t *config)
{
    const struct erg_method_result *result = &o->methods[o->selected_method];
    const struct erg_schedule *schedule = &result->iteration.schedule;
    unsigned *uses = erg_xcalloc(kind->survey.searches[index]->config_count, sizeof *uses);
    *config = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        const struct erg_microbatch *table =
            &result->tables[erg_table_index(&schedule->pipeline, instruction)];
        const struct erg_microbatch_option *option =
            &table->options[result->points[o->selected_point].option[i]];
        if (erg_optimization_kind(o, instruction->stage) != kind || !option->configurations)
            continue;
        for (size_t k = 0; k < table->partition_count; k++)
            if (erg_optimization_partition(kind, (int)instruction->direction, k) == index) {
                size_t own = (size_t)option->configurations[k];
                if (++uses[own] > uses[*config])
                    *config = own;
            }
    }
    bool used = uses[*config] > 0;
    free(uses);
    return used;
}

json_t *erg_optimization_partition_timelines(const struct erg_optimization *o,
                                             struct erg_error *err)
{
    json_t *timelines = json_array();
    if (o->selected_method != ERG_METHOD_ERGON)
        return timelines;
    int status = 0;
    for (size_t k = 0; k < o->job->kind_count; k++)
        for (size_t i = 0; !status && i < o->kinds[k].survey.partition_count; i++) {
            size_t config;
            if (find_most_used(o, &o->kinds[k], i, &config))
                status = partition_timeline(o, k, i, config, timelines, err);
        }
    if (status) {
        json_decref(timelines);
        return NULL;
    }
    return timelines;
}

json_t *erg_optimization_stage_profile(const struct erg_optimization *o)
{
    const struct erg_method_result *sequential = &o->methods[ERG_METHOD_SEQUENTIAL];
    json_t *rows = json_array();
    for (size_t t = 0; t < sequential->table_count; t++)
        for (size_t k = sequential->tables[t].count; k-- > 0;) {
            const struct erg_microbatch_option *option = &sequential->tables[t].options[k];
            const struct erg_optimization_kind *kind = erg_optimization_kind(o, t / 2);
            json_array_append_new(rows,
                                  erg_json_pack("[I, s, i, f, f]", (json_int_t)(t / 2),
                                                erg_direction_name((enum erg_direction)(t % 2)),
                                                kind->survey.clocks_mhz[option->clock],
                                                option->time_s, option->energy_j));
        }
    return erg_json_pack("{s:[s,s,s,s,s], s:o}", "columns", "stage", "instruction", "frequency",
                         "time", "energy", "rows", rows);
}
