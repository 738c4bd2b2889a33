/* The search of a partition's grid: designs, the methods' contracts, replay and interruption. */
#include "check.h"
#include "search_world.h"
#include "xgboost.h"

#include "base/random.h"
#include "search/search_internal.h"

static void configs_and_choices_correspond(void **state)
{
    (void)state;
    struct erg_space space = world_space();
    for (size_t i = 0; i < erg_space_size(&space); i++) {
        struct erg_choice c = erg_space_choice(&space, i);
        assert_true(c.clock < space.clock_count && c.sm < space.sms_count &&
                    c.slot < space.slot_count);
        assert_int_equal(erg_space_index(&space, c), i);
    }
}

static void latin_design_fills_every_stratum_once(void **state)
{
    (void)state;
    struct erg_space space = world_space();
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct erg_rng rng;
        erg_rng_seed(&rng, seed);
        size_t configs[6], clocks[3] = {0}, sms[6] = {0}, slots[3] = {0};
        erg_space_latin(&space, 6, &rng, configs);
        bool lowest = false, highest = false;
        for (size_t i = 0; i < 6; i++) {
            struct erg_choice c = erg_space_choice(&space, configs[i]);
            clocks[c.clock / 6]++; /* 18 clocks: three to a stratum, looked at in pairs */
            sms[c.sm]++;           /* 6 SM counts: one each */
            slots[c.slot]++;
            lowest |= c.clock == 0;
            highest |= c.clock == space.clock_count - 1;
        }
        assert_true(lowest && highest);
        for (size_t i = 0; i < 6; i++)
            assert_int_equal(sms[i], 1);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(clocks[i], 2);
            assert_int_equal(slots[i], 2);
        }
    }
}

static void latin_design_of_everything_is_everything(void **state)
{
    (void)state;
    static const int clocks[] = {900, 1000}, sms[] = {1, 2, 4};
    struct erg_space space = {clocks, 2, sms, 3, 2};
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    size_t configs[12], seen[12] = {0};
    erg_space_latin(&space, 12, &rng, configs);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(seen[configs[i]]++, 0);
}

static void exhaustive_without_noise_finds_the_whole_frontier(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, false);
    struct erg_search_result *result = world_search(&world, ERG_SEARCH_EXHAUSTIVE, 0, 1);
    assert_int_equal(result->evaluation_count, WORLD_SIZE);
    assert_near(world_hypervolume(&world, result), 1.0, 0);
    assert_near(result->progress[WORLD_SIZE - 1], 1.0, 1e-12);
    for (size_t i = 0; i < WORLD_SIZE; i++) {
        assert_int_equal(result->table[i].knowledge, ERG_MEASURED);
        assert_close(result->table[i].time_s, world.time_s[i], 1e-12);
    }
    erg_search_free(result);
}

static void random_never_repeats_a_measurement(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, true);
    struct erg_search_result *result = world_search(&world, ERG_SEARCH_RANDOM, 60, 1);
    size_t seen[WORLD_SIZE] = {0}, known = 0;
    assert_int_equal(result->evaluation_count, 60);
    for (size_t i = 0; i < 60; i++)
        assert_int_equal(seen[result->order[i]]++, 0);
    for (size_t i = 0; i < WORLD_SIZE; i++) {
        assert_int_equal(result->table[i].knowledge, seen[i] ? ERG_MEASURED : ERG_UNKNOWN);
        known += seen[i];
    }
    assert_int_equal(known, 60);
    erg_search_free(result);
}

static void later_readings_of_a_config_are_averaged(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, false);
    struct erg_search_result *result = world_search(&world, ERG_SEARCH_RANDOM, 10, 1);
    size_t config = result->order[0];
    struct erg_measurement again = {.time_s = world.time_s[config] * 1.21,
                                    .energy_j = world.energy_j[config] * 1.44};
    struct erg_error err;
    assert_ok(erg_search_add(result, config, &again, &err), &err);
    assert_close(result->table[config].time_s, world.time_s[config] * 1.1, 1e-12);
    assert_close(result->table[config].energy_j, world.energy_j[config] * 1.2, 1e-12);
    again.energy_j = -1;
    assert_fails(erg_search_add(result, config, &again, &err), &err, "expected positive");
    assert_fails(erg_search_add(result, WORLD_SIZE, &again, &err), &err, "outside the grid");
    erg_search_free(result);
}

