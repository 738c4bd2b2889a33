/*
 * Which way of running steps is found to be best, and when ways are tried again, on a made-up
 * device: each way has a time and an energy of a step, and blocks vary as they are told to.
 */
#include "check.h"

#include "base/random.h"
#include "plan/plan_follow.h"
#include "train/run/trials.h"

struct device {
    double step_s[ERG_TRIALS_WAYS], step_j[ERG_TRIALS_WAYS]; /* 0 J: not known */
    double noise;                                            /* relative, of a block's time */
    struct erg_rng rng;
};

/* A block on the device as it is now. */
static struct erg_trial_block block_of(const struct erg_trials *trials, struct device *device)
{
    const double factor = 1 + device->noise * erg_rng_normal(&device->rng);
    const double step_s = device->step_s[trials->way] * factor;
    const double step_j = device->step_j[trials->way];
    return (struct erg_trial_block){.step_s = step_s,
                                    .step_j = step_j > 0 ? step_j * factor : (double)NAN,
                                    .uncertainty_j = step_j > 0 ? 0.01 * step_j : (double)NAN,
                                    .spent_s = step_s * (double)(trials->steps + 1)};
}

/* Blocks until something happens, at most so many; how many. */
static size_t run(struct erg_trials *trials, struct device *device, size_t most,
                  enum erg_trials_event *event)
{
    for (size_t i = 1; i <= most; i++) {
        const struct erg_trial_block block = block_of(trials, device);
        *event = erg_trials_add(trials, &block);
        if (*event != ERG_TRIALS_GO_ON)
            return i;
    }
    return most;
}

static struct erg_trials begin(size_t ways, double budget_s, struct erg_goal goal)
{
    const struct erg_trials_options options = {
        .ways = ways, .budget_s = budget_s, .steps = 100000, .goal = goal};
    struct erg_trials trials;
    erg_trials_init(&trials, &options);
    return trials;
}

static size_t best_of(struct device device, size_t ways, struct erg_goal goal, bool unmet)
{
    struct erg_trials trials = begin(ways, 100, goal);
    enum erg_trials_event event;
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_int_equal(trials.unmet, unmet);
    assert_int_equal(trials.way, trials.best);
    assert_false(trials.trying);
    return trials.best;
}

static const struct erg_goal none = {0};

/* ---- trials ---- */

static void the_fastest_is_found_by_turns(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 1.3, 0.8, 0.9}}; /* the model's favourite is slow */
    struct erg_trials trials = begin(4, 1000, none);
    static const size_t turns[] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        assert_true(trials.trying);
        assert_int_equal(trials.way, turns[i]);
        const struct erg_trial_block block = block_of(&trials, &device);
        erg_trials_add(&trials, &block);
    }
    /* Nothing varies, so three rounds say all. */
    assert_false(trials.trying);
    assert_int_equal(trials.best, 2);
    struct erg_trials_saved saved;
    erg_trials_saved(&saved, &trials, 2);
    assert_near(saved.time, 0.2, 1e-12);
    assert_near(saved.time_half, 0, 1e-12);
    assert_true(isnan(saved.energy) && isnan(saved.energy_half));
    struct erg_trials_cost cost;
    erg_trials_cost(&cost, &trials, 1);
    assert_near(cost.step_s, 1.3, 1e-12);
    assert_true(isnan(cost.step_j));
}

/* Half-widths are those of Student's t: of 0.79, 0.80, 0.81 the mean is 0.8 ± 4.303 x 0.01 / √3. */
static void savings_have_an_uncertainty(void **state)
{
    (void)state;
    struct erg_trials trials = begin(2, 18, none);
    static const double step_s[] = {1, 0.79, 1, 0.80, 1, 0.81};
    enum erg_trials_event event = ERG_TRIALS_GO_ON;
    for (size_t i = 0; i < 6; i++) {
        const struct erg_trial_block block = {step_s[i], 100 * step_s[i], 2, 3, false};
        event = erg_trials_add(&trials, &block);
    }
    assert_int_equal(event, ERG_TRIALS_ENDED); /* 18 s are spent */
    struct erg_trials_saved saved;
    struct erg_trials_cost cost;
    erg_trials_saved(&saved, &trials, 1);
    assert_near(saved.time, 0.2, 1e-9);
    assert_near(saved.time_half, 0.024841, 1e-5);
    assert_near(saved.energy, 0.2, 1e-9);
    assert_near(saved.energy_half, 0.024841, 1e-5);
    erg_trials_cost(&cost, &trials, 1);
    assert_near(cost.step_j, 80, 1e-9);
    assert_near(cost.step_j_half, 2.4841 + 2, 1e-3); /* and the sensors' 2 J */
}

