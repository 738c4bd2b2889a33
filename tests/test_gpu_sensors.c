/*
 * GPUs as sensors, on the fake NVML: every metric, fallbacks, wraps, failures, and lists of GPUs.
 */
#include "base/log.h"
#include "base/text.h"
#include "fake_gpus.h"
#include "side_by_side.h"
#include "telemetry/clocks.h"
#include "telemetry/gpu_internal.h"

#include <time.h>

static const uint64_t all_metrics = (UINT64_C(1) << ERG_METRICS) - 1;

static void pause_s(double duration_s)
{
    nanosleep(&(struct timespec){(time_t)duration_s, (long)(fmod(duration_s, 1) * 1e9)}, NULL);
}

static int64_t value_of(const struct erg_gpu_sample *sample, enum erg_metric metric)
{
    if (!erg_gpu_has(sample, metric))
        fail_msg("%s is missing", erg_metric_info(metric)->name);
    return sample->readings[metric].value;
}

/* A counter that grows at `rate` a second: what it gained fits the time between two samples. Each
 * was read at some moment between its start and its end, however busy this machine is. */
static void check_rate(const struct erg_gpu_sample *first, const struct erg_gpu_sample *last,
                       enum erg_metric metric, double rate)
{
    double moved = (double)(value_of(last, metric) - value_of(first, metric));
    double shortest_s = 1e-9 * (double)(last->start_ns - first->end_ns);
    double longest_s = 1e-9 * (double)(last->end_ns - first->start_ns);
    assert_true(moved >= 0.99 * rate * shortest_s && moved <= 1.01 * rate * longest_s);
}

static void test_every_metric(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 8\n"
                                                       "gpu * power 0=300\n"
                                                       "gpu * counter 0.02\n"
                                                       "gpu 1 temperature 61 72\n"
                                                       "gpu 1 reasons 24 0\n"
                                                       "gpu 1 limit 650\n"
                                                       "gpu 1 pcie 1e9 2e9\n"
                                                       "gpu 1 nvlink 5e9 6e9 18 together\n"
                                                       "gpu 1 xid 79 0\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    assert_int_equal(erg_gpus_count(gpus), 8);
    const struct erg_gpu_info *info = erg_gpus_info(gpus, 1);
    assert_string_equal(info->name, "NVIDIA Fake H200");
    assert_string_equal(info->uuid, "GPU-b0000001-aaaa-bbbb-cccc-0123456789ab");
    assert_string_equal(info->pci, "00000000:1c:00.0");
    assert_string_equal(info->driver, "580.65.06");
    assert_int_equal(info->index, 1);

    pause_s(0.05);
    erg_gpu_read(gpus, 1, all_metrics, &sample);
    assert_false(sample.lost);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_INSTANT), 300000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_AVERAGE), 300000);
    assert_int_equal(value_of(&sample, ERG_METRIC_TEMPERATURE), 61);
    assert_int_equal(value_of(&sample, ERG_METRIC_MEMORY_TEMPERATURE), 72);
    assert_int_equal(value_of(&sample, ERG_METRIC_MARGIN), 26);
    assert_int_equal(value_of(&sample, ERG_METRIC_SM_CLOCK), 1980);
    assert_int_equal(value_of(&sample, ERG_METRIC_MEMORY_CLOCK), 3201);
    assert_int_equal(value_of(&sample, ERG_METRIC_REASONS),
                     ERG_REASON_SW_POWER_CAP | ERG_REASON_SW_THERMAL);
    assert_int_equal(value_of(&sample, ERG_METRIC_UTILISATION), 97);
    assert_int_equal(value_of(&sample, ERG_METRIC_MEMORY_UTILISATION), 40);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT), 650000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_REQUESTED), 650000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_DEFAULT), 700000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_MIN), 200000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_MAX), 700000);
    assert_int_equal(value_of(&sample, ERG_METRIC_ECC_CORRECTED), 3);
    assert_int_equal(value_of(&sample, ERG_METRIC_ECC_UNCORRECTED), 0);
    assert_int_equal(value_of(&sample, ERG_METRIC_XID), 79);
    /* A sensor that is not there is missing, not 0. */
    assert_false(erg_gpu_has(&sample, ERG_METRIC_MEMORY_POWER));
    assert_string_equal(erg_gpu_refusal(gpus, 1, ERG_METRIC_MEMORY_POWER),
                        "not supported by this GPU or driver");
    assert_string_equal(erg_gpu_source(gpus, 1, ERG_METRIC_POWER_INSTANT),
                        "nvmlDeviceGetFieldValues 186");

    struct erg_gpu_sample later;
    pause_s(0.1);
    erg_gpu_read(gpus, 1, all_metrics, &later);
    for (int i = 0; i < 4; i++) {
        static const double rates[] = {1e9, 2e9, 5e9, 6e9};
        check_rate(&sample, &later, (enum erg_metric)(ERG_METRIC_PCIE_TX + i), rates[i]);
    }
    double violation_s = 1e-9 * (double)(value_of(&later, ERG_METRIC_VIOLATION_THERMAL) -
                                         value_of(&sample, ERG_METRIC_VIOLATION_THERMAL));
    assert_true(violation_s >= 0.1);
    double energy_j =
        1e-3 * (double)(value_of(&later, ERG_METRIC_ENERGY) - value_of(&sample, ERG_METRIC_ENERGY));
    double longest_s = 1e-9 * (double)(later.end_ns - sample.start_ns) + 0.02;
    assert_true(energy_j >= 300 * 0.08 - 0.01 && energy_j <= 300 * longest_s + 0.01);
    for (int m = 0; m < ERG_METRICS; m++)
        if (erg_gpu_has(&later, (enum erg_metric)m))
            assert_true(later.readings[m].time_ns >= later.start_ns &&
                        later.readings[m].time_ns <= later.end_ns);
    erg_gpus_close(gpus);
    fake_close(&fake);
}

