/*
 * The published comparison replayed: Philly's trace on 1,280 GPUs for 2,000 rounds under its own
 * accounting. Finished jobs, mean completion, mean and peak throughput of every policy that was
 * part of it, beside the published program's; Arena's cut of the mean completion, where each job
 * that another policy did not finish counts as the longest of all, beside that of the published
 * program run again and the published one, and the cut as it is; and CPU seconds with the ratio to
 * the published program's. Gavel and Sia choose among equal optima as their solver does: run again
 * with an open one, the published program itself is 3 points above what was published.
 */
#include "artifact.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Finished jobs, mean JCT in s, throughputs in samples/s, CPU seconds and cut of the mean padded
 * JCT in per cent, of the published program run again; that cut as it was published. */
static const struct reference {
    const char *policy;
    double finished, jct_s, mean, peak, cpu_s, cut, published_cut;
} references[] = {
    {"arena", 828, 41648, 6771, 10994, 258, 0, 0},
    {"fcfs", 590, 83192, 4385, 6953, 14, 81.3, 81.3},
    {"elasticflow-ls", 565, 60220, 4617, 9713, 19, 81.2, 80.5},
    {"gavel", 585, 55998, 5022, 8523, 35, 79.9, 76.6},
    {"sia", 608, 52727, 4868, 9346, 2150, 78.1, 75.2},
};

static _Noreturn void stop(const struct erg_error *err)
{
    fprintf(stderr, "bench_replay: %s\n", err->message);
    exit(1);
}

static double longest_jct(const struct erg_simulated *result)
{
    double longest = 0;
    for (size_t i = 0; i < result->jobs_count; i++)
        if (result->jobs[i].state == ERG_JOB_ENDED)
            longest = fmax(longest, result->jobs[i].ended_s - result->jobs[i].submitted_s);
    return longest;
}

static void replay(const struct erg_simulation *simulation)
{
    struct erg_simulated results[COUNT(references)] = {0};
    double longest = 0;
    for (size_t i = 0; i < COUNT(references); i++) {
        struct erg_simulation run = *simulation;
        struct erg_error err;
        if (artifact_policy_find(&run.policy, references[i].policy, &err) != 0 ||
            erg_simulate(&results[i], &run, &err) != 0)
            stop(&err);
        longest = fmax(longest, longest_jct(&results[i]));
    }
    printf("%-15s %9s %15s %13s %13s %28s %8s %13s\n", "policy", "finished", "mean JCT, s",
           "mean thr.", "peak thr.", "arena's cut, % (as is)", "CPU, s", "times faster");
    for (size_t i = 0; i < COUNT(references); i++) {
        const struct reference *published = &references[i];
        const struct erg_summary *summary = &results[i].summary, *arena = &results[0].summary;
        double missing = fmax(0, (double)(arena->finished_jobs - summary->finished_jobs));
        double finished = (double)summary->finished_jobs;
        double padded = (finished * summary->mean_jct_s + missing * longest) / (finished + missing);
        printf("%-15s %3ld / %3.0f %6.0f / %6.0f %5.0f / %5.0f %5.0f / %5.0f", published->policy,
               summary->finished_jobs, published->finished, summary->mean_jct_s, published->jct_s,
               summary->mean_throughput, published->mean, summary->peak_throughput,
               published->peak);
        if (i > 0)
            printf("  %5.1f / %4.1f / %4.1f  (%5.1f)", 100 * (1 - arena->mean_jct_s / padded),
                   published->cut, published->published_cut,
                   100 * (1 - arena->mean_jct_s / summary->mean_jct_s));
        else
            printf("%30s", "");
        printf(" %8.3f %13.0f\n", summary->cpu_s, published->cpu_s / summary->cpu_s);
    }
    for (size_t i = 0; i < COUNT(references); i++)
        erg_simulated_release(&results[i]);
}

int main(void)
{
    const char *root = getenv("ERGON_SHARED_DATA"), *shared = root ? root : ERGON_TEST_SHARED_DATA;
    char folder[4000], path[4096];
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct artifact artifact;
    struct erg_error err;
    snprintf(folder, sizeof folder, "%s/arena", shared);
    snprintf(path, sizeof path, "%s/traces/simulate_trace_philly.csv", folder);
    if (access(path, R_OK) != 0) {
        printf("The published comparison is skipped: %s is not here.\n", path);
        return 0;
    }
    if (erg_fleet_load(&fleet, ERGON_TEST_SOURCE_DIR "/examples/arena/cluster-1280.yaml", &err) ||
        erg_job_trace_load(&trace, path, fleet, &err) ||
        artifact_load(&artifact, folder, fleet, trace, &err))
        stop(&err);
    printf("Philly, 1,280 GPUs, 2,000 rounds: ours / the published program's\n");
    replay(&(struct erg_simulation){.fleet = fleet,
                                    .trace = trace,
                                    .speeds = artifact.speeds,
                                    .accounting = &artifact.rules,
                                    .work = 1,
                                    .until_s = 2000 * 300.0,
                                    .power_cap_w = INFINITY});
    artifact_release(&artifact);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
    return 0;
}
