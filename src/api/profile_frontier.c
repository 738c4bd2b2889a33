/* The frontier of a pipeline's iteration from a measured profile, its plan, and how both are shown.
 */
#include "api/profile_frontier.h"

#include "base/given.h"
#include "base/log.h"
#include "base/memory.h"
#include "io/csv.h"
#include "io/json.h"
#include "io/print.h"
#include "iteration/iteration.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

/* Everything that is printed. */
struct result {
    const struct erg_iteration *iteration;
    bool selected; /* only `chosen`, not the whole frontier */
    size_t chosen; /* plan */
    double highest_clock_s, highest_clock_j;
};

/* `hop_latency_s` has room for as many as virtual stages. */
static int build_request(const struct erg_profile_frontier_input *values,
                         const struct erg_profile *profile, const char *file, double *hop_latency_s,
                         struct erg_iteration_request *request, struct erg_error *err)
{
    size_t chunks = (size_t)values->virtual_stages;
    if (profile->chunks > 1 &&
        (chunks != profile->chunks || values->schedule != ERG_SCHEDULE_INTERLEAVED))
        return erg_fail(err, ERG_USAGE,
                        "the profile %s has %zu chunks of each stage; expected --schedule "
                        "interleaved --virtual-stages %zu",
                        file, profile->chunks, profile->chunks);
    if (values->schedule == ERG_SCHEDULE_1F1B && chunks != 1)
        return erg_fail(err, ERG_USAGE,
                        "the 1F1B schedule has one virtual stage per stage, got --virtual-stages "
                        "%zu; expected --schedule interleaved with it",
                        chunks);
    if (values->schedule == ERG_SCHEDULE_INTERLEAVED && chunks == 1)
        return erg_fail(err, ERG_USAGE,
                        "the interleaved schedule needs at least 2 virtual stages per stage; "
                        "expected --virtual-stages");
    if (profile->virtual_stages % chunks != 0)
        return erg_fail(
            err, ERG_USAGE,
            "the profile %s has %zu virtual stages, expected a multiple of --virtual-stages %zu",
            file, profile->virtual_stages, chunks);
    bool powered = !isnan(values->blocking_power_w);
    if (!powered)
        erg_log(ERG_LOG_WARNING,
                "default of --blocking-power: 0 W, so a waiting GPU counts as drawing no power");
    size_t stages = profile->virtual_stages / chunks;
    for (size_t s = 0; s < stages; s++)
        hop_latency_s[s] = values->p2p_latency_s;
    *request = (struct erg_iteration_request){
        .pipeline = {.stages = stages,
                     .microbatches = (size_t)values->microbatches,
                     .chunks = chunks,
                     .hop_latency_s = hop_latency_s,
                     .blocking_power_w = powered ? values->blocking_power_w : 0},
        .tables = profile->tables,
        .tick_s = isnan(values->unit_s) ? 0 : values->unit_s,
        .points = (size_t)values->points};
    if (!isnan(values->deadline_s)) {
        request->deadlines_s = &values->deadline_s;
        request->deadline_count = 1;
    }
    return 0;
}

static struct erg_goal goal_of(const struct erg_profile_frontier_input *values)
{
    if (!isnan(values->deadline_s))
        return (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = values->deadline_s};
    return (struct erg_goal){
        ERG_FASTEST, .energy_j = isnan(values->energy_budget_j) ? 0 : values->energy_budget_j};
}

static int select_plan(const struct erg_profile_frontier_input *values,
                       const struct erg_iteration_request *request, struct erg_iteration *iteration,
                       struct result *result, struct erg_error *err)
{
    const struct erg_goal goal = goal_of(values);
    result->selected = goal.deadline_s > 0 || goal.energy_j > 0;
    if (goal.energy_j > 0 &&
        erg_iteration_refine_budget(iteration, request, goal.energy_j, err) != 0)
        return -1;
    return erg_iteration_pick(iteration, &goal, &result->chosen, err);
}

static size_t row_count(const struct result *result)
{
    return result->selected ? 1 : result->iteration->frontier.count;
}

static const struct erg_iteration_plan *row(const struct result *result, size_t i)
{
    size_t plan =
        result->selected ? result->chosen : (size_t)result->iteration->frontier.points[i].recipe;
    return &result->iteration->plans[plan];
}

/* In per cent; tiny differences of either sign print as +0.00. */
static double change(double reference, double value)
{
    double percent = 100 * (value / reference - 1);
    return fabs(percent) < 0.005 ? 0 : percent;
}

static void print_table(FILE *out, const struct result *result)
{
    enum { MOST_ROWS = 20 };
    size_t count = row_count(result), shown = count < MOST_ROWS ? count : MOST_ROWS;
    fprintf(out, "%12s %14s %15s %17s %8s %8s\n", "time_s", "energy_j", "planned_time_s",
            "planned_energy_j", "time", "energy");
    for (size_t i = 0; i < shown; i++) {
        const struct erg_iteration_plan *plan =
            row(result, shown > 1 ? i * (count - 1) / (shown - 1) : 0);
        fprintf(out, "%12.6f %14.3f %15.6f %17.3f %+7.2f%% %+7.2f%%\n", plan->time_s,
                plan->energy_j, plan->planned_time_s, plan->planned_energy_j,
                change(result->highest_clock_s, plan->time_s),
                change(result->highest_clock_j, plan->energy_j));
    }
    if (shown < count)
        fprintf(out, "%zu of %zu points; --format csv prints all.\n", shown, count);
    fprintf(out, "Compared with every instruction at its highest clock: %.6f s, %.3f J.\n",
            result->highest_clock_s, result->highest_clock_j);
}

