/*
 * Trainer: the weights, the optimizer and the data of a run on this process's rank, and one step of
 * it, which all ranks of the layout take together.
 *
 * A step: the next batch; forward and backward of each microbatch, in the order of the pipeline
 * (engine/passes.h), accumulating gradients; the norm of all gradients, each element once, in
 * double; an update of the weights (engine/optimizer.h), with
 *
 *     factor = min(1, clip / (norm + 1e-6))
 *
 * The loss is the mean of -log p over the targets of the step that count; gradients are of this
 * loss. A step with non-finite gradients updates nothing.
 *
 * All ranks make each "world call", in the same order. A failure that they agree on fails the call
 * on all of them. A failure of one rank, such as that of its device, fails only its own call: the
 * others see it, in this call or the next one, when that rank reports it
 * (erg_rendezvous_explain()), ends, or leaves.
 */
#ifndef ERG_TRAIN_ENGINE_TRAINER_H
#define ERG_TRAIN_ENGINE_TRAINER_H

#include "device/backend.h"
#include "job/job.h"
#include "plan/plan.h"
#include "train/engine/clock_controller.h"
#include "train/engine/ranks.h"
#include "train/engine/step_timeline.h"

struct erg_trainer;

struct erg_trainer_options {
    struct erg_backend *backend; /* outlives the trainer, like the job and the rendezvous */
    const struct erg_job *job;   /* with a key `train` */
    const char *init;            /* a model's folder; NULL: the job's; "random" */
    bool changed;    /* may continue from checkpoints with another batch, seed or data */
    int rank, world; /* of this process */
    int local_rank;  /* among the ranks of its machine */
    struct erg_rendezvous *rendezvous; /* of the ranks; NULL: one rank */
    const struct erg_plan *plan; /* plan of the job to follow at its selected point; NULL: none */
    const char *plan_text;       /* text of its file, which checkpoints keep */
    bool chooses;                /* another point may be selected later, by erg_trainer_choose() */
    /* For the plan's clocks; the trainer sets `finished`. NULL: GPUs keep their own. */
    const struct erg_clock_controller_options *clocks;
    /* See checkpoint/checkpoint.h; may be NULL. */
    int (*may_commit)(void *context, struct erg_error *err);
    void *commit_context;
    /* See engine/watchdog.h; may be 0 and NULL. */
    double hang_s;
    void (*stuck)(const char *sentence);
};

/* Checks that the job can be trained and its files exist; reads no token and no weight. */
int erg_trainer_check(const struct erg_trainer_options *options, struct erg_error *err);

/*
 * World call. ERG_INFEASIBLE for jobs that cannot be trained: models that erg_stage_check()
 * refuses, and overlap in a plan together with offloading, or with full recomputation under
 * sequence parallelism.
 */
int erg_trainer_open(struct erg_trainer **trainer, const struct erg_trainer_options *options,
                     struct erg_error *err);
void erg_trainer_close(struct erg_trainer *trainer);

/* A plan of the job's scheduler, by its number; 0: none. */
struct erg_train_pace {
    long number;
    double slowdown; /* compared with the fastest operating point, at least 1 */
    double limit_w;  /* mean of a GPU; INFINITY: none */
};

struct erg_train_step {
    uint64_t step;    /* from 1 */
    uint64_t updates; /* made so far */
    uint64_t targets; /* targets of the step that count */
    uint64_t tokens;  /* of all steps so far */
    double loss;      /* NaN: no target counts */
    double gradient_norm, learning_rate;
    double own_wait_s, longest_wait_s; /* waits for tokens: of this rank, the longest */
    bool clipped;
    bool skipped; /* no update: no target counts, or a gradient is not finite */
    int signal;   /* received by a rank before the step, or erg_trainer_request; 0: none */
    struct erg_train_pace pace; /* requested by rank 0 when the step began */
    double power_w; /* mean over ranks of erg_trainer_note_power(); NaN: unknown on one */
    double busy_s;  /* the least time of a rank in a step, equal on all ranks: a rank that began
                       before the others has waited for them, so its own time is too long. */
};

/*
 * Requests of a rank, which act like a signal, so that all ranks follow them after the same step.
 * Signals have priority over requests, and the first request over the second.
 */
enum erg_trainer_request {
    ERG_TRAINER_TIME_UP = -1, /* the run's time ends */
    ERG_TRAINER_SAVE = -2,    /* a checkpoint */
};

