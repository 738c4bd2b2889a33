/*
 * The emulated device in a chassis: as hot as the hottest GPU of a node whose GPUs all do the same,
 * its clocks held by heat where the chassis says so; and without a chassis, what it always was.
 */
#include "catalogue.h"
#include "check.h"

#include "device/emulated/emulated.h"
#include "probe/probe.h"

static struct erg_gpu gpu;
static struct erg_stack stack;
static struct erg_probe_program program;
static const struct erg_probe_item *layer;

static int set_up(void **state)
{
    (void)state;
    struct erg_error err;
    gpu = catalogue_gpu("H200-SXM");
    stack = catalogue_stack("ergon");
    assert_ok(erg_probe_program_init(&program, 0, 1, &gpu, &stack, &err), &err);
    for (size_t i = 0; i < program.count; i++)
        if (program.items[i].family == ERG_PROBE_LAYER)
            layer = &program.items[i];
    return layer ? 0 : -1;
}

static int tear_down(void **state)
{
    erg_probe_program_release(&program);
    return catalogue_release(state);
}

static struct erg_chassis *load(double inlet_c)
{
    struct erg_chassis *chassis;
    struct erg_error err;
    assert_ok(erg_chassis_load(&chassis, "hgx-8-air", &err), &err);
    chassis->inlet_c = inlet_c;
    return chassis;
}

static struct erg_device *open_device(const struct erg_chassis *chassis)
{
    struct erg_emulated_options options = erg_emulated_options_default();
    struct erg_device *device;
    struct erg_error err;
    options.gpus = 1;
    options.noise = false;
    options.chassis = chassis;
    assert_ok(erg_emulated_open(&device, &gpu, &stack, &options, &err), &err);
    erg_device_begin(device, 1);
    return device;
}

static struct erg_emulated_result run_at(double clock_mhz, double temperature_c)
{
    struct erg_emulated_result run;
    struct erg_error err;
    assert_ok(erg_emulated_run_at(&gpu, &stack, layer->steps, layer->step_count, clock_mhz,
                                  temperature_c, &run, &err),
              &err);
    return run;
}

/* The model's power at a clock, its cap included: for the node as a whole. */
static void power(const void *context, double clock_mhz, double temperature_c, double *busy_w,
                  double *mean_w)
{
    (void)context;
    *busy_w = *mean_w = run_at(clock_mhz, temperature_c).power_w;
}

/* The device after so many seconds of one layer, over and over. */
static struct erg_sample work_for(struct erg_device *device, double seconds)
{
    struct erg_error err;
    struct erg_sample sample;
    const int64_t end_ns = erg_device_now_ns(device) + (int64_t)(1e9 * seconds);
    while (erg_device_now_ns(device) < end_ns) {
        assert_ok(erg_device_enqueue(device, layer->steps, layer->step_count, 200, &err), &err);
        assert_ok(erg_device_sync(device, &err), &err);
    }
    assert_ok(erg_device_enqueue(device, layer->steps, layer->step_count, 200, &err), &err);
    erg_device_sleep_ns(device, 300000000);
    assert_ok(erg_device_sense(device, &sample, &err), &err);
    return sample;
}

/* Where the hottest GPU settles, all doing the same. */
static struct erg_thermal_point settle(const struct erg_chassis *chassis)
{
    const struct erg_thermal_load load = {
        power, NULL, gpu.clock_max_mhz, gpu.clock_min_mhz, gpu.clock_max_mhz, 0, INFINITY};
    struct erg_thermal_point settled;
    double k_per_w[64], row = 0;
    erg_thermal_matrix(chassis, 1, k_per_w);
    for (int j = 0; j < 8; j++)
        row += k_per_w[4 * 8 + j];
    assert_near(row, 0.0735, 1e-9);
    erg_thermal_limit(&chassis->limit, &load, chassis->inlet_c, row, &settled);
    return settled;
}

static void it_is_as_hot_as_the_hottest_of_the_node(void **state)
{
    (void)state;
    static const double inlets_c[] = {20, 29, 42, 47};
    for (size_t i = 0; i < sizeof inlets_c / sizeof *inlets_c; i++) {
        struct erg_chassis *chassis = load(inlets_c[i]);
        struct erg_device *device = open_device(chassis);
        const struct erg_thermal_point settled = settle(chassis);
        const bool held = settled.cause == ERG_CLOCK_HEAT;
        assert_int_equal(held, i >= 2);
        struct erg_sample sample = work_for(device, 20);
        const struct erg_emulated_result expected =
            run_at(settled.clock_mhz, settled.temperature_c);
        assert_close(sample.clock_mhz, expected.clock_effective_mhz, 0.01);
        assert_near(sample.temperature_c, settled.temperature_c, 1);
        assert_close(sample.power_w, expected.power_w, 0.01);
        assert_int_equal(sample.reasons, held ? ERG_REASON_SW_THERMAL : ERG_REASON_SW_POWER_CAP);
        /* And it was so from the beginning on: the node has trained for hours. */
        erg_device_begin(device, 2);
        struct erg_sample soon = work_for(device, 6);
        assert_near(soon.temperature_c, sample.temperature_c, 1);
        assert_close(soon.clock_mhz, sample.clock_mhz, 0.01);
        erg_device_close(device);
        erg_chassis_free(chassis);
    }
}

