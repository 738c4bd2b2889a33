/*
 * Optimizer: the work after the passes of a step. Ranks that hold the same weights sum their
 * gradients, each rank updates its share of the weights by AdamW on float masters (ZeRO-1,
 * Rajbhandari et al. 2020, arXiv 1910.02054), and the weights in use are gathered.
 *
 *     g = factor gradient,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g g
 *     w = w (1 - rate decay) (matrices alone)
 *     w = w - rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 *
 * On its own stream, a bucket's gradients are summed during the last backward, and its weights
 * gathered during the next forward.
 */
#ifndef ERG_TRAIN_ENGINE_OPTIMIZER_H
#define ERG_TRAIN_ENGINE_OPTIMIZER_H

#include "decoder/decoder_stage.h"
#include "train/engine/ranks.h"
#include "train/engine/step_timeline.h"

struct erg_optimizer_options {
    struct erg_backend *backend;
    struct erg_stage *stage;
    const struct erg_weight_spans *spans;
    const struct erg_rank_groups *groups;
    bool sequence_parallel;
    struct erg_stream *stream;               /* of the passes; all outlive it */
    const struct erg_static_memory *buffers; /* of the rank; and their memory */
    void *memory;
    struct erg_timeline *timeline;
};

/* The largest scratch memory of its kernels in bytes. */
int erg_optimizer_scratch(size_t *bytes, struct erg_backend *backend,
                          const struct erg_weights_request *request, struct erg_error *err);

struct erg_optimizer;

int erg_optimizer_open(struct erg_optimizer **optimizer,
                       const struct erg_optimizer_options *options, struct erg_error *err);
void erg_optimizer_close(struct erg_optimizer *optimizer);

/* Masters and moments on the device, [weights->state] each, contiguous. */
float *erg_optimizer_state(struct erg_optimizer *optimizer);

/*
 * For a stage with a group of tied weights: this rank's share of their gradients, which is
 * elsewhere in the other stage's memory.
 */
float *erg_optimizer_tied(struct erg_optimizer *optimizer);

/* Rounds the weights in use from the masters, gathers them, and waits. */
int erg_optimizer_round(struct erg_optimizer *optimizer, struct erg_error *err);

/* Listeners for the passes of a step: one waits for gathered weights, one sums gradients. */
struct erg_stage_listener erg_optimizer_reads(struct erg_optimizer *optimizer);
struct erg_stage_listener erg_optimizer_adds(struct erg_optimizer *optimizer);

/*
 * Call it after the passes: *squares is this rank's part of the sum of squares of all gradients, of
 * which one rank counts each element. Waits for the passes.
 */
int erg_optimizer_squares(struct erg_optimizer *optimizer, double *squares, struct erg_error *err);

/* Queues the update, after erg_optimizer_squares(), and the gathers of the weights. */
int erg_optimizer_update(struct erg_optimizer *optimizer, const struct erg_ops_update *update,
                         struct erg_error *err);

/* Waits until the weights have been gathered. */
int erg_optimizer_wait(struct erg_optimizer *optimizer, struct erg_error *err);

#endif
