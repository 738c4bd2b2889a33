/*
 * Hooks in one process: options, the order of passes and what is said of a wrong one, pauses,
 * points that change, what is measured. The trainers are loops that do nothing, on the fake NVML.
 */
#include "fake_clocks.h"
#include "folder.h"
#include "program.h"

#include "base/log.h"
#include "ergon/ergon.h"
#include "iteration/iteration.h"

#include <sys/wait.h>

#define SAMPLE ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json"

static const char *interleaved; /* a plan of two chunks per stage */

static int make_plans(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    write_text("profile.csv", "stage,instruction,frequency,time,energy\n"
                              "0,forward,1410,0.010,4\n0,forward,1200,0.012,3\n"
                              "0,backward,1410,0.020,8\n0,backward,1200,0.024,6\n"
                              "1,forward,1410,0.011,4\n1,forward,1200,0.013,3\n"
                              "1,backward,1410,0.022,8\n1,backward,1200,0.026,6\n"
                              "2,forward,1410,0.010,4\n2,forward,1200,0.012,3\n"
                              "2,backward,1410,0.020,8\n2,backward,1200,0.024,6\n"
                              "3,forward,1410,0.010,4\n3,forward,1200,0.012,3\n"
                              "3,backward,1410,0.020,8\n3,backward,1200,0.024,6\n");
    struct erg_text line = with_folder("frontier @/profile.csv -m 8 -p 80 --schedule interleaved "
                                       "--virtual-stages 2 --plan @/interleaved.json -q 2>&1");
    check_program(line.data, 0, "");
    erg_text_release(&line);
    static char path[160];
    snprintf(path, sizeof path, "%s", in_folder("interleaved.json"));
    interleaved = path;
    return 0;
}

/* ---- warnings ---- */

static unsigned warnings;

static void count_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    (void)text;
    warnings += level == ERG_LOG_WARNING;
}

/* ---- a trainer ---- */

static struct erg_hook_options options_of(const char *plan, int stage)
{
    struct erg_hook_options options;
    erg_hook_defaults(&options);
    options.plan = plan;
    options.stage = stage;
    options.gpu = "1";
    return options;
}

static struct erg_hook *open_hook(const struct erg_hook_options *options)
{
    struct erg_hook *hook;
    struct erg_error err = {0};
    assert_ok(erg_hook_open(&hook, options, &err), &err);
    return hook;
}

static struct erg_hook_stats stats_of(struct erg_hook *hook)
{
    struct erg_hook_stats stats = {.size = sizeof stats};
    assert_int_equal(erg_hook_stats(hook, &stats), 0);
    return stats;
}

static void close_hook(struct erg_hook *hook, const struct world *world)
{
    struct erg_error err = {0};
    assert_ok(erg_hook_close(hook, &err), &err);
    if (world) {
        assert_int_equal(lock_of(world, 1), 0);
        world_end(world);
    }
}

/* A pipeline as a trainer has it, and what of a pass it tells. */
struct trainer {
    size_t stages, stage, microbatches, chunks;
    bool forward_only, says_microbatch, says_chunk;
};

static const struct trainer as_planned = {2, 0, 8, 1, false, true, true};

/* A step of the trainer, at once. The first failure ends it. */
static int train(struct erg_hook *hook, const struct trainer *trainer, struct erg_error *err)
{
    struct erg_instruction order[256];
    const struct erg_pass_order passes =
        erg_pass_order_of(trainer->stages, trainer->chunks, trainer->microbatches);
    const size_t count = 2 * erg_pass_order_count(&passes);
    assert_true(count <= 256);
    erg_schedule_stage(order, trainer->stage, &passes);
    int result = erg_hook_step_begin(hook, err);
    for (size_t i = 0; i < count && result == 0; i++) {
        if (trainer->forward_only && order[i].direction == ERG_BACKWARD)
            continue;
        result =
            erg_hook_begin(hook, order[i].direction, trainer->says_chunk ? (int)order[i].chunk : -1,
                           trainer->says_microbatch ? (int)order[i].microbatch : -1, NULL, err) ||
                    erg_hook_end(hook, NULL, err)
                ? -1
                : 0;
    }
    return result == 0 ? erg_hook_step_end(hook, err) : -1;
}

/* Until the GPU is locked at what is not `but`. */
static int await_lock(const struct world *world, int but)
{
    for (int i = 0; i < 20000 && lock_of(world, 1) == but; i++)
        pause_s(0.001);
    assert_int_not_equal(lock_of(world, 1), but);
    return lock_of(world, 1);
}

/* ---- order ---- */

