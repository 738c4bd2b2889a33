/*
 * The scheduler as a live controller drives it: policies that are opened anew at any moment, jobs
 * that come one by one, GPUs of others, and agreement with the simulator.
 */
#include "cluster/policies/policies.h"
#include "cluster/schedule/scheduler_internal.h"
#include "cluster/schedule/throttle.h"
#include "folder.h"
#include "live_driver.h"

/* ---- policies that are closed and opened anew ---- */

/* Only the order in which Arena's queue takes in jobs that lost a node is not kept. */
static void test_reopened(void **state)
{
    (void)state;
    for (int p = 0; erg_policies[p]; p++) {
        bool exact = strncmp(erg_policies[p]->name, "arena", 5) != 0;
        for (unsigned seed = 0; seed < 6; seed++) {
            struct erg_rng rng;
            struct world world;
            struct erg_simulated kept, anew;
            erg_rng_seed(&rng, 100 + seed);
            make_random(&world, &rng);
            if (seed % 3 == 2)
                world.simulation.power_cap_w = 600;
            simulate(&kept, &world, erg_policies[p]->name);
            world.simulation.reopened_every = 1 + seed % 4;
            simulate(&anew, &world, erg_policies[p]->name);
            assert_int_equal(kept.summary.finished_jobs, anew.summary.finished_jobs);
            assert_near(anew.summary.mean_time_in_system_s / kept.summary.mean_time_in_system_s, 1,
                        exact ? 1e-12 : 0.05);
            for (size_t i = 0; i < world.trace.count && exact; i++)
                if (isnan(kept.jobs[i].ended_s))
                    assert_true(isnan(anew.jobs[i].ended_s));
                else
                    assert_near(anew.jobs[i].ended_s, kept.jobs[i].ended_s, 1e-6);
            erg_simulated_release(&kept);
            erg_simulated_release(&anew);
            erg_speeds_free(world.speeds);
        }
    }
}

/* ---- the simulator and the driver ---- */

/* Jobs that come one by one, and do as the fleet's file says, end as in the simulator; nearly so if
 * the controller dies in between, and policies begin anew with what they saved. */
static void test_as_simulated(void **state)
{
    (void)state;
    struct erg_tariff tariff = {0};
    struct erg_error err;
    write_text("tariff.csv", "at_s,usd_per_kwh,g_co2_per_kwh\n0,0.1,300\n700,0.4,100\n1800,,\n");
    assert_ok(erg_tariff_load(&tariff, in_folder("tariff.csv"), &err), &err);
    for (int p = 0; erg_policies[p]; p++)
        for (unsigned seed = 0; seed < 4; seed++) {
            struct erg_rng rng;
            struct world world;
            struct erg_simulated result;
            struct driver driver;
            double simulated_s = 0, live_s = 0;
            erg_rng_seed(&rng, 200 + seed);
            make_random(&world, &rng);
            world.simulation.outages_count = 0;
            world.simulation.tariff = seed == 1 ? &tariff : NULL;
            simulate(&result, &world, erg_policies[p]->name);
            make_driver(&driver, &world, erg_policies[p]->name);
            driver.restart_at = seed == 3 ? 20 : 0;
            while (step(&driver, INFINITY))
                continue;
            for (size_t i = 0; i < world.trace.count; i++) {
                double there_s = result.jobs[i].ended_s, here_s = driver.jobs[i].ended_s;
                bool ends = !isnan(there_s);
                if (seed != 3)
                    assert_int_equal(ends, here_s < INFINITY);
                if (!ends || !(here_s < INFINITY))
                    continue;
                if (seed != 3)
                    assert_near(here_s, there_s, 1e-3);
                simulated_s += there_s - result.jobs[i].submitted_s;
                live_s += here_s - result.jobs[i].submitted_s;
            }
            assert_near(live_s / simulated_s, 1, 0.02);
            release_driver(&driver);
            erg_simulated_release(&result);
            erg_speeds_free(world.speeds);
        }
    erg_tariff_release(&tariff);
}

