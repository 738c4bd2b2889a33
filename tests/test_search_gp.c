/* The default search: expected improvement, the Gaussian process, and what the two find. */
#include "check.h"
#include "search_world.h"

#include "base/least_squares.h"
#include "base/random.h"
#include "search/gp_internal.h"
#include "search/search_internal.h"

static void random_front(struct erg_frontier *front, struct erg_rng *rng, size_t count)
{
    erg_frontier_clear(front);
    for (size_t i = 0; i < count; i++) {
        double t = erg_rng_uniform(rng);
        erg_frontier_add(front, 1.0 + t, 2.0 - sqrt(t) + 0.2 * erg_rng_uniform(rng), 0);
    }
    erg_frontier_filter(front);
}

/* Hypervolume with the point minus without: the definition. */
static double improvement(const struct erg_frontier *front, struct erg_reference r, double t,
                          double e)
{
    struct erg_frontier with = {0};
    erg_frontier_copy(&with, front);
    erg_frontier_add(&with, t, e, 0);
    erg_frontier_filter(&with);
    double gain = erg_frontier_hypervolume(&with, r.time_s, r.energy_j) -
                  erg_frontier_hypervolume(front, r.time_s, r.energy_j);
    erg_frontier_release(&with);
    return gain;
}

static void expected_improvement_equals_monte_carlo(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 11);
    struct erg_frontier front = {0};
    for (int round = 0; round < 3; round++) {
        random_front(&front, &rng, 12);
        struct erg_reference r = erg_reference_of(&front, 0.1);
        double t = 1.2 + 0.2 * erg_rng_uniform(&rng), e = 1.3 + 0.2 * erg_rng_uniform(&rng);
        double sum = 0.0;
        for (int i = 0; i < 1000000; i++) {
            /* The plain improvement is checked against its definition below. */
            sum += erg_ehvi(&front, r, t + 0.1 * erg_rng_normal(&rng), 0.0,
                            e + 0.15 * erg_rng_normal(&rng), 0.0);
        }
        assert_close(erg_ehvi(&front, r, t, 0.1, e, 0.15), sum / 1e6, 0.01);
    }
    erg_frontier_release(&front);
}

static void expected_improvement_becomes_the_plain_one(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 12);
    struct erg_frontier front = {0};
    for (int round = 0; round < 2000; round++) {
        random_front(&front, &rng, 1 + erg_rng_below(&rng, 20));
        /* A reference that cuts some of the front off, too. */
        struct erg_reference r = {1.2 + erg_rng_uniform(&rng), 1.2 + erg_rng_uniform(&rng)};
        double t = 0.8 + 1.4 * erg_rng_uniform(&rng), e = 0.8 + 1.6 * erg_rng_uniform(&rng);
        double plain = improvement(&front, r, t, e);
        assert_near(erg_ehvi(&front, r, t, 0.0, e, 0.0), plain, 1e-12);
        assert_near(erg_ehvi(&front, r, t, 1e-7, e, 1e-7), plain, 1e-6);
    }
    erg_frontier_release(&front);
}

static const double parameters[ERG_GP_PARAMETERS] = {.15, .6, 1.0, .7, .05, .005, .5, .7, .5};

static void fill_data(struct erg_gp_data *data, struct erg_rng *rng, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_gp_data_add(data, erg_rng_below(rng, WORLD_SIZE), 0.3 * erg_rng_normal(rng),
                        1e-4 * (1.0 + erg_rng_uniform(rng)));
}

/* Solves a x = b for several right-hand sides by elimination with pivoting; returns ln |a|. */
static double eliminate(double *a, double *b, size_t n, size_t sides)
{
    double log_determinant = 0.0;
    for (size_t k = 0; k < n; k++) {
        size_t pivot = k;
        for (size_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k]))
                pivot = i;
        for (size_t j = 0; j < n; j++) {
            double t = a[k * n + j];
            a[k * n + j] = a[pivot * n + j];
            a[pivot * n + j] = t;
        }
        for (size_t j = 0; j < sides; j++) {
            double t = b[k * sides + j];
            b[k * sides + j] = b[pivot * sides + j];
            b[pivot * sides + j] = t;
        }
        log_determinant += log(fabs(a[k * n + k]));
        for (size_t i = 0; i < n; i++) {
            if (i == k)
                continue;
            double f = a[i * n + k] / a[k * n + k];
            for (size_t j = k; j < n; j++)
                a[i * n + j] -= f * a[k * n + j];
            for (size_t j = 0; j < sides; j++)
                b[i * sides + j] -= f * b[k * sides + j];
        }
    }
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < sides; j++)
            b[k * sides + j] /= a[k * n + k];
    return log_determinant;
}