/*
 * World call; `signal`: a signal that this rank received, or its request; 0: none. Fails without
 * any change, so that erg_trainer_is_whole(), if tokens of the step cannot be read, and after
 * ERG_TRAINER_MOST_SKIPS consecutive steps with non-finite gradients.
 */
enum { ERG_TRAINER_MOST_SKIPS = 10 };
int erg_trainer_step(struct erg_trainer *trainer, int signal, struct erg_train_step *step,
                     struct erg_error *err);

/* At rank 0: the pace that all ranks learn at the end of the next step and of later ones. */
void erg_trainer_want_pace(struct erg_trainer *trainer, struct erg_train_pace pace);
/* This rank's power, for the next step only; NaN: unknown, the default. */
void erg_trainer_note_power(struct erg_trainer *trainer, double power_w);

/*
 * World call: from the next step on instructions run by the point that the owner of the plan has
 * selected. `follows`: pipelines may run other points of its method while one is late
 * (engine/straggler.h), as before the first call. `plan_text` as in the options.
 */
void erg_trainer_choose(struct erg_trainer *trainer, bool follows, const char *plan_text);

/*
 * World calls. The first makes the next step record the times of its pieces
 * (engine/step_timeline.h), and their numbers in `kernels` if that is not NULL. The second returns
 * them after that step: *spans [*count] of this rank, which the caller frees, relative to
 * *origin_ns of erg_now_ns(). Both wait.
 */
struct erg_cupti;
int erg_trainer_trace_begin(struct erg_trainer *trainer, struct erg_cupti *kernels,
                            struct erg_error *err);
int erg_trainer_trace_end(struct erg_trainer *trainer, struct erg_timeline_span **spans,
                          size_t *count, int64_t *origin_ns, struct erg_error *err);

/*
 * World call: *loss, the mean over the targets that count in the first `batches` batches of the
 * job's key `train.validation`, in the order of its files. The job must have that key. Runs only
 * forward passes, in microbatches as in a step; does not change the training.
 */
int erg_trainer_validate(struct erg_trainer *trainer, double *loss, struct erg_error *err);

/*
 * Whether the state is that after its last step, so that it can be saved; false if a step failed
 * halfway.
 */
bool erg_trainer_is_whole(const struct erg_trainer *trainer);

/*
 * World calls: write a checkpoint into the run's folder (checkpoint/checkpoint.h), which all ranks
 * see, and keep the newest `keep`. The second one returns when the state has been copied; the state
 * is written during training, and complete after one of the next steps, or at the latest before the
 * next save. If that fails, rank 0 warns.
 */
int erg_trainer_save(struct erg_trainer *trainer, const char *run, int keep, struct erg_error *err);
int erg_trainer_save_begin(struct erg_trainer *trainer, const char *run, int keep,
                           struct erg_error *err);

/*
 * World call: continues from the checkpoint in `folder`, or the newest one of a run's folder.
 * *found as in erg_checkpoint_load(); without a checkpoint the trainer is unchanged.
 */
int erg_trainer_resume(struct erg_trainer *trainer, const char *folder, char **found,
                       struct erg_error *err);

/*
 * The step of the newest complete checkpoint of this run, or of the one that it continued from; 0:
 * none.
 */
uint64_t erg_trainer_checkpoint(const struct erg_trainer *trainer);

/* Steps, updates and tokens so far, including those before a checkpoint. */
uint64_t erg_trainer_steps(const struct erg_trainer *trainer);
uint64_t erg_trainer_updates(const struct erg_trainer *trainer);
uint64_t erg_trainer_tokens(const struct erg_trainer *trainer);

const struct erg_ranks *erg_trainer_ranks(const struct erg_trainer *trainer);

/* Whether clocks were requested, and the results. */
bool erg_trainer_clocks(const struct erg_trainer *trainer, struct erg_clock_numbers *numbers);

/* Bytes of device memory that the trainer uses on this rank. */
size_t erg_trainer_bytes(const struct erg_trainer *trainer);

/*
 * World call: rank 0 writes safetensors and config.json into a folder, which all ranks see, in the
 * format of Hugging Face's loaders (files/model_file.h).
 */
int erg_trainer_export(struct erg_trainer *trainer, const char *folder, bool bf16,
                       struct erg_error *err);

#endif
