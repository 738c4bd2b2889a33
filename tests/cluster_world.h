/*
 * Worlds for tests of the simulator and of policies: a small cluster, jobs and speeds without
 * files.
 */
#ifndef ERGON_TESTS_CLUSTER_WORLD_H
#define ERGON_TESTS_CLUSTER_WORLD_H

#include "base/random.h"
#include "check.h"
#include "cluster/simulate/simulation.h"

/* A world without files: two types, speeds as set by the test. */
struct world {
    struct erg_operating_point points[2];
    struct erg_gpu_type types[2];
    struct erg_fleet fleet;
    struct erg_trace_job jobs[200];
    struct erg_trace_workload workloads[3];
    char *tenants[1];
    struct erg_job_trace trace;
    struct erg_speeds *speeds;
    struct erg_outage outages[4];
    struct erg_simulation simulation;
};

static char bert[] = "bert", moe[] = "moe", gpt[] = "gpt", size_1b[] = "1B", big[] = "big";
static char small[] = "small", trace_path[] = "trace.csv";
static const int counts[] = {1, 2, 4, 8};

/* 2 nodes of 4 GPUs at 100 W, idle 10 W, or 60 W at half the speed; 4 nodes of 2 at 50 W, idle 5 W.
 */
static inline void make_world(struct world *world)
{
    *world = (struct world){
        .points = {{1, 100}, {2, 60}},
        .workloads = {{bert, size_1b, 12}, {moe, size_1b, 10}, {gpt, size_1b, 8}},
    };
    world->types[0] = (struct erg_gpu_type){.name = big,
                                            .nodes = 2,
                                            .gpus_per_node = 4,
                                            .memory_bytes = 80e9,
                                            .idle_power_w = 10,
                                            .points = world->points,
                                            .points_count = 2};
    static struct erg_operating_point small_point = {1, 50};
    world->types[1] = (struct erg_gpu_type){.name = small,
                                            .nodes = 4,
                                            .gpus_per_node = 2,
                                            .memory_bytes = 24e9,
                                            .idle_power_w = 5,
                                            .points = &small_point,
                                            .points_count = 1,
                                            .first_node = 2};
    world->fleet =
        (struct erg_fleet){.types = world->types,
                           .types_count = 2,
                           .reconfiguration = {.fixed_s = 20, .per_gpu_s = 5, .most_s = 1000},
                           .checkpoint_interval_s = 50,
                           .nodes = 6,
                           .gpus = 16};
    world->trace = (struct erg_job_trace){.path = trace_path,
                                          .jobs = world->jobs,
                                          .workloads = world->workloads,
                                          .workloads_count = 3,
                                          .tenants = world->tenants,
                                          .tenants_count = 1};
    world->speeds = erg_speeds_new(&world->fleet, 3, counts, 4);
    world->simulation = (struct erg_simulation){.fleet = &world->fleet,
                                                .trace = &world->trace,
                                                .speeds = world->speeds,
                                                .work = 1,
                                                .until_s = INFINITY,
                                                .power_cap_w = INFINITY,
                                                .outages = world->outages,
                                                .keep_events = true,
                                                .keep_samples = true};
}

static inline void add_job(struct world *world, double submit_s, double iterations, int type,
                           int gpus)
{
    static char ids[200][8];
    size_t index = world->trace.count++;
    snprintf(ids[index], sizeof ids[index], "%zu", index);
    world->jobs[index] = (struct erg_trace_job){.id = ids[index],
                                                .submit_s = submit_s,
                                                .deadline_s = INFINITY,
                                                .iterations = iterations,
                                                .type = type,
                                                .gpus = gpus,
                                                .line = index + 2};
    if (index == 0 || submit_s < world->trace.first_submit_s)
        world->trace.first_submit_s = submit_s;
}

/* A workload on a shape: seconds of an iteration. */
static inline void set_time(struct world *world, int workload, int type, int nodes, int gpus,
                            double iteration_s)
{
    int shape = erg_speeds_shape(world->speeds, type, nodes, gpus);
    assert_true(shape >= 0);
    erg_speeds_set(world->speeds, workload, shape,
                   (double)world->workloads[workload].batch / iteration_s, iteration_s);
}

static inline void simulate(struct erg_simulated *result, struct world *world, const char *policy)
{
    struct erg_error err;
    assert_ok(erg_policy_find(&world->simulation.policy, policy, &err), &err);
    assert_ok(erg_simulate(result, &world->simulation, &err), &err);
}

/* The first record of a kind that a job has. */
static inline const struct erg_cluster_record *first_record(const struct erg_simulated *result,
                                                            enum erg_record_kind kind, int job)
{
    for (size_t i = 0; i < result->records_count; i++)
        if (result->records[i].kind == kind && result->records[i].job == job)
            return &result->records[i];
    fail_msg("job %d has no record of kind %d", job, (int)kind);
    return NULL;
}

static inline void assert_same_course(const struct erg_simulated *a, const struct erg_simulated *b)
{
    assert_int_equal(a->samples_count, b->samples_count);
    for (size_t i = 0; i < a->samples_count; i++) {
        const struct erg_cluster_sample *x = &a->samples[i], *y = &b->samples[i];
        assert_true(x->at_s == y->at_s && x->samples_per_s == y->samples_per_s &&
                    x->power_w == y->power_w);
        assert_true(x->running == y->running && x->waiting == y->waiting &&
                    x->busy_gpus == y->busy_gpus && x->down_gpus == y->down_gpus &&
                    x->off_gpus == y->off_gpus);
    }
}

static inline void make_random(struct world *world, struct erg_rng *rng)
{
    make_world(world);
    for (int workload = 0; workload < 3; workload++)
        for (int shape = 0; shape < world->speeds->shapes_count; shape++) {
            const struct erg_gpu_shape *gpus = &world->speeds->shapes[shape];
            if (erg_shape_gpus(gpus) > 1 && erg_rng_uniform(rng) < 0.2)
                continue;
            set_time(world, workload, gpus->type, gpus->nodes, gpus->gpus_per_node,
                     (1 + erg_rng_uniform(rng)) * (1 + gpus->type) * (0.8 + 0.2 * gpus->nodes) *
                         30 / erg_shape_gpus(gpus));
        }
    double at_s = 50;
    size_t jobs = 20 + erg_rng_below(rng, 100);
    for (size_t i = 0; i < jobs; i++) {
        at_s += erg_rng_uniform(rng) < 0.3 ? 0 : 200 * erg_rng_uniform(rng);
        add_job(world, at_s, 1 + (double)erg_rng_below(rng, 200), (int)erg_rng_below(rng, 3) - 1,
                counts[erg_rng_below(rng, 4)]);
        world->jobs[i].workload = (int)erg_rng_below(rng, 3);
        if (erg_rng_uniform(rng) < 0.5)
            world->jobs[i].deadline_s = at_s + 10000 * erg_rng_uniform(rng);
    }
    world->outages[0] = (struct erg_outage){0, 500, 900};
    world->outages[1] = (struct erg_outage){5, 800, 2000};
    world->outages[2] = (struct erg_outage){5, 2000, 2100};
    world->simulation.outages_count = 3;
}

#endif