/* At rest it cools as all GPUs of the node together, but for the air that is warmed a little later;
 * and works itself warm again. */
static void it_cools_and_warms_as_the_node(void **state)
{
    (void)state;
    struct erg_chassis *chassis = load(29);
    struct erg_device *device = open_device(chassis);
    struct erg_thermal_state node;
    double power_w[8];
    struct erg_error err;
    struct erg_sample sample = work_for(device, 10), before;
    assert_ok(erg_device_sync(device, &err), &err);
    for (int g = 0; g < 8; g++)
        power_w[g] = gpu.power_cap_w;
    erg_thermal_begin(&node, chassis, power_w);
    for (int second = 1; second <= 120; second++) {
        before = sample;
        erg_device_sleep_ns(device, 995000000); /* a sense takes 5 ms */
        assert_ok(erg_device_sense(device, &sample, &err), &err);
        for (int g = 0; g < 8; g++) /* clocks stay up for a second */
            power_w[g] = second == 1 ? gpu.static_power_w : gpu.idle_power_w;
        erg_thermal_step(&node, power_w, 1);
        assert_near(sample.temperature_c, node.die_c[4], 2.5);
        if (second > 2)
            assert_near(1e-3 * (double)(sample.energy_mj - before.energy_mj), gpu.idle_power_w,
                        0.1 * gpu.idle_power_w + 1);
    }
    assert_true(sample.temperature_c < 46);
    for (int g = 0; g < 8; g++)
        power_w[g] = gpu.power_cap_w;
    sample = work_for(device, 30);
    erg_thermal_step(&node, power_w, 30);
    assert_near(sample.temperature_c, node.die_c[4], 3);
    assert_true(sample.temperature_c > 60 && sample.temperature_c < 80);
    erg_device_close(device);
    erg_chassis_free(chassis);
}

/* Measurements of one chassis are not taken for those of another, nor of none. */
static void its_identity_names_the_chassis(void **state)
{
    (void)state;
    struct erg_chassis *cool = load(20), *warm = load(29);
    struct erg_device *devices[] = {open_device(NULL), open_device(cool), open_device(warm)};
    assert_null(strstr(devices[0]->identity, "chassis"));
    assert_non_null(strstr(devices[1]->identity, ", chassis hgx-8-air "));
    assert_string_not_equal(devices[1]->identity, devices[2]->identity);
    for (int i = 0; i < 3; i++)
        erg_device_close(devices[i]);
    erg_chassis_free(cool);
    erg_chassis_free(warm);
}

/* The proportional law takes from the highest clock: at the cap it never acts. */
static void a_proportional_law_acts_above_the_cap_only(void **state)
{
    (void)state;
    struct erg_chassis *chassis = load(29);
    struct erg_error err;
    chassis->limit = (struct erg_heat_limit){ERG_HEAT_PROPORTIONAL, 87, 5, 75, 20};
    struct erg_device *device = open_device(chassis);
    struct erg_sample sample = work_for(device, 10);
    assert_int_equal(sample.reasons & ERG_REASON_SW_POWER_CAP, ERG_REASON_SW_POWER_CAP);
    assert_close(sample.clock_mhz, run_at(1980, 80).clock_effective_mhz, 0.01);
    erg_device_close(device);
    chassis->limit.slope_mhz_per_k = 100; /* 1980 - 100 (T - 75) is below what the cap allows */
    device = open_device(chassis);
    sample = work_for(device, 300);
    assert_close(sample.clock_mhz, settle(chassis).clock_mhz, 0.01);
    assert_near(sample.temperature_c, settle(chassis).temperature_c, 1);
    assert_true(sample.clock_mhz < run_at(1980, 80).clock_effective_mhz - 15);
    assert_true(sample.reasons & ERG_REASON_SW_THERMAL);
    assert_ok(erg_device_sync(device, &err), &err);
    erg_device_close(device);
    erg_chassis_free(chassis);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_as_hot_as_the_hottest_of_the_node),
        cmocka_unit_test(it_cools_and_warms_as_the_node),
        cmocka_unit_test(its_identity_names_the_chassis),
        cmocka_unit_test(a_proportional_law_acts_above_the_cap_only),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
