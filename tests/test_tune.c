/* The tuner: its search on curves with noise; and on the fake NVML, whose power follows what is
 * set. */
#include "fake_clocks.h"
#include "folder.h"

#include "base/memory.h"
#include "base/random.h"
#include "ergon/tune.h"
#include "hooks/tune_search.h"
#include "io/json.h"

/* ---- the search alone ---- */

/* Limits of 200 to 700 W, the energy least at `best_w`: E = 1 + ((p - best) / 250)^2, T falls. */
struct curve {
    double best_w, noise, drift;
};

static double limit_at(size_t value)
{
    return 200 + 25 * (double)value;
}

static double true_energy(const struct curve *curve, double limit_w)
{
    const double off = (limit_w - curve->best_w) / 250;
    return 1000 * (1 + off * off);
}

static double true_time(double limit_w)
{
    return 1 + 200 / limit_w;
}

/* Until it is done: the number of blocks. */
static size_t run(struct erg_tune_search *search, const struct curve *curve, uint64_t seed)
{
    struct erg_rng rng;
    size_t blocks = 0;
    erg_rng_seed(&rng, seed);
    for (; !search->done; blocks++) {
        const double limit_w = limit_at(erg_tune_search_value(search));
        const double drift = 1 + curve->drift * (double)blocks;
        const struct erg_tune_block block = {
            true_time(limit_w) * (1 + curve->noise * erg_rng_normal(&rng)),
            true_energy(curve, limit_w) * drift * (1 + curve->noise * erg_rng_normal(&rng))};
        erg_tune_search_put(search, &block);
        assert_true(blocks < 200);
    }
    return blocks;
}

static size_t points_of(const struct erg_tune_search *search)
{
    size_t points = 0;
    for (size_t i = 0; i < search->count; i++)
        points += search->time[i].count > 0;
    return points;
}

/* Without noise every minimum of every grid is found. */
static void test_exact(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 33; count++)
        for (size_t best = 0; best < count; best++) {
            const struct erg_tune_goal goal = {.selector = ERG_TUNE_ENERGY};
            const struct curve curve = {.best_w = limit_at(best)};
            struct erg_tune_search search;
            erg_tune_search_begin(&search, count, &goal);
            (void)run(&search, &curve, 1);
            assert_int_equal(erg_tune_search_value(&search), best);
            assert_true(points_of(&search) <= 8);
            erg_tune_search_release(&search);
        }
}

/* Noise of 1 %, and a GPU that draws 0.3 % more with each block: what it costs to be wrong. */
static void test_noise_and_drift(void **state)
{
    (void)state;
    const struct erg_tune_goal goal = {.selector = ERG_TUNE_ENERGY};
    const struct curve curve = {.best_w = 480, .noise = 0.01, .drift = 0.003};
    size_t good = 0, blocks = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct erg_tune_search search;
        erg_tune_search_begin(&search, 21, &goal);
        blocks += run(&search, &curve, seed);
        const double limit_w = limit_at(erg_tune_search_value(&search));
        good += true_energy(&curve, limit_w) <= 1.02 * true_energy(&curve, 475);
        assert_true(points_of(&search) <= 8);
        erg_tune_search_release(&search);
    }
    if (good < 190 || blocks > 200 * 45)
        fail_msg("%zu of 200 within 2 %%, %.1f blocks each", good, (double)blocks / 200);
    print_message("%zu of 200 within 2 %%, %.1f blocks each\n", good, (double)blocks / 200);
}

static void check_choice(const struct erg_tune_goal *goal, double expected_w, bool meets)
{
    const struct curve curve = {.best_w = 450};
    struct erg_tune_search search;
    erg_tune_search_begin(&search, 21, goal);
    (void)run(&search, &curve, 1);
    const size_t value = erg_tune_search_value(&search);
    assert_near(limit_at(value), expected_w, 0.1);
    assert_int_equal(erg_tune_search_meets(&search, value), meets);
    assert_true(points_of(&search) <= 8);
    erg_tune_search_release(&search);
}

static void test_selectors(void **state)
{
    (void)state;
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_ENERGY}, 450, true);
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_TIME}, 700, true);
    /* 0.5 E + 0.5 700 T over the grid, worked out here. */
    const struct curve curve = {.best_w = 450};
    double least = INFINITY, best_w = 0;
    for (size_t i = 0; i < 21; i++) {
        const double cost = true_energy(&curve, limit_at(i)) + 700 * true_time(limit_at(i));
        if (cost < least) {
            least = cost;
            best_w = limit_at(i);
        }
    }
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_COST, .weight = 0.5, .full_w = 700},
                 best_w, true);
    /* T(700) = 1.2857; 1.1 of it is reached from 482.8 W on. */
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_SLOWDOWN, .slowdown = 1.1}, 500,
                 true);
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_SLOWDOWN, .slowdown = 1}, 700, true);
    /* E <= 1160 up to 550 W; none has 900. */
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_BUDGET, .budget_j = 1160.1}, 550,
                 true);
    check_choice(&(struct erg_tune_goal){.selector = ERG_TUNE_BUDGET, .budget_j = 900}, 450, false);
}

