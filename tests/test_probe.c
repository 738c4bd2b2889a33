/*
 * The probe on emulated GPUs: its program, and its rows.
 */
#include "probe_world.h"

#include "device/profiler.h"

static void every_item_has_its_name_and_runs(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    for (int gpus = 1; gpus <= 8; gpus *= 2)
        for (size_t shape = 0; shape < erg_probe_shapes(gpus); shape++) {
            struct erg_probe_program program;
            size_t families[ERG_PROBE_REST + 1] = {0};
            assert_ok(erg_probe_program_init(&program, shape, gpus, &gpu, &stack, &err), &err);
            for (size_t i = 0; i < program.count; i++) {
                const struct erg_probe_item *item = &program.items[i];
                for (size_t k = 0; k < i; k++)
                    assert_string_not_equal(item->name, program.items[k].name);
                families[item->family]++;
                struct erg_emulated_result result;
                assert_ok(erg_emulated_run(&gpu, &stack, item->steps, item->step_count, 1980,
                                           &result, &err),
                          &err);
                assert_true(item->family == ERG_PROBE_REST || result.time_s > 1e-5);
            }
            assert_int_equal(program.tensor * program.context, gpus);
            if (program.context > 1) { /* where keys, values or their gradients travel */
                assert_true(gpus >= 4);
                assert_int_equal(families[ERG_PROBE_PARTITION], 6);
                assert_int_equal(program.count, 6);
            } else if (program.model->head_dim != 128) {
                assert_int_equal(program.model->head_dim, 64);
                assert_int_equal(families[ERG_PROBE_ATTENTION], 2);
                assert_int_equal(program.count, 2);
            } else {
                assert_true(families[ERG_PROBE_PRODUCT] >= 4 && families[ERG_PROBE_MEMORY] >= 1);
                assert_int_equal(families[ERG_PROBE_ATTENTION], 2);
                assert_int_equal(families[ERG_PROBE_PARTITION] > 0, gpus > 1);
            }
            erg_probe_program_release(&program);
        }
    struct erg_probe_program program;
    assert_fails(erg_probe_program_init(&program, 0, 3, &gpu, &stack, &err), &err, "3 GPUs");
}

static void measurements_are_not_repeated(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_probe_program program;
    struct erg_probe_rows rows = {0}, kept;
    struct erg_device *device = open_device(&gpu, &stack, 1, 1);
    const char *path = in_folder("rows.csv");
    assert_ok(erg_probe_program_init(&program, 1, 1, &gpu, &stack, &err), &err);
    assert_ok(erg_probe_measure(device, &program, "this one", path, &rows, &err), &err);
    assert_int_equal(rows.count, program.count);

    assert_ok(erg_probe_rows_load(&kept, path, &err), &err);
    assert_int_equal(kept.count, rows.count);
    for (size_t i = 0; i < rows.count; i++) {
        assert_string_equal(kept.items[i].item, rows.items[i].item);
        assert_near(kept.items[i].time_s, rows.items[i].time_s, 0);
        assert_near(kept.items[i].energy_j, rows.items[i].energy_j, 0);
        assert_near(kept.items[i].clock_mhz, rows.items[i].clock_mhz, 0);
    }
    kept.count--; /* killed before the last one */
    kept.items[0].time_s = 42;
    assert_ok(erg_probe_measure(device, &program, "this one", NULL, &kept, &err), &err);
    assert_int_equal(kept.count, rows.count);
    assert_near(kept.items[0].time_s, 42, 0);
    assert_near(kept.items[kept.count - 1].time_s, rows.items[rows.count - 1].time_s, 0);
    assert_fails(erg_probe_measure(device, &program, "another", NULL, &kept, &err), &err,
                 "was measured on this one before");
    erg_probe_rows_release(&kept);
    erg_probe_rows_release(&rows);
    erg_probe_program_release(&program);
    erg_device_close(device);
}

static void rest_is_static_power_and_then_idle(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_emulated_options options = {.gpus = 2, .seed = 3}; /* no noise, no heat */
    struct erg_device *device;
    struct erg_op product = {
        .kind = ERG_OP_GEMM, .kernels = 1, .flops = 4e11, .k = 4096, .tiles = 2000};
    struct erg_step step = {.task = {&product, 1, {0}}};
    struct erg_profile_options profile = erg_profile_options_default();
    struct erg_measurement result;
    profile.window_s = 0.6;
    assert_ok(erg_emulated_open(&device, &gpu, &stack, &options, &err), &err);
    assert_ok(erg_profile_rest(device, &step, 1, 0.2, &profile, 1, &result, &err), &err);
    assert_close(result.energy_j, 120, 0.01);
    assert_near(result.time_s, 1, 0);
    assert_ok(erg_profile_rest(device, &step, 1, 2, &profile, 1, &result, &err), &err);
    assert_close(result.energy_j, 79, 0.01);
    assert_int_equal(result.clock_mhz, 345);
    erg_device_close(device);
}

