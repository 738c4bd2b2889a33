/*
 * Constants that are fitted to the rows of a probe: they predict what it has not measured.
 */
#include "probe_world.h"

#include "partition/partition.h"

/* Constants of a machine that its catalogue file does not know. */
static const struct change {
    const char *name;
    size_t member;
    double factor;
    double tolerance; /* of what the probe makes of it; 0: it may trade with others */
} changes[] = {
#define CHANGE(field, factor, tolerance)                                                           \
    {                                                                                              \
#field, offsetof(struct erg_gpu, field), factor, tolerance                                 \
    }
    CHANGE(gemm_efficiency, 1.2, 0.015),
    CHANGE(attention_forward, 1.3, 0.05), /* it trades with its tail */
    CHANGE(attention_backward, 1.15, 0.02),
    CHANGE(memory_efficiency, 0.85, 0.015),
    CHANGE(comm_sm_rate, 2.0, 0.05),
    CHANGE(comm_link_factor, 0.95, 0.05),
    CHANGE(comm_contention, 0.6, 0.15),
    CHANGE(comm_latency_s, 0.4, 0),
    CHANGE(energy_per_flop_j, 1.25, 0.05),
    CHANGE(energy_per_hbm_byte_j, 0.7, 0.05),
    CHANGE(energy_per_wire_byte_j, 0.5, 0),
    CHANGE(active_power_w, 1.5, 0),
    CHANGE(voltage_slope_per_ghz, 1.2, 0),
    CHANGE(static_power_w, 1.08, 0.1),
    CHANGE(blocking_power_w, 1.4, 0.1),
#undef CHANGE
};

static double *constant(struct erg_gpu *gpu, const struct change *change)
{
    return (double *)(void *)((char *)gpu + change->member);
}

static struct erg_gpu changed_gpu(const struct erg_gpu *gpu)
{
    struct erg_gpu out = *gpu;
    for (size_t i = 0; i < COUNT(changes); i++)
        *constant(&out, &changes[i]) *= changes[i].factor;
    out.gemm_slack = 0.05; /* of which the catalogue knows nothing */
    out.comm_missed_sms = 10;
    out.attention_softmax = 0.4;
    out.attention_backward_softmax = 0.2;
    return out;
}

static void probe_all(const struct erg_gpu *truth, const struct erg_gpu *known, int gpus,
                      struct erg_probe_fit *fit, struct erg_probe_rows *rows)
{
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_device *device = open_device(truth, &stack, (size_t)gpus, 7);
    struct programs programs = programs_of(known, gpus);
    for (size_t i = 0; i < programs.count; i++)
        assert_ok(erg_probe_measure(device, &programs.items[i], "it", NULL, rows, &err), &err);
    assert_ok(erg_probe_calibrate(fit, known, &stack, programs.items, programs.count, rows,
                                  known->name, &err),
              &err);
    programs_release(&programs);
    erg_device_close(device);
}

/* The largest and the mean |error| over all partitions of Llama 3.2 3B, at some slots and SMs. */
static void judge(const struct erg_gpu *truth, const struct erg_gpu *predicted, double *mean,
                  double *worst)
{
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_model *model;
    struct erg_workload workload;
    size_t n = 0;
    *mean = *worst = 0;
    assert_ok(erg_model_load(&model, "llama-3.2-3b", &err), &err);
    struct erg_workload_request request = {.model = model,
                                           .gpu = truth,
                                           .stack = &stack,
                                           .tensor = 2,
                                           .context = 1,
                                           .microbatch_size = 8,
                                           .sequence = 4096};
    assert_ok(erg_workload_build(&workload, &request, &err), &err);
    for (size_t p = 0; p < workload.forward_count + workload.backward_count; p++)
        for (size_t slot = 0; slot < workload.partitions[p].slot_count; slot++)
            for (int sms = 1; sms <= 20; sms += 3, n++) {
                struct erg_step step = erg_partition_step(&workload.partitions[p], slot, sms);
                struct erg_emulated_result is, was;
                assert_ok(erg_emulated_run(truth, &stack, &step, 1, 1980, &is, &err), &err);
                assert_ok(erg_emulated_run(predicted, &stack, &step, 1, 1980, &was, &err), &err);
                double time = fabs(was.time_s / is.time_s - 1);
                double energy = fabs(was.energy_j / is.energy_j - 1);
                *mean += 0.5 * (time + energy);
                *worst = fmax(*worst, fmax(time, energy));
            }
    *mean /= (double)n;
    erg_workload_release(&workload);
    erg_model_free(model);
}

