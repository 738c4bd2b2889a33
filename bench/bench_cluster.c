/*
 * The cluster simulator: policies compared, and how its time grows.
 *
 * First what the README says of 400 jobs on the cluster of examples/cluster.
 *
 * The next eight tables are all policies on the published traces, with a fifth of their jobs'
 * iterations, as the published comparison has them, and with all, below what no policy can beat:
 * every job alone at its fastest from its first moment on (of finished jobs that is no bound where
 * a run is cut off), and a sample's energy at least that on what costs the job least, beside GPUs
 * that idle. Then Philly's trace under a power cap of 70 % of what all GPUs draw at their fastest,
 * with one and two fifths of the iterations: clocks follow the cap from moment to moment, or were
 * capped for good, such that all GPUs at work keep it; ergon's policy makes its own of the cap.
 * Then the lighter traces, Helios's and PAI's, where jobs wait for each other: with more work or on
 * parts of the cluster; without and with such a cap. Then the two as they are where nodes that no
 * job had for 10 minutes are switched off and take 2 to wake (assumed), the former also under caps
 * of 100 and 80 kW. The last are made-up traces: growing in jobs and GPUs, and the time of one
 * decision where all jobs are there at once, without and with such a cap. Skips all but those where
 * the data is not here.
 *
 * Usage: bench_cluster            the published comparison but for Philly's whole trace with all
 *                                 iterations, and the last but for the largest: half a minute
 *        bench_cluster --all      all of them: minutes
 *        bench_cluster --loaded   those where jobs wait for each other
 *        bench_cluster --saving   those with nodes that are switched off
 *        bench_cluster POLICY     the last for this policy
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "cluster/simulate/simulation.h"
#include "cluster_bounds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define ROUNDS_S (2000 * 300.0)

static _Noreturn void stop(const struct erg_error *err)
{
    fprintf(stderr, "bench_cluster: %s\n", err->message);
    exit(1);
}

/* What a run did, over all jobs, ended or not. */
static double joules_per_sample(const struct erg_simulation *simulation,
                                const struct erg_simulated *result)
{
    double samples = 0;
    for (size_t i = 0; i < result->jobs_count; i++) {
        const struct erg_trace_workload *workload =
            &simulation->trace->workloads[simulation->trace->jobs[i].workload];
        if (result->jobs[i].state != ERG_JOB_FUTURE)
            samples +=
                (result->jobs[i].iterations - result->jobs[i].remaining) * (double)workload->batch;
    }
    return result->summary.energy_j / samples;
}

/* All policies, each paying for restarts what the cluster's file says. */
static void compare(const struct erg_simulation *simulation)
{
    printf("%-15s %8s %12s %15s %11s %10s %9s %8s %17s %8s %7s%s\n", "policy", "finished",
           "mean JCT, s", "mean in system", "p99 JCT, s", "samples/s", "J/sample", "most kW",
           "fairness (worst)", "restarts", "CPU, s",
           simulation->fleet->saves_power ? "   off  woken" : "");
    double least_jct_s = INFINITY;
    print_bounds(simulation);
    for (size_t i = 0; erg_policies[i]; i++) {
        struct erg_simulation run = *simulation;
        struct erg_simulated result;
        struct erg_error err;
        run.policy = erg_policies[i];
        if (erg_simulate(&result, &run, &err) != 0)
            stop(&err);
        const struct erg_summary *summary = &result.summary;
        if (!summary->finished_jobs)
            printf("%-15s     none", run.policy->name);
        else
            printf("%-15s %8ld %12.0f %15.0f %11.0f %10.0f %9.2f %8.0f %9.2f (%5.1f) %8ld %7.2f",
                   run.policy->name, summary->finished_jobs, summary->mean_jct_s,
                   summary->mean_time_in_system_s, summary->p99_jct_s, summary->mean_throughput,
                   joules_per_sample(&run, &result), summary->peak_power_w / 1e3,
                   summary->mean_finish_time_fairness, summary->worst_finish_time_fairness,
                   summary->reconfigurations, summary->cpu_s);
        if (run.fleet->saves_power)
            printf(" %4.1f%% %6.0f",
                   100 * summary->off_gpu_s / (run.fleet->gpus * summary->simulated_s),
                   summary->wake_ups);
        putchar('\n');
        if (strncmp(run.policy->name, "ergon", 5) != 0)
            least_jct_s = fmin(least_jct_s, summary->mean_time_in_system_s);
        fflush(stdout);
        erg_simulated_release(&result);
    }
    if (simulation->fleet->saves_power)
        printf("At the least mean JCT of the others a sample takes at least %.2f J, whatever is "
               "done.\n",
               least_joules_at(simulation, least_jct_s));
}

