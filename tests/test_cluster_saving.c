/* Power saving: nodes that are switched off and woken, and what that costs jobs. */
#include "cluster/policies/policies.h"
#include "cluster_world.h"

/* Off after 100 s, up after 30; a big GPU's share draws 2 W off, a small one's none. */
static void make_saving(struct world *world)
{
    make_world(world);
    world->fleet.saves_power = true;
    world->fleet.power_saving = (struct erg_power_saving){100, 30};
    world->types[0].off_power_w = 2;
}

static const struct erg_cluster_record *node_record(const struct erg_simulated *result,
                                                    enum erg_record_kind kind, int node, int nth)
{
    for (size_t i = 0; i < result->records_count; i++)
        if (result->records[i].kind == kind && result->records[i].node == node && nth-- == 0)
            return &result->records[i];
    return NULL;
}

static void test_off_and_woken_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_saving(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    set_time(&world, 0, 0, 2, 4, 2);
    add_job(&world, 0, 10, 0, 4);   /* 0 to 70: a restart of 40 s, on the first node */
    add_job(&world, 200, 10, 0, 4); /* all nodes are off; 30 s until the first is up */
    add_job(&world, 300, 10, 0, 8); /* on the node that is up since 270 and one that is woken */
    simulate(&result, &world, "fcfs");
    assert_near(result.jobs[0].ended_s, 70, 1e-9);
    assert_near(node_record(&result, ERG_RECORD_OFF, 1, 0)->at_s, 100, 0);
    assert_near(node_record(&result, ERG_RECORD_OFF, 5, 0)->at_s, 100, 0);
    assert_near(node_record(&result, ERG_RECORD_OFF, 0, 0)->at_s, 170, 1e-9);
    assert_near(node_record(&result, ERG_RECORD_WAKE, 0, 0)->at_s, 200, 0);
    assert_near(result.jobs[1].started_s, 200, 0);
    assert_near(result.jobs[1].ended_s, 200 + 30 + 40 + 30, 1e-9);
    assert_near(result.jobs[1].lost_s, 4 * 70, 1e-9);
    assert_near(result.jobs[1].energy_j, 4 * (70 * 10 + 30 * 100), 1e-9);
    assert_near(node_record(&result, ERG_RECORD_WAKE, 1, 0)->at_s, 300, 1e-9);
    assert_null(node_record(&result, ERG_RECORD_OFF, 0, 1));
    assert_near(result.jobs[2].ended_s, 300 + 30 + 60 + 20, 1e-9);
    assert_near(result.summary.wake_ups, 2, 0);
    assert_near(result.summary.off_gpu_s, 4 * (30 + 200) + 8 * 310, 1e-9);
    assert_near(result.summary.utilization, (280 + 400 + 880) / (16 * 410.0), 1e-12);
    /* The nodes of big GPUs one by one, those of small ones together. */
    assert_near(result.summary.energy_j,
                4 * (40 * 10 + 30 * 100 + 100 * 10 + 30 * 2 + 70 * 10 + 30 * 100) +
                    4 * (100 * 10 + 200 * 2) + 8 * (90 * 10 + 20 * 100) + 8 * 100 * 5,
                1e-6);
    erg_simulated_release(&result);
    world.fleet.saves_power = false;
    simulate(&result, &world, "fcfs");
    assert_true(isnan(result.summary.off_gpu_s) && isnan(result.summary.wake_ups));
    assert_near(result.jobs[1].ended_s, 270, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* A node that others wake is waited for as long as it takes; one that fails is up when it is back.
 */
static void test_waking_and_failing_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_saving(&world);
    world.types[0].nodes = 1;
    world.types[1].nodes = 0;
    world.fleet.nodes = 1;
    world.fleet.gpus = 4;
    set_time(&world, 0, 0, 1, 2, 1);
    add_job(&world, 0, 10, 0, 2);    /* 0 to 40 */
    add_job(&world, 200, 100, 0, 2); /* wakes the node */
    add_job(&world, 210, 100, 0, 2); /* which is up in 20 s */
    add_job(&world, 500, 10, 0, 2);
    world.outages[0] = (struct erg_outage){0, 480, 490}; /* off since 460 */
    world.simulation.outages_count = 1;
    simulate(&result, &world, "fcfs");
    assert_near(result.jobs[1].ended_s, 200 + 30 + 30 + 100, 1e-9);
    assert_near(result.jobs[2].ended_s, 210 + 20 + 30 + 100, 1e-9);
    assert_near(node_record(&result, ERG_RECORD_OFF, 0, 1)->at_s, 460, 1e-9);
    assert_near(result.jobs[3].ended_s, 540, 1e-9);
    assert_near(result.summary.wake_ups, 1, 0);
    assert_near(result.summary.off_gpu_s, 4 * (60 + 20), 1e-9);
    erg_simulated_release(&result);
    /* While it wakes: up at once when it is back. */
    world.outages[0] = (struct erg_outage){0, 205, 208};
    world.trace.count = 2;
    simulate(&result, &world, "fcfs");
    assert_near(result.jobs[1].ended_s, 208 + 30 + 100, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Nodes go off until the end of the simulation, and not longer. */
static void test_off_until_the_end(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_saving(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 0, 10, 0, 4);
    world.simulation.until_s = 1000;
    simulate(&result, &world, "fcfs");
    assert_near(result.summary.off_gpu_s, 4 * 830 + 12 * 900, 1e-9);
    assert_near(result.samples[result.samples_count - 1].power_w, 8 * 2, 1e-9);
    erg_simulated_release(&result);
    world.simulation.until_s = INFINITY;
    simulate(&result, &world, "fcfs");
    assert_near(result.summary.simulated_s, 70, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* 8 big GPUs at 100 W, or 60 W at half the speed, 8 small ones of 50 W; 120 W idle. What nodes that
 * are off do not draw, others may. */
static void test_off_below_a_cap(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_saving(&world);
    world.fleet.reconfiguration =
        (struct erg_reconfiguration){.fixed_s = 0, .per_gpu_s = 0, .most_s = 0};
    set_time(&world, 0, 0, 2, 4, 1);
    add_job(&world, 0, 300, 0, 8);
    world.simulation.power_cap_w = 800;
    simulate(&result, &world, "fcfs");
    /* 8 (20 + 80 s) + 40 = 800 until the small ones are off. */
    assert_near(result.jobs[0].ended_s, 100 + 300 - 100 * 75 / 80.0, 1e-4);
    assert_true(result.summary.peak_power_w <= 800);
    assert_near(result.summary.throttled_s, 100, 1e-4);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* What every node is found in: each is where its GPUs and its switch say, and those that are off
 * come last. */
static void test_room_on_nodes_that_are_on(void **state)
{
    (void)state;
    struct world world;
    make_saving(&world);
    struct erg_occupancy *occupancy = erg_occupancy_new(&world.fleet);
    const struct erg_gpu_shape one = {1, 1, 2}, three = {1, 3, 1}, five = {1, 5, 1};
    struct erg_placement found = {0}, half = {0};
    erg_occupancy_switch(occupancy, 2, true);
    erg_occupancy_switch(occupancy, 3, true);
    erg_placement_add(&half, 5, 1);
    erg_occupancy_take(occupancy, 7, &half);
    for (enum erg_node_order order = ERG_FIRST_NODES; order <= ERG_LEAST_FREE; order++) {
        assert_true(erg_occupancy_find(occupancy, &one, order, &found));
        assert_int_equal(found.slices[0].node, 4);
        assert_true(erg_occupancy_find(occupancy, &three, order, &found));
        assert_int_equal(found.count, 3);
        assert_int_equal(found.slices[0].node + found.slices[1].node, 4 + 5);
        assert_int_equal(found.slices[2].node, 2);
        assert_false(erg_occupancy_find(occupancy, &five, order, &found));
    }
    assert_int_equal(occupancy->free_gpus[1], 7);
    erg_occupancy_take(occupancy, 8,
                       &found); /* a decision uses a node that is off, and undoes it */
    erg_occupancy_give(occupancy, 8, &found);
    assert_true(erg_occupancy_find(occupancy, &one, ERG_FIRST_NODES, &found));
    assert_int_equal(found.slices[0].node, 4);
    erg_occupancy_switch(occupancy, 2, false);
    assert_true(erg_occupancy_find(occupancy, &one, ERG_FIRST_NODES, &found));
    assert_int_equal(found.slices[0].node, 2);
    erg_placement_release(&found);
    erg_placement_release(&half);
    erg_occupancy_free(occupancy);
    erg_speeds_free(world.speeds);
}

static double linger_s;

static double linger(const struct erg_scheduler *scheduler)
{
    (void)scheduler;
    return linger_s;
}

/* A policy may have nodes go off sooner than the fleet says, but not later. */
static void test_lingering_by_hand(void **state)
{
    (void)state;
    static const struct {
        double linger_s, off_s;
    } cases[] = {{40, 40}, {0, 0}, {-5, 0}, {1000, 100}};
    struct world world;
    struct erg_policy policy = erg_policy_fcfs;
    make_saving(&world);
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 0, 100, 0, 4);
    policy.linger = linger;
    world.simulation.policy = &policy;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_simulated result;
        struct erg_error err;
        linger_s = cases[i].linger_s;
        assert_ok(erg_simulate(&result, &world.simulation, &err), &err);
        assert_near(node_record(&result, ERG_RECORD_OFF, 1, 0)->at_s, cases[i].off_s, 0);
        assert_null(node_record(&result, ERG_RECORD_WAKE, 0, 0));
        erg_simulated_release(&result);
    }
    erg_speeds_free(world.speeds);
}

/* Idle, the small GPUs draw 400 of 480 W, and nobody can use them. Below 640 W the eight big ones
 * may draw all of that while the others are off: as four at 100 W and four at 60 W, at half the
 * speed, they do the work of six. Who does not see that those are off has 160 W beyond 10 W each,
 * for less than the work of two. */
static void test_ergon_uses_what_nodes_that_are_off_leave(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_saving(&world);
    world.types[0].off_power_w = 0;
    world.types[1].idle_power_w = 50;
    world.fleet.power_saving = (struct erg_power_saving){100, 30};
    for (int gpus = 1; gpus <= 4; gpus *= 2)
        set_time(&world, 0, 0, 1, gpus, 10.0 / gpus);
    add_job(&world, 0, 10, 0, 1);
    for (int i = 0; i < 8; i++)
        add_job(&world, 1000, 500, 0, 1);
    world.simulation.power_cap_w = 640;
    simulate(&result, &world, "ergon");
    assert_true(result.summary.simulated_s < 1000 + 8 * 5000 / 4.0);
    assert_true(result.summary.peak_power_w <= 640 && result.summary.peak_power_w > 500);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_and_woken_by_hand),
        cmocka_unit_test(test_waking_and_failing_by_hand),
        cmocka_unit_test(test_off_until_the_end),
        cmocka_unit_test(test_off_below_a_cap),
        cmocka_unit_test(test_room_on_nodes_that_are_on),
        cmocka_unit_test(test_lingering_by_hand),
        cmocka_unit_test(test_ergon_uses_what_nodes_that_are_off_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