/* ---- GPUs of others, nodes that drain, jobs that vanish ---- */

static uint64_t foreign_of[6], kept_of[6];

static void check_places(struct driver *driver)
{
    const struct erg_scheduler *scheduler = driver->scheduler;
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    uint64_t taken[6] = {0};
    int free[2] = {0};
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next)
        for (int i = 0; i < scheduler->jobs[id].placement.count; i++) {
            const struct erg_slice *slice = &scheduler->jobs[id].placement.slices[i];
            assert_false(occupancy->down[slice->node]);
            assert_true((taken[slice->node] & slice->gpus) == 0);
            assert_true((foreign_of[slice->node] & slice->gpus) == 0);
            if (occupancy->drains[slice->node])
                assert_true((slice->gpus & ~kept_of[slice->node]) == 0);
            taken[slice->node] |= slice->gpus;
        }
    for (int node = 0; node < 6; node++) {
        int type = occupancy->type_of[node];
        uint64_t all = node < 2 ? 15 : 3, left = all & ~taken[node] & ~foreign_of[node];
        if (occupancy->down[node] || occupancy->drains[node])
            left = 0;
        assert_true(occupancy->free[node] == left);
        free[type] += __builtin_popcountll(left);
    }
    for (int type = 0; type < 2; type++)
        assert_int_equal(occupancy->free_gpus[type], free[type]);
    if (isfinite(scheduler->live->power_cap_w)) {
        bool slowest = true;
        for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next)
            slowest &=
                erg_scheduler_point(scheduler, id) ==
                erg_scheduler_speed(scheduler, id, scheduler->jobs[id].shape)->points_count - 1;
        assert_true(slowest ||
                    erg_scheduler_power(scheduler) <= scheduler->live->power_cap_w * (1 + 1e-6));
    }
}

/* The job has no GPUs any more, and goes on from its checkpoint. */
static void lose(struct driver *driver, int id)
{
    struct real_job *real = &driver->jobs[index_of(driver, id)];
    real->done = real->saved;
    real->iteration_s = INFINITY;
    real->gpus = 0;
}

static int random_running(struct driver *driver, struct erg_rng *rng)
{
    const struct erg_scheduler *scheduler = driver->scheduler;
    int id = scheduler->running.first, skip = 0;
    if (scheduler->running.count > 0)
        skip = (int)erg_rng_below(rng, (unsigned)scheduler->running.count);
    while (skip-- > 0)
        id = scheduler->jobs[id].next;
    return id;
}

static void disturb(struct driver *driver, struct erg_rng *rng)
{
    struct erg_scheduler *scheduler = driver->scheduler;
    struct erg_occupancy *occupancy = scheduler->occupancy;
    int node = (int)erg_rng_below(rng, 6), id = random_running(driver, rng);
    int gpus = node < 2 ? 4 : 2;
    switch (erg_rng_below(rng, 8)) {
    case 0: { /* others come and go; what a job has stays its own */
        uint64_t wanted = erg_rng_below(rng, 16) & (node < 2 ? 15 : 3);
        erg_scheduler_set_foreign(scheduler, node, wanted);
        for (int gpu = 0; gpu < gpus; gpu++)
            if (erg_occupancy_owner(occupancy, node, gpu) >= 0)
                wanted &= ~((uint64_t)1 << gpu);
        foreign_of[node] = wanted;
        break;
    }
    case 1: {
        bool drains = !occupancy->drains[node];
        kept_of[node] = 0;
        for (int gpu = 0; gpu < gpus; gpu++)
            if (erg_occupancy_owner(occupancy, node, gpu) >= 0)
                kept_of[node] |= (uint64_t)1 << gpu;
        erg_scheduler_drain_node(scheduler, node, drains);
        break;
    }
    case 2:
        if (occupancy->down[node]) {
            erg_scheduler_repair_node(scheduler, node);
            break;
        }
        for (int gpu = 0; gpu < gpus; gpu++)
            if (erg_occupancy_owner(occupancy, node, gpu) >= 0)
                lose(driver, erg_occupancy_owner(occupancy, node, gpu));
        erg_scheduler_fail_node(scheduler, node);
        break;
    case 3:
        if (id >= 0) {
            lose(driver, id);
            erg_scheduler_evict(scheduler, id);
        }
        break;
    case 4: /* a job that waits is cancelled */
        if (scheduler->waiting.first >= 0) {
            id = scheduler->waiting.first;
            driver->jobs[index_of(driver, id)].ended_s = INFINITY;
            erg_scheduler_end(scheduler, id);
        }
        break;
    case 5: /* one fails, and is to be placed only later */
        if (id < 0)
            id = scheduler->waiting.first;
        if (id >= 0) {
            lose(driver, id);
            erg_scheduler_withdraw(scheduler, id);
            assert_int_equal(erg_scheduler_reason(scheduler, id), ERG_WAIT_ABSENT);
        }
        break;
    default: /* and comes back */
        for (size_t i = 0; i < scheduler->jobs_count; i++)
            if (scheduler->jobs[i].state == ERG_JOB_FUTURE) {
                erg_scheduler_arrive(scheduler, (int)i);
                break;
            }
    }
}

