/* Who waits and who need not: nodes that stay down, jobs that name no type, jobs that cannot run
 * and those behind them. */
#include "cluster/policies/policies.h"
#include "cluster_world.h"

/* The only nodes on which a job runs fail for good: whatever the policy, the simulation ends and
 * says so. */
static void test_nodes_that_stay_down(void **state)
{
    (void)state;
    for (const struct erg_policy *const *policy = erg_policies; *policy; policy++) {
        struct world world;
        struct erg_simulated result;
        make_world(&world);
        set_time(&world, 0, 0, 1, 4, 10);
        set_time(&world, 0, 0, 1, 2, 19);
        add_job(&world, 0, 1000, 0, 4);
        world.outages[0] = (struct erg_outage){0, 100, INFINITY};
        world.outages[1] = (struct erg_outage){1, 200, INFINITY};
        world.simulation.outages_count = 2;
        simulate(&result, &world, (*policy)->name);
        assert_int_equal(result.jobs[0].state, ERG_JOB_WAITING);
        assert_int_equal(result.unserved_count, 1);
        assert_int_equal(result.unserved[0].fate, ERG_UNSERVED_LEFT);
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
}

/* A job that names no type has GPUs at once as long as some type has room: be the types equally
 * fast, or the first one faster. */
static void test_any_type(void **state)
{
    (void)state;
    static const char *const policies[] = {
        "fcfs",  "fcfs-relaxed", "gandiva", "tiresias", "elasticflow", "elasticflow-ls",
        "gavel", "gavel-fair",   "sia",     "arena",    "ergon",
    };
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int slower = 1; slower <= 2; slower++) {
            struct world world;
            struct erg_simulated result;
            make_world(&world);
            set_time(&world, 0, 0, 1, 4, 10);
            set_time(&world, 0, 1, 2, 2, 10 * slower);
            for (int i = 0; i < 4; i++) /* room for two on each type */
                add_job(&world, 0, 100, -1, 4);
            simulate(&result, &world, policies[p]);
            for (int i = 0; i < 4; i++)
                assert_near(result.jobs[i].started_s, 0, 0);
            erg_simulated_release(&result);
            erg_speeds_free(world.speeds);
        }
}

