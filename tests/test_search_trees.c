/* The published tree search: the split of a batch, the trees' accuracy, and its loop. */
#include "check.h"
#include "search_world.h"

#include "base/random.h"
#include "device/emulated/emulated.h"
#include "search/boost_internal.h"
#include "search/search_internal.h"

static void assert_split(size_t batch, size_t total, size_t dynamic, size_t fastest,
                         size_t uncertain)
{
    struct erg_pass_sizes k = erg_pass_sizes(batch);
    assert_int_equal(k.total, total);
    assert_int_equal(k.dynamic, dynamic);
    assert_int_equal(k.fastest, fastest);
    assert_int_equal(k.uncertain, uncertain);
}

static void batches_split_as_published(void **state)
{
    (void)state;
    assert_split(32, 13, 6, 6, 7);
    assert_split(16, 6, 3, 3, 4);
    assert_split(1, 0, 0, 0, 1);
}

/* The forward attention partition of Llama 3.2 3B, TP 8, microbatch 8, sequence 4096. */
static const struct erg_op forward_attention[] = {
    {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 64424509440, 125566976, 3072, 640, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 3, 0, 75497472, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_ATTENTION_FORWARD, 1, 51539607552, 33554432, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 38654705664, 115605504, 384, 3072, {0}, 0, 0, 0},
};
enum { CLOCKS = 18, SMS = 10, SLOTS = 4, SIZE = CLOCKS * SMS * SLOTS, COLUMNS = 2 + SLOTS };

static void fill_table(float *features, double *time_s)
{
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_error err;
    assert_ok(erg_gpu_load(&gpu, "A100-SXM4-40GB", &err), &err);
    assert_ok(erg_stack_load(&stack, "published-python", &err), &err);
    memset(features, 0, SIZE * COLUMNS * sizeof *features);
    for (size_t i = 0; i < SIZE; i++) {
        size_t clock = i / SLOTS / SMS, sm = i / SLOTS % SMS, slot = i % SLOTS;
        int clock_mhz = 900 + 30 * (int)clock;
        struct erg_step step = {
            .task = {forward_attention,
                     5,
                     {.kind = ERG_COMM_ALLREDUCE, .wire_bytes = 176160768, .group = 8}},
            .launch = {slot, 3 * (int)(sm + 1)}};
        struct erg_emulated_result out;
        assert_ok(erg_emulated_run(gpu, stack, &step, 1, clock_mhz, &out, &err), &err);
        time_s[i] = out.time_s;
        features[i * COLUMNS] = (float)clock_mhz;
        features[i * COLUMNS + 1] = (float)sm;
        features[i * COLUMNS + 2 + slot] = 1.0F;
    }
    erg_gpu_free(gpu);
    erg_stack_free(stack);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Skips the test where the library is not installed. */
static void open_library(struct erg_boost *boost)
{
    struct erg_error err;
    if (erg_boost_open(boost, &err) == 0)
        return;
    print_message("[  NOTE  ] skipped: %s\n", err.message);
    skip();
}

static void search_needs_the_library(void **state)
{
    (void)state;
    const char *before = getenv("ERGON_XGBOOST");
    struct world world;
    world_init(&world, 1, true);
    struct erg_space space = world_space();
    struct erg_search_options options = world_options(ERG_SEARCH_TREES, 84, 1);
    struct erg_oracle oracle = world_oracle(&world);
    struct erg_search_result *result;
    struct erg_error err;
    char *kept = before ? strdup(before) : NULL;
    setenv("ERGON_XGBOOST", "/nonexistent/libxgboost.so.0", 1);
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err,
                 "the search 'trees' needs libxgboost, which cannot be opened (/nonexistent/");
    assert_non_null(strstr(err.message, "libxgboost0"));
    setenv("ERGON_XGBOOST", "libm.so.6", 1); /* another library */
    assert_fails(erg_search_run(&result, &space, &options, &oracle, &err), &err,
                 "'libm.so.6' has no function XGBGetLastError");
    assert_int_equal(world.made, 0);
    if (kept)
        setenv("ERGON_XGBOOST", kept, 1);
    else
        unsetenv("ERGON_XGBOOST");
    free(kept);
}

