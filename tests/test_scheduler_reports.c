/*
 * What jobs tell a live scheduler: reports of progress, what restarts took, and speeds that were
 * measured; and what a first start costs by the fleet's file.
 */
#include "cluster/policies/policies.h"
#include "cluster/schedule/scheduler_internal.h"
#include "folder.h"
#include "live_driver.h"

/* ---- costs of a first start ---- */

static struct erg_fleet *load_fleet(const char *costs, const char *message)
{
    struct erg_fleet *fleet = NULL;
    struct erg_error err;
    struct erg_text text = {0};
    erg_text_printf(&text, "types: [{name: a, nodes: 1, gpus_per_node: 4, memory_gb: 80}]\n%s\n",
                    costs);
    write_text("cluster.yaml", text.data);
    if (message)
        assert_fails(erg_fleet_load(&fleet, in_folder("cluster.yaml"), &err), &err, message);
    else
        assert_ok(erg_fleet_load(&fleet, in_folder("cluster.yaml"), &err), &err);
    erg_text_release(&text);
    return fleet;
}

static void test_first_start(void **state)
{
    (void)state;
    struct erg_fleet *fleet =
        load_fleet("reconfiguration: {fixed_s: 30, start_s: 8, per_gpu_s: 2, most_s: 35}", NULL);
    assert_near(erg_fleet_restart_cost(fleet, true, 4), 16, 0);
    assert_near(erg_fleet_restart_cost(fleet, false, 4), 35, 0);
    assert_near(erg_fleet_restart_cost(fleet, false, 1), 32, 0);
    erg_fleet_free(fleet);
    fleet = load_fleet("reconfiguration: {fixed_s: 30}", NULL);
    assert_near(erg_fleet_restart_cost(fleet, true, 4), 30, 0);
    erg_fleet_free(fleet);
    load_fleet("reconfiguration: {fixed_s: 30, start_s: -1}", "reconfiguration.start_s");
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.fleet.reconfiguration.has_start = true;
    world.fleet.reconfiguration.start_s = 7;
    world.outages[0] = (struct erg_outage){0, 50, 60};
    world.simulation.outages_count = 1;
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 0, 10, 0, 4);
    world.outages[1] = (struct erg_outage){1, 40, INFINITY};
    world.simulation.outages_count = 2;
    simulate(&result, &world, "fcfs");
    /* 7 + 4 x 5 s, then 23 s of 30 s on the second node, if that is where it is, else from 60 s. */
    assert_int_equal(result.jobs[0].reconfigurations, 2);
    const struct erg_cluster_record *start = first_record(&result, ERG_RECORD_START, 0);
    bool first = result.slices[start->first_slice].node == 0;
    /* Lost with the node; a restart takes 20 + 4 x 5 s. */
    assert_near(result.jobs[0].ended_s, (first ? 60 : 40) + 40 + 30, 1e-9);
    assert_near(result.jobs[0].lost_s, 4 * (27 + 40), 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* ---- reports ---- */

static void report(struct driver *driver, int job, double iteration, double checkpoint,
                   double iteration_s, double due_s)
{
    erg_scheduler_report(driver->scheduler, job,
                         &(struct erg_progress_report){.at_s = driver->scheduler->now_s,
                                                       .iteration = iteration,
                                                       .checkpoint = checkpoint,
                                                       .iteration_s = iteration_s,
                                                       .due_s = due_s});
}

static void test_reports(void **state)
{
    (void)state;
    struct world world;
    struct driver driver;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    make_driver(&driver, &world, "fcfs");
    struct erg_scheduler *scheduler = driver.scheduler;
    int job = add_by_hand(&driver, "a", 0, 100, 0, 4);
    assert_true(erg_scheduler_arrive(scheduler, job));
    decide_by_hand(&driver);
    assert_int_equal(scheduler->jobs[job].state, ERG_JOB_RUNNING);
    assert_near(scheduler->works[job].resume_s, 40, 0);
    /* It says nothing, so it stands still. */
    erg_scheduler_advance(scheduler, 100);
    assert_near(erg_scheduler_remaining(scheduler, job), 100, 0);
    report(&driver, job, 20, 10, 3, 10);
    assert_near(erg_scheduler_remaining(scheduler, job), 80, 0);
    assert_near(scheduler->accounting->end(&scheduler->works[job]), 100 + 80 * 3, 1e-9);
    erg_scheduler_advance(scheduler, 106);
    assert_near(erg_scheduler_remaining(scheduler, job), 78, 1e-9);
    /* No further than to the report that is overdue. */
    erg_scheduler_advance(scheduler, 200);
    assert_near(erg_scheduler_remaining(scheduler, job), 80 - 10 / 3.0, 1e-9);
    /* Nonsense, and what is not a report of now, is not believed. */
    report(&driver, job, NAN, 0, 3, 10);
    report(&driver, job, 30, 31, 3, 10);
    erg_scheduler_report(scheduler, job,
                         &(struct erg_progress_report){.at_s = 99, .iteration = 90, .due_s = 1});
    assert_near(erg_scheduler_remaining(scheduler, job), 80 - 10 / 3.0, 1e-9);
    report(&driver, job, 50, 48, 6, 10);
    erg_scheduler_advance(scheduler, 206);
    assert_near(erg_scheduler_remaining(scheduler, job), 49, 1e-9);
    assert_near(erg_scheduler_attained(scheduler, job), 4 * 206, 1e-9);
    /* A failure takes it back to its checkpoint, a job that is there has something left. */
    assert_near(erg_scheduler_evict(scheduler, job), 3, 1e-9);
    assert_near(erg_scheduler_remaining(scheduler, job), 52, 1e-9);
    assert_int_equal(scheduler->jobs[job].state, ERG_JOB_WAITING);
    decide_by_hand(&driver);
    report(&driver, job, 100, 100, NAN, 10);
    assert_near(erg_scheduler_remaining(scheduler, job), 1, 0);
    erg_scheduler_advance(scheduler, 306);
    erg_scheduler_end(scheduler, job);
    assert_near(erg_scheduler_attained(scheduler, job), 4 * 306, 1e-9);
    release_driver(&driver);
    erg_speeds_free(world.speeds);
}

static void test_restart_costs(void **state)
{
    (void)state;
    struct world world;
    struct driver driver;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    make_driver(&driver, &world, "fcfs");
    struct erg_scheduler *scheduler = driver.scheduler;
    int a = add_by_hand(&driver, "a", 0, 100, 0, 4), b = add_by_hand(&driver, "b", 0, 100, 0, 4);
    assert_near(erg_scheduler_cost(scheduler, a, 0, 4), 40, 0);
    erg_scheduler_arrive(scheduler, a);
    decide_by_hand(&driver);
    erg_scheduler_restarted(scheduler, a, 13); /* its first start */
    assert_near(erg_scheduler_cost(scheduler, b, 0, 4), 13, 0);
    assert_near(erg_scheduler_cost(scheduler, b, 1, 4), 40, 0);
    assert_near(erg_scheduler_cost(scheduler, a, 0, 4), 40, 0);
    for (int i = 0; i < 2; i++) {
        erg_scheduler_evict(scheduler, a);
        decide_by_hand(&driver);
        erg_scheduler_restarted(scheduler, a, 70 + 20 * i);
    }
    assert_near(erg_scheduler_cost(scheduler, a, 1, 2), 80, 0); /* what it itself took */
    assert_near(erg_scheduler_cost(scheduler, -1, 0, 2), 80,
                0); /* what restarts on the type took */
    assert_near(erg_scheduler_cost(scheduler, -1, 1, 2), 30, 0); /* the file */
    erg_scheduler_recall(scheduler, b, 1234, 3);
    assert_near(erg_scheduler_cost(scheduler, b, 0, 4), 80, 0); /* it has started before */
    assert_near(erg_scheduler_attained(scheduler, b), 1234, 0);
    /* All that is kept for the next process. */
    struct erg_scheduler *old = scheduler;
    struct erg_speeds *speeds = driver.speeds;
    json_t *saved = erg_scheduler_save(old);
    make_scheduler(&driver, "fcfs");
    b = add_by_hand(&driver, "b", 0, 100, 0, 4);
    a = add_by_hand(&driver, "a", 0, 100, 0, 4);
    erg_scheduler_recall(driver.scheduler, a, 0, 3);
    erg_scheduler_load(driver.scheduler, saved);
    assert_near(erg_scheduler_cost(driver.scheduler, a, 1, 2), 80, 0);
    assert_near(erg_scheduler_cost(driver.scheduler, b, 0, 2), 13, 0);
    json_decref(saved);
    erg_scheduler_free(old);
    erg_speeds_free(speeds);
    release_driver(&driver);
    erg_speeds_free(world.speeds);
}

static void test_measured_speeds(void **state)
{
    (void)state;
    struct world world;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    set_time(&world, 0, 0, 1, 2, 5);
    int shape = erg_speeds_shape(world.speeds, 0, 1, 4);
    int other = erg_speeds_shape(world.speeds, 0, 1, 2);
    const struct erg_speed *speed = erg_speed_at(world.speeds, 0, shape);
    /* Less than a hundredth is no news. */
    assert_false(erg_speeds_measure(world.speeds, 0, shape, 0, 3.02, 1));
    assert_near(speed->iteration_s, 3, 0);
    assert_true(erg_speeds_measure(world.speeds, 0, shape, 0, 5.98, 1));
    assert_near(speed->iteration_s, 4.5, 1e-12); /* the mean of both */
    assert_near(speed->samples_per_s, 12 / 4.5, 1e-12);
    assert_near(speed->points[1].slowdown, 2, 1e-12); /* nothing is known of it: as the other */
    assert_near(speed->points[1].power_w, 60, 0);
    /* Four times the profile's 6 s is the most that is believed, and then 24 s of 4.5 s. */
    assert_true(erg_speeds_measure(world.speeds, 0, shape, 1, 1000, 1));
    assert_near(speed->points[1].slowdown, 24 / 4.5, 1e-12);
    assert_near(speed->iteration_s, 4.5, 1e-12);
    /* Points keep their order whatever is measured. */
    assert_true(erg_speeds_measure(world.speeds, 0, shape, 1, 1.5, 1e6));
    assert_true(speed->points[1].slowdown > 1 && speed->points[1].slowdown < 1.5);
    assert_near(erg_speeds_clip(world.speeds, 0, other, 0, 0.1), 5 / 4.0, 1e-12);
    /* Shapes that nothing was measured on change as those of their type. */
    const double factor = speed->iteration_s / 3;
    assert_near(factor, 1.5, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, other)->iteration_s, 5 * factor, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, other)->samples_per_s, 12 / (5 * factor), 1e-9);
    /* Of what cannot run nothing can be measured, and of nonsense nothing follows. */
    assert_false(erg_speeds_measure(world.speeds, 1, shape, 0, 3, 1));
    assert_false(erg_speeds_measure(world.speeds, 0, shape, 2, 3, 1));
    assert_false(erg_speeds_measure(world.speeds, 0, shape, 0, NAN, 1));
    erg_speeds_free(world.speeds);
}

