/*
 * Goal: the selection of one of several ways of doing the same work: the quantity to minimise, and
 * bounds.
 *
 * A deadline is the least energy within a time, an energy budget the least time within an energy;
 * every scale picks by this one type, from the points of a pipeline to layouts over clocks.
 */
#ifndef ERG_FRONTIER_GOAL_H
#define ERG_FRONTIER_GOAL_H

#include "ergon/error.h"
#include "ergon/frontier.h"

enum erg_objective {
    ERG_FASTEST,
    ERG_LEAST_ENERGY,
    ERG_LEAST_POWER,
    ERG_KNEE, /* of the frontier, erg_frontier_pick_knee(); bounds do not count */
};

/* 0: no bound. */
struct erg_goal {
    enum erg_objective objective;
    double deadline_s, energy_j; /* of an iteration, all its GPUs */
    double power_w;              /* mean of an iteration, all its GPUs */
    double memory_bytes;         /* of one GPU */
    double gpus;
    /* The work waits until then at any point (another pipeline is late), which costs the power of
     * waiting. */
    double straggler_s;
};

/* "the fastest", "the least energy within the deadline", … */
const char *erg_goal_rule(const struct erg_goal *goal);

/*
 * The point of a list, time up, that reaches the goal within the bounds on time, energy and power;
 * of equal ones the first. `waiting_w`: the power of a held iteration. ERG_INFEASIBLE names the
 * bound that binds, and the nearest point's value. The list must not be empty.
 */
int erg_goal_pick(const struct erg_goal *goal, const struct erg_frontier *points, double waiting_w,
                  size_t *index, struct erg_error *err);

#endif
