/*
 * Sweeps: many simulations, of every policy at every load on every cluster with every seed, and
 * their summary. A YAML file lists them:
 *
 *   clusters: [cluster.yaml]         # paths are relative to this file
 *   traces: [week1.csv, week2.csv]
 *   profiles: profiles               # as for ergon simulate
 *   policies: [fcfs, sia, ergon]
 *   reference: fcfs                  # the policy to compare with; default: the first
 *   loads: [0.8, 1, 1.2]             # times between submissions are divided by it; default: 1
 *   power_caps: [0.7, 1]             # shares of the power of all GPUs at their fastest; optional
 *   seeds: 10                        # from 1 on; default: 1
 *   resample: true                   # a seed draws a trace like the given one (traces/vary.h)
 *   failures: {mean_h: 2000, repair_h: 4}  # a seed draws failures of nodes (outages.h)
 *   pool_traces: true                # traces are samples of the same workload
 *   rounds: 2000                     # of 300 s; default: until no job runs and none can start
 *   work: 1                          # share of its iterations that a job does
 *
 * A point is one simulation. Its key is a hash of exactly its inputs, including the contents of
 * files and the version of ergon: a sweep with an added load or policy keeps its finished points,
 * and a point whose trace changed is run again.
 *
 * A seed draws the same failures and the same jobs for every policy, load and cluster, so policies
 * are compared in pairs.
 */
#ifndef ERG_CLUSTER_SWEEP_H
#define ERG_CLUSTER_SWEEP_H

#include "base/text.h"
#include "cluster/simulate/simulation.h"
#include "io/documents.h"

#include <jansson.h>

struct erg_sweep_inputs {
    struct erg_fleet *fleet;
    struct erg_job_trace *trace; /* types are numbers of the fleet */
    struct erg_speeds *speeds;
    double power_w; /* of all GPUs at their fastest */
};

struct erg_sweep_failures {
    double mean_h, repair_h;
};

struct erg_sweep {
    /* As in the file. */
    char **clusters, **traces, **policies;
    unsigned clusters_count, traces_count, policies_count;
    char *profiles, *reference;
    double *loads, *power_caps;
    unsigned loads_count, power_caps_count; /* at least one; a cap of NAN is none */
    int seeds, rounds;                      /* no rounds: 0 */
    bool resample, pool_traces;
    struct erg_sweep_failures failures; /* mean_h of 0: none are drawn */
    double work;
    /* Derived values. */
    char *path;
    const struct erg_policy **policy; /* by policy */
    unsigned reference_index;
    struct erg_sweep_inputs *inputs; /* [cluster][trace] */
    uint64_t *cluster_hashes, *trace_hashes, profiles_hash;
};

/* Reads the sweep and all files that it names. Errors have file and line, if there is one. */
int erg_sweep_load(struct erg_sweep **sweep, const char *path, struct erg_error *err);
void erg_sweep_free(struct erg_sweep *sweep);

/* Reads only the sweep, not the files that it names: it has no inputs and cannot be run. */
int erg_sweep_parse(struct erg_sweep **sweep, const char *name, const char *text, size_t length,
                    struct erg_error *err);

/* ---- points ---- */

/* One of the product, as indices; the seed from 0 on. */
struct erg_sweep_point {
    unsigned cluster, trace, cap, load, seed, policy;
};

size_t erg_sweep_points(const struct erg_sweep *sweep);
struct erg_sweep_point erg_sweep_point(const struct erg_sweep *sweep, size_t index);
size_t erg_sweep_index(const struct erg_sweep *sweep, const struct erg_sweep_point *point);

/* 16 digits of a 64-bit hash: among a million points, two are equal with a probability of 3 in 100
 * million. */
struct erg_sweep_key {
    char text[17];
};
struct erg_sweep_key erg_sweep_key(const struct erg_sweep *sweep,
                                   const struct erg_sweep_point *point);

/* "cluster.yaml, trace.csv, fcfs, load 1.2, seed 3" */
void erg_sweep_describe(struct erg_text *out, const struct erg_sweep *sweep,
                        const struct erg_sweep_point *point);

/* Simulates one point: the document of cluster/simulate/results.h, a new reference. Interruptible.
 */
int erg_sweep_simulate(const struct erg_sweep *sweep, const struct erg_sweep_point *point,
                       json_t **document, struct erg_error *err);

/* ---- running ---- */

/* Every count-th point, beginning with `index`; {0, 1}: all points. */
struct erg_sweep_part {
    unsigned index, count;
};

/*
 * The store of a part: FOLDER/parts/1-of-8.db, or FOLDER/sweep.db of all, which imports the
 * existing parts. Creates missing folders.
 */
int erg_sweep_store_open(struct erg_documents **store, const char *folder,
                         const struct erg_sweep_part *part, struct erg_error *err);

/*
 * Simulates the points of a part that the store does not have, each in a process of its own, one
 * per core at a time, and stores each result before the next point begins. An interruption of any
 * kind loses at most the points that are being simulated.
 *
 * A point that fails or crashes does not stop the others; the error then names the first such one.
 * Forks, so the caller has no other threads.
 */
int erg_sweep_run(const struct erg_sweep *sweep, struct erg_documents *store,
                  const struct erg_sweep_part *part, struct erg_error *err);

/* ---- results ---- */

/*
 * Schema "ergon.sweep": for each cluster, trace (or all pooled) and cap, each load and policy, the
 * mean of every number of the summaries with its 95 % confidence interval (Student's t), the same
 * for its paired difference to the reference policy, and for its relative change: the mean of the
 * pairs' ratios (of their logarithms) with its interval. The values are those of the seeds; for
 * pooled traces they are the means of each trace over its seeds, since only traces are independent
 * of each other. Points that the store lacks are left out and counted. For each group, the jobs
 * that were not served (unserved.h) in some of its points are listed by policy, once, by their
 * names in the trace.
 */
int erg_sweep_document(const struct erg_sweep *sweep, struct erg_documents *store,
                       json_t **document, struct erg_error *err);

/* All points with their summaries, as CSV; points that the store lacks have no row. */
int erg_sweep_table(const struct erg_sweep *sweep, struct erg_documents *store,
                    struct erg_text *out, struct erg_error *err);

#endif
