/*
 * Windows of the public interface, in real time on the fake NVML, which knows the truth.
 */
#include "base/clock.h"
#include "ergon/telemetry.h"
#include "fake_gpus.h"
#include "side_by_side.h"

#include <time.h>

enum {
    GPUS = 8,
    ATTEMPTS = 15, /* for a host so busy that it reads late */
};

static struct fake fake;

/* Sleeps until a time of the fake's world. */
static void sleep_until(double at_s)
{
    int64_t at_ns = fake.start_ns() + (int64_t)(at_s * 1e9);
    while (erg_now_ns() < at_ns) {
        int64_t left_ns = at_ns - erg_now_ns();
        if (left_ns > 0)
            nanosleep(&(struct timespec){left_ns / 1000000000, left_ns % 1000000000}, NULL);
    }
}

static struct erg_meter *open_meter(const char *script)
{
    struct erg_error err = {0};
    struct erg_meter *meter;
    fake = fake_open(ERGON_TEST_FAKE_NVML, script);
    assert_ok(erg_meter_open(&meter, NULL, &err), &err);
    return meter;
}

static void close_meter(struct erg_meter *meter)
{
    erg_meter_close(meter);
    fake_close(&fake);
}

static double truth_of(unsigned gpu, const struct erg_window_result *result)
{
    return fake.energy_j(gpu, result->begin_ns, result->end_ns);
}

/* 8 GPUs whose counters move at different moments: a load that comes and goes with the window, one
 * that stays, steps, a ramp and iterations. */
static const char *const loads = "gpus 8\n"
                                 "gpu * counter 0.092 0.01\n"
                                 "gpu 1 counter 0.1 0.033\n"
                                 "gpu 3 counter 0.1 0.07\n"
                                 "gpu 5 counter 0.02 0.003\n"
                                 "gpu 6 counter 0.092 0.055\n"
                                 "gpu * limit 700\n"
                                 "gpu 0 power 0=120 2=120 2=680 3.2=680 3.2=120\n"
                                 "gpu 1 power 0=120 2=120 2=680 3.2=680 3.2=120\n"
                                 "gpu 2 power 0=690\n"
                                 "gpu 3 power 0=300 1.5=300 1.5=600 2.7=600 2.7=400\n"
                                 "gpu 4 power 0=200 1=200 4=650\n"
                                 "gpu 5 power 0=120 2=120 2=680 3.2=680 3.2=120\n"
                                 "gpu 6 power 0=500 2.5=500 2.5=250\n"
                                 "gpu 7 power 0=690 0.02=690 0.02=300 0.03=300\n"
                                 "gpu 7 cycle 0.03\n"
                                 "gpu * reasons 4 2.2 2.7\n"
                                 "gpu 2 temperature 64 80\n";

static void check_some_attempt(bool (*is_exact)(void))
{
    for (int i = 0; i < ATTEMPTS; i++)
        if (is_exact())
            return;
    fail_msg("not once in %d times as exact as promised", ATTEMPTS);
}

/* Programs of other days: results are filled as far as they go, and what has no size is refused. */
static void check_sizes(struct erg_meter *meter)
{
    struct erg_window *window = erg_window_begin(meter);
    struct erg_window_result older = {.size = offsetof(struct erg_window_result, gpus)};
    struct erg_window_result none = {0};
    struct erg_meter_gpu gpu = {.size = offsetof(struct erg_meter_gpu, index), .index = 77};
    struct erg_error err = {0};
    older.gpus = 77;
    assert_ok(erg_window_look(window, &older, &err), &err);
    assert_true(older.time_s > 0 && older.gpus == 77 && older.gpu[0].power_peak_w == 0);
    assert_fails(erg_window_look(window, &none, &err), &err, "struct erg_window_result: its size");
    assert_fails(erg_window_end(window, &none, &err), &err, "expected sizeof(struct erg_window_r");
    assert_true(none.time_s == 0);
    assert_ok(erg_meter_gpu(meter, 0, &gpu, &err), &err);
    assert_true(gpu.index == 77 && strcmp(gpu.name, "NVIDIA Fake H200") == 0);
    gpu.size = 0;
    assert_fails(erg_meter_gpu(meter, 0, &gpu, &err), &err, "struct erg_meter_gpu");
}

/*
 * What holds however late a busy host reads: energy within what is stated. Returns whether it was
 * also as exact as promised for a host that reads in time: test_energy.c has the statistics in
 * simulated time.
 */