static void waiting_is_the_first_gpus_power(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_emulated_options options = {.gpus = 4, .seed = 3}; /* no noise, no heat */
    struct erg_device *device;
    struct erg_op product = {
        .kind = ERG_OP_GEMM, .kernels = 1, .flops = 4e11, .k = 4096, .tiles = 2000};
    struct erg_step step = {.task = {&product, 1, {.wire_bytes = 1e8}}, .launch = {1, 1}};
    struct erg_profile_options profile = erg_profile_options_default();
    struct erg_measurement result;
    profile.window_s = 0.6;
    gpu.blocking_power_w = 180;
    for (int power = 0; power < 2; power++) {
        options.refuse_counter = power;
        assert_ok(erg_emulated_open(&device, &gpu, &stack, &options, &err), &err);
        assert_ok(erg_profile_waiting(device, &step, 1, &profile, 1, &result, &err), &err);
        assert_close(result.energy_j, 180, 0.01);
        assert_near(result.time_s, 1, 0);
        assert_int_equal(result.clock_mhz, 1980);
        /* The others rest meanwhile, and then all run the steps. */
        struct erg_device_span span;
        struct erg_sample before[4], after[4];
        int64_t start_ns = erg_device_now_ns(device);
        assert_ok(erg_device_stagger(device, &step, 1, 1000000000, &err), &err);
        erg_device_sleep_ns(device, 200000000);
        assert_ok(erg_device_sense(device, before, &err), &err);
        erg_device_sleep_ns(device, 700000000);
        assert_ok(erg_device_sense(device, after, &err), &err);
        for (int g = 0; g < 4 && !power; g++)
            assert_near((double)(after[g].energy_mj - before[g].energy_mj) * 1e-3,
                        0.7 * (g ? 120 : 180), g ? 13 : 19); /* a period of the counter */
        assert_ok(erg_device_sync(device, &err), &err);
        assert_ok(erg_device_span(device, 0, 3, &span, &err), &err);
        assert_true(span.end_ns > start_ns + 1000000000);
        assert_true(span.end_ns < start_ns + 1100000000);
        erg_device_close(device);
    }
}

static void ceilings_are_those_of_the_device(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_probe_program program;
    struct erg_probe_rows rows = {0};
    struct erg_probe_ceilings ceilings = {0};
    struct erg_device *device = open_device(&gpu, &stack, 2, 1);
    assert_ok(erg_probe_program_init(&program, 0, 2, &gpu, &stack, &err), &err);
    assert_ok(erg_probe_measure(device, &program, "it", NULL, &rows, &err), &err);
    erg_probe_ceilings_add(&ceilings, &program, &rows, &gpu);
    size_t seen = 0;
    for (size_t i = 0; i < ceilings.count; i++) {
        const struct erg_probe_ceiling *c = &ceilings.items[i];
        if (!strcmp(c->name, "4 x fwd fc1")) {
            assert_near(c->amount, 2.0 * 16384 * 4096 * 14336, 0);
            assert_close(c->share, 0.71829 / (1 + 64.0 / 4096), 0.02);
            assert_near(c->power_w, 694, 15);
        } else if (!strcmp(c->name, "8 x bwd swiglu")) {
            assert_close(c->rate, 0.998 * 4800e9, 0.02);
        } else if (!strcmp(c->name, "allreduce sms 4")) {
            assert_close(c->rate, 4 * 25.067e9, 0.05);
        } else if (!strcmp(c->name, "rest")) {
            assert_near(c->rate, 0, 0);
            assert_true(c->power_w > 70 && c->power_w < 130);
        } else {
            continue;
        }
        seen++;
    }
    assert_int_equal(seen, 4);
    erg_probe_ceilings_release(&ceilings);
    erg_probe_rows_release(&rows);
    erg_probe_program_release(&program);
    erg_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_has_its_name_and_runs),
        cmocka_unit_test(measurements_are_not_repeated),
        cmocka_unit_test(rest_is_static_power_and_then_idle),
        cmocka_unit_test(waiting_is_the_first_gpus_power),
        cmocka_unit_test(ceilings_are_those_of_the_device),
    };
    return cmocka_run_group_tests(tests, make_folder, probe_end);
}