static void test_only_requested_values(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 1\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    uint64_t fast = erg_gpu_metrics(gpus, 0, ERG_COST_FAST);
    unsigned before = fake.calls("GetTemperatureV"), fields = fake.calls("GetFieldValues");
    erg_gpu_read(gpus, 0, fast, &sample);
    assert_int_equal(sample.valid, fast);
    assert_int_equal(fake.calls("GetTemperatureV"), before);
    assert_int_equal(fake.calls("GetFieldValues"), fields + 1); /* one batch */
    assert_int_equal(erg_gpu_metrics(gpus, 0, ERG_COST_FAST) |
                         erg_gpu_metrics(gpus, 0, ERG_COST_MEDIUM) |
                         erg_gpu_metrics(gpus, 0, ERG_COST_SLOW),
                     all_metrics);
    erg_gpus_close(gpus);
    fake_close(&fake);
}

/* After a reading that came too late a counter begins at 0 and counts rightly from there. */
static void check_starts_anew(struct erg_gpus *gpus, enum erg_metric metric, double rate)
{
    struct erg_gpu_sample first, next;
    for (int attempt = 0; attempt < 100; attempt++) { /* of a machine that may be busy */
        pause_s(0.08);
        erg_gpu_read(gpus, 0, UINT64_C(1) << metric, &first);
        assert_false(erg_gpu_has(&first, metric));
        erg_gpu_read(gpus, 0, UINT64_C(1) << metric, &first);
        pause_s(0.02);
        erg_gpu_read(gpus, 0, UINT64_C(1) << metric, &next);
        if (!erg_gpu_has(&first, metric) || !erg_gpu_has(&next, metric))
            continue;
        assert_int_equal(first.readings[metric].value, 0);
        check_rate(&first, &next, metric, rate);
        return;
    }
    fail_msg("not once read in time");
}