static bool check_energy_of_a_second(void)
{
    struct erg_meter *meter = open_meter(loads);
    struct erg_window_result result = {.size = sizeof result}, outside = {.size = sizeof outside};
    assert_int_equal(erg_meter_gpus(meter), GPUS);
    sleep_until(2);
    struct erg_window *outer = erg_window_begin(meter), *inner = erg_window_begin(meter);
    sleep_until(3.2);
    erg_window_end(inner, &result, NULL);
    sleep_until(4);
    erg_window_end(outer, &outside, NULL);
    assert_int_equal(result.gpus, GPUS);
    assert_near(result.time_s, 1e-9 * (double)(result.end_ns - result.begin_ns), 1e-8);
    double sum_j = 0, sum_uncertainty_j = 0, mean_error = 0;
    size_t covered = 0;
    bool exact = true;
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        const struct erg_window_gpu *at = &result.gpu[gpu];
        double truth_j = truth_of(gpu, &result), error_j = fabs(at->energy_j - truth_j);
        assert_int_equal(at->quality, ERG_ENERGY_MEASURED);
        assert_false(at->lost);
        mean_error += error_j / truth_j / GPUS;
        covered += error_j <= at->uncertainty_j;
        sum_j += at->energy_j;
        sum_uncertainty_j += at->uncertainty_j;
        if (error_j > fmax(0.005 * truth_j, 2 * at->uncertainty_j))
            fail_msg("GPU %u: %.1f +- %.1f J, truth %.1f J", gpu, at->energy_j, at->uncertainty_j,
                     truth_j);
        assert_near(outside.gpu[gpu].energy_j, truth_of(gpu, &outside),
                    fmax(0.03 * truth_of(gpu, &outside), 2 * outside.gpu[gpu].uncertainty_j));
        assert_true(at->power_peak_w <= 691);
        assert_near(at->sm_clock_mean_mhz, 1980, 1e-6);
        assert_near(at->throttled_thermal_s, 0, 1e-9);
        exact &= fabs(at->throttled_power_s - 0.5) <= 0.02 && fabs(at->ratio - 1) <= 0.2;
    }
    assert_near(result.energy_j, sum_j, 1e-6);
    assert_near(result.uncertainty_j, sum_uncertainty_j, 1e-6);
    assert_true(isnan(result.gpu[7].reserved[7]));
    assert_near(result.gpu[2].temperature_begin_c, 64, 0);
    assert_near(result.gpu[2].temperature_max_c, 64, 0);
    assert_near(result.gpu[2].memory_temperature_max_c, 80, 0);
    assert_near(result.gpu[2].power_peak_w, 690, 0.5);

    struct erg_meter_gpu first = {.size = sizeof first}, fifth = {.size = sizeof fifth};
    erg_meter_gpu(meter, 0, &first, NULL);
    assert_string_equal(first.name, "NVIDIA Fake H200");
    erg_meter_gpu(meter, 5, &fifth, NULL);
    check_sizes(meter);
    close_meter(meter);
    return exact && mean_error <= 0.005 && covered >= GPUS - 1 &&
           result.uncertainty_j < 0.02 * result.energy_j &&
           fabs(first.counter_period_s - 0.092) <= 0.005 &&
           fabs(fifth.counter_period_s - 0.02) <= 0.003;
}

static void test_energy_of_a_second(void **state)
{
    (void)state;
    check_some_attempt(check_energy_of_a_second);
}

/* A window that goes on is looked at without a wait: energy within what is stated, also while the
 * load changes. Returns whether no look took as long as a step of a counter. */
static bool check_looks_at_an_open_window(void)
{
    struct erg_meter *meter = open_meter(loads);
    struct erg_window_result result = {.size = sizeof result};
    size_t looks = 0, covered = 0;
    int64_t longest_ns = 0;
    sleep_until(1.6);
    struct erg_window *window = erg_window_begin(meter);
    for (int i = 1; i <= 8; i++) {
        sleep_until(1.6 + 0.29 * i);
        int64_t start_ns = erg_now_ns();
        erg_window_look(window, &result, NULL);
        longest_ns = erg_now_ns() - start_ns > longest_ns ? erg_now_ns() - start_ns : longest_ns;
        assert_near(result.time_s, 0.29 * i, 0.25);
        assert_int_equal(result.energy_gpus, GPUS);
        for (unsigned gpu = 0; gpu < GPUS; gpu++, looks++) {
            const struct erg_window_gpu *at = &result.gpu[gpu];
            assert_false(at->lost);
            covered += fabs(at->energy_j - truth_of(gpu, &result)) <= at->uncertainty_j;
        }
    }
    double look_j = result.gpu[2].energy_j, uncertainty_j = result.gpu[2].uncertainty_j;
    assert_int_equal(result.gpu[2].quality, ERG_ENERGY_MEASURED);
    assert_near(result.gpu[2].sm_clock_mean_mhz, 1980, 1e-6);
    assert_near(look_j, 690 * result.time_s, fmax(2 * uncertainty_j, 0.02 * look_j));
    erg_window_end(window, &result, NULL);
    assert_true(result.gpu[2].energy_j > look_j - uncertainty_j);
    close_meter(meter);
    return longest_ns < 20000000 && (double)covered >= 0.95 * (double)looks &&
           uncertainty_j < 0.03 * look_j;
}

