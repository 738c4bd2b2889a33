#include "iteration/iteration.h"

#include "base/memory.h"
#include "io/json.h"

#include <stdlib.h>

static json_t *describe_stage(const struct erg_schedule *schedule,
                              const struct erg_frontier *tables, const struct erg_plan *plan,
                              const double *start_s, size_t stage)
{
    json_t *list = json_array();
    size_t first = stage * schedule->per_stage;
    for (size_t i = first; i < first + schedule->per_stage; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        const struct erg_frontier *table =
            &tables[erg_table_index(&schedule->pipeline, instruction)];
        const struct erg_point *point = &table->points[plan->option[i]];
        json_t *item = json_object();
        json_object_set_new(
            item, "instruction",
            erg_json_new_string(instruction->direction == ERG_FORWARD ? "forward" : "backward"));
        json_object_set_new(item, "microbatch", json_integer(instruction->microbatch));
        json_object_set_new(
            item, "virtual_stage",
            json_integer((json_int_t)(instruction->chunk * schedule->pipeline.stages + stage)));
        json_object_set_new(item, "frequency_mhz", json_integer(point->recipe));
        json_object_set_new(item, "start_s", erg_json_number(start_s[i]));
        json_object_set_new(item, "time_s", erg_json_number(point->time_s));
        json_object_set_new(item, "energy_j", erg_json_number(point->energy_j));
        json_array_append_new(list, item);
    }
    json_t *object = json_object();
    json_object_set_new(object, "stage", json_integer((json_int_t)stage));
    json_object_set_new(object, "instructions", list);
    return object;
}

int erg_plan_write(const char *path, const struct erg_iteration *iteration,
                   const struct erg_frontier *tables, size_t plan, struct erg_error *err)
{
    const struct erg_schedule *schedule = &iteration->schedule;
    const struct erg_pipeline *pipeline = &schedule->pipeline;
    const struct erg_plan *chosen = &iteration->plans[plan];
    double *start_s = erg_xcalloc(schedule->count, sizeof *start_s), time_s, energy_j;
    erg_iteration_evaluate(schedule, tables, chosen->option, start_s, &time_s, &energy_j);

    json_t *root = json_object(), *hops = json_array();
    for (size_t s = 0; s < pipeline->stages; s++)
        json_array_append_new(
            hops, erg_json_number(pipeline->hop_latency_s ? pipeline->hop_latency_s[s] : 0));
    json_object_set_new(root, "schema_version", json_integer(2));
    json_object_set_new(root, "kind", erg_json_new_string("iteration plan"));
    json_object_set_new(
        root, "schedule",
        erg_json_new_string(pipeline->schedule == ERG_SCHEDULE_1F1B ? "1f1b" : "interleaved"));
    json_object_set_new(root, "stage_count", json_integer((json_int_t)pipeline->stages));
    json_object_set_new(root, "virtual_stages_per_stage",
                        json_integer((json_int_t)pipeline->chunks));
    json_object_set_new(root, "microbatches", json_integer((json_int_t)pipeline->microbatches));
    json_object_set_new(root, "blocking_power_w", erg_json_number(pipeline->blocking_power_w));
    json_object_set_new(root, "hop_latency_s", hops);
    json_object_set_new(root, "time_s", erg_json_number(chosen->time_s));
    json_object_set_new(root, "energy_j", erg_json_number(chosen->energy_j));
    json_object_set_new(root, "planned_time_s", erg_json_number(chosen->planned_time_s));
    json_object_set_new(root, "planned_energy_j", erg_json_number(chosen->planned_energy_j));
    json_t *stages = json_array();
    for (size_t stage = 0; stage < pipeline->stages; stage++)
        json_array_append_new(stages, describe_stage(schedule, tables, chosen, start_s, stage));
    json_object_set_new(root, "stages", stages);
    int result = erg_json_write(path, root, err);
    json_decref(root);
    free(start_s);
    return result;
}
