/*
 * Trainer: the weights, the optimizer and the data of a run on this process's rank, and one step of
 * it, which all ranks of the layout take together.
 *
 * A step: the next batch; forward and backward of each microbatch, in the order of the pipeline
 * (engine/passes.h), whose gradients are added up; the norm of all gradients, each element once, in
 * double; an update of the weights (engine/optimizer.h), with
 *
 *     factor = min(1, clip / (norm + 1e-6))
 *
 * The loss is the sum of -log p over the targets of the step that count, over their number;
 * gradients are of that. A step whose gradients are not finite updates nothing.
 *
 * Calls that say "world call" are made by all ranks, in the same order. A failure that they agree
 * on fails the call on all of them. One that a rank meets by itself, such as that of its device,
 * fails its call alone: the others see it, in this call or the next one, when that rank reports it
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
    struct erg_backend *backend; /* outlives the trainer, as do the job and the rendezvous */
    const struct erg_job *job;   /* with a key `train` */
    const char *init;            /* a model's folder; NULL: the job's; "random" */
    bool changed;                /* goes on from checkpoints of another batch, seed or data, too */
    int rank, world;             /* of this process */
    int local_rank;              /* among the ranks of its machine */
    struct erg_rendezvous *rendezvous; /* of the ranks; NULL: one rank */
    const struct erg_plan *plan; /* of the job, to train by at its selected point; NULL: none */
    const char *plan_text;       /* of its file, which checkpoints keep */
    bool chooses;                /* another point may be selected later: erg_trainer_choose() */
    /* To set the plan's clocks; `finished` is the trainer's. NULL: GPUs keep their own. */
    const struct erg_clock_controller_options *clocks;
    /* See checkpoint/checkpoint.h; may be NULL. */
    int (*may_commit)(void *context, struct erg_error *err);
    void *commit_context;
    /* See engine/watchdog.h; may be 0 and NULL. */
    double hang_s;
    void (*stuck)(const char *sentence);
};

/* Whether the job can be trained, and its files are there; reads no token and no weight. */
int erg_trainer_check(const struct erg_trainer_options *options, struct erg_error *err);

/* World call. ERG_INFEASIBLE for jobs that cannot be trained: models that erg_stage_check()
 * refuses, and a plan that overlaps together with offloading, or with full recomputation under
 * sequence parallelism. */
int erg_trainer_open(struct erg_trainer **trainer, const struct erg_trainer_options *options,
                     struct erg_error *err);
void erg_trainer_close(struct erg_trainer *trainer);

/* A plan of the job's scheduler, by its number; 0: there is none. */
struct erg_train_pace {
    long number;
    double slowdown; /* against the fastest operating point, at least 1 */
    double limit_w;  /* of a GPU, on the mean; INFINITY: none */
};

struct erg_train_step {
    uint64_t step;    /* from 1 */
    uint64_t updates; /* made so far */
    uint64_t targets; /* of the step that count */
    uint64_t tokens;  /* of all steps so far */
    double loss;      /* NaN where no target counts */
    double gradient_norm, learning_rate;
    double own_wait_s, longest_wait_s; /* for tokens, while nothing computed: of this rank, and the
                                        * longest of all */
    bool clipped;
    bool skipped; /* nothing was updated: no target counts, or a gradient is not finite */
    int signal;   /* the number of one that a rank had been sent when the step began, or enum
                   * erg_trainer_input of one; 0: none */
    struct erg_train_pace pace; /* that rank 0 wanted when the step began */
    double power_w; /* mean of what erg_trainer_note_power() said on each rank before the
                     * step; NaN: a rank does not know */
    double busy_s;  /* least time of a rank in a step. All ranks know one number: a rank that began
                     * before the others has waited for them, and its own time is too long. */
};

/* Requests of a rank, which act like a signal, so that all ranks follow them after the same step.
 * Signals precede requests, and the first request precedes the second. */
enum erg_trainer_input {
    ERG_TRAINER_TIME_UP = -1, /* the run's time ends */
    ERG_TRAINER_SAVE = -2,    /* a checkpoint */
};

