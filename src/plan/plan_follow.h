/*
 * Following: which point a pipeline runs while another pipeline of the job is late.
 *
 * The pipelines of a job wait for each other at the end of every step. Where a GPU of one of them
 * is slower than planned (heat, a power cap, a slow link), that pipeline goes on at the point that
 * was chosen, and the others may run slower points that need less energy and still end in time:
 * erg_plan_pick() with straggler_s, as `ergon show --straggler`. Its delay follows from the working
 * time of each of its stages, by the longest path over the schedule, so that a stage with slack
 * causes no delay.
 *
 * Measured times waver. The time until which to hold has a tolerance of ERG_FOLLOW_NOISE either
 * way: a new point must end in time by the lower limit, the present one is kept if it ends in time
 * by the upper limit, and a slower point has to be slower by more than the tolerance. So under
 * constant conditions a pipeline only moves to slower points, up to the limit.
 */
#ifndef ERG_PLAN_FOLLOW_H
#define ERG_PLAN_FOLLOW_H

#include "plan/plan.h"

#define ERG_FOLLOW_NOISE 0.02

struct erg_plan_lateness {
    enum erg_method method;
    size_t chosen;  /* the point that the job is to run; late pipelines keep it */
    size_t running; /* the point that this pipeline runs */
    /* [stages]: seconds that each stage worked in a step, without waiting: of the slowest pipeline,
     * at `chosen`; of this one, at `running`. NaN, or NULL instead of all: as planned. */
    const double *slowest_s, *own_s;
};

/* The point that this pipeline runs from the next step on. ERG_USAGE for a method that the plan
 * lacks. */
int erg_plan_follow(const struct erg_plan *plan, const struct erg_plan_lateness *lateness,
                    size_t *point, struct erg_error *err);

/* Seconds that each stage works in a step at a point, as planned, [stages]. */
void erg_plan_stage_seconds(const struct erg_plan *plan, const struct erg_plan_point *point,
                            double *seconds);

/* The time of an iteration at `chosen` if each stage is as slow as was measured at `running`;
 * seconds as above, NaN or NULL: as planned. */
double erg_plan_paced_time(const struct erg_plan *plan, const struct erg_plan_point *chosen,
                           const struct erg_plan_point *running, const double *measured_s);

#endif