static void energy_breaks_ties_of_time(void **state)
{
    (void)state;
    struct device device = {
        .step_s = {1, 0.8, 0.8}, .step_j = {100, 80, 70}, .noise = 0.005, .rng = {{0}}};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        erg_rng_seed(&device.rng, seed);
        assert_int_equal(best_of(device, 3, none, false), 2);
    }
    /* Less energy for more time is not what was asked for, unless it was. */
    const struct device slower = {.step_s = {1, 0.8, 0.9}, .step_j = {100, 90, 60}};
    assert_int_equal(best_of(slower, 3, none, false), 1);
    const struct erg_goal deadline = {ERG_LEAST_ENERGY, .deadline_s = 0.95};
    assert_int_equal(best_of(slower, 3, deadline, false), 2);
    const struct erg_goal tight = {ERG_LEAST_ENERGY, .deadline_s = 0.85};
    assert_int_equal(best_of(slower, 3, tight, false), 1);
    const struct erg_goal never = {ERG_LEAST_ENERGY, .deadline_s = 0.5};
    assert_int_equal(best_of(slower, 3, never, true), 1);
    const struct erg_goal thrifty = {.energy_j = 65};
    assert_int_equal(best_of(slower, 3, thrifty, false), 2);
    const struct erg_goal rich = {.energy_j = 95};
    assert_int_equal(best_of(slower, 3, rich, false), 1);
    const struct erg_goal poor = {.energy_j = 50};
    assert_int_equal(best_of(slower, 3, poor, true), 2);
}

static void unknown_energy_leaves_it_to_time(void **state)
{
    (void)state;
    const struct device device = {.step_s = {1, 0.8, 0.9}};
    const struct erg_goal deadline = {ERG_LEAST_ENERGY, .deadline_s = 0.95};
    const struct erg_goal budget = {.energy_j = 65};
    assert_int_equal(best_of(device, 3, none, false), 1);
    assert_int_equal(best_of(device, 3, deadline, false), 1);
    assert_int_equal(best_of(device, 3, budget, true), 1);
}

/* The reference can be the best. */
static void sequential_may_win(void **state)
{
    (void)state;
    const struct device device = {.step_s = {1, 1.1, 1.2}};
    assert_int_equal(best_of(device, 3, none, false), 0);
}

/* ---- budgets ---- */

static void the_budget_bounds_trials(void **state)
{
    (void)state;
    /* 5 % of 1000 steps of 0.1 s: 5 s, of which each of 4 ways takes a third in blocks of 4 steps
     * and one before them. */
    const struct erg_trials_options options = {.ways = 4, .steps = 1000};
    struct device device = {.step_s = {0.1, 0.1, 0.1, 0.1}, .noise = 0.2};
    struct erg_trials trials;
    enum erg_trials_event event;
    erg_rng_seed(&device.rng, 1);
    erg_trials_init(&trials, &options);
    run(&trials, &device, 1, &event);
    assert_true(trials.budget_s > 3 && trials.budget_s < 7);
    assert_int_equal(trials.tried, 4);
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    /* It ends with a round. */
    assert_true(trials.spent_s >= trials.budget_s);
    assert_true(trials.spent_s < 2 * trials.budget_s);
    /* Short runs have room for two ways in one round, of which nothing is sure. */
    const struct erg_trials_options shorter = {.ways = 4, .steps = 60};
    struct device exact = {.step_s = {0.1, 0.08, 0.01}};
    erg_trials_init(&trials, &shorter);
    assert_int_equal(run(&trials, &exact, 1000, &event), 2);
    assert_int_equal(trials.tried, 2);
    assert_int_equal(trials.best, 1);
    struct erg_trials_saved saved;
    erg_trials_saved(&saved, &trials, 1);
    assert_near(saved.time, 0.2, 1e-12);
    assert_true(isnan(saved.time_half));
    /* Long ones are bounded by ten minutes. */
    const struct erg_trials_options longer = {.ways = 2, .steps = 1000000};
    erg_trials_init(&trials, &longer);
    run(&trials, &exact, 1, &event);
    assert_near(trials.budget_s, ERG_TRIALS_MOST_S, 0);
}