/* Four ways of NVLink, and counters of 32 bits that wrap while they are watched. */
static void test_counters(void **state)
{
    (void)state;
    static const char *const ways[] = {"together", "each", "bytes"};
    for (int narrow = 0; narrow < 2; narrow++)
        for (int way = 0; way < 3; way++) {
            struct erg_error err = {0};
            char script[256];
            snprintf(script, sizeof script,
                     "gpus 1\ngpu 0 pcie 6e9 1e9\ngpu 0 nvlink 90e9 45e9 18 %s\n%s", ways[way],
                     narrow ? "gpu 0 narrow\n" : "");
            struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, script);
            struct erg_gpus *gpus;
            struct erg_gpu_sample first, last = {0};
            assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
            uint64_t counters = UINT64_C(0xf) << ERG_METRIC_PCIE_TX;
            erg_gpu_read(gpus, 0, counters, &first);
            for (int i = 0; i < 12; i++) {
                int64_t before_ns = (i ? last : first).start_ns;
                pause_s(0.02); /* 64 GB/s need 0.067 s for 4 GiB */
                erg_gpu_read(gpus, 0, counters, &last);
                if (last.end_ns - before_ns > 60000000) { /* a busy machine: watch from here on */
                    erg_gpu_read(gpus, 0, counters, &first);
                    i = -1;
                    continue;
                }
                assert_int_equal(last.valid, counters);
            }
            static const double rates[] = {6e9, 1e9, 90e9, 45e9};
            for (int i = 0; i < 4; i++)
                check_rate(&first, &last, (enum erg_metric)(ERG_METRIC_PCIE_TX + i), rates[i]);
            uint64_t fast = erg_gpu_metrics(gpus, 0, ERG_COST_FAST);
            assert_int_equal(fast >> ERG_METRIC_PCIE_TX & 1, narrow);
            if (narrow) { /* too late to know */
                pause_s(0.08);
                erg_gpu_read(gpus, 0, counters, &last);
                assert_false(erg_gpu_has(&last, ERG_METRIC_PCIE_TX));
                assert_string_equal(erg_gpu_refusal(gpus, 0, ERG_METRIC_PCIE_TX),
                                    "read too rarely for its 32 bits");
                check_starts_anew(gpus, ERG_METRIC_PCIE_TX, 6e9);
            }
            erg_gpus_close(gpus);
            fake_close(&fake);
        }
}

/* A field is decoded by the type it comes with; one of a type that is not known is not a value. */
static void test_types_of_fields(void **state)
{
    (void)state;
    for (int type = 0; type <= 8; type++) {
        struct erg_error err = {0};
        char script[128];
        snprintf(script, sizeof script,
                 "gpus 1\ngpu 0 power 0=61.5\ngpu 0 fail GetPowerUsage 3\n"
                 "gpu 0 type field186 %d\n",
                 type);
        struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, script);
        struct erg_gpus *gpus;
        struct erg_gpu_sample sample;
        assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
        erg_gpu_read(gpus, 0, UINT64_C(1) << ERG_METRIC_POWER_INSTANT, &sample);
        assert_int_equal(erg_gpu_has(&sample, ERG_METRIC_POWER_INSTANT), type <= 6);
        if (type <= 6)
            assert_int_equal(sample.readings[ERG_METRIC_POWER_INSTANT].value, 61500);
        else
            assert_string_equal(erg_gpu_refusal(gpus, 0, ERG_METRIC_POWER_INSTANT),
                                "the driver returned a number in an unknown form");
        erg_gpus_close(gpus);
        fake_close(&fake);
    }
}

