/* What is known now of every GPU, from samples made by hand. */
#include "observed.h"

#include "base/table.h"
#include "observe/format.h"

static const int64_t ms = 1000000, start = 5000000000;

/* 1 s of a GPU at `power_w`, a sample every 50 ms; energy goes on from *energy_mj. */
static void put_second(struct erg_live *live, size_t gpu, int64_t from_ns, int64_t power_w,
                       int64_t *energy_mj)
{
    for (int64_t t = 0; t < 1000 * ms; t += 50 * ms) {
        struct erg_sampler_item item = observed_sample(gpu, from_ns + t);
        observe_value(&item, ERG_METRIC_ENERGY, *energy_mj);
        observe_value(&item, ERG_METRIC_POWER_INSTANT, 1000 * power_w);
        observe_value(&item, ERG_METRIC_REASONS,
                      power_w > 600 ? ERG_REASON_SW_POWER_CAP : ERG_REASON_IDLE);
        *energy_mj += power_w * 50;
        erg_live_put(live, &item);
    }
}

static void test_energy_power_and_history(void **state)
{
    (void)state;
    struct erg_open_gpu items[2] = {0};
    struct erg_gpus gpus = observed_gpus(items, 2);
    struct erg_sampler_options options = observed_options();
    struct erg_live *live = erg_live_new(&gpus, &options, 500 * ms, start);
    struct erg_live_view view = {0};
    int64_t energy_mj = 123456789;
    put_second(live, 0, start, 100, &energy_mj);
    put_second(live, 0, start + 1000 * ms, 700, &energy_mj);
    erg_live_look(live, start + 1999 * ms, &view);
    assert_int_equal(view.count, 2);
    assert_near(view.seconds, 1.999, 1e-9);
    const struct erg_live_gpu *gpu = &view.gpus[0];
    assert_true(gpu->answers);
    assert_string_equal(gpu->info.uuid, "GPU-00000000");
    /* The last sample is at 1.95 s: 100 J and 19 steps of 700 W. */
    assert_near(gpu->energy_j, 100 + 700 * 0.95, 1e-6);
    assert_near(gpu->power_energy_j, 100 + 700 * 0.95, 1e-6);
    assert_near(erg_live_power_w(gpu), 700, 0);
    assert_near(gpu->rates[ERG_METRIC_ENERGY], 700e3, 1e-3);
    assert_near(gpu->history_w[ERG_LIVE_HISTORY - 1], 700, 1e-3);
    assert_near(gpu->history_w[ERG_LIVE_HISTORY - 2], 100, 1e-3);
    assert_near(gpu->history_w[ERG_LIVE_HISTORY - 3], 100, 1e-3);
    assert_true(isnan(gpu->history_w[ERG_LIVE_HISTORY - 4]));
    assert_int_equal(gpu->reasons_recent, ERG_REASON_SW_POWER_CAP);
    /* The other GPU never said anything. */
    assert_false(view.gpus[1].answers);
    assert_true(isnan(view.gpus[1].energy_j));
    assert_true(isnan(erg_live_power_w(&view.gpus[1])));
    erg_live_view_release(&view);
    erg_live_free(live);
}

static void test_stale_values_are_left_out(void **state)
{
    (void)state;
    struct erg_open_gpu items[1] = {0};
    struct erg_gpus gpus = observed_gpus(items, 1);
    struct erg_sampler_options options = observed_options();
    struct erg_live *live = erg_live_new(&gpus, &options, 500 * ms, start);
    struct erg_live_view view = {0};
    struct erg_sampler_item item = observed_sample(0, start);
    observe_value(&item, ERG_METRIC_TEMPERATURE, 61);
    observe_value(&item, ERG_METRIC_POWER_LIMIT, 700000);
    observe_value(&item, ERG_METRIC_ENERGY, 5);
    erg_live_put(live, &item);
    erg_live_look(live, start + 1900 * ms, &view);
    assert_true(view.gpus[0].answers);
    assert_int_equal(view.gpus[0].values[ERG_METRIC_TEMPERATURE], 61);
    erg_live_look(live, start + 2100 * ms, &view);
    assert_false(view.gpus[0].answers);
    assert_int_equal(view.gpus[0].valid, 0);
    /* It wakes up with energy alone: the limit is of the slow class and fresh for 3 s. */
    item = observed_sample(0, start + 2500 * ms);
    observe_value(&item, ERG_METRIC_ENERGY, 1500005);
    erg_live_put(live, &item);
    erg_live_look(live, start + 2600 * ms, &view);
    assert_false(erg_live_has(&view.gpus[0], ERG_METRIC_TEMPERATURE));
    assert_true(erg_live_has(&view.gpus[0], ERG_METRIC_POWER_LIMIT));
    assert_near(view.gpus[0].energy_j, 1500, 1e-9);
    item = observed_sample(0, start + 2800 * ms);
    observe_value(&item, ERG_METRIC_ENERGY, 1503005);
    item.sample.lost = true;
    erg_live_put(live, &item);
    erg_live_look(live, start + 2900 * ms, &view);
    assert_near(view.gpus[0].energy_j, 1503, 1e-9);
    assert_true(view.gpus[0].lost);
    assert_false(view.gpus[0].answers);
    erg_live_view_release(&view);
    erg_live_free(live);
}

