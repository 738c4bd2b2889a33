/* The emulated device in virtual time and the profiler on it. */
#include "catalogue.h"
#include "check.h"

#include "base/thread.h"
#include "device/emulated/emulated.h"
#include "device/profiler.h"

static const struct erg_op hopper_mlp[] = {
    {ERG_OP_MEMORY, 1, 0, 201326592, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 412316860416, 260046848, 3072, 2048, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 1, 0, 268435456, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 1536, {0}, 0, 0, 0},
};

/* At the power cap at 1980 MHz, far below it at 1300. */
static const struct erg_step hot_step = {
    .task = {hopper_mlp, 4, {.kind = ERG_COMM_ALLREDUCE, .wire_bytes = 150994944, .group = 4}},
    .launch = {0, 16}};

struct fixture {
    struct erg_gpu gpu;
    struct erg_stack stack;
    struct erg_emulated_options options;
    struct erg_device *device;
};

static void open_fixture(struct fixture *fixture, const char *gpu,
                         struct erg_emulated_options options)
{
    struct erg_error err;
    fixture->gpu = catalogue_gpu(gpu);
    fixture->stack = (struct erg_stack){.name = catalogue_stack("ergon").name} /* no joins */;
    fixture->options = options;
    assert_ok(erg_emulated_open(&fixture->device, &fixture->gpu, &fixture->stack, &options, &err),
              &err);
}

static struct erg_emulated_options exact_options(void)
{
    struct erg_emulated_options options = erg_emulated_options_default();
    options.gpus = 4;
    options.noise = options.heat = false;
    return options;
}

static struct erg_emulated_options full_options(void)
{
    struct erg_emulated_options options = erg_emulated_options_default();
    options.gpus = 4;
    return options;
}

static struct erg_measurement profile(struct erg_device *device, int clock_mhz, uint64_t key)
{
    struct erg_error err;
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_measurement result;
    assert_ok(erg_profile(device, &hot_step, 1, clock_mhz, &options, key, &result, &err), &err);
    return result;
}

/* Long runs are not warmed up for longer, and so no hotter, than short ones. */
static void long_runs_are_as_warm_as_short_ones(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    struct erg_emulated_options exact = exact_options();
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_measurement one, many;
    enum { LONG = 375 };
    struct erg_step *steps = calloc(LONG, sizeof *steps);
    for (size_t i = 0; i < LONG; i++)
        steps[i] = hot_step;
    exact.heat = true;
    open_fixture(&on, "H200-SXM", exact);
    assert_ok(erg_profile(on.device, steps, 1, 1500, &options, 1, &one, &err), &err);
    assert_ok(erg_profile(on.device, steps, LONG, 1500, &options, 1, &many, &err), &err);
    assert_in_range((int)(1e3 * many.time_s), 500, 560);
    assert_near(many.temperature_end_c, one.temperature_end_c, 1);
    assert_close(many.time_s, LONG * one.time_s, 1e-3);
    assert_close(many.energy_j, LONG * one.energy_j, 4e-3);
    assert_true(many.device_s < 1.5 * one.device_s);
    erg_device_close(on.device);
    free(steps);
}

static void without_noise_the_model_is_measured(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "H200-SXM", exact_options());
    for (int clock = 1260; clock <= 1980; clock += 240) {
        struct erg_emulated_result model;
        assert_ok(erg_emulated_run(&on.gpu, &on.stack, &hot_step, 1, clock, &model, &err), &err);
        struct erg_measurement result = profile(on.device, clock, 1);
        assert_close(result.time_s, model.time_s, 1e-6);
        assert_close(result.energy_j, model.energy_j, 1.5e-3); /* polls place an edge to 2.5 ms */
        assert_near(result.clock_mhz, model.clock_effective_mhz, 8);
        assert_int_equal((result.reasons & ERG_REASON_SW_POWER_CAP) != 0, clock >= 1740);
        assert_int_equal(result.energy_source, ERG_ENERGY_COUNTER);
        assert_false(result.unstable || result.missed_clock || result.refused_clock);
        assert_in_range((int)(1e3 * result.device_s), 12000, 14500);
        struct erg_profile_options options = erg_profile_options_default();
        struct erg_measurement burst;
        assert_ok(erg_profile_time(on.device, &hot_step, 1, clock, &options, 1, &burst, &err),
                  &err);
        assert_close(burst.time_s, model.time_s, 1e-6);
        assert_int_equal(burst.energy_source, ERG_ENERGY_NONE);
        assert_true(burst.device_s < 3);
    }
    erg_device_close(on.device);
}