/* What names no type and waits is overtaken only by jobs for GPUs on which it cannot run. */
static void test_any_type_waits_in_line(void **state)
{
    (void)state;
    static const char *const policies[] = {"fcfs", "fcfs-relaxed", "gandiva"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        struct world world;
        struct erg_simulated result;
        make_world(&world);
        world.types[0].nodes = 1;
        set_time(&world, 0, 0, 1, 2, 10);
        set_time(&world, 0, 0, 1, 4, 5);
        set_time(&world, 0, 1, 1, 2, 10);
        add_job(&world, 0, 100, 0, 2);
        add_job(&world, 1, 100, -1, 4); /* two GPUs are free of the first type, the only for it */
        add_job(&world, 2, 100, 0, 2);
        add_job(&world, 3, 100, 1, 2);
        simulate(&result, &world, policies[p]);
        assert_near(result.jobs[1].started_s, result.jobs[0].ended_s, 1e-9);
        assert_near(result.jobs[2].started_s, result.jobs[1].ended_s, 1e-9);
        assert_near(result.jobs[3].started_s, 3, 0);
        const struct erg_cluster_record *start = first_record(&result, ERG_RECORD_START, 3);
        assert_int_equal(world.speeds->shapes[start->shape].type, 1);
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
}

/* First come is who was submitted first, wherever it stands in the trace, and whoever lost a node
 * gets the old place back. */
static void test_order_of_queues(void **state)
{
    (void)state;
    static const char *const policies[] = {"fcfs", "fcfs-relaxed", "gandiva"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        struct world world;
        struct erg_simulated result;
        make_world(&world);
        set_time(&world, 0, 0, 1, 4, 10);
        add_job(&world, 0, 100, 0, 4);
        add_job(&world, 1, 100, 0, 4);
        add_job(&world, 20, 100, 0, 4); /* stands before the one that came earlier */
        add_job(&world, 10, 100, 0, 4);
        world.outages[0] = (struct erg_outage){0, 100, 5000}; /* job 0's */
        world.outages[1] = (struct erg_outage){1, 200, 5000}; /* job 1's */
        world.simulation.outages_count = 2;
        simulate(&result, &world, policies[p]);
        assert_true(result.jobs[0].ended_s < result.jobs[3].ended_s);
        assert_true(result.jobs[1].ended_s < result.jobs[3].ended_s);
        assert_near(result.jobs[3].started_s, fmin(result.jobs[0].ended_s, result.jobs[1].ended_s),
                    1e-9);
        assert_true(result.jobs[2].started_s >= result.jobs[3].started_s);
        world.simulation.outages_count = 0;
        erg_simulated_release(&result);
        world.types[0].nodes = 1;
        simulate(&result, &world, policies[p]);
        assert_near(result.jobs[3].started_s, result.jobs[1].ended_s, 1e-9);
        assert_near(result.jobs[2].started_s, result.jobs[3].ended_s, 1e-9);
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
}

/* A job that lost its node later was submitted earlier: it goes first. */
static void test_evicted_in_order(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 10);
    add_job(&world, 0, 1000, 0, 4);
    add_job(&world, 1, 1000, 0, 4);
    world.outages[0] = (struct erg_outage){0, 100, 5000};
    world.outages[1] = (struct erg_outage){1, 200, 300};
    world.simulation.outages_count = 2;
    simulate(&result, &world,
             "fcfs"); /* job 0 lost its node first, and job 1 the one that is back */
    assert_near(result.jobs[0].queued_s, 300 - 100, 1e-9);
    assert_near(result.jobs[1].queued_s, 5000 - 200, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Whoever can never run, or never in time, does not keep those behind it from GPUs. */
static void test_elasticflow_blocks_no_job_in_vain(void **state)
{
    (void)state;
    static const char *const policies[] = {"elasticflow", "elasticflow-ls"};
    for (size_t p = 0; p < 2; p++) {
        struct world world;
        struct erg_simulated result;
        make_world(&world);
        world.types[0].nodes = 1;
        set_time(&world, 0, 0, 1, 4, 10);
        set_time(&world, 1, 1, 1, 2, 10);
        add_job(&world, 0, 100, 0, 4);
        add_job(&world, 1, 100, 0, 4); /* runs on the other type only */
        add_job(&world, 2, 100, 0, 4); /* would need 1,000 s */
        add_job(&world, 3, 100, 0, 4);
        world.jobs[1].workload = 1;
        world.jobs[2].deadline_s = p == 0 ? 900 : INFINITY;
        simulate(&result, &world, policies[p]);
        assert_int_equal(result.jobs[1].state, ERG_JOB_REJECTED);
        assert_int_equal(result.jobs[2].state, p == 0 ? ERG_JOB_WAITING : ERG_JOB_ENDED);
        assert_near(result.jobs[3].started_s, result.jobs[p == 0 ? 0 : 2].ended_s, 1e-9);
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
}

/* Sia has one node of three GPUs left for jobs that want two: what cannot have them has one. */
static void test_sia_uses_leftover_gpus(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 2;
    world.types[0].gpus_per_node = 3;
    world.types[1].nodes = 1;
    world.fleet.gpus = 8;
    world.fleet.nodes = 3;
    world.types[1].first_node = 2;
    set_time(&world, 0, 0, 1, 1, 10);
    set_time(&world, 0, 0, 1, 2, 5);
    for (int i = 0; i < 3; i++) /* six GPUs, which are not three twos */
        add_job(&world, 0, 1000, 0, 1);
    world.simulation.until_s = 300;
    simulate(&result, &world, "sia");
    for (int i = 0; i < 3; i++)
        assert_near(result.jobs[i].started_s, 0, 0);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Two nodes of three GPUs for three jobs of two each, of which the last lies on both nodes, where
 * its frontier has fewer points than on one. */
static void test_frontiers_of_other_lengths(void **state)
{
    (void)state;
    static const struct erg_operating_point points[] = {{1, 400}, {1.01, 150}, {1.02, 60}};
    static const char *const policies[] = {"ergon", "ergon-thrifty"};
    for (size_t p = 0; p < 2; p++) {
        struct world world;
        struct erg_simulated result;
        make_world(&world);
        world.types[0].gpus_per_node = 3;
        world.fleet.gpus = 14;
        set_time(&world, 0, 0, 1, 2, 10);
        set_time(&world, 0, 0, 2, 1, 11);
        for (int nodes = 1; nodes <= 2; nodes++)
            erg_speeds_set_points(world.speeds, 0,
                                  erg_speeds_shape(world.speeds, 0, nodes, 2 / nodes), points,
                                  4 - (size_t)nodes);
        for (int i = 0; i < 3; i++)
            add_job(&world, 0, 1000, 0, 2);
        simulate(&result, &world, policies[p]);
        for (int i = 0; i < 3; i++) {
            assert_near(result.jobs[i].started_s, 0, 0);
            assert_int_equal(result.jobs[i].state, ERG_JOB_ENDED);
        }
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
}

/* A job that was turned away has missed its deadline, and so has one that waits for ever; a job
 * that may still meet it counts neither way. */
static void test_deadlines_of_unserved_jobs(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 10);
    add_job(&world, 0, 10, 0, 4); /* ends at 140 s */
    add_job(&world, 0, 10, 1, 4); /* cannot run there */
    add_job(&world, 100, 1000, 0, 4);
    for (int i = 0; i < 3; i++)
        world.jobs[i].deadline_s = 50000;
    world.simulation.until_s = 1000;
    simulate(&result, &world, "fcfs");
    assert_int_equal(result.summary.finished_jobs, 1);
    assert_near(result.summary.deadlines_met, 0.5, 1e-12);
    erg_simulated_release(&result);
    world.outages[0] = (struct erg_outage){0, 500, INFINITY};
    world.outages[1] = (struct erg_outage){1, 500, INFINITY};
    world.simulation.outages_count = 2;
    world.simulation.until_s = INFINITY;
    simulate(&result, &world, "fcfs");
    assert_near(result.summary.deadlines_met, 1 / 3.0, 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* What ends at the very moment at which the simulation does has ended. */
static void test_end_at_the_end(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 10);
    add_job(&world, 0, 10, 0, 4);
    world.simulation.until_s = 40 + 100;
    simulate(&result, &world, "fcfs");
    assert_int_equal(result.summary.finished_jobs, 1);
    assert_near(result.jobs[0].ended_s, 140, 0);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Where the work that waits is that of months, jobs that have waited for a week are not so old that
 * an hour's job has to wait for them. */
static void test_old_backlogs(void **state)
{
    (void)state;
    static const double hour_s = 3600;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 4, 10); /* two at a time */
    for (int i = 0; i < 6; i++)
        add_job(&world, 0, 3000 * hour_s / 10, 0, 4);
    add_job(&world, 150 * hour_s, hour_s / 10, 0, 4);
    simulate(&result, &world, "ergon");
    assert_near(result.jobs[6].ended_s, 151 * hour_s, 0.1 * hour_s);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* A job for all four GPUs against four jobs for one each: v / 4 of the time for the former and v
 * for the latter, v + 4 v = 4. */
static void test_gavel_counts_gpus(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    world.fleet.reconfiguration = (struct erg_reconfiguration){0};
    set_time(&world, 0, 0, 1, 4, 10);
    set_time(&world, 0, 0, 1, 1, 30);
    add_job(&world, 0, 1e6, 0, 4);
    for (int i = 0; i < 4; i++)
        add_job(&world, 0, 1e6, 0, 1);
    world.simulation.until_s = 360 * 1000;
    simulate(&result, &world, "gavel-fair");
    assert_near(result.jobs[0].gpu_s, 4 * 0.2 * 360000, 4 * 3600);
    for (int i = 1; i < 5; i++)
        assert_near(result.jobs[i].gpu_s, 0.8 * 360000, 3600);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_stay_down),
        cmocka_unit_test(test_any_type),
        cmocka_unit_test(test_any_type_waits_in_line),
        cmocka_unit_test(test_order_of_queues),
        cmocka_unit_test(test_evicted_in_order),
        cmocka_unit_test(test_elasticflow_blocks_no_job_in_vain),
        cmocka_unit_test(test_sia_uses_leftover_gpus),
        cmocka_unit_test(test_frontiers_of_other_lengths),
        cmocka_unit_test(test_deadlines_of_unserved_jobs),
        cmocka_unit_test(test_end_at_the_end),
        cmocka_unit_test(test_old_backlogs),
        cmocka_unit_test(test_gavel_counts_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
