/*
 * The order of passes, and what is said of a wrong one: the GPU is unlocked before anybody hears of
 * it.
 */
#include "hooked.h"

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
         "microbatch 0: no pipeline schedule in ergon has this order"},
        {take_wrong_chunk, "pass 1 of stage 0: forward pass of microbatch 1 on chunk 5 came, "
                           "expected forward pass of microbatch 1: no pipeline"},
        {split_backward, "pass 3 of stage 0: backward pass of microbatch 1 came, expected forward "
                         "pass of microbatch 2: the trainer runs a zero-bubble schedule"},
        {begin_twice,
         "a forward pass began within a forward pass, expected erg_hook_end() before it"},
        {end_twice, "a pass ended, expected erg_hook_begin() before it"},
        {begin_outside,
         "a backward pass began outside of a step, expected erg_hook_step_begin() before it"},
        {begin_step_twice, "a step began within a step, expected erg_hook_step_end() before it"},
        {end_step_outside, "a step ended, expected erg_hook_step_begin() before it"},
        {end_step_in_pass, "a step ended within a pass, expected erg_hook_end() before it"},
        {hook_nothing, "the end of the step came, expected forward pass of microbatch 0: no pass "
                       "went through the hook"},
        {take_no_kind, "a pass of kind 7 began, expected 0 to 3"},
    };
    const struct erg_hook_options options = options_of(SAMPLE, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_mistake(&options, NULL, rows[i].wrong, rows[i].part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_followed),
        cmocka_unit_test(another_pipeline_is_named),
        cmocka_unit_test(mistakes_are_named),
    };
    erg_log_set_sink(&(struct erg_log_sink){.message = count_warning});
    return cmocka_run_group_tests_name("hook_order", tests, make_plans, remove_folder);
}
