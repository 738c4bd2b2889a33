/* layout/calculon and ergon import: files of Calculon become a job that the planner takes. */
#include "folder.h"
#include "program.h"

#include "io/file.h"
#include "io/json.h"
#include "job/job.h"
#include "layout/exchange/calculon.h"

#include <math.h>
#include <unistd.h>

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/calculon/"
/* The text of a file of the tests with one part replaced; NULL: as it is. */
static char *text_of(const char *file, const char *part, const char *other)
{
    struct erg_error err;
    struct erg_text text = {0};
    char path[300], *whole;
    snprintf(path, sizeof path, DATA "%s", file);
    assert_ok(erg_file_read(path, ERG_FILE_SMALL_BYTES, &whole, NULL, &err), &err);
    if (!part)
        return whole;
    char *at = strstr(whole, part);
    assert_non_null(at);
    erg_text_add_bytes(&text, whole, (size_t)(at - whole));
    erg_text_add(&text, other);
    erg_text_add(&text, at + strlen(part));
    free(whole);
    return text.data;
}

static void parsed(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_calculon_model model;
    struct erg_calculon_system system;
    char *text = text_of("wide.json", NULL, NULL);
    assert_ok(erg_calculon_model_parse(&model, "wide", text, strlen(text), &err), &err);
    free(text);
    assert_int_equal(model.hidden, 4096);
    assert_int_equal(model.feedforward, 20480);
    assert_int_equal(model.sequence, 2048);
    assert_int_equal(model.heads, 64);
    assert_int_equal(model.head_dim, 128);
    assert_int_equal(model.blocks, 24);
    text = text_of("node4.json", NULL, NULL);
    assert_ok(erg_calculon_system_parse(&system, "node4", text, strlen(text), &err), &err);
    free(text);
    assert_close(system.peak_flops, 300e12, 1e-12);
    assert_close(system.products.shares[0], 0.8, 1e-12);
    assert_close(erg_calculon_share(&system.products, 128e9), 0.8, 1e-12);
    assert_close(erg_calculon_share(&system.products, 127e9), 0.7, 1e-12);
    assert_close(erg_calculon_share(&system.products, 1), 0.1, 1e-12);
    assert_false(system.roofline);
    assert_close(system.memory.bytes, 64 * 0x1p30, 1e-12);
    assert_close(system.memory.bandwidth, 1800e9, 1e-12);
    assert_close(erg_calculon_share(&system.memory.efficiency, 100e6), 0.85, 1e-12);
    assert_close(system.host.bytes, 256 * 0x1p30, 1e-12);
    assert_int_equal(system.network_count, 2);
    assert_int_equal(system.networks[0].size, 4);
    assert_close(system.networks[0].bandwidth, 250e9, 1e-12);
    assert_close(system.networks[1].efficiency, 0.9, 1e-12);
    assert_close(system.networks[1].latency_s, 2e-5, 1e-12);
}

/* What is wrong is named by file and key. */
static void refused(void **state)
{
    (void)state;
    const struct {
        const char *part, *other, *message;
    } models[] =
        {
            {"\"hidden\"", "\"hiden\"", "wide:1: key 'hidden'"},
            {"24", "0", "'num_blocks'"},
            {"24", "24.5", "'num_blocks'"},
            {"}", "", "wide"},
        },
      systems[] = {
          {"\"float16\"", "\"float8\"", "node4:2: key 'matrix.float16'"},
          {"300", "-300", "'matrix.float16.tflops'"},
          {"[[128, 0.8], [16, 0.7], [0, 0.1]]", "[]", "at least one row"},
          {"[16, 0.7]", "[256, 0.7]", "sizes that fall from row to row, got 256 after 128"},
          {"[16, 0.7]", "[16]", "rows of two numbers"},
          {"[16, 0.7]", "[16, 70]", "efficiencies from 0.01 to 1, got 70"},
          {"\"GiB\": 64", "\"GB\": 64", "'mem1.GiB'"},
          {"no_overlap", "overlap", "expected roofline or no_overlap, got 'overlap'"},
          {"\"networks\"", "\"network\"", "'networks'"},
          {"\"size\": 4,", "\"size\": 0,", "size"},
          {"\"size\": 4,", "\"size\": 4096,", "at most 1024, got 4096"},
          {"0.9,", "1.9,", "efficiency"},
      };
    struct erg_error err;
    struct erg_calculon_model model;
    struct erg_calculon_system system;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *text = text_of("wide.json", models[i].part, models[i].other);
        assert_fails(erg_calculon_model_parse(&model, "wide", text, strlen(text), &err), &err,
                     models[i].message);
        free(text);
    }
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        char *text = text_of("node4.json", systems[i].part, systems[i].other);
        assert_fails(erg_calculon_system_parse(&system, "node4", text, strlen(text), &err), &err,
                     systems[i].message);
        free(text);
    }
}