static void disturbed_blocks_say_nothing(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8}};
    struct erg_trials trials = begin(2, 100, none);
    for (int i = 0; i < 3; i++) {
        struct erg_trial_block block = block_of(&trials, &device);
        block.disturbed = true;
        block.step_s = 100;
        assert_int_equal(erg_trials_add(&trials, &block), ERG_TRIALS_GO_ON);
        assert_int_equal(trials.way, 0);
    }
    enum erg_trials_event event;
    run(&trials, &device, 1000, &event);
    assert_int_equal(trials.best, 1);
    struct erg_trials_cost cost;
    erg_trials_cost(&cost, &trials, 0);
    assert_near(cost.step_s, 1, 1e-12);
    /* Where all are, the reference goes on. */
    trials = begin(2, 10, none);
    for (int i = 0; i < 100 && trials.trying; i++) {
        struct erg_trial_block block = block_of(&trials, &device);
        block.disturbed = true;
        erg_trials_add(&trials, &block);
    }
    assert_false(trials.trying);
    assert_int_equal(trials.best, 0);
}

/* ---- conditions ---- */

static void noise_is_no_change(void **state)
{
    (void)state;
    static const double noises[] = {0, 0.005, 0.02, 0.1};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct device device = {
            .step_s = {1, 0.8, 0.9}, .step_j = {100, 80, 90}, .noise = noises[seed % 4]};
        struct erg_trials trials = begin(3, 100, none);
        enum erg_trials_event event;
        erg_rng_seed(&device.rng, seed);
        run(&trials, &device, 1000, &event);
        assert_int_equal(event, ERG_TRIALS_ENDED);
        if (run(&trials, &device, 5000, &event) != 5000)
            fail_msg("seed %d: trials began anew without a change", (int)seed);
    }
}

/* Runs the best of a device for long. */
static struct erg_trials settle(struct device *device, size_t ways)
{
    struct erg_trials trials = begin(ways, 100, none);
    enum erg_trials_event event;
    erg_rng_seed(&device->rng, 7);
    run(&trials, device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_true(trials.best == 1 || device->step_s[trials.best] < 1.01 * device->step_s[1]);
    assert_int_equal(run(&trials, device, 2000, &event), 2000);
    return trials;
}

static void another_way_becomes_the_best(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8, 0.9}, .step_j = {100, 80, 90}, .noise = 0.01};
    struct erg_trials trials = settle(&device, 3);
    enum erg_trials_event event;
    device.step_s[1] = 1.2; /* its link is slow now */
    assert_int_equal(run(&trials, &device, 1000, &event), ERG_TRIALS_PATIENCE);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    assert_string_equal(trials.why, "time");
    assert_int_equal(trials.way, 0);
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_int_equal(trials.best, 2);
    assert_int_equal(trials.series, 2);
    struct erg_trials_saved saved;
    erg_trials_saved(&saved, &trials, 2);
    assert_near(saved.time, 0.1, 0.02);
}

/* Also of trials that had no time for more than a round. */
static void short_trials_can_be_mended(void **state)
{
    (void)state;
    struct device device = {.step_s = {1.3, 0.8}, .noise = 0.01};
    struct erg_trials trials = begin(2, 0.01, none);
    enum erg_trials_event event;
    erg_rng_seed(&device.rng, 5);
    assert_int_equal(run(&trials, &device, 10, &event), 2);
    assert_int_equal(trials.best, 1);
    device.step_s[1] = 10;
    device.step_s[0] = 1;
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    assert_int_equal(run(&trials, &device, 100, &event), 2 * ERG_TRIALS_ROUNDS);
    assert_int_equal(trials.best, 0);
}