static void equal_keys_give_equal_bytes(void **state)
{
    (void)state;
    struct fixture on, again;
    open_fixture(&on, "H200-SXM", full_options());
    open_fixture(&again, "H200-SXM", full_options());
    struct erg_measurement first = profile(on.device, 1980, 11);
    struct erg_measurement other = profile(on.device, 1500, 12);
    /* The other way round, on another device, after something else. */
    profile(again.device, 1200, 99);
    struct erg_measurement other_again = profile(again.device, 1500, 12);
    struct erg_measurement first_again = profile(again.device, 1980, 11);
    assert_near(first.time_s, first_again.time_s, 0);
    assert_near(first.energy_j, first_again.energy_j, 0);
    assert_near(first.energy_sd, first_again.energy_sd, 0);
    assert_near(other.time_s, other_again.time_s, 0);
    assert_near(other.energy_j, other_again.energy_j, 0);
    assert_true(first.energy_j != profile(on.device, 1980, 12).energy_j);
    assert_string_equal(on.device->identity, again.device->identity);
    erg_device_close(on.device);
    erg_device_close(again.device);
}

static void measurements_repeat_within_a_percent(void **state)
{
    (void)state;
    struct fixture on;
    open_fixture(&on, "H200-SXM", full_options());
    enum { TRIALS = 40 };
    double time_sum = 0, energy_sum = 0, time_square = 0, energy_square = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct erg_measurement result = profile(on.device, 1980, 1000 + trial);
        time_sum += result.time_s / TRIALS;
        energy_sum += result.energy_j / TRIALS;
        time_square += result.time_s * result.time_s / TRIALS;
        energy_square += result.energy_j * result.energy_j / TRIALS;
        assert_false(result.unstable);
    }
    double time_sd = sqrt(time_square - time_sum * time_sum) / time_sum;
    double energy_sd = sqrt(energy_square - energy_sum * energy_sum) / energy_sum;
    assert_true(time_sd > 0.0005 && time_sd < 0.01);
    assert_true(energy_sd > 0.0005 && energy_sd < 0.01);
    erg_device_close(on.device);
}

/* Energy of one run from two plain counter reads around work of about `window_s`, GPU 0. */
static double plain_energy(struct erg_device *device, double window_s, double run_s)
{
    struct erg_error err;
    struct erg_sample before[8], after[8];
    size_t runs = (size_t)(window_s / run_s);
    assert_ok(erg_device_sense(device, before, &err), &err);
    assert_ok(erg_device_enqueue(device, &hot_step, 1, runs, &err), &err);
    assert_ok(erg_device_sync(device, &err), &err);
    assert_ok(erg_device_sense(device, after, &err), &err);
    return (double)(after[0].energy_mj - before[0].energy_mj) * 1e-3 / (double)runs;
}

static void short_cold_windows_read_low(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_emulated_options options = exact_options();
    options.heat = true;
    open_fixture(&on, "H200-SXM", options);
    double warm_j = profile(on.device, 1980, 1).energy_j, cold_j = 0;
    enum { TRIALS = 32 };
    double lowest = INFINITY, highest = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        erg_device_begin(on.device, trial);
        double one_j = plain_energy(on.device, 0.5, 1.21e-3);
        cold_j += one_j / TRIALS;
        lowest = fmin(lowest, one_j);
        highest = fmax(highest, one_j);
    }
    assert_true(cold_j < 0.97 * warm_j);
    assert_true(highest > 1.02 * lowest); /* and they scatter with the sensor's phase */
    erg_device_close(on.device);
}

