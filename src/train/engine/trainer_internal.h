/* Trainer: what its files and tests share. */
#ifndef ERG_TRAIN_ENGINE_TRAINER_INTERNAL_H
#define ERG_TRAIN_ENGINE_TRAINER_INTERNAL_H

#include "decoder/decoder_stage.h"
#include "train/data/batch.h"
#include "train/engine/optimizer.h"
#include "train/engine/passes.h"
#include "train/engine/rate.h"
#include "train/engine/trainer.h"

/* What changes from step to step, in memory of the device; kernels read it there. */
struct erg_step_scalars {
    float scale; /* one over the targets that count */
    float loss;
};
_Static_assert(sizeof(struct erg_step_scalars) <= ERG_STATIC_SCALARS_BYTES, "they have room");

struct erg_trainer {
    struct erg_trainer_options options;
    const struct erg_job *job;
    const struct erg_training *training;
    struct erg_ranks ranks;
    struct erg_pass_list list;
    struct erg_layer_range *chunks;
    struct erg_weights_request request;
    struct erg_stage *stage;
    const struct erg_weights *weights; /* the stage's */
    struct erg_weight_spans spans;
    struct erg_passes *passes;
    struct erg_optimizer *optimizer;
    struct erg_batches batches;
    struct erg_stream *stream;
    struct erg_learning_rate rate;
    uint64_t steps, updates, tokens;

    size_t inputs; /* tokens of a step on this rank */
    /* Of the device. */
    struct erg_static_memory buffers; /* all that there is, and where */
    void *memory;
    struct erg_step_scalars *scalars;
    int32_t *ids, *order, *targets; /* of all microbatches of a step */

    /* Of the host. */
    int32_t *host_ids, *host_order, *host_targets;
    struct erg_step_scalars host_scalars;
    struct erg_stage_tokens *microbatches;
};

#endif