/* A change that meets all ways alike changes the numbers and no way, once. */
static void heat_moves_nothing_back_and_forth(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8, 0.805}, .noise = 0.01};
    struct erg_trials trials = settle(&device, 3);
    enum erg_trials_event event;
    const size_t before = trials.best;
    for (size_t i = 0; i < 3; i++)
        device.step_s[i] *= 1.1;
    assert_int_equal(run(&trials, &device, 1000, &event), ERG_TRIALS_PATIENCE);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_int_equal(trials.best, before);
    assert_int_equal(run(&trials, &device, 5000, &event), 5000);
}

static void a_cap_is_seen_in_power(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8, 0.9}, .step_j = {100, 80, 90}, .noise = 0.005};
    struct erg_trials trials = settle(&device, 3);
    enum erg_trials_event event;
    device.step_j[1] = 88;
    assert_int_equal(run(&trials, &device, 1000, &event), ERG_TRIALS_PATIENCE);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    assert_string_equal(trials.why, "power");
}

/* A hiccup is over before it counts; so is what jumps to both sides. */
static void hiccups_are_borne(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8, 0.9}, .noise = 0.005};
    struct erg_trials trials = settle(&device, 3);
    enum erg_trials_event event;
    for (int i = 0; i < 40; i++) {
        device.step_s[1] = 1.6;
        assert_int_equal(run(&trials, &device, ERG_TRIALS_PATIENCE - 1, &event),
                         ERG_TRIALS_PATIENCE - 1);
        device.step_s[1] = i % 2 ? 0.8 : 0.4;
        assert_int_equal(run(&trials, &device, 2, &event), 2);
    }
}

static void trials_are_a_twentieth_of_the_time(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8}};
    struct erg_trials trials = begin(2, 20, none);
    enum erg_trials_event event;
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    const double spent_s = trials.spent_s;
    device.step_s[1] = 0.9; /* at once */
    run(&trials, &device, 100000, &event);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    assert_true(trials.running_s >= 19 * spent_s);
    assert_true(trials.running_s < 20 * spent_s);
}

