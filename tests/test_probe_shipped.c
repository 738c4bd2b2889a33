/*
 * The GPUs of the catalogue that were probed, against their rows and against what real GPUs
 * measured of jobs that no probe knows.
 */
#include "predictions.h"
#include "probe_world.h"

#include "io/file.h"

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
    struct programs programs = programs_of(known, gpus);
    struct erg_probe_rows rows;
    struct erg_probe_fit fit;
    const char *waiting = NULL;
    assert_ok(erg_probe_rows_load(&rows, rows_path, &err), &err);
    assert_ok(erg_probe_calibrate(&fit, known, &stack, programs.items, programs.count, &rows, board,
                                  &err),
              &err);
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
    programs_release(&programs);
    erg_probe_rows_release(&rows);
    return waiting;
}

/* What one H100 alone says, from what four H200 taught; strings are those of `relative`. */
static struct erg_gpu probed_alone(const struct erg_gpu *relative)
{
    struct erg_stack stack = catalogue_stack("ergon");
    struct programs programs = programs_of(relative, 1);
    struct erg_probe_rows rows;
    struct erg_probe_fit fit;
    struct erg_error err;
    assert_ok(erg_probe_rows_load(&rows, DATA "profiles/h100/probe_tp1.csv", &err), &err);
    assert_ok(erg_probe_calibrate(&fit, relative, &stack, programs.items, programs.count, &rows,
                                  "H100-SXM", &err),
              &err);
    bool waits = false;
    for (size_t i = 0; i < fit.count; i++)
        waits = waits || (!strcmp(fit.constants[i].name, "blocking_power_w") &&
                          !strcmp(fit.constants[i].origin, "derived: no row has it"));
    assert_true(waits);
    programs_release(&programs);
    erg_probe_rows_release(&rows);
    return fit.gpu;
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
        check_shipped(&relative, "H100-SXM", DATA "profiles/h100/probe_tp2.csv", 2, 1), "measured");
}

/* What a GPU predicts of a profile of data/profiles/`kind`. */
static struct predictions predict_profile(const char *kind, const char *name,
                                          const struct erg_gpu *gpu)
{
    struct erg_error err;
    struct erg_job_overrides overrides = {0};
    struct erg_job *job;
    struct predictions all;
    char job_path[512], profile_path[512];
    snprintf(job_path, sizeof job_path, ERGON_TEST_SOURCE_DIR "/examples/%s/%s.yaml", kind, name);
    snprintf(profile_path, sizeof profile_path, DATA "profiles/%s/%s.csv", kind, name);
    assert_ok(erg_job_load(&job, job_path, &overrides, &err), &err);
    assert_ok(predict_job(&all, job, profile_path, gpu, &err), &err);
    erg_job_free(job);
    return all;
}

struct judgement {
    struct prediction_errors time, energy, burst;
};

/* All partitions of a job that GPUs of a kind measured. */
static struct judgement judge_partitions(const char *kind, const char *name,
                                         const struct erg_gpu *gpu)
{
    struct predictions all = predict_profile(kind, name, gpu);
    struct judgement judgement = {errors_of(&all, NULL, PREDICT_TIME),
                                  errors_of(&all, NULL, PREDICT_ENERGY),
                                  errors_of(&all, NULL, PREDICT_BURST)};
    free(all.items);
    return judgement;
}

static const char *const on_one_gpu[] = {
    "llama3.2-3b_tp1_mbs4_seq4096", "llama3.2-1b_tp1_mbs8_seq4096", "qwen3-1.7b_tp1_mbs4_seq4096",
    "llama2-7b_tp1_mbs2_seq4096"};

/* Whole layers that one GPU of a kind measured: time and energy are off by `most` at most. */
static void check_layers(const char *kind, const struct erg_gpu *gpu, double most)
{
    for (size_t i = 0; i < COUNT(on_one_gpu); i++) {
        struct predictions all = predict_profile(kind, on_one_gpu[i], gpu);
        size_t layers = 0;
        for (size_t j = 0; j < all.count; j++) {
            const struct prediction *p = &all.items[j];
            if (p->burst || !strstr(p->work, "layer"))
                continue;
            layers++;
            if (fabs(p->time_error) > most || fabs(p->energy_error) > most)
                fail_msg("%s, %s by %s: %.3f off in time, %.3f in energy", on_one_gpu[i], p->work,
                         gpu->name, p->time_error, p->energy_error);
        }
        assert_int_equal(layers, 2);
        free(all.items);
    }
}

