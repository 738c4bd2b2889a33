/*
 * Run plan: the plan that a run follows, checked for its job and GPUs, with the requested point;
 * and its prediction.
 */
#ifndef ERG_TRAIN_RUN_RUN_PLAN_H
#define ERG_TRAIN_RUN_RUN_PLAN_H

#include "ergon/train.h"
#include "plan/plan.h"
#include "train/log/run_log.h"

/*
 * *plan: from the options' file, with the requested point selected; NULL: no file. *text (may be
 * NULL): the file's content, which the caller frees. `device`: the name of the backend of a rank of
 * this stage. ERG_USAGE for a plan of another job, or measured on other GPUs.
 */
int erg_run_plan_open(struct erg_plan **plan, char **text, const struct erg_train_options *options,
                      const struct erg_job *job, const char *device, long stage,
                      struct erg_error *err);

/* The same from a text, at its selected point; `name` is the file's name in messages. */
int erg_run_plan_parse(struct erg_plan **plan, const char *name, const char *text, size_t length,
                       const struct erg_train_options *options, const struct erg_job *job,
                       const char *device, long stage, struct erg_error *err);

/* The point of a plan that the options ask for, by `method` and `point`, `deadline_s` or
 * `energy_budget_j`. */
int erg_run_plan_find(const struct erg_plan *plan, const struct erg_train_options *options,
                      struct erg_plan_selection *chosen, struct erg_error *err);

/* The prediction of a step by the plan (NULL: none). */
void erg_run_plan_expect(struct erg_run_expected *expected, const struct erg_plan *plan,
                         const char *file, const struct erg_job *job);

/* The modes and clocks of a stage's instructions at a point. */
struct erg_run_plan_modes {
    size_t modes[ERG_MODES]; /* number of instructions, by enum erg_mode */
    int least_mhz, most_mhz; /* lowest and highest clock */
    bool own_clocks;         /* the GPUs chose their clocks during the measurement */
};
void erg_run_plan_modes(struct erg_run_plan_modes *modes, const struct erg_plan *plan,
                        const struct erg_plan_point *point, size_t stage);

const struct erg_plan_point *erg_run_plan_selected(const struct erg_plan *plan);

#endif