static void test_failures(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 3\n"
                                                       "gpu 0 fail field186 4\n"
                                                       "gpu 0 fail GetPowerUsage 3\n"
                                                       "gpu 0 fail GetTotalEnergyConsumption 999\n"
                                                       "gpu 0 fail GetTemperatureV 3\n"
                                                       "gpu 0 fail GetViolationStatus 3\n"
                                                       "gpu 0 fail field138 4\n"
                                                       "gpu 0 fail field139 4\n"
                                                       "gpu 0 fail field202 4\n"
                                                       "gpu 0 fail field204 4\n"
                                                       "gpu 1 module\n"
                                                       "gpu 2 lost 0\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, "0,1", &err), &err);
    erg_gpu_read(gpus, 0, all_metrics, &sample);
    assert_false(sample.lost);
    assert_false(erg_gpu_has(&sample, ERG_METRIC_POWER_INSTANT));
    assert_string_equal(erg_gpu_refusal(gpus, 0, ERG_METRIC_POWER_INSTANT), "no permission");
    assert_false(erg_gpu_has(&sample, ERG_METRIC_ENERGY));
    assert_string_equal(erg_gpu_refusal(gpus, 0, ERG_METRIC_NVLINK_TX), "no permission");
    assert_true(erg_gpu_has(&sample, ERG_METRIC_POWER_AVERAGE)); /* of the same batch */
    assert_int_equal(value_of(&sample, ERG_METRIC_TEMPERATURE), 45);
    assert_string_equal(erg_gpu_source(gpus, 0, ERG_METRIC_TEMPERATURE),
                        "nvmlDeviceGetTemperature");

    erg_gpu_read(gpus, 1, all_metrics, &sample); /* finds out */
    erg_gpu_read(gpus, 1, all_metrics, &sample);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_INSTANT), 100000);
    assert_string_equal(erg_gpu_source(gpus, 1, ERG_METRIC_POWER_INSTANT),
                        "nvmlDeviceGetFieldValues 186, whole module");
    erg_gpus_close(gpus);
    fake_close(&fake);
}

/* Drivers that do not know the fields of power, which say so in two ways, have an older call; a
 * part whose module answers is not asked for its own power meanwhile. */
static void test_power_without_fields(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 3\n"
                                                       "gpu * power 0=250\n"
                                                       "gpu 0 fail field186 3\n"
                                                       "gpu 0 fail field185 3\n"
                                                       "gpu 1 fail field186 2\n"
                                                       "gpu 2 module\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    for (size_t gpu = 0; gpu < 3; gpu++) {
        erg_gpu_read(gpus, gpu, UINT64_C(1) << ERG_METRIC_POWER_INSTANT, &sample);
        assert_int_equal(erg_gpu_has(&sample, ERG_METRIC_POWER_INSTANT), gpu == 1);
        erg_gpu_read(gpus, gpu, all_metrics, &sample);
        assert_int_equal(value_of(&sample, ERG_METRIC_POWER_INSTANT), 250000);
        assert_string_equal(erg_gpu_source(gpus, gpu, ERG_METRIC_POWER_INSTANT),
                            gpu == 2 ? "nvmlDeviceGetFieldValues 186, whole module"
                                     : "nvmlDeviceGetPowerUsage");
    }
    assert_int_equal(fake.calls("GetPowerUsage"), 3);
    erg_gpus_close(gpus);
    fake_close(&fake);
}

/* What no counter and no GPU can say is no value: 2^64-1 mJ is not -1 and not 0. */
static void test_invalid_numbers(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake =
        fake_open(ERGON_TEST_FAKE_NVML, "gpus 3\ngpu 0 glitch 0 9 18446744073709551615\n"
                                        "gpu 1 power 0=30000\ngpu 2 power 0=0\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    erg_gpu_read(gpus, 0, all_metrics, &sample);
    assert_false(erg_gpu_has(&sample, ERG_METRIC_ENERGY));
    assert_string_equal(erg_gpu_refusal(gpus, 0, ERG_METRIC_ENERGY),
                        "the driver returned an impossible number");
    for (size_t gpu = 1; gpu < 3; gpu++) {
        erg_gpu_read(gpus, gpu, all_metrics, &sample);
        assert_false(erg_gpu_has(&sample, ERG_METRIC_POWER_INSTANT));
        assert_false(erg_gpu_has(&sample, ERG_METRIC_POWER_AVERAGE));
    }
    for (int m = 0; m < ERG_METRICS; m++) {
        struct erg_open_gpu gpu = {0};
        struct erg_gpu_sample one = {0};
        erg_gpu_put(&(struct erg_gpu_query){&gpu, &one, 0}, (enum erg_metric)m, -1, 1, "a driver");
        assert_true(!erg_metric_info((enum erg_metric)m)->counter || !one.valid);
    }
    erg_gpus_close(gpus);
    fake_close(&fake);
}

/* Names and UUIDs become valid where they are read; one that fills the buffer is not cut within a
 * character. */
static void test_names_of_any_bytes(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_text script = {0};
    erg_text_add(&script, "gpus 3\ngpu 0 name \xf8NVIDIA\xae  A100 # 1\ngpu 0 uuid GPU-\xff\n"
                          "gpu 1 name ");
    for (int i = 0; i < 60; i++)
        erg_text_add(&script, "\xc3\xbc");
    erg_text_add(&script, "\ngpu 2 name \n");
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, script.data);
    struct erg_gpus *gpus;
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    assert_string_equal(erg_gpus_info(gpus, 0)->name, "\xEF\xBF\xBDNVIDIA\xEF\xBF\xBD  A100 # 1");
    assert_string_equal(erg_gpus_info(gpus, 0)->uuid, "GPU-\xEF\xBF\xBD");
    const char *longest = erg_gpus_info(gpus, 1)->name;
    assert_true(erg_utf8_is_valid(longest, strlen(longest)) && strlen(longest) >= 92);
    assert_string_equal(erg_gpus_info(gpus, 2)->name, "unknown GPU");
    erg_gpus_close(gpus);
    erg_text_release(&script);
    fake_close(&fake);
}

