/*
 * Traces like another: the same jobs at another load, or resampled jobs.
 *
 * Resampling is the stationary bootstrap (Politis & Romano, "The Stationary Bootstrap", JASA 1994)
 * of the jobs in the order of their submission. It joins runs of consecutive jobs, where each job
 * keeps the time since the one before it. Runs begin anywhere, and their lengths are geometrically
 * distributed around the cube root of the number of jobs, rounded up (the best rate for estimates
 * of variances: Hall, Horowitz & Jing, Biometrika 1995). So jobs that came together, such as those
 * of one user, stay together, and patterns longer than a run (days and nights) are lost.
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
 * A trace with the same number of jobs, and the same numbered workloads and tenants, so that speeds
 * of one are those of the other. Resampled jobs are in the order of submission and called
 * "ID@n".
 */
struct erg_job_trace *erg_job_trace_vary(const struct erg_job_trace *trace,
                                         const struct erg_trace_variation *variation);

#endif