static void grown_posterior_equals_direct_solve(void **state)
{
    (void)state;
    enum { ROWS = 60, SIDES = WORLD_SIZE + 1 };
    struct erg_space space = world_space();
    struct erg_rng rng;
    erg_rng_seed(&rng, 13);
    double feature[WORLD_SIZE];
    for (size_t i = 0; i < WORLD_SIZE; i++)
        feature[i] = 0.2 * erg_rng_normal(&rng);
    struct erg_gp_data data = {0};
    fill_data(&data, &rng, ROWS);
    struct erg_gp gp;
    erg_gp_init(&gp, &space);
    erg_gp_reset(&gp, parameters, feature);
    double *prior = malloc(WORLD_SIZE * sizeof *prior);
    memcpy(prior, gp.variance, WORLD_SIZE * sizeof *prior);
    double *a = malloc(sizeof(double) * ROWS * ROWS), *b = malloc(sizeof(double) * ROWS * SIDES);
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < ROWS; j++)
            a[i * ROWS + j] = erg_gp_covariance(&gp, data.config[i], data.config[j]) +
                              (i == j ? data.variance[i] : 0.0);
        for (size_t x = 0; x < WORLD_SIZE; x++)
            b[i * SIDES + x] = erg_gp_covariance(&gp, data.config[i], x);
        b[i * SIDES + WORLD_SIZE] = data.value[i];
        erg_gp_add(&gp, data.config[i], data.value[i], data.variance[i]);
    }
    double log_determinant = eliminate(a, b, ROWS, SIDES), fit = 0.0;
    for (size_t i = 0; i < ROWS; i++)
        fit += data.value[i] * b[i * SIDES + WORLD_SIZE];
    for (size_t x = 0; x < WORLD_SIZE; x++) {
        double mean = 0.0, variance = prior[x];
        for (size_t i = 0; i < ROWS; i++) {
            double k = erg_gp_covariance(&gp, data.config[i], x);
            mean += k * b[i * SIDES + WORLD_SIZE];
            variance -= k * b[i * SIDES + x];
        }
        assert_near(gp.mean[x], mean, 1e-8);
        assert_near(gp.variance[x], variance, 1e-8);
    }
    struct erg_gp scratch;
    erg_gp_init(&scratch, &space);
    assert_near(erg_gp_log_likelihood(&scratch, &data, feature, parameters),
                -0.5 * (log_determinant + fit), 1e-7);
    erg_gp_release(&scratch);
    erg_gp_release(&gp);
    erg_gp_data_release(&data);
    free(a);
    free(b);
    free(prior);
}

static void own_prediction_changes_no_mean(void **state)
{
    (void)state;
    struct erg_space space = world_space();
    struct erg_rng rng;
    erg_rng_seed(&rng, 14);
    struct erg_gp gp;
    erg_gp_init(&gp, &space);
    erg_gp_reset(&gp, parameters, NULL);
    for (size_t i = 0; i < 20; i++)
        erg_gp_add(&gp, erg_rng_below(&rng, WORLD_SIZE), erg_rng_normal(&rng), 1e-4);
    double mean[WORLD_SIZE], variance[WORLD_SIZE];
    memcpy(mean, gp.mean, sizeof mean);
    memcpy(variance, gp.variance, sizeof variance);
    size_t config = 77;
    erg_gp_add(&gp, config, gp.mean[config], 1e-4);
    for (size_t i = 0; i < WORLD_SIZE; i++) {
        assert_near(gp.mean[i], mean[i], 0);
        assert_true(gp.variance[i] <= variance[i]);
    }
    assert_true(gp.variance[config] < 0.1 * variance[config]);
    erg_gp_release(&gp);
}

