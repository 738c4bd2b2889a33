/*
 * Optimize: from a job to its plan; see ergon-optimize(1).
 *
 *     struct erg_plan *plan;
 *     struct erg_optimize_options options = {.size = sizeof options, .folder = "out"};
 *     if (erg_optimize_job(&plan, job, &options, &err)) ...
 *
 * The call measures partitions and layers of the job on a device, composes them into the frontier
 * of its training iteration, and compares it with the baselines.
 */
#ifndef ERGON_OPTIMIZE_H
#define ERGON_OPTIMIZE_H

#include "ergon/error.h"
#include "ergon/job.h"
#include "ergon/plan.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* With only the size set: the job's own goal on its emulated GPU, and nothing is kept. */
struct erg_optimize_options {
    size_t size;
    /* Gets plan.json, report.html, trace.json, profile.csv, measurements.csv and profile.db, from
     * which an interrupted call continues. NULL: nothing is kept. */
    const char *folder;
    const char *device;  /* "emulated" or "cuda", the GPUs of this machine; NULL: emulated */
    const char *methods; /* only these, with commas; NULL: all */
    double deadline_s, energy_j; /* replace the job's goal: least energy within a time, or the
                                  * fastest within an energy; 0: the job's */
    const struct erg_watch *watch;
#ifdef ERGON_EXPERIMENTAL
    /* 1, with "cuda": also searches clocks, by locking the GPUs'; unlocks them at the end. */
    int32_t lock_clocks;
#endif
};

/*
 * Checks the job as erg_job_check() does, and finds its plan. ERG_INFEASIBLE if no point reaches
 * the goal, ERG_NO_DEVICE without the GPUs, ERG_INTERRUPTED if it was cancelled; the folder then
 * has every finished measurement. With "cuda" all ranks of the job call it; *plan is NULL on all
 * ranks but the first. `options` may be NULL.
 */
int erg_optimize_job(struct erg_plan **plan, const struct erg_job *job,
                     const struct erg_optimize_options *options, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