static void test_looks_at_an_open_window(void **state)
{
    (void)state;
    check_some_attempt(check_looks_at_an_open_window);
}

/* Short windows are estimates, and their uncertainty says how good. */
static void test_short_windows(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter(loads);
    size_t windows = 0, covered = 0;
    sleep_until(1.4);
    for (int i = 0; i < 12; i++) {
        struct erg_window_result result = {.size = sizeof result};
        struct erg_window *window = erg_window_begin(meter);
        sleep_until(1e-9 * (double)(erg_now_ns() - fake.start_ns()) + 0.05 + 0.017 * i);
        erg_window_end(window, &result, NULL);
        for (unsigned gpu = 0; gpu < GPUS; gpu++) {
            const struct erg_window_gpu *at = &result.gpu[gpu];
            double period_s = gpu == 5 ? 0.02 : gpu == 1 || gpu == 3 ? 0.1 : 0.092;
            if (fabs(result.time_s - 3 * period_s) > 0.1 * period_s)
                assert_int_equal(at->quality, result.time_s < 3 * period_s ? ERG_ENERGY_ESTIMATED
                                                                           : ERG_ENERGY_MEASURED);
            windows++;
            covered += fabs(at->energy_j - truth_of(gpu, &result)) <= at->uncertainty_j;
        }
    }
    if ((double)covered < 0.95 * (double)windows)
        fail_msg("%zu of %zu short windows covered", covered, windows);
    close_meter(meter);
}

/* One GPU hangs within the window and one falls off the bus: the others' energy is right, and the
 * end comes after the second that a silent GPU is given. */
static void test_troubled_gpus(void **state)
{
    (void)state;
    size_t threads = fake_threads();
    struct erg_meter *meter = open_meter("gpus 4\n"
                                         "gpu * power 0=400\n"
                                         "gpu 1 hang GetTotalEnergyConsumption 2 600\n"
                                         "gpu 2 lost 2\n");
    struct erg_window_result result = {.size = sizeof result};
    sleep_until(1.5);
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(2.7);
    erg_window_end(window, &result, NULL);
    for (unsigned gpu = 0; gpu < 4; gpu += 3) {
        assert_near(result.gpu[gpu].energy_j, truth_of(gpu, &result),
                    fmax(2 * result.gpu[gpu].uncertainty_j, 0.005 * truth_of(gpu, &result)));
        assert_true(result.gpu[gpu].uncertainty_j < 0.1 * truth_of(gpu, &result));
        assert_false(result.gpu[gpu].lost);
    }
    for (unsigned gpu = 1; gpu < 3; gpu++) {
        assert_true(result.gpu[gpu].lost);
        assert_true(isnan(result.gpu[gpu].sm_clock_mean_mhz));
        assert_true(isnan(result.gpu[gpu].throttled_power_s));
    }
    erg_meter_close(meter);
    fake_release(&fake, threads);
    fake_close(&fake);
}

/* A GPU whose reads take long is asked seldom, but it answers: its end is waited for. */
static void test_a_slow_gpu(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter("gpus 2\n"
                                         "gpu * power 0=400\n"
                                         "gpu 1 slow GetTotalEnergyConsumption 0.4\n");
    struct erg_window_result result = {.size = sizeof result};
    sleep_until(2.5);
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(4);
    erg_window_end(window, &result, NULL);
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        assert_false(result.gpu[gpu].lost);
        assert_int_equal(result.gpu[gpu].quality, ERG_ENERGY_MEASURED);
        assert_near(result.gpu[gpu].energy_j, truth_of(gpu, &result),
                    fmax(2 * result.gpu[gpu].uncertainty_j, 0.005 * truth_of(gpu, &result)));
    }
    close_meter(meter);
}

/* Without an energy counter the power readings are integrated, and that is said; without violation
 * counters the reasons seen are counted. */
