/*
 * The main job with all around it: the device, a warning where stages do not fit into memory, and
 * the files of a folder.
 */
#ifndef ERG_API_OPTIMIZING_H
#define ERG_API_OPTIMIZING_H

#include "device/real.h"
#include "job/job.h"
#include "plan/plan.h"

struct erg_optimizing {
    const struct erg_job *job; /* with its own layout checked */
    const char *folder;        /* NULL: nothing is kept */
    const char *hint;          /* the job's file, for a warning */
    bool methods[ERG_METHOD_COUNT];
    bool cuda, lock_clocks;
    bool dashes;           /* messages name what was wished as options of the command line */
    struct erg_real *real; /* NULL: emulated */
    struct erg_plan *plan;
    json_t *document; /* of the plan; NULL without a folder */
};

/* Methods from "a,b"; NULL: all. */
int erg_optimizing_methods(struct erg_optimizing *at, const char *list, struct erg_error *err);

/* Takes a program's options, but the goal, which replaces the job's. */
struct erg_optimize_options;
int erg_optimizing_take(struct erg_optimizing *at, const struct erg_optimize_options *options,
                        struct erg_error *err);
void erg_optimizing_set_goal(struct erg_job *job, const struct erg_optimize_options *options);

/* Opens the GPUs, with `cuda`: all ranks of the job do; then rank 0 runs. To be released. */
int erg_optimizing_open(struct erg_optimizing *at, struct erg_error *err);
int erg_optimizing_run(struct erg_optimizing *at, struct erg_error *err);
void erg_optimizing_release(struct erg_optimizing *at);

#endif
