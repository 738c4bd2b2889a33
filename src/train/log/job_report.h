/*
 * Job reports: a run's progress for the scheduler of its job. It appends a line of JSON to
 * FOLDER/reports.jsonl, which is closed after each, at every change of state and every ten seconds:
 *
 *     {"v":1,"incarnation":3,"state":"training","iteration":1234,"iteration_s":0.84,"joules":1.2e6,
 *      "checkpoint":1200,"load_s":21.5,"save_s":9.1,"mono_s":5210.3,"plan":7}
 *
 * null: not known. "plan" is missing until the run follows a plan of the scheduler. Times are
 * durations, except mono_s, which is this machine's monotonic clock. The incarnation is one more
 * than that of the previous run: FOLDER/incarnation.N, created at the start, distinguishes a run
 * that is believed dead from the next one. It also shows the old run that it was replaced, so that
 * it commits no more checkpoints. "ergon run-job" creates the file before it starts a run, and
 * passes the number in $ERGON_INCARNATION.
 */
#ifndef ERG_TRAIN_LOG_JOB_REPORT_H
#define ERG_TRAIN_LOG_JOB_REPORT_H

#include "ergon/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum erg_job_state {
    ERG_JOB_LOADING,
    ERG_JOB_TRAINING,
    ERG_JOB_SAVING,
    ERG_JOB_SAVED,
    ERG_JOB_DONE,
};

/* "loading", …; ends with NULL. */
extern const char *const erg_job_state_names[];

/* All-zero: reports nothing. */
struct erg_job_report {
    char *folder, *path; /* of the job, and of its file; NULL: no job */
    long incarnation;
    enum erg_job_state state;
    uint64_t iteration, checkpoint;             /* steps so far; the newest checkpoint, 0: none */
    double iteration_s, joules, load_s, save_s; /* NaN: unknown */
    int64_t changed_ns, reported_ns; /* times of the last change of state, and of the last line */
    long plan; /* number of the scheduler's plan that all ranks follow; 0: none */
    bool warned;
    /* State of the thread that reports between changes. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool threaded, closing;
};

/*
 * The highest incarnation in a folder, 0: none; and the next one, which begins now, or 0 with
 * errno.
 */
long erg_job_incarnation_highest(const char *folder);
long erg_job_incarnation_take(const char *folder);

/*
 * `folder`: of the job; NULL: no reports. The state is ERG_JOB_LOADING. A folder that cannot be
 * written to gives a warning, here and later.
 */
void erg_job_report_open(struct erg_job_report *report, const char *folder);

/* The number of steps in the checkpoint from which the run continues. */
void erg_job_report_resumed(struct erg_job_report *report, uint64_t step);

/* Fails with ERG_SUPERSEDED if a later incarnation of the job has begun. */
int erg_job_report_check(const struct erg_job_report *report, struct erg_error *err);

/* Reports a change of state. */
void erg_job_report_state(struct erg_job_report *report, enum erg_job_state state);

/*
 * Adds a step of `step_s`, with the pause before it and the joules of the run so far; NaN: not
 * known.
 */
void erg_job_report_step(struct erg_job_report *report, uint64_t step, double step_s,
                         double joules);

/*
 * All ranks have followed a plan of the scheduler for a whole step: reported immediately if it
 * differs from the previous one.
 */
void erg_job_report_plan(struct erg_job_report *report, long number);

/* The step of the newest checkpoint. */
void erg_job_report_checkpoint(struct erg_job_report *report, uint64_t step);

void erg_job_report_close(struct erg_job_report *report);

#endif