static void test_disturbed(void **state)
{
    (void)state;
    for (int p = 0; erg_policies[p]; p++)
        for (unsigned seed = 0; seed < 4; seed++) {
            struct erg_rng rng;
            struct world world;
            struct driver driver;
            erg_rng_seed(&rng, 300 + seed);
            make_random(&world, &rng);
            if (seed % 2)
                world.simulation.power_cap_w = 700;
            memset(foreign_of, 0, sizeof foreign_of);
            memset(kept_of, 0, sizeof kept_of);
            make_driver(&driver, &world, erg_policies[p]->name);
            driver.check = check_places;
            for (int steps = 0; step(&driver, INFINITY) && steps < 300; steps++)
                if (erg_rng_uniform(&rng) < 0.3) {
                    disturb(&driver, &rng);
                    decide(&driver);
                }
            assert_true(driver.decisions > 40);
            release_driver(&driver);
            erg_speeds_free(world.speeds);
        }
}

static void test_occupancy(void **state)
{
    (void)state;
    struct world world;
    make_world(&world);
    struct erg_occupancy *occupancy = erg_occupancy_new(&world.fleet);
    struct erg_placement job = {0}, foreign = {0}, found = {0};
    const struct erg_gpu_shape pair = {0, 1, 2}, quad = {0, 1, 4};
    erg_placement_add(&job, 0, 3);
    erg_placement_add(&foreign, 0, 4);
    erg_occupancy_take(occupancy, 7, &job);
    erg_occupancy_take(occupancy, ERG_OWNER_FOREIGN, &foreign);
    assert_int_equal(erg_occupancy_owner(occupancy, 0, 2), ERG_OWNER_FOREIGN);
    assert_int_equal(erg_occupancy_up(occupancy, 0), 7);
    assert_int_equal(erg_occupancy_usable(occupancy, 0), 3);
    assert_int_equal(occupancy->free_gpus[0], 5);
    /* Packed on the first node there would be room for two but for the foreign one. */
    assert_true(erg_occupancy_find(occupancy, &pair, ERG_LEAST_FREE, &found));
    assert_int_equal(found.slices[0].node, 1);
    erg_occupancy_drain(occupancy, 1, true);
    assert_false(erg_occupancy_find(occupancy, &pair, ERG_LEAST_FREE, &found));
    assert_int_equal(erg_occupancy_up(occupancy, 0), 3);
    erg_occupancy_give(occupancy, ERG_OWNER_FOREIGN, &foreign);
    assert_true(erg_occupancy_find(occupancy, &pair, ERG_LEAST_FREE, &found));
    assert_int_equal(found.slices[0].node, 0);
    assert_true(found.slices[0].gpus == 12);
    /* A job on a node that drains stays, and what it leaves is nobody's to have. */
    erg_occupancy_drain(occupancy, 0, true);
    assert_int_equal(erg_occupancy_up(occupancy, 0), 2);
    erg_occupancy_give(occupancy, 7, &job);
    assert_int_equal(erg_occupancy_up(occupancy, 0), 0);
    assert_int_equal(occupancy->free_gpus[0], 0);
    erg_occupancy_take(occupancy, 7, &job);
    erg_occupancy_give(occupancy, 7, &job);
    erg_occupancy_drain(occupancy, 1, false);
    assert_true(erg_occupancy_find(occupancy, &quad, ERG_LEAST_FREE, &found));
    assert_int_equal(found.slices[0].node, 1);
    /* One that drains may fail and come back; then it drains still. */
    erg_occupancy_fail(occupancy, 0);
    erg_occupancy_repair(occupancy, 0);
    assert_int_equal(occupancy->free_gpus[0], 4);
    erg_occupancy_drain(occupancy, 0, false);
    assert_int_equal(occupancy->free_gpus[0], 8);
    assert_int_equal(occupancy->idle_nodes[0], 2);
    erg_placement_release(&job);
    erg_placement_release(&foreign);
    erg_placement_release(&found);
    erg_occupancy_free(occupancy);
    erg_speeds_free(world.speeds);
}

