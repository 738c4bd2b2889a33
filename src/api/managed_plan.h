/*
 * The plan (plan/plan.h) that a managed job of ergon train may have, given as --plan at its
 * submission. The layout of a managed job changes. An incarnation whose layout is the plan's runs
 * by the plan; any other runs one operation after the other, and without the options about plans.
 */
#ifndef ERG_API_MANAGED_PLAN_H
#define ERG_API_MANAGED_PLAN_H

#include "cluster/live/job_folder.h"
#include "plan/plan.h"

/* The options of ergon train that need a plan, and all others. The words are the caller's, the
 * lists the arena's. */
struct erg_managed_options {
    const char *plan; /* the file of --plan; NULL: none */
    const char **with,
        **without; /* options about plans but --plan, and those about anything else */
    size_t with_count, without_count;
};
void erg_managed_options_split(struct erg_managed_options *options, const char *const *words,
                               size_t count, struct erg_arena *arena);

/* FOLDER/job.plan.json. To be freed. */
char *erg_managed_plan_path(const char *folder);

/* Copies a plan into the folder, whose job.yaml it is for. ERG_USAGE for a plan that no layout of
 * the job can follow: of another model or stack, or whose microbatches do not give the batch. */
int erg_managed_plan_keep(const char *folder, const char *path, const struct erg_job *job,
                          struct erg_error *err);

/* Whether an incarnation can run by a plan. `type`: of its GPUs, NULL: not known; any does for
 * `any_type`. */
int erg_managed_plan_check_type(const struct erg_plan *plan, const char *type, bool any_type,
                                struct erg_error *err);

/* The plan's layout with as many copies as give the batch; 0 copies: none do. */
struct erg_layout erg_managed_plan_layout(const struct erg_plan *plan, long batch);

#endif
