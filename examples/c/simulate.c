/*
 * Two policies on a day of a cluster: simulate FOLDER
 *
 *     cc simulate.c $(pkg-config --cflags --libs ergon) -o simulate && ./simulate examples/cluster
 */
#include <ergon/simulate.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_simulations *simulations;
    char cluster[512], trace[512], profiles[512];
    struct erg_simulations_options options = {
        .size = sizeof options, .policies = "fcfs,ergon", .until_s = 24 * 3600};
    if (argc != 2) {
        fprintf(stderr, "usage: simulate FOLDER\n");
        return 2;
    }
    snprintf(cluster, sizeof cluster, "%s/cluster.yaml", argv[1]);
    snprintf(trace, sizeof trace, "%s/trace.csv", argv[1]);
    snprintf(profiles, sizeof profiles, "%s/profiles", argv[1]);
    options.cluster = cluster;
    options.trace = trace;
    options.profiles = profiles;
    if (erg_simulations_run(&simulations, &options, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    for (size_t i = 0; i < erg_simulations_count(simulations); i++) {
        struct erg_simulations_result result = {.size = sizeof result};
        if (erg_simulations_result(simulations, i, &result, &err) != 0)
            break;
        printf("%-6s %d of %d jobs finished, mean completion %.2f h, %.1f %% of GPUs in use, "
               "%.3f GJ\n",
               result.policy, (int)result.finished_jobs, (int)result.submitted_jobs,
               result.mean_completion_s / 3600, 100 * result.utilization, result.energy_j / 1e9);
    }
    erg_simulations_free(simulations);
    return 0;
}
