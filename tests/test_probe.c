/*
 * The probe on emulated GPUs: its program, its rows, and constants that predict what it has not
 * measured.
 */
#include "catalogue.h"
#include "check.h"
#include "folder.h"
#include "program.h"

#include "device/emulated/emulated.h"
#include "device/profiler.h"
#include "io/file.h"
#include "partition/partition.h"
#include "probe/probe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int tear_down(void **state)
{
    catalogue_release(state);
    return remove_folder(state);
}

/* ---- the program ---- */

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

/* ---- rows ---- */

static struct erg_device *open_device(const struct erg_gpu *gpu, const struct erg_stack *stack,
                                      size_t gpus, uint64_t seed)
{
    struct erg_emulated_options options = erg_emulated_options_default();
    struct erg_device *device;
    struct erg_error err;
    options.gpus = gpus;
    options.seed = seed;
    assert_ok(erg_emulated_open(&device, gpu, stack, &options, &err), &err);
    return device;
}

static void what_was_measured_is_not_measured_again(void **state)
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
    struct erg_profile_result result;
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
    struct erg_profile_result result;
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

/* ---- constants ---- */

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

enum { SHAPES = 4 }; /* of a probe of four GPUs */

static void probe_all(const struct erg_gpu *truth, const struct erg_gpu *known, int gpus,
                      struct erg_probe_fit *fit, struct erg_probe_rows *rows)
{
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_probe_program programs[SHAPES];
    struct erg_device *device = open_device(truth, &stack, (size_t)gpus, 7);
    size_t count = erg_probe_shapes(gpus);
    assert_int_equal(count, gpus < 4 ? SHAPES - 1 : SHAPES);
    for (size_t i = 0; i < count; i++) {
        assert_ok(erg_probe_program_init(&programs[i], i, gpus, known, &stack, &err), &err);
        assert_ok(erg_probe_measure(device, &programs[i], "it", NULL, rows, &err), &err);
    }
    assert_ok(erg_probe_calibrate(fit, known, &stack, programs, count, rows, known->name, &err),
              &err);
    for (size_t i = 0; i < count; i++)
        erg_probe_program_release(&programs[i]);
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
    struct erg_workload_request request = {model, truth, &stack, 2,     1,
                                           8,     4096,  false,  false, false};
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

static void one_gpu_says_nothing_of_communication(void **state)
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

#define DATA ERGON_TEST_SOURCE_DIR "/data/"
#define ROWS DATA "profiles/h200/probe_tp4.csv"

/* Somebody else's clock lock is not what the model is fitted to. */
static void work_at_lowered_clocks_is_left_out(void **state)
{
    (void)state;
    struct erg_gpu known = catalogue_gpu("H200-SXM");
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_probe_program programs[SHAPES];
    struct erg_probe_rows rows;
    struct erg_probe_fit fit, all;
    assert_ok(erg_probe_rows_load(&rows, ROWS, &err), &err);
    for (size_t i = 0; i < SHAPES; i++)
        assert_ok(erg_probe_program_init(&programs[i], i, 4, &known, &stack, &err), &err);
    assert_ok(erg_probe_calibrate(&all, &known, &stack, programs, SHAPES, &rows, known.name, &err),
              &err);
    for (size_t i = 0; i < 3; i++) {
        rows.items[i].clock_mhz = 900;
        rows.items[i].time_s *= 2;
    }
    assert_ok(erg_probe_calibrate(&fit, &known, &stack, programs, SHAPES, &rows, known.name, &err),
              &err);
    assert_int_equal(fit.lowered, 3);
    assert_near(fit.lowered_mhz, 990, 0);
    assert_int_equal(fit.observations, all.observations - 3);
    assert_true(fit.time_error < 0.04);
    for (size_t i = 0; i < rows.count - 5; i++)
        rows.items[i].clock_mhz = 900;
    assert_fails(
        erg_probe_calibrate(&fit, &known, &stack, programs, SHAPES, &rows, known.name, &err), &err,
        "5 measurements on 4 GPUs to fit them to and 78 at clocks below 990 MHz");
    for (size_t i = 0; i < SHAPES; i++)
        erg_probe_program_release(&programs[i]);
    erg_probe_rows_release(&rows);
}

#define LLAMA "llama3.2-3b_tp2_mbs8_seq4096"

/* A catalogue's file holds what its rows say: `known` is the start, `shipped` what is named after
 * `board`. Returns where the power of waiting comes from. */
static const char *check_shipped(const struct erg_gpu *known, const char *board,
                                 const char *rows_path, int gpus, size_t left_out)
{
    char name[64];
    snprintf(name, sizeof name, "%s-measured", board);
    struct erg_gpu shipped = catalogue_gpu(name);
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    struct erg_probe_program programs[SHAPES];
    struct erg_probe_rows rows;
    struct erg_probe_fit fit;
    const char *waiting = NULL;
    size_t shapes = erg_probe_shapes(gpus);
    assert_ok(erg_probe_rows_load(&rows, rows_path, &err), &err);
    for (size_t i = 0; i < shapes; i++)
        assert_ok(erg_probe_program_init(&programs[i], i, gpus, known, &stack, &err), &err);
    assert_ok(erg_probe_calibrate(&fit, known, &stack, programs, shapes, &rows, board, &err), &err);
    assert_string_equal(fit.name, name);
    assert_int_equal(fit.observations, rows.count - left_out);
    assert_true(fit.time_error < 0.04 && fit.energy_error < 0.05);
    for (size_t i = 0; i < fit.count; i++) {
        const char *to = (const char *)&shipped + fit.constants[i].member;
        assert_close(*(const double *)(const void *)to, fit.constants[i].after, 1e-3);
        if (!strcmp(fit.constants[i].name, "blocking_power_w")) {
            assert_null(waiting);
            waiting = fit.constants[i].origin;
        }
    }
    assert_int_equal(fit.lowered, 0);
    assert_near(shipped.memory_bandwidth, known->memory_bandwidth, 0);
    assert_near(shipped.memory_bytes, known->memory_bytes, 0);
    for (size_t i = 0; i < shapes; i++)
        erg_probe_program_release(&programs[i]);
    erg_probe_rows_release(&rows);
    return waiting;
}

static void the_shipped_gpus_are_fitted_to_their_rows(void **state)
{
    (void)state;
    struct erg_gpu h200 = catalogue_gpu("H200-SXM"), relative = catalogue_gpu("H200-SXM-measured"),
                   h100 = catalogue_gpu("H100-SXM");
    struct erg_error err;
    /* All but the one that waits, which is no work. */
    assert_string_equal(check_shipped(&h200, "H200-SXM", ROWS, 4, 1), "measured");
    assert_ok(erg_gpu_take_datasheet(&relative, &h100, &err), &err);
    assert_string_equal(
        check_shipped(&relative, "H100-SXM", DATA "profiles/h100/probe_tp1.csv", 1, 0),
        "derived: no row has it");
}

/* Holds a GPU against a profile of data/profiles/`kind`. */
static void judge_profile(const char *kind, const char *name, const struct erg_gpu *gpu,
                          struct erg_probe_judgements *list)
{
    struct erg_error err;
    struct erg_job_overrides overrides = {0};
    struct erg_job *job;
    char job_path[512], profile_path[512];
    snprintf(job_path, sizeof job_path, ERGON_TEST_SOURCE_DIR "/examples/%s/%s.yaml", kind, name);
    snprintf(profile_path, sizeof profile_path, DATA "profiles/%s/%s.csv", kind, name);
    assert_ok(erg_job_load(&job, job_path, &overrides, &err), &err);
    assert_ok(erg_probe_judge(list, job, profile_path, gpu, &err), &err);
    erg_job_free(job);
}

/* All partitions of a job that H200 measured. */
static struct erg_probe_judgement judge_partitions(const char *name, const char *gpu_name)
{
    struct erg_gpu gpu = catalogue_gpu(gpu_name);
    struct erg_probe_judgements list;
    judge_profile("h200", name, &gpu, &list);
    struct erg_probe_judgement all = list.items[0];
    assert_string_equal(all.work, "all partitions");
    assert_true(all.partition);
    erg_probe_judgements_release(&list);
    return all;
}

/*
 * Whole layers that one H100 measured: by the catalogue, which was written before; by what was
 * learned from four H200; and by a probe of the H100 alone. No row of these jobs is in any of them.
 */
static void a_relative_is_predicted(void **state)
{
    (void)state;
    static const char *const jobs[] = {"llama3.2-3b_tp1_mbs4_seq4096",
                                       "llama3.2-1b_tp1_mbs8_seq4096",
                                       "qwen3-1.7b_tp1_mbs4_seq4096", "llama2-7b_tp1_mbs2_seq4096"};
    struct erg_gpu h100 = catalogue_gpu("H100-SXM"), relative = catalogue_gpu("H200-SXM-measured"),
                   probed = catalogue_gpu("H100-SXM-measured");
    struct erg_error err;
    assert_ok(erg_gpu_take_datasheet(&relative, &h100, &err), &err);
    const struct {
        const struct erg_gpu *gpu;
        double most;
    } by[] = {{&h100, 0.06}, {&relative, 0.06}, {&probed, 0.035}};
    for (size_t i = 0; i < COUNT(jobs); i++) {
        for (size_t k = 0; k < COUNT(by); k++) {
            struct erg_probe_judgements list;
            size_t layers = 0;
            judge_profile("h100", jobs[i], by[k].gpu, &list);
            for (size_t j = 0; j < list.count; j++) {
                const struct erg_probe_judgement *work = &list.items[j];
                if (!strstr(work->work, "layer"))
                    continue;
                layers += work->time.count;
                if (work->time.worst > by[k].most || work->energy.worst > by[k].most)
                    fail_msg("%s, %s by %s: %.3f off in time, %.3f in energy", jobs[i], work->work,
                             by[k].gpu->name, work->time.worst, work->energy.worst);
            }
            assert_int_equal(layers, 2);
            erg_probe_judgements_release(&list);
        }
    }
}

/* What two and four H200 measured of jobs that the probe does not know. */
static void real_partitions_are_predicted(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t full, bursts;
        bool far; /* from what the catalogue says */
    } profiles[] = {
        {LLAMA, 64, 280, true},
        {"qwen3-1.7b_tp2_mbs8_seq4096", 64, 280, true},
        {"llama3.2-3b_cp2_mbs8_seq4096", 16, 269, false},
        {"llama3.2-3b_tp4_mbs8_seq4096", 64, 140, true},
        {"qwen3-1.7b_tp4_mbs8_seq4096", 60, 140, true},
        {"llama3.2-3b_cp2tp2_mbs8_seq4096", 113, 420, true},
        {"qwen3-1.7b_cp2tp2_mbs8_seq4096", 108, 400, true},
        {"llama3.2-1b_tp2_mbs8_seq4096", 64, 280, true}, /* heads of 64 */
    };
    for (size_t i = 0; i < COUNT(profiles); i++) {
        struct erg_probe_judgement was = judge_partitions(profiles[i].name, "H200-SXM");
        struct erg_probe_judgement is = judge_partitions(profiles[i].name, "H200-SXM-measured");
        assert_int_equal(is.time.count, profiles[i].full);
        assert_int_equal(is.burst.count, profiles[i].bursts);
        assert_int_equal(was.time.worst > 0.5 && was.energy.worst > 0.2, profiles[i].far);
        if (is.time.median > 0.03 || fmax(is.time.worst, is.burst.worst) > 0.12 ||
            is.energy.median > 0.03 || is.energy.worst > 0.12)
            fail_msg("%s: time %.3f median, %.3f worst, bursts %.3f worst; energy %.3f and %.3f",
                     profiles[i].name, is.time.median, is.time.worst, is.burst.worst,
                     is.energy.median, is.energy.worst);
    }
}