static void the_plan_is_followed(void **state)
{
    (void)state;
    struct erg_error err = {0};
    static const struct trainer says[] = {
        {2, 0, 8, 1, false, true, true},  {2, 0, 8, 1, false, false, true},
        {2, 0, 8, 1, false, true, false}, {2, 0, 8, 1, false, false, false},
        {2, 0, 8, 2, false, true, true},  {2, 0, 8, 2, false, false, false},
    };
    for (size_t k = 0; k < 2 * sizeof says / sizeof *says; k++) {
        struct trainer trainer = says[k / 2];
        trainer.stage = k % 2;
        struct world world = world_begin("");
        const struct erg_hook_options options =
            options_of(trainer.chunks > 1 ? interleaved : SAMPLE, (int)trainer.stage);
        struct erg_hook *hook = open_hook(&options);
        for (int step = 0; step < 3; step++)
            assert_ok(train(hook, &trainer, &err), &err);
        struct erg_hook_stats stats = stats_of(hook);
        assert_int_equal(stats.steps, 3);
        assert_int_equal(stats.passes, 3 * 16 * trainer.chunks);
        assert_int_equal(stats.order_errors, 0);
        assert_int_equal(stats.lease, ERG_HOOK_LEASE_DIRECT);
        assert_string_equal(stats.trouble, "");
        assert_true(stats.step_last_s > 0 && stats.step_median_s > 0 && stats.step_planned_s > 0);
        close_hook(hook, &world);
    }
}

/* A hook that has set a clock; then what is wrong. Tells whether the GPU was unlocked by then. */
static void check_mistake(const struct erg_hook_options *options, const struct trainer *good,
                          int (*wrong)(struct erg_hook *hook, struct erg_error *err),
                          const char *part)
{
    struct erg_error err = {0}, again = {0};
    for (int strict = 1; strict >= 0; strict--) {
        struct world world = world_begin("");
        struct erg_hook_options asked = *options;
        asked.strict = strict;
        struct erg_hook *hook = open_hook(&asked);
        warnings = 0;
        if (good)
            assert_ok(train(hook, good, &err), &err);
        assert_int_equal(erg_hook_pause(hook), 0); /* has a lock of its own */
        await_lock(&world, 0);
        assert_int_equal(erg_hook_resume(hook), 0);
        int result = wrong(hook, &err);
        assert_int_equal(lock_of(&world, 1), 0);
        struct erg_hook_stats stats = stats_of(hook);
        assert_true(stats.order_errors >= 1);
        assert_int_equal(stats.lease, ERG_HOOK_LEASE_ENDED);
        if (strict) {
            assert_int_equal(result, -1);
            assert_int_equal(err.status, ERG_FAILED);
            if (!strstr(err.message, part))
                fail_msg("said \"%s\", expected \"%s\"", err.message, part);
            assert_int_equal(erg_hook_step_begin(hook, &again), -1);
            assert_string_equal(again.message, err.message);
            assert_int_equal(warnings, 0);
        } else {
            assert_int_equal(result, 0);
            assert_int_equal(warnings, 1);
            if (good)
                assert_ok(train(hook, good, &err), &err);
        }
        pause_s(0.005);
        assert_int_equal(lock_of(&world, 1), 0);
        assert_true(strlen(stats.trouble) > 20);
        close_hook(hook, &world);
    }
}

static struct trainer wrong_trainer;

static int train_wrongly(struct erg_hook *hook, struct erg_error *err)
{
    return train(hook, &wrong_trainer, err);
}

static void check_trainer(const char *plan, int stage, bool after_a_step, struct trainer wrong,
                          const char *part)
{
    const struct erg_hook_options options = options_of(plan, stage);
    struct trainer good = as_planned;
    good.stage = (size_t)stage;
    if (plan == interleaved)
        good.chunks = 2;
    wrong_trainer = wrong;
    check_mistake(&options, after_a_step ? &good : NULL, train_wrongly, part);
}

static void another_pipeline_is_named(void **state)
{
    (void)state;
    static const bool names[] = {true, false};
    for (size_t k = 0; k < 2; k++) {
        const bool says = names[k];
        for (int stage = 0; stage < 2; stage++) {
            const size_t at = (size_t)stage;
            check_trainer(SAMPLE, stage, false, (struct trainer){2, at, 9, 1, false, says, says},
                          "the trainer runs 9 microbatches, the plan has 8");
            check_trainer(SAMPLE, stage, true, (struct trainer){2, at, 7, 1, false, says, says},
                          "the trainer runs 7 microbatches, the plan has 8");
            check_trainer(SAMPLE, stage, false, (struct trainer){2, at, 16, 1, false, says, says},
                          "the trainer runs 9 microbatches, the plan has 8");
            check_trainer(SAMPLE, stage, true, (struct trainer){2, at, 8, 1, true, says, says},
                          "this is an evaluation, before which erg_hook_pause() was expected");
        }
        check_trainer(SAMPLE, 0, false, (struct trainer){3, 0, 8, 1, false, says, says},
                      "the trainer's pipeline has 3 stages, the plan's 2");
        check_trainer(SAMPLE, 0, false, (struct trainer){4, 0, 8, 1, false, says, says},
                      "the trainer's pipeline has 3 stages, the plan's 2");
        check_trainer(SAMPLE, 1, false, (struct trainer){2, 0, 8, 1, false, says, says},
                      "this rank is stage 0 of the pipeline, the hook was opened for 1");
        check_trainer(interleaved, 0, false, (struct trainer){2, 0, 8, 1, false, says, says},
                      "interleaving is off: the trainer's stages have 1 chunk, the plan's 2");
        if (says) /* else it might be a longer pipeline as well */
            check_trainer(SAMPLE, 0, false, (struct trainer){2, 0, 8, 2, false, says, says},
                          "interleaving differs: the trainer's stages have 2 chunks, the plan's 1");
    }
}

