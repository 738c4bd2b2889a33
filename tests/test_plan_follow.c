/*
 * Which point a pipeline runs while another one is late, on plans of examples: the first job, and a
 * published workload.
 */
#include "optimize.h"

#include "base/random.h"
#include "plan/plan_follow.h"

enum { STAGES = 2 };

static struct erg_plan *sample, *quickstart;

static int load_plans(void **state)
{
    struct erg_error err = {0};
    make_quick_folder(state);
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "optimize %s/examples/quickstart.yaml -o %s/out -q 2>&1",
                    ERGON_TEST_SOURCE_DIR, folder);
    check_program(arguments.data, 0, "");
    erg_text_release(&arguments);
    assert_ok(erg_plan_load(&sample, ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json", &err),
              &err);
    assert_ok(erg_plan_load(&quickstart, in_folder("out/plan.json"), &err), &err);
    assert_int_equal(sample->schedule.pipeline.stages, STAGES);
    assert_int_equal(quickstart->schedule.pipeline.stages, STAGES);
    return 0;
}

static int free_plans(void **state)
{
    erg_plan_free(sample);
    erg_plan_free(quickstart);
    return remove_folder(state);
}

static const struct erg_plan_point *point_of(const struct erg_plan *plan, size_t point)
{
    return &plan->methods[ERG_METHOD_ERGON].points[point];
}

static size_t count_points(const struct erg_plan *plan)
{
    return plan->methods[ERG_METHOD_ERGON].point_count +
           plan->methods[ERG_METHOD_ERGON].slower_count;
}

/* The stages' seconds at a point, so many times as long as planned. */
static void measure(const struct erg_plan *plan, size_t point, double first, double last,
                    double *seconds)
{
    erg_plan_stage_seconds(plan, point_of(plan, point), seconds);
    seconds[0] *= first;
    seconds[1] *= last;
}

/* Of ergon's points, with the slowest pipeline's stages at so many times what was planned. */
static size_t follow(const struct erg_plan *plan, size_t chosen, size_t running, double first,
                     double last)
{
    struct erg_error err = {0};
    double slowest_s[STAGES];
    size_t point = SIZE_MAX;
    measure(plan, chosen, first, last, slowest_s);
    const struct erg_plan_lateness lateness = {ERG_METHOD_ERGON, chosen, running, slowest_s, NULL};
    assert_ok(erg_plan_follow(plan, &lateness, &point, &err), &err);
    return point;
}

/* As `ergon show --straggler` picks. */
static size_t pick(const struct erg_plan *plan, double straggler_s)
{
    struct erg_error err = {0};
    const struct erg_goal goal = {ERG_LEAST_ENERGY, .straggler_s = straggler_s};
    size_t point;
    assert_ok(erg_plan_pick(plan, ERG_METHOD_ERGON, &goal, &point, &err), &err);
    return point;
}

static void stages_work_as_planned(void **state)
{
    (void)state;
    double seconds[STAGES];
    /* Point 1 of the first job: 8 of each direction, and on the last stage all alike. */
    erg_plan_stage_seconds(quickstart, point_of(quickstart, 0), seconds);
    const struct erg_plan_option *forward =
        erg_plan_option(quickstart, point_of(quickstart, 0), 16);
    const struct erg_plan_option *backward =
        erg_plan_option(quickstart, point_of(quickstart, 0), 17);
    double overhead = 1 + quickstart->scale.overhead;
    assert_close(seconds[1], 8 * (forward->time_s + backward->time_s) * overhead, 1e-12);
    assert_near(seconds[1] / overhead, 8 * (0.1086 + 0.2985), 8 * 1e-4);
    assert_true(seconds[0] < point_of(quickstart, 0)->time_s);
}

static void without_a_late_pipeline_nothing_changes(void **state)
{
    (void)state;
    const struct erg_plan *const plans[] = {sample, quickstart};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < count_points(plans[k]); i++) {
            assert_int_equal(follow(plans[k], i, i, 1, 1), i);
            assert_int_equal(follow(plans[k], i, i, 0.9, 0.95), i); /* faster than planned */
            assert_int_equal(follow(plans[k], i, i, (double)NAN, (double)NAN), i);
        }
}

/* All stages slower by a factor: the iteration, too, but for the messages between stages. */
static void a_late_pipeline_is_followed(void **state)
{
    (void)state;
    static const double factors[] = {1.06, 1.1, 1.15, 1.2, 1.3, 1.5, 2};
    const struct erg_plan *const plans[] = {sample, quickstart};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
            double until_s = factors[i] * point_of(plans[k], 0)->time_s;
            size_t found = follow(plans[k], 0, 0, factors[i], factors[i]);
            assert_int_equal(found, pick(plans[k], until_s / 1.02));
            assert_true(found > 0 && point_of(plans[k], found)->time_s <= until_s);
            assert_true(erg_plan_held_energy(plans[k], point_of(plans[k], found), until_s) <
                        erg_plan_held_energy(plans[k], point_of(plans[k], 0), until_s));
            assert_int_equal(follow(plans[k], 0, found, factors[i], factors[i]), found);
        }
    /* The published workload: 4.595 s and 20.5 kJ at point 1, of 12. */
    assert_int_equal(follow(sample, 0, 0, 1.1, 1.1), 8);
    assert_near(point_of(sample, 8)->time_s, 4.809, 0.001);
    assert_int_equal(follow(sample, 0, 0, 1.2, 1.2), 11);
    assert_int_equal(follow(sample, 0, 0, 3, 3), 11);
}