/* ---- the cap ---- */

static void test_throttle(void **state)
{
    (void)state;
    const struct erg_operating_point points[] = {{1, 100}, {2, 60}};
    const struct erg_speed speed = {
        .samples_per_s = 1, .iteration_s = 1, .busy = 1, .points = points, .points_count = 2};
    const struct erg_power_draw draws[] = {{&speed, 0, 4, 1, 10}, {&speed, 1, 2, 1, 10}};
    /* 100 W idle for 10 GPUs; 4 x 90 W and 2 x 50 W beyond that. */
    assert_near(erg_throttled_power(draws, 2, 100, 1), 560, 1e-9);
    assert_near(erg_throttled_power(draws, 2, 100, 2), 400, 1e-9);
    assert_near(erg_throttle_for(draws, 2, 100, 560), 1, 0);
    assert_near(erg_throttle_for(draws, 2, 100, 400), 2, 1e-5);
    /* Half way between in power is half way in speed, 3/4 of it: only the first job slows down. */
    assert_near(erg_throttle_for(draws, 2, 100, 480), 4 / 3.0, 1e-5);
    /* Below the slowest points power goes on linearly to idling: 250 W is half of 300 W beyond. */
    assert_near(erg_throttle_for(draws, 2, 100, 250), 4, 1e-5);
}

/* ---- jobs that come, and why they wait ---- */

