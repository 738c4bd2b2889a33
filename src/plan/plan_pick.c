/* What a plan is asked: its sums and its points. */
#include "plan/plan.h"

#include <stdlib.h>

void erg_plan_evaluate(const struct erg_plan *plan, const struct erg_plan_point *point,
                       double *start_s, double *time_s, double *energy_j)
{
    const struct erg_schedule *schedule = &plan->schedule;
    size_t tables = 2 * schedule->pipeline.stages * schedule->pipeline.chunks;
    struct erg_frontier *frontiers = erg_xcalloc(tables, sizeof *frontiers);
    for (size_t t = 0; t < tables; t++)
        for (size_t k = 0; k < plan->stages[t / 2].passes[t % 2].count; k++) {
            const struct erg_plan_option *option = &plan->stages[t / 2].passes[t % 2].items[k];
            size_t stage = t / 2 % schedule->pipeline.stages;
            erg_frontier_add(
                &frontiers[t], option->time_s,
                erg_scale_option_energy(&plan->scale, stage, option->time_s, option->energy_j),
                (int64_t)k);
        }
    double planned_s, planned_j;
    erg_iteration_evaluate(schedule, frontiers, point->option, start_s, &planned_s, &planned_j);
    for (size_t t = 0; t < tables; t++)
        erg_frontier_release(&frontiers[t]);
    free(frontiers);
    *time_s = erg_scale_time(&plan->scale, planned_s);
    *energy_j = erg_scale_energy(&plan->scale, planned_s, planned_j);
}

double erg_plan_held_energy(const struct erg_plan *plan, const struct erg_plan_point *point,
                            double until_s)
{
    double waiting_w = erg_scale_waiting_w(&plan->scale);
    double held_s = until_s - point->time_s;
    return point->energy_j + (held_s > 0 ? waiting_w * held_s : 0);
}

static ptrdiff_t pick_straggler(const struct erg_plan *plan, const struct erg_plan_method *method,
                                double until_s)
{
    ptrdiff_t best = -1;
    double least_j = 0;
    size_t count = method->point_count + method->slower_count;
    for (size_t i = 0; i < count && method->points[i].time_s <= until_s; i++) {
        double held_j = erg_plan_held_energy(plan, &method->points[i], until_s);
        if (best < 0 || held_j < least_j) {
            best = (ptrdiff_t)i;
            least_j = held_j;
        }
    }
    return best;
}

int erg_plan_pick(const struct erg_plan *plan, enum erg_method name, enum erg_goal goal,
                  double bound, size_t *point, struct erg_error *err)
{
    const struct erg_plan_method *method = &plan->methods[name];
    if (!method->point_count)
        return erg_fail(err, ERG_USAGE,
                        "choosing a point: the plan has no points of method %s; make it again "
                        "without --method, or with this one",
                        erg_method_name(name));
    struct erg_frontier frontier = {0};
    for (size_t i = 0; i < method->point_count; i++)
        erg_frontier_add(&frontier, method->points[i].time_s, method->points[i].energy_j,
                         (int64_t)i);
    ptrdiff_t picked = -1;
    switch (goal) {
    case ERG_GOAL_FASTEST:
        picked = 0;
        break;
    case ERG_GOAL_LEAST_ENERGY:
        picked = (ptrdiff_t)method->point_count - 1;
        break;
    case ERG_GOAL_KNEE:
        picked = erg_frontier_pick_knee(&frontier);
        break;
    case ERG_GOAL_DEADLINE:
        picked = erg_frontier_pick_deadline(&frontier, bound);
        break;
    case ERG_GOAL_BUDGET:
        picked = erg_frontier_pick_budget(&frontier, bound);
        break;
    case ERG_GOAL_STRAGGLER:
        picked = pick_straggler(plan, method, bound);
        break;
    }
    erg_frontier_release(&frontier);
    if (picked >= 0) {
        *point = (size_t)picked;
        return 0;
    }
    if (goal == ERG_GOAL_BUDGET)
        return erg_fail(err, ERG_INFEASIBLE,
                        "choosing a point of %s: the energy budget of %g J binds: the cheapest "
                        "iteration needs %.6g J",
                        erg_method_name(name), bound,
                        method->points[method->point_count - 1].energy_j);
    return erg_fail(err, ERG_INFEASIBLE,
                    "choosing a point of %s: the %s of %g s binds: the fastest iteration takes "
                    "%.6g s",
                    erg_method_name(name),
                    goal == ERG_GOAL_DEADLINE ? "deadline" : "straggler's time", bound,
                    method->points[0].time_s);
}
