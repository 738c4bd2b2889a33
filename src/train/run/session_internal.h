/* A run of training from inside: declarations shared by its files. */
#ifndef ERG_TRAIN_RUN_SESSION_INTERNAL_H
#define ERG_TRAIN_RUN_SESSION_INTERNAL_H

#include "base/clock.h"
#include "launch/launch.h"
#include "trace/cupti.h"
#include "trace/kernel_category.h"
#include "train/engine/power_hold.h"
#include "train/log/data_watch.h"
#include "train/log/job_report.h"
#include "train/log/loss_watch.h"
#include "train/log/plan_watch.h"
#include "train/log/run_log.h"
#include "train/run/run_plan.h"
#include "train/run/run_ways.h"
#include "train/run/session.h"
#include "train/run/time_limit.h"

#include <signal.h>

/* For a run that searches for the best way to train. */
struct erg_train_tuning {
    bool on; /* it does */
    struct erg_train_auto asked;
    bool kept; /* the best is that which an earlier start of the run has found */
    char *layout;
    struct erg_run_way ways[ERG_TRIALS_WAYS];
    size_t count, best; /* of them, one: nothing is tried; the best at the start */
    struct erg_trials trials;
    /* The block that runs. */
    uint64_t done; /* of its steps */
    double sum_s;  /* of those that count */
    int64_t begin_ns;
    bool disturbed;
    struct erg_rank_mark mark;
    json_t *news; /* at rank 0: for the next line of the log; NULL: none */
    struct {
        char **items;
        size_t count, capacity;
    } texts; /* of the plan, before others were selected */
};

/* For a run that records the kernels of traced steps. */
struct erg_train_kernels {
    struct erg_cupti *cupti; /* NULL: it is not open, or refuses */
    bool refused, on;        /* on: in this step */
    struct erg_kernel_names *names;
    char uuid[96]; /* of the GPU; "": not known */
    int64_t begin_ns;
    double others_s; /* sum over the steps that nothing disturbed */
    uint64_t others;
};

struct erg_train {
    struct erg_train_options options; /* with these strings */
    char *folder, *init, *plan_file, *method;
    struct erg_job *job;
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous; /* NULL: one rank */
    struct erg_backend *backend;
    struct erg_plan *plan; /* that the run is trained by; NULL: none */
    char *plan_text;       /* of its file */
    struct erg_run_expected expected;
    struct erg_train_tuning tuning;
    struct erg_gpus *gpus; /* whose clocks are set; NULL: none are */
    struct erg_trainer *trainer;
    size_t most[ERG_RANK_ITEMS]; /* the memory of the rank with most */
    struct erg_time_limit limit;
    uint64_t end; /* the last step */
    int64_t saved_ns;
    char *resumed;
    struct erg_train_stats stats;
    volatile sig_atomic_t stop; /* the number of a signal */
    volatile sig_atomic_t save_soon;
    struct erg_job_report report;        /* at rank 0 */
    struct erg_loss_watch watch;         /* likewise */
    struct erg_plan_watch plans;         /* likewise */
    struct erg_train_pace pace;          /* that all ranks follow since the end of a step */
    struct erg_plan_selection own_point; /* of the plan, that the options select */
    struct erg_power_hold hold;          /* by the pace */
    struct erg_rank_mark held;           /* where its window began; time_ns 0: it has none */
    bool unheld;                         /* pauses that do not keep the power were told of */
    double pause_s;                      /* that followed the latest step */
    struct erg_data_watch data;
    uint64_t made;      /* steps of this process */
    uint64_t writing;   /* the step whose checkpoint is being written, 0: none */
    int64_t writing_ns; /* since when */

    /* From the first step on. */
    bool begun;
    struct erg_rank_meter meter;
    struct erg_run_log log; /* at rank 0, which writes it for all */
    uint64_t traced;        /* the step of the latest trace, and this rank's waits in it */
    double bubble_s, gradients_s;
    struct erg_train_kernels kernels;
    double waited_s; /* for tokens, in the steps since the latest line */
    uint64_t waits;  /* these steps */
    struct erg_text said;
};

static inline bool erg_train_tells(const struct erg_train *train)
{
    return train->env.rank == 0;
}

static inline double erg_train_seconds_since(int64_t start_ns)
{
    return 1e-9 * (double)(erg_now_ns() - start_ns);
}

/* World call: a checkpoint of the latest step. `waits`: until it is there; else it is written while
 * training goes on. One that cannot be written is a warning: older ones stay. Fails where a newer
 * incarnation of the job has begun. */
int erg_train_save(struct erg_train *train, bool waits, struct erg_error *err);
/* The files that were written meanwhile are complete, so the time of the writes is known. */
void erg_train_note_written(struct erg_train *train);
/* Whether a step's timeline is kept; all ranks answer alike. */
bool erg_train_traces(const struct erg_train *train, uint64_t step);
/* World call, before such a step. */
int erg_train_trace_begin(struct erg_train *train, struct erg_error *err);
/* World call, after such a step: rank 0 writes the timeline of all ranks into the run's folder. */
int erg_train_trace(struct erg_train *train, uint64_t step, struct erg_error *err);

/*
 * session_kernels.c. Before a traced step: starts the recorder of its kernels, NULL: none. After
 * it, with the pieces of the step: writes the kernels of this rank's GPU into the run's folder; a
 * failure is a warning. At the end: releases the recorder.
 */
struct erg_cupti *erg_train_kernels_begin(struct erg_train *train);
void erg_train_kernels_end(struct erg_train *train, uint64_t step,
                           const struct erg_timeline_span *spans, size_t count);
void erg_train_kernels_release(struct erg_train *train);

/*
 * session_auto.c, world calls. Before the trainer opens rank 0 chooses the layout, makes the plan
 * and writes both; all read them. When the first step begins: which ways there are. After a step,
 * where a block of steps ends: its time and energy. At the end: releases what there is.
 */
int erg_train_tune_layout(struct erg_train *train, const char *job, struct erg_error *err);
int erg_train_tune_plan(struct erg_train *train, long stage, struct erg_error *err);
int erg_train_tune_begin(struct erg_train *train, struct erg_error *err);
int erg_train_tune_step(struct erg_train *train, bool disturbed, struct erg_error *err);
void erg_train_tune_release(struct erg_train *train);

/* World call: the plan's selected point runs from now on, and gives the prediction of a step.
 * `follows` as in erg_trainer_choose(). */
void erg_train_put_into_force(struct erg_train *train, bool follows);

/* A step has failed: this rank's message, after a checkpoint where no work is lost. -1. */
int erg_train_explain(struct erg_train *train, struct erg_error *err);

#endif
