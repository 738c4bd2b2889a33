/* ergon memory on nodes of several kinds: each stage beside what its own GPU and node have. */
#include "commands.h"

#include <math.h>

#define EXAMPLE "'" ERGON_TEST_SOURCE_DIR "/examples/mixed/llama-65b_h800_a100.yaml'"
#define SMALL "'" ERGON_TEST_SOURCE_DIR "/examples/mixed/llama-3.2-1b_h800_a100.yaml'"

/* Four stages on nodes of A100s with 40 GB, then four on nodes of H800s with 80. */
#define CLUSTER(a100_host, a100_engine)                                                            \
    "model: llama-65b\nvocabulary: 32005\n"                                                        \
    "cluster:\n  nodes: 2\n  gpus_per_node: 8\n  gpu: H800-SXM-80GB\n"                             \
    "  inter_node_bandwidth_gb_s: 100\n  host_memory_gib: 1024\n"                                  \
    "  more_nodes:\n    - nodes: 2\n      gpus_per_node: 8\n      gpu: A100-SXM4-40GB\n"           \
    "      engine: " a100_engine "\n      inter_node_bandwidth_gb_s: 50\n"                         \
    "      host_memory_gib: " a100_host "\n"                                                       \
    "engine: megatron-kwai-h800\ntensor: 4\npipeline: 8\nmicrobatch_size: 1\n"                     \
    "microbatches: 64\nsequence: 4096\n"                                                           \
    "stage_gpus: [A100-SXM4-40GB, A100-SXM4-40GB, A100-SXM4-40GB, A100-SXM4-40GB, "                \
    "H800-SXM-80GB, H800-SXM-80GB, H800-SXM-80GB, H800-SXM-80GB]\n"
#define JOB CLUSTER("200", "megatron-kwai-a100")

static const double gib = 0x1p30;

/* "memory JOB OPTIONS", of a job in the folder of the tests; valid until the next call. */
static const char *ask(const char *job, const char *layers, const char *options)
{
    static char command[400];
    struct erg_text text = {0};
    struct erg_error err;
    erg_text_printf(&text, "%slayers: %s\n", job, layers);
    assert_ok(erg_file_write(in_folder("job.yaml"), text.data, text.count, &err), &err);
    erg_text_release(&text);
    snprintf(command, sizeof command, "memory '%s' %s", in_folder("job.yaml"), options);
    return command;
}

static void each_stage_has_its_gpu(void **state)
{
    (void)state;
    const char *layers = "[6, 6, 6, 6, 14, 14, 14, 14]";
    json_t *document = run_json(ask(JOB, layers, "--json"), 0), *stage;
    size_t s;
    assert_string_equal(json_string_value(json_object_get(document, "gpu")),
                        "16 H800-SXM-80GB, 16 A100-SXM4-40GB");
    /* The stage that needs most is not the one that has least left. */
    assert_int_equal(number(document, "binding_stage"), 0);
    json_array_foreach(json_object_get(document, "stages"), s, stage)
    {
        assert_string_equal(json_string_value(json_object_get(stage, "gpu")),
                            s < 4 ? "A100-SXM4-40GB" : "H800-SXM-80GB");
        assert_near(number(stage, "budget_bytes"), (s < 4 ? 36 : 72) * gib, 1);
        assert_int_equal(number(stage, "layers"), s < 4 ? 6 : 14);
        assert_true(number(stage, "peak_bytes") <= number(stage, "budget_bytes"));
        if (s == 4)
            assert_true(number(stage, "peak_bytes") > number(document, "peak_bytes"));
    }
    assert_near(number(document, "budget_bytes"), 36 * gib, 1);
    assert_near(number(document, "gpu_memory_bytes"), 40 * gib, 1);
    assert_true(json_is_true(json_object_get(document, "fits")));
    json_decref(document);
    check_program(ask(JOB, layers, ""), 0,
                  "It fits: the budgets are 36.00 GiB of the 40 GiB of a A100-SXM4-40GB, 72.00 "
                  "GiB of the 80 GiB of a H800-SXM-80GB.");
    /* Too many layers for the smaller GPUs, though all would do on the larger ones: and what would
     * help is found for each stage's own. */
    layers = "[8, 8, 8, 8, 12, 12, 12, 12]";
    check_program(ask(JOB, layers, "2>&1"), 3, "than the 36.00 GiB that each A100-SXM4-40GB has");
    check_program(ask(JOB, "[7, 6, 6, 6, 13, 14, 14, 14]", "2>&1"), 3,
                  "it would with layers: [6, 6, 6, 6, 14, 14, 14, 14] in the job, which moves 1 "
                  "layer to another stage\n");
    check_program(ask(JOB, "[6, 6, 6, 6, 14, 14, 14, 14]", ""), 0, "It fits");
}

