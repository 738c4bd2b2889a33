/*
 * ergon import kineto: what it prints of traces, what it needs, memory that does not grow with
 * them, and energies from a recording of the same time.
 */
#include "folder.h"
#include "json_file.h"
#include "kernels_world.h"
#include "observed.h"
#include "program.h"

#include "base/clock.h"
#include "ergon/kernels.h"
#include "telemetry/recording.h"

#include <sys/resource.h>
#include <time.h>

/* A part of a trace's text; @ is the folder. */
static void check(const char *arguments, int exit_code, const char *part)
{
    struct erg_text line = with_folder(arguments);
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

static void test_output(void **state)
{
    (void)state;
    struct erg_error err;
    assert_ok(erg_trace_write_kineto(&world_trace, in_folder("w.json"), &err), &err);
    check("import kineto @/w.json", 0, "rank 3, GPU 0: 0.000024 s");
    check("import kineto @/w.json", 0, "  MatMul              0.000004   0.000004         -  1\n");
    check("import kineto @/w.json", 0, "  AllGather           0.000006   0.000004  0.000002  1\n");
    /* Hidden behind the norm. */
    check("import kineto @/w.json", 0, "  SendRecv            0.000002   0.000000  0.000000  1\n");
    check("import kineto @/w.json", 0,
          "computing 62.1 %, only communicating or copying 37.5 %, idle 0.4 %");
    check("import kineto @/w.json --csv", 0, "/w.json,3,0,AllGather,1,6e-06,3.999e-06,1.5e-06,\n");
    check("import kineto @/w.json -k charllm", 0,
          "  Other      0.000004   0.000004         -  1\n");
    check("import kineto @/w.json --json > @/w.out; cat @/w.out", 0,
          "\"schema\": \"ergon.kernels\"");
    json_t *root;
    assert_ok(load_json(&root, in_folder("w.out"), &err), &err);
    json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
    json_t *send = json_array_get(json_object_get(gpu, "categories"), ERG_CATEGORY_SEND_RECV);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(send, "sub"), 0), "name")),
        "all-to-all");
    assert_true(json_is_null(json_object_get(gpu, "energy_j")));
    assert_close(json_number_value(json_object_get(gpu, "window_s")), 24e-6, 1e-12);
    assert_close(json_number_value(json_object_get(gpu, "idle_s")), 100e-9, 1e-12);
    json_decref(root);
}

static void test_refusals(void **state)
{
    (void)state;
    write_text("cut.json", "{\"traceEvents\":[\n{\"ph\":\"X\",");
    check("import kineto @/cut.json 2>&1", 1, "cut.json:2: byte 28: the file ends here; expected");
    check("import kineto @/cut.json --output x 2>&1", 2, "\"ergon import kineto\" needs FILE...");
    check("import kineto @/cut.json --csv --json 2>&1", 2, "needs FILE...");
    check("import kineto @/cut.json -k other 2>&1", 2, "got \"other\"");
    check("import trace a --csv 2>&1", 2, "\"ergon import trace\" needs");
    check("import caneto a 2>&1", 2, "expected 'calculon', 'trace' or 'kineto'");
}

/* Ranks by the document, by the file's name, by the order of files. */
static void test_ranks(void **state)
{
    (void)state;
    static const char kernel[] = "[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":1,"
                                 "\"dur\":2,\"pid\":1},{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":"
                                 "\"gemm\",\"ts\":1,\"dur\":2,\"pid\":0}]";
    struct erg_error err;
    struct erg_kernels *kernels;
    write_text("x_rank12.pt.json", kernel);
    write_text("other.json", kernel);
    const char *const files[] = {in_folder("x_rank12.pt.json"), in_folder("other.json")};
    struct erg_kernels_options options = {.size = sizeof options, .files = files, .file_count = 2};
    assert_ok(erg_kernels_import(&kernels, &options, &err), &err);
    assert_int_equal(erg_kernels_gpus(kernels), 4);
    static const int expected[4][2] = {{12, 0}, {12, 1}, {1, 0}, {1, 1}};
    for (size_t i = 0; i < 4; i++) {
        struct erg_kernels_gpu gpu = {.size = sizeof gpu};
        assert_ok(erg_kernels_gpu(kernels, i, &gpu, &err), &err);
        assert_int_equal(gpu.rank, expected[i][0]);
        assert_int_equal(gpu.device, expected[i][1]);
        assert_close(gpu.category[ERG_CATEGORY_MATMUL].summed_s, 2e-6, 1e-12);
        assert_true(isnan(gpu.energy_j));
    }
    struct erg_kernels_gpu gpu = {.size = sizeof gpu};
    assert_fails(erg_kernels_gpu(kernels, 4, &gpu, &err), &err, "GPU 4 of 4");
    assert_string_equal(erg_kernels_category_name(ERG_CATEGORY_OTHER), "Other");
    assert_null(erg_kernels_category_name(8));
    erg_kernels_free(kernels);
    options.file_count = 0;
    assert_fails(erg_kernels_import(&kernels, &options, &err), &err, "expected one or more files");
}