static void heat_alone_costs_four_to_six_percent(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    struct erg_emulated_options options = exact_options();
    options.heat = true;
    open_fixture(&on, "H200-SXM", options);
    struct erg_emulated_result cold, warm;
    erg_emulated_run_at(&on.gpu, &on.stack, &hot_step, 1, 1980, 32, &cold, &err);
    erg_emulated_run_at(&on.gpu, &on.stack, &hot_step, 1, 1980, 64, &warm, &err);
    erg_device_begin(on.device, 1);
    struct erg_device_span first, last;
    for (int i = 0; i < 12; i++) {
        assert_ok(erg_device_enqueue(on.device, &hot_step, 1, 800, &err), &err); /* about 1 s */
        assert_ok(erg_device_sync(on.device, &err), &err);
        assert_ok(erg_device_span(on.device, 0, 0, i ? &last : &first, &err), &err);
    }
    double speed_up =
        (double)(last.end_ns - last.start_ns) / (double)(first.end_ns - first.start_ns);
    assert_true(speed_up > 1.005 && speed_up < warm.time_s / cold.time_s * 1.001);
    struct erg_sample samples[8];
    assert_ok(erg_device_sense(on.device, samples, &err), &err);
    assert_near(samples[0].temperature_c, 64, 2); /* as measured on the real one */
    erg_device_sleep_ns(on.device, INT64_C(30000000000));
    assert_ok(erg_device_sense(on.device, samples, &err), &err);
    assert_near(samples[0].temperature_c, 32, 1);
    assert_near(samples[0].power_w, 79, 0.01);
    assert_int_equal(samples[0].clock_mhz, 345);
    assert_int_equal(samples[0].reasons, ERG_REASON_IDLE);
    erg_device_close(on.device);
}

static void plain_counter_reads_err_by_a_tick_at_each_end(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "H200-SXM", exact_options());
    struct erg_emulated_result model;
    assert_ok(erg_emulated_run(&on.gpu, &on.stack, &hot_step, 1, 1980, &model, &err), &err);
    double spread[2] = {0};
    for (int doubled = 0; doubled < 2; doubled++) {
        double ticks = doubled ? 11.5 : 5.5, window_s = 0.092 * ticks;
        for (uint64_t trial = 0; trial < 300; trial++) {
            erg_device_begin(on.device, trial);
            /* Work before and after: the error is then the counter's alone. */
            assert_ok(erg_device_enqueue(on.device, &hot_step, 1, 300, &err), &err);
            erg_device_sleep_ns(on.device, 200000000);
            struct erg_sample before[8], after[8];
            assert_ok(erg_device_sense(on.device, before, &err), &err);
            assert_ok(erg_device_enqueue(on.device, &hot_step, 1, 2000, &err), &err);
            erg_device_sleep_ns(on.device, (int64_t)(window_s * 1e9) - 5000000);
            assert_ok(erg_device_sense(on.device, after, &err), &err);
            double read_j = (double)(after[0].energy_mj - before[0].energy_mj) * 1e-3;
            double error_j = read_j - model.power_w * window_s;
            assert_true(fabs(error_j) <= 2 * 0.092 * model.power_w);
            spread[doubled] = fmax(spread[doubled], fabs(error_j) / window_s);
        }
    }
    assert_true(spread[0] > 0.05 * model.power_w);
    assert_close(spread[1], spread[0] * 5.5 / 11.5, 0.05);
    erg_device_close(on.device);
}

static void polling_does_not_change_physics(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "H200-SXM", full_options());
    struct erg_device_span spans[2];
    struct erg_sample ends[2][8];
    for (int polled = 0; polled < 2; polled++) {
        erg_device_begin(on.device, 5);
        assert_ok(erg_device_enqueue(on.device, &hot_step, 1, 2000, &err), &err);
        for (int i = 0; polled && i < 300; i++) {
            struct erg_sample samples[8];
            assert_ok(erg_device_sense(on.device, samples, &err), &err);
            assert_true(samples[0].time_ns == erg_device_now_ns(on.device));
        }
        assert_ok(erg_device_enqueue(on.device, &hot_step, 1, 500, &err), &err);
        assert_ok(erg_device_sync(on.device, &err), &err);
        assert_ok(erg_device_span(on.device, 0, 0, &spans[polled], &err), &err);
        assert_ok(erg_device_sense(on.device, ends[polled], &err), &err);
    }
    assert_true(spans[0].start_ns == spans[1].start_ns && spans[0].end_ns == spans[1].end_ns);
    for (int g = 0; g < 4; g++) {
        assert_true(ends[0][g].energy_mj == ends[1][g].energy_mj);
        assert_near(ends[0][g].power_w, ends[1][g].power_w, 0);
        assert_near(ends[0][g].temperature_c, ends[1][g].temperature_c, 0);
    }
    erg_device_close(on.device);
}

static void a_new_clock_takes_some_milliseconds(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "H200-SXM", exact_options());
    struct erg_sample samples[8];
    erg_device_begin(on.device, 3);
    assert_ok(erg_device_set_clock(on.device, 1296, &err), &err); /* to the grid of 15 MHz */
    assert_ok(erg_device_enqueue(on.device, &hot_step, 1, 100, &err), &err);
    assert_ok(erg_device_sense(on.device, samples, &err), &err);
    assert_true(samples[0].clock_mhz > 1600);
    erg_device_sleep_ns(on.device, 20000000);
    assert_ok(erg_device_sense(on.device, samples, &err), &err);
    assert_int_equal(samples[0].clock_mhz, 1290);
    assert_fails(erg_device_set_clock(on.device, 3000, &err), &err, "expected 345 to 1980 MHz");
    erg_device_close(on.device);
}

