/* Power saving: nodes that are switched off and woken, and what that costs jobs. */
#include "cluster/policies/policies.h"
#include "cluster_world.h"

#include <string.h>

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
    world.simulation.accounting = &erg_accounting_artifact;
    struct erg_error err;
    assert_fails(erg_simulate(&result, &world.simulation, &err), &err, "knows no power saving");
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
    world.fleet.reconfiguration = (struct erg_reconfiguration){0, 0, 0};
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

/* What all events say about the cluster, put together again: the power that nodes draw, off, idle
 * or at work. */
struct replayed {
    bool down[6], off[6];
    double up_s[6]; /* a node that was woken */
    double idle_since_s[6];
    int owners[6][4]; /* 0: none */
};

static bool is_idle(const struct replayed *now, int node)
{
    int used = 0;
    for (int gpu = 0; gpu < 4; gpu++)
        used += now->owners[node][gpu] > 0;
    return used == 0;
}

static void give_back(struct replayed *now, int job, double at_s)
{
    for (int node = 0; node < 6; node++) {
        bool was_idle = is_idle(now, node);
        for (int gpu = 0; gpu < 4; gpu++)
            if (now->owners[node][gpu] == job + 1)
                now->owners[node][gpu] = 0;
        if (!was_idle && is_idle(now, node))
            now->idle_since_s[node] = at_s;
    }
}

static void get(struct replayed *now, const struct world *world, const struct erg_simulated *result,
                const struct erg_cluster_record *record, double *resumes_s)
{
    double wait_s = 0;
    int gpus = 0;
    give_back(now, record->job, record->at_s);
    for (int i = 0; i < record->slices; i++) {
        const struct erg_slice *slice = &result->slices[record->first_slice + (size_t)i];
        assert_false(now->off[slice->node] || now->down[slice->node]);
        wait_s = fmax(wait_s, now->up_s[slice->node] - record->at_s);
        for (int gpu = 0; gpu < 4; gpu++)
            if (slice->gpus >> gpu & 1) {
                now->owners[slice->node][gpu] = record->job + 1;
                gpus++;
            }
    }
    const struct erg_reconfiguration *costs = &world->fleet.reconfiguration;
    resumes_s[record->job] = record->at_s + wait_s + costs->fixed_s + gpus * costs->per_gpu_s;
}

/* Whether a job gets other GPUs than it has. */
static bool moves(const struct replayed *now, const struct erg_simulated *result,
                  const struct erg_cluster_record *record)
{
    int had = 0, kept = 0, gets = 0;
    for (int node = 0; node < 6; node++)
        for (int gpu = 0; gpu < 4; gpu++)
            had += now->owners[node][gpu] == record->job + 1;
    for (int i = 0; i < record->slices; i++) {
        const struct erg_slice *slice = &result->slices[record->first_slice + (size_t)i];
        for (int gpu = 0; gpu < 4; gpu++) {
            gets += slice->gpus >> gpu & 1;
            kept += (slice->gpus >> gpu & 1) && now->owners[slice->node][gpu] == record->job + 1;
        }
    }
    return kept < gets || kept < had;
}

/* A node goes off after as long as the fleet says without a job, and no sooner; a job on one that
 * was off ends no sooner than it is up and the job restarted. */
static void check_events(const struct world *world, const struct erg_simulated *result)
{
    struct replayed now = {0};
    double resumes_s[200] = {0}, after_s = world->fleet.power_saving.after_s, off_gpu_s = 0;
    double since_s[6] = {0};
    long wake_ups = 0;
    for (size_t i = 0; i < result->records_count; i++) {
        const struct erg_cluster_record *record = &result->records[i];
        int node = record->node, gpus = node < 0 ? 0 : node < 2 ? 4 : 2;
        switch (record->kind) {
        case ERG_RECORD_START:
        case ERG_RECORD_CHANGE:
            if (moves(&now, result, record))
                get(&now, world, result, record, resumes_s);
            break;
        case ERG_RECORD_END:
            assert_true(record->at_s > resumes_s[record->job] - 1e-6);
            give_back(&now, record->job, record->at_s);
            break;
        case ERG_RECORD_EVICT:
        case ERG_RECORD_SUSPEND:
        case ERG_RECORD_RELEASE:
            give_back(&now, record->job, record->at_s);
            break;
        case ERG_RECORD_FAILURE:
            off_gpu_s += now.off[node] ? gpus * (record->at_s - since_s[node]) : 0;
            now.off[node] = false;
            now.down[node] = true;
            break;
        case ERG_RECORD_REPAIR:
            now.down[node] = false;
            now.idle_since_s[node] = record->at_s;
            now.up_s[node] = 0;
            break;
        case ERG_RECORD_OFF:
            assert_true(is_idle(&now, node) && !now.off[node] && !now.down[node]);
            assert_near(record->at_s, now.idle_since_s[node] + after_s, 1e-6);
            now.off[node] = true;
            since_s[node] = record->at_s;
            break;
        case ERG_RECORD_WAKE:
            assert_true(now.off[node]);
            off_gpu_s += gpus * (record->at_s - since_s[node]);
            now.off[node] = false;
            now.up_s[node] = record->at_s + world->fleet.power_saving.wake_s;
            wake_ups++;
            break;
        default:
            break;
        }
    }
    for (int node = 0; node < 6; node++)
        off_gpu_s +=
            now.off[node] ? (node < 2 ? 4 : 2) * (result->summary.simulated_s - since_s[node]) : 0;
    assert_close(result->summary.off_gpu_s, off_gpu_s, 1e-9);
    assert_near(result->summary.wake_ups, (double)wake_ups, 0);
}