/* The least ratio with which each stage fits into its own GPU. */
static void ratios_for_own_gpus(void **state)
{
    (void)state;
    const char *layers = "[7, 7, 7, 7, 13, 13, 13, 13]";
    check_program(ask(JOB, layers, "2>&1"), 3, "than the 36.00 GiB that each A100-SXM4-40GB has");
    json_t *one = run_json(ask(JOB, layers, "--solve-offload gpu --json"), 0), *stage;
    json_t *own = run_json(ask(JOB, layers, "--solve-offload gpu --per-stage --json"), 0);
    size_t s;
    const double ratio = number(one, "offload");
    assert_true(ratio > 0 && ratio < 1);
    json_array_foreach(json_object_get(own, "stages"), s, stage)
    {
        double offload = number(stage, "offload");
        assert_true(number(stage, "peak_bytes") <= number(stage, "budget_bytes"));
        if (offload > 0) /* no more than it must */
            assert_close(number(stage, "peak_bytes"), number(stage, "budget_bytes"), 0.001);
        if (s == 0)
            assert_near(offload, ratio, 1e-9);
        if (s >= 4)
            assert_near(offload, 0, 0);
    }
    json_decref(one);
    json_decref(own);
    /* A number is the same of all. */
    check_program(ask(JOB, layers, "--solve-offload 35GiB 2>&1"), 3,
                  "more than the 35.00 GiB of --solve-offload");
    /* Hosts are those of the stage's own nodes. */
    check_program(ask(JOB, layers, "--solve-offload gpu"), 0, " per A100-SXM4-40GB, ");
    check_program(ask(CLUSTER("20", "megatron-kwai-a100"), layers, "--solve-offload gpu 2>&1"), 3,
                  "of a node's host memory for its 8 A100-SXM4-40GB, more than the 20 GiB");
}

/* Where the job does not say it, stages and layers lie as ergon layout has them. */
static void layouts_lie_as_planned(void **state)
{
    (void)state;
    const char *layout = EXAMPLE " --layout t=4,p=8,v=2 --batch 256 --recompute none --json";
    struct erg_text command = {0};
    erg_text_printf(&command, "memory %s", layout);
    json_t *document = run_json(command.data, 0);
    command.count = 0;
    erg_text_printf(&command, "layout %s", layout);
    json_t *plan = run_json(command.data, 0), *place;
    const json_t *row = json_array_get(json_object_get(plan, "layouts"), 0);
    const json_t *stages = json_object_get(document, "stages");
    size_t i;
    assert_near(number(json_object_get(document, "layout"), "data"), number(row, "d"), 0);
    json_array_foreach(json_object_get(row, "places"), i, place)
    {
        double most = 0;
        size_t first = (size_t)number(place, "first_stage");
        size_t end = first + (size_t)number(place, "stages");
        for (size_t s = first; s < end; s++) {
            const json_t *stage = json_array_get(stages, s);
            const json_t *chunks = json_object_get(stage, "chunk_layers");
            assert_string_equal(json_string_value(json_object_get(stage, "gpu")),
                                json_string_value(json_object_get(place, "gpu")));
            for (size_t c = 0; c < 2; c++)
                assert_int_equal(
                    json_integer_value(json_array_get(chunks, c)),
                    json_integer_value(json_array_get(json_object_get(row, "layers"), 8 * c + s)));
            most = fmax(most, number(stage, "peak_bytes"));
        }
        assert_close(most, number(place, "peak_bytes"), 0.012); /* that is the closed form */
    }
    json_decref(plan);
    json_decref(document);
    erg_text_release(&command);
    /* The job's own degrees, on as many GPUs as they make, or as are asked for. */
    check_program("memory " EXAMPLE, 0, "pipeline 8 x data 1");
    check_program("memory " EXAMPLE " --gpus 64", 0, "pipeline 8 x data 2");
    check_program("memory " EXAMPLE " --gpus 960 --batch 960 2>&1", 1,
                  "no layout of huggyllama/llama-65b that was requested");
    /* Too large wherever stages lie: what the fastest needs. */
    check_program("memory " EXAMPLE " --layout t=1,p=2 --gpus 2 2>&1", 3, "it would fit with ");
    check_program("memory " EXAMPLE " --layout t=16,p=2 2>&1", 1,
                  "tensor 16 x context 1 are 16 GPUs, more than the 8 of a node");
    check_program("memory " EXAMPLE " --layout t=2,p=8,v=40 2>&1", 1,
                  "80 layers, too few for 8 stages of 40 chunks");
    check_program("memory " EXAMPLE " --layout t=3,p=8 2>&1", 1, "64 attention heads");
}

