/* One clock for several GPUs, on the fake NVML. */
#include "fake_clocks.h"

#include "device/clock_group.h"

static const size_t both[] = {1, 0};

static struct erg_gpus *open_gpus(void)
{
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    return gpus;
}

static void all_gpus_are_locked_and_given_back(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_error err = {0};
    struct erg_gpus *gpus = open_gpus();
    struct erg_clock_group *group;
    assert_ok(erg_clock_group_open(&group, gpus, both, 2, &err), &err);
    assert_true(latest_of(&world, 0).line > 0); /* it has been tried */
    assert_int_equal(lock_of(&world, 0), 0);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_ok(erg_clock_group_set(group, 1200, &err), &err);
    assert_int_equal(lock_of(&world, 0), 1200);
    assert_int_equal(lock_of(&world, 1), 1200);
    int line = latest_of(&world, 1).line;
    assert_ok(erg_clock_group_set(group, 1200, &err), &err);
    assert_int_equal(latest_of(&world, 1).line, line); /* nothing to do */
    assert_ok(erg_clock_group_set(group, 0, &err), &err);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_ok(erg_clock_group_set(group, 345, &err), &err);
    assert_ok(erg_clock_group_close(group, &err), &err);
    assert_int_equal(lock_of(&world, 0), 0);
    assert_int_equal(lock_of(&world, 1), 0);
    erg_gpus_close(gpus);
    world_end(&world);
}

static void only_members_are_locked(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_error err = {0};
    struct erg_gpus *gpus = open_gpus();
    struct erg_clock_group *group;
    assert_ok(erg_clock_group_open(&group, gpus, both, 1, &err), &err);
    assert_ok(erg_clock_group_set(group, 900, &err), &err);
    assert_int_equal(lock_of(&world, 1), 900);
    assert_int_equal(latest_of(&world, 0).line, 0);
    assert_ok(erg_clock_group_close(group, &err), &err);
    erg_gpus_close(gpus);
    world_end(&world);
}

static void a_refusal_is_known_at_once(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 0 nolocks\n");
    struct erg_error err = {0};
    struct erg_gpus *gpus = open_gpus();
    struct erg_clock_group *group;
    assert_fails(erg_clock_group_open(&group, gpus, both, 2, &err), &err, "GPU 0");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    assert_int_equal(lock_of(&world, 1), 0);
    erg_gpus_close(gpus);
    world_end(&world);
}

static void a_wrong_clock_leaves_none_locked(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_error err = {0};
    struct erg_gpus *gpus = open_gpus();
    struct erg_clock_group *group;
    assert_ok(erg_clock_group_open(&group, gpus, both, 2, &err), &err);
    assert_ok(erg_clock_group_set(group, 1500, &err), &err);
    assert_fails(erg_clock_group_set(group, 1213, &err), &err, "the nearest are 1200 and 1215");
    assert_int_equal(err.status, ERG_FAILED);
    assert_int_equal(lock_of(&world, 0), 0);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_ok(erg_clock_group_set(group, 1500, &err), &err);
    assert_int_equal(lock_of(&world, 0), 1500);
    assert_ok(erg_clock_group_close(group, &err), &err);
    erg_gpus_close(gpus);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gpus_are_locked_and_given_back),
        cmocka_unit_test(only_members_are_locked),
        cmocka_unit_test(a_refusal_is_known_at_once),
        cmocka_unit_test(a_wrong_clock_leaves_none_locked),
    };
    return cmocka_run_group_tests_name("clock_group", tests, NULL, NULL);
}
