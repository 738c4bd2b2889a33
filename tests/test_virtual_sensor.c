/* Sensors of virtual time: unbiased on average, never above the truth, exact in energy. */
#include "check.h"

#include "base/random.h"
#include "thermal/virtual_sensor.h"

enum { PHASES = 200, POLLS = 1200 };
static const double poll_s = 0.05;

/* 20 ms at 700 W, 20 ms at 300 W, for a minute. */
static struct erg_series square_wave(void)
{
    struct erg_series power = {0};
    for (int i = 0; i < 3100; i++)
        erg_series_add(&power, 0.02 * i, i % 2 ? 300 : 700);
    return power;
}

static void power_is_unbiased_and_never_above_the_truth(void **state)
{
    (void)state;
    struct erg_series power = square_wave();
    double mean = 0, least = INFINITY, most = 0;
    int off = 0;
    for (uint64_t phase = 0; phase < PHASES; phase++) {
        struct erg_virtual_sensor sensor = erg_virtual_sensor_hopper(phase, 0.2);
        assert_true(sensor.period_s >= 0.092 && sensor.period_s <= 0.1);
        assert_true(sensor.phase_s >= 0 && sensor.phase_s < sensor.period_s);
        double sum = 0;
        for (int i = 0; i < POLLS; i++) {
            double shown = erg_virtual_power(&sensor, &power, 1 + poll_s * i);
            sum += shown;
            if (i == 10) /* after half a second */
                off += fabs(sum / 11 - 500) > 5;
            least = fmin(least, shown);
            most = fmax(most, shown);
        }
        mean += sum / POLLS / PHASES;
    }
    assert_close(mean, 500, 0.01);
    assert_true(off > PHASES / 4); /* soon a sensor is off by more: it sees a quarter of the time */
    assert_true(most <= 700 && least >= 300);
    assert_near(most, 700 - 400 * 5.0 / 25, 1); /* 25 ms never fit into 20 ms */
    erg_series_release(&power);
}

static void slow_power_shows_its_peak(void **state)
{
    (void)state;
    struct erg_series power = {0};
    erg_series_add(&power, 0, 100);
    erg_series_add(&power, 1, 650);
    erg_series_add(&power, 1.3, 200);
    for (uint64_t phase = 0; phase < PHASES; phase++) {
        struct erg_virtual_sensor sensor = erg_virtual_sensor_hopper(phase, 0.2);
        double most = 0;
        for (int i = 0; i < 60; i++)
            most = fmax(most, erg_virtual_power(&sensor, &power, poll_s * i));
        assert_near(most, 650, 1e-9);
        assert_near(erg_virtual_power(&sensor, &power, 0), 100, 1e-9);
        assert_near(erg_virtual_power(&sensor, &power, 10), 200, 1e-9);
    }
    erg_series_release(&power);
}

static void the_counter_misses_nothing(void **state)
{
    (void)state;
    struct erg_series power = square_wave();
    for (uint64_t phase = 0; phase < PHASES; phase++) {
        struct erg_virtual_sensor sensor = erg_virtual_sensor_hopper(phase, 0.2);
        int64_t before = erg_virtual_energy(&sensor, &power, 1), first = before;
        double first_s = erg_virtual_refresh(&sensor, 1);
        for (int i = 1; i <= POLLS; i++) {
            double at_s = 1 + poll_s * i, tick_s = erg_virtual_refresh(&sensor, at_s);
            int64_t now = erg_virtual_energy(&sensor, &power, at_s);
            assert_true(now >= before);
            assert_true(tick_s <= at_s && tick_s > at_s - sensor.period_s - 1e-9);
            double exact =
                erg_series_integral(&power, tick_s) - erg_series_integral(&power, first_s);
            assert_near(1e-3 * (double)(now - first), exact, 1e-3 + 1e-9);
            before = now;
        }
        /* Against the clock on the wall: off by a refresh at either end at most. */
        assert_near(1e-3 * (double)(before - first), 500 * poll_s * POLLS, 700 * sensor.period_s);
    }
    erg_series_release(&power);
}

static void temperatures_lag_and_lose_their_fraction(void **state)
{
    (void)state;
    const struct erg_virtual_sensor sensor = {0, 0.1, 0.025, 0.2}, quick = {0, 0.1, 0.025, 0};
    struct erg_series ramp = {0};
    erg_series_add(&ramp, 0, 40);
    erg_series_add(&ramp, 10, 60); /* 2 K/s: a lag of 0.4 K */
    double at_s[401];
    int64_t shown[401], exact[401];
    for (int i = 0; i <= 400; i++)
        at_s[i] = 0.05 * i - 1;
    erg_virtual_temperatures(&sensor, &ramp, at_s, 401, shown);
    erg_virtual_temperatures(&quick, &ramp, at_s, 401, exact);
    for (int i = 0; i <= 400; i++) {
        const double t = at_s[i], true_c = t < 0 ? 40 : t < 10 ? 40 + 2 * t : 60;
        const double lagged = t < 0    ? 40
                              : t < 10 ? true_c - 0.4 * (1 - exp(-t / 0.2))
                                       : 60 - 0.4 * exp(-(t - 10) / 0.2);
        assert_int_equal(exact[i], (int64_t)floor(true_c + 1e-9));
        assert_int_equal(shown[i], (int64_t)floor(lagged + 1e-9));
    }
    erg_series_release(&ramp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_is_unbiased_and_never_above_the_truth),
        cmocka_unit_test(slow_power_shows_its_peak),
        cmocka_unit_test(the_counter_misses_nothing),
        cmocka_unit_test(temperatures_lag_and_lose_their_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
