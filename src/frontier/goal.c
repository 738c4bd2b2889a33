/* Picks by a goal. */
#include "frontier/goal.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

const char *erg_goal_rule(const struct erg_goal *goal)
{
    if (goal->straggler_s > 0)
        return "the least energy when held for a straggler";
    if (goal->deadline_s > 0)
        return goal->objective == ERG_FASTEST ? "the fastest within the bounds"
                                              : "the least energy within the deadline";
    if (goal->energy_j > 0)
        return goal->objective == ERG_FASTEST ? "the fastest within the energy budget"
                                              : "the least energy within the bounds";
    static const char *const rules[] = {"the fastest", "the least energy", "the least power",
                                        "the knee of the frontier"};
    return rules[goal->objective];
}

/* The quantity that the goal minimises. */
static double value_of(const struct erg_goal *goal, const struct erg_point *point, double waiting_w)
{
    if (goal->straggler_s > 0)
        return point->energy_j - waiting_w * point->time_s;
    switch (goal->objective) {
    case ERG_LEAST_ENERGY:
        return point->energy_j;
    case ERG_LEAST_POWER:
        return point->energy_j / point->time_s;
    case ERG_FASTEST:
    case ERG_KNEE:
        break;
    }
    return point->time_s;
}

static bool is_within(double value, double bound)
{
    return !(bound > 0) || value <= bound;
}

/* Rounded up to six digits, so that the number in a message is a bound that can be kept. */
static double rounded_up(double value)
{
    if (!(value > 0))
        return value;
    double unit = pow(10, floor(log10(value)) - 5);
    return ceil(value / unit) * unit;
}

/* The bound that no point keeps, or that none keeps together with the others. */
static int fail(const struct erg_goal *goal, const struct erg_frontier *points,
                struct erg_error *err)
{
    double least_s = INFINITY, least_j = INFINITY, least_w = INFINITY;
    for (size_t i = 0; i < points->count; i++) {
        const struct erg_point *point = &points->points[i];
        least_s = fmin(least_s, point->time_s);
        least_j = fmin(least_j, point->energy_j);
        least_w = fmin(least_w, point->energy_j / point->time_s);
    }
    if (!is_within(least_s, goal->straggler_s))
        return erg_fail(err, ERG_INFEASIBLE,
                        "the straggler's time of %.9g s binds: the fastest takes %.7g s",
                        goal->straggler_s, rounded_up(least_s));
    if (!is_within(least_s, goal->deadline_s))
        return erg_fail(err, ERG_INFEASIBLE,
                        "the deadline of %.9g s binds: the fastest takes %.7g s", goal->deadline_s,
                        rounded_up(least_s));
    if (!is_within(least_j, goal->energy_j))
        return erg_fail(err, ERG_INFEASIBLE,
                        "the energy budget of %.9g J binds: the cheapest needs %.7g J",
                        goal->energy_j, rounded_up(least_j));
    if (!is_within(least_w, goal->power_w))
        return erg_fail(err, ERG_INFEASIBLE,
                        "the power budget of %.9g W binds: the least is %.7g W", goal->power_w,
                        rounded_up(least_w));
    return erg_fail(err, ERG_INFEASIBLE,
                    "the bounds bind together: each can be kept, but no point keeps all");
}

int erg_goal_pick(const struct erg_goal *goal, const struct erg_frontier *points, double waiting_w,
                  size_t *index, struct erg_error *err)
{
    ptrdiff_t best = -1;
    double least = INFINITY;
    assert(points->count > 0);
    if (goal->objective == ERG_KNEE) {
        *index = (size_t)erg_frontier_pick_knee(points);
        return 0;
    }
    for (size_t i = 0; i < points->count; i++) {
        const struct erg_point *point = &points->points[i];
        double value = value_of(goal, point, waiting_w);
        if (value < least && is_within(point->time_s, goal->deadline_s) &&
            is_within(point->time_s, goal->straggler_s) &&
            is_within(point->energy_j, goal->energy_j) &&
            is_within(point->energy_j / point->time_s, goal->power_w)) {
            least = value;
            best = (ptrdiff_t)i;
        }
    }
    if (best < 0)
        return fail(goal, points, err);
    *index = (size_t)best;
    return 0;
}