static void test_reasons(void **state)
{
    (void)state;
    struct world world;
    struct driver driver;
    struct erg_error err;
    make_world(&world);
    for (int gpus = 1; gpus <= 4; gpus *= 2)
        set_time(&world, 0, 0, 1, gpus, 3);
    set_time(&world, 0, 0, 2, 4, 2);
    make_driver(&driver, &world, "fcfs");
    struct erg_scheduler *scheduler = driver.scheduler;
    int a = add_by_hand(&driver, "a", 0, 10, 0, 2), b = add_by_hand(&driver, "b", 0, 10, 0, 8);
    int c = add_by_hand(&driver, "c", 0, 10, 0, 2), d = add_by_hand(&driver, "d", 1, 10, 0, 2);
    assert_int_equal(erg_scheduler_reason(scheduler, a), ERG_WAIT_ABSENT);
    for (int job = a; job <= c; job++)
        assert_true(erg_scheduler_arrive(scheduler, job));
    assert_false(erg_scheduler_arrive(scheduler, d));
    assert_int_equal(erg_scheduler_reason(scheduler, d), ERG_WAIT_NOWHERE);
    assert_int_equal(erg_scheduler_reason(scheduler, a), ERG_WAIT_DECISION);
    decide_by_hand(&driver);
    assert_int_equal(erg_scheduler_reason(scheduler, a), ERG_WAIT_NONE);
    assert_int_equal(erg_scheduler_reason(scheduler, b), ERG_WAIT_GPUS);
    assert_int_equal(erg_scheduler_reason(scheduler, c), ERG_WAIT_POLICY); /* b is before it */
    assert_true(erg_scheduler_set_foreign(scheduler, 1, 1));
    assert_false(erg_scheduler_set_foreign(scheduler, 1, 1));
    assert_int_equal(erg_scheduler_reason(scheduler, b), ERG_WAIT_NODES);
    /* Its users cancel b, though it waits: the queue moves on. */
    assert_false(erg_scheduler_due(scheduler) < INFINITY);
    erg_scheduler_end(scheduler, b);
    assert_true(erg_scheduler_urgent(scheduler));
    int e = add_by_hand(&driver, "e", 0, 10, 0, 4);
    erg_scheduler_arrive(scheduler, e);
    decide_by_hand(&driver);
    assert_int_equal(scheduler->jobs[c].state, ERG_JOB_RUNNING);
    assert_int_equal(erg_scheduler_reason(scheduler, e), ERG_WAIT_GPUS);
    erg_scheduler_end(scheduler, c);
    decide_by_hand(&driver);
    assert_int_equal(erg_scheduler_reason(scheduler, e), ERG_WAIT_SCATTERED);
    assert_int_equal(erg_scheduler_find_job(scheduler, "e"), e);
    assert_int_equal(erg_scheduler_find_job(scheduler, "f"), -1);
    struct erg_new_job what = {.name = "e",
                               .family = bert,
                               .size = size_1b,
                               .batch = 12,
                               .tenant = "",
                               .deadline_s = INFINITY,
                               .iterations = 1,
                               .gpus = 1};
    int job;
    assert_fails(erg_scheduler_add_job(scheduler, &what, &job, &err), &err, "this name is taken");
    what.name = "f";
    what.iterations = NAN;
    assert_fails(erg_scheduler_add_job(scheduler, &what, &job, &err), &err,
                 "job 'f': iterations: expected a number from 1 to 1e+12, got nan");
    release_driver(&driver);
    erg_speeds_free(world.speeds);
}

/* A running job is found, and Slurm gave it other GPUs of the node than was decided. */
static void test_found(void **state)
{
    (void)state;
    struct world world;
    struct driver driver;
    struct erg_placement there = {0}, other = {0}, odd = {0};
    make_world(&world);
    set_time(&world, 0, 0, 1, 2, 3);
    make_driver(&driver, &world, "tiresias");
    struct erg_scheduler *scheduler = driver.scheduler;
    int a = add_by_hand(&driver, "a", 0, 10, 0, 2), b = add_by_hand(&driver, "b", 0, 10, 0, 2);
    erg_scheduler_set_foreign(scheduler, 1, 15); /* whose they are was not known yet */
    erg_placement_add(&there, 1, 3);
    erg_placement_add(&other, 1, 10);
    assert_false(erg_scheduler_adopt(scheduler, a, &there, 2)); /* there is no such point */
    erg_placement_add(&odd, 1, 1);
    assert_false(erg_scheduler_adopt(scheduler, a, &odd, 0)); /* it cannot run on one GPU */
    erg_placement_add(&odd, 0, 7);
    assert_false(erg_scheduler_adopt(scheduler, a, &odd, 0));
    assert_true(erg_scheduler_adopt(scheduler, a, &there, 1));
    assert_int_equal(erg_scheduler_point(scheduler, a), 1);
    erg_scheduler_arrive(scheduler, b);
    decide_by_hand(&driver);
    assert_int_equal(scheduler->jobs[a].reconfigurations, 1);
    assert_true(erg_placement_equal(&scheduler->jobs[a].placement, &there));
    assert_int_equal(scheduler->jobs[b].placement.slices[0].node, 0);
    erg_scheduler_correct(scheduler, a, &other);
    assert_int_equal(erg_occupancy_owner(scheduler->occupancy, 1, 0), -1);
    assert_int_equal(erg_occupancy_owner(scheduler->occupancy, 1, 1), a);
    assert_int_equal(erg_occupancy_owner(scheduler->occupancy, 1, 2), ERG_OWNER_FOREIGN);
    assert_int_equal(erg_occupancy_owner(scheduler->occupancy, 1, 3), a);
    /* GPUs that were to be another job's, on the same node: both have two still. */
    int c = add_by_hand(&driver, "c", 0, 10, 0, 2);
    erg_scheduler_arrive(scheduler, c);
    decide_by_hand(&driver);
    assert_true(scheduler->jobs[b].placement.slices[0].gpus == 3);
    assert_true(scheduler->jobs[c].placement.slices[0].gpus == 12);
    odd.count = 0;
    erg_placement_add(&odd, 0, 6);
    erg_scheduler_correct(scheduler, b, &odd);
    assert_true(scheduler->jobs[b].placement.slices[0].gpus == 6);
    assert_true(scheduler->jobs[c].placement.slices[0].gpus == 9);
    assert_int_equal(erg_occupancy_owner(scheduler->occupancy, 0, 0), c);
    assert_int_equal(erg_occupancy_owner(scheduler->occupancy, 0, 2), b);
    assert_true(scheduler->occupancy->free[0] == 0 && scheduler->occupancy->free[1] == 1);
    erg_placement_release(&odd);
    erg_placement_release(&there);
    erg_placement_release(&other);
    release_driver(&driver);
    erg_speeds_free(world.speeds);
}