static void fit_raises_the_penalised_likelihood(void **state)
{
    (void)state;
    struct erg_space space = world_space();
    struct world world;
    world_init(&world, 3, true);
    struct erg_gp_data data = {0};
    for (size_t i = 0; i < 40; i++) {
        size_t config = (i * 37) % WORLD_SIZE;
        struct erg_measurement seen = {0};
        struct erg_error err;
        assert_ok(world_measure(&world, config, &seen, &err), &err);
        erg_gp_data_add(&data, config, log(seen.time_s / 1.5e-3), 2.5e-5);
    }
    static const double widths[ERG_GP_FITTED] = {1.0, .7, .7, 1.5, 1.0, 0.0};
    double p[ERG_GP_PARAMETERS];
    memcpy(p, parameters, sizeof p);
    p[ERG_GP_LN] = 0.1; /* far from what these data say */
    p[ERG_GP_S] = 1.5;
    double start[ERG_GP_PARAMETERS];
    memcpy(start, p, sizeof start);
    erg_gp_fit(&space, &data, NULL, parameters, widths, 14, p);
    struct erg_gp scratch;
    erg_gp_init(&scratch, &space);
    double before = erg_gp_log_likelihood(&scratch, &data, NULL, start);
    double after = erg_gp_log_likelihood(&scratch, &data, NULL, p);
    assert_true(after > before + 10.0);
    assert_true(p[ERG_GP_LN] > 0.3 && p[ERG_GP_S] < 0.8);
    assert_near(p[ERG_GP_SQ], parameters[ERG_GP_SQ], 0); /* width 0: held */
    assert_near(p[ERG_GP_SC], parameters[ERG_GP_SC], 0);
    assert_true(p[ERG_GP_RHO] <= 0.995);
    erg_gp_release(&scratch);
    erg_gp_data_release(&data);
}

/* 16 + sweep against the true frontier: 324 configs, 5 seeds; the bench has the real numbers. */
static void few_measurements_find_the_frontier(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct world world;
        world_init(&world, seed, true);
        struct erg_search_result *result = world_search(&world, ERG_SEARCH_GP, 16, seed);
        assert_int_equal(result->evaluation_count, 16);
        assert_int_equal(result->swept_count, WORLD_SMS * WORLD_SLOTS);
        assert_true(world_hypervolume(&world, result) > 0.985);
        for (size_t i = 1; i < 16; i++)
            assert_true(result->progress[i] >= result->progress[i - 1]);
        assert_true(result->progress[15] > 0.8 && result->progress[15] <= 1.0);
        erg_search_free(result);
    }
}

static void stop_rule_ends_early_but_not_too_early(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, true);
    struct erg_space space = world_space();
    struct erg_search_options options = world_options(ERG_SEARCH_GP, 100, 1);
    struct erg_oracle oracle = world_oracle(&world);
    struct erg_search_result *result;
    struct erg_error err;
    options.stop_ratio = 0.01;
    assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
    assert_in_range(result->evaluation_count, 12, 32);
    assert_true(result->promise < 0.01);
    erg_search_free(result);
    options.stop_ratio = 1.0;
    options.minimum = 20;
    assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
    assert_int_equal(result->evaluation_count, 20);
    erg_search_free(result);
}

static void budget_beyond_the_grid_measures_everything_once(void **state)
{
    (void)state;
    static const int clocks[] = {900, 1200, 1410}, sms[] = {3, 6};
    struct erg_space space = {clocks, 3, sms, 2, 2};
    struct world world;
    world_init(&world, 1, true);
    struct erg_search_options options = world_options(ERG_SEARCH_GP, 50, 1);
    struct erg_oracle oracle = world_oracle(&world);
    struct erg_search_result *result;
    struct erg_error err;
    assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
    assert_int_equal(result->evaluation_count, 12);
    erg_search_free(result);
}

static void later_measurement_moves_the_table_towards_it(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, true);
    struct erg_search_result *result = world_search(&world, ERG_SEARCH_GP, 16, 2);
    size_t config = 0;
    while (result->table[config].knowledge == ERG_MEASURED)
        config++;
    struct erg_estimate before = result->table[config];
    struct erg_measurement seen = {.time_s = before.time_s * 1.02,
                                   .energy_j = before.energy_j * 1.03,
                                   .time_sd = 1e-4,
                                   .energy_sd = 1e-4};
    struct erg_error err;
    assert_ok(erg_search_add(result, config, &seen, &err), &err);
    struct erg_estimate after = result->table[config];
    assert_int_equal(after.knowledge, ERG_MEASURED);
    assert_true(after.time_s > before.time_s && after.energy_j > before.energy_j);
    assert_true(after.time_sd < before.time_sd && after.energy_sd < before.energy_sd);
    assert_int_equal(result->evaluation_count, 16);
    erg_search_free(result);
}

static size_t fastest_of(const struct erg_search_result *result)
{
    size_t fastest = 0;
    for (size_t i = 1; i < result->config_count; i++)
        if (result->table[i].time_s < result->table[fastest].time_s)
            fastest = i;
    return fastest;
}