/* Watts of all GPUs at work whose clocks are lowered that much. */
static double power_at(const struct erg_fleet *fleet, double slowdown)
{
    double power_w = 0;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        const struct erg_speed speed = {.points = type->points,
                                        .points_count = (int)type->points_count};
        power_w += type->nodes * type->gpus_per_node *
                   erg_speed_power(&speed, type->idle_power_w, slowdown);
    }
    return power_w;
}

/* Leaves each GPU the one clock at which all of them at work draw so much. */
static void cap_clocks(struct erg_fleet *fleet, double power_w)
{
    double fast = 1, slow = 10;
    for (int step = 0; step < 60; step++) {
        double middle = (fast + slow) / 2;
        *(power_at(fleet, middle) > power_w ? &fast : &slow) = middle;
    }
    for (unsigned t = 0; t < fleet->types_count; t++) {
        struct erg_gpu_type *type = &fleet->types[t];
        const struct erg_speed speed = {.points = type->points,
                                        .points_count = (int)type->points_count};
        double type_w = erg_speed_power(&speed, type->idle_power_w, slow);
        type->points[0] = (struct erg_operating_point){slow, type_w};
        type->points_count = 1;
    }
}

enum capping { NO_CAP, AT_EVERY_MOMENT, FOR_GOOD, NODES_OFF };
#define CAP 0.7

/* Leaves a part of each type's nodes. */
static void divide(struct erg_fleet *fleet, int by)
{
    fleet->nodes = fleet->gpus = 0;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        struct erg_gpu_type *type = &fleet->types[t];
        type->first_node = fleet->nodes;
        type->nodes = (type->nodes + by / 2) / by;
        fleet->nodes += type->nodes;
        fleet->gpus += type->nodes * type->gpus_per_node;
    }
}

/* Runs a comparison on one of the published traces and a part of the cluster; false where the data
 * is not here. */
static bool on_part(const char *name, int part, struct erg_simulation simulation,
                    enum capping capping, void (*run)(const struct erg_simulation *))
{
    char folder[4000], path[4096];
    const char *root = getenv("ERGON_SHARED_DATA"), *shared = root ? root : ERGON_TEST_SHARED_DATA;
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_speeds *speeds;
    struct erg_error err;
    snprintf(folder, sizeof folder, "%s/arena", shared);
    snprintf(path, sizeof path, "%s/traces/simulate_trace_%s.csv", folder, name);
    if (access(path, R_OK) != 0) {
        printf("The published traces are skipped: %s is not here.\n", path);
        return false;
    }
    if (erg_fleet_load(&fleet, ERGON_TEST_SOURCE_DIR "/examples/arena/cluster-1280.yaml", &err) ||
        erg_job_trace_load(&trace, path, fleet, &err))
        stop(&err);
    divide(fleet, part);
    double cap_w = CAP * power_at(fleet, 1);
    if (capping == FOR_GOOD)
        cap_clocks(fleet, cap_w);
    if (erg_speeds_load(&speeds, folder, fleet, trace, &err))
        stop(&err);
    simulation.fleet = fleet;
    simulation.trace = trace;
    simulation.speeds = speeds;
    if (capping != NODES_OFF)
        simulation.power_cap_w = capping == AT_EVERY_MOMENT ? cap_w : INFINITY;
    fleet->saves_power = capping == NODES_OFF;
    fleet->power_saving = (struct erg_power_saving){600, 120};
    run(&simulation);
    erg_speeds_free(speeds);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
    return true;
}

static bool on_trace(const char *name, struct erg_simulation simulation, enum capping capping,
                     void (*run)(const struct erg_simulation *))
{
    return on_part(name, 1, simulation, capping, run);
}