static void refusals_are_reported_or_worked_around(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_measurement result;
    struct erg_emulated_options refusing = exact_options();
    refusing.refuse_clocks = true;
    open_fixture(&on, "H200-SXM", refusing);
    err.status = ERG_OK;
    assert_fails(erg_device_set_clock(on.device, 1500, &err), &err, "refuses clock locks");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    result = profile(on.device, 1500, 1);
    assert_true(result.refused_clock && !result.missed_clock);
    assert_near(result.clock_mhz, 1704, 8); /* its own clock, at the cap */
    erg_device_close(on.device);

    refusing.refuse_clocks = false;
    open_fixture(&on, "H200-SXM", refusing);
    result = profile(on.device, 0, 1); /* not asked for: neither refused nor missed */
    assert_near(result.clock_mhz, 1704, 8);
    assert_false(result.refused_clock || result.missed_clock);
    erg_device_close(on.device);

    refusing.refuse_counter = true;
    open_fixture(&on, "H200-SXM", refusing);
    struct erg_emulated_result model;
    assert_ok(erg_emulated_run(&on.gpu, &on.stack, &hot_step, 1, 1500, &model, &err), &err);
    result = profile(on.device, 1500, 1);
    assert_int_equal(result.energy_source, ERG_ENERGY_POWER);
    assert_close(result.energy_j, model.energy_j, 0.01);
    erg_device_close(on.device);

    refusing.refuse_power = true;
    open_fixture(&on, "H200-SXM", refusing);
    assert_fails(erg_profile(on.device, &hot_step, 1, 1500, &options, 1, &result, &err), &err,
                 "neither its energy counter nor its power");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    assert_ok(erg_profile_time(on.device, &hot_step, 1, 1500, &options, 1, &result, &err), &err);
    erg_device_close(on.device);
}

static void a_hot_room_throttles(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_emulated_options options = exact_options();
    options.heat = true;
    open_fixture(&on, "H200-SXM", options);
    on.gpu.ambient_c = 65;
    struct erg_measurement result = profile(on.device, 1500, 1);
    assert_true(result.reasons & ERG_REASON_SW_THERMAL);
    assert_true(result.temperature_end_c > 86 && result.temperature_end_c < 92);
    assert_true(result.clock_mhz < 1490);
    assert_false(result.missed_clock); /* the reason is known */
    erg_device_close(on.device);
}

static void unstable_work_is_repeated_and_said(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "H200-SXM", full_options());
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_measurement result;
    options.time_scatter_max = 1e-6; /* no real device is that calm */
    assert_ok(erg_profile(on.device, &hot_step, 1, 1500, &options, 1, &result, &err), &err);
    assert_true(result.unstable);
    assert_int_equal(result.attempts, 3);
    assert_true(result.time_sd > 0 && result.energy_sd > 0);
    /* The second and the third time twice and four times as long, after as long a cooldown. */
    assert_true(result.device_s > (1 + 2 + 4) * (options.window_s + options.cooldown_s));
    assert_fails(erg_profile(on.device, &hot_step, 0, 1500, &options, 1, &result, &err), &err,
                 "takes no time");
    struct erg_step wrong = hot_step;
    wrong.launch.slot = 9;
    assert_fails(erg_profile(on.device, &wrong, 1, 1500, &options, 1, &result, &err), &err,
                 "slot 9");
    erg_device_close(on.device);
}

/* A window of two steps of the counter becomes one of four and more, unless it may not grow. */
static void windows_grow_with_the_step_of_the_counter(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    struct erg_emulated_result model;
    struct erg_measurement result;
    struct erg_profile_options options = erg_profile_options_default();
    open_fixture(&on, "H200-SXM", exact_options()); /* its counter moves every 92 ms */
    assert_ok(erg_emulated_run(&on.gpu, &on.stack, &hot_step, 1, 1500, &model, &err), &err);
    options.window_s = 0.2;
    assert_ok(erg_profile(on.device, &hot_step, 1, 1500, &options, 1, &result, &err), &err);
    assert_int_equal(result.attempts, 2);
    assert_true(result.window_s >= 4 * 0.092 && result.window_s < 0.5);
    assert_false(result.unstable);
    assert_close(result.energy_j, model.energy_j, 0.01);
    options.growth = 1;
    assert_ok(erg_profile(on.device, &hot_step, 1, 1500, &options, 1, &result, &err), &err);
    assert_true(result.window_s < 0.25);
    assert_true(result.unstable);
    erg_device_close(on.device);
}