static void measurements_of_another_job_are_refused(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_error err;
    struct erg_job_overrides overrides = {0};
    struct erg_job *job;
    struct erg_probe_judgements judgements;
    assert_ok(
        erg_job_load(&job, ERGON_TEST_SOURCE_DIR "/examples/h200/" LLAMA ".yaml", &overrides, &err),
        &err);
    const char *path = in_folder("other.csv");
    const char *const wrong[] = {
        "work,slot,sms,kind,time_s,energy_j\nfwd_qkv,0,1,full,1,1\n",
        "work,slot,sms,kind,time_s,energy_j\nfwd_attn,9,1,full,1,1\n",
        "work,slot,sms,kind,time_s\n",
    };
    const char *const said[] = {"other.csv:2: ", "fwd_attn", "energy_j"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_ok(erg_file_write(path, wrong[i], strlen(wrong[i]), &err), &err);
        assert_fails(erg_probe_judge(&judgements, job, path, &gpu, &err), &err, said[i]);
    }
    erg_job_free(job);
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

/* ---- the command ---- */

static void write_text(const char *path, const char *text)
{
    struct erg_error err;
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
}

static void the_command_probes_and_fits(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "probe -d emulated --base H200-SXM -c '%s/gpu.yaml'", folder);
    check_program(line, 0, "TFLOP/s");
    check_program(line, 0, "80 measurements fitted");
    check_program(line, 0, "clock  power    energy (3)");
    check_program(line, 0, "wide: a layer of hidden size 4096 with an FFN of 14336");
    check_program(line, 0, "wide blocked");
    snprintf(line, sizeof line, "probe -f '%s/gpu.csv' --json -c '%s/again.yaml'", folder, folder);
    check_program(line, 0, "\"comm_sm_rate\"");
    check_program(line, 0, "\"schema_version\": 1,");
    check_program(line, 0, "\"gpu\": \"H200-SXM-measured\",\n  \"base\": \"H200-SXM\",");
    char *first, *second, path[128];
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("gpu.yaml"), 0, &first, NULL, &err), &err);
    snprintf(path, sizeof path, "%s/again.yaml", folder);
    assert_ok(erg_file_read(path, 0, &second, NULL, &err), &err);
    assert_string_equal(first, second);
    free(first);
    free(second);
    snprintf(line, sizeof line, "probe -f '%s/gpu.csv' -n 1 -c '%s/one.yaml' 2>&1", folder, folder);
    check_program(line, 1, "there are 0 measurements on 1 GPU to fit them to");
    check_program(line, 1, "82 of 82 measurements left out: of other GPUs");
    snprintf(line, sizeof line,
             "probe -f '%s/gpu.csv' --json -c '%s/twice.yaml' --base '%s/gpu.yaml'", folder, folder,
             folder);
    check_program(line, 0, "\"gpu\": \"H200-SXM-measured\",\n  \"base\": \"H200-SXM-measured\",");
    snprintf(line, sizeof line, "probe -d emulated -c '%s/ranks.yaml'", folder);
    assert_int_equal(count_of_two_ranks(line, "measurements fitted"), 1);
    snprintf(line, sizeof line, "probe -d emulated --seed 2 -o '%s/gpu.csv' 2>&1", folder);
    check_program(line, 1, "another file");
}