/* ---- on the fake ---- */

/* The least power, and so energy of a step, at 480 W: 300 W + 0.03 (limit - 480)^2. */
#define FOLLOWS                                                                                    \
    "gpu * counter 0.02 0\n"                                                                       \
    "gpu * limits 200 700 700\n"                                                                   \
    "gpu * limit 690\n"                                                                            \
    "gpu * follow limit 200=2652 300=1272 355=769 405=469 430=375 455=319 480=300 505=319 "        \
    "530=375 "                                                                                     \
    "555=469 605=769 700=1752\n"

static struct erg_tune_options quick(int knob)
{
    struct erg_tune_options options;
    erg_tune_defaults(&options);
    options.knob = knob;
    options.selector = ERG_TUNE_ENERGY;
    options.gpus = "0";
    options.settle_steps = 1;
    options.measure_steps = 8;
    options.measure_s = 0.1;
    return options;
}

static void step(struct erg_tune *tune, double duration_s)
{
    struct erg_error err = {0};
    assert_ok(erg_tune_step_begin(tune, &err), &err);
    pause_s(duration_s);
    assert_ok(erg_tune_step_end(tune, &err), &err);
}

static struct erg_tune_stats stats_of(const struct erg_tune *tune)
{
    struct erg_tune_stats stats = {.size = sizeof stats};
    assert_int_equal(erg_tune_stats(tune, &stats), 0);
    return stats;
}

static struct erg_tune_stats run_until_done(struct erg_tune *tune)
{
    for (int i = 0; i < 20000 && stats_of(tune).state == ERG_TUNE_MEASURING; i++)
        step(tune, 0.01);
    assert_int_equal(stats_of(tune).state, ERG_TUNE_DONE);
    return stats_of(tune);
}

static struct erg_tune *open_tune(const struct erg_tune_options *options)
{
    struct erg_tune *tune;
    struct erg_error err = {0};
    assert_ok(erg_tune_open(&tune, options, &err), &err);
    return tune;
}

static void close_tune(struct erg_tune *tune)
{
    struct erg_error err = {0};
    assert_ok(erg_tune_close(tune, &err), &err);
}

/* From a fresh profile, then from it alone; Zeus' own file is read, too. */
static void test_a_power_limit(void **state)
{
    (void)state;
    struct world world = world_of(1, FOLLOWS);
    char profile[160];
    snprintf(profile, sizeof profile, "%s", in_folder("profile.json"));
    struct erg_tune_options options = quick(ERG_TUNE_POWER);
    options.profile = profile;
    struct erg_tune *tune = open_tune(&options);
    const struct erg_tune_stats stats = run_until_done(tune);
    assert_true(abs(stats.value - 480) <= 25);
    assert_int_equal(limit_of(&world, 0), stats.value);
    assert_true(stats.points >= 2 && stats.points <= 8);
    assert_int_equal(stats.searches, 1);
    assert_true(stats.meets);
    struct erg_tune_point point = {.size = sizeof point};
    bool seen = false;
    for (int i = 0; i < stats.points; i++) {
        assert_int_equal(erg_tune_point(tune, i, &point), 0);
        seen |= point.value == stats.value;
        assert_true(point.blocks > 0 && point.time_s > 0.009 && point.energy_j > 0);
    }
    assert_true(seen);
    assert_int_equal(erg_tune_point(tune, stats.points, &point), -1);
    step(tune, 0.01); /* goes on */
    close_tune(tune);
    assert_int_equal(limit_of(&world, 0), 690); /* what it was, not the default */

    struct erg_error err;
    char *text;
    size_t length;
    json_t *root;
    assert_ok(erg_file_read(profile, 0, &text, &length, &err), &err);
    assert_ok(erg_json_parse(&root, profile, text, length, &err), &err);
    const json_t *list = json_object_get(root, "measurements");
    assert_int_equal(json_array_size(list), stats.points);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        assert_true(json_is_integer(json_object_get(item, "power_limit")));
        assert_true(json_is_real(json_object_get(item, "energy")));
        assert_true(json_is_real(json_object_get(item, "time")));
    }
    json_decref(root);
    free(text);
    tune = open_tune(&options);
    assert_int_equal(stats_of(tune).state, ERG_TUNE_DONE);
    assert_true(abs(stats_of(tune).value - 480) <= 25);
    assert_int_equal(limit_of(&world, 0), stats_of(tune).value);
    close_tune(tune);
    write_text("profile.json", "{\"measurements\": [{\"power_limit\": 700, \"energy\": 9000.5, "
                               "\"time\": 20.0}, {\"power_limit\": 400, \"energy\": 7000.5, "
                               "\"time\": 25.0}, {\"power_limit\": 300, \"energy\": 7100.0, "
                               "\"time\": 31.0}]}");
    tune = open_tune(&options);
    assert_int_equal(stats_of(tune).value, 400);
    close_tune(tune);
    options.selector = ERG_TUNE_SLOWDOWN;
    options.slowdown = 1.6;
    tune = open_tune(&options);
    assert_int_equal(stats_of(tune).value, 300);
    close_tune(tune);
    options.selector = ERG_TUNE_BUDGET;
    options.budget_j = 8000;
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "\"per\": \"step\"");
    write_text("profile.json", "{\"measurements\": [{\"power_limit\": 0}]}");
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "measurements[0].power_limit");
    assert_int_equal(limit_of(&world, 0), 690);
    world_end(&world);
}

