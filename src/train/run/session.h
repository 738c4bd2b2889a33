/* Session: a run (ergon/train.h) by the options of the command line before its first step, and runs
 * that search for the best way to train. */
#ifndef ERG_TRAIN_RUN_SESSION_H
#define ERG_TRAIN_RUN_SESSION_H

#include "ergon/train.h"
#include "job/job.h"
#include "train/run/run_plan.h"

#include "frontier/goal.h"

/*
 * A run that searches for the best way to train. It chooses the parts of the layout that the job
 * leaves open (run/run_layout.h) and writes the complete job as job.yaml into the options'
 * `folder`, which is required. A plan of that job lists ways to run its passes, and the run tries
 * them on its steps (run/trials.h); plan.json in the folder selects the best one. A continued run
 * already has both files, and keeps them.
 */
struct erg_train_auto {
    double budget_s;      /* of trials; 0: the default of run/trials.h */
    struct erg_goal goal; /* for a step; 0: the default of run/trials.h */
    /* Called at rank 0: makes a plan of the job; `sequential`: with sequential passes only. */
    int (*plan)(void *context, const struct erg_job *job, bool sequential, struct erg_plan **plan,
                struct erg_error *err);
    void *context;
};

/* Like erg_train_open(). The options have no plan; `lock_clocks` sets the clocks of the ways. */
int erg_train_open_auto(struct erg_train **train, const char *job,
                        const struct erg_train_options *options, const struct erg_train_auto *asked,
                        struct erg_error *err);

/* Why passes of such a job can only run sequentially; NULL: they need not. */
const char *erg_train_auto_sequential(const struct erg_job *job);

/*
 * For such a run, at rank 0: its layout with the reason, and the results of its trials; "" before
 * there are any.
 */
const char *erg_train_auto_layout(const struct erg_train *train);
void erg_train_auto_found(struct erg_text *out, const struct erg_train *train);

/* All are valid as long as the run. The name is "host", or the GPU's. */
const struct erg_job *erg_train_job(const struct erg_train *train);
const char *erg_train_device_name(const struct erg_train *train);
/* The prediction of a step by the run's plan; expected->plan is NULL without a plan. */
const struct erg_run_expected *erg_train_expected(const struct erg_train *train);

extern const char *const erg_train_type_names[]; /* by enum erg_train_type, ends with NULL */

#endif
