/* Session: opens training runs (ergon/train.h) with the command line's options, also runs that
 * search for the best way to train. */
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
 * them on its steps (run/trials.h). When the trials end, plan.json in the folder selects the best
 * way. With fewer than two ways the run trains without the plan. A continued run takes its layout
 * from job.yaml if that still suits the job, and follows plan.json if its trials have ended;
 * otherwise it plans and tries again.
 */
struct erg_train_auto {
    double budget_s;      /* of trials; 0: the default of run/trials.h */
    struct erg_goal goal; /* deadline_s and energy_j, bounds on one measured step, all GPUs; all
                           * zero: the default of run/trials.h */
    /* Required. Called at rank 0: makes a plan of the job; `sequential`: with sequential passes
     * only. The session frees *plan. */
    int (*plan)(void *context, const struct erg_job *job, bool sequential, struct erg_plan **plan,
                struct erg_error *err);
    void *context;
};

/* Like erg_train_open(), which it is if `asked` is NULL; otherwise the options must have no plan.
 * With `lock_clocks`, each way also runs at its plan's clocks. */
int erg_train_open_auto(struct erg_train **train, const char *job,
                        const struct erg_train_options *options, const struct erg_train_auto *asked,
                        struct erg_error *err);

/* Why a run with --auto can run this job's passes only sequentially; NULL: overlap is possible. A
 * clause, without "because". */
const char *erg_train_auto_sequential(const struct erg_job *job);

/* At rank 0: the layout and its reason; NULL on other ranks and for other runs. */
const char *erg_train_auto_layout(const struct erg_train *train);
/* Appends the latest results of trials, of an earlier start too; nothing if there are none. */
void erg_train_auto_found(struct erg_text *out, const struct erg_train *train);

/* The results of these three are valid as long as the run. The name is "host", or the GPU's. */
const struct erg_job *erg_train_job(const struct erg_train *train);
const char *erg_train_device_name(const struct erg_train *train);
/* The prediction of a step by the run's plan; expected->plan is NULL without a plan. */
const struct erg_run_expected *erg_train_expected(const struct erg_train *train);

extern const char *const erg_train_type_names[]; /* by enum erg_train_type, ends with NULL */

#endif
