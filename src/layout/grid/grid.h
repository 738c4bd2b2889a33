/*
 * Grids: one job on fixed resources with a fixed number of pipeline stages. What is left open is
 * which layers each stage has and how each stage spreads over its GPUs.
 *
 * A stage of n GPUs has a shape: `data` replicas, each of `tensor` GPUs, data x tensor = n, both
 * powers of two. Layers are pipeline layers: what a model was cut into, of about equal work, 16 or
 * fewer.
 *
 * Source of the method: Arena (published under that name and as Crius): grids, disaggregated
 * profiles, parallelism planner.
 */
#ifndef ERG_LAYOUT_GRID_H
#define ERG_LAYOUT_GRID_H

#include "base/text.h"

#include <stddef.h>

enum {
    ERG_GRID_MAX_STAGES = 16,
    ERG_GRID_MICROBATCHES = 16, /* of an iteration, in all published profiles */
};

struct erg_shape {
    long data, tensor;
};

struct erg_grid_plan {
    size_t stages;
    size_t first[ERG_GRID_MAX_STAGES + 1]; /* stage s has layers [first[s], first[s + 1]) */
    struct erg_shape shapes[ERG_GRID_MAX_STAGES];
};

/* "0_7__8_15::2_1__1_2": first and last layer of each stage, then data_tensor of each. */
void erg_grid_plan_text(const struct erg_grid_plan *plan, struct erg_text *text);

/* ---- Iteration time (grid_time.c) ---- */

/* Seconds of one stage: of one microbatch, or of an iteration where said. */
struct erg_stage_time {
    double forward_s, backward_s;             /* computation; backward with what it recomputes */
    double forward_intra_s, backward_intra_s; /* communication within the stage */
    double forward_send_s, backward_send_s;   /* to the next stage, to the previous stage */
    double gradient_sync_s;                   /* once an iteration */
    double apply_s, apply_intra_s;            /* update of the weights, once an iteration */
};

/* The sum and what it is made of; of a stage that is the slowest, each in its own part. */
struct erg_iteration_time {
    double total_s;
    double compute_s, intra_s, inter_s;
};

/*
 * A pipeline of B microbatches: for each of forward, backward and their sends, the sum over stages
 * and B - 1 times the slowest; gradient synchronisation of all stages one after another; the
 * slowest update. Updates of 10^5 s or more are profiles that failed, and count nothing.
 */
void erg_grid_time(const struct erg_stage_time *stages, size_t count, long microbatches,
                   struct erg_iteration_time *time);

#endif