/* ---- waits ---- */

/* Two ranks whose clocks begin at other times: three sums of one group, the second and third of
 * which find the other rank waiting; a message, of which nobody knows. */
static void write_rank(const char *name, int rank, int64_t unix_ns, const int64_t *starts_us,
                       int exchanges)
{
    struct erg_text text = {0};
    erg_text_printf(
        &text,
        "{\"distributedInfo\":{\"rank\":%d},\"baseTimeNanoseconds\":%lld,"
        "\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":"
        "\"ncclDevKernel_SendRecv\",\"pid\":0,\"ts\":0,\"dur\":1,\"args\":{\"Collective "
        "name\":\"send\",\"Group size\":2,\"Process Group Name\":\"0\"}}",
        rank, (long long)unix_ns);
    for (int i = exchanges; i-- > 0;) /* in any order */
        erg_text_printf(
            &text,
            ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_Generic\","
            "\"pid\":0,\"ts\":%lld,\"dur\":%lld,\"args\":{\"Collective name\":"
            "\"allreduce\",\"Group size\":2,\"Process Group Name\":\"0\",\"Process Group "
            "Ranks\":\"[0, 1]\"}}",
            (long long)starts_us[i], (long long)(1000 * (i + 1) + 50 - starts_us[i]));
    erg_text_add(&text, "]}");
    write_text(name, text.data);
    erg_text_release(&text);
}

static double wait_of(const char *const *files, size_t count, size_t gpu, int category)
{
    struct erg_error err;
    struct erg_kernels *kernels;
    struct erg_kernels_gpu about = {.size = sizeof about};
    struct erg_kernels_options options = {
        .size = sizeof options, .files = files, .file_count = count};
    assert_ok(erg_kernels_import(&kernels, &options, &err), &err);
    assert_ok(erg_kernels_gpu(kernels, gpu, &about, &err), &err);
    erg_kernels_free(kernels);
    return about.category[category].wait_s;
}

static void test_waits(void **state)
{
    (void)state;
    static const int64_t one[] = {990, 1500, 2970}, other[] = {990 + 7, 1980 + 7, 2600 + 7};
    write_rank("r0.json", 0, 1700000000000007000, one, 3);
    write_rank("r1.json", 1, 1700000000000000000, other, 3);
    const char *const files[] = {in_folder("r0.json"), in_folder("r1.json")};
    assert_near(wait_of(files, 2, 0, ERG_CATEGORY_ALL_REDUCE), 480e-6, 1e-12);
    assert_near(wait_of(files, 2, 1, ERG_CATEGORY_ALL_REDUCE), 370e-6, 1e-12);
    assert_true(isnan(wait_of(files, 2, 0, ERG_CATEGORY_SEND_RECV)));
    assert_true(isnan(wait_of(files, 2, 0, ERG_CATEGORY_MATMUL)));
    assert_true(isnan(wait_of(files, 1, 0, ERG_CATEGORY_ALL_REDUCE))); /* half of the group */
    write_rank("r1.json", 1, 1700000000000000000, other, 2);
    assert_true(isnan(wait_of(files, 2, 0, ERG_CATEGORY_ALL_REDUCE))); /* one is missing */
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    (void)state;
    enum { KERNELS = 600000 }; /* more than are sorted in memory */
    FILE *out = fopen(in_folder("large.json"), "w");
    assert_non_null(out);
    fputs("[", out);
    for (int i = 0; i < KERNELS; i++)
        fprintf(
            out,
            "%s{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"ts\":%d,\"dur\":%d,\"pid\":0}",
            i ? "," : "", i % 2 ? "gemm" : "nccl*AllReduce", (KERNELS - i) * 10, i % 2 ? 8 : 9);
    fputs("]", out);
    assert_int_equal(fclose(out), 0);
    check("import kineto @/large.json --csv > @/large.csv; cat @/large.csv", 0,
          ",MatMul,300000,2.4,2.4,,");
    check("import kineto @/large.json", 0, "  AllReduce  2.700000   2.700000       -  300000\n");
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(usage.ru_maxrss < 64 * 1024);
#endif
}

/* ---- energy ---- */

/* Two GPUs for a second from `start_ns` on, every 10 ms: the first takes 400 W and from the middle
 * on 200 W, the other has no counter and takes 100 W. */
