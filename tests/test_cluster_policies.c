/* Policies one by one, in small worlds: decisions that can be worked out, and what each promises.
 */
#include "cluster/policies/ergon_internal.h"
#include "cluster/policies/policies.h"
#include "cluster_world.h"

#define HOUR_S 3600.0

/* 4 GPUs of a node of the first type: the queues end at 1, 10 and 100 GPU-hours. */
static void test_tiresias_preempts_the_most_served_job(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    world.fleet.reconfiguration = (struct erg_reconfiguration){0};
    set_time(&world, 0, 0, 1, 4, 60);
    add_job(&world, 0, 300, 0, 4);   /* 5 hours; sinks after a quarter of an hour */
    add_job(&world, 600, 10, 0, 4);  /* waits for that */
    add_job(&world, 7200, 20, 0, 4); /* goes first at once; sinks after 15 minutes, but comes after
                                        job 0, which was submitted earlier */
    simulate(&result, &world, "tiresias");
    assert_near(result.jobs[1].started_s, 900, 1e-6);
    assert_near(result.jobs[1].ended_s, 1500, 1e-6);
    assert_near(result.jobs[2].started_s, 7200, 1e-6);
    /* Job 0 ran 900 s and from 1500 to 7200. It goes on from 8100 to its second threshold. */
    assert_near(first_record(&result, ERG_RECORD_SUSPEND, 2)->at_s, 8100, 1e-6);
    assert_near(result.jobs[2].ended_s, 8100 + (9000 - 6600) + 300, 1e-6);
    assert_near(result.jobs[0].ended_s, 5 * HOUR_S + 600 + 1200, 1e-6);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* A node of 4 GPUs: a job of one grows when its neighbours end and gives GPUs back when another
 * comes. */
static void test_gandiva_grows_and_gives_back(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    set_time(&world, 0, 0, 1, 1, 60);
    set_time(&world, 0, 0, 1, 2, 32);
    set_time(&world, 0, 0, 1, 4, 30);
    add_job(&world, 0, 1000, 0, 1);
    add_job(&world, 0, 10, 0, 2);
    add_job(&world, 10000, 10, 0, 4); /* more than is left of the node: waits */
    add_job(&world, 10001, 100, 0, 1);
    simulate(&result, &world, "gandiva");
    const struct erg_gpu_shape *shapes = world.speeds->shapes;
    /* Job 1 ran on 2 GPUs from 30 to 350; job 0 then doubles, and again, as 1.07 times the speed
     * still pays. */
    const struct erg_cluster_record *grown = first_record(&result, ERG_RECORD_CHANGE, 0);
    assert_near(grown->at_s, 350, 1e-9);
    assert_int_equal(shapes[grown->shape].gpus_per_node, 4);
    /* Its three others are not enough for job 2, so it keeps them until it ends: 5.42 of 1000 were
     * done in 325 s, the rest takes 30 s each, after 40 s. Job 3 waits behind job 2. */
    double done = (350 - 25) / 60.0;
    assert_near(result.jobs[0].ended_s, 350 + 40 + (1000 - done) * 30, 1e-6);
    assert_near(result.jobs[2].started_s, result.jobs[0].ended_s, 1e-6);
    assert_near(result.jobs[3].started_s, result.jobs[2].ended_s, 1e-6);
    erg_simulated_release(&result);
    world.jobs[2].gpus = 2;
    simulate(&result, &world, "gandiva");
    assert_near(result.jobs[2].started_s, 10000, 0);
    assert_near(result.jobs[3].started_s, 10001, 0);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Who gains most from the better GPUs gets them, though both would be faster there. */
static void test_comparative_advantage(void **state)
{
    (void)state;
    static const char *const policies[] = {"ergon", "gavel", "sia"};
    for (size_t p = 0; p < 3; p++) {
        struct world world;
        struct erg_simulated result;
        make_world(&world);
        world.types[0].nodes = world.types[1].nodes = 1;
        world.types[0].gpus_per_node = 2;
        set_time(&world, 0, 0, 1, 2, 1);
        set_time(&world, 0, 1, 1, 2, 3);
        set_time(&world, 1, 0, 1, 2, 1);
        set_time(&world, 1, 1, 1, 2, 1.1);
        for (int i = 0; i < 2; i++) {
            add_job(&world, 0, 3000, -1, 2);
            world.jobs[i].workload = i;
        }
        simulate(&result, &world, policies[p]);
        const struct erg_gpu_shape *shapes = world.speeds->shapes;
        assert_int_equal(shapes[first_record(&result, ERG_RECORD_START, 0)->shape].type, 0);
        assert_int_equal(shapes[first_record(&result, ERG_RECORD_START, 1)->shape].type, 1);
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
}

/* Three equal jobs, each for all GPUs of the only node: a third of the time each, in turns. */
static void test_gavel_takes_turns(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    set_time(&world, 0, 0, 1, 4, 60);
    for (int i = 0; i < 3; i++)
        add_job(&world, 0, 1000, 0, 4);
    world.simulation.until_s = 30000;
    simulate(&result, &world, "gavel-fair");
    double round_s = 20 * (20 + 5);
    for (int i = 0; i < 3; i++)
        assert_near(result.jobs[i].gpu_s, 4 * 10000, 4 * round_s);
    assert_near(result.summary.utilization, 4 / 16.0, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Two equal jobs, one after the other, on 4 GPUs that are 1, 1.9 and 3.4 times as fast: the first
 * has all until the second comes. Then it gives half, since g^-1/2 falls most for whom has least.
 */
static void test_sia_shares(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    set_time(&world, 0, 0, 1, 1, 34);
    set_time(&world, 0, 0, 1, 2, 34 / 1.9);
    set_time(&world, 0, 0, 1, 4, 10);
    add_job(&world, 0, 5000, 0, 1);
    add_job(&world, 10000, 5000, 0, 1);
    world.simulation.until_s = 10001;
    simulate(&result, &world, "sia");
    const struct erg_gpu_shape *shapes = world.speeds->shapes;
    assert_int_equal(erg_shape_gpus(&shapes[first_record(&result, ERG_RECORD_START, 0)->shape]), 4);
    assert_int_equal(erg_shape_gpus(&shapes[first_record(&result, ERG_RECORD_CHANGE, 0)->shape]),
                     2);
    assert_int_equal(erg_shape_gpus(&shapes[first_record(&result, ERG_RECORD_START, 1)->shape]), 2);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* One job alone gets what is fastest, as long as the energy is worth it: twice the GPUs for 1.9
 * times the speed, but not for 1.03 times. */
static void test_ergon_grows_and_stops(void **state)
{
    (void)state;
    static const double times_s[] = {20, 10.5, 10.2};
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    for (int i = 0; i < 3; i++)
        set_time(&world, 0, 0, 1, 1 << i, times_s[i]);
    add_job(&world, 0, 1000, 0, 1);
    simulate(&result, &world, "ergon");
    assert_int_equal(result.jobs[0].reconfigurations, 1);
    const struct erg_cluster_record *start = first_record(&result, ERG_RECORD_START, 0);
    assert_int_equal(erg_shape_gpus(&world.speeds->shapes[start->shape]), 2);
    /* Half the speed for 0.6 times the power is not worth it. */
    assert_int_equal(start->point, 0);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* A job that is about to end keeps GPUs that would be better used by another, were moving free. */
static void test_ergon_does_not_churn(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    world.fleet.reconfiguration =
        (struct erg_reconfiguration){.fixed_s = 600, .per_gpu_s = 0, .most_s = 600};
    set_time(&world, 0, 0, 1, 4, 1);
    set_time(&world, 0, 0, 1, 2, 1.7);
    add_job(&world, 0, 4000, 0, 4);
    add_job(&world, 4300, 5000, 0, 4); /* the other has 300 s left, half of what moving costs */
    simulate(&result, &world, "ergon");
    assert_int_equal(result.jobs[0].reconfigurations, 1);
    assert_near(result.jobs[0].ended_s, 4600, 1e-6);
    assert_near(result.jobs[1].started_s, 4600, 60);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Leaves so many nodes of 4 GPUs, all of one type. */
static void leave_one_type(struct world *world, int nodes)
{
    world->types[0].nodes = world->fleet.nodes = nodes;
    world->types[1].nodes = 0;
    world->fleet.gpus = 4 * nodes;
}

/* A job needs 100,000 s, whatever it gets; 190 others keep 128 GPUs for 30,000 to 40,000 s. It ends
 * last anyway, so it had better begin first. */
static void test_ergon_sees_what_ends_last(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    leave_one_type(&world, 32);
    set_time(&world, 0, 0, 1, 1, 10);
    add_job(&world, 0, 10000, 0, 1);
    for (int i = 0; i < 190; i++)
        add_job(&world, 0, 2000, 0, 1);
    simulate(&result, &world, "ergon");
    assert_int_equal(result.summary.finished_jobs, 191);
    assert_true(result.jobs[0].started_s < 60);
    assert_true(result.summary.simulated_s < 100100);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* A job needs all 8 GPUs and has most work; 190 jobs of 17 hours for one GPU each keep coming for
 * 360 hours, which is a bit more than all GPUs can do. By work alone it would be last. */
static void test_ergon_starves_no_job(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    set_time(&world, 0, 0, 1, 1, 60);
    set_time(&world, 1, 0, 2, 4, 60);
    add_job(&world, 10, 3000, 0, 8);
    world.jobs[0].workload = 1;
    for (int i = 0; i < 190; i++)
        add_job(&world, i < 10 ? 0 : (i - 10) * 2 * HOUR_S, 1020, 0, 1);
    simulate(&result, &world, "ergon");
    assert_true(result.jobs[0].started_s < 150 * HOUR_S);
    assert_int_equal(result.summary.finished_jobs, 191);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Tenant 0 has filled the cluster for days; of two equal jobs at the same time, tenant 1's is
 * first. */
static void test_ergon_shares_between_tenants(void **state)
{
    (void)state;
    static char one[] = "one", two[] = "two";
    static char *tenants[] = {one, two};
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.trace.tenants_count = 2;
    world.trace.tenants = tenants;
    world.types[0].nodes = 1;
    set_time(&world, 0, 0, 1, 4, 60);
    add_job(&world, 0, 600, 0, 4);
    for (int i = 0; i < 6; i++) {
        add_job(&world, 5 * HOUR_S, 300, 0, 4);
        world.jobs[i + 1].tenant = i >= 3;
    }
    simulate(&result, &world, "ergon");
    double ended_s[2] = {0};
    for (int i = 1; i <= 6; i++)
        ended_s[world.jobs[i].tenant] += result.jobs[i].ended_s / 3;
    assert_true(ended_s[1] < ended_s[0] - 5 * HOUR_S);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* 15 % less energy for a quarter more time: only the thrifty variant thinks that worth it, and only
 * while GPUs are free. */
static void test_thrift_with_free_gpus(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    world.types[1].nodes = 1; /* nobody can use them: a third of all GPUs */
    world.types[1].first_node = 1;
    world.fleet.nodes = 2;
    world.fleet.gpus = 6;
    world.points[1] = (struct erg_operating_point){1.25, 68};
    set_time(&world, 0, 0, 1, 2, 10);
    add_job(&world, 0, 1000, 0, 2);
    simulate(&result, &world, "ergon");
    assert_int_equal(first_record(&result, ERG_RECORD_START, 0)->point, 0);
    erg_simulated_release(&result);
    simulate(&result, &world, "ergon-thrifty");
    assert_int_equal(first_record(&result, ERG_RECORD_START, 0)->point, 1);
    assert_close(result.jobs[0].ended_s, 30 + 12500, 1e-9);
    erg_simulated_release(&result);
    leave_one_type(&world, 1);
    for (int i = 1; i < 4; i++)
        add_job(&world, 5000, 1000, 0, 2);
    simulate(&result, &world, "ergon-thrifty");
    assert_int_equal(first_record(&result, ERG_RECORD_CHANGE, 0)->point, 0);
    assert_true(first_record(&result, ERG_RECORD_CHANGE, 0)->at_s < 5100);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Whether a job was set to an operating point before that time. */
static bool set_to(const struct erg_simulated *result, int job, int point, double before_s)
{
    for (size_t i = 0; i < result->records_count; i++) {
        const struct erg_cluster_record *record = &result->records[i];
        if (record->job == job && record->point == point && record->at_s < before_s &&
            (record->kind == ERG_RECORD_START || record->kind == ERG_RECORD_CHANGE))
            return true;
    }
    return false;
}

/* A third less energy for a tenth more time: as long as others wait, those take that which are not
 * long. */
static void test_energy_has_a_price_while_jobs_wait(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    leave_one_type(&world, 4);
    world.points[1] = (struct erg_operating_point){1.1, 60};
    set_time(&world, 0, 0, 1, 1, 10);
    add_job(&world, 0, 40000, 0, 1);
    for (int i = 0; i < 48; i++)
        add_job(&world, 0, 2000, 0, 1);
    simulate(&result, &world, "ergon");
    assert_false(set_to(&result, 0, 1, 60000)); /* when the last of the others start */
    for (int i = 1; i <= 48; i++)
        assert_true(set_to(&result, i, 1, INFINITY));
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Jobs of all lengths come and go, so prices waver about where a slow clock is worth it. If jobs
 * did not prefer the clock that they have there would be 106 changes. */
static void test_clocks_do_not_waver(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    make_world(&world);
    leave_one_type(&world, 4);
    world.points[1] = (struct erg_operating_point){1.1, 70};
    set_time(&world, 0, 0, 1, 1, 10);
    for (int i = 0; i < 190; i++)
        add_job(&world, 500 * i, ceil(1000 * exp(erg_rng_normal(&rng))), 0, 1);
    simulate(&result, &world, "ergon");
    long changes = 0;
    for (size_t i = 0; i < result.records_count; i++)
        changes += result.records[i].kind == ERG_RECORD_CHANGE;
    assert_in_range(changes, 1, 70);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Electricity costs 31 times as much from 900 to 1,000 s of every 1,000: clocks are low then. */
static void test_ergon_heeds_the_tariff(void **state)
{
    (void)state;
    struct erg_rate rates[] = {{0, 1, 0}, {900, 31, 0}};
    const struct erg_tariff tariff = {.items = rates, .count = 2, .period_s = 1000};
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.points[1] = (struct erg_operating_point){1.25, 60};
    set_time(&world, 0, 0, 1, 2, 10);
    add_job(&world, 0, 190, 0, 2);
    simulate(&result, &world, "ergon");
    assert_close(result.jobs[0].ended_s, 30 + 1900, 1e-9);
    erg_simulated_release(&result);
    world.simulation.tariff = &tariff;
    simulate(&result, &world, "ergon");
    /* From 900 to 1,000 s and again from 1,900 s on it does 0.8 of what it would; at 1,900 s it has
     * done 87 + 8 + 90 of its 190 iterations. */
    assert_close(result.jobs[0].ended_s, 1900 + 5 * 12.5, 1e-9);
    assert_close(result.jobs[0].energy_j,
                 2 * (30 * 10 + 870 * 100 + 100 * 60 + 900 * 100 + 62.5 * 60), 1e-9);
    erg_simulated_release(&result);
    rates[0].usd_per_kwh = 0; /* for nothing: jobs run all the more */
    simulate(&result, &world, "ergon");
    assert_close(result.jobs[0].ended_s, 1900 + 5 * 12.5, 1e-9);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* Below a cap that allows a bit more than half of the power, slow clocks keep all GPUs at work
 * where power buys most that way. */
static void test_ergon_keeps_the_cap(void **state)
{
    (void)state;
    struct world world;
    struct erg_rng rng;
    erg_rng_seed(&rng, 21);
    for (int round = 0; round < 4; round++) {
        struct erg_simulated result, free;
        make_random(&world, &rng);
        world.points[1] = (struct erg_operating_point){1.2, 60};
        world.simulation.outages_count = 0;
        simulate(&free, &world, "ergon");
        assert_true(isnan(free.summary.throttled_s)); /* no cap */
        double cap_w = 0.65 * free.summary.peak_power_w;
        world.simulation.power_cap_w = cap_w;
        simulate(&result, &world, "ergon");
        assert_near(result.summary.throttled_s, 0, 0); /* nobody else had to */
        assert_true(result.summary.peak_power_w > 0.8 * cap_w);
        assert_int_equal(result.summary.finished_jobs, free.summary.finished_jobs);
        erg_simulated_release(&result);
        erg_simulated_release(&free);
        erg_speeds_free(world.speeds);
    }
}

/* A job of one GPU draws 60 W at the least, 50 W more than idle, and the cap leaves 30 W. */
static void test_ergon_under_a_cap_below_every_job(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.points[1] = (struct erg_operating_point){1.25, 60};
    set_time(&world, 0, 0, 1, 1, 10);
    set_time(&world, 0, 0, 1, 4, 3);
    add_job(&world, 0, 600, 0, 4);
    add_job(&world, 0, 300, 0, 4);
    world.simulation.power_cap_w = 120 + 30;
    simulate(&result, &world, "ergon");
    /* One after the other, at 30 / 50 of the lower point's speed. */
    assert_int_equal(result.summary.finished_jobs, 2);
    assert_int_equal(result.summary.reconfigurations, 2);
    assert_close(result.summary.simulated_s, 2 * 25 + 900 * 12.5 / 0.6, 1e-3);
    assert_true(result.summary.peak_power_w <= 150);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

/* No job waits while GPUs are free on which it could run; of each type the fewest GPUs count. */
static void check_conserving(const struct erg_scheduler *scheduler)
{
    const struct erg_speeds *speeds = scheduler->speeds;
    struct erg_placement found = {0};
    for (int id = scheduler->waiting.first; id >= 0; id = scheduler->jobs[id].next)
        for (int type = 0; type < (int)scheduler->fleet->types_count; type++)
            for (int shape = 0, fewest = 0; shape < speeds->shapes_count; shape++) {
                int gpus = erg_shape_gpus(&speeds->shapes[shape]);
                if (speeds->shapes[shape].type != type || (fewest > 0 && gpus > fewest) ||
                    !erg_speed_feasible(erg_scheduler_speed(scheduler, id, shape)))
                    continue;
                fewest = gpus;
                assert_false(erg_occupancy_find(scheduler->occupancy, &speeds->shapes[shape],
                                                ERG_LEAST_FREE, &found));
            }
    erg_placement_release(&found);
}

static int checks;

static int decide_conserving(void *state, struct erg_scheduler *scheduler,
                             const struct erg_occasion *occasion, struct erg_error *err)
{
    int result = erg_policy_ergon.decide(state, scheduler, occasion, err);
    const struct ergon *ergon = state;
    if (ergon->decided_s ==
        scheduler->now_s) { /* not at every occasion: at most once in .2 s a job */
        check_conserving(scheduler);
        checks++;
    }
    return result;
}

static void test_ergon_conserves_work(void **state)
{
    (void)state;
    struct world world;
    struct erg_error err;
    struct erg_rng rng;
    struct erg_policy watching = erg_policy_ergon;
    watching.decide = decide_conserving;
    erg_rng_seed(&rng, 22);
    for (int round = 0; round < 6; round++) {
        struct erg_simulated result;
        make_random(&world, &rng);
        world.simulation.policy = &watching;
        assert_ok(erg_simulate(&result, &world.simulation, &err), &err);
        assert_int_equal(result.summary.finished_jobs + result.summary.rejected_jobs,
                         result.summary.submitted_jobs);
        erg_simulated_release(&result);
        erg_speeds_free(world.speeds);
    }
    assert_true(checks > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiresias_preempts_the_most_served_job),
        cmocka_unit_test(test_gandiva_grows_and_gives_back),
        cmocka_unit_test(test_comparative_advantage),
        cmocka_unit_test(test_gavel_takes_turns),
        cmocka_unit_test(test_sia_shares),
        cmocka_unit_test(test_ergon_grows_and_stops),
        cmocka_unit_test(test_ergon_does_not_churn),
        cmocka_unit_test(test_ergon_sees_what_ends_last),
        cmocka_unit_test(test_ergon_starves_no_job),
        cmocka_unit_test(test_ergon_shares_between_tenants),
        cmocka_unit_test(test_thrift_with_free_gpus),
        cmocka_unit_test(test_energy_has_a_price_while_jobs_wait),
        cmocka_unit_test(test_clocks_do_not_waver),
        cmocka_unit_test(test_ergon_heeds_the_tariff),
        cmocka_unit_test(test_ergon_keeps_the_cap),
        cmocka_unit_test(test_ergon_under_a_cap_below_every_job),
        cmocka_unit_test(test_ergon_conserves_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