/* A profile's error on one shape is expected on others: all of it on the same type, the root of its
 * factor on another type. */
static void test_unmeasured_speeds(void **state)
{
    (void)state;
    struct world world;
    make_world(&world);
    for (int type = 0; type < 2; type++) {
        set_time(&world, 0, type, 1, 1, 8);
        set_time(&world, 0, type, 1, 2, 4);
    }
    int shapes[2][2];
    for (int type = 0; type < 2; type++)
        for (int i = 0; i < 2; i++)
            shapes[type][i] = erg_speeds_shape(world.speeds, type, 1, 1 + i);
    assert_true(erg_speeds_measure(world.speeds, 0, shapes[0][0], 0, 2, 1)); /* a quarter */
    assert_near(erg_speed_at(world.speeds, 0, shapes[0][0])->iteration_s, 2, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, shapes[0][1])->iteration_s, 1, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, shapes[1][0])->iteration_s, 4, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, shapes[1][1])->iteration_s, 2, 1e-12);
    /* The other type is as its profile says: its other shape as well. */
    assert_true(erg_speeds_measure(world.speeds, 0, shapes[1][0], 0, 8, 1));
    assert_near(erg_speed_at(world.speeds, 0, shapes[1][0])->iteration_s, 8, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, shapes[1][1])->iteration_s, 4, 1e-12);
    assert_near(erg_speed_at(world.speeds, 0, shapes[0][1])->iteration_s, 1, 1e-12);
    /* A shape that was inferred is measured against its profile. */
    assert_near(erg_speeds_clip(world.speeds, 0, shapes[0][1], 0, 100), 4 * 4, 1e-12);
    assert_true(erg_speeds_measure(world.speeds, 0, shapes[0][1], 0, 2, 1));
    assert_near(erg_speed_at(world.speeds, 0, shapes[0][1])->iteration_s, 2, 1e-12);
    erg_speeds_free(world.speeds);
}

