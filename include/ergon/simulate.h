/*
 * Simulations: what policies do to the jobs of a shared, mixed cluster; see ergon-simulate(1).
 *
 *     struct erg_simulations *simulations;
 *     struct erg_simulations_options options = {.size = sizeof options,
 *         .cluster = "cluster.yaml", .trace = "trace.csv", .profiles = "profiles",
 *         .policies = "fcfs,ergon"};
 *     if (erg_simulations_run(&simulations, &options, &err)) ...
 *     erg_simulations_free(simulations);
 *
 * Equal inputs give equal results. Undefined values, such as the mean of nothing, are NaN.
 */
#ifndef ERGON_SIMULATE_H
#define ERGON_SIMULATE_H

#include "ergon/error.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_simulations;

/* `cluster`, `trace`, `profiles` and `policies` are required. */
struct erg_simulations_options {
    size_t size;
    const char *cluster, *trace; /* files: docs/formats/simulation.md */
    const char *profiles;        /* a folder with prof_optimal.csv */
    const char *policies;        /* one, or several with commas */
    double until_s;              /* 0: until no job runs and none can */
    double work;                 /* every job does this share of its iterations; 0: all of it */
    double power_cap_w;          /* of all GPUs together; 0: none */
    const char *tariff;          /* file with cost and emissions of electricity; NULL: none */
    const char *outages;         /* file with node failures; NULL: only drawn ones */
    double failure_s, repair_s;  /* drawn failures, with until_s: mean time that a node works (0:
                                  * no failures), and time of a repair (0: 4 hours) */
    uint64_t seed;               /* of drawn failures */
    const char *folder; /* for report.html, and tables, summary and trace of each policy. NULL:
                         * nothing is written */
    int32_t page;       /* 1: keeps what erg_simulations_write_page() shows */
    const struct erg_watch *watch;
};

/* Fails for wrong files, with line and column, and for unknown policies. */
int erg_simulations_run(struct erg_simulations **simulations,
                        const struct erg_simulations_options *options, struct erg_error *err);
void erg_simulations_free(struct erg_simulations *simulations); /* NULL is fine */

/* The result of one policy. Texts live as long as the answer. */
struct erg_simulations_result {
    size_t size;
    const char *policy;
    int64_t submitted_jobs, finished_jobs, rejected_jobs;
    int64_t reconfigurations; /* starts, moves and resizings */
    double mean_completion_s, median_completion_s, p99_completion_s; /* of finished jobs */
    double mean_waiting_s;                                           /* of all submitted jobs */
    double utilization;            /* share of GPU-seconds that jobs had */
    double goodput;                /* the same without restarts and lost work */
    double deadlines_met;          /* share of the jobs with one */
    double energy_j, peak_power_w; /* of all GPUs */
    double cost_usd, co2_kg;       /* with a tariff */
    double simulated_s;
};

size_t erg_simulations_count(const struct erg_simulations *simulations);
/* Index from 0, in the order of `policies`. */
int erg_simulations_result(const struct erg_simulations *simulations, size_t index,
                           struct erg_simulations_result *result, struct erg_error *err);

/* All summaries as JSON (docs/formats/simulation-results.md), which lives as long as the answer;
 * and side by side as a page: ERG_USAGE without the option `page` or `folder`. */
const char *erg_simulations_json(const struct erg_simulations *simulations);
int erg_simulations_write_page(const struct erg_simulations *simulations, const char *path,
                               struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
