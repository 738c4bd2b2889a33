/*
 * Training: a run of a job file, step by step, on the rank that this process is.
 *
 *     struct erg_train *train;
 *     struct erg_train_stats stats = {.size = sizeof stats};
 *     const struct erg_train_options options = {.size = sizeof options, .folder = "run"};
 *     if (erg_train_open(&train, "job.yaml", &options, &err) ||
 *         erg_train_resume(train, NULL, &err))
 *         ...
 *     while (erg_train_stats(train, &stats, &err) == 0 && !stats.end)
 *         if (erg_train_step(train, &err) != 0)
 *             ...
 *     erg_train_close(train, &err);
 *
 * The job's layout says how many ranks there are. "ergon run", torchrun or Slurm start them; a
 * process without their environment variables is the only one. All ranks make the same calls in the
 * same order. One that fails on a rank fails on all of them, there in the same call or in the next
 * one: then only erg_train_close() makes sense. One rank's error has the message then; those of
 * others may be empty.
 *
 * A run is used by one thread at a time, but for erg_train_stop() and erg_train_save_soon().
 * Structs begin with their size, as ergon/watch.h says.
 */
#ifndef ERGON_TRAIN_H
#define ERGON_TRAIN_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_train;

enum erg_train_device {
    ERG_TRAIN_ANY = 0, /* a GPU where this machine has one, else the host's CPU */
    ERG_TRAIN_GPU = 1,
    ERG_TRAIN_HOST = 2
};

/* Of weights in use and activations; masters are always float32. */
enum erg_train_type { ERG_TRAIN_BFLOAT16 = 0, ERG_TRAIN_FLOAT32 = 1 };

/* All-zero behind the size: the defaults. */
struct erg_train_options {
    size_t size;
    const char *folder; /* of the run: log, page, checkpoints. NULL: nothing is kept */
    const char *init;   /* a model's folder, or "random". NULL: as the job says */
    int device;         /* enum erg_train_device */
    int type;           /* enum erg_train_type; GPUs have bfloat16 alone */
    int fresh;          /* 1: a log that is in the folder already is an error */
    /*
     * To train by: a plan file of the job, which says in which mode each instruction runs, where
     * communication starts on how many SMs, and at which clock. NULL: one operation after the other
     * at the GPUs' own clocks. The point: `method` (NULL: the selected one) and `point` from 1 on,
     * or the least energy within a deadline, or the fastest within an energy budget, both of one
     * pipeline's iteration; all 0: the selected point.
     */
    const char *plan, *method;
    size_t point;
    double deadline_s, energy_budget_j;
    int force_plan;     /* 1: a plan that was measured on other GPUs will do */
    int lock_clocks;    /* 1: set the plan's clocks; else GPUs keep their own */
    int require_clocks; /* 1: fail where clocks cannot be set */
    uint64_t steps;     /* to end at, counted from the run's beginning. 0: the job's updates */
    /* The run's time, from erg_train_open() on: it stops with a checkpoint while two more steps and
     * the checkpoint still fit. 0: as long as it takes. $SLURM_JOB_END_TIME bounds it as well. */
    double time_s;
    /* Called at rank 0 with each line of the log, without a line break. NULL: nobody reads them. */
    void (*line)(void *context, const char *text);
    void *context;
    /* Called from another thread with what is to be said where the run has failed and this process
     * does not come back from its device: only its end helps. NULL: nothing is called. */
    void (*stuck)(const char *sentence);
    /* 1: goes on from checkpoints of another batch, seed or data, too, and from weights that
     * another config.json is for, where that changes what is computed alone. */
    int allow_change;
};

/*
 * Reads the job, meets the other ranks, and makes weights and optimizer. ERG_INFEASIBLE where a
 * device has too little memory; the message says what takes most of it, and what would fit.
 */
int erg_train_open(struct erg_train **train, const char *job,
                   const struct erg_train_options *options, struct erg_error *err);

/*
 * The same for a run that looks for the best way to train. What the job leaves open of its layout
 * is chosen; ways to run its passes are tried on steps of the run for `trial_s` seconds, 0: 5 % of
 * it; it goes on with the best. The options have a folder, which keeps what is chosen, and no plan;
 * their deadline or energy budget is of a step, as it is measured.
 */
int erg_train_open_best(struct erg_train **train, const char *job,
                        const struct erg_train_options *options, double trial_s,
                        struct erg_error *err);

/* Finishes the log. NULL is fine. */
int erg_train_close(struct erg_train *train, struct erg_error *err);

/*
 * Before the first step: goes on from a checkpoint, that in `from`, or of a run's folder, or its
 * link `latest`, the newest whole one, on any number of ranks. NULL: from the newest of the run's
 * own folder, if there is one.
 */
int erg_train_resume(struct erg_train *train, const char *from, struct erg_error *err);

/*
 * One step, and what is due after it: validation, a line of the log, a checkpoint. A checkpoint
 * that cannot be written is a warning; older ones stay. It is written while the next steps run, but
 * for that of the run's end. Where a step cannot be made although nothing is lost, such as for data
 * that cannot be read, the steps before it are saved first.
 */
int erg_train_step(struct erg_train *train, struct erg_error *err);

/* Why no further step is made. */
enum erg_train_end {
    ERG_TRAIN_GOES_ON = 0,
    ERG_TRAIN_DONE = 1,    /* that was the last step */
    ERG_TRAIN_STOPPED = 2, /* by erg_train_stop() on some rank */
    ERG_TRAIN_TIME_UP = 3
};

/* Of the latest step, the same on all ranks but where it says so. Not known is NaN. */
struct erg_train_stats {
    size_t size;
    uint64_t step, steps;     /* of so many; 0: none was made */
    uint64_t updates, tokens; /* so far, those before a checkpoint included */
    double loss;              /* mean of -log p over its targets that count */
    double validation_loss;   /* where it was due after this step */
    double gradient_norm, learning_rate;
    double step_s;                               /* this rank's */
    double j_per_token, j_per_token_uncertainty; /* of the latest line; rank 0's, 95 % */
    uint64_t memory_bytes;                       /* of this rank's device */
    int clipped, skipped; /* 1: gradients were clipped; nothing was updated */
    int saved;            /* 1: it has a checkpoint in the run's folder, or one is being written */
    int rank, ranks;
    int end;             /* enum erg_train_end */
    int signal;          /* that the run was stopped with */
    const char *resumed; /* the checkpoint that the run went on from, NULL: none; until it closes */
};
int erg_train_stats(const struct erg_train *train, struct erg_train_stats *stats,
                    struct erg_error *err);

/* Asks for an end after the next step of the run, with a checkpoint. `signal`, a number above 0,
 * becomes that of the stats. From any thread or signal handler. */
void erg_train_stop(struct erg_train *train, int signal);

/* Asks for a checkpoint after the next step of the run, which goes on. Likewise. */
void erg_train_save_soon(struct erg_train *train);

/* Writes a checkpoint of the latest step into the run's folder, and waits until it is there. */
int erg_train_checkpoint(struct erg_train *train, struct erg_error *err);

/* Writes the model into a folder as Hugging Face keeps it, in the type of the run; and whether that
 * could be done, before there is a run: of several ranks one has the message. */
int erg_train_export(struct erg_train *train, const char *folder, struct erg_error *err);
int erg_train_check_export(const char *folder, struct erg_error *err);

/* The run in a few lines for people: what trains where, by which layout or plan; and what came of
 * its steps. Each text lives until the next one is asked for. */
const char *erg_train_about(struct erg_train *train);
const char *erg_train_result(struct erg_train *train);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
