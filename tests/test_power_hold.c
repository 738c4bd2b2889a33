/*
 * Pauses that hold a job to the watts of its scheduler's plan: on made-up GPUs in no time, and with
 * the meter of a rank on the fake NVML, which knows what was really drawn.
 */
#include "check.h"

#include "base/clock.h"
#include "fake_gpus.h"
#include "side_by_side.h"
#include "train/engine/power_hold.h"
#include "train/log/rank_meter.h"

enum { ATTEMPTS = 5 }; /* for a host so busy that it sleeps too long */

/* Mean power of GPUs that draw `full_w` in steps and `idle_w` in pauses. */
struct gpus {
    double full_w, idle_w;
};

static double mean_w(const struct gpus *gpus, double slowdown)
{
    return gpus->idle_w + (gpus->full_w - gpus->idle_w) / slowdown;
}

/* Steps of 0.3 s until a window ends: what was measured in it, and told. */
static double run_window(struct erg_power_hold *hold, const struct gpus *gpus)
{
    const double before = hold->slowdown;
    while (!erg_power_hold_due(hold))
        assert_near(erg_power_hold_pause(hold, 0.3), 0.3 * (before - 1), 1e-12);
    const double power_w = mean_w(gpus, before);
    erg_power_hold_measured(hold, power_w);
    return power_w;
}

/* 600 W at work and 100 W idle: 300 W are at 2.5 times the time, where the plan expected 2 times,
 * as if idle GPUs drew nothing. Each window leaves a third of the error. */
static void the_limit_is_reached(void **state)
{
    (void)state;
    const struct gpus gpus = {600, 100};
    struct erg_power_hold hold;
    erg_power_hold_plan(&hold, 2, 300);
    assert_near(run_window(&hold, &gpus), 350, 1e-9);
    assert_close(hold.slowdown, 2 * 350 / 300.0, 1e-12);
    double error = mean_w(&gpus, hold.slowdown) - 300;
    for (int i = 0; i < 6; i++) {
        run_window(&hold, &gpus);
        const double then = mean_w(&gpus, hold.slowdown) - 300;
        assert_true(then > 0 && then < 0.36 * error);
        error = then;
    }
    assert_close(hold.slowdown, 2.5, 0.001);
    assert_false(hold.saturated);
    /* From a plan that is too slow it comes back to the same, by a fifth a window at most. */
    erg_power_hold_plan(&hold, 6, 300);
    run_window(&hold, &gpus);
    assert_close(hold.slowdown, 4.8, 1e-12);
    for (int i = 0; i < 12; i++)
        run_window(&hold, &gpus);
    assert_close(hold.slowdown, 2.5, 0.001);
}

static void the_plan_stays_without_a_measurement(void **state)
{
    (void)state;
    const struct gpus gpus = {600, 100};
    struct erg_power_hold hold;
    erg_power_hold_plan(&hold, 1.7, 300);
    for (int i = 0; i < 5; i++)
        erg_power_hold_measured(&hold, NAN);
    assert_true(hold.slowdown == 1.7);
    run_window(&hold, &gpus);
    assert_true(hold.slowdown > 1.7);
    /* Without a limit there is nothing to measure. */
    erg_power_hold_plan(&hold, 1.7, INFINITY);
    for (int i = 0; i < 100; i++) {
        assert_near(erg_power_hold_pause(&hold, 1), 0.7, 1e-12);
        assert_false(erg_power_hold_due(&hold));
    }
}

static void pauses_have_bounds(void **state)
{
    (void)state;
    const struct gpus gpus = {600, 100};
    struct erg_power_hold hold;
    erg_power_hold_plan(&hold, 1.5, 90); /* less than idle */
    for (int i = 0; i < 8; i++)
        run_window(&hold, &gpus);
    assert_true(hold.slowdown == 6 && hold.saturated);
    erg_power_hold_plan(&hold, 2, 700); /* more than at work */
    for (int i = 0; i < 8; i++)
        run_window(&hold, &gpus);
    assert_true(hold.slowdown == 1 && !hold.saturated);
    assert_true(erg_power_hold_pause(&hold, 2) == 0);
    /* A window that held a checkpoint. */
    erg_power_hold_plan(&hold, 2.5, 300);
    erg_power_hold_measured(&hold, 110);
    assert_close(hold.slowdown, 2, 1e-12);
}

/* ---- measured ---- */

static void sleep_until(int64_t then_ns)
{
    const int64_t left_ns = then_ns - erg_now_ns();
    if (left_ns > 0)
        erg_sleep_ns(left_ns);
}

/* Steps of 50 ms on a fake GPU of 120 W, and 400 W more in a step, for a while: the pace in the
 * end, and the power that was really drawn in the last windows. */
static double hold_fake(struct erg_power_hold *hold, const struct fake *fake,
                        void (*work)(unsigned, int64_t, int64_t, double))
{
    enum { WINDOWS = 8, COUNTED = 3 };
    const int64_t step_ns = 50000000;
    struct erg_rank_meter meter;
    struct erg_rank_mark mark;
    int64_t from_ns = 0;
    erg_rank_meter_open(&meter, "NVIDIA Fake H200", 0);
    assert_non_null(meter.meter);
    erg_power_hold_plan(hold, 1.5, 300);
    erg_rank_meter_begin(&meter, &mark);
    for (int window = 0; window < WINDOWS;) {
        if (erg_power_hold_due(hold)) {
            struct erg_rank_numbers numbers;
            erg_rank_meter_end(&meter, &mark, &numbers);
            erg_rank_meter_begin(&meter, &mark);
            erg_power_hold_measured(hold, numbers.energy_j / numbers.measured_s);
            if (++window == WINDOWS - COUNTED)
                from_ns = erg_now_ns();
        }
        const int64_t begin_ns = erg_now_ns(), end_ns = begin_ns + step_ns;
        work(0, begin_ns, end_ns, 400);
        sleep_until(end_ns);
        sleep_until(end_ns + (int64_t)(1e9 * erg_power_hold_pause(hold, 1e-9 * (double)step_ns)));
    }
    const int64_t now_ns = erg_now_ns();
    struct erg_rank_numbers ignored;
    erg_rank_meter_end(&meter, &mark, &ignored);
    erg_rank_meter_close(&meter);
    return fake->energy_j(0, from_ns, now_ns) / (1e-9 * (double)(now_ns - from_ns));
}

static void measured_power_is_held(void **state)
{
    (void)state;
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 1\ngpu 0 limit 700\n"
                                                       "gpu 0 power 0=120\n"
                                                       "gpu 0 counter 0.02 0.003\n");
    void (*work)(unsigned, int64_t, int64_t, double);
    void *symbol = dlsym(fake.library, "fake_nvml_work");
    assert_non_null(symbol);
    memcpy(&work, &symbol, sizeof symbol);
    for (int i = 0;; i++) {
        struct erg_power_hold hold;
        const double power_w = hold_fake(&hold, &fake, work);
        print_message("%.1f W of 300 W, %.2f times the time\n", power_w, hold.slowdown);
        /* 120 + 400 / s: s is 2.2, and less where this host sleeps too long between steps. */
        if (fabs(power_w - 300) < 12 && hold.slowdown > 1.2)
            break;
        assert_true(i < ATTEMPTS);
    }
    fake_close(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_reached),
        cmocka_unit_test(the_plan_stays_without_a_measurement),
        cmocka_unit_test(pauses_have_bounds),
        cmocka_unit_test(measured_power_is_held),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