/*
 * Where a GPU is held, the fastest of the table is neither the luckiest reading nor one of a cool
 * GPU: with bursts as they were read its time is .4 % too short.
 */
static void held_gpus_promise_no_more_than_they_do(void **state)
{
    (void)state;
    enum { WORLDS = 24, HELD = 9 };
    double off = 0;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct world world;
        world_init(&world, seed, true);
        world_hold(&world, HELD, 0.01);
        struct erg_search_result *result = world_search(&world, ERG_SEARCH_GP, 24, seed);
        size_t fastest = fastest_of(result);
        while (result->table[fastest].knowledge != ERG_MEASURED) { /* as a planner does */
            struct erg_measurement seen = {0};
            struct erg_error err;
            assert_ok(world_measure(&world, fastest, &seen, &err), &err);
            assert_ok(erg_search_add(result, fastest, &seen, &err), &err);
            fastest = fastest_of(result);
        }
        off += log(result->table[fastest].time_s / world.time_s[fastest]) / WORLDS;
        erg_search_free(result);
    }
    assert_true(fabs(off) < 0.003);
}

/* A device model that is the truth but for three constants. */
static int predict_world(void *context, const double *log_factors, const size_t *configs,
                         size_t count, double *time_s, double *energy_j, struct erg_error *err)
{
    (void)err;
    const struct world *world = context;
    for (size_t i = 0; i < count; i++) {
        double share = (double)(configs[i] % 7) / 6.0;
        time_s[i] = world->time_s[configs[i]] * exp(log_factors[0] - 0.20) *
                    exp(share * (log_factors[1] + 0.10));
        energy_j[i] = world->energy_j[configs[i]] * exp(log_factors[2] + 0.15);
    }
    return 0;
}

static void calibrated_prior_needs_few_measurements(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 4, true);
    static const double sd[] = {0.15, 0.15, 0.15};
    struct erg_prior prior = {predict_world, &world, 3, sd};
    struct erg_space space = world_space();
    struct erg_search_options options = world_options(ERG_SEARCH_GP, 10, 1);
    options.start = 6;
    options.sweep_clocks = 3;
    options.prior = &prior;
    struct erg_oracle oracle = world_oracle(&world);
    struct erg_search_result *result;
    struct erg_error err;
    assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
    assert_true(world_hypervolume(&world, result) > 0.995);
    double worst = 0.0;
    for (size_t i = 0; i < WORLD_SIZE; i++)
        worst = fmax(worst, fabs(log(result->table[i].energy_j / world.energy_j[i])));
    assert_true(worst < 0.03);
    erg_search_free(result);
}

struct line {
    double slope, offset;
};

static int line_residuals(void *context, const double *x, double *residuals, struct erg_error *err)
{
    (void)err;
    const struct line *line = context;
    for (int i = 0; i < 10; i++)
        residuals[i] = (exp(x[0]) * i + exp(x[1]) - (line->slope * i + line->offset)) / 0.01;
    return 0;
}

static void least_squares_finds_the_constants(void **state)
{
    (void)state;
    struct line line = {1.3, 0.8};
    double x[2] = {0, 0};
    static const double loose[] = {100, 100}, tight[] = {1e-6, 1e-6};
    struct erg_error err;
    assert_ok(erg_least_squares(line_residuals, &line, 2, loose, 10, 30, x, &err), &err);
    assert_near(x[0], log(1.3), 1e-5);
    assert_near(x[1], log(0.8), 1e-5);
    double held[2] = {0, 0};
    assert_ok(erg_least_squares(line_residuals, &line, 2, tight, 10, 30, held, &err), &err);
    assert_near(held[0], 0.0, 1e-3);
    assert_near(held[1], 0.0, 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expected_improvement_equals_monte_carlo),
        cmocka_unit_test(expected_improvement_becomes_the_plain_one),
        cmocka_unit_test(grown_posterior_equals_direct_solve),
        cmocka_unit_test(own_prediction_changes_no_mean),
        cmocka_unit_test(fit_raises_the_penalised_likelihood),
        cmocka_unit_test(few_measurements_find_the_frontier),
        cmocka_unit_test(stop_rule_ends_early_but_not_too_early),
        cmocka_unit_test(budget_beyond_the_grid_measures_everything_once),
        cmocka_unit_test(later_measurement_moves_the_table_towards_it),
        cmocka_unit_test(held_gpus_promise_no_more_than_they_do),
        cmocka_unit_test(calibrated_prior_needs_few_measurements),
        cmocka_unit_test(least_squares_finds_the_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
