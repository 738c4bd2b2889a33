/*
 * Generates synthetic job traces: a YAML file gives the distributions, a seed selects one trace.
 *
 *   jobs: 400
 *   jobs_per_day: 150        # on average
 *   daily_swing: 0.6         # optional, 0 to 1: how strongly the arrival rate varies over the day
 *   busiest_hour: 15         # optional: hour of the day with most arrivals; default: 15
 *                            # (time begins at midnight)
 *   duration:                # hours on the requested GPUs: log-normal,
 *     median_h: 1.5          # from least_h to most_h
 *     sigma: 1.3             # of the logarithm
 *     least_h: 0.05          # values below least_h or above most_h are drawn again
 *     most_h: 72
 *   gpus:                    # GPUs that a job requests; chosen by weight
 *     - {count: 1, weight: 30}
 *     - {count: 8, weight: 10}
 *   types:                   # default: every type of the cluster, weighted by its number of GPUs
 *     - {name: a100, weight: 1}
 *   models:                  # default: every model in the profiles, with equal weights
 *     - {model: bert, size: 1.3B, batch: 256, weight: 2}
 *   tenants:                 # optional
 *     - {name: vision, weight: 3}
 *   deadlines:               # optional: share of jobs with a deadline, `least` to `most` (>= 1)
 *                            # times their duration after submission, uniformly
 *     {share: 0.3, least: 1.5, most: 4}
 *
 * Arrivals are a Poisson process of the rate m (1 + s cos(2 pi (hour - busiest_hour) / 24)) with
 * m = jobs_per_day and s = daily_swing, by thinning (Lewis & Shedler, "Simulation of nonhomogeneous
 * Poisson processes by thinning", 1979). Model, GPUs and type are drawn again until the model can
 * run on them, as for Arena's published traces.
 */
#ifndef ERG_CLUSTER_TRACES_GENERATE_H
#define ERG_CLUSTER_TRACES_GENERATE_H

#include "cluster/traces/maker.h"

#include <stdint.h>

/*
 * `maker`: initialised, without jobs. Arrivals come from one random stream, all else about a job
 * from a stream of its own; so a longer trace begins with the jobs of a shorter one. Errors name
 * file and line; a listed number of GPUs, type or model that no job could use is an error.
 */
int erg_trace_generate(struct erg_trace_maker *maker, const char *path, uint64_t seed,
                       struct erg_error *err);

#endif