/* Nodes that are off cost what waking them takes. */
static void test_switched(void **state)
{
    (void)state;
    struct world world;
    struct driver driver;
    struct erg_placement there = {0};
    make_world(&world);
    world.fleet.saves_power = true;
    world.fleet.power_saving = (struct erg_power_saving){600, 120};
    make_driver(&driver, &world, "fcfs");
    erg_placement_add(&there, 2, 3);
    assert_near(erg_scheduler_power(driver.scheduler), 8 * 10 + 8 * 5, 0);
    erg_scheduler_switch_node(driver.scheduler, 2, true, 0);
    assert_near(erg_scheduler_wait(driver.scheduler, &there), 120, 0);
    assert_near(erg_scheduler_power(driver.scheduler), 8 * 10 + 6 * 5, 0);
    erg_scheduler_switch_node(driver.scheduler, 2, false, 90);
    erg_scheduler_advance(driver.scheduler, 30);
    assert_near(erg_scheduler_wait(driver.scheduler, &there), 60, 0);
    /* What others draw is not known: at the most it is that of the fastest point. */
    erg_scheduler_set_foreign(driver.scheduler, 3, 1);
    assert_near(erg_scheduler_power(driver.scheduler), 8 * 10 + 7 * 5 + 50, 0);
    erg_placement_release(&there);
    release_driver(&driver);
    erg_speeds_free(world.speeds);
}

/* Profiles give workloads that come one by one what they give those of a trace. */
static void test_profile_source(void **state)
{
    (void)state;
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_speeds *known;
    struct erg_profile_source *source;
    struct erg_error err;
    const char *profiles = ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles";
    assert_ok(erg_fleet_load(&fleet, ERGON_TEST_SOURCE_DIR "/examples/cluster/cluster.yaml", &err),
              &err);
    assert_ok(erg_job_trace_load(&trace, ERGON_TEST_SOURCE_DIR "/examples/cluster/trace.csv", fleet,
                                 &err),
              &err);
    assert_ok(erg_speeds_load(&known, profiles, fleet, trace, &err), &err);
    assert_ok(erg_profile_source_open(&source, profiles, fleet, &err), &err);
    struct erg_speeds *grown = erg_profile_source_table(source);
    assert_int_equal(grown->shapes_count, known->shapes_count);
    for (size_t w = 0; w < trace->workloads_count; w++) {
        assert_int_equal(erg_speeds_add(grown), w);
        assert_ok(erg_profile_source_fill(source, grown, (int)w, &trace->workloads[w], &err), &err);
    }
    int runnable = 0;
    for (size_t w = 0; w < trace->workloads_count; w++)
        for (int shape = 0; shape < known->shapes_count; shape++) {
            const struct erg_speed *x = erg_speed_at(known, (int)w, shape);
            const struct erg_speed *y = erg_speed_at(grown, (int)w, shape);
            assert_true(x->samples_per_s == y->samples_per_s && x->iteration_s == y->iteration_s &&
                        x->busy == y->busy);
            assert_int_equal(x->points_count, y->points_count);
            for (int p = 0; p < x->points_count; p++)
                assert_true(x->points[p].slowdown == y->points[p].slowdown &&
                            x->points[p].power_w == y->points[p].power_w);
            runnable += erg_speed_feasible(x);
        }
    assert_true(runnable > 50);
    erg_profile_source_close(source);
    assert_fails(erg_profile_source_open(&source, "/nowhere", fleet, &err), &err, "/nowhere");
    erg_speeds_free(known);
    erg_speeds_free(grown);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
}