static void long_runs_and_whole_instructions_profile_too(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "A100-SXM4-40GB", exact_options());
    struct erg_step steps[64];
    for (size_t i = 0; i < 64; i++)
        steps[i] = hot_step;
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_measurement result;
    struct erg_emulated_result model;
    assert_ok(erg_emulated_run(&on.gpu, &on.stack, steps, 64, 1410, &model, &err), &err);
    assert_ok(erg_profile(on.device, steps, 64, 1410, &options, 1, &result, &err), &err);
    assert_close(result.time_s, model.time_s, 1e-6);
    assert_close(result.energy_j, model.energy_j, 2e-3);
    assert_true(result.window_s >= 5 && result.window_s < 7);
    erg_device_close(on.device);
}

static void noise_is_centred_on_the_model(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    enum { SEEDS = 60 };
    double time_ratio = 0, energy_ratio = 0, worst = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct erg_emulated_options options = full_options();
        options.seed = seed;
        options.heat = false;
        open_fixture(&on, "H200-SXM", options);
        struct erg_emulated_result model;
        assert_ok(erg_emulated_run(&on.gpu, &on.stack, &hot_step, 1, 1500, &model, &err), &err);
        struct erg_measurement result = profile(on.device, 1500, seed);
        time_ratio += result.time_s / model.time_s / SEEDS;
        energy_ratio += result.energy_j / model.energy_j / SEEDS;
        worst = fmax(worst, fabs(result.time_s / model.time_s - 1));
        erg_device_close(on.device);
    }
    assert_near(time_ratio, 1, 0.002);
    assert_near(energy_ratio, 1, 0.003);
    assert_true(worst > 0.002 && worst < 0.03);
}

struct race {
    struct fixture *fixture;
    struct erg_measurement results[16];
};

static int profile_one(void *context, size_t i, struct erg_error *err)
{
    struct race *race = context;
    struct erg_device *device;
    const struct fixture *on = race->fixture;
    if (erg_emulated_open(&device, &on->gpu, &on->stack, &on->options, err) != 0)
        return -1;
    struct erg_profile_options options = erg_profile_options_default();
    int status = erg_profile(device, &hot_step, 1, 1980, &options, i / 2, &race->results[i], err);
    erg_device_close(device);
    return status;
}

static void threads_with_devices_of_their_own_agree(void **state)
{
    (void)state;
    struct fixture on;
    struct erg_error err;
    open_fixture(&on, "H200-SXM", full_options());
    struct race race = {.fixture = &on};
    assert_ok(erg_parallel_for(16, 4, profile_one, &race, &err), &err);
    for (uint64_t i = 0; i < 16; i++) {
        struct erg_measurement alone = profile(on.device, 1980, i / 2);
        assert_near(race.results[i].time_s, alone.time_s, 0);
        assert_near(race.results[i].energy_j, alone.energy_j, 0);
    }
    erg_device_close(on.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_runs_are_as_warm_as_short_ones),
        cmocka_unit_test(without_noise_the_model_is_measured),
        cmocka_unit_test(equal_keys_give_equal_bytes),
        cmocka_unit_test(measurements_repeat_within_a_percent),
        cmocka_unit_test(short_cold_windows_read_low),
        cmocka_unit_test(heat_alone_costs_four_to_six_percent),
        cmocka_unit_test(plain_counter_reads_err_by_a_tick_at_each_end),
        cmocka_unit_test(polling_does_not_change_physics),
        cmocka_unit_test(a_new_clock_takes_some_milliseconds),
        cmocka_unit_test(refusals_are_reported_or_worked_around),
        cmocka_unit_test(a_hot_room_throttles),
        cmocka_unit_test(unstable_work_is_repeated_and_said),
        cmocka_unit_test(windows_grow_with_the_step_of_the_counter),
        cmocka_unit_test(noise_is_centred_on_the_model),
        cmocka_unit_test(threads_with_devices_of_their_own_agree),
        cmocka_unit_test(long_runs_and_whole_instructions_profile_too),
    };
    return cmocka_run_group_tests(tests, NULL, catalogue_release);
}
