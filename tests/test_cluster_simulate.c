/*
 * The simulator: small cases worked out by hand, and what must hold for any policy on any cluster.
 */
#include "cluster/policies/policies.h"
#include "cluster/simulate/comparison.h"
#include "cluster/simulate/gpu_uses.h"
#include "cluster/simulate/results.h"
#include "cluster_world.h"

static void test_one_job_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 1000, 10, 0, 4);
    simulate(&result, &world, "fcfs");
    /* 20 s + 4 x 5 s until it runs, 10 x 3 s to its end. */
    assert_near(result.jobs[0].started_s, 0, 0);
    assert_near(result.jobs[0].ended_s, 70, 1e-9);
    assert_near(result.jobs[0].gpu_s, 280, 1e-9);
    assert_near(result.jobs[0].lost_s, 160, 1e-9);
    assert_near(result.jobs[0].energy_j, 4 * (40 * 10 + 30 * 100), 1e-9);
    /* The other 4 GPUs of the type and 8 small ones idle for 70 s. */
    assert_near(result.summary.energy_j, 13600 + 70 * (4 * 10 + 8 * 5), 1e-9);
    assert_near(result.summary.peak_power_w, 4 * 100 + 4 * 10 + 8 * 5, 1e-9);
    assert_near(result.summary.peak_throughput, 4, 1e-12);
    assert_near(result.summary.mean_throughput, 10 * 12 / 70.0, 1e-12);
    assert_near(result.summary.mean_slowdown, 70 / 30.0, 1e-12);
    assert_near(result.summary.utilization, 280 / (16 * 70.0), 1e-12);
    assert_near(result.summary.mean_queue_s, 0, 0);
    assert_true(isnan(result.summary.deadlines_met));
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Where no file has powers, energy is not known, which is not 0. */
static void test_without_powers(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].idle_power_w = world.types[1].idle_power_w = 0;
    world.points[0].power_w = world.points[1].power_w = 0;
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 1000, 10, 0, 4);
    simulate(&result, &world, "fcfs");
    assert_true(isnan(result.summary.energy_j) && isnan(result.summary.peak_power_w));
    json_t *document = erg_simulated_document(&result, &world.simulation);
    assert_true(json_is_null(json_object_get(document, "energy_j")));
    assert_true(json_is_null(json_object_get(document, "peak_power_w")));
    json_decref(document);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

