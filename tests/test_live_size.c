/*
 * Many jobs and nodes under one controller, on an engine of the test's own that does at once what
 * it is asked to. LIVE_JOBS=2000 LIVE_NODES=200 measure; times are printed, none is judged.
 */
#define _GNU_SOURCE

#include "cluster/policies/policies.h"
#include "live_world.h"

static long count = 200, nodes = 20;

static void test_many(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_controller *controller;
    world.at_s = NAN;
    struct erg_live_file *file = open_world(nodes);
    for (long i = 0; i < count; i++)
        submit_job(1 << i % 4);
    struct erg_controller_setup setup = {.file = file,
                                         .engine = &world.base,
                                         .journal = in_folder("journal"),
                                         .policy = file->policy,
                                         .compress = 1};
    const char *policy = getenv("LIVE_POLICY");
    assert_ok(erg_policy_find(&setup.policy, policy ? policy : "ergon", &err), &err);
    assert_ok(erg_controller_new(&controller, &setup, &err), &err);
    for (int pass = 0; pass < 5; pass++) {
        double wait_s;
        const double began_s = now_s(NULL);
        const long before = world.calls;
        assert_ok(erg_controller_pass(controller, &wait_s, &err), &err);
        printf("pass %d: %.3f s, of which the snapshot %.3f; %ld placements\n", pass,
               now_s(NULL) - began_s, world.snapshot_s, world.calls - before);
    }
    long busy = 0;
    for (long n = 0; n < nodes; n++)
        busy += __builtin_popcountll(world.taken[n]);
    assert_int_equal(busy, nodes * GPUS);
    erg_controller_free(controller);
    close_world(file);
}

int main(void)
{
    const char *jobs = getenv("LIVE_JOBS"), *wide = getenv("LIVE_NODES");
    count = jobs ? atol(jobs) : count;
    nodes = wide ? atol(wide) : nodes;
    if (count < 1 || count > MOST_JOBS || nodes < 1 || nodes > 999)
        return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