/* The job that comes out, read again: heads wider than the hidden size, GPU, engine, nodes. */
static void imported(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text arguments = {0};
    const struct erg_job_overrides overrides = {.any_layout = true};
    struct erg_job *job;
    erg_text_printf(&arguments,
                    "import calculon " DATA "wide.json " DATA "node4.json -n 16 -b 64 -o %s",
                    folder);
    check_program(arguments.data, 0, "node4: 16 GPUs in nodes of 4");
    check_program(arguments.data, 0, "times are lower bounds");
    check_program(arguments.data, 0, "job.yaml --engine megatron-a100");
    erg_text_add(&arguments, " --json");
    check_program(arguments.data, 0, "\"gpu_base\": \"A100-SXM4-80GB\"");
    erg_text_release(&arguments);
    erg_text_printf(&arguments, "%s/job.yaml", folder);
    assert_ok(erg_job_load(&job, arguments.data, &overrides, &err), &err);
    assert_int_equal(job->model->layers, 24);
    assert_int_equal(job->model->head_dim, 128);
    assert_int_equal(job->model->ffn, 20480);
    assert_int_equal(job->model->vocab, 51200);
    assert_true(job->model->layer_norm && job->model->learned_positions && !job->model->gated);
    /* 24 x (4 h heads d + 2 h f) and the embeddings of 51200 words and 2048 positions; norms and
     * biases are the rest. */
    assert_close(erg_model_parameters(job->model),
                 24.0 * (4 * 4096 * 8192.0 + 2 * 4096 * 20480.0) + 53248 * 4096.0, 1e-3);
    assert_int_equal(job->layout.sequence, 2048);
    assert_int_equal(job->layout.microbatches, 64);
    assert_int_equal(job->cluster.nodes, 4);
    assert_int_equal(job->cluster.gpus_per_node, 4);
    assert_close(job->cluster.inter_node_bandwidth, 4 * 25e9, 1e-5);
    assert_close(job->cluster.host_memory_bytes, 4 * 256 * 0x1p30, 1e-5);
    assert_string_equal(job->gpu->name, "node4");
    assert_non_null(strstr(job->gpu->confidence, "those of A100-SXM4-80GB"));
    assert_close(job->gpu->flops_per_sm_clock * job->gpu->sms * job->gpu->clock_max_mhz * 1e6,
                 300e12, 1e-5);
    assert_close(job->gpu->memory_bandwidth, 1800e9, 1e-5);
    assert_close(job->gpu->link_bandwidth, 250e9, 1e-5);
    assert_close(job->engine->peak_flops, 300e12, 1e-5);
    /* Of 103, 34, 86 and 86 GFLOP on each of four GPUs, at 0.7, then 92, 42, 80 and 80 MB, at 0.7.
     */
    double products_s = 2.0 * 2048 * 4096 * (6144 + 2048 + 5120 + 5120) / (0.7 * 300e12);
    double bytes_s =
        2.0 * (2048 * (4 * 4096 + 6144 + 2048 + 2 * 5120.) + 4096. * (6144 + 2048 + 5120 + 5120)) /
        (0.7 * 1800e9);
    assert_close(job->engine->gemm_efficiency, 0.7 * products_s / (products_s + bytes_s), 1e-4);
    assert_close(job->engine->attention_efficiency, 0.7, 1e-5); /* 17 GFLOP */
    assert_close(job->engine->memory_efficiency, 0.7, 1e-5);    /* 34 MB */
    assert_close(job->engine->score_forward_bytes, 11, 1e-5);
    assert_close(job->engine->link_efficiency, 0.6, 1e-5);
    assert_close(job->engine->network_efficiency, 0.9, 1e-5);
    assert_close(job->engine->host_link_bandwidth, 32e9 * 0.95, 1e-5);
    erg_job_free(job);
    erg_text_release(&arguments);
}