static void test_queue_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.fleet.reconfiguration = (struct erg_reconfiguration){0};
    set_time(&world, 0, 0, 2, 4, 1);
    set_time(&world, 0, 0, 1, 4, 2);
    set_time(&world, 0, 0, 2, 2, 4);
    set_time(&world, 0, 1, 1, 2, 1);
    set_time(&world, 0, 0, 1, 2, 1);
    add_job(&world, 0, 10, 0, 2);  /* 0 to 10 on one node */
    add_job(&world, 1, 6, 0, 2);   /* 1 to 7 on the node with most free GPUs */
    add_job(&world, 2, 5, 0, 4);   /* needs a whole node, or two halves when relaxed */
    add_job(&world, 3, 100, 0, 2); /* may not overtake */
    add_job(&world, 3, 2, 1, 2);   /* of another type */
    world.jobs[1].deadline_s = 7;
    world.jobs[3].deadline_s = 10;
    world.simulation.until_s = 20;
    simulate(&result, &world, "fcfs");
    assert_near(result.jobs[1].ended_s, 7, 1e-9);
    assert_near(result.jobs[2].started_s, 7, 1e-9);
    assert_near(result.jobs[2].ended_s, 17, 1e-9);
    assert_near(result.jobs[3].started_s, 7, 1e-9);
    assert_near(result.jobs[3].remaining, 87, 1e-9);
    assert_near(result.jobs[4].ended_s, 5, 1e-9);
    assert_int_equal(result.summary.finished_jobs, 4);
    assert_near(result.summary.mean_queue_s, (5 + 4) / 5.0, 1e-9);
    assert_near(result.summary.mean_jct_s, (10 + 6 + 15 + 2) / 4.0, 1e-9);
    assert_near(result.summary.median_jct_s, 8, 1e-9);
    assert_near(result.summary.mean_time_in_system_s, (10 + 6 + 15 + 17 + 2) / 5.0, 1e-9);
    assert_near(result.summary.deadlines_met, 0.5, 0);
    erg_simulated_release(&result);
    simulate(&result, &world, "fcfs-relaxed");
    assert_near(result.jobs[2].started_s, 2, 1e-9);
    assert_near(result.jobs[3].started_s, 7, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Three jobs that each want all big GPUs, half of the cluster, for 10 s. */
static void test_fairness_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.fleet.reconfiguration = (struct erg_reconfiguration){0};
    set_time(&world, 0, 0, 2, 4, 1);
    for (int i = 0; i < 3; i++)
        add_job(&world, 0, 10, 0, 8);
    simulate(&result, &world, "fcfs");
    /* 3, 2.5 and 2 jobs in the mean of their times: a share of its own would have taken each 15,
     * 12.5 and 10 s. */
    assert_near(result.jobs[0].jobs_present, 3, 1e-12);
    assert_near(result.jobs[1].jobs_present, 2.5, 1e-12);
    assert_near(result.summary.mean_finish_time_fairness, (10 / 15.0 + 20 / 12.5 + 3) / 3, 1e-12);
    assert_near(result.summary.worst_finish_time_fairness, 3, 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

static void test_failure_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 2, 4, 1);
    add_job(&world, 0, 200, 0, 8);
    /* It runs from 60 on; checkpoints at 110 and 160. At 170 a node fails: 100 of 200 are left, and
     * only when the node is back at 300 are there 8 GPUs. */
    world.outages[0] = (struct erg_outage){1, 170, 300};
    world.outages[1] = (struct erg_outage){4, 10, INFINITY};
    world.simulation.outages_count = 2;
    simulate(&result, &world, "fcfs");
    assert_near(result.jobs[0].ended_s, 300 + 60 + 100, 1e-9);
    assert_near(result.jobs[0].queued_s, 130, 1e-9);
    assert_int_equal(result.jobs[0].reconfigurations, 2);
    double up_gpu_s = 460 * 16.0 - 130 * 4 - 450 * 2;
    assert_near(result.summary.utilization, (170 + 160) * 8 / up_gpu_s, 1e-12);
    /* Two restarts of 60 s, and 10 s of work since the last checkpoint. */
    assert_near(result.jobs[0].lost_s, 2 * 60 * 8, 1e-9);
    assert_near(result.jobs[0].undone_s, 10 * 8, 1e-9);
    assert_near(result.summary.reconfiguration_gpu_s, 2 * 60 * 8, 1e-9);
    assert_near(result.summary.undone_gpu_s, 10 * 8, 1e-9);
    assert_near(result.summary.goodput, 200 * 8 / up_gpu_s, 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Free GPUs beside a job's are in pieces; samples of different models are told apart. */
static void test_fragmentation_and_families_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.fleet.reconfiguration = (struct erg_reconfiguration){0};
    set_time(&world, 0, 0, 1, 2, 1);
    set_time(&world, 1, 0, 1, 4, 2);
    add_job(&world, 0, 10, 0, 2);
    add_job(&world, 0, 10, 0, 4);
    world.jobs[1].workload = 1;
    simulate(&result, &world, "fcfs");
    /* 10 of 16 GPUs are free for 10 s, 2 of them beside the first job; then 12, all on idle
     * nodes. */
    assert_near(result.summary.fragmentation, 2 * 10 / (10 * 10 + 12 * 10.0), 1e-12);
    assert_int_equal(result.families_count, 2); /* nothing of the third was submitted */
    assert_string_equal(result.families[0].name, "bert");
    assert_int_equal(result.families[0].submitted_jobs, 1);
    assert_int_equal(result.families[0].finished_jobs, 1);
    assert_near(result.families[0].mean_throughput, 12 * 10 / 20.0, 1e-12);
    assert_near(result.families[0].peak_throughput, 12, 1e-12);
    assert_string_equal(result.families[1].name, "moe");
    assert_near(result.families[1].mean_throughput, 10 * 10 / 20.0, 1e-12);
    assert_near(result.families[1].peak_throughput, 5, 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* A job that fits nothing is turned away; so is one that a policy cannot run as asked, which is not
 * the same. */
static void test_jobs_that_fit_nowhere(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 1);
    add_job(&world, 0, 10, 0, 4);
    add_job(&world, 0, 10, 0, 4);
    world.jobs[1].workload = 1;
    add_job(&world, 0, 10, 1, 2); /* runs on no small GPUs */
    add_job(&world, 0, 10, 0, 8);
    simulate(&result, &world, "fcfs");
    assert_int_equal(result.jobs[0].state, ERG_JOB_ENDED);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(result.jobs[i].state, ERG_JOB_REJECTED);
        assert_int_equal(result.jobs[i].runnable, i > 1);
    }
    assert_int_equal(result.summary.rejected_jobs, 3);
    assert_int_equal(result.summary.unrunnable_jobs, 1);
    assert_int_equal(result.unserved_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(result.unserved[i].job, i + 1);
        assert_int_equal(result.unserved[i].fate,
                         i == 0 ? ERG_UNSERVED_NOWHERE : ERG_UNSERVED_TURNED_AWAY);
    }
    erg_simulated_release(&result);
    struct erg_error err;
    const struct erg_policy *policy;
    assert_fails(erg_policy_find(&policy, "fcsf", &err), &err,
                 "unknown policy 'fcsf'; expected one of");
    erg_speeds_free(world.speeds);
}

/* 40 s cost 0.1 USD a kWh, then 20 s 0.3, and again. */
static void test_tariff_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    struct erg_rate rates[] = {{0, 0.1, 500}, {40, 0.3, 100}};
    const struct erg_tariff tariff = {.items = rates, .count = 2, .period_s = 60};
    double until_s;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 1000, 10, 0, 4);
    world.simulation.tariff = &tariff;
    assert_near(erg_tariff_at(&tariff, 99.5, &until_s)->usd_per_kwh, 0.1, 0);
    assert_near(until_s, 100, 0);
    assert_near(erg_tariff_at(&tariff, 100, &until_s)->usd_per_kwh, 0.3, 0);
    assert_near(until_s, 120, 0);
    assert_close(erg_tariff_relative(&tariff, 0), (0.1 / (10 / 60.0) + 500 / (22000 / 60.0)) / 2,
                 1e-12);
    assert_close(erg_tariff_relative(&tariff, 100), (0.3 / (10 / 60.0) + 100 / (22000 / 60.0)) / 2,
                 1e-12);
    simulate(&result, &world, "fcfs");
    /* 120 W until the job has restarted at 40 s, then 480 W until 70 s. */
    assert_close(result.summary.cost_usd,
                 (40 * 120 * 0.1 + 20 * 480 * 0.3 + 10 * 480 * 0.1) / 3.6e6, 1e-12);
    assert_close(result.summary.co2_kg, (40 * 120 * 500 + 20 * 480 * 100 + 10 * 480 * 500) / 3.6e9,
                 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* First come, first served, but every 100 s only. */
/* Four GPUs are twice as fast as one: half of the time they wait, at 30 W. */
static void test_waiting_by_hand(void **state)
{
    struct world world;
    struct erg_simulated result;
    (void)state;
    make_world(&world);
    world.types[0].waiting_power_w = 30;
    set_time(&world, 0, 0, 1, 1, 10);
    set_time(&world, 0, 0, 1, 4, 5);
    set_time(&world, 0, 0, 2, 2, 8);
    set_time(&world, 0, 0, 2, 4, 1); /* more than 8 times as fast as one GPU */
    set_time(&world, 0, 1, 4, 1, 100);
    set_time(&world, 0, 1, 1, 1, 10);
    erg_speeds_find_waiting(world.speeds);
    static const struct {
        int type, nodes, gpus;
        double busy;
    } shapes[] = {{0, 1, 1, 1}, {0, 1, 4, 0.5}, {0, 2, 2, 0.3125}, {0, 2, 4, 1}, {1, 4, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int shape = erg_speeds_shape(world.speeds, shapes[i].type, shapes[i].nodes, shapes[i].gpus);
        const struct erg_speed *speed = erg_speed_at(world.speeds, 0, shape);
        assert_close(speed->busy, shapes[i].busy, 1e-12);
    }
    const struct erg_speed *half =
        erg_speed_at(world.speeds, 0, erg_speeds_shape(world.speeds, 0, 1, 4));
    assert_close(half->points[0].power_w, 0.5 * 100 + 0.5 * 30, 1e-12);
    assert_near(half->points[0].slowdown, 1, 0);
    assert_close(half->points[1].slowdown, 1.5, 1e-12);
    assert_close(half->points[1].power_w, (1.0 * 60 + 0.5 * 30) / 1.5, 1e-12);
    /* Clocks lower by a third: 0.8 of the speed, between 65 W at 1 and 50 W at 2 / 3. */
    assert_close(erg_speed_slowdown(half, 0, 1.5), 1.25, 1e-12);
    assert_close(erg_speed_power(half, 10, 1.25), 50 + (0.8 - 2 / 3.0) * 3 * 15, 1e-12);
    add_job(&world, 0, 10, 0, 4);
    simulate(&result, &world, "fcfs"); /* 40 s of restart */
    assert_close(result.jobs[0].energy_j, 4 * (40 * 10 + 50 * 65), 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/*
 * 1,200 W at the most: 8 big GPUs at 100 W, or 60 W at half the speed, 8 small ones at 50 W; 120 W
 * idle. Two jobs of 8 GPUs below 640 W.
 */
static void test_power_cap_by_hand(void **state)
{
    struct world world;
    struct erg_simulated result;
    struct erg_error err;
    (void)state;
    make_world(&world);
    world.fleet.reconfiguration =
        (struct erg_reconfiguration){.fixed_s = 0, .per_gpu_s = 0, .most_s = 0};
    set_time(&world, 0, 0, 2, 4, 1);
    set_time(&world, 0, 1, 4, 2, 1);
    add_job(&world, 0, 100, 0, 8);
    add_job(&world, 0, 50, 1, 8);
    world.simulation.power_cap_w = 640;
    simulate(&result, &world, "fcfs");
    /* At the share s of full speed the big ones draw 20 + 80 s from 0.5 on, the small ones 5 + 45
     * s: 8 (25 + 125 s) = 640 at s = 0.44, where the big ones are slower than their slowest point:
     * they take turns with idling and draw 10 + 100 s, so 8 (15 + 145 s) = 640 at s = 65 / 145. */
    double s = 65 / 145.0, ends_s = 50 / s;
    assert_close(result.jobs[1].ended_s, ends_s, 1e-6);
    assert_close(result.jobs[1].energy_j, 8 * (5 + 45 * s) * ends_s, 1e-6);
    /* Then the small ones idle, and the big ones may draw 600 W: 8 (20 + 80 s) = 600. */
    double then = 55 / 80.0;
    assert_close(result.jobs[0].ended_s, ends_s + 50 / then, 1e-6);
    assert_close(result.summary.peak_power_w, 640, 1e-6);
    assert_true(result.summary.peak_power_w <= 640);
    assert_close(result.summary.throttled_s, ends_s + 50 / then, 1e-6);
    assert_close(result.summary.energy_j, 640 * (ends_s + 50 / then), 1e-6);
    erg_simulated_release(&result);
    world.simulation.power_cap_w = 120;
    assert_int_equal(erg_simulate(&result, &world.simulation, &err), -1);
    assert_non_null(strstr(err.message, "a power cap of 120 W cannot be kept"));
    erg_speeds_free(world.speeds);
}

/* A slower pace is no checkpoint: those at every 50 s stay where they are. */
static void test_failure_under_a_cap(void **state)
{
    struct world world;
    struct erg_simulated result;
    (void)state;
    make_world(&world);
    world.fleet.reconfiguration =
        (struct erg_reconfiguration){.fixed_s = 0, .per_gpu_s = 0, .most_s = 0};
    world.simulation.outages_count = 1;
    world.outages[0] = (struct erg_outage){0, 190, 1000};
    set_time(&world, 0, 0, 1, 4, 1);
    set_time(&world, 0, 1, 1, 1, 1);
    add_job(&world, 0, 300, 0, 4);
    add_job(&world, 170, 1e4, 0, 4);
    world.simulation.power_cap_w = 640; /* two jobs: 8 (20 + 80 s) + 8 x 5 = 640 */
    world.simulation.until_s = 195;
    simulate(&result, &world, "fcfs");
    /* Of the first job's 170 + 20 x 0.6875 iterations the 150 of the last checkpoint are left. */
    assert_close(result.jobs[0].remaining, 300 - 150, 1e-9);
    assert_close(result.jobs[1].remaining, 1e4 - 20 * 55 / 80.0 - 5, 1e-6);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

static void test_rounds_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    struct erg_error err;
    struct erg_policy rounds = erg_policy_fcfs;
    make_world(&world);
    world.fleet.reconfiguration = (struct erg_reconfiguration){0};
    set_time(&world, 0, 0, 2, 4, 1);
    set_time(&world, 1, 0, 1, 4, 1);
    add_job(&world, 0, 10, 0, 8);
    add_job(&world, 5, 250, 0, 8);
    add_job(&world, 6, 10, 0, 8);
    add_job(&world, 7, 10, 1, 8); /* cannot run there, nor anywhere else but where it did not ask */
    world.jobs[3].workload = 1;
    rounds.events = 0;
    rounds.round_s = 100;
    world.simulation.policy = &rounds;
    assert_ok(erg_simulate(&result, &world.simulation, &err), &err);
    assert_near(result.jobs[0].ended_s, 10, 1e-9);
    assert_near(result.jobs[1].started_s, 100, 0);
    assert_near(result.jobs[2].started_s, 400, 0);
    assert_int_equal(result.jobs[3].state, ERG_JOB_REJECTED);
    assert_near(result.summary.simulated_s, 410, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Runs another policy and looks at the cluster after each of its decisions, which it counts. */
static const struct erg_policy *watched;
static long decisions;

static void *watched_open(const struct erg_scheduler *scheduler, const void *rules)
{
    (void)rules;
    return watched->open ? watched->open(scheduler, watched->rules) : NULL;
}

static void watched_close(void *state)
{
    if (watched->close)
        watched->close(state);
}

static void check_cluster(const struct erg_scheduler *scheduler)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    int used = 0, owned = 0, up = 0, free = 0, running = 0, waiting = 0;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        running++;
        assert_int_equal(job->state, ERG_JOB_RUNNING);
        assert_true(erg_speed_feasible(erg_scheduler_speed(scheduler, id, job->shape)));
        assert_int_equal(erg_placement_gpus(&job->placement),
                         erg_shape_gpus(&scheduler->speeds->shapes[job->shape]));
        for (int i = 0; i < job->placement.count; i++) {
            const struct erg_slice *slice = &job->placement.slices[i];
            assert_false(occupancy->down[slice->node]);
            assert_true((occupancy->free[slice->node] & slice->gpus) == 0);
            for (int gpu = 0; gpu < ERG_NODE_GPUS_MOST; gpu++)
                if (slice->gpus >> gpu & 1) {
                    assert_int_equal(erg_occupancy_owner(occupancy, slice->node, gpu), id);
                    used++;
                }
        }
    }
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next) {
        waiting++;
        assert_int_equal(scheduler->jobs[id].state, ERG_JOB_WAITING);
        assert_int_equal(scheduler->jobs[id].placement.count, 0);
    }
    assert_int_equal(running, scheduler->running.count);
    assert_int_equal(waiting, scheduler->waiting.count);
    for (int node = 0; node < scheduler->fleet->nodes; node++) {
        int gpus = scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
        for (int gpu = 0; gpu < gpus; gpu++)
            owned += erg_occupancy_owner(occupancy, node, gpu) >= 0;
        up += occupancy->down[node] ? 0 : gpus;
    }
    for (unsigned type = 0; type < scheduler->fleet->types_count; type++)
        free += occupancy->free_gpus[type];
    assert_int_equal(used, owned);
    assert_int_equal(used + free, up);
}

/* Under FCFS the oldest job that waits for a type finds no room on it, unless one that names no
 * type waits, which nobody may overtake. */
static void check_conserving(const struct erg_scheduler *scheduler)
{
    int oldest[2] = {-1, -1};
    struct erg_placement room = {0};
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next) {
        int type = scheduler->jobs[id].request->type;
        if (type < 0)
            return;
        if (oldest[type] < 0 || id < oldest[type])
            oldest[type] = id;
    }
    for (int type = 0; type < 2; type++) {
        if (oldest[type] < 0)
            continue;
        int shape =
            erg_speeds_best(scheduler->speeds, type, scheduler->jobs[oldest[type]].request->gpus);
        assert_false(erg_occupancy_find(scheduler->occupancy, &scheduler->speeds->shapes[shape],
                                        ERG_MOST_FREE, &room));
    }
}

static int watched_decide(void *state, struct erg_scheduler *scheduler,
                          const struct erg_occasion *occasion, struct erg_error *err)
{
    int result = watched->decide(state, scheduler, occasion, err);
    decisions++;
    check_cluster(scheduler);
    if (watched == &erg_policy_fcfs)
        check_conserving(scheduler);
    return result;
}

static void check_result(const struct world *world, const struct erg_simulated *result)
{
    const struct erg_summary *summary = &result->summary;
    double jobs_j = 0, gpu_s = 0, power_j = 0, done = 0, counted = 0;
    for (size_t i = 0; i < result->jobs_count; i++) {
        const struct erg_job_result *job = &result->jobs[i];
        jobs_j += job->energy_j;
        gpu_s += job->gpu_s;
        if (!(job->remaining >= 0 && job->remaining <= job->iterations))
            fail_msg("%s: job %zu, state %d, has %g of %g iterations left", watched->name, i,
                     (int)job->state, job->remaining, job->iterations);
        if (job->state == ERG_JOB_ENDED) {
            assert_near(job->remaining, 0, 0);
            assert_true(job->ended_s > job->started_s && job->started_s >= job->submitted_s);
        }
        done += (job->iterations - job->remaining) *
                (double)world->workloads[world->jobs[i].workload].batch;
    }
    for (size_t i = 0; i < result->samples_count; i++) {
        const struct erg_cluster_sample *sample = &result->samples[i];
        bool last = i + 1 == result->samples_count;
        double passed_s = (last ? summary->simulated_s : sample[1].at_s) - sample->at_s;
        assert_true(last || passed_s > 0);
        power_j += sample->power_w * passed_s;
        counted += sample->samples_per_s * passed_s;
    }
    assert_close(power_j, summary->energy_j, 1e-9);
    assert_true(jobs_j <= summary->energy_j);
    assert_true(summary->peak_power_w <= world->simulation.power_cap_w * (1 + 1e-9));
    if (world->simulation.outages_count == 0)
        assert_close(gpu_s, summary->utilization * world->fleet.gpus * summary->simulated_s, 1e-9);
    assert_true(summary->utilization <= 1 + 1e-12 && summary->goodput <= summary->utilization);
    assert_false(summary->fragmentation < 0 || summary->fragmentation > 1 + 1e-12);
    assert_close(counted / summary->simulated_s, summary->mean_throughput, 1e-9);
    /* Without failures all samples that were counted are work done; failures lose some. */
    if (world->simulation.outages_count == 0)
        assert_close(counted, done, 1e-9);
    else
        assert_true(counted >= done * (1 - 1e-9));
}

/* Uses, single or by steps, add up to what jobs had, and no GPU serves two jobs. */
static void check_pictures(const struct world *world, const struct erg_simulated *result)
{
    struct erg_gpu_uses uses;
    double used_s = 0, had_s = 0, drawn_s = 0;
    erg_gpu_uses_read(&uses, result);
    for (size_t i = 0; i < uses.count; i++) {
        const struct erg_gpu_use *a = &uses.items[i];
        used_s += (a->to_s - a->from_s) * __builtin_popcountll(a->gpus.gpus);
        for (size_t k = 0; k < i; k++) {
            const struct erg_gpu_use *b = &uses.items[k];
            assert_false(a->gpus.node == b->gpus.node && a->gpus.gpus & b->gpus.gpus &&
                         a->from_s < b->to_s && b->from_s < a->to_s);
        }
    }
    erg_gpu_uses_release(&uses);
    for (size_t i = 0; i < result->jobs_count; i++)
        had_s += result->jobs[i].gpu_s;
    assert_close(used_s, had_s, 1e-9);
    json_t *document = erg_comparison_new(&world->simulation), *busy;
    erg_comparison_add(document, result, &world->simulation);
    json_t *policy = json_array_get(json_object_get(document, "policies"), 0);
    double step_s = json_number_value(json_object_get(policy, "step_s"));
    busy = json_object_get(json_object_get(policy, "course"), "busy_gpus");
    assert_int_equal(json_array_size(busy), ERG_COMPARISON_STEPS);
    for (size_t k = 0; k < ERG_COMPARISON_STEPS; k++)
        drawn_s += step_s * json_number_value(json_array_get(busy, k));
    assert_close(drawn_s, had_s, 1e-9);
    json_decref(document);
}

/* How often a policy is called does not grow with how long jobs run: one that is alone, and seven
 * of which only four at a time can run. */
static void test_long_jobs(void **state)
{
    (void)state;
    struct erg_policy watching = {
        .open = watched_open, .decide = watched_decide, .close = watched_close};
    for (size_t p = 0; erg_policies[p]; p++)
        for (int jobs = 1; jobs <= 7; jobs += 6) {
            struct world world;
            struct erg_simulated result;
            struct erg_error err;
            make_world(&world);
            set_time(&world, 0, 0, 1, 4, 1);
            set_time(&world, 0, 1, 2, 2, 1);
            for (int i = 0; i < jobs; i++)
                add_job(&world, 100 * i, jobs > 1 ? 1e10 : 1e12, -1, 4);
            watched = erg_policies[p];
            decisions = 0;
            watching.name = watched->name;
            watching.summary = watched->summary;
            watching.events = watched->events;
            watching.round_s = watched->round_s;
            world.simulation.policy = &watching;
            world.simulation.keep_events = world.simulation.keep_samples = false;
            assert_ok(erg_simulate(&result, &world.simulation, &err), &err);
            if (result.summary.finished_jobs != jobs || decisions > 10000 * jobs)
                fail_msg("%s, %d jobs: %ld ended after %ld decisions", watched->name, jobs,
                         result.summary.finished_jobs, decisions);
            if (jobs == 1)
                assert_true(result.jobs[0].ended_s >= 1e12 && result.jobs[0].ended_s < 2.1e12);
            erg_simulated_release(&result);
            erg_speeds_free(world.speeds);
        }
}

static void test_any_policy_on_any_cluster(void **state)
{
    (void)state;
    struct erg_policy watching = {
        .open = watched_open, .decide = watched_decide, .close = watched_close};
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    for (int round = 0; round < 12; round++) {
        struct world world;
        make_random(&world, &rng);
        for (size_t p = 0; erg_policies[p]; p++) {
            struct erg_simulated result, again;
            struct erg_error err;
            watched = erg_policies[p];
            watching.name = watched->name;
            watching.summary = watched->summary;
            watching.events = watched->events;
            watching.round_s = watched->round_s;
            world.simulation.policy = &watching;
            world.simulation.until_s = round % 3 == 2 ? 3000 : INFINITY;
            world.simulation.outages_count = round % 2 ? 0 : 3;
            /* All GPUs draw 1,200 W at most, and 120 W idle. */
            world.simulation.power_cap_w = round % 4 < 2 ? INFINITY : 150 + 80 * round;
            assert_ok(erg_simulate(&result, &world.simulation, &err), &err);
            check_result(&world, &result);
            check_pictures(&world, &result);
            assert_ok(erg_simulate(&again, &world.simulation, &err), &err);
            assert_int_equal(result.records_count, again.records_count);
            assert_same_course(&result, &again);
            erg_simulated_release(&result);
            erg_simulated_release(&again);
        }
        erg_speeds_free(world.speeds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_job_by_hand),
        cmocka_unit_test(test_without_powers),
        cmocka_unit_test(test_queue_by_hand),
        cmocka_unit_test(test_fairness_by_hand),
        cmocka_unit_test(test_failure_by_hand),
        cmocka_unit_test(test_fragmentation_and_families_by_hand),
        cmocka_unit_test(test_tariff_by_hand),
        cmocka_unit_test(test_waiting_by_hand),
        cmocka_unit_test(test_power_cap_by_hand),
        cmocka_unit_test(test_failure_under_a_cap),
        cmocka_unit_test(test_rounds_by_hand),
        cmocka_unit_test(test_jobs_that_fit_nowhere),
        cmocka_unit_test(test_long_jobs),
        cmocka_unit_test(test_any_policy_on_any_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