/* One stage that is late makes the pipeline less late than two do. */
static void one_late_stage_is_followed(void **state)
{
    (void)state;
    size_t both = follow(quickstart, 0, 0, 1.15, 1.15);
    size_t first = follow(quickstart, 0, 0, 1.15, 1), last = follow(quickstart, 0, 0, 1, 1.15);
    assert_true(first > 0 && first <= both);
    assert_true(last > 0 && last <= both);
    assert_int_equal(follow(quickstart, 0, 0, (double)NAN, 1.15), last);
}

/* What makes all pipelines slow, or this one as well, makes nobody wait. */
static void own_pace_counts(void **state)
{
    (void)state;
    struct erg_error err = {0};
    double slowest_s[STAGES], own_s[STAGES];
    for (size_t running = 0; running < count_points(sample); running++) {
        size_t point = SIZE_MAX;
        measure(sample, 0, 1.3, 1.3, slowest_s);
        measure(sample, running, 1.3, 1.3, own_s);
        const struct erg_plan_lateness lateness = {ERG_METHOD_ERGON, 0, running, slowest_s, own_s};
        assert_ok(erg_plan_follow(sample, &lateness, &point, &err), &err);
        assert_int_equal(point, follow(sample, 0, running, 1, 1));
        measure(sample, running, 1.3 / 1.1, 1.3 / 1.1, own_s);
        assert_ok(erg_plan_follow(sample, &lateness, &point, &err), &err);
        assert_int_equal(point, follow(sample, 0, running, 1.1, 1.1));
    }
}

static double wavering(struct erg_rng *rng)
{
    return 1 + ERG_FOLLOW_NOISE * (2 * erg_rng_uniform(rng) - 1);
}

/* Noise of 2 % of each stage: it goes up to what the truth allows, and never back. */
static void noise_never_speeds_a_pipeline_up_again(void **state)
{
    (void)state;
    static const double factors[] = {1, 1.01, 1.03, 1.05, 1.08, 1.1, 1.2, 1.4};
    const struct erg_plan *const plans[] = {sample, quickstart};
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
            const struct erg_plan *plan = plans[k];
            double until_s = factors[i] * point_of(plan, 0)->time_s;
            size_t running = 0, changes = 0;
            for (int step = 0; step < 500; step++) {
                size_t next = follow(plan, 0, running, factors[i] * wavering(&rng),
                                     factors[i] * wavering(&rng));
                assert_true(next >= running);
                assert_true(point_of(plan, next)->time_s <= until_s);
                changes += next != running;
                running = next;
            }
            assert_true(changes <= 2);
            assert_true(factors[i] > 1.02 || changes == 0);
            assert_true(factors[i] < 1.1 || changes > 0);
            for (int step = 0; step < 20; step++) /* nobody is late any more */
                running = follow(plan, 0, running, 1, 1);
            assert_int_equal(running, 0);
        }
}

static void a_change_of_lateness_is_followed(void **state)
{
    (void)state;
    size_t running = follow(quickstart, 0, 0, 1.1, 1.1), first = running;
    running = follow(quickstart, 0, running, 1.3, 1.3);
    assert_true(running > first);
    assert_int_equal(follow(quickstart, 0, running, 1.1, 1.1), first); /* at once */
    assert_int_equal(follow(quickstart, 0, running, 1, 1), 0);
    /* Back to the point that was chosen, and to none before it. */
    size_t chosen = 5;
    running = follow(quickstart, chosen, chosen, 1.3, 1.3);
    assert_true(running > chosen);
    assert_int_equal(follow(quickstart, chosen, running, 0.8, 0.8), chosen);
}

static void an_unknown_method(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_plan plan = {0};
    size_t point;
    const struct erg_plan_lateness lateness = {.method = ERG_METHOD_NANOBATCHING};
    assert_fails(erg_plan_follow(&plan, &lateness, &point, &err), &err,
                 "no points of method nanobatching");
    assert_int_equal(err.status, ERG_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_work_as_planned),
        cmocka_unit_test(without_a_late_pipeline_nothing_changes),
        cmocka_unit_test(a_late_pipeline_is_followed),
        cmocka_unit_test(one_late_stage_is_followed),
        cmocka_unit_test(own_pace_counts),
        cmocka_unit_test(noise_never_speeds_a_pipeline_up_again),
        cmocka_unit_test(a_change_of_lateness_is_followed),
        cmocka_unit_test(an_unknown_method),
    };
    return cmocka_run_group_tests_name("plan_follow", tests, load_plans, free_plans);
}