static void print_csv(FILE *out, const struct result *result)
{
    struct erg_text text = {0};
    erg_text_add(&text, "time_s,energy_j,planned_time_s,planned_energy_j\n");
    for (size_t i = 0; i < row_count(result); i++) {
        const struct erg_iteration_plan *plan = row(result, i);
        erg_csv_add_double(&text, plan->time_s);
        erg_csv_add_double(&text, plan->energy_j);
        erg_csv_add_double(&text, plan->planned_time_s);
        erg_csv_add_double(&text, plan->planned_energy_j);
        erg_csv_end_row(&text);
    }
    fputs(text.data, out);
    erg_text_release(&text);
}

static void print_json(FILE *out, const struct result *result)
{
    json_t *root = json_object(), *points = json_array();
    json_object_set_new(root, "schema_version", json_integer(1));
    for (size_t i = 0; i < row_count(result); i++) {
        const struct erg_iteration_plan *plan = row(result, i);
        json_t *point = json_object();
        json_object_set_new(point, "time_s", erg_json_number(plan->time_s));
        json_object_set_new(point, "energy_j", erg_json_number(plan->energy_j));
        json_object_set_new(point, "planned_time_s", erg_json_number(plan->planned_time_s));
        json_object_set_new(point, "planned_energy_j", erg_json_number(plan->planned_energy_j));
        json_array_append_new(points, point);
    }
    json_object_set_new(root, "points", points);
    json_t *reference = json_object();
    json_object_set_new(reference, "time_s", erg_json_number(result->highest_clock_s));
    json_object_set_new(reference, "energy_j", erg_json_number(result->highest_clock_j));
    json_object_set_new(root, "highest_clock", reference);
    erg_print_json(out, root);
}

/* All points of the frontier, the chosen one selected: energies of one GPU per stage. */
static int write_plan(const struct erg_profile_frontier_input *values,
                      const struct erg_iteration *iteration, const struct erg_frontier *tables,
                      size_t chosen, struct erg_error *err)
{
    const struct erg_goal goal = goal_of(values);
    struct erg_plan *plan = erg_plan_new();
    plan->seed = values->seed == ERG_NOT_GIVEN ? 0 : values->seed;
    plan->name = values->profile;
    plan->layout.tensor = plan->layout.context = plan->layout.data = 1;
    plan->scale.gpus_per_stage = 1;
    plan->kind_count = 1;
    plan->kinds = erg_arena_alloc(&plan->arena, sizeof *plan->kinds);
    plan->kinds[0] = (struct erg_plan_kind){
        .gpu = "GPU of the profile",
        .device = "GPUs of the profile",
        .identity = values->profile,
        .blocking_power_w = iteration->schedule.pipeline.blocking_power_w,
        .static_power_w = NAN,
        .power_cap_w = NAN,
        .mean_clock_mhz = NAN,
    };
    erg_plan_set_iteration(plan, iteration, tables, NULL, chosen, erg_goal_rule(&goal));
    int status = erg_plan_complete(plan, err) || erg_plan_write(plan, values->output, err) ? -1 : 0;
    erg_plan_free(plan);
    return status;
}

static int solve_and_print(const struct erg_frontier_streams *out,
                           const struct erg_profile_frontier_input *values,
                           const struct erg_profile *profile, double *hop_latency_s,
                           struct erg_error *err)
{
    struct erg_iteration_request request;
    struct erg_iteration iteration;
    if (build_request(values, profile, values->profile, hop_latency_s, &request, err) != 0)
        return -1;
    if (values->seed != ERG_NOT_GIVEN)
        request.seed = (uint64_t)values->seed;
    if (erg_iteration_solve(&iteration, &request, err) != 0)
        return -1;
    struct result result = {.iteration = &iteration};
    int status = select_plan(values, &request, &iteration, &result, err);
    if (status == 0 && values->output)
        status = write_plan(values, &iteration, profile->tables, result.chosen, err);
    if (status == 0) {
        uint32_t *highest = erg_xcalloc(iteration.schedule.count, sizeof *highest);
        erg_profile_highest_clock(&iteration.schedule, profile->tables, highest);
        erg_iteration_evaluate(&iteration.schedule, profile->tables, highest, NULL,
                               &result.highest_clock_s, &result.highest_clock_j);
        free(highest);
        print_table(out->table, &result);
        print_csv(out->csv, &result);
        print_json(out->json, &result);
    }
    erg_iteration_release(&iteration);
    return status;
}

int erg_profile_frontier(const struct erg_frontier_streams *out,
                         const struct erg_profile_frontier_input *values, struct erg_error *err)
{
    struct erg_profile profile;
    if (erg_profile_load(&profile, values->profile, err) != 0)
        return -1;
    double *hop_latency_s = erg_xcalloc(profile.virtual_stages, sizeof *hop_latency_s);
    int status = solve_and_print(out, values, &profile, hop_latency_s, err);
    free(hop_latency_s);
    erg_profile_release(&profile);
    return status;
}
