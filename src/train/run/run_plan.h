/*
 * Run plan: the plan that a run is trained by: of its job, for its GPUs, with the point that the
 * options ask for; and its prediction.
 */
#ifndef ERG_TRAIN_RUN_RUN_PLAN_H
#define ERG_TRAIN_RUN_RUN_PLAN_H

#include "ergon/train.h"
#include "plan/plan.h"
#include "train/log/run_log.h"

/* *plan: of the options' file with the requested point selected, or NULL where they name none;
 * *text, which may be NULL: the file's content, which the caller frees. `device`: the name of the
 * backend of a rank of this stage. ERG_USAGE for a plan of another job, or that was measured on
 * other GPUs. */
int erg_run_plan_open(struct erg_plan **plan, char **text, const struct erg_train_options *options,
                      const struct erg_job *job, const char *device, long stage,
                      struct erg_error *err);

/* The same from a text, at the point that it has selected; `name` stands for its file. */
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

/* How the instructions of a stage run at a point. */
struct erg_run_plan_modes {
    size_t modes[ERG_MODES]; /* how many, by enum erg_mode */
    int least_mhz, most_mhz; /* of their clocks */
    bool own_clocks;         /* the GPUs chose them when they were measured */
};
void erg_run_plan_modes(struct erg_run_plan_modes *modes, const struct erg_plan *plan,
                        const struct erg_plan_point *point, size_t stage);

const struct erg_plan_point *erg_run_plan_selected(const struct erg_plan *plan);

#endif
