/*
 * A plan's points for a scheduler of many jobs: the frontier of whole steps that it knows of a job,
 * and the point that the job takes when its scheduler slows it down.
 *
 * A whole step is an iteration with what lies beyond it (erg_plan_beyond()), among as many copies
 * of the pipeline as the plan has; where the plan does not know that, the iteration alone.
 *
 * `own` is the point of the job's options. The points of its method from there on slower count, of
 * those beyond the method's frontier only `own` itself. So point k of the scheduler is own + k.
 */
#ifndef ERG_PLAN_PLAN_PACE_H
#define ERG_PLAN_PLAN_PACE_H

#include "plan/plan.h"

/* The time of a step, and the energy of all GPUs of one pipeline. */
struct erg_point erg_plan_step(const struct erg_plan *plan, const struct erg_plan_point *point);

/* The steps from `own` on: time up, energy down; recipe: the point. Clears the list first. */
void erg_plan_pace_steps(struct erg_frontier *steps, const struct erg_plan *plan,
                         const struct erg_plan_selection *own);

/* The point of least energy whose step takes at most `slowdown` (at least 1) times as long as that
 * of `own`. */
size_t erg_plan_pace_point(const struct erg_plan *plan, const struct erg_plan_selection *own,
                           double slowdown);

#endif