/* Clocks above the one that a GPU is held at are readings of one thing. */
static void held_clocks_are_one_estimate(void **state)
{
    (void)state;
    enum { HELD = 11, SOME = 120 };
    static const size_t budgets[] = {SOME, WORLD_SIZE};
    struct erg_space space = world_space();
    for (size_t b = 0; b < 2; b++) {
        struct world world;
        world_init(&world, 5, true);
        world_hold(&world, HELD, 0);
        struct erg_search_result *result = world_search(&world, ERG_SEARCH_RANDOM, budgets[b], 5);
        size_t pooled = 0;
        struct erg_choice c = {0};
        for (c.sm = 0; c.sm < WORLD_SMS; c.sm++)
            for (c.slot = 0; c.slot < WORLD_SLOTS; c.slot++) {
                double log_time = 0, log_energy = 0, count = 0;
                for (c.clock = HELD + 1; c.clock < WORLD_CLOCKS; c.clock++) {
                    size_t config = erg_space_index(&space, c);
                    if (!world.remembered[config])
                        continue;
                    log_time += log(world.memory[config].time_s);
                    log_energy += log(world.memory[config].energy_j);
                    count++;
                }
                for (c.clock = 0; c.clock < WORLD_CLOCKS; c.clock++) {
                    size_t config = erg_space_index(&space, c);
                    const struct erg_estimate *e = &result->table[config];
                    bool one = count > 0 && c.clock > HELD;
                    bool known = world.remembered[config] || one;
                    assert_int_equal(e->knowledge, known ? ERG_MEASURED : ERG_UNKNOWN);
                    if (one) {
                        assert_close(e->time_s, exp(log_time / count), 1e-12);
                        assert_close(e->energy_j, exp(log_energy / count), 1e-12);
                        pooled += !world.remembered[config];
                    } else if (known) {
                        assert_close(e->time_s, world.memory[config].time_s, 1e-12);
                    }
                }
            }
        assert_true(b ? pooled == 0 : pooled > 50);
        erg_search_free(result);
    }
}

static void front_of_total_energy_lies_within_front_beyond_blocking_power(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 4);
    struct erg_frontier total = {0}, beyond = {0};
    for (int round = 0; round < 100; round++) {
        double power = 200.0 * erg_rng_uniform(&rng);
        erg_frontier_clear(&total);
        erg_frontier_clear(&beyond);
        for (int64_t i = 0; i < 200; i++) {
            double t = 1e-3 * (1.0 + erg_rng_uniform(&rng)), e = 0.3 + erg_rng_uniform(&rng);
            erg_frontier_add(&total, t, e, i);
            erg_frontier_add(&beyond, t, e - power * t, i);
        }
        erg_frontier_filter(&total);
        erg_frontier_filter(&beyond);
        for (size_t i = 0, j = 0; i < total.count; i++) {
            while (j < beyond.count && beyond.points[j].recipe != total.points[i].recipe)
                j++;
            assert_true(j < beyond.count);
        }
    }
    erg_frontier_release(&total);
    erg_frontier_release(&beyond);
}

static const enum erg_search_method all_methods[] = {ERG_SEARCH_GP, ERG_SEARCH_TREES,
                                                     ERG_SEARCH_RANDOM, ERG_SEARCH_EXHAUSTIVE};

/* Whether a method can search on this machine. */
static bool is_here(enum erg_search_method method)
{
    return method != ERG_SEARCH_TREES || trees_are_here();
}

static void equal_seeds_search_alike_and_others_differ(void **state)
{
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        if (!is_here(all_methods[m]))
            continue;
        struct world world;
        world_init(&world, 5, true);
        struct erg_search_result *a = world_search(&world, all_methods[m], 40, 7);
        world_init(&world, 5, true);
        struct erg_search_result *b = world_search(&world, all_methods[m], 40, 7);
        world_init(&world, 5, true);
        struct erg_search_result *c = world_search(&world, all_methods[m], 40, 8);
        assert_int_equal(a->evaluation_count, b->evaluation_count);
        assert_memory_equal(a->order, b->order, a->evaluation_count * sizeof *a->order);
        for (size_t i = 0; i < WORLD_SIZE; i++)
            if (a->table[i].knowledge != ERG_UNKNOWN)
                assert_near(a->table[i].energy_j, b->table[i].energy_j, 0);
        assert_memory_not_equal(a->order, c->order, 20 * sizeof *a->order);
        erg_search_free(a);
        erg_search_free(b);
        erg_search_free(c);
    }
}