/* Median relative error on the rows that were not learnt from. */
static double held_out_error(const struct erg_boost *boost, const float *features,
                             const double *time_s, size_t learnt, bool rescale)
{
    static float sample[SIZE * COLUMNS];
    double labels[SIZE], predicted[SIZE], errors[SIZE];
    size_t order[SIZE];
    struct erg_rng rng;
    erg_rng_seed(&rng, 21);
    for (size_t i = 0; i < SIZE; i++)
        order[i] = i;
    erg_rng_shuffle(&rng, order, SIZE);
    for (size_t i = 0; i < learnt; i++) {
        memcpy(sample + i * COLUMNS, features + order[i] * COLUMNS, COLUMNS * sizeof *sample);
        labels[i] = time_s[order[i]];
    }
    struct erg_boost_rows all;
    struct erg_error err;
    assert_ok(erg_boost_rows_init(&all, boost, features, SIZE, COLUMNS, &err), &err);
    assert_ok(
        erg_boost_fit_predict(sample, labels, learnt, COLUMNS, rescale, 0, &all, predicted, &err),
        &err);
    erg_boost_rows_release(&all);
    for (size_t i = learnt; i < SIZE; i++)
        errors[i - learnt] = fabs(predicted[order[i]] / time_s[order[i]] - 1.0);
    qsort(errors, SIZE - learnt, sizeof *errors, ascending);
    return errors[(SIZE - learnt) / 2];
}

static void rescaled_targets_fit_and_raw_seconds_do_not(void **state)
{
    (void)state;
    static float features[SIZE * COLUMNS];
    static double time_s[SIZE];
    struct erg_boost boost;
    open_library(&boost);
    fill_table(features, time_s);
    double rescaled = held_out_error(&boost, features, time_s, 224, true);
    double raw = held_out_error(&boost, features, time_s, 224, false);
    if (rescaled > 0.007 || raw < 0.015)
        fail_msg("median held-out error %.4f rescaled, %.4f raw; expected at most 0.007 and at "
                 "least 0.015",
                 rescaled, raw);
}

static void equal_targets_are_predicted_exactly(void **state)
{
    (void)state;
    const float features[] = {1, 2, 3, 4};
    const double targets[] = {0.5, 0.5, 0.5, 0.5};
    struct erg_boost_rows rows;
    struct erg_error err;
    struct erg_boost boost;
    double predicted[4];
    open_library(&boost);
    assert_ok(erg_boost_rows_init(&rows, &boost, features, 4, 1, &err), &err);
    assert_ok(erg_boost_fit_predict(features, targets, 4, 1, true, 0, &rows, predicted, &err),
              &err);
    for (size_t i = 0; i < 4; i++)
        assert_near(predicted[i], 0.5, 1e-6);
    erg_boost_rows_release(&rows);
}

static void published_sizes_by_compute_ops(void **state)
{
    (void)state;
    static const size_t expected[][4] = {
        {1, 36, 16, 84}, {2, 48, 16, 112}, {3, 48, 16, 112}, {4, 96, 32, 224}};
    for (size_t i = 0; i < 4; i++) {
        struct erg_search_options options;
        erg_search_defaults(&options, ERG_SEARCH_TREES, expected[i][0]);
        assert_int_equal(options.start, expected[i][1]);
        assert_int_equal(options.batch, expected[i][2]);
        assert_int_equal(options.budget, expected[i][3]);
    }
}

static void search_improves_on_its_start(void **state)
{
    (void)state;
    struct erg_boost boost;
    open_library(&boost);
    for (int raw = 0; raw <= 1; raw++) {
        struct world world;
        world_init(&world, 1, true);
        struct erg_space space = world_space();
        struct erg_search_options options = world_options(ERG_SEARCH_TREES, 84, 1);
        options.start = 36;
        options.batch = 16;
        options.raw_units = raw;
        struct erg_oracle oracle = world_oracle(&world);
        struct erg_search_result *result;
        struct erg_error err;
        assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
        assert_int_equal(result->evaluation_count, 84);
        size_t seen[WORLD_SIZE] = {0};
        for (size_t i = 0; i < 84; i++)
            assert_int_equal(seen[result->order[i]]++, 0);
        assert_true(result->progress[83] > result->progress[35]);
        assert_true(world_hypervolume(&world, result) > 0.95);
        erg_search_free(result);
    }
}

static void stop_rule_needs_two_poor_batches(void **state)
{
    (void)state;
    struct erg_boost boost;
    open_library(&boost);
    struct world world;
    world_init(&world, 1, true);
    struct erg_space space = world_space();
    struct erg_search_options options = world_options(ERG_SEARCH_TREES, WORLD_SIZE, 1);
    options.stop_ratio = 1.0; /* every batch is poor */
    struct erg_oracle oracle = world_oracle(&world);
    struct erg_search_result *result;
    struct erg_error err;
    assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
    assert_int_equal(result->evaluation_count, 20 + 2 * 10);
    erg_search_free(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_split_as_published),
        cmocka_unit_test(search_needs_the_library),
        cmocka_unit_test(rescaled_targets_fit_and_raw_seconds_do_not),
        cmocka_unit_test(equal_targets_are_predicted_exactly),
        cmocka_unit_test(published_sizes_by_compute_ops),
        cmocka_unit_test(search_improves_on_its_start),
        cmocka_unit_test(stop_rule_needs_two_poor_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
