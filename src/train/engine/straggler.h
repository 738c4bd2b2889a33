/*
 * Straggler: the point of the plan that a pipeline runs next, from the working times of the ranks
 * of all pipelines in the last step (plan/plan_follow.h). The pipelines of a job wait for each
 * other at the end of every step: while one is late, the others may use less energy and still be in
 * time. The late one keeps the point that was chosen for the job.
 */
#ifndef ERG_TRAIN_ENGINE_STRAGGLER_H
#define ERG_TRAIN_ENGINE_STRAGGLER_H

#include "job/layout.h"
#include "plan/plan.h"

/* The times of a rank in a step. Plain data, which ranks send each other. */
struct erg_rank_pace {
    double worked_s; /* in forward and backward passes; NaN: unknown */
    uint64_t point;  /* point of the plan's selected method that it ran */
};

/*
 * The point for the pipeline with the place `data`; `ranks` [world] are in rank order. If a value
 * is unknown, the result is the pipeline's current point.
 */
int erg_straggler_point(size_t *point, const struct erg_plan *plan, const struct erg_layout *layout,
                        const struct erg_rank_pace *ranks, long data, struct erg_error *err);

#endif