/* Rows of a file: a header, then these. */
static void write_rows(const char *name, const char *rows)
{
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "gpus,shape,item,time_s,energy_j,time_error,energy_error,clock_mhz,"
                    "temperature_c,window_s,reasons,conditions,created_utc\n%s",
                    rows);
    write_text(in_folder(name), text.data);
    erg_text_release(&text);
}

#define H200 "\"2 x NVIDIA H200, wide\""
#define DATE "2026-11-22T02:32:04Z"

static void wrong_rows_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *said;
    } wrong[] = {
        {"2,wide,rest,0,1,0,0,1980,50,1,0," H200 "," DATE, "bad.csv:2: expected a number of GPUs"},
        {"2,wide,rest,1,80,0,0,0,50,1,0," H200 "," DATE, "bad.csv:2: expected a clock above 0"},
        {"2,wide,rest,1,80,0,-1,1980,50,1,0," H200 "," DATE, "got 1980 MHz, 0 and -1"},
        {"2,wide,rest,1,80,0,0,1980,1e9,1,0," H200 "," DATE,
         "bad.csv:2: expected a temperature of -50 to 150 C"},
        {"2,wide,rest,1,80,0,0,1980,50,0,0," H200 "," DATE, "got 50 C, 0 s and 0"},
        {"2,wide,rest,1,80,0,0,1980,50,1,-4," H200 "," DATE, "got 50 C, 1 s and -4"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 ",yesterday",
         "bad.csv:2: expected created_utc like 2026-11-22T02:32:04Z, got 'yesterday'"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 ",2026-13-22T02:32:04Z", "expected created_utc"},
        {"2,wider than fifteen,rest,1,80,0,0,1980,50,1,0," H200 "," DATE,
         "bad.csv:2: expected a shape of 1 to 15 bytes, got 18"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0,," DATE, "expected a conditions of 1 to 255 bytes"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE
         "\n\n2,wide,rest,1,81,0,0,1980,50,1,0," H200 "," DATE,
         "bad.csv:4: \"rest\" of the shape wide on 2 GPUs is in line 2 already"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE
         "\n2,narrow,layer fwd,1,81,0,0,1980,50,1,0,\"2 x NVIDIA H100 80GB HBM3, narrow\"," DATE,
         "bad.csv:3: it was measured on '2 x NVIDIA H100 80GB HBM3, narrow', but line 2 on '2 x "
         "NVIDIA H200, wide'; expected rows of one device"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0,\"emulated 2 x H200-SXM, seed 1\"," DATE
         "\n2,wide,idle,1,81,0,0,1980,50,1,0,\"emulated 2 x H200-SXM, seed 2\"," DATE,
         "bad.csv:3: it was measured on"},
    };
    struct erg_error err;
    struct erg_probe_rows rows;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        write_rows("bad.csv", wrong[i].rows);
        assert_fails(erg_probe_rows_load(&rows, in_folder("bad.csv"), &err), &err, wrong[i].said);
    }
    write_text(in_folder("bad.csv"), "gpus,shape,item\n2,wide,rest\n");
    assert_fails(erg_probe_rows_load(&rows, in_folder("bad.csv"), &err), &err, "time_s");
    write_rows("good.csv", "2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE
                           "\n4,wide,rest,1,81,0,0,1980,50,1,0,\"4 x NVIDIA H200, wide\"," DATE
                           "\n2,narrow,rest,1,81,0,0,1980,50,1,0,\"2 x NVIDIA H200, n\"," DATE);
    assert_ok(erg_probe_rows_load(&rows, in_folder("good.csv"), &err), &err);
    assert_int_equal(rows.count, 3);
    char gpu[64];
    for (size_t i = 0; i < rows.count; i++) {
        erg_probe_row_gpu(&rows.items[i], gpu, sizeof gpu);
        assert_string_equal(gpu, "NVIDIA H200");
    }
    erg_probe_rows_release(&rows);
}

