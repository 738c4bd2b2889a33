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

/* A job that was turned away has missed its deadline, and so has one that waits for ever; a job
 * that may still meet it counts neither way. */
static void test_deadlines_of_who_is_not_served(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_stay_down),
        cmocka_unit_test(test_deadlines_of_who_is_not_served),
        cmocka_unit_test(test_end_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