/* What an energy counter says for a moment only is not handed on, and no energy is lost by it. */
static void test_a_counter_that_jumps(void **state)
{
    (void)state;
    static const int64_t garbage_mj[] = {0, 7, 4000000000000000, 123456789 - 350000};
    for (size_t g = 0; g < sizeof garbage_mj / sizeof *garbage_mj; g++) {
        struct erg_open_gpu items[1] = {0};
        struct erg_gpus gpus = observed_gpus(items, 1);
        struct erg_sampler_options options = observed_options();
        struct erg_live *live = erg_live_new(&gpus, &options, 500 * ms, start);
        struct erg_live_view view = {0};
        int64_t energy_mj = 123456789;
        put_second(live, 0, start, 300, &energy_mj);
        for (int64_t t = 1000 * ms; t < 1300 * ms; t += 50 * ms) {
            struct erg_sampler_item item = observed_sample(0, start + t);
            observe_value(&item, ERG_METRIC_ENERGY, garbage_mj[g]);
            erg_live_put(live, &item);
            erg_live_look(live, start + t, &view);
            assert_int_equal(view.gpus[0].values[ERG_METRIC_ENERGY], 123456789 + 19 * 15000);
        }
        energy_mj += 300 * 300;
        put_second(live, 0, start + 1300 * ms, 300, &energy_mj);
        erg_live_look(live, start + 2299 * ms, &view);
        assert_near(view.gpus[0].energy_j, 300 * 2.25, 1e-6);
        assert_int_equal(view.gpus[0].values[ERG_METRIC_ENERGY], 123456789 + 300 * 2250);
        erg_live_view_release(&view);
        erg_live_free(live);
    }
}

/* One that starts anew is handed on once it has gone on for a second; what was used since the start
 * is then known by power alone. One that stands still while power is drawn is not handed on. */
static void test_a_counter_that_restarts_or_stands_still(void **state)
{
    (void)state;
    struct erg_open_gpu items[1] = {0};
    struct erg_gpus gpus = observed_gpus(items, 1);
    struct erg_sampler_options options = observed_options();
    struct erg_live *live = erg_live_new(&gpus, &options, 500 * ms, start);
    struct erg_live_view view = {0};
    int64_t energy_mj = 123456789;
    put_second(live, 0, start, 300, &energy_mj);
    energy_mj = 0;
    put_second(live, 0, start + 1000 * ms, 300, &energy_mj);
    erg_live_look(live, start + 1999 * ms, &view);
    assert_near(view.gpus[0].energy_j, 285, 1e-6); /* as far as it is known */
    put_second(live, 0, start + 2000 * ms, 300, &energy_mj);
    erg_live_look(live, start + 2999 * ms, &view);
    assert_int_equal(view.gpus[0].values[ERG_METRIC_ENERGY], 300 * 1950);
    assert_true(isnan(view.gpus[0].energy_j));
    assert_near(view.gpus[0].power_energy_j, 300 * 2.95, 1e-6);
    for (int64_t second = 3; second < 7; second++) {
        int64_t still_mj = energy_mj;
        for (int64_t t = 0; t < 1000 * ms; t += 50 * ms) {
            struct erg_sampler_item item = observed_sample(0, start + second * 1000 * ms + t);
            observe_value(&item, ERG_METRIC_ENERGY, still_mj);
            observe_value(&item, ERG_METRIC_POWER_INSTANT, 300000);
            erg_live_put(live, &item);
        }
    }
    erg_live_look(live, start + 5900 * ms, &view);
    assert_true(erg_live_has(&view.gpus[0], ERG_METRIC_ENERGY));
    erg_live_look(live, start + 6990 * ms, &view);
    assert_false(erg_live_has(&view.gpus[0], ERG_METRIC_ENERGY));
    assert_true(erg_live_has(&view.gpus[0], ERG_METRIC_POWER_INSTANT));
    erg_live_view_release(&view);
    erg_live_free(live);
}

