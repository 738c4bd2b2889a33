/*
 * Training: a run of a job file, step by step, on the rank of this process.
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
 * The job's layout sets the number of ranks. "ergon run", torchrun or Slurm start them; a process
 * without their environment variables is the only rank. All ranks make the same calls in the same
 * order. A call that fails on one rank fails on all, in the same call or in the next one. After
 * that, only erg_train_close() is useful. One rank's error contains the message; those of others
 * may be empty.
 *
 * One thread at a time may use a run, except for erg_train_stop() and erg_train_save_soon().
 * Structs begin with their size: see ergon/watch.h.
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
    ERG_TRAIN_ANY = 0, /* a GPU if this machine has one, otherwise the host's CPU */
    ERG_TRAIN_GPU = 1,
    ERG_TRAIN_HOST = 2
};

/* The type of weights in use and activations; masters are always float32. */
enum erg_train_type { ERG_TRAIN_BFLOAT16 = 0, ERG_TRAIN_FLOAT32 = 1 };

/* With only the size set: the defaults. */
struct erg_train_options {
    size_t size;
    const char *folder; /* of the run: log, page, checkpoints. NULL: nothing is kept */
    const char *init;   /* a model's folder, or "random". NULL: the job's key train.init */
    int device;         /* enum erg_train_device */
    int type;           /* enum erg_train_type; GPUs: bfloat16 only */
    int fresh;          /* 1: an existing log in the folder is an error */
    /*
     * A plan file of the job, which sets the mode and clock of each instruction, and where and on
     * how many SMs communication starts. NULL: one operation after the other at the GPUs' own
     * clocks. The point is `point`, counted from 1, of `method` (NULL: the selected one); or that
     * of least energy within deadline_s; or the fastest within energy_budget_j, both of one
     * pipeline's iteration; all 0: the selected point.
     */
    const char *plan, *method;
    size_t point;
    double deadline_s, energy_budget_j;
    int force_plan;     /* 1: accepts a plan that was measured on other GPUs */
    int lock_clocks;    /* 1: sets the plan's clocks; 0: GPUs keep their own */
    int require_clocks; /* 1: fails if clocks cannot be set */
    uint64_t steps;     /* last step, counted from the run's beginning. 0: the job's updates */
    /* The run's time from erg_train_open() on. It stops with a checkpoint while two more steps and
     * the checkpoint still fit. 0: no limit. $SLURM_JOB_END_TIME limits it, too. */
    double time_s;
    /* Called on rank 0 with each line of the log, without a line break. NULL: not called. */
    void (*line)(void *context, const char *text);
    void *context;
    /* Called from another thread with a message if the run has failed and this process does not
     * return from its device: the process must end. NULL: not called. */
    void (*stuck)(const char *sentence);
    /* 1: also resumes checkpoints of another batch, seed or data, and takes weights whose
     * config.json differs only in what is computed from them. */
    int allow_change;
};

/*
 * Reads the job, connects to the other ranks, and creates weights and optimizer. ERG_INFEASIBLE if
 * a device has too little memory; the message names the largest items and what would fit.
 */
int erg_train_open(struct erg_train **train, const char *job,
                   const struct erg_train_options *options, struct erg_error *err);

/*
 * Opens a run that looks for the best way to train. It chooses the open parts of the job's layout,
 * tries ways to run its passes on steps of the run for `trial_s` seconds (0: 5 % of the run), and
 * continues with the best. The options need a folder, which keeps the choice, and no plan; their
 * deadline or energy budget applies to a measured step.
 */
int erg_train_open_best(struct erg_train **train, const char *job,
                        const struct erg_train_options *options, double trial_s,
                        struct erg_error *err);

/* Finishes the log. NULL is fine. */
int erg_train_close(struct erg_train *train, struct erg_error *err);

/*
 * Call before the first step, on any number of ranks. Resumes a checkpoint: the folder `from`, or
 * the newest whole one if `from` is a run's folder or its link `latest`. NULL: the newest of the
 * run's own folder, if there is one.
 */
int erg_train_resume(struct erg_train *train, const char *from, struct erg_error *err);

/*
 * Runs one step, and what is due after it: validation, a line of the log, a checkpoint. A
 * checkpoint is written while the next steps run, except for the last one of a run. One that cannot
 * be written is a warning; older ones stay. If a step fails and the state is intact, for example
 * because data cannot be read, the steps before it are saved first.
 */
int erg_train_step(struct erg_train *train, struct erg_error *err);

/* Why the run has ended. */
enum erg_train_end {
    ERG_TRAIN_GOES_ON = 0,
    ERG_TRAIN_DONE = 1,    /* the last step is done */
    ERG_TRAIN_STOPPED = 2, /* by erg_train_stop() on some rank */
    ERG_TRAIN_TIME_UP = 3
};

/* The latest step, the same on all ranks except where a comment names one. Unknown values are NaN.
 */
struct erg_train_stats {
    size_t size;
    uint64_t step, steps;     /* the latest step (0: none yet), and the last */
    uint64_t updates, tokens; /* so far, from the run's beginning */
    double loss;              /* mean of -log p over the targets that count */
    double validation_loss;   /* if it was due after this step */
    double gradient_norm, learning_rate;
    double step_s; /* this rank's */
    double j_per_token,
        j_per_token_uncertainty; /* of the latest line of the log; of rank 0, 95 % */
    uint64_t memory_bytes;       /* of this rank's device */
    int clipped, skipped;        /* 1: gradients were clipped; the update was skipped */
    int saved;                   /* 1: the step has a checkpoint, or one is being written */
    int rank, ranks;
    int end;    /* enum erg_train_end */
    int signal; /* the signal that stopped the run */
    /* The checkpoint that the run resumed, NULL: none; valid until the close. */
    const char *resumed;
};
int erg_train_stats(const struct erg_train *train, struct erg_train_stats *stats,
                    struct erg_error *err);

/* Asks the run to end after its next step, with a checkpoint. `signal`, above 0, appears in the
 * stats. May be called from any thread or signal handler. */
void erg_train_stop(struct erg_train *train, int signal);

/* Asks for a checkpoint after the next step; the run continues. Callers as for erg_train_stop(). */
void erg_train_save_soon(struct erg_train *train);

/* Writes a checkpoint of the latest step into the run's folder and waits until it is whole. */
int erg_train_checkpoint(struct erg_train *train, struct erg_error *err);

/* Writes the model into a folder in Hugging Face's format, in the type of the run; and checks,
 * before a run, that this is possible. Only one rank of several has the message. */
int erg_train_export(struct erg_train *train, const char *folder, struct erg_error *err);
int erg_train_check_export(const char *folder, struct erg_error *err);

/* The run in a few lines for people: the model, the device, the layout or plan; and the result of
 * its steps. Each text lives until the next call for it. */
const char *erg_train_about(struct erg_train *train);
const char *erg_train_result(struct erg_train *train);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