/*
 * World call; `signal`: that this rank received, or its request; 0: none. Fails before it has
 * changed anything where tokens of the step cannot be read, and after ERG_TRAINER_MOST_SKIPS steps
 * in a row whose gradients were not finite: erg_trainer_is_whole() then.
 */
enum { ERG_TRAINER_MOST_SKIPS = 10 };
int erg_trainer_step(struct erg_trainer *trainer, int signal, struct erg_train_step *step,
                     struct erg_error *err);

/* At rank 0: what all ranks learn at the end of the next step and of later ones. */
void erg_trainer_want_pace(struct erg_trainer *trainer, struct erg_train_pace pace);
/* This rank's power, for the next step alone; NaN: not known, as where this is not called. */
void erg_trainer_note_power(struct erg_trainer *trainer, double power_w);

/*
 * World call: from the next step on instructions run as at the point that the owner of the plan has
 * selected since. `follows`: pipelines may run other points of its method while one is late
 * (engine/straggler.h), as they may before the first call. `plan_text` as in the options.
 */
void erg_trainer_choose(struct erg_trainer *trainer, bool follows, const char *plan_text);

/*
 * World calls: the next step notes when its pieces run (engine/step_timeline.h), to `kernels`, too,
 * if that is not NULL; and what they
 * were, after that step: *spans [*count] of this rank, to be freed, since *origin_ns by
 * erg_now_ns(). Both wait.
 */
struct erg_cupti;
int erg_trainer_trace_begin(struct erg_trainer *trainer, struct erg_cupti *kernels,
                            struct erg_error *err);
int erg_trainer_trace_end(struct erg_trainer *trainer, struct erg_timeline_span **spans,
                          size_t *count, int64_t *origin_ns, struct erg_error *err);

/*
 * World call: *loss, the mean over the targets that count in the first `batches` batches of the
 * job's key `train.validation`, in the order of its files. The job has that key. Passes go forward
 * alone, in microbatches as in a step; nothing of the training changes.
 */
int erg_trainer_validate(struct erg_trainer *trainer, double *loss, struct erg_error *err);

/* Whether it stands behind its last step, and can be saved; not where a step failed on its way. */
bool erg_trainer_is_whole(const struct erg_trainer *trainer);

/*
 * World calls: write a checkpoint into the run's folder (checkpoint/checkpoint.h), which all ranks
 * see, and keep the newest `keep`. The second one returns when the state has been copied; it is
 * written while training goes on, and is there after one of the next steps, or at the latest when
 * the next one is to be saved. If that fails, rank 0 warns.
 */
int erg_trainer_save(struct erg_trainer *trainer, const char *run, int keep, struct erg_error *err);
int erg_trainer_save_begin(struct erg_trainer *trainer, const char *run, int keep,
                           struct erg_error *err);

/*
 * World call: goes on from a checkpoint: that in `folder`, or of a run's folder the newest. *found
 * as in erg_checkpoint_load(); where there is none the trainer is as it was.
 */
int erg_trainer_resume(struct erg_trainer *trainer, const char *folder, char **found,
                       struct erg_error *err);

/* The step of the newest checkpoint of this run that is there, or that it went on from; 0: none. */
uint64_t erg_trainer_checkpoint(const struct erg_trainer *trainer);

/* Steps, updates and tokens so far, those before a checkpoint included. */
uint64_t erg_trainer_steps(const struct erg_trainer *trainer);
uint64_t erg_trainer_updates(const struct erg_trainer *trainer);
uint64_t erg_trainer_tokens(const struct erg_trainer *trainer);

const struct erg_ranks *erg_trainer_ranks(const struct erg_trainer *trainer);

/* Whether clocks are set, or were to be, and what came of it. */
bool erg_trainer_clocks(const struct erg_trainer *trainer, struct erg_clock_numbers *numbers);

/* Memory of the device that all of it takes on this rank, bytes. */
size_t erg_trainer_bytes(const struct erg_trainer *trainer);

/* World call: rank 0 writes safetensors and config.json into a folder, which all ranks see, as
 * Hugging Face's loaders read them (files/model_file.h). */
int erg_trainer_export(struct erg_trainer *trainer, const char *folder, bool bf16,
                       struct erg_error *err);

#endif
