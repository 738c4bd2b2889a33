/* Power saving on random clusters and traces: what events say of nodes fits what was counted. */
#include "cluster_world.h"

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

/* A node goes off after as long as the fleet says without a job, under ergon's policies as soon as
 * it has drawn as much as waking it does, and no sooner; a job on one that was off ends no sooner
 * than it is up and the job restarted. */
static void check_events(const struct world *world, const struct erg_simulated *result)
{
    struct replayed now = {0};
    const struct erg_power_saving *saving = &world->fleet.power_saving;
    double resumes_s[200] = {0}, off_gpu_s = 0;
    double after_s =
        world->simulation.policy->linger ? fmin(saving->wake_s, saving->after_s) : saving->after_s;
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
        world.fleet.power_saving = (struct erg_power_saving){1e9, 1e9};
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
        cmocka_unit_test(test_saving_on_any_cluster),
        cmocka_unit_test(test_never_off_is_no_saving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
