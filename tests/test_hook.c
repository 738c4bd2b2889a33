/*
 * Hooks in one process: options, pauses, points that change, what is measured. The trainers are
 * loops that do nothing, on the fake NVML.
 */
#include "hooked.h"

/* ---- pauses, other work ---- */

static void evaluation_is_paused(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct world world = world_begin("");
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    struct erg_hook *hook = open_hook(&options);
    const struct trainer evaluation = {2, 0, 5, 1, true, true, true};
    assert_int_equal(erg_hook_resume(hook), -1);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(erg_hook_pause(hook), 0);
        assert_ok(train(hook, &evaluation, &err), &err);
        assert_int_equal(await_lock(&world, 0), 1410);
        assert_int_equal(erg_hook_resume(hook), 0);
        assert_ok(train(hook, &as_planned, &err), &err);
        assert_ok(pass(hook, ERG_OTHER, -1, -1, &err), &err);
    }
    assert_ok(erg_hook_step_begin(hook, &err), &err);
    assert_int_equal(erg_hook_pause(hook), -1);
    assert_int_equal(stats_of(hook).steps, 3);
    assert_int_equal(stats_of(hook).passes, 3 * 16);
    close_hook(hook, &world);
}

/* ---- modes and options ---- */

static void without_a_plan_it_observes(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_hook_options options = options_of(NULL, 0);
    options.mode = ERG_HOOK_OBSERVE;
    struct erg_hook *hook = open_hook(&options);
    const struct trainer any = {5, 3, 6, 2, false, true, true};
    for (int step = 0; step < 40; step++)
        assert_ok(train(hook, &any, &err), &err);
    assert_ok(pass(hook, ERG_OTHER, -1, -1, &err), &err);
    struct erg_hook_stats stats = stats_of(hook);
    assert_int_equal(stats.steps, 40);
    assert_int_equal(stats.passes, 40 * 24);
    assert_int_equal(stats.classes, 5);
    assert_int_equal(stats.lease, ERG_HOOK_LEASE_NONE);
    assert_true(isnan(stats.step_planned_s) && stats.point == -1);
    for (int i = 0; i < 5; i++) {
        struct erg_hook_class about = {.size = sizeof about};
        assert_int_equal(erg_hook_class(hook, i, &about), 0);
        assert_int_equal(about.count, about.kind == ERG_OTHER ? 1 : 240);
        assert_true(about.mean_s >= 0 && isnan(about.energy_j) && about.clock_mhz == 0);
    }
    struct erg_hook_class none = {.size = sizeof none};
    assert_int_equal(erg_hook_class(hook, 5, &none), -1);
    assert_fails(erg_hook_late(hook, 1.1, NULL, &err), &err, "this hook has no plan");
    close_hook(hook, NULL);
}

static void observing_a_plan_sets_no_clock(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct world world = world_begin("");
    struct erg_hook_options options = options_of(SAMPLE, 0);
    options.mode = ERG_HOOK_OBSERVE;
    struct erg_hook *hook = open_hook(&options);
    assert_ok(train(hook, &as_planned, &err), &err);
    assert_int_equal(stats_of(hook).lease, ERG_HOOK_LEASE_NONE);
    const struct trainer wrong = {2, 0, 7, 1, false, true, true};
    assert_fails(train(hook, &wrong, &err), &err, "the trainer runs 7 microbatches");
    assert_int_equal(access(world.log, F_OK), -1);
    assert_ok(erg_hook_close(hook, &err), &err);
    unlink(world.script);
    rmdir(world.folder);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    struct erg_hook *hook;
    struct world world = world_begin("");
    const struct erg_hook_options good = options_of(SAMPLE, 0);
#define REFUSED(change, said)                                                                      \
    do {                                                                                           \
        struct erg_error err = {0};                                                                \
        struct erg_hook_options options = good;                                                    \
        change;                                                                                    \
        assert_fails(erg_hook_open(&hook, &options, &err), &err, said);                            \
        assert_int_equal(err.status, ERG_USAGE);                                                   \
    } while (0)
    REFUSED(options.plan = NULL, "following needs a plan");
    REFUSED(options.plan_text = "{}", "plan and plan_text exclude each other");
    REFUSED(options.stage = 2, "stage 2 of a pipeline of 2, expected 0 to 1");
    REFUSED(options.stage = -1, "expected 0 or more");
    REFUSED(options.point = 6,
            "at point 6, from 0: choosing a point: sequential+clocks has the points 1 to 6");
    REFUSED(options.method = "ergon", "or a request for its clocks only");
    REFUSED(options.method = "sequentia", "sequential");
    REFUSED(options.mode = 5, "there is no mode 5");
    REFUSED(options.markers = 3, "there is no kind of markers 3");
    REFUSED(options.daemon = "/run/x", "the option daemon is '/run/x', expected NULL");
    REFUSED(options.dwell_s = (double)NAN, "expected 0 or more");
    REFUSED(options.gpu = "0,1", "names 2 GPUs, expected one");
#undef REFUSED
    setenv("ERGON_DAEMON", "none", 1);
    struct erg_hook_options options = good;
    options.method = "ergon";
    options.clocks_only = 1;
    hook = open_hook(&options);
    assert_int_equal(stats_of(hook).planned_times_hold, 0);
    close_hook(hook, NULL);
    unsetenv("ERGON_DAEMON");
    assert_int_equal(lock_of(&world, 1), 0);
    world_end(&world);
}