/* What a run before has found is kept, and watched. */
static void a_choice_is_kept(void **state)
{
    (void)state;
    struct device device = {.step_s = {1, 0.8, 0.9}, .noise = 0.005};
    struct erg_trials trials = begin(3, 100, none);
    enum erg_trials_event event;
    erg_rng_seed(&device.rng, 3);
    erg_trials_keep(&trials, 2);
    assert_false(trials.trying);
    assert_int_equal(trials.way, 2);
    struct erg_trials_saved saved;
    erg_trials_saved(&saved, &trials, 2);
    assert_true(isnan(saved.time));
    assert_int_equal(run(&trials, &device, 500, &event), 500);
    device.step_s[2] = 1.1;
    run(&trials, &device, 500, &event);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    run(&trials, &device, 500, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_int_equal(trials.best, 1);
}

/* Its blocks and budget are planned from its first step, as in a first series. */
static void a_kept_choice_has_the_default_budget(void **state)
{
    (void)state;
    /* 5 % of 20000 steps of 0.01 s: 10 s, of which each of 3 ways takes a third in blocks of 1.11
     * s: 110 steps and one before them. */
    const struct erg_trials_options options = {.ways = 3, .steps = 20000};
    struct device device = {.step_s = {0.01, 0.008, 0.01}};
    struct erg_trials trials;
    enum erg_trials_event event;
    erg_trials_init(&trials, &options);
    erg_trials_keep(&trials, 2);
    assert_int_equal(run(&trials, &device, 1, &event), 1);
    assert_near(trials.budget_s, 10, 1e-9);
    assert_int_equal(trials.tried, 3);
    assert_int_equal(trials.steps, 110);
    run(&trials, &device, 50, &event);
    device.step_s[2] = 0.011;
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    device.step_s[2] = 0.0082; /* a tie with way 1, so the budget ends the series */
    device.noise = 0.1;
    erg_rng_seed(&device.rng, 2);
    run(&trials, &device, 1000, &event);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_true(trials.rounds > ERG_TRIALS_ROUNDS);
    assert_true(trials.spent_s >= 10 && trials.spent_s < 14);
}

/* Later series try the running way, though a short run has no time for so many ways. */
static void a_kept_way_beyond_the_budget_is_tried(void **state)
{
    (void)state;
    const struct erg_trials_options options = {.ways = 4, .steps = 60};
    struct device device = {.step_s = {0.1, 0.09, 0.2, 0.08}};
    struct erg_trials trials;
    enum erg_trials_event event;
    erg_trials_init(&trials, &options);
    erg_trials_keep(&trials, 3);
    assert_int_equal(run(&trials, &device, 30, &event), 30);
    assert_int_equal(trials.tried, 2);
    device.step_s[3] = 0.085;
    run(&trials, &device, 100, &event);
    assert_int_equal(event, ERG_TRIALS_BEGAN);
    assert_int_equal(run(&trials, &device, 100, &event), 3 * ERG_TRIALS_ROUNDS);
    assert_int_equal(event, ERG_TRIALS_ENDED);
    assert_int_equal(trials.best, 3);
    assert_int_equal(trials.ways[2].count, 0);
    assert_int_equal(trials.ways[3].count, ERG_TRIALS_ROUNDS);
}

/* Disturbed blocks that use up the budget show nothing: the running way stays. */
static void disturbed_trials_keep_the_running_way(void **state)
{
    (void)state;
    static const struct erg_goal goals[] = {{0}, {ERG_LEAST_ENERGY, .deadline_s = 1.5}};
    for (size_t i = 0; i < 2; i++)
        for (size_t measured = 0; measured < 2; measured++) {
            struct device device = {.step_s = {1, 0.8, 0.9}, .step_j = {100, 80, 90}};
            struct erg_trials trials = begin(3, 100, goals[i]);
            enum erg_trials_event event;
            run(&trials, &device, 1000, &event);
            assert_int_equal(trials.best, 1);
            device.step_s[1] = 0.82;
            run(&trials, &device, 2000, &event);
            assert_int_equal(event, ERG_TRIALS_BEGAN);
            run(&trials, &device, measured, &event); /* blocks of the reference */
            for (int k = 0; k < 1000 && trials.trying; k++) {
                struct erg_trial_block block = block_of(&trials, &device);
                block.disturbed = true;
                event = erg_trials_add(&trials, &block);
            }
            assert_int_equal(event, ERG_TRIALS_ENDED);
            assert_int_equal(trials.ways[0].count, measured);
            assert_int_equal(trials.best, 1);
            assert_int_equal(trials.way, 1);
            assert_false(trials.unmet);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_is_found_by_turns),
        cmocka_unit_test(savings_have_an_uncertainty),
        cmocka_unit_test(energy_breaks_ties_of_time),
        cmocka_unit_test(unknown_energy_leaves_it_to_time),
        cmocka_unit_test(sequential_may_win),
        cmocka_unit_test(the_budget_bounds_trials),
        cmocka_unit_test(disturbed_blocks_say_nothing),
        cmocka_unit_test(noise_is_no_change),
        cmocka_unit_test(another_way_becomes_the_best),
        cmocka_unit_test(short_trials_can_be_mended),
        cmocka_unit_test(heat_moves_nothing_back_and_forth),
        cmocka_unit_test(a_cap_is_seen_in_power),
        cmocka_unit_test(hiccups_are_borne),
        cmocka_unit_test(trials_are_a_twentieth_of_the_time),
        cmocka_unit_test(a_choice_is_kept),
        cmocka_unit_test(a_kept_choice_has_the_default_budget),
        cmocka_unit_test(a_kept_way_beyond_the_budget_is_tried),
        cmocka_unit_test(disturbed_trials_keep_the_running_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
