/* The plans of an iteration: kept, sorted and picked from. */
#include "iteration/iteration_internal.h"

#include "base/memory.h"

#include <stdlib.h>

void erg_iteration_evaluate(const struct erg_schedule *schedule, const struct erg_frontier *tables,
                            const uint32_t *option, double *start_s, double *time_s,
                            double *energy_j)
{
    double *starts = start_s ? start_s : erg_xcalloc(schedule->count, sizeof *starts);
    double power_w = schedule->pipeline.blocking_power_w, end = 0, cost = 0;
    for (size_t next = 0; next < schedule->count; next++) {
        uint32_t i = schedule->order[next];
        double start = 0;
        for (int k = 0; k < 2; k++) {
            uint32_t before = schedule->before[i][k];
            if (before == ERG_NONE)
                continue;
            size_t table = erg_table_index(&schedule->pipeline, &schedule->instructions[before]);
            double ready = starts[before] + tables[table].points[option[before]].time_s +
                           erg_schedule_latency_s(schedule, before, i);
            start = ready > start ? ready : start;
        }
        starts[i] = start;
        size_t table = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
        const struct erg_point *point = &tables[table].points[option[i]];
        cost += point->energy_j - power_w * point->time_s;
        end = start + point->time_s > end ? start + point->time_s : end;
    }
    if (!start_s)
        free(starts);
    *time_s = end;
    *energy_j = cost + power_w * (double)schedule->pipeline.stages * end;
}

double erg_iteration_planned_energy(const struct erg_iteration *iteration, double time_s)
{
    const struct erg_breakpoint *planned = iteration->planned;
    size_t low = 0, high = iteration->planned_count - 1;
    double held = time_s;
    if (held < planned[0].time_s)
        held = planned[0].time_s;
    if (held > planned[high].time_s)
        held = planned[high].time_s;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (planned[middle].time_s <= held)
            low = middle;
        else
            high = middle;
    }
    double cost = planned[low].cost_j, span = planned[high].time_s - planned[low].time_s;
    if (span > 0)
        cost += (planned[high].cost_j - cost) * ((held - planned[low].time_s) / span);
    const struct erg_pipeline *pipeline = &iteration->schedule.pipeline;
    return cost + pipeline->blocking_power_w * (double)pipeline->stages * time_s;
}

/* The target of a plan. */
struct deadline {
    double time_s, energy_j;
};

static int compare_plans(const void *left, const void *right)
{
    const struct erg_iteration_plan *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return (a->energy_j > b->energy_j) - (a->energy_j < b->energy_j);
}

static int compare_deadlines(const void *left, const void *right)
{
    const struct deadline *a = left, *b = right;
    return (a->time_s > b->time_s) - (a->time_s < b->time_s);
}

/* The plans are sorted: the next plan may miss a deadline that this one meets. */
static void tighten_deadlines(struct erg_iteration *iteration)
{
    size_t count = iteration->plan_count, next = 0;
    struct deadline *deadlines = erg_xcalloc(count + 1, sizeof *deadlines);
    for (size_t i = 0; i < count; i++)
        deadlines[i] = (struct deadline){iteration->plans[i].planned_time_s,
                                         iteration->plans[i].planned_energy_j};
    qsort(deadlines, count, sizeof *deadlines, compare_deadlines);
    for (size_t i = 0; i < count; i++) {
        struct erg_iteration_plan *plan = &iteration->plans[i];
        while (next < count && deadlines[next].time_s < plan->time_s)
            next++;
        if (next < count && deadlines[next].time_s < plan->planned_time_s) {
            plan->planned_time_s = deadlines[next].time_s;
            plan->planned_energy_j = deadlines[next].energy_j;
        }
    }
    free(deadlines);
}

void erg_iteration_sort_plans(struct erg_iteration *iteration)
{
    qsort(iteration->plans, iteration->plan_count, sizeof *iteration->plans, compare_plans);
    tighten_deadlines(iteration);
    erg_frontier_clear(&iteration->frontier);
    for (size_t i = 0; i < iteration->plan_count; i++)
        erg_frontier_add(&iteration->frontier, iteration->plans[i].time_s,
                         iteration->plans[i].energy_j, (int64_t)i);
    erg_frontier_filter(&iteration->frontier);
}

int erg_iteration_pick(const struct erg_iteration *iteration, const struct erg_goal *goal,
                       size_t *plan, struct erg_error *err)
{
    const struct erg_pipeline *pipeline = &iteration->schedule.pipeline;
    struct erg_frontier all = {0};
    size_t at;
    if (goal->straggler_s > 0)
        for (size_t i = 0; i < iteration->plan_count; i++)
            erg_frontier_add(&all, iteration->plans[i].time_s, iteration->plans[i].energy_j,
                             (int64_t)i);
    const struct erg_frontier *points = goal->straggler_s > 0 ? &all : &iteration->frontier;
    int status = erg_goal_pick(goal, points, pipeline->blocking_power_w * (double)pipeline->stages,
                               &at, err);
    if (!status)
        *plan = (size_t)points->points[at].recipe;
    erg_frontier_release(&all);
    return status;
}
