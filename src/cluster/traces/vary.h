/*
 * Traces like another: the same jobs at another load, or other jobs as they might have come.
 *
 * Resampling is the stationary bootstrap (Politis & Romano, "The Stationary Bootstrap", JASA 1994)
 * of the jobs in the order of their submission: runs of consecutive jobs, each job with the time
 * since the one before it, begin anywhere and have lengths that are geometrically distributed
 * around the cube root of the number of jobs, rounded up (the rate at which variances are estimated
 * best: Hall, Horowitz & Jing, Biometrika 1995). So jobs that came together, as those of one user
 * do, stay together, and what lasts longer than a run (days and nights) is lost.
 */
#ifndef ERG_CLUSTER_TRACES_VARY_H
#define ERG_CLUSTER_TRACES_VARY_H

#include "cluster/job_trace.h"

#include <stdbool.h>
#include <stdint.h>

struct erg_trace_variation {
    double load; /* times between submissions are divided by it; deadlines keep their distance */
    bool resample;
    uint64_t seed; /* of resampling */
};

/*
 * A trace of as many jobs and with the same workloads and tenants, by number, so that speeds of the
 * one are those of the other. Resampled jobs are in the order of submission and called "ID@n".
 */
struct erg_job_trace *erg_job_trace_vary(const struct erg_job_trace *trace,
                                         const struct erg_trace_variation *variation);

#endif