/* Many jobs of many tenants, and a journal that says anything: nothing of it harms. */
static void test_strange_journal(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[]",
        "{\"policy\": 3}",
        "{\"policy\": \"%s\", \"told\": {}, \"types\": [], \"restarts\": 7, \"state\": 7}",
        "{\"policy\": \"%s\", \"told\": [1, null, \"0\", \"0\"], \"state\": []}",
        "{\"policy\": \"%s\", \"told\": [\"0\", \"1\", \"2\"], \"state\": [\"0\", true, \"0\", "
        "false, "
        "\"9\"]}",
        "{\"policy\": \"%s\", \"told\": [\"0\", \"1\"], \"state\": {\"0\": 7, \"1\": -1, \"2\": 1, "
        "\"decided_s\": \"x\", \"prices\": [-1, \"x\"], \"left\": 3, \"supply\": [true], "
        "\"jobs\": {\"0\": [], \"1\": {\"seen_s\": null, \"received_s\": [1]}}, "
        "\"tenant_used_s\": {\"0\": -5, \"1\": []}}, \"restarts\": {\"0\": {\"sum_s\": -1, "
        "\"count\": 4}}, "
        "\"types\": {\"big\": {\"starts\": {\"sum_s\": 1}, \"again\": 2}}}",
    };
    for (int p = 0; erg_policies[p]; p++)
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            struct erg_text text = {0};
            struct erg_rng rng;
            struct erg_error err;
            struct world world;
            struct driver driver;
            json_t *saved;
            const char *name = strstr(texts[t], "%s");
            erg_text_add_bytes(&text, texts[t],
                               name ? (size_t)(name - texts[t]) : strlen(texts[t]));
            if (name)
                erg_text_printf(&text, "%s%s", erg_policies[p]->name, name + 2);
            assert_ok(erg_json_parse(&saved, "journal", text.data, strlen(text.data), &err), &err);
            erg_rng_seed(&rng, 400);
            make_random(&world, &rng);
            make_driver(&driver, &world, erg_policies[p]->name);
            for (size_t i = 0; i < world.trace.count; i++) {
                struct erg_new_job what = new_job(&world, i);
                int job;
                what.submitted_s = 0;
                what.tenant = what.name;
                assert_ok(erg_scheduler_add_job(driver.scheduler, &what, &job, &err), &err);
                erg_scheduler_arrive(driver.scheduler, job);
            }
            erg_scheduler_load(driver.scheduler, saved);
            decide_by_hand(&driver);
            for (double now_s = 50; now_s < 2000; now_s += 100) {
                erg_scheduler_advance(driver.scheduler, now_s);
                if (driver.scheduler->running.first >= 0)
                    erg_scheduler_end(driver.scheduler, driver.scheduler->running.first);
                decide_by_hand(&driver);
            }
            json_decref(saved);
            erg_text_release(&text);
            release_driver(&driver);
            erg_speeds_free(world.speeds);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_occupancy),
        cmocka_unit_test(test_throttle),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_switched),
        cmocka_unit_test(test_profile_source),
        cmocka_unit_test(test_strange_journal),
        cmocka_unit_test(test_reopened),
        cmocka_unit_test_setup_teardown(test_as_simulated, make_folder, remove_folder),
        cmocka_unit_test(test_disturbed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