/* The numbers of the README. */
static void compare_example(void)
{
    static const char folder[] = ERGON_TEST_SOURCE_DIR "/examples/cluster";
    static const char *const policies[] = {"ergon", "sia", "fcfs"};
    struct erg_simulation simulation = {.work = 1, .until_s = INFINITY, .power_cap_w = INFINITY};
    char path[4096];
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_speeds *speeds;
    struct erg_error err;
    snprintf(path, sizeof path, "%s/cluster.yaml", folder);
    if (erg_fleet_load(&fleet, path, &err) != 0)
        stop(&err);
    snprintf(path, sizeof path, "%s/trace.csv", folder);
    if (erg_job_trace_load(&trace, path, fleet, &err) != 0)
        stop(&err);
    snprintf(path, sizeof path, "%s/profiles", folder);
    if (erg_speeds_load(&speeds, path, fleet, trace, &err) != 0)
        stop(&err);
    simulation.fleet = fleet;
    simulation.trace = trace;
    simulation.speeds = speeds;
    for (size_t i = 0; i < COUNT(policies); i++) {
        struct erg_simulated result;
        if (erg_policy_find(&simulation.policy, policies[i], &err) != 0 ||
            erg_simulate(&result, &simulation, &err) != 0)
            stop(&err);
        printf("%zu jobs of examples/cluster, %s: mean completion %.1f h, %.1f GJ\n", trace->count,
               policies[i], result.summary.mean_jct_s / 3600, result.summary.energy_j / 1e9);
        erg_simulated_release(&result);
    }
    erg_speeds_free(speeds);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
}

static void compare_published(bool all)
{
    struct erg_simulation fair = {0};
    for (int part = 5; part > 0; part -= 4) {
        fair.work = 1.0 / part;
        for (int whole = 0; whole < 2; whole++) {
            if (whole && part == 1 && !all)
                continue;
            fair.until_s = whole ? INFINITY : ROUNDS_S;
            printf("\nPhilly, %s, %s of its iterations\n",
                   whole ? "until the last job has ended" : "2,000 rounds",
                   part == 1 ? "all" : "a fifth");
            if (!on_trace("philly", fair, NO_CAP, compare))
                return;
        }
        printf("\nHelios, until the last job has ended, %s of its iterations\n",
               part == 1 ? "all" : "a fifth");
        on_trace("venus", fair, NO_CAP, compare);
        printf("\nPAI, the same\n");
        on_trace("pai", fair, NO_CAP, compare);
    }
    fair.until_s = ROUNDS_S;
    for (double work = 0.2; all && work < 0.5; work *= 2) {
        fair.work = work;
        for (enum capping capping = AT_EVERY_MOMENT; capping <= FOR_GOOD; capping++) {
            printf("\nPhilly, %.0f fifth%s of its iterations, %.0f %% of the power, clocks capped "
                   "%s\n",
                   5 * work, work > 0.2 ? "s" : "", 100 * CAP,
                   capping == FOR_GOOD ? "for good" : "at every moment");
            on_trace("philly", fair, capping, compare);
        }
    }
}

/* The lighter traces where jobs wait for each other. */
static void compare_loaded(void)
{
    static const struct {
        const char *name, *trace;
        double work;
        int part;
    } loads[] = {{"Helios, five times its iterations, 1,280 GPUs", "venus", 5, 1},
                 {"Helios, all iterations, half of the GPUs", "venus", 1, 2},
                 {"Helios, all iterations, a quarter of the GPUs", "venus", 1, 4},
                 {"PAI, all iterations, an eighth of the GPUs", "pai", 1, 8}};
    for (size_t i = 0; i < COUNT(loads); i++) {
        struct erg_simulation fair = {.work = loads[i].work, .until_s = INFINITY};
        printf("\n%s\n", loads[i].name);
        if (!on_part(loads[i].trace, loads[i].part, fair, NO_CAP, compare))
            return;
        for (enum capping capping = AT_EVERY_MOMENT; capping <= FOR_GOOD; capping++) {
            printf("\nThe same, %.0f %% of the power, clocks capped %s\n", 100 * CAP,
                   capping == FOR_GOOD ? "for good" : "at every moment");
            on_part(loads[i].trace, loads[i].part, fair, capping, compare);
        }
    }
}

static void compare_saving(void)
{
    struct erg_simulation fair = {.until_s = INFINITY, .power_cap_w = INFINITY};
    for (int part = 5; part > 0; part -= 4) {
        fair.work = 1.0 / part;
        printf("\nHelios, %s of its iterations, nodes off after 10 minutes and up after 2\n",
               part == 1 ? "all" : "a fifth");
        if (!on_trace("venus", fair, NODES_OFF, compare))
            return;
        printf("\nPAI, the same\n");
        on_trace("pai", fair, NODES_OFF, compare);
    }
    fair.work = 0.2;
    for (fair.power_cap_w = 1e5; fair.power_cap_w > 7e4; fair.power_cap_w -= 2e4) {
        printf("\nHelios, a fifth of its iterations, the same below %g kW\n",
               fair.power_cap_w / 1e3);
        on_trace("venus", fair, NODES_OFF, compare);
    }
}

enum { WORKLOADS = 12 };

