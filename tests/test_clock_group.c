/* One clock for several GPUs, on the fake NVML. */
#include "fake_clocks.h"

#include "device/clock_group.h"

/* A world of two GPUs, and a group of some of them where one can be made. */
struct rig {
    struct world world;
    struct erg_gpus *gpus;
    struct erg_clock_group *group; /* NULL: it could not be opened */
    struct erg_error err;          /* why, and for the calls of a test */
};

/* GPU 1 is the group's first member, and its only one of one. */
static struct rig open_rig(const char *commands, size_t members)
{
    static const size_t both[] = {1, 0};
    struct rig rig = {.world = world_begin(commands)};
    assert_ok(erg_gpus_open(&rig.gpus, "all", &rig.err), &rig.err);
    if (erg_clock_group_open(&rig.group, rig.gpus, both, members, &rig.err))
        rig.group = NULL;
    return rig;
}

static void close_rig(struct rig *rig)
{
    if (rig->group)
        assert_ok(erg_clock_group_close(rig->group, &rig->err), &rig->err);
    erg_gpus_close(rig->gpus);
    world_end(&rig->world);
}

static void set_clock(struct rig *rig, int clock_mhz)
{
    if (!rig->group)
        fail_msg("%s", rig->err.message);
    assert_ok(erg_clock_group_set(rig->group, clock_mhz, &rig->err), &rig->err);
}

static void check_locks(const struct rig *rig, int clock_mhz)
{
    for (int gpu = 0; gpu < 2; gpu++)
        assert_int_equal(lock_of(&rig->world, gpu), clock_mhz);
}

static void all_gpus_are_locked_and_given_back(void **state)
{
    (void)state;
    struct rig rig = open_rig("", 2);
    assert_true(latest_of(&rig.world, 0).line > 0); /* it has been tried */
    check_locks(&rig, 0);
    set_clock(&rig, 1200);
    check_locks(&rig, 1200);
    int line = latest_of(&rig.world, 1).line;
    set_clock(&rig, 1200);
    assert_int_equal(latest_of(&rig.world, 1).line, line); /* nothing to do */
    set_clock(&rig, 0);
    check_locks(&rig, 0);
    set_clock(&rig, 345);
    assert_ok(erg_clock_group_close(rig.group, &rig.err), &rig.err);
    rig.group = NULL;
    check_locks(&rig, 0);
    close_rig(&rig);
}

static void only_members_are_locked(void **state)
{
    (void)state;
    struct rig rig = open_rig("", 1);
    set_clock(&rig, 900);
    assert_int_equal(lock_of(&rig.world, 1), 900);
    assert_int_equal(latest_of(&rig.world, 0).line, 0);
    close_rig(&rig);
}

static void a_refusal_is_known_at_once(void **state)
{
    (void)state;
    struct rig rig = open_rig("gpu 0 nolocks\n", 2);
    assert_null(rig.group);
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    assert_non_null(strstr(rig.err.message, "GPU 0"));
    assert_int_equal(lock_of(&rig.world, 1), 0);
    close_rig(&rig);
}

static void a_wrong_clock_leaves_none_locked(void **state)
{
    (void)state;
    struct rig rig = open_rig("", 2);
    set_clock(&rig, 1500);
    assert_fails(erg_clock_group_set(rig.group, 1213, &rig.err), &rig.err,
                 "the nearest are 1200 and 1215");
    assert_int_equal(rig.err.status, ERG_FAILED);
    check_locks(&rig, 0);
    set_clock(&rig, 1500);
    check_locks(&rig, 1500);
    close_rig(&rig);
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
