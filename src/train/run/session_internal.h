/* Internals of a training run: declarations shared by its files. */
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
struct erg_way_search {
    bool on; /* the run searches */
    struct erg_train_auto asked;
    bool kept; /* an earlier start of the run found the best way */
    char *layout;
    struct erg_run_way ways[ERG_TRIALS_WAYS];
    size_t count, best; /* number of ways, 1: no trials; the best at the start */
    struct erg_trials trials;
    /* The current block. */
    uint64_t done; /* finished steps of it */
    double sum_s;  /* of the steps that count */
    int64_t begin_ns;
    bool disturbed;
    struct erg_rank_mark mark;
    json_t *news; /* at rank 0: results for the next line of the log; NULL: none */
    struct {
        char **items;
        size_t count, capacity;
    } texts; /* earlier texts of the plan */
};

/* For a run that records the kernels of traced steps. */
struct erg_train_kernels {
    struct erg_cupti *cupti; /* NULL: not open, or refused */
    bool refused, on;        /* on: recording in this step */
    struct erg_kernel_names *names;
    char uuid[96]; /* of the GPU; "": unknown */
    int64_t begin_ns;
    double others_s; /* sum over the undisturbed steps */
    uint64_t others;
};

struct erg_train {
    struct erg_train_options options; /* whose strings are above */
    char *folder, *init, *plan_file, *method;
    struct erg_job *job;
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous; /* NULL: one rank */
    struct erg_backend *backend;
    struct erg_plan *plan; /* that the run follows; NULL: none */
    char *plan_text;       /* of its file */
    struct erg_run_expected expected;
    struct erg_way_search tuning;
    struct erg_gpus *gpus; /* whose clocks are set; NULL: none */
    struct erg_trainer *trainer;
    size_t most[ERG_RANK_ITEMS]; /* memory of the rank with the most */
    struct erg_time_limit limit;
    uint64_t end; /* the last step */
    int64_t saved_ns;
    char *resumed;
    struct erg_train_stats stats;
    volatile sig_atomic_t stop; /* the number of a signal */
    volatile sig_atomic_t save_soon;
    struct erg_job_report report;        /* at rank 0 */
    struct erg_loss_watch watch;         /* at rank 0 */
    struct erg_plan_watch plans;         /* at rank 0 */
    struct erg_train_pace pace;          /* followed by all ranks since the end of a step */
    struct erg_plan_selection own_point; /* point of the plan that the options select */
    struct erg_power_hold hold;          /* pauses for the pace */
    struct erg_rank_mark held;           /* start of its window; time_ns 0: no window */
    bool unheld;                         /* a warning was given that pauses do not keep the power */
    double pause_s;                      /* pause after the latest step */
    struct erg_data_watch data;
    uint64_t made;      /* steps made by this process */
    uint64_t writing;   /* the step whose checkpoint is being written; 0: none */
    int64_t writing_ns; /* start of the writing */

    /* Valid from the first step on. */
    bool begun;
    struct erg_rank_meter meter;
    struct erg_run_log log; /* at rank 0, which writes it for all */
    uint64_t traced;        /* the step of the latest trace, and this rank's waits in it */
    double bubble_s, gradients_s;
    struct erg_train_kernels kernels;
    double waited_s; /* waits for tokens in the steps since the latest line */
    uint64_t waits;  /* number of these steps */
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

/*
 * World call: writes a checkpoint of the latest step. `waits`: until it is complete; otherwise it
 * is written during training. If it cannot be written, this gives a warning, and older ones stay.
 * Fails if a newer incarnation of the job has begun.
 */
int erg_train_save(struct erg_train *train, bool waits, struct erg_error *err);
/* Files written in the background are complete, so the time of the writes is known. */
void erg_train_note_written(struct erg_train *train);
/* Whether a step's timeline is recorded; the same on all ranks. */
bool erg_train_traces(const struct erg_train *train, uint64_t step);
/* World call before such a step. */
int erg_train_trace_begin(struct erg_train *train, struct erg_error *err);
/* World call after such a step: rank 0 writes the timeline of all ranks into the run's folder. */
int erg_train_trace(struct erg_train *train, uint64_t step, struct erg_error *err);

/*
 * session_kernels.c. Before a traced step: starts the recorder of its kernels; NULL: none. After
 * it: writes the kernels of this rank's GPU, with the pieces of the step, into the run's folder; a
 * failure gives a warning. At the end: releases the recorder.
 */
struct erg_cupti *erg_train_kernels_begin(struct erg_train *train);
void erg_train_kernels_end(struct erg_train *train, uint64_t step,
                           const struct erg_timeline_span *spans, size_t count);
void erg_train_kernels_release(struct erg_train *train);

/*
 * session_auto.c, world calls. Before the trainer opens: rank 0 chooses the layout, makes the plan
 * and writes both; all read them. At the start of the first step: lists the ways. After the last
 * step of a block: measures its time and energy. At the end: releases everything.
 */
int erg_train_tune_layout(struct erg_train *train, const char *job, struct erg_error *err);
int erg_train_tune_plan(struct erg_train *train, long stage, struct erg_error *err);
int erg_train_tune_begin(struct erg_train *train, struct erg_error *err);
int erg_train_tune_step(struct erg_train *train, bool disturbed, struct erg_error *err);
void erg_train_tune_release(struct erg_train *train);

/*
 * World call: runs the plan's selected point from now on, and predicts a step from it. `follows` as
 * in erg_trainer_choose().
 */
void erg_train_put_into_force(struct erg_train *train, bool follows);

/*
 * Call it after a failed step: saves a checkpoint if the state is complete, and completes this
 * rank's message. Returns -1.
 */
int erg_train_explain(struct erg_train *train, struct erg_error *err);

#endif
