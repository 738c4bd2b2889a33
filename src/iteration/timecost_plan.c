/* Plans of the time-cost problem: allocated, copied and freed. */
#include "iteration/timecost_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static size_t flow_count(const struct timecost_problem *problem)
{
    return problem->activity_count + problem->dependency_count;
}

struct timecost_plan erg_timecost_plan_new(const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = flow_count(problem);
    struct timecost_plan plan = {.start = erg_xcalloc(2 * activities + 1, sizeof *plan.start),
                                 .flow = erg_xcalloc(flows + 1, sizeof *plan.flow)};
    plan.duration = plan.start + activities;
    return plan;
}

size_t erg_timecost_plan_bytes(const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = flow_count(problem);
    return 2 * activities * sizeof(int32_t) + flows * sizeof(int64_t);
}

void erg_timecost_plan_copy(struct timecost_plan *to, const struct timecost_plan *from,
                            const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = flow_count(problem);
    memcpy(to->start, from->start, activities * sizeof *to->start);
    memcpy(to->duration, from->duration, activities * sizeof *to->duration);
    memcpy(to->flow, from->flow, flows * sizeof *to->flow);
}

void erg_timecost_plan_free(struct timecost_plan *plan)
{
    free(plan->start);
    free(plan->flow);
}