/* What the planner makes of it. */
static void planned(void **state)
{
    (void)state;
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "layout %s/job.yaml --top 1 --json", folder);
    check_program(arguments.data, 0, "\"tokens_per_s\"");
    erg_text_release(&arguments);
}

/* Names of files as they come: each written file is read again, comments stay on their lines. */
static void hostile_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shown;
    } names[] = {
        {"x\n--load y", "x\\x0a--load y"},
        {"a: b\"c\\", "a: b\"c\\"},
        {"# - {a", "# - {a"},
        {"yes", "yes"},
        {"1e3", "1e3"},
        {"\u00fc\u2028z", "\u00fc\\u2028z"},
    };
    struct erg_calculon_model model;
    struct erg_calculon_system system;
    struct erg_gpu *base;
    struct erg_error err;
    char *text = text_of("wide.json", NULL, NULL);
    assert_ok(erg_calculon_model_parse(&model, "wide", text, strlen(text), &err), &err);
    free(text);
    /* Host memory without a limit is none that the job knows. */
    text = text_of("node4.json", "\"GiB\": 256", "\"GiB\": 8e10");
    assert_ok(erg_calculon_system_parse(&system, "node4", text, strlen(text), &err), &err);
    assert_true(isinf(system.host.bytes));
    free(text);
    text = text_of("node4.json", "\"GiB\": 64", "\"GiB\": 80000000000");
    assert_fails(erg_calculon_system_parse(&system, "node4", text, strlen(text), &err), &err,
                 "key 'mem1.GiB': 8e+10 GiB mean unlimited memory, but layouts must fit");
    free(text);
    text = text_of("node4.json", "\"GiB\": 256", "\"GiB\": 8e10");
    assert_ok(erg_calculon_system_parse(&system, "node4", text, strlen(text), &err), &err);
    free(text);
    assert_ok(erg_calculon_base_gpu(&base, &system, &err), &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static const char *const files[] = {"gpu.yaml", "engine.yaml", "job.yaml"};
        const struct erg_calculon_import import = {&model,        &system, names[i].name,
                                                   names[i].name, 16,      64};
        const struct erg_job_overrides overrides = {.any_layout = true};
        struct erg_job *job;
        assert_ok(erg_calculon_write(&import, base, folder, &err), &err);
        assert_ok(erg_job_load(&job, in_folder("job.yaml"), &overrides, &err), &err);
        assert_string_equal(job->model->name, names[i].shown);
        assert_string_equal(job->gpu->name, names[i].shown);
        assert_string_equal(job->engine->name, names[i].shown);
        assert_near(job->cluster.host_memory_bytes, 0, 0);
        erg_job_free(job);
        for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
            assert_ok(erg_file_read(in_folder(files[k]), ERG_FILE_SMALL_BYTES, &text, NULL, &err),
                      &err);
            assert_null(strstr(text, "\n--load"));
            free(text);
        }
    }
    erg_gpu_free(base);
}

static void wrong_calls(void **state)
{
    (void)state;
#define FILES DATA "wide.json " DATA "node4.json"
    check_program("import calculon " FILES " 2>&1", 2, "--output");
    check_program("import megatron " FILES " -o /tmp/none 2>&1", 2,
                  "expected 'calculon', 'trace' or 'kineto'");
    check_program("import calculon " DATA "node4.json " DATA "wide.json -o /tmp/none 2>&1", 1,
                  "node4.json:1: key 'hidden'");
    check_program("import calculon /nowhere.json " DATA "node4.json -o /tmp/none 2>&1", 1,
                  "/nowhere.json");
    check_program("import calculon " FILES " -n 6 -o /tmp/none 2>&1", 1,
                  "6 GPUs do not make whole nodes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsed),  cmocka_unit_test(refused),     cmocka_unit_test(imported),
        cmocka_unit_test(planned), cmocka_unit_test(wrong_calls), cmocka_unit_test(hostile_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