/* The same of all counters: bytes for a moment, and errors of which there are none for long. */
static void test_other_counters_that_jump(void **state)
{
    (void)state;
    struct erg_open_gpu items[1] = {0};
    struct erg_gpus gpus = observed_gpus(items, 1);
    struct erg_sampler_options options = observed_options();
    struct erg_live *live = erg_live_new(&gpus, &options, 500 * ms, start);
    struct erg_live_view view = {0};
    for (int64_t i = 0; i < 80; i++) {
        struct erg_sampler_item item = observed_sample(0, start + i * 50 * ms);
        bool garbage = i >= 20 && i < 25, anew = i >= 40;
        int64_t bytes = (anew ? i - 40 : i) * 50000000;
        observe_value(&item, ERG_METRIC_PCIE_TX, garbage ? INT64_MAX / 2 : bytes);
        observe_value(&item, ERG_METRIC_NVLINK_RX, garbage ? 0 : (i + 1000) * 50000000);
        observe_value(&item, ERG_METRIC_ECC_CORRECTED, anew ? 0 : 7);
        erg_live_put(live, &item);
        erg_live_look(live, start + i * 50 * ms, &view);
        const int64_t *values = view.gpus[0].values;
        if (garbage) {
            assert_int_equal(values[ERG_METRIC_PCIE_TX], 19 * 50000000);
            assert_int_equal(values[ERG_METRIC_NVLINK_RX], 1019 * 50000000L);
        }
        if (i > 10 && !anew)
            assert_near(view.gpus[0].rates[ERG_METRIC_PCIE_TX], 1e9, 1e-3);
    }
    assert_int_equal(view.gpus[0].values[ERG_METRIC_PCIE_TX], 39 * 50000000);
    assert_true(erg_live_has(&view.gpus[0], ERG_METRIC_ECC_CORRECTED));
    assert_int_equal(view.gpus[0].values[ERG_METRIC_ECC_CORRECTED], 0);
    assert_near(view.gpus[0].rates[ERG_METRIC_PCIE_TX], 1e9, 1e-3);
    erg_live_view_release(&view);
    erg_live_free(live);
}

static void test_average_power_only_for_want_of_instant(void **state)
{
    (void)state;
    struct erg_open_gpu items[1] = {0};
    struct erg_gpus gpus = observed_gpus(items, 1);
    struct erg_sampler_options options = observed_options();
    struct erg_live *live = erg_live_new(&gpus, &options, 500 * ms, start);
    struct erg_live_view view = {0};
    for (int i = 0; i < 10; i++) {
        struct erg_sampler_item item = observed_sample(0, start + i * 50 * ms);
        observe_value(&item, ERG_METRIC_POWER_INSTANT, 300000);
        observe_value(&item, ERG_METRIC_POWER_AVERAGE, 900000);
        erg_live_put(live, &item);
        item = observed_sample(0, start + (i * 50 + 25) * ms);
        observe_value(&item, ERG_METRIC_POWER_AVERAGE, 900000);
        erg_live_put(live, &item);
    }
    erg_live_look(live, start + 500 * ms, &view);
    assert_near(view.gpus[0].power_energy_j, 300 * 0.45, 1e-6);
    assert_near(view.gpus[0].history_w[ERG_LIVE_HISTORY - 1], 300, 1e-3);
    erg_live_view_release(&view);
    erg_live_free(live);
}

static void check_quantity(double value, const char *expected)
{
    char text[ERG_FORMAT_BYTES];
    assert_string_equal(erg_format_quantity(text, value, "J"), expected);
}

static void test_words(void **state)
{
    (void)state;
    check_quantity(0, "0.000 J");
    check_quantity(0.12345, "0.123 J");
    check_quantity(9.994, "9.99 J");
    check_quantity(9.996, "10.0 J");
    check_quantity(999.4, "999 J");
    check_quantity(999.6, "1.00 kJ");
    check_quantity(-12345, "-12.3 kJ");
    check_quantity(3.2e9, "3.20 GJ");
    check_quantity(NAN, "-");
    char time[ERG_FORMAT_BYTES];
    assert_string_equal(erg_format_duration(time, 3723.4), "1:02:03");
    struct erg_text words = {0};
    erg_format_reasons(&words, ERG_REASON_SW_POWER_CAP | ERG_REASON_IDLE | ERG_REASON_SW_THERMAL);
    assert_string_equal(words.data, "too hot, power cap");
    words.count = 0;
    erg_format_reasons(&words, ERG_REASON_IDLE);
    assert_string_equal(words.data, "idle");
    words.count = 0;
    erg_text_add_padded(&words, "61 °C", 7, true);
    erg_text_add_padded(&words, "°C", 4, false);
    assert_string_equal(words.data, "  61 °C°C  ");
    erg_text_release(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy_power_and_history),
        cmocka_unit_test(test_stale_values_are_left_out),
        cmocka_unit_test(test_a_counter_that_jumps),
        cmocka_unit_test(test_a_counter_that_restarts_or_stands_still),
        cmocka_unit_test(test_other_counters_that_jump),
        cmocka_unit_test(test_average_power_only_for_want_of_instant),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
