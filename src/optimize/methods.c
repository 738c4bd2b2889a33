/* Methods of a plan: option tables of each, and the points of their frontiers. */
#include "optimize/methods.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* The solver's tables: one frontier per microbatch table, recipe = index of the option. */
static struct erg_frontier *make_frontiers(const struct erg_method_result *result,
                                           const struct erg_scale *scale)
{
    struct erg_frontier *tables = erg_xcalloc(result->table_count, sizeof *tables);
    for (size_t i = 0; i < result->table_count; i++)
        for (size_t k = 0; k < result->tables[i].count; k++) {
            const struct erg_microbatch_option *option = &result->tables[i].options[k];
            size_t stage = i / 2 % (size_t)scale->stages;
            erg_frontier_add(
                &tables[i], option->time_s,
                erg_scale_option_energy(scale, stage, option->time_s, option->energy_j),
                (int64_t)k);
        }
    return tables;
}

static void free_frontiers(struct erg_frontier *tables, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_frontier_release(&tables[i]);
    free(tables);
}

/* The rest of an energy without the power of waiting GPUs. */
static double beyond_waiting(const struct erg_scale *scale, const struct erg_plan_point *point)
{
    return point->energy_j - erg_scale_waiting_w(scale) * point->time_s;
}

/* Plans slower than the cheapest: worth it only to a pipeline that has to wait anyway. */
static void collect_slower(struct erg_method_result *result, const struct erg_scale *scale)
{
    struct erg_plan_point *last = &result->points[result->point_count - 1];
    for (size_t i = 0; i < result->iteration.plan_count; i++) {
        const struct erg_iteration_plan *plan = &result->iteration.plans[i];
        struct erg_plan_point point = erg_scale_point(scale, plan);
        double gained_j = beyond_waiting(scale, last) - beyond_waiting(scale, &point);
        if (point.time_s > last->time_s && gained_j > 1e-9 * point.energy_j) {
            *++last = point;
            result->slower_count++;
        }
    }
}

/*
 * Around its minimum a frontier is flat, and the noise of the measurements decides its exact end.
 * Plans that are slower and save less than this share of the energy are excluded, except if no
 * others meet a budget.
 */
static const double plateau = 0.001;

/* Whether the last point is the only one within one of the budgets. */
static bool last_is_needed(const struct erg_frontier *frontier,
                           const struct erg_method_request *request)
{
    const struct erg_point *last = &frontier->points[frontier->count - 1];
    for (size_t i = 0; i < request->budget_count; i++)
        if (last->energy_j <= request->budgets_j[i] && last[-1].energy_j > request->budgets_j[i])
            return true;
    return false;
}

static void drop_plateau(struct erg_frontier *frontier, const struct erg_method_request *request)
{
    double least_j = frontier->points[frontier->count - 1].energy_j;
    while (frontier->count > 1 &&
           frontier->points[frontier->count - 2].energy_j <= least_j * (1 + plateau) &&
           !last_is_needed(frontier, request))
        frontier->count--;
}

static void collect_points(struct erg_method_result *result,
                           const struct erg_method_request *request)
{
    const struct erg_scale *scale = &request->scale;
    const struct erg_iteration *iteration = &result->iteration;
    struct erg_frontier frontier = {0};
    for (size_t i = 0; i < iteration->plan_count; i++) {
        const struct erg_iteration_plan *plan = &iteration->plans[i];
        erg_frontier_add(&frontier, erg_scale_time(scale, plan->time_s),
                         erg_scale_energy(scale, plan->time_s, plan->energy_j), (int64_t)i);
    }
    erg_frontier_filter(&frontier);
    drop_plateau(&frontier, request);
    free(result->points);
    result->points = erg_xcalloc(iteration->plan_count, sizeof *result->points);
    result->point_count = frontier.count;
    result->slower_count = 0;
    for (size_t i = 0; i < frontier.count; i++) {
        const struct erg_iteration_plan *plan = &iteration->plans[frontier.points[i].recipe];
        result->points[i] = erg_scale_point(scale, plan);
    }
    erg_frontier_release(&frontier);
    collect_slower(result, scale);
}

/*
 * Adds the fastest plan within a budget in joules of all GPUs. The overhead's share of the energy
 * depends on the time of the plan that is sought, so the budget of the planned part is corrected
 * with the plan that the last try found.
 */
static int refine_budget(struct erg_method_result *result, const struct erg_scale *scale,
                         const struct erg_iteration_request *request, double budget_j,
                         struct erg_error *err)
{
    double added_w = scale->blocking_power_w * scale->stages * scale->overhead;
    double planned_j = budget_j / scale->gpus_per_stage;
    double time_s = result->iteration.plans[0].time_s;
    for (int round = 0; round < 3; round++) {
        double before_s = time_s;
        if (erg_iteration_refine_budget(&result->iteration, request, planned_j - added_w * time_s,
                                        err))
            return -1;
        for (size_t i = result->iteration.plan_count; i-- > 0;) {
            const struct erg_iteration_plan *plan = &result->iteration.plans[i];
            if (plan->energy_j + added_w * plan->time_s <= planned_j)
                time_s = plan->time_s; /* plans are sorted: the fastest one that fits stays */
        }
        if (added_w <= 0 || fabs(time_s - before_s) < 1e-3 * before_s)
            break;
    }
    return 0;
}

/* The deadlines in measured seconds that can be met, in planned seconds. For the other ones the
 * caller finds that no point qualifies. */
