/*
 * The main job with all around it: the device, a warning where stages do not fit into memory, and
 * the files of a folder.
 */
#ifndef ERG_API_OPTIMIZE_CALL_H
#define ERG_API_OPTIMIZE_CALL_H

#include "device/real.h"
#include "job/job.h"
#include "plan/plan.h"

struct erg_optimize_call {
    const struct erg_job *job; /* with its own layout checked */
    const char *folder;        /* NULL: nothing is kept */
    const char *hint;          /* the job's file, for a warning */
    bool methods[ERG_METHOD_COUNT];
    bool cuda, lock_clocks;
    bool dashes;           /* messages name inputs as options of the command line */
    struct erg_real *real; /* NULL: emulated */
    struct erg_plan *plan;
    json_t *document; /* of the plan; NULL without a folder */
};

/* Methods from "a,b"; NULL: all. */
int erg_optimize_call_methods(struct erg_optimize_call *at, const char *list,
                              struct erg_error *err);

/* Takes a program's options, but the goal, which replaces the job's. */
struct erg_optimize_options;
int erg_optimize_call_take(struct erg_optimize_call *at, const struct erg_optimize_options *options,
                           struct erg_error *err);
void erg_optimize_call_set_goal(struct erg_job *job, const struct erg_optimize_options *options);

/* Opens the GPUs, with `cuda`: all ranks of the job do; then rank 0 runs. To be released. */
int erg_optimize_call_open(struct erg_optimize_call *at, struct erg_error *err);
int erg_optimize_call_run(struct erg_optimize_call *at, struct erg_error *err);
void erg_optimize_call_release(struct erg_optimize_call *at);

#endif