static void wrong_use_is_explained(void **state)
{
    (void)state;
    char line[512];
    check_program("probe --gpus 2 2>&1", 2, "--gpus is for emulated groups");
    check_program("probe --from a.csv --rows b.csv 2>&1", 2, "one of them");
    check_program("probe --from a.csv --calibrate mine 2>&1", 2, "ends in .yaml, by which");
    check_program("probe --from /nowhere/rows.csv 2>&1", 1, "/nowhere/rows.csv");
    check_program("probe -d emulated --base H201-SXM 2>&1", 1, "did you mean 'h200-sxm'");
    check_program("probe -d emulated --gpus 3 2>&1", 1, "3 GPUs");
    write_rows("none.csv", "");
    snprintf(line, sizeof line, "probe --from '%s/none.csv' -c '%s/none.yaml' 2>&1", folder,
             folder);
    check_program(line, 1, "none.csv' has no measurements");
    write_rows("few.csv", "2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE);
    snprintf(line, sizeof line, "probe --from '%s/few.csv' -c '%s/few.yaml' 2>&1", folder, folder);
    check_program(line, 1, "there is 1 measurement on 2 GPUs to fit them to");
    snprintf(line, sizeof line, "probe --from '%s/few.csv' -n 4 2>&1", folder);
    check_program(line, 1, "few.csv' has no measurements on 4 GPUs");
}

/* The GPU that a fit starts from is like the one that was measured. */
static void the_start_is_a_gpu_like_the_rows(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv'", folder);
    write_rows("gpu.csv", "2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE);
    check_program(line, 0, "wide rest");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --json", folder);
    check_program(line, 0, "\"base\": \"H200-SXM\"");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --base A100-SXM4-40GB 2>&1", folder);
    check_program(line, 1,
                  "the measurements are of \"NVIDIA H200\", but --base names A100-SXM4-40GB; "
                  "expected a GPU like h200-sxm, or of its architecture");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --json --base H100-SXM", folder);
    check_program(line, 0, "\"base\": \"H100-SXM\""); /* of the same architecture */
    write_rows("gpu.csv",
               "2,wide,rest,1,80,0,0,1410,50,1,0,\"2 x NVIDIA A100-SXM4-80GB, x\"," DATE);
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --json", folder);
    check_program(line, 0, "\"base\": \"A100-SXM4-80GB\"");
    write_rows("gpu.csv", "2,wide,rest,1,80,0,0,1410,50,1,0,\"2 x NVIDIA B999, x\"," DATE);
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' 2>&1", folder);
    check_program(line, 1,
                  "the catalogue has no GPU like \"NVIDIA B999\" to start from; expected one named "
                  "with --base");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --base H200-SXM", folder);
    check_program(line, 0, "wide rest");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_has_its_name_and_runs),
        cmocka_unit_test(what_was_measured_is_not_measured_again),
        cmocka_unit_test(rest_is_static_power_and_then_idle),
        cmocka_unit_test(waiting_is_the_first_gpus_power),
        cmocka_unit_test(the_probe_predicts_what_it_has_not_measured),
        cmocka_unit_test(four_gpus_say_how_collectives_differ),
        cmocka_unit_test(one_gpu_says_nothing_of_communication),
        cmocka_unit_test(work_at_lowered_clocks_is_left_out),
        cmocka_unit_test(the_shipped_gpus_are_fitted_to_their_rows),
        cmocka_unit_test(a_relative_is_predicted),
        cmocka_unit_test(real_partitions_are_predicted),
        cmocka_unit_test(measurements_of_another_job_are_refused),
        cmocka_unit_test(ceilings_are_those_of_the_device),
        cmocka_unit_test(the_command_probes_and_fits),
        cmocka_unit_test(wrong_rows_are_refused),
        cmocka_unit_test(wrong_use_is_explained),
        cmocka_unit_test(the_start_is_a_gpu_like_the_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, tear_down);
}