static void record(const char *path, int64_t start_ns)
{
    struct erg_error err;
    struct erg_open_gpu items[2] = {0};
    struct erg_gpus gpus = observed_gpus(items, 2);
    struct erg_recorder *recorder;
    assert_ok(erg_recorder_open(&recorder, path, &gpus, 0, &err), &err);
    for (int i = 0; i <= 100; i++)
        for (size_t gpu = 0; gpu < 2; gpu++) {
            struct erg_sampler_item item = observed_sample(gpu, start_ns + 10000000 * (int64_t)i);
            if (gpu == 0)
                observe_value(&item, ERG_METRIC_ENERGY,
                              7000 + (i < 50 ? 4000 * i : 200000 + 2000 * (i - 50)));
            else
                observe_value(&item, ERG_METRIC_POWER_INSTANT, 100000);
            assert_ok(erg_recorder_add(recorder, &item, &err), &err);
        }
    assert_ok(erg_recorder_close(recorder, &err), &err);
}

static int64_t unix_of(int64_t mono_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - erg_now_ns() + mono_ns;
}

static void write_trace(const char *name, int64_t unix_ns, const char *uuid)
{
    static const struct erg_kernel_record records[] = {
        {.start_ns = 200000000, .end_ns = 400000000, .wait_ns = -1, .name = "gemm"},
        {.start_ns = 400000000,
         .end_ns = 600000000,
         .wait_ns = -1,
         .name = "ncclAllReduce",
         .category = ERG_CATEGORY_ALL_REDUCE},
        {.start_ns = 700000000,
         .end_ns = 800000000,
         .wait_ns = -1,
         .name = "layer_norm",
         .category = ERG_CATEGORY_LAYERNORM},
        {.start_ns = 700000000, .end_ns = 800000000, .wait_ns = -1, .name = "gemm", .stream = 1},
    };
    struct erg_error err;
    const struct erg_kernel_device device = {.id = 0, .uuid = uuid};
    struct erg_kernel_trace trace = {.rank = 0,
                                     .world = 1,
                                     .unix_ns = unix_ns,
                                     .devices = &device,
                                     .device_count = 1,
                                     .records = records,
                                     .record_count = 4};
    assert_ok(erg_trace_write_kineto(&trace, in_folder(name), &err), &err);
}

static void test_energy(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_kernels *kernels;
    const int64_t start_ns = erg_now_ns();
    record(in_folder("node.rec"), start_ns);
    write_trace("e.json", unix_of(start_ns), "GPU-00000000");
    write_trace("f.json", unix_of(start_ns), "GPU-00000001");
    write_trace("g.json", unix_of(start_ns), "GPU-other");
    const char *const files[] = {in_folder("e.json"), in_folder("f.json"), in_folder("g.json")};
    struct erg_kernels_options options = {.size = sizeof options,
                                          .files = files,
                                          .file_count = 3,
                                          .recording = in_folder("node.rec")};
    assert_ok(erg_kernels_import(&kernels, &options, &err), &err);
    struct erg_kernels_gpu gpu = {.size = sizeof gpu};
    assert_ok(erg_kernels_gpu(kernels, 0, &gpu, &err), &err);
    assert_near(gpu.category[ERG_CATEGORY_MATMUL].energy_j, 0.2 * 400 + 0.05 * 200, 0.1);
    assert_near(gpu.category[ERG_CATEGORY_ALL_REDUCE].energy_j, 0.1 * 400 + 0.1 * 200, 0.1);
    assert_near(gpu.category[ERG_CATEGORY_LAYERNORM].energy_j, 0.05 * 200, 0.1);
    assert_near(gpu.idle_energy_j, 0.1 * 200, 0.1);
    assert_near(gpu.energy_j, 180, 0.1);
    assert_ok(erg_kernels_gpu(kernels, 1, &gpu, &err), &err);
    assert_near(gpu.energy_j, 60, 0.01);
    assert_near(gpu.category[ERG_CATEGORY_ALL_REDUCE].energy_j, 20, 0.01);
    assert_ok(erg_kernels_gpu(kernels, 2, &gpu, &err), &err);
    assert_true(isnan(gpu.energy_j) && isnan(gpu.category[ERG_CATEGORY_MATMUL].energy_j));
    erg_kernels_free(kernels);

    check("import kineto @/e.json --recording @/node.rec", 0, ", 180.0");
    check("import kineto @/e.json @/g.json -r @/node.rec 2>&1", 0,
          "g.json: no energy of GPU 0: the recording");
    write_trace("late.json", unix_of(start_ns) + 400000000, "GPU-00000000");
    check("import kineto @/late.json -r @/node.rec 2>&1", 1,
          "contains no GPU's energy at the times of the traces");
    write_text("old.json", "[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":1,"
                           "\"dur\":2,\"pid\":1}]");
    check("import kineto @/old.json -r @/node.rec 2>&1", 1,
          "old.json: its times are not Unix times");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ranks),  cmocka_unit_test(test_waits),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_energy),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