static void check_list(const char *list, const char *cuda, const char *indices)
{
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    char found[64] = "";
    if (cuda)
        setenv("CUDA_VISIBLE_DEVICES", cuda, 1);
    assert_ok(erg_gpus_open(&gpus, list, &err), &err);
    for (size_t i = 0; i < erg_gpus_count(gpus); i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%d",
                 erg_gpus_info(gpus, i)->index);
    assert_string_equal(found, indices);
    erg_gpus_close(gpus);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void check_wrong_list(const char *list, const char *cuda, const char *part)
{
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    if (cuda)
        setenv("CUDA_VISIBLE_DEVICES", cuda, 1);
    assert_fails(erg_gpus_open(&gpus, list, &err), &err, part);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_a_lost_gpu(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 2\ngpu 1 lost 0.1\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    pause_s(0.15);
    erg_gpu_read(gpus, 1, erg_gpu_metrics(gpus, 1, ERG_COST_FAST), &sample);
    assert_true(sample.lost);
    assert_int_equal(sample.valid, 0);
    erg_gpu_read(gpus, 0, erg_gpu_metrics(gpus, 0, ERG_COST_FAST), &sample);
    assert_false(sample.lost);
    erg_gpus_close(gpus);

    /* One that is lost already stays in the list and says why it tells nothing. */
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    assert_int_equal(erg_gpus_count(gpus), 2);
    assert_string_equal(erg_gpus_info(gpus, 0)->trouble, "");
    assert_string_equal(erg_gpus_info(gpus, 1)->trouble, "the GPU has fallen off the bus");
    assert_int_equal(erg_gpus_info(gpus, 1)->index, 1);
    erg_gpu_read(gpus, 1, all_metrics, &sample);
    assert_true(sample.lost);
    assert_int_equal(sample.valid, 0);
    assert_string_equal(erg_gpu_refusal(gpus, 1, ERG_METRIC_ENERGY),
                        "the GPU has fallen off the bus");
    struct erg_clock_list clocks;
    assert_fails(erg_clocks_supported(gpus, 1, &clocks, &err), &err, "has fallen off the bus");
    erg_gpus_close(gpus);
    check_wrong_list("0,1", NULL, "GPU 1 does not work: the GPU has fallen off the bus");
    check_wrong_list(NULL, "1", "GPU 1 does not work");
    fake_close(&fake);
}

/* An index means the GPU that the driver means, whichever others are in trouble. */
static void test_indices_with_a_lost_gpu(void **state)
{
    (void)state;
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 4\ngpu 1 fail GetUUID 15\n");
    check_list("3", NULL, "3");
    check_list(NULL, "2,0", "20");
    check_list("GPU-d", NULL, "3");
    check_list("all", NULL, "0123");
    fake_close(&fake);
}

/* A GPU on which the driver hangs while it is opened holds up none of the others for good. */
static void test_a_gpu_that_hangs_when_opened(void **state)
{
    (void)state;
    static const char *const calls[] = {"GetHandleByIndex", "GetName", "RegisterEvents"};
    char script[256];
    size_t threads = fake_threads();
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    snprintf(script, sizeof script,
             "gpus 5\ngpu 1 hang %s 0 600\ngpu 2 hang %s 0 600\ngpu 3 hang %s 0 600\n", calls[0],
             calls[1], calls[2]);
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, script);
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    assert_int_equal(erg_gpus_count(gpus), 5);
    for (size_t i = 0; i < 5; i++) {
        bool hangs = i >= 1 && i <= 3;
        erg_gpu_read(gpus, i, all_metrics, &sample);
        assert_int_equal(sample.lost, hangs);
        assert_string_equal(erg_gpus_info(gpus, i)->trouble,
                            hangs ? "the driver did not answer when opening it" : "");
    }
    erg_gpus_close(gpus);
    fake_release(&fake, threads);
    fake_close(&fake);
}

static void test_an_old_library(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct fake fake =
        fake_open(ERGON_TEST_FAKE_NVML_OLD, "gpus 1\ngpu 0 reasons 4 0\ngpu 0 power 0=250\n");
    struct erg_gpus *gpus;
    struct erg_gpu_sample sample;
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    erg_gpu_read(gpus, 0, all_metrics, &sample);
    assert_true(erg_gpu_has(&sample, ERG_METRIC_ENERGY));
    assert_int_equal(value_of(&sample, ERG_METRIC_REASONS), ERG_REASON_SW_POWER_CAP);
    assert_int_equal(value_of(&sample, ERG_METRIC_TEMPERATURE), 45);
    assert_int_equal(value_of(&sample, ERG_METRIC_MARGIN),
                     85 - 45); /* not the 89 of the slowdown */
    assert_string_equal(erg_gpu_source(gpus, 0, ERG_METRIC_MARGIN),
                        "nvmlDeviceGetTemperatureThreshold");
    assert_int_equal(value_of(&sample, ERG_METRIC_XID), 0);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_INSTANT), 250000);
    assert_string_equal(erg_gpu_source(gpus, 0, ERG_METRIC_POWER_INSTANT),
                        "nvmlDeviceGetPowerUsage");
    assert_false(erg_gpu_has(&sample, ERG_METRIC_NVLINK_TX));
    assert_string_equal(erg_gpu_refusal(gpus, 0, ERG_METRIC_POWER_AVERAGE),
                        "not in this driver's library");
    assert_string_equal(erg_gpus_info(gpus, 0)->pci, "00000000:1b:00.0");
    erg_gpus_close(gpus);
    fake_close(&fake);
}