/* A cluster of four types with so many GPUs in all, and jobs that keep about 0.9 of it busy while
 * they come. */
struct made_up {
    struct erg_operating_point points[2];
    struct erg_gpu_type types[4];
    struct erg_fleet fleet;
    struct erg_trace_workload workloads[WORKLOADS];
    char *tenants[1];
    struct erg_job_trace trace;
    struct erg_speeds *speeds;
};

static void make_speeds(struct made_up *world, struct erg_rng *rng)
{
    static const int counts[] = {1, 2, 4, 8, 16};
    world->speeds = erg_speeds_new(&world->fleet, WORKLOADS, counts, COUNT(counts));
    for (int workload = 0; workload < WORKLOADS; workload++) {
        double base_s = 0.5 + 4 * erg_rng_uniform(rng), loss = 0.75 + 0.2 * erg_rng_uniform(rng);
        for (int shape = 0; shape < world->speeds->shapes_count; shape++) {
            const struct erg_gpu_shape *gpus = &world->speeds->shapes[shape];
            double time_s = base_s * (1 + 0.5 * gpus->type) * (0.9 + 0.1 * gpus->nodes) /
                            pow(erg_shape_gpus(gpus), loss);
            erg_speeds_set(world->speeds, workload, shape, 64 / time_s, time_s);
        }
    }
}

static void make_jobs(struct made_up *world, size_t jobs, struct erg_rng *rng)
{
    double at_s = 0;
    world->trace.jobs = erg_xcalloc(jobs, sizeof *world->trace.jobs);
    world->trace.count = jobs;
    for (size_t i = 0; i < jobs; i++) {
        struct erg_trace_job *job = &world->trace.jobs[i];
        char id[24];
        snprintf(id, sizeof id, "%zu", i);
        *job = (struct erg_trace_job){.id = erg_xstrdup(id),
                                      .submit_s = at_s,
                                      .deadline_s = INFINITY,
                                      .workload = (int)erg_rng_below(rng, WORKLOADS),
                                      .type = (int)erg_rng_below(rng, 4),
                                      .gpus = 1 << erg_rng_below(rng, 5),
                                      .line = i + 2};
        int shape = erg_speeds_best(world->speeds, job->type, job->gpus);
        double iteration_s = erg_speed_at(world->speeds, job->workload, shape)->iteration_s;
        double run_s = 3600 * exp(1.5 * erg_rng_normal(rng));
        job->iterations = ceil(run_s / iteration_s);
        /* 6.2 GPUs on average, 3600 e^(1.5^2 / 2) s. */
        at_s -= log(1 - erg_rng_uniform(rng)) * 6.2 * 3600 * exp(1.125) / (0.9 * world->fleet.gpus);
    }
}

static void make_world(struct made_up *world, size_t jobs, int gpus)
{
    static char names[4][8] = {"a", "b", "c", "d"}, tenant[] = "", path[] = "made up";
    static char family[] = "model", size[] = "1B";
    static const int node_gpus[] = {4, 8, 2, 2};
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    *world = (struct made_up){.points = {{1, 300}, {1.2, 200}}};
    for (int t = 0; t < 4; t++) {
        world->types[t] = (struct erg_gpu_type){.name = names[t],
                                                .nodes = gpus / 4 / node_gpus[t],
                                                .gpus_per_node = node_gpus[t],
                                                .memory_bytes = 80e9,
                                                .idle_power_w = 50,
                                                .points = world->points,
                                                .points_count = 2,
                                                .first_node = world->fleet.nodes};
        world->fleet.nodes += world->types[t].nodes;
        world->fleet.gpus += world->types[t].nodes * node_gpus[t];
    }
    world->fleet.types = world->types;
    world->fleet.types_count = 4;
    world->fleet.reconfiguration =
        (struct erg_reconfiguration){.fixed_s = 60, .per_gpu_s = 0, .most_s = 600};
    world->fleet.checkpoint_interval_s = INFINITY;
    for (int i = 0; i < WORKLOADS; i++)
        world->workloads[i] = (struct erg_trace_workload){family, size, 64};
    world->tenants[0] = tenant;
    world->trace.path = path;
    world->trace.workloads = world->workloads;
    world->trace.workloads_count = WORKLOADS;
    world->trace.tenants = world->tenants;
    world->trace.tenants_count = 1;
    make_speeds(world, &rng);
    make_jobs(world, jobs, &rng);
}

static void release_world(struct made_up *world)
{
    for (size_t i = 0; i < world->trace.count; i++)
        free(world->trace.jobs[i].id);
    free(world->trace.jobs);
    erg_speeds_free(world->speeds);
}

