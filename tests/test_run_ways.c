/* The ways to run a step that the plan of a published workload has, and what is said of them. */
#include "check.h"

#include "train/engine/pass_plan.h"
#include "train/run/run_ways.h"

static struct erg_plan *plan;

static int load_plan(void **state)
{
    (void)state;
    struct erg_error err = {0};
    assert_ok(erg_plan_load(&plan, ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json", &err),
              &err);
    return 0;
}

static int free_plan(void **state)
{
    (void)state;
    erg_plan_free(plan);
    return 0;
}

static const struct erg_goal none = {0};

/* Whether some instruction of two ways is launched, or clocked, differently. */
static bool differ(const struct erg_run_way *a, const struct erg_run_way *b, bool clocks)
{
    bool found = false;
    for (size_t i = 0; i < plan->schedule.count; i++) {
        const struct erg_plan_option *x =
            erg_plan_option(plan, &plan->methods[a->method].points[a->point], i);
        const struct erg_plan_option *y =
            erg_plan_option(plan, &plan->methods[b->method].points[b->point], i);
        found |= !erg_pass_options_are_alike(x, y) || (clocks && x->clock_mhz != y->clock_mhz);
    }
    return found;
}

static size_t list(struct erg_run_way *ways, bool clocks, const struct erg_goal *goal)
{
    const size_t count = erg_run_ways_list(ways, plan, clocks, goal);
    assert_in_range(count, 2, ERG_TRIALS_WAYS);
    assert_int_equal(ways[0].method, ERG_METHOD_SEQUENTIAL);
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            assert_true(differ(&ways[i], &ways[k], clocks));
    return count;
}

static void the_most_promising_come_first(void **state)
{
    (void)state;
    struct erg_run_way ways[ERG_TRIALS_WAYS], others[ERG_TRIALS_WAYS];
    for (int clocks = 0; clocks < 2; clocks++) {
        const size_t count = list(ways, clocks, &none);
        for (size_t i = 2; i < count; i++)
            assert_true(ways[i].time_s >= ways[i - 1].time_s);
        /* Nothing that the plan has is faster than the second. */
        for (size_t m = 0; m < ERG_METHOD_COUNT; m++)
            for (size_t p = 0; p < plan->methods[m].point_count; p++)
                assert_true(plan->methods[m].points[p].time_s >= ways[1].time_s);
    }
    /* At the GPUs' own clocks no energy is as planned. */
    const struct erg_goal deadline = {ERG_LEAST_ENERGY, .deadline_s = 1.1 * ways[1].time_s};
    size_t count = list(ways, false, &none);
    assert_int_equal(list(others, false, &deadline), count);
    for (size_t i = 0; i < count; i++)
        assert_true(others[i].method == ways[i].method && others[i].point == ways[i].point);
    /* Else those within a bound come first, the best of them before. */
    count = list(ways, true, &deadline);
    assert_true(ways[1].time_s <= deadline.deadline_s);
    for (size_t i = 2; i < count && ways[i].time_s <= deadline.deadline_s; i++)
        assert_true(ways[i].energy_j >= ways[i - 1].energy_j);
    const struct erg_goal thrifty = {.energy_j = 1.02 * ways[1].energy_j};
    count = list(ways, true, &thrifty);
    assert_true(ways[1].energy_j <= thrifty.energy_j);
    for (size_t i = 2; i < count && ways[i].energy_j <= thrifty.energy_j; i++)
        assert_true(ways[i].time_s >= ways[i - 1].time_s);
}

static void selected_points_are_found(void **state)
{
    (void)state;
    struct erg_run_way ways[ERG_TRIALS_WAYS];
    struct erg_text name = {0};
    const struct erg_plan_selection before = plan->selected;
    const size_t count = list(ways, true, &none);
    for (size_t i = 0; i < count; i++) {
        plan->selected.method = ways[i].method;
        plan->selected.point = ways[i].point;
        assert_int_equal(erg_run_ways_find(ways, count, plan, true), i);
    }
    assert_int_equal(erg_run_ways_find(ways, 1, plan, true), 1);
    plan->selected = before;
    erg_run_way_name(&name, &ways[0], plan);
    assert_string_equal(name.data, "sequential");
    name.count = 0;
    const struct erg_run_way third = {.method = ERG_METHOD_ERGON, .point = 2};
    erg_run_way_name(&name, &third, plan);
    assert_string_equal(name.data, "ergon point 3");
    erg_text_release(&name);
}

static void add(struct erg_trials *trials, double step_s, double step_j)
{
    const struct erg_trial_block block = {step_s, step_j, 0.5, 3 * step_s, false};
    erg_trials_add(trials, &block);
}

static void trial_results_are_reported(void **state)
{
    (void)state;
    static const double times[2][3] = {{1, 1.01, 0.99}, {0.9, 0.9, 0.9}};
    const struct erg_run_way ways[] = {{.method = ERG_METHOD_SEQUENTIAL},
                                       {.method = ERG_METHOD_ERGON, .point = 1}};
    for (int energy = 0; energy < 2; energy++) {
        const struct erg_trials_options options = {.ways = 2, .budget_s = 17, .steps = 99};
        struct erg_trials trials;
        struct erg_text text = {0};
        erg_trials_init(&trials, &options);
        for (size_t i = 0; i < 3; i++)
            for (size_t way = 0; way < 2; way++)
                add(&trials, times[way][i], energy ? 50 * times[way][i] : (double)NAN);
        assert_false(trials.trying);
        json_t *document = erg_run_ways_document(ways, &trials, plan);
        erg_run_ways_say(&text, document);
        assert_string_equal(text.data, energy
                                           ? "ergon point 2 saves 10.0 ± 2.2 % of the time and "
                                             "10.0 ± 2.2 % of the energy of a step compared with "
                                             "sequential execution, of 2 ways tried"
                                           : "ergon point 2 saves 10.0 ± 2.2 % of the time and "
                                             "- of the energy of a step compared with sequential "
                                             "execution, of 2 ways tried");
        const json_t *row = json_array_get(json_object_get(document, "ways"), 1);
        assert_string_equal(json_string_value(json_object_get(row, "method")), "ergon");
        assert_int_equal(json_integer_value(json_object_get(row, "point")), 2);
        assert_near(json_number_value(json_object_get(row, "step_ms")), 900, 1e-9);
        if (energy) /* of blocks that do not vary the sensors' alone */
            assert_near(json_number_value(json_object_get(row, "step_j_uncertainty")), 0.5, 1e-9);
        else
            assert_true(json_is_null(json_object_get(row, "step_j")));
        json_decref(document);
        erg_text_release(&text);
    }
}

static void one_round_shows_no_saving(void **state)
{
    (void)state;
    const struct erg_run_way ways[] = {{.method = ERG_METHOD_SEQUENTIAL},
                                       {.method = ERG_METHOD_ERGON, .point = 1}};
    const struct erg_trials_options options = {.ways = 2, .budget_s = 1, .steps = 99};
    struct erg_trials trials;
    struct erg_text text = {0};
    erg_trials_init(&trials, &options);
    add(&trials, 1, (double)NAN);
    add(&trials, 0.9, (double)NAN);
    assert_false(trials.trying);
    json_t *document = erg_run_ways_document(ways, &trials, plan);
    erg_run_ways_say(&text, document);
    assert_string_equal(text.data,
                        "ergon point 2 took least in the single round of 2 ways that the "
                        "time allowed, which does not show its saving compared with "
                        "sequential execution");
    json_decref(document);
    erg_text_release(&text);
}

/* Other work can disturb all blocks of a way, so that the running way stays without a trial. */
static void disturbed_trials_are_reported(void **state)
{
    (void)state;
    const struct erg_run_way ways[] = {{.method = ERG_METHOD_SEQUENTIAL},
                                       {.method = ERG_METHOD_ERGON, .point = 1}};
    const struct erg_trials_options options = {.ways = 2, .budget_s = 9, .steps = 99};
    const struct erg_trial_block disturbed = {1, (double)NAN, 0.5, 3, true};
    for (size_t kept = 0; kept < 2; kept++) {
        struct erg_trials trials;
        struct erg_text text = {0};
        erg_trials_init(&trials, &options);
        if (kept) {
            erg_trials_keep(&trials, 1);
            for (int i = 0; i < 100 && !trials.trying; i++)
                add(&trials, i < 4 ? 0.9 : 1, (double)NAN);
            add(&trials, 1, (double)NAN);
        }
        for (int i = 0; i < 100 && trials.trying; i++)
            erg_trials_add(&trials, &disturbed);
        assert_int_equal(trials.best, kept);
        json_t *document = erg_run_ways_document(ways, &trials, plan);
        erg_run_ways_say(&text, document);
        assert_string_equal(text.data,
                            kept ? "ergon point 2 continues: other work disturbed the trials, "
                                   "which show no better way"
                                 : "sequential continues: other work disturbed the trials, which "
                                   "show no better way");
        json_decref(document);
        erg_text_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_promising_come_first),
        cmocka_unit_test(selected_points_are_found),
        cmocka_unit_test(trial_results_are_reported),
        cmocka_unit_test(one_round_shows_no_saving),
        cmocka_unit_test(disturbed_trials_are_reported),
    };
    return cmocka_run_group_tests(tests, load_plan, free_plan);
}
