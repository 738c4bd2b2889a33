/* Which points of a plan a scheduler of many jobs has, and which one a slowdown means. */
#include "plan/plan_pace.h"

#include <assert.h>
#include <math.h>

static const double slack = 1e-9; /* a slowdown is a quotient of two rounded times */

struct erg_point erg_plan_step(const struct erg_plan *plan, const struct erg_plan_point *point)
{
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, plan);
    const bool known = !isnan(beyond.time_s) && !isnan(beyond.energy_j);
    return (struct erg_point){.time_s = point->time_s + (known ? beyond.time_s : 0),
                              .energy_j = point->energy_j + (known ? beyond.energy_j : 0)};
}

/* Behind the last point that counts. */
static size_t end_of(const struct erg_plan *plan, const struct erg_plan_selection *own)
{
    const struct erg_plan_method *method = &plan->methods[own->method];
    assert(own->point < method->point_count + method->slower_count);
    return own->point < method->point_count ? method->point_count : own->point + 1;
}

void erg_plan_pace_steps(struct erg_frontier *steps, const struct erg_plan *plan,
                         const struct erg_plan_selection *own)
{
    const size_t end = end_of(plan, own);
    erg_frontier_clear(steps);
    for (size_t i = own->point; i < end; i++) {
        const struct erg_point step = erg_plan_step(plan, &plan->methods[own->method].points[i]);
        erg_frontier_add(steps, step.time_s, step.energy_j, (int64_t)i);
    }
}

size_t erg_plan_pace_point(const struct erg_plan *plan, const struct erg_plan_selection *own,
                           double slowdown)
{
    const struct erg_plan_point *points = plan->methods[own->method].points;
    const size_t end = end_of(plan, own);
    const double most_s = (1 + slack) * slowdown * erg_plan_step(plan, &points[own->point]).time_s;
    size_t point = own->point;
    assert(slowdown >= 1);
    while (point + 1 < end && erg_plan_step(plan, &points[point + 1]).time_s <= most_s)
        point++;
    return point;
}