/* A job that is slower than its profile moves where it is faster: the policy sees what it reports.
 */
static void test_measured_decides(void **state)
{
    (void)state;
    struct world world;
    struct driver driver;
    make_world(&world);
    set_time(&world, 0, 0, 1, 2, 3);
    set_time(&world, 0, 1, 1, 2, 4);
    make_driver(&driver, &world, "ergon");
    int job = add_by_hand(&driver, "a", 0, 100000, -1, 2);
    erg_scheduler_arrive(driver.scheduler, job);
    decide_by_hand(&driver);
    assert_int_equal(driver.scheduler->speeds->shapes[driver.scheduler->jobs[job].shape].type, 0);
    for (int i = 1; i <= 20; i++) {
        erg_scheduler_advance(driver.scheduler, 60 + 10 * i);
        report(&driver, job, i, 0, 10, 10);
    }
    erg_scheduler_advance(driver.scheduler, 10000);
    decide_by_hand(&driver);
    assert_int_equal(driver.scheduler->speeds->shapes[driver.scheduler->jobs[job].shape].type, 1);
    release_driver(&driver);
    erg_speeds_free(world.speeds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first_start, make_folder, remove_folder),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_restart_costs),
        cmocka_unit_test(test_measured_speeds),
        cmocka_unit_test(test_unmeasured_speeds),
        cmocka_unit_test(test_measured_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
