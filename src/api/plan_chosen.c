/* The selected point of a plan as JSON. */
#include "api/plan_chosen.h"

#include "base/memory.h"
#include "io/json.h"

#include <stdlib.h>

static json_t *describe_instruction(const struct erg_plan *plan, const struct erg_plan_point *point,
                                    size_t i, double start_s)
{
    const struct erg_instruction *instruction = &plan->schedule.instructions[i];
    const struct erg_plan_option *option = erg_plan_option(plan, point, i);
    json_t *configurations = json_array();
    for (size_t k = 0; k < option->configuration_count; k++)
        json_array_append_new(configurations, erg_json_pack("{s:s, s:s, s:i}", "partition",
                                                            option->configurations[k].partition,
                                                            "slot", option->configurations[k].slot,
                                                            "sms", option->configurations[k].sms));
    return erg_json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:i, s:s, s:o}", "type",
                         erg_direction_names[instruction->direction], "microbatch",
                         (int)instruction->microbatch, "chunk", (int)instruction->chunk, "start_s",
                         start_s, "time_s", option->time_s, "energy_j", option->energy_j,
                         "clock_mhz", option->clock_mhz, "mode", erg_mode_name(option->mode),
                         "configurations", configurations);
}

static json_t *describe_stages(const struct erg_plan *plan, const struct erg_plan_point *point)
{
    const struct erg_schedule *schedule = &plan->schedule;
    double *start_s = erg_xcalloc(schedule->count, sizeof *start_s), time_s, energy_j;
    erg_plan_evaluate(plan, point, start_s, &time_s, &energy_j);
    json_t *stages = json_array();
    for (size_t stage = 0; stage < schedule->pipeline.stages; stage++) {
        json_t *list = json_array();
        for (size_t i = stage * schedule->per_stage; i < (stage + 1) * schedule->per_stage; i++)
            json_array_append_new(list, describe_instruction(plan, point, i, start_s[i]));
        json_array_append_new(
            stages, erg_json_pack("{s:I, s:o}", "stage", (json_int_t)stage, "instructions", list));
    }
    free(start_s);
    return stages;
}

/* Times and energies of all points, without their recipes. */
static json_t *describe_methods(const json_t *document)
{
    json_t *methods = json_object(), *method;
    const char *name;
    json_object_foreach(json_object_get(document, "methods"), name, method)
    {
        json_t *points = json_array(), *point;
        size_t i;
        json_array_foreach(json_object_get(method, "points"), i, point) json_array_append_new(
            points, erg_json_pack("{s:O, s:O}", "time_s", json_object_get(point, "time_s"),
                                  "energy_j", json_object_get(point, "energy_j")));
        json_object_set_new(methods, name,
                            erg_json_pack("{s:o, s:O}", "points", points, "versus",
                                          json_object_get(method, "versus")));
    }
    return methods;
}

json_t *erg_plan_chosen_document(const struct erg_plan *plan)
{
    const struct erg_plan_selection *choice = &plan->selected;
    const double held_until_s = choice->held_until_s;
    const struct erg_plan_point *point = &plan->methods[choice->method].points[choice->point];
    json_t *chosen = erg_json_pack(
        "{s:s, s:I, s:s, s:f, s:f, s:o}", "method", erg_method_name(choice->method), "point",
        (json_int_t)choice->point, "rule", choice->rule, "time_s", point->time_s, "energy_j",
        point->energy_j, "static_energy_j", erg_json_number(point->static_energy_j));
    if (held_until_s > 0) {
        double held_j = erg_plan_held_energy(plan, point, held_until_s);
        json_object_set_new(chosen, "held_until_s", erg_json_number(held_until_s));
        json_object_set_new(chosen, "held_energy_j", erg_json_number(held_j));
    }
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, plan);
    json_object_set_new(chosen, "step_time_s", erg_json_number(point->time_s + beyond.time_s));
    json_object_set_new(chosen, "step_energy_j",
                        erg_json_number(point->energy_j + beyond.energy_j));
    json_object_set_new(chosen, "stages", describe_stages(plan, point));
    json_t *document = erg_plan_json(plan);
    json_t *root = erg_json_pack("{s:i, s:O, s:o, s:o}", "schema_version", 1, "job",
                                 json_object_get(document, "job"), "methods",
                                 describe_methods(document), "chosen", chosen);
    if (plan->step_ends) {
        json_object_set(root, "beyond", json_object_get(document, "beyond"));
        json_object_set(root, "step_ends", json_object_get(document, "step_ends"));
    }
    json_decref(document);
    return root;
}
