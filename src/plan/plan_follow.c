/* Which point a pipeline runs while another one is late. */
#include "plan/plan_follow.h"

#include "plan/plan_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

void erg_plan_stage_seconds(const struct erg_plan *plan, const struct erg_plan_point *point,
                            double *seconds)
{
    const struct erg_schedule *schedule = &plan->schedule;
    for (size_t s = 0; s < schedule->pipeline.stages; s++) {
        double planned_s = 0;
        for (size_t i = s * schedule->per_stage; i < (s + 1) * schedule->per_stage; i++)
            planned_s += erg_plan_option(plan, point, i)->time_s;
        seconds[s] = erg_scale_time(&plan->scale, planned_s);
    }
}

double erg_plan_paced_time(const struct erg_plan *plan, const struct erg_plan_point *chosen,
                           const struct erg_plan_point *running, const double *measured_s)
{
    size_t stages = plan->schedule.pipeline.stages;
    double *pace = erg_xcalloc(stages, sizeof *pace), planned_s, planned_j;
    erg_plan_stage_seconds(plan, running, pace);
    for (size_t s = 0; s < stages; s++)
        pace[s] = measured_s && isfinite(measured_s[s]) ? measured_s[s] / pace[s] : 1;
    struct erg_plan_tables tables = erg_plan_tables_new(plan, pace);
    erg_iteration_evaluate(&plan->schedule, tables.items, chosen->option, NULL, &planned_s,
                           &planned_j);
    erg_plan_tables_release(&tables);
    free(pace);
    return erg_scale_time(&plan->scale, planned_s);
}

int erg_plan_follow(const struct erg_plan *plan, const struct erg_plan_lateness *lateness,
                    size_t *point, struct erg_error *err)
{
    const struct erg_plan_method *method = &plan->methods[lateness->method];
    struct erg_goal goal = {.objective = ERG_LEAST_ENERGY};
    size_t target;
    if (!method->point_count) /* names the missing part */
        return erg_plan_pick(plan, lateness->method, &goal, point, err);
    assert(lateness->chosen < method->point_count + method->slower_count);
    assert(lateness->running < method->point_count + method->slower_count);
    const struct erg_plan_point *chosen = &method->points[lateness->chosen];
    const struct erg_plan_point *running = &method->points[lateness->running];
    double until_s = chosen->time_s *
                     erg_plan_paced_time(plan, chosen, chosen, lateness->slowest_s) /
                     erg_plan_paced_time(plan, chosen, running, lateness->own_s);
    double least_s = until_s / (1 + ERG_FOLLOW_NOISE), most_s = until_s / (1 - ERG_FOLLOW_NOISE);
    goal.straggler_s = fmax(chosen->time_s, least_s);
    if (erg_plan_pick(plan, lateness->method, &goal, &target, err) != 0)
        return -1;
    bool too_slow = running->time_s > fmax(chosen->time_s, most_s);
    bool pays = method->points[target].time_s * (1 - ERG_FOLLOW_NOISE) > running->time_s;
    *point = too_slow || pays ? target : lateness->running;
    return 0;
}