static void test_lists(void **state)
{
    (void)state;
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 8\n");
    check_list(NULL, NULL, "01234567");
    check_list("all", "3", "01234567");
    check_list("5,0", "3", "50");
    check_list(NULL, "3", "3");
    check_list(NULL, " 7, 2 ", "72");
    check_list(NULL, "4,-1,5", "4");
    check_list("GPU-c", NULL, "2");
    check_list(NULL, "GPU-h0000007-aaaa-bbbb-cccc-0123456789ab,gpu-A", "70");
    check_wrong_list(NULL, "", "hides every GPU");
    check_wrong_list(NULL, "-1", "hides every GPU");
    check_wrong_list(NULL, "NoDevFiles", "hides every GPU");
    check_wrong_list("8", NULL, "there is no GPU 8, expected an index from 0 to 7");
    check_wrong_list("-1", NULL, "there is no GPU -1");
    check_wrong_list("1,1", NULL, "selects a GPU a second time");
    check_wrong_list("GPU-", NULL, "8 of 8 GPUs have a UUID that begins");
    check_wrong_list("GPU-x", NULL, "0 of 8 GPUs");
    check_wrong_list(NULL, "MIG-GPU-a0000000/1/0", "is a MIG slice");
    check_wrong_list("0,,1", NULL, "neither an index nor a UUID");
    check_wrong_list("first", NULL, "neither an index nor a UUID");
    fake_close(&fake);
}

static char warned[1024];

static void note_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    if (level == ERG_LOG_WARNING)
        snprintf(warned, sizeof warned, "%s", text);
}