static void grow(const char *policy, bool all)
{
    static const struct {
        size_t jobs;
        int gpus;
    } sizes[] = {{1000, 1280}, {10000, 1280}, {10000, 10000}, {100000, 10000}};
    printf("\nMade-up traces, %s\n%8s %7s %9s %9s %11s %12s %9s\n", policy, "jobs", "GPUs",
           "finished", "GPUs busy", "CPU, s", "us per job", "MB most");
    for (size_t i = 0; i < COUNT(sizes) - !all; i++) {
        struct made_up world;
        struct erg_simulated result;
        struct erg_error err;
        struct rusage usage;
        make_world(&world, sizes[i].jobs, sizes[i].gpus);
        struct erg_simulation simulation = {.fleet = &world.fleet,
                                            .trace = &world.trace,
                                            .speeds = world.speeds,
                                            .work = 1,
                                            .until_s = INFINITY,
                                            .power_cap_w = INFINITY};
        if (erg_policy_find(&simulation.policy, policy, &err) != 0 ||
            erg_simulate(&result, &simulation, &err) != 0)
            stop(&err);
        getrusage(RUSAGE_SELF, &usage);
        printf("%8zu %7d %9ld %8.1f%% %11.3f %12.2f %9.0f\n", sizes[i].jobs, sizes[i].gpus,
               result.summary.finished_jobs, 100 * result.summary.utilization, result.summary.cpu_s,
               1e6 * result.summary.cpu_s / (double)sizes[i].jobs, (double)usage.ru_maxrss / 1024);
        fflush(stdout);
        erg_simulated_release(&result);
        release_world(&world);
    }
}

/* A policy whose decisions are timed. */
static struct {
    const struct erg_policy *policy;
    long decisions;
    double sum_s, first_s, longest_s;
} timed;

static int decide_timed(void *state, struct erg_scheduler *scheduler,
                        const struct erg_occasion *occasion, struct erg_error *err)
{
    double began_s = erg_cpu_seconds();
    int status = timed.policy->decide(state, scheduler, occasion, err);
    double took_s = erg_cpu_seconds() - began_s;
    if (timed.decisions++ == 0)
        timed.first_s = took_s;
    timed.sum_s += took_s;
    timed.longest_s = fmax(timed.longest_s, took_s);
    return status;
}

/* Decisions of the first day when all jobs are submitted at its beginning, under a cap of a share
 * of the power (INFINITY: none). */
static void decide(const char *name, double cap)
{
    enum { JOBS = 5000, GPUS = 10000 };
    struct made_up world;
    struct erg_simulated result;
    struct erg_error err;
    memset(&timed, 0, sizeof timed);
    if (erg_policy_find(&timed.policy, name, &err) != 0)
        stop(&err);
    struct erg_policy policy = *timed.policy;
    policy.decide = decide_timed;
    make_world(&world, JOBS, GPUS);
    for (size_t i = 0; i < world.trace.count; i++)
        world.trace.jobs[i].submit_s = 0;
    struct erg_simulation simulation = {.fleet = &world.fleet,
                                        .trace = &world.trace,
                                        .speeds = world.speeds,
                                        .policy = &policy,
                                        .work = 1,
                                        .until_s = 86400,
                                        .power_cap_w = cap * power_at(&world.fleet, 1)};
    if (erg_simulate(&result, &simulation, &err) != 0)
        stop(&err);
    printf(
        "\n%d jobs at once on %d GPUs, %s%s: the first decision %.1f ms of CPU time, the longest "
        "%.1f ms, mean of %ld calls in a day %.2f ms\n",
        JOBS, GPUS, name, isinf(cap) ? "" : ", power capped", 1e3 * timed.first_s,
        1e3 * timed.longest_s, timed.decisions, 1e3 * timed.sum_s / (double)timed.decisions);
    erg_simulated_release(&result);
    release_world(&world);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--saving")) {
        compare_saving();
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "--loaded")) {
        compare_loaded();
        return 0;
    }
    const bool all = argc > 1 && !strcmp(argv[1], "--all");
    const char *policy = argc > 1 && !all ? argv[1] : "ergon";
    if (argc < 2 || all) {
        compare_example();
        compare_published(all);
    }
    if (all) {
        compare_loaded();
        compare_saving();
        grow("fcfs", true);
        grow("tiresias", true);
    }
    grow(policy, argc > 1);
    decide(policy, INFINITY);
    decide(policy, CAP);
    return 0;
}