/*
 * Of one H100: by the catalogue, which was written before; by what was learned from four H200; by
 * a probe of the H100 alone; and by one of two others. Of one H200: by the catalogue and by the
 * probe of four others. No row of these jobs is in any of them.
 */
static void layers_on_one_gpu_are_predicted(void **state)
{
    (void)state;
    struct erg_gpu h100 = catalogue_gpu("H100-SXM"), pair = catalogue_gpu("H100-SXM-measured");
    struct erg_gpu h200 = catalogue_gpu("H200-SXM"), four = catalogue_gpu("H200-SXM-measured");
    struct erg_gpu relative = catalogue_gpu("H200-SXM-measured");
    struct erg_error err;
    assert_ok(erg_gpu_take_datasheet(&relative, &h100, &err), &err);
    check_layers("h100", &h100, 0.06);
    check_layers("h100", &relative, 0.06);
    struct erg_gpu probed = probed_alone(&relative);
    check_layers("h100", &probed, 0.035);
    check_layers("h100", &pair, 0.065);
    check_layers("h200", &h200, 0.09);
    check_layers("h200", &four, 0.045);
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
    struct erg_gpu h200 = catalogue_gpu("H200-SXM"), four = catalogue_gpu("H200-SXM-measured");
    for (size_t i = 0; i < COUNT(profiles); i++) {
        struct judgement was = judge_partitions("h200", profiles[i].name, &h200);
        struct judgement is = judge_partitions("h200", profiles[i].name, &four);
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

/* What two H100 measured, by their own probe and by what four H200 taught about kernels alone. */
static void partitions_of_another_kind_are_predicted(void **state)
{
    (void)state;
    static const char *const names[] = {LLAMA, "qwen3-1.7b_tp2_mbs8_seq4096"};
    struct erg_gpu h100 = catalogue_gpu("H100-SXM"), pair = catalogue_gpu("H100-SXM-measured");
    struct erg_gpu relative = catalogue_gpu("H200-SXM-measured");
    struct erg_error err;
    assert_ok(erg_gpu_take_datasheet(&relative, &h100, &err), &err);
    for (size_t i = 0; i < COUNT(names); i++) {
        struct judgement own = judge_partitions("h100", names[i], &pair);
        struct judgement learned = judge_partitions("h100", names[i], &relative);
        assert_int_equal(own.time.count, 60);
        assert_int_equal(own.burst.count, 280);
        if (own.time.median > 0.025 || fmax(own.time.worst, own.burst.worst) > 0.065 ||
            own.energy.median > 0.025 || own.energy.worst > 0.07)
            fail_msg("%s: time %.3f median, %.3f worst, bursts %.3f worst; energy %.3f and %.3f",
                     names[i], own.time.median, own.time.worst, own.burst.worst, own.energy.median,
                     own.energy.worst);
        if (learned.time.median > 0.04 || fmax(learned.time.worst, learned.burst.worst) > 0.15 ||
            learned.energy.median > 0.04 || learned.energy.worst > 0.13)
            fail_msg("%s, from H200: time %.3f median, %.3f worst, bursts %.3f worst; energy %.3f "
                     "and %.3f",
                     names[i], learned.time.median, learned.time.worst, learned.burst.worst,
                     learned.energy.median, learned.energy.worst);
    }
}

static void measurements_of_another_job_are_refused(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_error err;
    struct erg_job_overrides overrides = {0};
    struct erg_job *job;
    struct predictions all;
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
        assert_fails(predict_job(&all, job, path, &gpu, &err), &err, said[i]);
        free(all.items);
    }
    erg_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_gpus_are_fitted_to_their_rows),
        cmocka_unit_test(layers_on_one_gpu_are_predicted),
        cmocka_unit_test(real_partitions_are_predicted),
        cmocka_unit_test(partitions_of_another_kind_are_predicted),
        cmocka_unit_test(measurements_of_another_job_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, probe_end);
}