/* A list that counts, where kinds differ: in CUDA's order, or with a warning. */
static void test_indices_count_as_cuda_does(void **state)
{
    (void)state;
    struct fake fake =
        fake_open(ERGON_TEST_FAKE_NVML, "gpus 3\n"
                                        "gpu 0 name NVIDIA T400 4GB\n"
                                        "gpu 0 uuid GPU-00000000-0000-0000-0000-000000000000\n"
                                        "gpu 1 uuid GPU-11111111-1111-1111-1111-111111111111\n"
                                        "gpu 2 uuid GPU-2222ABCD-2222-2222-2222-222222222222\n");
    static const char *const zero = "00000000000000000000000000000000";
    static const char *const one = "11111111111111111111111111111111";
    static const char *const two = "2222abcd222222222222222222222222";
    char both[128];
    erg_log_set_sink(&(struct erg_log_sink){.message = note_warning});
    setenv("ERGON_LIBCUDA", ERGON_TEST_FAKE_CUDA, 1);
    setenv("ERGON_FAKE_CUDA", two, 1);
    check_list(NULL, "0", "2");
    snprintf(both, sizeof both, "%s,%s", one, zero);
    setenv("ERGON_FAKE_CUDA", both, 1);
    check_list(NULL, "1,2", "10");
    assert_string_equal(warned, "");
    /* Nothing to ask for: the order of the bus, UUIDs, an option, a list that is wrong. */
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    check_list(NULL, "0", "0");
    setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    check_list(NULL, "1,2", "10");
    unsetenv("CUDA_DEVICE_ORDER");
    check_list(NULL, "GPU-0", "0");
    check_list("0", "1", "0");
    check_wrong_list(NULL, "3", "there is no GPU 3");
    assert_string_equal(warned, "");
    /* CUDA shows none, one that is not here, nothing at all; or it is absent. */
    static const char *const answers[] = {"", "33333333333333333333333333333333", NULL};
    for (size_t i = 0; i < 3; i++) {
        warned[0] = '\0';
        if (answers[i])
            setenv("ERGON_FAKE_CUDA", answers[i], 1);
        else
            setenv("ERGON_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
        check_list(NULL, "0", "0");
        assert_non_null(strstr(warned, "GPU 0 (NVIDIA T400 4GB) on the PCI bus may not be"));
        assert_non_null(strstr(warned, "set CUDA_DEVICE_ORDER=PCI_BUS_ID"));
    }
    /* All of one kind: nobody is asked, nobody is warned. */
    warned[0] = '\0';
    assert_true(fake.script("gpus 3\n"));
    check_list(NULL, "2,0", "20");
    assert_string_equal(warned, "");
    erg_log_set_sink(NULL);
    unsetenv("ERGON_LIBCUDA");
    fake_close(&fake);
}

static void test_no_gpu(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    setenv("ERGON_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
    assert_fails(erg_gpus_open(&gpus, NULL, &err), &err, "cannot be opened");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    setenv("ERGON_NVML", "libm.so.6", 1);
    assert_fails(erg_gpus_open(&gpus, NULL, &err), &err, "'libm.so.6' has no nvmlInit_v2");
    unsetenv("ERGON_FAKE_NVML");
    setenv("ERGON_NVML", ERGON_TEST_FAKE_NVML, 1);
    assert_fails(erg_gpus_open(&gpus, NULL, &err), &err, "Driver Not Loaded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_gpu), /* first: the fake remembers its script */
        cmocka_unit_test(test_every_metric),
        cmocka_unit_test(test_only_requested_values),
        cmocka_unit_test(test_counters),
        cmocka_unit_test(test_types_of_fields),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_power_without_fields),
        cmocka_unit_test(test_invalid_numbers),
        cmocka_unit_test(test_names_of_any_bytes),
        cmocka_unit_test(test_a_lost_gpu),
        cmocka_unit_test(test_an_old_library),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_indices_count_as_cuda_does),
        cmocka_unit_test(test_indices_with_a_lost_gpu),
        /* Last: it ends all hangs of the fake. */
        cmocka_unit_test(test_a_gpu_that_hangs_when_opened),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
