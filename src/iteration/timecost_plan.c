#include "iteration/timecost_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct timecost_plan timecost_plan_new(const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = activities + problem->dependency_count;
    struct timecost_plan plan = {.start = erg_xcalloc(2 * activities + 1, sizeof *plan.start),
                                 .flow = erg_xcalloc(flows + 1, sizeof *plan.flow)};
    plan.duration = plan.start + activities;
    return plan;
}

size_t timecost_plan_bytes(const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = activities + problem->dependency_count;
    return 2 * activities * sizeof(int32_t) + flows * sizeof(int64_t);
}

void timecost_plan_copy(struct timecost_plan *to, const struct timecost_plan *from,
                        const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = activities + problem->dependency_count;
    memcpy(to->start, from->start, activities * sizeof *to->start);
    memcpy(to->duration, from->duration, activities * sizeof *to->duration);
    memcpy(to->flow, from->flow, flows * sizeof *to->flow);
}

void timecost_plan_free(struct timecost_plan *plan)
{
    free(plan->start);
    free(plan->flow);
}