static void test_a_clock(void **state)
{
    (void)state;
    struct world world = world_of(1, "gpu * counter 0.02 0\n"
                                     "gpu * follow clock 345=900 1200=300 1980=1100\n");
    struct erg_tune_options options = quick(ERG_TUNE_CLOCK);
    struct erg_tune *tune = open_tune(&options);
    const struct erg_tune_stats stats = run_until_done(tune);
    assert_true(abs(stats.value - 1200) <= 60); /* one step, of four clocks */
    assert_true(stats.points <= 8);
    assert_int_equal(lock_of(&world, 0), stats.value);
    close_tune(tune);
    assert_int_equal(lock_of(&world, 0), 0);
    world_end(&world);
}

/* Steps of another length, for long: it is measured again. */
static void test_steps_that_change(void **state)
{
    (void)state;
    struct world world = world_of(1, FOLLOWS);
    struct erg_tune_options options = quick(ERG_TUNE_POWER);
    options.least = 430;
    options.most = 530;
    options.step = 50;
    struct erg_tune *tune = open_tune(&options);
    assert_int_equal(run_until_done(tune).value, 480);
    for (int i = 0; i < 60; i++)
        step(tune, 0.004);
    for (int i = 0; i < 20000 && stats_of(tune).searches < 2; i++)
        step(tune, 0.02);
    assert_int_equal(stats_of(tune).searches, 2);
    assert_int_equal(run_until_done(tune).value, 480);
    close_tune(tune);
    assert_int_equal(limit_of(&world, 0), 690);
    world_end(&world);
}

static void test_refusals_of_options(void **state)
{
    (void)state;
    struct world world = world_of(1, FOLLOWS "gpu 0 fail SetPowerManagementLimit 4\n");
    struct erg_tune *tune;
    struct erg_error err;
    struct erg_tune_options options = quick(ERG_TUNE_NONE);
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "ERG_TUNE_CLOCK");
    assert_int_equal(err.status, ERG_USAGE);
    options = quick(ERG_TUNE_POWER);
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "preparing to set the power limit");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    options.selector = 9;
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "no selector 9");
    options.selector = ERG_TUNE_BUDGET;
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "the joules of a step");
    options.selector = ERG_TUNE_SLOWDOWN;
    options.slowdown = 0.9;
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "at least 1");
    options = quick(ERG_TUNE_POWER);
    options.least = 800;
    assert_fails(erg_tune_open(&tune, &options, &err), &err, "no value lies within 800 to 700");
    assert_int_equal(limit_of(&world, 0), 0);
    options = quick(ERG_TUNE_CLOCK);
    tune = open_tune(&options);
    assert_fails(erg_tune_step_end(tune, &err), &err, "ends without a begin");
    assert_ok(erg_tune_step_begin(tune, &err), &err);
    assert_fails(erg_tune_step_begin(tune, &err), &err, "begins within a step");
    close_tune(tune);
    assert_ok(erg_tune_close(NULL, &err), &err);
    world_end(&world);
}

static int begin(void **state)
{
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    setenv("ERGON_DAEMON", "none", 1);
    return make_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_noise_and_drift),
        cmocka_unit_test(test_selectors),
        cmocka_unit_test(test_a_power_limit),
        cmocka_unit_test(test_a_clock),
        cmocka_unit_test(test_steps_that_change),
        cmocka_unit_test(test_refusals_of_options),
    };
    return cmocka_run_group_tests(tests, begin, remove_folder);
}
