/*
 * Straggler: which point of the plan a pipeline runs next, by how long the ranks of all pipelines
 * worked in the step behind them (plan/plan_follow.h). The pipelines of a job wait for each other
 * at the end of every step: while one is late, the others may need less energy and still be in
 * time. The late one keeps to the point that was chosen for the job.
 */
#ifndef ERG_TRAIN_ENGINE_STRAGGLER_H
#define ERG_TRAIN_ENGINE_STRAGGLER_H

#include "job/layout.h"
#include "plan/plan.h"

/* The times of a rank in a step. Plain data, which ranks send each other. */
struct erg_rank_pace {
    double worked_s; /* in forward and backward passes; NaN: not known */
    uint64_t point;  /* of the plan's selected method, that it ran */
};

/* The point for the pipeline with the place `data`; `ranks` [world] are in the order of ranks.
 * Where a value is not known, the result is the point that the pipeline runs. */
int erg_straggler_point(size_t *point, const struct erg_plan *plan, const struct erg_layout *layout,
                        const struct erg_rank_pace *ranks, long data, struct erg_error *err);

#endif
