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
    struct erg_batches validation; /* empty: there is none */
    uint64_t validation_batches;
    struct erg_stream *stream;
    struct erg_learning_rate rate;
    uint64_t steps, updates, tokens;
    size_t bytes;

    size_t inputs; /* tokens of a step on this rank */
    /* Of the device. */
    void *memory;
    struct erg_step_scalars *scalars;
    int32_t *ids, *order, *targets; /* of all microbatches of a step */

    /* Of the host. */
    int32_t *host_ids, *host_order, *host_targets;
    struct erg_step_scalars host_scalars;
    struct erg_stage_tokens *microbatches;
};

/* Fills chunks and request, of ranks' places and the list, and says what the rank's stage is. */
struct erg_stage_options erg_trainer_share(struct erg_trainer *trainer);

/* Queues copies of the next batch to the device; *targets as erg_batches_next() counts them. */
int erg_trainer_load(struct erg_trainer *trainer, struct erg_batches *batches, uint64_t *targets,
                     struct erg_error *err);

/* Waits for passes and messages; the loss is then in host_scalars. */
int erg_trainer_read_scalars(struct erg_trainer *trainer, struct erg_error *err);

/* Of all ranks. */
static inline uint64_t erg_trainer_step_tokens(const struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    return (uint64_t)(layout->microbatch * layout->sequence * layout->microbatches * layout->data);
}

/* Of the device: ids, their order and targets of a step on a rank, and the scalars. */
static inline size_t erg_trainer_input_bytes(const struct erg_layout *layout)
{
    size_t tokens = (size_t)(layout->microbatch * layout->sequence / layout->context);
    return 3 * tokens * (size_t)layout->microbatches * sizeof(int32_t) +
           sizeof(struct erg_step_scalars);
}

int erg_trainer_open_validation(struct erg_trainer *trainer, struct erg_error *err);

#endif