static bool check_without_counters(void)
{
    struct erg_meter *meter = open_meter("gpus 2\n"
                                         "gpu * power 0=300 2=300 2=500\n"
                                         "gpu * fail GetTotalEnergyConsumption 3\n"
                                         "gpu * fail GetViolationStatus 3\n"
                                         "gpu 0 reasons 24 1.5 2.5\n"
                                         "gpu 1 fail field186 3\n"
                                         "gpu 1 fail GetPowerUsage 3\n");
    struct erg_window_result result = {.size = sizeof result};
    sleep_until(1.4);
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(2.9);
    erg_window_end(window, &result, NULL);
    const struct erg_window_gpu *at = &result.gpu[0];
    assert_int_equal(at->quality, ERG_ENERGY_POWER_ONLY);
    assert_int_equal(at->counter, ERG_COUNTER_MISSING);
    assert_int_equal(result.energy_gpus, 1);
    double error_j = fabs(at->energy_j - truth_of(0, &result));
    assert_true(error_j <= 2 * at->uncertainty_j);
    assert_true(at->uncertainty_j < 0.2 * at->energy_j);
    assert_true(isnan(at->ratio));
    assert_int_equal(result.gpu[1].quality, ERG_ENERGY_MISSING);
    assert_true(isnan(result.gpu[1].energy_j));
    assert_near(result.energy_j, at->energy_j, 1e-9);
    close_meter(meter);
    return error_j <= at->uncertainty_j && fabs(at->throttled_power_s - 1) <= 0.2 &&
           fabs(at->throttled_thermal_s - 1) <= 0.2;
}

static void test_without_counters(void **state)
{
    (void)state;
    check_some_attempt(check_without_counters);
}

/* A counter that starts anew within the window says nothing of it: the power readings do. Returns
 * whether the window began long enough before that for its begin to be known. */
static bool check_a_counter_that_starts_anew(void)
{
    struct erg_meter *meter = open_meter("gpus 2\ngpu * power 0=400\ngpu 1 restart 2\n");
    struct erg_window_result result = {.size = sizeof result}, after = {.size = sizeof after};
    sleep_until(1.4);
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(2.6);
    erg_window_end(window, &result, NULL);
    window = erg_window_begin(meter);
    sleep_until(4);
    erg_window_end(window, &after, NULL);
    int64_t restart_ns = fake.start_ns() + 2000000000;
    bool known = result.begin_ns < restart_ns - 500000000;
    assert_int_equal(result.gpu[0].quality, ERG_ENERGY_MEASURED);
    assert_int_equal(after.gpu[1].quality, ERG_ENERGY_MEASURED);
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        assert_near(result.gpu[gpu].energy_j, truth_of(gpu, &result),
                    2 * result.gpu[gpu].uncertainty_j);
        assert_near(after.gpu[gpu].energy_j, truth_of(gpu, &after),
                    2 * after.gpu[gpu].uncertainty_j);
    }
    known = known && result.gpu[1].quality == ERG_ENERGY_POWER_ONLY &&
            result.gpu[1].counter == ERG_COUNTER_RESET && isnan(result.gpu[1].ratio);
    close_meter(meter);
    return known;
}

static void test_a_counter_that_restarts(void **state)
{
    (void)state;
    check_some_attempt(check_a_counter_that_starts_anew);
}

static void test_no_gpus(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_meter *meter;
    fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 2\n");
    assert_fails(erg_meter_open(&meter, "5", &err), &err, "there is no GPU 5");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    fake_close(&fake);
}

/* What lies before a window that begins at once is known: three steps, so two gaps, came before. */
static void test_opening_learns_the_first_steps(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter("gpus 2\ngpu * power 0=400\ngpu * counter 0.1 0.03\n");
    assert_true(erg_now_ns() - fake.start_ns() >= 200000000);
    close_meter(meter);
}

/* A GPU without a sensor of its clock and of its reasons has none of either, not zeros. */
static void test_missing_is_not_zero(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter("gpus 1\n"
                                         "gpu 0 fail GetClockInfo 3\n"
                                         "gpu 0 fail GetCurrentClocksEventReasons 3\n"
                                         "gpu 0 fail GetViolationStatus 3\n"
                                         "gpu 0 fail field74 3\n"
                                         "gpu 0 fail field75 3\n");
    struct erg_window_result result = {.size = sizeof result};
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(1);
    erg_window_end(window, &result, NULL);
    assert_false(result.gpu[0].lost);
    assert_true(result.gpu[0].energy_j > 0);
    assert_true(isnan(result.gpu[0].sm_clock_mean_mhz));
    assert_true(isnan(result.gpu[0].throttled_power_s));
    assert_true(isnan(result.gpu[0].throttled_thermal_s));
    close_meter(meter);
}

/* Counters that stand still, from the start or from within the window: power is summed, and what
 * else the GPU says stays known. */
