/*
 * Draws traces: a YAML file describes arrivals and requests of jobs; a seed selects the trace.
 *
 *   jobs: 400
 *   jobs_per_day: 150        # in the mean
 *   daily_swing: 0.6         # optional, 0 to 1: how much the rate rises and falls with the hour
 *   busiest_hour: 15         # optional, of the day (default: 15). Time begins at midnight.
 *   duration:                # hours on the requested GPUs: log-normal,
 *     median_h: 1.5
 *     sigma: 1.3             # of the logarithm
 *     least_h: 0.05          # drawn again outside of these
 *     most_h: 72
 *   gpus:                    # requested by jobs, by weight
 *     - {count: 1, weight: 30}
 *     - {count: 8, weight: 10}
 *   types:                   # optional; else each type by the number of its GPUs
 *     - {name: a100, weight: 1}
 *   models:                  # optional; else all of the profiles, equally
 *     - {model: bert, size: 1.3B, batch: 256, weight: 2}
 *   tenants:                 # optional
 *     - {name: vision, weight: 3}
 *   deadlines:               # optional; after the submission, in run times, uniform
 *     {share: 0.3, least: 1.5, most: 4}
 *
 * Arrivals are a Poisson process of the rate m (1 + s cos(2 pi (hour - busiest) / 24)), by thinning
 * (Lewis & Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", 1979). Model,
 * GPUs and type are drawn again until the model can run on them, as for Arena's published traces.
 */
#ifndef ERG_CLUSTER_TRACES_GENERATE_H
#define ERG_CLUSTER_TRACES_GENERATE_H

#include "cluster/traces/maker.h"

#include <stdint.h>

/*
 * Fills an empty maker. Every job draws from a stream of its own, so a longer trace begins with the
 * jobs of a shorter one. Errors name file and line; GPUs, types and models that cannot run are an
 * error.
 */
int erg_trace_generate(struct erg_trace_maker *maker, const char *path, uint64_t seed,
                       struct erg_error *err);

#endif