/* Copies and messages at each stage's own rates, by the engines of the job. */
static void engines_of_the_stages(void **state)
{
    (void)state;
    const char *layers = "[7, 7, 7, 7, 13, 13, 13, 13]";
    json_t *document = run_json(
        ask(JOB, layers, "--offload 0.5 --engine megatron-kwai-h800 --copies layer --json"), 0);
    const json_t *stages = json_object_get(document, "stages");
    double rate[2] = {0};
    for (size_t i = 0; i < 2; i++) {
        const json_t *transfers = json_object_get(json_array_get(stages, i ? 4 : 1), "transfers");
        size_t k = 0;
        while (strcmp(json_string_value(json_array_get(json_object_get(transfers, "kind"), k)),
                      "copy_out") != 0)
            k++;
        double column[3];
        const char *const keys[] = {"bytes", "start_s", "end_s"};
        for (int c = 0; c < 3; c++)
            column[c] = json_number_value(json_array_get(json_object_get(transfers, keys[c]), k));
        rate[i] = column[0] / (column[2] - column[1]);
    }
    assert_close(rate[0], 32e9, 1e-6);
    assert_close(rate[1], 64e9, 1e-6);
    assert_true(number(document, "pipeline_s") > 0);
    json_decref(document);
    check_program(ask(JOB, layers, "--engine megatron-kwai-a100 2>&1"), 1,
                  "'megatron-kwai-a100' is of a GPU with a peak of 312 TFLOP/s, but H800-SXM-80GB");
    check_program(
        ask(CLUSTER("200", "megatron-kwai-h800"), layers, "--engine megatron-kwai-h800 2>&1"), 1,
        "'megatron-kwai-h800' is of a GPU with a peak of 989 TFLOP/s, but A100-SXM4");
    check_program(ask(CLUSTER("200", "megatron-a100"), layers,
                      "--offload 0.2 --engine megatron-kwai-h800 2>&1"),
                  1, "engine megatron-a100 does not");
}

static void a_page_of_both(void **state)
{
    (void)state;
    struct erg_error err;
    char *html = NULL;
    char options[200];
    snprintf(options, sizeof options, "--report '%s'", in_folder("memory.html"));
    check_program(ask(JOB, "[6, 6, 6, 6, 14, 14, 14, 14]", options), 0, "Stage 0 needs most");
    assert_ok(erg_file_read(in_folder("memory.html"), 0, &html, NULL, &err), &err);
    assert_non_null(strstr(html, "\"gpu\":\"A100-SXM4-40GB\""));
    assert_non_null(strstr(html, "\"budget_bytes\":38654705664"));
    free(html);
    check_program("memory " SMALL, 0, "on 4 H800-SXM-80GB, 4 A100-SXM4-80GB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stage_has_its_gpu), cmocka_unit_test(ratios_for_own_gpus),
        cmocka_unit_test(layouts_lie_as_planned), cmocka_unit_test(engines_of_the_stages),
        cmocka_unit_test(a_page_of_both),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
