/* Records of simulations, read one by one. */
#include "cluster_world.h"

enum { NODES = 6, GPUS_MOST = 4 };

struct reading {
    int owners[NODES][GPUS_MOST]; /* -1: nobody */
    bool released[200];           /* by job: it is to be changed at this moment */
    long releases;
};

static void give_back(struct reading *reading, int job)
{
    for (int node = 0; node < NODES; node++)
        for (int gpu = 0; gpu < GPUS_MOST; gpu++)
            if (reading->owners[node][gpu] == job)
                reading->owners[node][gpu] = -1;
}

static void take(struct reading *reading, const struct erg_simulated *result,
                 const struct erg_cluster_record *record)
{
    for (int i = 0; i < record->slices; i++) {
        const struct erg_slice *slice = &result->slices[record->first_slice + (size_t)i];
        for (int gpu = 0; gpu < GPUS_MOST; gpu++)
            if (slice->gpus >> gpu & 1) {
                assert_int_equal(reading->owners[slice->node][gpu], -1);
                reading->owners[slice->node][gpu] = record->job;
            }
    }
}

static void read_records(struct reading *reading, const struct erg_simulated *result)
{
    memset(reading->owners, -1, sizeof reading->owners);
    for (size_t i = 0; i < result->records_count; i++) {
        const struct erg_cluster_record *record = &result->records[i];
        switch (record->kind) {
        case ERG_RECORD_START:
        case ERG_RECORD_CHANGE:
            give_back(reading, record->job);
            take(reading, result, record);
            reading->released[record->job] = false;
            break;
        case ERG_RECORD_RELEASE:
            assert_int_equal(record->slices, 0);
            reading->released[record->job] = true;
            reading->releases++;
            give_back(reading, record->job);
            break;
        case ERG_RECORD_SUSPEND:
        case ERG_RECORD_EVICT:
        case ERG_RECORD_END:
            give_back(reading, record->job);
            break;
        default:
            break;
        }
        bool last = i + 1 == result->records_count || result->records[i + 1].at_s > record->at_s;
        for (size_t job = 0; job < 200 && last; job++)
            assert_false(reading->released[job]);
    }
}

/* Whatever policies decide at once, no record gives a job a GPU that another one has. */
static void test_no_gpu_has_two_jobs(void **state)
{
    (void)state;
    struct erg_rng rng;
    struct reading reading = {.releases = 0};
    erg_rng_seed(&rng, 5);
    for (int round = 0; round < 10; round++)
        for (const struct erg_policy *const *policy = erg_policies; *policy; policy++) {
            struct world world;
            struct erg_simulated result;
            make_random(&world, &rng);
            simulate(&result, &world, (*policy)->name);
            read_records(&reading, &result);
            erg_simulated_release(&result);
            erg_speeds_free(world.speeds);
        }
    assert_true(reading.releases > 0); /* jobs did exchange GPUs */
}

/* Two jobs of ElasticFlow's of which one halves and the other doubles: the former comes first. */
static void test_gives_before_it_takes(void **state)
{
    (void)state;
    struct world world;
    struct erg_simulated result;
    make_world(&world);
    world.types[0].nodes = 1;
    set_time(&world, 0, 0, 1, 2, 20);
    set_time(&world, 0, 0, 1, 4, 10);
    add_job(&world, 0, 1000, 0, 4);
    add_job(&world, 100, 1000, 0, 2);
    world.simulation.until_s = 200;
    simulate(&result, &world, "elasticflow-ls");
    const struct erg_cluster_record *last = &result.records[result.records_count - 1];
    assert_int_equal(last->kind, ERG_RECORD_START);
    assert_int_equal(last->job, 1);
    assert_int_equal(last[-1].kind, ERG_RECORD_CHANGE);
    assert_int_equal(last[-1].job, 0);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_gpu_has_two_jobs),
        cmocka_unit_test(test_gives_before_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
