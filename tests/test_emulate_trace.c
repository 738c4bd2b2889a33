/* Traces of emulated iterations: their seconds are those of the result, in every category. */
#include "check.h"
#include "folder.h"
#include "study_point.h"

#include "characterize/emulate_trace.h"
#include "io/file.h"
#include "telemetry/recording.h"
#include "trace/kernel_time.h"

static int by_start(const void *a, const void *b)
{
    const int64_t one = ((const struct erg_kernel_interval *)a)->start_ns;
    const int64_t other = ((const struct erg_kernel_interval *)b)->start_ns;
    return (one > other) - (one < other);
}

/* What the GPU's window is by the same rule that traces of real GPUs are summed by. */
static struct erg_kernel_time time_of(const struct erg_kernel_trace *trace)
{
    struct erg_kernel_interval *all = erg_xcalloc(trace->record_count, sizeof *all);
    struct erg_kernel_sweep *sweep = erg_kernel_sweep_new(NULL, NULL);
    struct erg_kernel_time time;
    for (size_t i = 0; i < trace->record_count; i++) {
        const struct erg_kernel_record *record = &trace->records[i];
        all[i] =
            (struct erg_kernel_interval){.start_ns = record->start_ns,
                                         .end_ns = record->end_ns,
                                         .category = (uint8_t)record->category,
                                         .computes = !erg_kernel_communicates(record->category)};
        for (size_t k = 0; k < record->need_count; k++)
            assert_true(record->needs[k] < i);
    }
    qsort(all, trace->record_count, sizeof *all, by_start);
    for (size_t i = 0; i < trace->record_count; i++)
        erg_kernel_sweep_add(sweep, &all[i]);
    erg_kernel_sweep_end(sweep, &time);
    free(all);
    return time;
}

static void seconds_are_those_of_the_result(void **state)
{
    (void)state;
    const struct {
        const char *model, *layout;
        long sequence, microbatch;
        enum erg_recompute recompute;
    } points[] = {
        {"gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL},
        {"llama-3.3-70b", "t=8,p=2", 8192, 1, ERG_RECOMPUTE_NONE},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct test_study study;
        struct emulation emulation;
        struct erg_error err;
        bool fits;
        study_open(&study, points[i].model, points[i].layout, points[i].sequence,
                   points[i].microbatch, points[i].recompute);
        struct erg_study_result result;
        erg_study_result_init(&result);
        assert_ok(erg_emulation_init(&emulation, &study.point, &result, &fits, &study.arena, &err),
                  &err);
        assert_true(fits);
        for (int round = 0; round < 3; round++) {
            erg_emulation_run_passes(&emulation);
            erg_emulation_run_schedule(&emulation);
            erg_emulation_run_power(&emulation);
            erg_emulation_run_heat(&emulation, 0.5);
        }
        erg_emulation_run_passes(&emulation);
        erg_emulation_run_schedule(&emulation);
        erg_emulation_run_power(&emulation);
        erg_emulation_fill_result(&emulation, &result);
        for (size_t k = 0; k < result.kernels_count; k++) {
            const struct erg_result_kernels *kernels = &result.kernels[k];
            struct erg_emulated_trace trace;
            erg_emulation_trace(&trace, &emulation, kernels->rank);
            const struct erg_kernel_time time = time_of(&trace.trace);
            assert_close(1e-9 * (double)(time.end_ns - time.begin_ns), result.metrics.time_s, 0.03);
            for (int c = 0; c < ERG_CATEGORIES; c++) {
                const struct erg_result_category *own = &kernels->categories[c];
                assert_string_equal(own->name, erg_kernel_category_names[c]);
                if (c != ERG_CATEGORY_SEND_RECV) { /* the trace has what is sent, too */
                    assert_near(1e-9 * time.category[c].summed_ns, own->summed_s,
                                1e-3 * result.metrics.time_s);
                    assert_near(1e-9 * (double)time.category[c].exposed_ns, own->exposed_s,
                                1e-3 * result.metrics.time_s);
                }
            }
            erg_emulated_trace_release(&trace);
        }
        erg_emulation_release(&emulation);
        study_close(&study);
    }
}

static void files_are_written_for_every_stage(void **state)
{
    (void)state;
    struct erg_recording *recording;
    struct erg_sampler_item item;
    int64_t unix_ns;
    double last_j = 0;
    size_t samples = 0;
    struct test_study study;
    struct erg_error err;
    struct erg_study_result result;
    study_open(&study, "gpt3-175b", "t=8,p=4", 2048, 8, ERG_RECOMPUTE_FULL);
    study.measuring.trace_stages = true;
    strcpy(study.point.id, "0123456789abcdef");
    erg_study_result_init(&result);
    assert_ok(erg_dir_make(in_folder("points"), &err), &err);
    assert_ok(erg_emulate_point(folder, &study.point, &result, &study.arena, &err), &err);
    assert_int_equal(result.status, ERG_RESULT_OK);
    for (long rank = 0; rank < 32; rank += 8)
        for (int i = 0; i < 3; i++) {
            static const char *const endings[] = {"json", "chakra.json", "et"};
            char path[256], *text;
            size_t length;
            snprintf(path, sizeof path, "%s/traces/0123456789abcdef.rank-%ld.%s", folder, rank,
                     endings[i]);
            assert_ok(erg_file_read(path, 0, &text, &length, &err), &err);
            assert_true(length > 1000);
            free(text);
        }
    assert_ok(erg_recording_open(&recording, in_folder("points/0123456789abcdef.rec"), &err), &err);
    assert_true(erg_recording_is_virtual(recording));
    assert_int_equal(erg_recording_gpus(recording), 32);
    while (erg_recording_next(recording, &item, &unix_ns, &err) == 1) {
        samples++;
        if (item.gpu == 5)
            last_j = 1e-3 * (double)item.sample.readings[ERG_METRIC_ENERGY].value;
        if (item.gpu == 5 && erg_gpu_has(&item.sample, ERG_METRIC_NVLINK_TX))
            assert_true((double)item.sample.readings[ERG_METRIC_NVLINK_TX].value <=
                        result.gpu[5].sent.nvlink * (1 + 1e-9));
    }
    assert_true(erg_recording_was_closed(recording));
    assert_int_equal(samples, 32 * (size_t)ceil(result.metrics.time_s / 0.05));
    /* All but what the last step of the counter and the last read miss. */
    assert_near(last_j, result.gpu[5].energy_j, 0.2 * 700);
    erg_recording_close(recording);
    study_close(&study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_are_those_of_the_result),
        cmocka_unit_test_setup_teardown(files_are_written_for_every_stage, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