/* Programs of an older header have shorter structs. */
static void short_structs_are_the_defaults(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_hook_options options = options_of(SAMPLE, 1);
    char *text;
    struct erg_error err = {0};
    assert_ok(erg_file_read(SAMPLE, 0, &text, NULL, &err), &err);
    options.plan = NULL;
    options.plan_text = text;
    options.size = offsetof(struct erg_hook_options, daemon);
    options.strict = options.clocks_only = 77;
    options.dwell_s = -1;
    struct erg_hook *hook = open_hook(&options);
    free(text);
    struct erg_hook_stats stats;
    memset(&stats, 0x55, sizeof stats);
    stats.size = offsetof(struct erg_hook_stats, step_median_s);
    assert_int_equal(erg_hook_stats(hook, &stats), 0);
    assert_int_equal(stats.steps, 0);
    for (size_t i = stats.size; i < sizeof stats; i++)
        assert_int_equal(((unsigned char *)&stats)[i], 0x55);
    close_hook(hook, &world);
}

static void no_permission_is_no_device(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 1 nolocks\n");
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    struct erg_hook *hook;
    struct erg_error err = {0};
    assert_fails(erg_hook_open(&hook, &options, &err), &err, "no permission, expected root");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    unlink(world.script);
    unlink(world.log);
    rmdir(world.folder);
}

/* The other pipelines stay out of a child's way, too. */
static void a_child_cannot_use_it(void **state)
{
    (void)state;
    struct world world = world_begin("");
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    struct erg_hook *hook = open_hook(&options);
    struct erg_error err = {0};
    assert_int_equal(erg_hook_pause(hook), 0);
    assert_int_equal(await_lock(&world, 0), 1410);
    pid_t child = fork();
    if (child == 0) {
        struct erg_hook_stats stats = {.size = sizeof stats};
        bool dead = erg_hook_step_begin(hook, &err) == -1 &&
                    strstr(err.message, "is a child of the one that opened the hook") &&
                    erg_hook_resume(hook) == -1 && erg_hook_stats(hook, &stats) == -1 &&
                    erg_hook_close(hook, &err) == 0;
        _exit(dead ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(lock_of(&world, 1), 1410);
    assert_int_equal(erg_hook_resume(hook), 0);
    assert_ok(train(hook, &as_planned, &err), &err);
    close_hook(hook, &world);
}

/* ---- late pipelines ---- */

static void a_late_pipeline_is_waited_for(void **state)
{
    (void)state;
    static const double factors[] = {1.08, 1.2, 1};
    struct erg_error err = {0};
    struct world world = world_begin("");
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    struct erg_hook *hook = open_hook(&options);
    double first_s = stats_of(hook).step_planned_s;
    assert_int_equal(stats_of(hook).point, 0);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        struct erg_hook_choice choice = {.size = sizeof choice};
        assert_ok(erg_hook_late(hook, factors[i], &choice, &err), &err);
        assert_int_equal(choice.from_step, (int64_t)i);
        assert_string_equal(choice.method, "sequential+clocks");
        assert_true(choice.time_s <= factors[i] * first_s && choice.energy_j > 0);
        assert_true(choice.held_energy_j >= choice.energy_j);
        /* As ergon show --straggler says. */
        struct erg_text line = {0};
        char said[64];
        erg_text_printf(&line, "show %s --method sequential+clocks --straggler %.9g", SAMPLE,
                        factors[i] * first_s);
        snprintf(said, sizeof said, "sequential+clocks, point %d ", choice.point + 1);
        if (factors[i] > 1)
            check_program(line.data, 0, said);
        else
            assert_int_equal(choice.point, 0);
        erg_text_release(&line);
        assert_int_equal(stats_of(hook).point, i ? stats_of(hook).point : 0);
        assert_ok(train(hook, &as_planned, &err), &err);
        assert_int_equal(stats_of(hook).point, choice.point);
        assert_true(i < 2 ? choice.point > 0 : choice.point == 0);
    }
    assert_fails(erg_hook_late(hook, 0.9, NULL, &err), &err, "expected 1 or more");
    close_hook(hook, &world);
}

/* ---- allocations ---- */

static _Thread_local size_t allocations;

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && defined __GLIBC__
/* Those of the C library, counted; the sanitizers have their own. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}
#endif

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct world world = world_begin("");
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    struct erg_hook *hook = open_hook(&options);
    size_t before = allocations;
    for (int step = 0; step < 2000; step++)
        if (train(hook, &as_planned, &err) != 0)
            fail_msg("%s", err.message);
    (void)stats_of(hook);
    assert_int_equal(allocations, before);
    close_hook(hook, &world);
    assert_true(before > 100 || before == 0); /* they are counted, or cannot be */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_is_paused),
        cmocka_unit_test(without_a_plan_it_observes),
        cmocka_unit_test(observing_a_plan_sets_no_clock),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(short_structs_are_the_defaults),
        cmocka_unit_test(no_permission_is_no_device),
        cmocka_unit_test(a_child_cannot_use_it),
        cmocka_unit_test(a_late_pipeline_is_waited_for),
        cmocka_unit_test(a_step_allocates_nothing),
    };
    erg_log_set_sink(&(struct erg_log_sink){.message = count_warning});
    return cmocka_run_group_tests_name("hook", tests, make_plans, remove_folder);
}