/* Stopped in the middle of everything, then replayed from the store of what was measured. */
static void killed_search_replays_to_the_same_result(void **state)
{
    (void)state;
    for (size_t m = 0; m < 4; m++)
        for (size_t stop = 1; is_here(all_methods[m]) && stop < 40; stop += 12) {
            struct world whole, parts;
            world_init(&whole, 6, true);
            world_init(&parts, 6, true);
            struct erg_search_result *once = world_search(&whole, all_methods[m], 40, 9), *again;
            parts.fail_after = stop;
            struct erg_search_options options = world_options(all_methods[m], 40, 9);
            struct erg_space space = world_space();
            struct erg_oracle oracle = world_oracle(&parts);
            struct erg_error err;
            assert_fails(erg_search_run(&again, &space, &options, &oracle, &err), &err, "stopped");
            assert_int_equal(err.status, ERG_INTERRUPTED);
            assert_null(again);
            assert_int_equal(parts.made, stop);
            parts.fail_after = SIZE_MAX;
            assert_ok(erg_search_run(&again, &space, &options, &oracle, &err), &err);
            assert_int_equal(parts.made, whole.made); /* nothing was measured twice */
            assert_int_equal(again->evaluation_count, once->evaluation_count);
            assert_memory_equal(again->order, once->order,
                                once->evaluation_count * sizeof *once->order);
            for (size_t i = 0; i < WORLD_SIZE; i++)
                if (once->table[i].knowledge != ERG_UNKNOWN)
                    assert_near(again->table[i].time_s, once->table[i].time_s, 0);
            erg_search_free(once);
            erg_search_free(again);
        }
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, true);
    struct erg_space space = world_space();
    struct erg_oracle oracle = world_oracle(&world);
    struct erg_search_options options = world_options(ERG_SEARCH_GP, 16, 1);
    struct erg_search_result *result;
    struct erg_error err;
    options.sweep_clocks = 19;
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err, "the grid has 18");
    options.sweep_clocks = 1;
    oracle.measure_time = NULL;
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err, "time-only");
    options.sweep_clocks = 0;
    options.budget = 0;
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err, "budget");
    options.budget = 16;
    int clocks[] = {1000, 900};
    space.clocks_mhz = clocks;
    space.clock_count = 2;
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err, "increasing");
    space = world_space();
    world.time_s[0] = NAN;
    options = world_options(ERG_SEARCH_EXHAUSTIVE, 1, 1);
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err,
                 "at 900 MHz, 3 SMs, slot 0");
}

static void grid_of_one_config_is_measured_and_done(void **state)
{
    (void)state;
    static const int clock[] = {1410}, sms[] = {3};
    struct erg_space space = {clock, 1, sms, 1, 1};
    for (size_t m = 0; m < 4; m++) {
        if (!is_here(all_methods[m]))
            continue;
        struct world world;
        world_init(&world, 1, true);
        struct erg_search_options options = world_options(all_methods[m], 16, 1);
        options.start = 1;
        struct erg_oracle oracle = world_oracle(&world);
        struct erg_search_result *result;
        struct erg_error err;
        assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
        assert_int_equal(result->evaluation_count, 1);
        assert_int_equal(result->table[0].knowledge, ERG_MEASURED);
        assert_close(result->table[0].energy_j, world.memory[0].energy_j, 1e-9);
        assert_near(result->progress[0], 1.0, 0);
        erg_search_free(result);
    }
}

static void methods_have_names(void **state)
{
    (void)state;
    assert_string_equal(erg_search_method_name(ERG_SEARCH_GP), "gp");
    assert_string_equal(erg_search_method_name(ERG_SEARCH_EXHAUSTIVE), "exhaustive");
    assert_null(erg_search_method_name((enum erg_search_method)9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_and_choices_correspond),
        cmocka_unit_test(latin_design_fills_every_stratum_once),
        cmocka_unit_test(latin_design_of_everything_is_everything),
        cmocka_unit_test(exhaustive_without_noise_finds_the_whole_frontier),
        cmocka_unit_test(random_never_repeats_a_measurement),
        cmocka_unit_test(later_readings_of_a_config_are_averaged),
        cmocka_unit_test(held_clocks_are_one_estimate),
        cmocka_unit_test(front_of_total_energy_lies_within_front_beyond_blocking_power),
        cmocka_unit_test(equal_seeds_search_alike_and_others_differ),
        cmocka_unit_test(killed_search_replays_to_the_same_result),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(grid_of_one_config_is_measured_and_done),
        cmocka_unit_test(methods_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
