/* Trainer: what its files and tests share. */
#ifndef ERG_TRAIN_ENGINE_TRAINER_INTERNAL_H
#define ERG_TRAIN_ENGINE_TRAINER_INTERNAL_H

#include "decoder/decoder_stage.h"
#include "train/data/batch.h"
#include "train/engine/rate.h"
#include "train/engine/trainer.h"

/* What changes from step to step, in memory of the device; kernels read it there. */
struct erg_step_scalars {
    struct erg_ops_update update;
    float scale; /* one over the targets that count */
    float loss;
    double squares;
};

struct erg_trainer {
    struct erg_trainer_options options;
    const struct erg_job *job;
    const struct erg_training *training;
    struct erg_weights_request request;
    struct erg_stage *stage;
    const struct erg_weights *weights; /* the stage's */
    struct erg_weight_spans spans;
    struct erg_batches batches;
    struct erg_stream *stream;
    struct erg_learning_rate rate;
    uint64_t steps, updates, tokens;
    size_t bytes;

    /* Of the device. */
    void *state;
    float *master, *m, *v;
    void *inputs;
    struct erg_step_scalars *scalars;
    void *scratch;
    int32_t *ids, *order, *targets; /* of all microbatches of a step */

    /* Of the host. */
    int32_t *host_ids, *host_order, *host_targets;
    struct erg_step_scalars host_scalars;
};

#endif
