/* What sensors of emulated GPUs show of a square wave that is faster than they are. */
#include "check.h"

#include "characterize/virtual_sensor.h"

/* 20 ms at 700 W, 20 ms at 300 W. */
static const double ends_s[] = {0.02, 0.04}, watts[] = {700, 300};
enum { PHASES = 200 };

static void integrals_of_a_course(void **state)
{
    (void)state;
    struct erg_power_course course;
    erg_power_course_init(&course, ends_s, watts, 2);
    assert_near(erg_power_course_integral(&course, 0), 0, 1e-12);
    assert_near(erg_power_course_integral(&course, 0.01), 7, 1e-12);
    assert_near(erg_power_course_integral(&course, 0.02), 14, 1e-12);
    assert_near(erg_power_course_integral(&course, 0.03), 17, 1e-12);
    assert_near(erg_power_course_integral(&course, 0.41), 207, 1e-9); /* ten periods of 20 J */
    assert_near(erg_power_course_integral(&course, -0.01), -3, 1e-12);
    erg_power_course_release(&course);
}

static void a_hopper_sensor_is_unbiased_and_blind_to_peaks(void **state)
{
    (void)state;
    struct erg_power_course course;
    double mean_w = 0, highest_w = 0, lowest_w = INFINITY;
    erg_power_course_init(&course, ends_s, watts, 2);
    for (uint64_t key = 0; key < PHASES; key++) {
        const struct erg_virtual_sensor sensor = erg_virtual_sensor_hopper(0.092, key);
        const struct erg_virtual_window seen = erg_virtual_look(&sensor, &course, 0.7, 2.7, 0.05);
        mean_w += seen.mean_w / PHASES;
        highest_w = fmax(highest_w, seen.peak_w);
        lowest_w = fmin(lowest_w, seen.peak_w);
        assert_true(sensor.refresh_s >= 0.092 && sensor.refresh_s <= 0.1);
        assert_true(seen.peak_w <= 700);
        assert_true(fabs(seen.energy_j - 1000) <= 0.092 * 700); /* one step of the counter */
    }
    assert_close(mean_w, 500, 0.01);
    /* 20 of 25 ms at most are high. */
    assert_near(highest_w, 620, 1);
    assert_true(lowest_w > 500);
    erg_power_course_release(&course);
}

static void counter_steps_sum_up(void **state)
{
    (void)state;
    struct erg_power_course course;
    const struct erg_virtual_sensor sensor = erg_virtual_sensor_hopper(0.092, 7);
    double sum_j = 0, before_j;
    erg_power_course_init(&course, ends_s, watts, 2);
    before_j = erg_virtual_energy(&sensor, &course, 1);
    for (int i = 1; i <= 1000; i++) {
        const double now_j = erg_virtual_energy(&sensor, &course, 1 + 0.01 * i);
        assert_true(now_j >= before_j);
        sum_j += now_j - before_j;
        before_j = now_j;
    }
    assert_near(sum_j, 5000, 0.092 * 700);
    assert_close(sum_j,
                 erg_virtual_energy(&sensor, &course, 11) - erg_virtual_energy(&sensor, &course, 1),
                 1e-12);
    erg_power_course_release(&course);
}

static void the_exact_sensor_shows_all(void **state)
{
    (void)state;
    struct erg_power_course course;
    const struct erg_virtual_sensor sensor = erg_virtual_sensor_exact();
    erg_power_course_init(&course, ends_s, watts, 2);
    const struct erg_virtual_window seen = erg_virtual_look(&sensor, &course, 0, 2, 0.001);
    assert_near(seen.peak_w, 700, 1e-9);
    assert_near(seen.mean_w, 500, 10); /* a reading a period is at an edge */
    assert_near(seen.energy_j, 1000, 1e-6);
    erg_power_course_release(&course);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integrals_of_a_course),
        cmocka_unit_test(a_hopper_sensor_is_unbiased_and_blind_to_peaks),
        cmocka_unit_test(counter_steps_sum_up),
        cmocka_unit_test(the_exact_sensor_shows_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
