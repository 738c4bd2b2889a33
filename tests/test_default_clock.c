/*
 * Planning on a device whose clocks are its own: what it ran at is said, and so is that its GPUs
 * are not those of the job. An emulated GPU stands for the real one.
 */
#include "program.h"

#include "base/log.h"
#include "device/emulated/emulated.h"
#include "io/json.h"
#include "optimize/optimize.h"
#include "plan/plan.h"
#include "report/report.h"

static const char job_text[] = "model: llama-3.2-1b\n"
                               "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                               "tensor: 2\n"
                               "microbatch_size: 4\n"
                               "microbatches: 2\n"
                               "sequence: 2048\n"
                               "search: {method: random, seed: 7, budget: 5}\n"
                               "profiler: {window_s: 0.5, cooldown_s: 0.5, warmup_s: 0.5}\n";

static char warnings[1024];

static void note(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    if (level == ERG_LOG_WARNING && strlen(warnings) + strlen(text) < sizeof warnings)
        strcat(warnings, text);
}

static void ignore(void *context, const char *task, size_t done, size_t total)
{
    (void)context, (void)task, (void)done, (void)total;
}

/* Plans the job on an emulated GPU that the driver would call `board`. */
static struct erg_plan *plan_on(const char *board)
{
    struct erg_error err = {0};
    struct erg_job *job;
    assert_ok(erg_job_parse(&job, "job.yaml", job_text, sizeof job_text - 1, NULL, &err), &err);
    struct erg_emulated_options options = erg_emulated_options_default();
    options.gpus = 2;
    struct erg_device *device;
    assert_ok(erg_emulated_open(&device, job->gpu, job->stack, &options, &err), &err);
    device->board = board;
    device->fixed_clock = true;
    char store[] = "/tmp/ergon-test-XXXXXX";
    int file = mkstemp(store);
    assert_true(file >= 0);
    close(file);
    struct erg_optimize_request request = {.job = job,
                                           .methods = {true, true, true, true, true},
                                           .store_path = store,
                                           .device = device};
    struct erg_plan *plan;
    warnings[0] = '\0';
    assert_ok(erg_optimize(&request, &plan, &err), &err);
    erg_device_close(device);
    unlink(store);
    erg_job_free(job);
    return plan;
}

static void the_mean_clock_is_said(void **state)
{
    (void)state;
    struct erg_plan *plan = plan_on("NVIDIA A100-SXM4-40GB");
    assert_string_equal(warnings, "");
    const double mean_mhz = plan->kinds[0].mean_clock_mhz;
    assert_in_range(mean_mhz, 1200, 1410); /* the highest, but for the power cap */
    assert_string_equal(plan->kinds[0].device, "NVIDIA A100-SXM4-40GB");
    char expected[64];
    snprintf(expected, sizeof expected, "40GB at their default clock (mean %.0f MHz),", mean_mhz);
    struct erg_text table = {0};
    struct erg_error err = {0};
    json_t *document = erg_plan_json(plan);
    assert_ok(erg_report_table(&table, document, &err), &err);
    json_decref(document);
    assert_non_null(strstr(table.data, expected));
    erg_text_release(&table);
    erg_plan_free(plan);
}

/* Read back, and shown: no clock stands where none was set. */
static void a_plan_file_contains_it_too(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_plan *plan = plan_on("NVIDIA A100-SXM4-40GB");
    char path[] = "/tmp/ergon-test-XXXXXX", arguments[64];
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_ok(erg_plan_write(plan, path, &err), &err);
    struct erg_plan *read;
    assert_ok(erg_plan_load(&read, path, &err), &err);
    assert_close(read->kinds[0].mean_clock_mhz, plan->kinds[0].mean_clock_mhz, 1e-9);
    erg_plan_free(read);
    snprintf(arguments, sizeof arguments, "show %s", path);
    check_program(arguments, 0, "forward   default clock  ");
    unlink(path);
    erg_plan_free(plan);
}

static void another_gpu_is_warned_of(void **state)
{
    (void)state;
    struct erg_plan *plan = plan_on("NVIDIA H200");
    assert_non_null(strstr(warnings, "the job is for A100-SXM4-40GB, but this machine has NVIDIA "
                                     "H200:"));
    erg_plan_free(plan);
}

int main(void)
{
    const struct erg_log_sink sink = {note, ignore, NULL};
    erg_log_set_sink(&sink);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_clock_is_said),
        cmocka_unit_test(a_plan_file_contains_it_too),
        cmocka_unit_test(another_gpu_is_warned_of),
    };
    return cmocka_run_group_tests_name("default_clock", tests, NULL, NULL);
}