static void the_probe_predicts_what_it_has_not_measured(void **state)
{
    (void)state;
    struct erg_gpu known = catalogue_gpu("H200-SXM"), truth = changed_gpu(&known);
    struct erg_probe_fit fit;
    struct erg_probe_rows rows = {0};
    double mean, worst;
    judge(&truth, &known, &mean, &worst);
    if (mean < 0.05 || worst < 0.2) /* what the catalogue says is far off */
        fail_msg("partitions are predicted with a mean error of %.2f %% and %.2f %% at most before",
                 100 * mean, 100 * worst);
    probe_all(&truth, &known, 2, &fit, &rows);
    judge(&truth, &fit.gpu, &mean, &worst);
    if (mean > 0.01 || worst > 0.04)
        fail_msg("partitions are predicted with a mean error of %.2f %% and %.2f %% at most",
                 100 * mean, 100 * worst);
    for (size_t i = 0; i < COUNT(changes); i++) {
        double found = *constant(&fit.gpu, &changes[i]) / *constant(&truth, &changes[i]) - 1;
        if (changes[i].tolerance > 0 && fabs(found) > changes[i].tolerance)
            fail_msg("%s was found with an error of %.1f %%, expected at most %.1f %%",
                     changes[i].name, 100 * found, 100 * changes[i].tolerance);
    }
    assert_close(fit.gpu.comm_missed_sms, truth.comm_missed_sms, 0.1);
    assert_close(fit.gpu.gemm_slack, truth.gemm_slack, 0.4);
    assert_close(fit.gpu.attention_softmax, truth.attention_softmax, 0.1);
    assert_close(fit.gpu.attention_backward_softmax, truth.attention_backward_softmax, 0.1);
    assert_near(fit.gpu.voltage_knee_mhz, known.voltage_knee_mhz, 0); /* only clocks show it */

    struct erg_error err;
    struct erg_gpu *again;
    const char *path = in_folder("fitted.yaml");
    assert_ok(erg_probe_write(&fit, &rows, path, &err), &err);
    assert_ok(erg_gpu_load(&again, path, &err), &err);
    assert_string_equal(again->name, "H200-SXM-measured");
    assert_close(again->gemm_efficiency, fit.gpu.gemm_efficiency, 1e-5);
    assert_close(again->comm_sm_rate, fit.gpu.comm_sm_rate, 1e-5);
    erg_gpu_free(again);
    erg_probe_rows_release(&rows);
}

/* Sequences split over two of them, beside sums of two and of four. */
static void four_gpus_say_how_collectives_differ(void **state)
{
    (void)state;
    struct erg_gpu known = catalogue_gpu("H200-SXM"), truth = changed_gpu(&known);
    struct erg_probe_fit fit, two;
    struct erg_probe_rows rows = {0}, few = {0};
    truth.comm_rank_power = 0.77;
    truth.comm_gather = 0.35;
    truth.comm_scatter = 0.65;
    truth.attention_waves = 1;
    probe_all(&truth, &known, 4, &fit, &rows);
    assert_close(fit.gpu.comm_gather, 0.35, 0.05);
    assert_close(fit.gpu.comm_scatter, 0.65, 0.1);
    probe_all(&truth, &known, 2, &two, &few); /* what is known of the kernels stands for them */
    assert_near(two.gpu.comm_gather, 0.53, 0);
    assert_near(two.gpu.comm_rank_power, 0.7, 0);
    for (size_t i = 0; i < two.count; i++)
        if (!strncmp(two.constants[i].name, "comm_gather", 11)) {
            assert_false(two.constants[i].seen);
            assert_near(two.constants[i].before, 1, 0);
            assert_string_equal(two.constants[i].origin, "not seen; of the kernels");
        }
    erg_probe_rows_release(&rows);
    erg_probe_rows_release(&few);
}

static void one_gpu_leaves_communication_unfitted(void **state)
{
    (void)state;
    struct erg_gpu known = catalogue_gpu("H200-SXM"), truth = changed_gpu(&known);
    struct erg_probe_fit fit;
    struct erg_probe_rows rows = {0};
    probe_all(&truth, &known, 1, &fit, &rows);
    for (size_t i = 0; i < fit.count; i++) {
        bool communication =
            strstr(fit.constants[i].name, "comm_") || strstr(fit.constants[i].name, "library_") ||
            strstr(fit.constants[i].name, "wire") || strstr(fit.constants[i].name, "spin") ||
            strstr(fit.constants[i].name, "blocking") ||
            strstr(fit.constants[i].name, "diagonal") || strstr(fit.constants[i].name, "waves") ||
            strstr(fit.constants[i].name, "slack");
        if (fit.constants[i].seen == communication)
            fail_msg("%s is %s by a single GPU", fit.constants[i].name,
                     communication ? "seen" : "not seen");
    }
    assert_close(fit.gpu.gemm_efficiency, truth.gemm_efficiency, 0.02);
    erg_probe_rows_release(&rows);
}

/* Somebody else's clock lock is not what the model is fitted to. */
static void work_at_lowered_clocks_is_left_out(void **state)
{
    (void)state;
    struct erg_gpu known = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct programs programs = programs_of(&known, 4);
    struct erg_probe_rows rows;
    struct erg_probe_fit fit, all;
    assert_ok(erg_probe_rows_load(&rows, ROWS, &err), &err);
    assert_ok(
        erg_probe_calibrate(&all, &known, &stack, programs.items, SHAPES, &rows, known.name, &err),
        &err);
    for (size_t i = 0; i < 3; i++) {
        rows.items[i].clock_mhz = 900;
        rows.items[i].time_s *= 2;
    }
    assert_ok(
        erg_probe_calibrate(&fit, &known, &stack, programs.items, SHAPES, &rows, known.name, &err),
        &err);
    assert_int_equal(fit.lowered, 3);
    assert_near(fit.lowered_mhz, 990, 0);
    assert_int_equal(fit.observations, all.observations - 3);
    assert_true(fit.time_error < 0.04);
    for (size_t i = 0; i < rows.count - 5; i++)
        rows.items[i].clock_mhz = 900;
    assert_fails(
        erg_probe_calibrate(&fit, &known, &stack, programs.items, SHAPES, &rows, known.name, &err),
        &err, "5 measurements on 4 GPUs to fit them to and 78 at clocks below 990 MHz");
    programs_release(&programs);
    erg_probe_rows_release(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_probe_predicts_what_it_has_not_measured),
        cmocka_unit_test(four_gpus_say_how_collectives_differ),
        cmocka_unit_test(one_gpu_leaves_communication_unfitted),
        cmocka_unit_test(work_at_lowered_clocks_is_left_out),
    };
    return cmocka_run_group_tests(tests, make_folder, probe_end);
}