static bool check_counters_that_stand_still(void)
{
    struct erg_meter *meter = open_meter("gpus 2\n"
                                         "gpu * power 0=300\n"
                                         "gpu * reasons 4 1 9\n"
                                         "gpu 0 glitch 0 99 5000000\n"
                                         "gpu 1 glitch 2 99 5600000\n");
    struct erg_window_result result = {.size = sizeof result};
    sleep_until(1.5);
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(3);
    erg_window_end(window, &result, NULL);
    bool exact = true;
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        const struct erg_window_gpu *at = &result.gpu[gpu];
        assert_false(at->lost);
        assert_int_equal(at->quality, ERG_ENERGY_POWER_ONLY);
        assert_int_equal(at->counter, ERG_COUNTER_STILL);
        assert_near(at->sm_clock_mean_mhz, 1980, 1e-6);
        assert_true(at->throttled_power_s > 0.9 * result.time_s);
        exact &= fabs(at->energy_j - truth_of(gpu, &result)) <= at->uncertainty_j;
    }
    close_meter(meter);
    return exact;
}

static void test_counters_that_stand_still(void **state)
{
    (void)state;
    check_some_attempt(check_counters_that_stand_still);
}

/* Nothing to read is nothing known, of one GPU and of all. */
static void test_no_sensors(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter("gpus 2\n"
                                         "gpu * power 0=300\n"
                                         "gpu * fail GetTotalEnergyConsumption 3\n"
                                         "gpu * fail field185 3\n"
                                         "gpu * fail field186 3\n"
                                         "gpu * fail GetPowerUsage 3\n");
    struct erg_window_result result = {.size = sizeof result};
    struct erg_window *window = erg_window_begin(meter);
    sleep_until(1);
    erg_window_end(window, &result, NULL);
    assert_true(isnan(result.energy_j) && isnan(result.uncertainty_j));
    assert_int_equal(result.energy_gpus, 0);
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        assert_int_equal(result.gpu[gpu].quality, ERG_ENERGY_MISSING);
        assert_true(isnan(result.gpu[gpu].energy_j) && isnan(result.gpu[gpu].power_mean_w));
        assert_false(result.gpu[gpu].lost);
    }
    close_meter(meter);
}

/* However short a window is, its mean power is one that the GPU could have, or not known. */
static void test_mean_power_of_short_windows(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter("gpus 2\ngpu * power 0=300\n");
    sleep_until(1.4);
    size_t unknown = 0;
    for (int i = 0; i < 24; i++) {
        struct erg_window_result result = {.size = sizeof result};
        struct erg_window *window = erg_window_begin(meter);
        double from_s = 1e-9 * (double)(erg_now_ns() - fake.start_ns());
        sleep_until(from_s + 0.002 * i);
        erg_window_end(window, &result, NULL);
        for (unsigned gpu = 0; gpu < 2; gpu++) {
            const struct erg_window_gpu *at = &result.gpu[gpu];
            unknown += isnan(at->power_mean_w);
            if (at->power_mean_w > 1.1 * 300 + 1)
                fail_msg("%.1f W in %.4f s", at->power_mean_w, result.time_s);
            assert_true(isnan(at->ratio) || (at->ratio > 0 && isfinite(at->ratio)));
        }
    }
    assert_true(unknown > 0);
    close_meter(meter);
}

/* A window of no work, one that is dropped, and one that outlives the meter. */
static void test_cancel(void **state)
{
    (void)state;
    struct erg_meter *meter = open_meter("gpus 2\ngpu 1 fail GetTotalEnergyConsumption 3\n");
    struct erg_window_result result = {.size = sizeof result};
    erg_window_end(erg_window_begin(meter), &result, NULL);
    assert_true(result.gpu[0].energy_j >= 0 && result.gpu[1].energy_j >= 0);
    erg_window_cancel(erg_window_begin(meter));
    assert_non_null(erg_window_begin(meter));
    close_meter(meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy_of_a_second),
        cmocka_unit_test(test_looks_at_an_open_window),
        cmocka_unit_test(test_short_windows),
        cmocka_unit_test(test_a_slow_gpu),
        cmocka_unit_test(test_without_counters),
        cmocka_unit_test(test_a_counter_that_restarts),
        cmocka_unit_test(test_no_gpus),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_counters_that_stand_still),
        cmocka_unit_test(test_no_sensors),
        cmocka_unit_test(test_mean_power_of_short_windows),
        cmocka_unit_test(test_opening_learns_the_first_steps),
        cmocka_unit_test(test_missing_is_not_zero),
        cmocka_unit_test(test_troubled_gpus),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
