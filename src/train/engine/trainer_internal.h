/* Trainer: declarations shared by its files and tests. */
#ifndef ERG_TRAIN_ENGINE_TRAINER_INTERNAL_H
#define ERG_TRAIN_ENGINE_TRAINER_INTERNAL_H

#include "decoder/decoder_stage.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/batch.h"
#include "train/engine/optimizer.h"
#include "train/engine/passes.h"
#include "train/engine/rate.h"
#include "train/engine/reader.h"
#include "train/engine/straggler.h"
#include "train/engine/trainer.h"
#include "train/engine/watchdog.h"

/* Values that change from step to step, in device memory, where kernels read them. */
struct erg_step_scalars {
    float scale; /* 1 / targets that count */
    float loss;
};
_Static_assert(sizeof(struct erg_step_scalars) <= ERG_STATIC_SCALARS_BYTES, "they have room");

/* This rank's data of one step, in host memory. */
struct erg_train_batch {
    int32_t *ids, *order, *targets;
    uint64_t counted; /* targets, from erg_batches_next() */
};

struct erg_trainer {
    struct erg_trainer_options options;
    const struct erg_job *job;
    const struct erg_training *training;
    struct erg_ranks ranks;
    struct erg_pass_list list;
    struct erg_pass_plan plan; /* if the options have a plan */
    struct erg_clock_controller *clocks;
    size_t point;                /* current point of the plan */
    bool holds;                  /* keeps the point even if a pipeline is late */
    struct erg_rank_pace *paces; /* [world], of the last step; NULL: pipelines cannot be late */
    struct erg_layer_range *chunks;
    struct erg_weights_request request; /* of the chunks */
    struct erg_stage *stage;
    const struct erg_weights *weights; /* the stage's */
    struct erg_weight_spans spans;
    struct erg_offload *offload; /* NULL: no offloading */
    struct erg_passes *passes;
    struct erg_optimizer *optimizer;
    struct erg_batches batches;
    struct erg_batches validation; /* empty: none */
    uint64_t validation_batches;
    char *data; /* erg_batches_describe() of the steps' batches */
    struct erg_stream *stream;
    struct erg_timeline timeline;
    struct erg_learning_rate rate;
    uint64_t steps, updates, samples, tokens;
    bool connected; /* ranks have connected their memory, or tried to */
    bool in_step;   /* or a step failed halfway */
    struct erg_watchdog *watchdog;
    int skips;                     /* consecutive steps with non-finite gradients */
    struct erg_train_pace wanted;  /* at rank 0 */
    double power_w;                /* of this rank, for the next step */
    int64_t began_ns, reported_ns; /* start of this step; its report */
    double after_s;                /* time of the previous step after its report */

    size_t inputs; /* tokens of a step on this rank */
    /* Device memory. */
    struct erg_static_memory buffers; /* all buffers, and their offsets */
    void *memory;
    struct erg_step_scalars *scalars;
    int32_t *ids, *order, *targets; /* of all microbatches of a step */

    /* Host memory. Two batches alternate: the next one is read while the device computes. */
    struct erg_train_batch read[2];
    size_t turn;               /* index of the next step's batch */
    struct erg_reader *reader; /* reads the next step's batch; NULL: no step has begun */
    double waited_s;           /* wait for tokens in this step */
    bool has_read;             /* the next step's batch was read, which may have failed: */
    bool unreadable;           /* on some rank */
    int read_result;           /* on this rank */
    struct erg_error read_error;
    struct erg_step_scalars host_scalars;
    struct erg_stage_tokens *microbatches;

    struct erg_checkpoint_writer *writer; /* NULL: no checkpoint is being written */
    float *written;                       /* the state to write */
    char *saved_run;     /* the folder of the latest save; NULL: none, or it failed */
    uint64_t saved;      /* its step */
    uint64_t checkpoint; /* step of the newest complete one */
};

/* World call: fails with the name of the first tensor with non-finite weights or gradients. */
int erg_trainer_fail_not_finite(struct erg_trainer *trainer, struct erg_error *err);

/* World call: completes a checkpoint that is being written; if that fails, rank 0 warns. */
int erg_trainer_commit(struct erg_trainer *trainer, struct erg_error *err);

/* Queues a copy from or to device memory; copies now; waits for queued work. */
int erg_trainer_copy(struct erg_trainer *trainer, void *to, const void *from, size_t bytes,
                     struct erg_error *err);
int erg_trainer_copy_now(struct erg_trainer *trainer, void *to, const void *from, size_t bytes,
                         struct erg_error *err);
int erg_trainer_wait(struct erg_trainer *trainer, struct erg_error *err);

/*
 * Reads the next batch of data other than the steps', and queues its copies to the device; *targets
 * as erg_batches_next() counts them.
 */
int erg_trainer_load(struct erg_trainer *trainer, struct erg_batches *batches, uint64_t *targets,
                     struct erg_error *err);

/* Waits for passes and messages; the loss is then in host_scalars. */
int erg_trainer_read_scalars(struct erg_trainer *trainer, struct erg_error *err);

/*
 * A rank's part of the results of a step, or of a validated batch; the sum over ranks is the
 * result.
 */
struct erg_rank_report {
    double loss, squares;
    uint64_t targets; /* 0: this rank reads none */
    int signal;
    bool unreadable; /* the next step's data */
    double waited_s; /* wait for the tokens of this step and the next one */
    bool writes;     /* still writing its share of a checkpoint */
    struct erg_rank_pace pace;
    double busy_s; /* this step until its report, plus the previous one after its report */
    struct erg_train_pace plan; /* of the scheduler; only at rank 0 */
    double power_w;             /* NaN: unknown */
};

/* World call: replaces a rank's report by that of all. */
int erg_trainer_sum_reports(struct erg_trainer *trainer, struct erg_rank_report *report,
                            struct erg_error *err);

/*
 * This rank's term of the loss, after its read: every tensor rank of the last stage has the whole
 * loss of its tokens, and only one of them counts.
 */
static inline double erg_trainer_own_loss(const struct erg_trainer *trainer)
{
    bool counts = trainer->request.head && trainer->ranks.tensor == 0;
    return counts ? (double)trainer->host_scalars.loss : 0;
}

/* The values of all ranks. */
static inline uint64_t erg_trainer_step_tokens(const struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    return (uint64_t)(erg_layout_batch(layout) * layout->sequence);
}

int erg_trainer_open_validation(struct erg_trainer *trainer, struct erg_error *err);

#endif
