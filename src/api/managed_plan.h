/*
 * The plan (plan/plan.h) that a managed job of ergon train may have, given as --plan at its
 * submission. The layout of a managed job changes. An incarnation whose layout is the plan's runs
 * by the plan; any other runs one operation after the other, and without the options about plans.
 *
 * On the GPUs where a job runs by its plan, the frontier of its profile is that of the plan, from
 * the point of its options on (plan/plan_pace.h).
 */
#ifndef ERG_API_MANAGED_PLAN_H
#define ERG_API_MANAGED_PLAN_H

#include "cluster/live/job_folder.h"
#include "ergon/train.h"
#include "layout/exchange/profile_rows.h"
#include "plan/plan.h"

/* The options of ergon train that need a plan, and all others. The words are the caller's, the
 * lists the arena's. */
struct erg_managed_options {
    const char *plan;             /* the file of --plan; NULL: none */
    const char **with, **without; /* the other options about plans; all others */
    size_t with_count, without_count;
};
void erg_managed_options_split(struct erg_managed_options *options, const char *const *words,
                               size_t count, struct erg_arena *arena);

/* The point that they ask for. ERG_USAGE for a value that ergon train refuses. */
int erg_managed_options_read(struct erg_train_options *train,
                             const struct erg_managed_options *options, struct erg_error *err);

/* FOLDER/job.plan.json. To be freed. */
char *erg_managed_plan_path(const char *folder);

/* The plan of the options, and their point of it. ERG_USAGE for a plan that no layout of the job
 * can follow: of another model or stack, or whose microbatches do not give the batch; and for a
 * point that it does not have. */
int erg_managed_plan_open(struct erg_plan **plan, struct erg_plan_selection *own,
                          const struct erg_managed_options *options, const struct erg_job *job,
                          struct erg_error *err);

/* Copies it into the folder, whose job.yaml it is for: from then on with the path of its model. */
int erg_managed_plan_keep(const char *folder, struct erg_plan *plan, struct erg_error *err);

/* Whether an incarnation can run by a plan. `type`: of its GPUs, NULL: not known; any does for
 * `any_type`. */
int erg_managed_plan_check_type(const struct erg_plan *plan, const char *type, bool any_type,
                                struct erg_error *err);

/* Whether a job with these options of ergon train may run by a plan for other GPUs: on the host, or
 * with --force. */
bool erg_managed_plan_any_type(const char *const *words, size_t count);

/* Whether a job, the text of a file, has the plan's layout and all that it depends on. */
int erg_managed_plan_check_job(const struct erg_plan *plan, const char *path,
                               const struct erg_text *text, struct erg_error *err);

/* The plan's layout with as many copies as give the batch; 0 copies: none do. */
struct erg_layout erg_managed_plan_layout(const struct erg_plan *plan, long batch);

/* Whether nothing of it was emulated. */
bool erg_managed_plan_is_measured(const struct erg_plan *plan);

/* Puts the plan's frontier from `own` on in the place of a shape's rows: time of a step and mean
 * power of one GPU. The shape has the GPUs of the plan's layout. */
int erg_managed_plan_rows(struct erg_text *rows, const struct erg_profile_shape *shape,
                          const struct erg_plan *plan, const struct erg_plan_selection *own,
                          struct erg_error *err);

#endif
