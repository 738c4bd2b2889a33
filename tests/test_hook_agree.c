/*
 * Pipelines that follow a late one by agreement: four processes, two pipelines of two stages, whose
 * seconds are made up. All change at the same step, and back with hysteresis.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "check.h"

#include "base/clock.h"
#include "ergon/ergon.h"
#include "hooks/hook_internal.h"
#include "plan/plan_follow.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define SAMPLE ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json"

enum { STAGES = 2, RANKS = 4, MOST_STEPS = 600 };

/* So many times as long as planned does pipeline 0 take in these steps. */
struct phase {
    int until_step;
    double factor;
};

/* What the processes share. */
static struct shared {
    _Atomic int arrived, left;
    struct hook_message messages[RANKS];
    int point[RANKS][MOST_STEPS];
    struct erg_hook_choice choices[RANKS][8];
    int choice_count[RANKS];
    char said[RANKS][1024];
} * shared;

static int this_rank;

/* The caller's all-gather. */
static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    int *round = context;
    assert_int_equal(bytes, 64);
    memcpy(&shared->messages[this_rank], mine, bytes);
    ++*round;
    for (atomic_fetch_add(&shared->arrived, 1); atomic_load(&shared->arrived) < RANKS * *round;)
        erg_sleep_ns(20000);
    memcpy(all, shared->messages, RANKS * bytes);
    for (atomic_fetch_add(&shared->left, 1); atomic_load(&shared->left) < RANKS * *round;)
        erg_sleep_ns(20000);
    return 0;
}

static int step(struct erg_hook *hook, double factor, struct erg_error *err)
{
    double planned_s[STAGES];
    const struct erg_plan_method *method = &hook->plan->methods[hook->method];
    if (erg_hook_step_begin(hook, err) != 0)
        return -1;
    for (size_t i = 0; i < hook->plan->schedule.per_stage; i++)
        if (erg_hook_begin(hook, hook->instructions[i].direction, -1, -1, NULL, err) ||
            erg_hook_end(hook, NULL, err))
            return -1;
    erg_plan_stage_seconds(hook->plan, &method->points[hook->running], planned_s);
    hook->busy_s = factor * planned_s[hook->options.stage];
    hook->step_ns = erg_now_ns() - (int64_t)(1e9 * factor * method->points[0].time_s);
    return erg_hook_step_end(hook, err);
}

static int be_rank(const struct phase *phases, struct erg_error *err)
{
    struct erg_hook_options options;
    struct erg_hook *hook;
    int round = 0, result;
    int64_t from_step = -1;
    erg_hook_defaults(&options);
    options.mode = ERG_HOOK_OBSERVE;
    options.plan = SAMPLE;
    options.stage = this_rank % STAGES;
    options.replica = this_rank / STAGES;
    if (erg_hook_open(&hook, &options, err) != 0 ||
        erg_hook_agree(hook, gather, &round, RANKS, err) != 0)
        return 1;
    if (options.replica == 0)
        hook->clock.reasons = ERG_REASON_SW_THERMAL;
    for (int s = result = 0; phases->until_step && result == 0; s++) {
        if (s == phases->until_step && !(++phases)->until_step)
            break;
        result = step(hook, options.replica ? 1.0 : phases->factor, err);
        shared->point[this_rank][s] = (int)hook->running;
        struct erg_hook_choice choice = {.size = sizeof choice};
        erg_hook_agreed(hook, &choice);
        if (choice.from_step != from_step) {
            shared->choices[this_rank][shared->choice_count[this_rank]++] = choice;
            from_step = choice.from_step;
        }
        if (options.replica == 0 && s % 16 == 0)
            hook->clock.reasons = ERG_REASON_SW_THERMAL;
    }
    erg_hook_close(hook, NULL);
    return result;
}

static void run(const struct phase *phases)
{
    pid_t ranks[RANKS];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int rank = 0; rank < RANKS; rank++)
        if ((ranks[rank] = fork()) == 0) {
            struct erg_error err = {0};
            this_rank = rank;
            int result = be_rank(phases, &err);
            snprintf(shared->said[rank], sizeof shared->said[rank], "%s", err.message);
            _exit(result != 0);
        }
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        assert_int_equal(waitpid(ranks[rank], &status, 0), ranks[rank]);
        if (status)
            fail_msg("rank %d: %s", rank, shared->said[rank]);
    }
    for (int rank = 0; rank < RANKS; rank += STAGES) { /* both stages of a pipeline */
        assert_memory_equal(shared->point[rank], shared->point[rank + 1],
                            sizeof shared->point[rank]);
        assert_int_equal(shared->choice_count[rank], shared->choice_count[rank + 1]);
    }
    assert_int_equal(shared->choice_count[0], 0); /* the late one keeps its point */
    for (int s = 0; s < MOST_STEPS; s++)
        assert_int_equal(shared->point[0][s], 0);
}