static int list_deadlines(const struct erg_method_request *request,
                          const struct erg_iteration_request *unbound, double *deadlines_s,
                          size_t *count, struct erg_error *err)
{
    struct erg_iteration_request shortest = *unbound;
    struct erg_iteration fastest;
    shortest.points = shortest.slower_points = 0;
    shortest.tries = true;
    if (request->deadline_count && erg_iteration_solve(&fastest, &shortest, err))
        return -1;
    for (size_t i = 0; i < request->deadline_count; i++) {
        double deadline_s = request->deadlines_s[i] / (1 + request->scale.overhead);
        if (deadline_s >= fastest.plans[0].time_s)
            deadlines_s[(*count)++] = deadline_s;
    }
    if (request->deadline_count)
        erg_iteration_release(&fastest);
    return 0;
}

int erg_method_plan(struct erg_method_result *result, const struct erg_method_request *request,
                    struct erg_error *err)
{
    struct erg_frontier *tables = make_frontiers(result, &request->scale);
    double *deadlines = erg_xcalloc(request->deadline_count, sizeof *deadlines);
    struct erg_iteration_request iteration_request = {
        .pipeline = request->pipeline,
        .tables = tables,
        .points = request->points,
        .slower_points = request->slower_points,
        .seed = request->seed,
    };
    erg_iteration_release(&result->iteration);
    int status = list_deadlines(request, &iteration_request, deadlines,
                                &iteration_request.deadline_count, err);
    iteration_request.deadlines_s = deadlines;
    if (!status)
        status = erg_iteration_solve(&result->iteration, &iteration_request, err);
    for (size_t i = 0; !status && i < request->budget_count; i++)
        status =
            refine_budget(result, &request->scale, &iteration_request, request->budgets_j[i], err);
    if (!status)
        collect_points(result, request);
    free(deadlines);
    free_frontiers(tables, result->table_count);
    return status;
}

/* The option of whole layers that is the same, or UINT32_MAX. */
static uint32_t same_option(const struct erg_microbatch *table,
                            const struct erg_microbatch_option *option)
{
    for (size_t k = 0; k < table->count; k++)
        if (table->options[k].mode == option->mode && table->options[k].clock == option->clock &&
            !table->options[k].configurations)
            return (uint32_t)k;
    return UINT32_MAX;
}

/* The plan in the options of `result`, which are to be freed; NULL where it lacks one. */
static uint32_t *translate(const struct erg_method_result *result,
                           const struct erg_method_result *from,
                           const struct erg_iteration_plan *plan)
{
    const struct erg_schedule *schedule = &from->iteration.schedule;
    uint32_t *option = erg_xcalloc(schedule->count, sizeof *option);
    for (size_t i = 0; i < schedule->count; i++) {
        size_t t = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
        option[i] = same_option(&result->tables[t], &from->tables[t].options[plan->option[i]]);
        if (option[i] == UINT32_MAX) {
            free(option);
            return NULL;
        }
    }
    return option;
}

void erg_method_adopt(struct erg_method_result *result, const struct erg_method_result *from,
                      const struct erg_method_request *request)
{
    struct erg_iteration_plan *plans = erg_xcalloc(from->iteration.plan_count + 1, sizeof *plans);
    size_t count = 0;
    for (size_t i = 0; i < from->iteration.plan_count; i++) {
        struct erg_iteration_plan plan = from->iteration.plans[i];
        plan.option = translate(result, from, &plan);
        plan.planned_energy_j =
            erg_iteration_planned_energy(&result->iteration, plan.planned_time_s);
        if (plan.option)
            plans[count++] = plan;
    }
    erg_iteration_add_plans(&result->iteration, plans, count);
    free(plans);
    collect_points(result, request);
}

/* The first of those at the highest clock. */
static size_t full_clock_option(const struct erg_microbatch *table)
{
    size_t highest = 0;
    for (size_t k = 1; k < table->count; k++)
        if (table->options[k].clock > table->options[highest].clock)
            highest = k;
    return highest;
}

int erg_method_run_full_clock(struct erg_method_result *result,
                              const struct erg_method_request *request, struct erg_error *err)
{
    struct erg_schedule *schedule = &result->iteration.schedule;
    if (erg_schedule_init(schedule, &request->pipeline, err))
        return -1;
    uint32_t *option = erg_xcalloc(schedule->count, sizeof *option);
    for (size_t i = 0; i < schedule->count; i++) {
        size_t t = erg_table_index(&request->pipeline, &schedule->instructions[i]);
        option[i] = (uint32_t)full_clock_option(&result->tables[t]);
    }
    struct erg_frontier *tables = make_frontiers(result, &request->scale);
    double time_s, energy_j;
    erg_iteration_evaluate(schedule, tables, option, NULL, &time_s, &energy_j);
    free_frontiers(tables, result->table_count);
    result->full_clock = option;
    result->points = erg_xcalloc(1, sizeof *result->points);
    const struct erg_iteration_plan plan = {time_s, energy_j, time_s, energy_j, option};
    result->points[0] = erg_scale_point(&request->scale, &plan);
    result->point_count = 1;
    return 0;
}

void erg_method_release(struct erg_method_result *result)
{
    for (size_t i = 0; i < result->table_count; i++)
        erg_microbatch_release(&result->tables[i]);
    free(result->tables);
    free(result->points);
    free(result->full_clock);
    erg_iteration_release(&result->iteration);
    *result = (struct erg_method_result){0};
}