/* ---- other mistakes ---- */

static int pass(struct erg_hook *hook, int kind, int chunk, int microbatch, struct erg_error *err)
{
    return erg_hook_begin(hook, kind, chunk, microbatch, NULL, err) || erg_hook_end(hook, NULL, err)
               ? -1
               : 0;
}

static int swap_microbatches(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, 0, 1, err) ? -1 : 0;
}

static int take_wrong_chunk(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, 0, 0, err) ||
                   pass(hook, ERG_FORWARD, 5, 1, err)
               ? -1
               : 0;
}

static int split_backward(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, 0, 0, err) ||
                   pass(hook, ERG_FORWARD, 0, 1, err) || pass(hook, ERG_BACKWARD, 0, 0, err) ||
                   pass(hook, ERG_BACKWARD_WEIGHT, 0, 0, err) || pass(hook, ERG_BACKWARD, 0, 1, err)
               ? -1
               : 0;
}

static int begin_twice(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || erg_hook_begin_named(hook, "forward", NULL, err) ||
                   erg_hook_begin_named(hook, "forward", NULL, err)
               ? -1
               : 0;
}

static int end_twice(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, -1, -1, err) ||
                   erg_hook_end(hook, NULL, err)
               ? -1
               : 0;
}

static int begin_outside(struct erg_hook *hook, struct erg_error *err)
{
    return pass(hook, ERG_BACKWARD, -1, -1, err);
}

static int begin_step_twice(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || erg_hook_step_begin(hook, err) ? -1 : 0;
}

static int end_step_outside(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_end(hook, err);
}

static int end_step_in_pass(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || erg_hook_begin_named(hook, "forward", NULL, err) ||
                   erg_hook_step_end(hook, err)
               ? -1
               : 0;
}

static int hook_nothing(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || erg_hook_step_end(hook, err) ? -1 : 0;
}

static int take_no_kind(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, 7, -1, -1, err) ? -1 : 0;
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        int (*wrong)(struct erg_hook *hook, struct erg_error *err);
        const char *part;
    } rows[] = {
        {swap_microbatches,
         "step 0, pass 0 of stage 0: forward pass of microbatch 1 came, expected forward pass of "
         "microbatch 0: no pipeline that ergon knows has this order"},
        {take_wrong_chunk, "pass 1 of stage 0: forward pass of microbatch 1 on chunk 5 came, "
                           "expected forward pass of microbatch 1: no pipeline"},
        {split_backward, "pass 3 of stage 0: backward pass of microbatch 1 came, expected forward "
                         "pass of microbatch 2: the trainer runs a zero-bubble schedule"},
        {begin_twice, "a forward pass began in a forward pass, expected erg_hook_end() before it"},
        {end_twice, "a pass ended, expected erg_hook_begin() before it"},
        {begin_outside,
         "a backward pass began outside of a step, expected erg_hook_step_begin() before it"},
        {begin_step_twice, "a step began in a step, expected erg_hook_step_end() before it"},
        {end_step_outside, "a step ended, expected erg_hook_step_begin() before it"},
        {end_step_in_pass, "a step ended in a pass, expected erg_hook_end() before it"},
        {hook_nothing, "the end of the step came, expected forward pass of microbatch 0: no pass "
                       "went through the hook"},
        {take_no_kind, "a pass of kind 7 began, expected 0 to 3"},
    };
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_mistake(&options, NULL, rows[i].wrong, rows[i].part);
}

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
    REFUSED(options.plan = NULL, "to follow takes a plan");
    REFUSED(options.plan_text = "{}", "plan and plan_text exclude each other");
    REFUSED(options.stage = 2, "stage 2 of a pipeline of 2, expected 0 to 1");
    REFUSED(options.stage = -1, "expected none below 0");
    REFUSED(options.point = 6, "no point 6 of method sequential+clocks, expected 0 to 5");
    REFUSED(options.method = "ergon", "to ask for its clocks only");
    REFUSED(options.method = "sequentia", "sequential");
    REFUSED(options.mode = 5, "there is no mode 5");
    REFUSED(options.mode = ERG_HOOK_PROFILE, "profiling through hooks is not there yet");
    REFUSED(options.markers = 3, "there are no markers 3");
    REFUSED(options.daemon = "/run/x", "clocks by a daemon ('/run/x') are not there yet");
    REFUSED(options.dwell_s = (double)NAN, "expected none below 0");
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
        cmocka_unit_test(the_plan_is_followed),
        cmocka_unit_test(another_pipeline_is_named),
        cmocka_unit_test(mistakes_are_named),
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