static void finish(void)
{
    munmap(shared, sizeof *shared);
}

/* Late by 8 % from step 32 on, then as planned, then late again. */
static void all_change_at_the_same_step(void **state)
{
    (void)state;
    static const struct phase phases[] = {{32, 1}, {300, 1.08}, {450, 1}, {600, 1.08}, {0, 0}};
    run(phases);
    const struct erg_hook_choice *choices = shared->choices[2];
    assert_int_equal(shared->choice_count[2], 3);
    /* A median of 48 steps has changed after 24 of them, at 64; then three rounds. */
    assert_int_equal(choices[0].from_step, 98);
    assert_int_equal(choices[0].late_replica, 0);
    assert_int_equal(choices[0].cause, ERG_HOOK_CAUSE_THERMAL);
    assert_true(choices[0].point > 0 && choices[0].held_energy_j >= choices[0].energy_j);
    /* Back at once, at the first round that knows. */
    assert_int_equal(choices[1].from_step, 338);
    assert_int_equal(choices[1].point, 0);
    assert_int_equal(choices[1].late_replica, -1);
    assert_int_equal(choices[1].cause, ERG_HOOK_CAUSE_NONE);
    assert_int_equal(choices[2].point, choices[0].point);
    for (int s = 0; s < MOST_STEPS; s++) {
        int wanted = 0;
        for (int i = 0; i < 3; i++)
            if (s >= choices[i].from_step)
                wanted = choices[i].point;
        assert_int_equal(shared->point[2][s], wanted);
    }
    /* The point is that of plan_follow.h. */
    struct erg_plan *plan;
    struct erg_error err = {0};
    double slowest_s[STAGES];
    size_t point;
    assert_ok(erg_plan_load(&plan, SAMPLE, &err), &err);
    const struct erg_plan_method *method = &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    erg_plan_stage_seconds(plan, &method->points[0], slowest_s);
    slowest_s[0] *= 1.08;
    slowest_s[1] *= 1.08;
    const struct erg_plan_lateness lateness = {ERG_METHOD_SEQUENTIAL_CLOCKS, 0, 0, slowest_s, NULL};
    assert_ok(erg_plan_follow(plan, &lateness, &point, &err), &err);
    assert_int_equal(choices[0].point, point);
    erg_plan_free(plan);
    finish();
}

/* 1 % is not late, but once somebody is, it stays so until 0.75 %. */
static void return_is_later_than_the_way_out(void **state)
{
    (void)state;
    static const struct phase phases[] = {{200, 1.01}, {0, 0}};
    run(phases);
    assert_int_equal(shared->choice_count[2], 0);
    finish();
    static const struct phase back[] = {{150, 1.08}, {300, 1.01}, {450, 1.005}, {0, 0}};
    run(back);
    assert_true(shared->choice_count[2] >= 2);
    assert_int_equal(shared->point[2][149], shared->choices[2][0].point);
    assert_int_equal(shared->point[2][449], 0);
    finish();
}

static int fail_to_gather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    (void)mine;
    (void)all;
    (void)bytes;
    return -1;
}

/* Two ranks, of which the other one says something else. */
static int gather_nonsense(void *context, const void *mine, void *all, size_t bytes)
{
    struct hook_message *messages = all;
    (void)context;
    memcpy(&messages[0], mine, bytes);
    messages[1] = messages[0];
    messages[1].step++;
    return 0;
}

static void a_failing_exchange_fails_the_step(void **state)
{
    (void)state;
    static erg_hook_exchange *const exchanges[] = {fail_to_gather, gather_nonsense};
    static const char *const parts[] = {
        "after step 16: the caller's exchange failed",
        "after step 16: rank 1 has version 1, step 17, replica 0, stage 0 and point 0"};
    for (int i = 0; i < 2; i++) {
        struct erg_hook_options options;
        struct erg_hook *hook;
        struct erg_error err = {0};
        erg_hook_defaults(&options);
        options.mode = ERG_HOOK_OBSERVE;
        options.plan = SAMPLE;
        assert_ok(erg_hook_open(&hook, &options, &err), &err);
        assert_fails(erg_hook_agree(hook, gather, NULL, 0, &err), &err, "0 ranks");
        assert_ok(erg_hook_agree(hook, exchanges[i], NULL, 2, &err), &err);
        for (int s = 0; s < 15; s++)
            assert_ok(step(hook, 1, &err), &err);
        assert_fails(step(hook, 1, &err), &err, parts[i]);
        assert_ok(erg_hook_agree(hook, NULL, NULL, 1, &err), &err);
        for (int s = 0; s < 20; s++)
            assert_ok(step(hook, 1, &err), &err);
        erg_hook_close(hook, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_change_at_the_same_step),
        cmocka_unit_test(return_is_later_than_the_way_out),
        cmocka_unit_test(a_failing_exchange_fails_the_step),
    };
    return cmocka_run_group_tests_name("hook_agree", tests, NULL, NULL);
}