/* Energy is the integral of power, and that of jobs and of nodes as they are. */
static void check_energy(const struct world *world, const struct erg_simulated *result)
{
    double power_j = 0, jobs_j = 0, jobs_idle_j = 0, idle_w = erg_fleet_idle_power(&world->fleet);
    for (size_t i = 0; i < result->samples_count; i++) {
        const struct erg_cluster_sample *sample = &result->samples[i];
        double to_s = i + 1 < result->samples_count ? sample[1].at_s : result->summary.simulated_s;
        power_j += sample->power_w * (to_s - sample->at_s);
        assert_true(sample->power_w > -1e-9);
        assert_true(sample->power_w < idle_w + 1e-9 || sample->busy_gpus > 0);
        assert_true(sample->busy_gpus + sample->off_gpus + sample->down_gpus <= world->fleet.gpus);
    }
    for (size_t i = 0; i < result->jobs_count; i++) {
        jobs_j += result->jobs[i].energy_j;
        jobs_idle_j += 5 * result->jobs[i].gpu_s;
    }
    assert_close(power_j, result->summary.energy_j, 1e-9);
    assert_true(jobs_j <= result->summary.energy_j * (1 + 1e-9) && jobs_j >= jobs_idle_j);
}

static void test_saving_on_any_cluster(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 31);
    double woken = 0;
    for (int round = 0; round < 8; round++) {
        struct world world;
        make_random(&world, &rng);
        world.fleet.saves_power = true;
        world.fleet.power_saving = (struct erg_power_saving){
            round == 0 ? 0 : 300 * erg_rng_uniform(&rng), round == 1 ? 0 : 60 * (round % 4)};
        world.types[0].off_power_w = round % 3;
        world.simulation.until_s = round % 3 == 2 ? 4000 : INFINITY;
        world.simulation.outages_count = round % 2 ? 0 : 3;
        world.simulation.power_cap_w = round % 4 < 2 ? INFINITY : 150 + 80 * round;
        for (size_t p = 0; erg_policies[p]; p++) {
            struct erg_simulated result, again;
            struct erg_error err;
            world.simulation.policy = erg_policies[p];
            assert_ok(erg_simulate(&result, &world.simulation, &err), &err);
            assert_ok(erg_simulate(&again, &world.simulation, &err), &err);
            check_events(&world, &result);
            check_energy(&world, &result);
            assert_true(result.summary.peak_power_w <= world.simulation.power_cap_w * (1 + 1e-9));
            assert_same_course(&result, &again);
            woken += result.summary.wake_ups;
            erg_simulated_release(&result);
            erg_simulated_release(&again);
        }
        erg_speeds_free(world.speeds);
    }
    assert_true(woken > 100);
}

/* Nodes that never go off in time change nothing but what is said of them. */
static void test_never_off_is_no_saving(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 32);
    struct world world;
    make_random(&world, &rng);
    for (size_t p = 0; erg_policies[p]; p++) {
        struct erg_simulated without, with;
        struct erg_error err;
        world.simulation.policy = erg_policies[p];
        world.fleet.saves_power = false;
        assert_ok(erg_simulate(&without, &world.simulation, &err), &err);
        world.fleet.saves_power = true;
        world.fleet.power_saving = (struct erg_power_saving){1e9, 120};
        assert_ok(erg_simulate(&with, &world.simulation, &err), &err);
        assert_same_course(&with, &without);
        assert_near(with.summary.energy_j, without.summary.energy_j, 0);
        assert_near(with.summary.off_gpu_s, 0, 0);
        erg_simulated_release(&without);
        erg_simulated_release(&with);
    }
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
        cmocka_unit_test(test_saving_on_any_cluster),
        cmocka_unit_test(test_never_off_is_no_saving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
