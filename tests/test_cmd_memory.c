/* ergon memory: its document, its table, its page and its refusals. */
#include "commands.h"

#include <unistd.h>

#define JOBS "'" ERGON_TEST_SOURCE_DIR "/examples/kwai/"
/* Two published peaks, asked for as a person would, and what the document says of them. */
static void test_published_peaks(void **state)
{
    (void)state;
    json_t *document = run_json("memory " JOBS "llama-65b.yaml' --gpus 256 --batch 256 "
                                "--sequence 8192 --layout t=2,c=2,p=8,l=2 --recompute none "
                                "--offload 0.5 --accounting framework --json",
                                0);
    const json_t *stages = json_object_get(document, "stages");
    assert_int_equal(json_object_get(document, "schema_version") ? 1 : 0, 1);
    assert_close(number(document, "peak_bytes"), 61136119808, 0.0015);
    assert_close(number(document, "closed_form_bytes"), 61136119808, 0.014);
    assert_int_equal(json_array_size(stages), 8);
    assert_true(json_is_true(json_object_get(document, "fits")));
    for (size_t s = 0; s < 8; s++) {
        const json_t *stage = json_array_get(stages, s), *items = json_object_get(stage, "items");
        const json_t *course = json_object_get(stage, "course"), *item;
        const char *name;
        double sum = 0;
        json_object_foreach((json_t *)(uintptr_t)items, name, item) sum += json_number_value(item);
        assert_near(sum, number(stage, "peak_bytes"), 0);
        assert_true(sum <= number(document, "peak_bytes"));
        assert_int_equal(json_array_size(json_object_get(course, "pass")), 2 * 32 * 5);
    }
    json_decref(document);
    document = run_json(
        "memory " JOBS "llama-65b.yaml' -a 1 -r balanced --accounting framework --json", 0);
    assert_close(number(document, "peak_bytes"), 32462145024, 0.0015);
    assert_int_equal(number(document, "binding_stage"), 7);
    json_decref(document);
}

static void test_solved_ratios(void **state)
{
    (void)state;
    json_t *document = run_json("memory " JOBS "llama-65b.yaml' --gpus 32 --batch 272 "
                                "--sequence 4096 --layout t=2,c=1,p=8,l=2 --recompute balanced "
                                "--solve-offload 68719476736 --json",
                                0);
    assert_near(number(document, "offload"), 0.544, 0.02);
    assert_true(number(document, "peak_bytes") <= 68719476736);
    assert_true(number(document, "peak_bytes") > 0.999 * 68719476736);
    json_decref(document);
    /* Each stage for itself: the same peak, and no stage moves more. */
    document = run_json("memory " JOBS "llama-65b.yaml' --gpus 32 --batch 272 "
                        "--sequence 4096 --layout t=2,c=1,p=8,l=2 --recompute balanced "
                        "--solve-offload 68719476736 --per-stage --json",
                        0);
    const json_t *solution = json_object_get(document, "solution"), *stage;
    size_t s;
    json_array_foreach((json_t *)(uintptr_t)json_object_get(document, "stages"), s, stage)
    {
        assert_true(number(stage, "peak_bytes") <= 68719476736);
        assert_true(number(stage, "offload") <= number(document, "offload"));
    }
    assert_true(number(solution, "stage_offload_bytes") < 0.8 * number(solution, "offload_bytes"));
    json_decref(document);
    /* Just too much even with all that can be moved: within the model's error. */
    check_program("memory " JOBS "llama-175b.yaml' --gpus 48 --batch 264 --sequence 4096 "
                  "--layout t=4,p=12,l=1 --solve-offload 64GiB 2>&1",
                  0, "within the error of this model");
    check_program("memory " JOBS "llama-175b.yaml' --gpus 48 --batch 264 --sequence 4096 "
                  "--layout t=4,p=12,l=1 --solve-offload 63.5GiB 2>&1",
                  3, "more than the 63.50 GiB");
}

/* The 70B row that moved most filled half a node; with longer sequences there is no room. */
static void test_host_memory(void **state)
{
    (void)state;
    const char *row = "memory " JOBS "llama2-70b.yaml' --gpus 32 --batch 272 --sequence 8192 "
                      "--layout t=2,p=8,l=2 --recompute balanced --offload 0.858 --json";
    json_t *document = run_json(row, 0);
    assert_close(number(document, "node_host_bytes"), 488e9, 0.01);
    assert_null(
        json_object_get(json_array_get(json_object_get(document, "stages"), 0), "copy_wait_s"));
    json_decref(document);
    check_program("memory " JOBS "llama2-70b.yaml' --gpus 32 --batch 272 --sequence 20480 "
                  "--layout t=2,p=8,l=1 --recompute none -a 1 2>&1",
                  3, "more than the 1024 GiB that it has");
    check_program("memory " JOBS "llama-65b.yaml' --engine megatron-kwai-h800", 0,
                  "waits up to 0.000 s");
}

/* What an example says with less host memory. */
static void check_hosts(const char *example, int host_gib, const char *options, int exit_code,
                        const char *message)
{
    char *text = NULL, path[64], changed[96];
    struct erg_text job = {0}, command = {0};
    struct erg_error err;
    static const char key[] = "host_memory_gib: 1024";
    erg_text_printf(&command, "%s/examples/kwai/%s", ERGON_TEST_SOURCE_DIR, example);
    assert_ok(erg_file_read(command.data, 0, &text, NULL, &err), &err);
    char *place = strstr(text, key);
    assert_non_null(place);
    erg_text_add_bytes(&job, text, (size_t)(place - text));
    snprintf(changed, sizeof changed, "host_memory_gib: %d", host_gib);
    erg_text_add(&job, changed);
    erg_text_add(&job, place + sizeof key - 1);
    snprintf(path, sizeof path, "%s/host.yaml", folder);
    assert_ok(erg_file_write(path, job.data, job.count, &err), &err);
    command.count = 0;
    erg_text_printf(&command, "memory %s %s 2>&1", path, options);
    check_program(command.data, exit_code, message);
    assert_int_equal(unlink(path), 0);
    erg_text_release(&command);
    erg_text_release(&job);
    free(text);
}

/* Where the host binds, as much is offloaded as it takes, and none where the GPUs need none. */
static void test_small_hosts(void **state)
{
    (void)state;
    check_hosts("llama-65b.yaml", 20, "", 3, "20 GiB that it has; it would with --offload 0.074\n");
    check_hosts("llama-65b.yaml", 20, "--offload 0.074", 0, "It fits");
    check_hosts("llama-65b.yaml", 52, "", 3, "it would with --offload 0.194\n");
    check_hosts("llama-65b.yaml", 20, "--recompute none --offload 0.3", 3,
                "it would with --recompute activation --offload 0.063\n");
    check_hosts("llama-65b.yaml", 20, "--recompute activation --offload 0.063", 0, "It fits");
    check_hosts("llama-175b.yaml", 100, "--solve-offload 64GiB", 3,
                "it would with --recompute full --offload 0\n");
    check_hosts("llama-175b.yaml", 100, "--recompute full --offload 0", 0, "It fits");
}

/* Layers that cannot be divided are split as ergon layout splits them, of which the document says
 * all. */
static void test_layers_that_differ(void **state)
{
    (void)state;
    const char *layout = JOBS "llama-65b.yaml' --layout t=2,c=2,p=8,v=6 --recompute balanced";
    struct erg_text command = {0};
    erg_text_printf(&command, "memory %s", layout);
    check_program(command.data, 0, "1+1+2+2+2+2");
    erg_text_add(&command, " --json");
    json_t *document = run_json(command.data, 0);
    command.count = 0;
    erg_text_printf(&command, "layout %s --json", layout);
    json_t *plan = run_json(command.data, 0);
    const json_t *stages = json_object_get(document, "stages"), *stage;
    const json_t *row = json_array_get(json_object_get(plan, "layouts"), 0);
    const json_t *split = json_object_get(row, "layers");
    size_t s;
    assert_int_equal(json_array_size(split), 48);
    json_array_foreach((json_t *)(uintptr_t)stages, s, stage)
    {
        const json_t *chunks = json_object_get(stage, "chunk_layers");
        assert_int_equal(json_array_size(chunks), 6);
        for (size_t c = 0; c < 6; c++)
            assert_int_equal(json_integer_value(json_array_get(chunks, c)),
                             json_integer_value(json_array_get(split, 8 * c + s)));
    }
    json_decref(plan);
    json_decref(document);
    erg_text_release(&command);
    /* By an engine that does not offload, though the job does. */
    check_program("memory " JOBS "llama-65b.yaml' --layout t=2,p=8,v=7 --batch 256 "
                  "-c layer --engine megatron-h800 2>&1",
                  1, "engine megatron-h800 does not");
    /* Too large with any split: what the fastest one needs. */
    check_program("memory " JOBS "llama-65b.yaml' --gpus 64 --batch 64 --layout p=8,v=6 2>&1", 3,
                  "more than the 72.00 GiB");
    check_program("memory '" ERGON_TEST_SOURCE_DIR
                  "/examples/quickstart.yaml' --layout p=3 --gpus 3 --batch 3 2>&1",
                  2, "expected the key 'engine'");
}

/* Over the link with the adapter what was hidden no longer is; --json has every transfer. */
static void test_a_shared_link(void **state)
{
    (void)state;
    char path[64], command[128];
    snprintf(path, sizeof path, "%s/shared.yaml", folder);
    snprintf(command, sizeof command, "memory %s --engine megatron-kwai-h800 --json", path);
    json_t *found[2];
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file,
                "model: llama-65b\ncluster:\n  nodes: 32\n  gpus_per_node: 8\n"
                "  gpu: H800-SXM-80GB\n  inter_node_bandwidth_gb_s: 100\n%s"
                "tensor: 2\ncontext: 2\npipeline: 8\nvirtual_stages: 5\ndata: 8\n"
                "microbatch_size: 1\nmicrobatches: 32\nsequence: 8192\noffload: 0.8\n",
                i ? "  shared_link_bandwidth_gb_s: 16\n" : "");
        assert_int_equal(fclose(file), 0);
        found[i] = run_json(command, 0);
    }
    assert_int_equal(unlink(path), 0);
    assert_near(number(found[0], "shared_link_s"), 0, 0);
    assert_true(number(found[1], "shared_link_s") > 0.1);
    assert_close(number(found[1], "pipeline_s"),
                 number(found[0], "pipeline_s") + number(found[1], "shared_link_s"), 1e-9);
    const json_t *stage = json_array_get(json_object_get(found[1], "stages"), 3);
    assert_true(number(stage, "copy_wait_s") > 0);
    json_t *passes = json_object_get(stage, "passes");
    json_t *kinds = json_object_get(json_object_get(stage, "transfers"), "kind");
    const size_t groups = 5 * 32; /* chunks x microbatches */
    size_t sends = 0;
    for (size_t i = 0; i < json_array_size(kinds); i++)
        sends += !strcmp(json_string_value(json_array_get(kinds, i)), "send");
    assert_int_equal(sends, 2 * groups);                              /* activations, gradients */
    assert_int_equal(json_array_size(kinds), 2 * sends + 2 * groups); /* received; out and in */
    assert_int_equal(json_array_size(json_object_get(passes, "end_s")), 2 * groups);
    json_decref(found[0]);
    json_decref(found[1]);
}

/* Copies of single layers need smaller buffers. */
static void test_copies_by_layer(void **state)
{
    (void)state;
    json_t *groups = run_json("memory " JOBS "llama-175b.yaml' --json", 0);
    json_t *layers = run_json("memory " JOBS "llama-175b.yaml' --copies layer --json", 0);
    const char *names[] = {"items", "offload_buffers"};
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        const json_t *stage = json_array_get(json_object_get(i ? layers : groups, "stages"), 0);
        bytes[i] = number(json_object_get(stage, names[0]), names[1]);
    }
    assert_close(bytes[1], bytes[0] / 2, 0.001); /* chunks of two layers */
    assert_true(number(layers, "peak_bytes") < number(groups, "peak_bytes") - bytes[0] / 2);
    json_decref(groups);
    json_decref(layers);
}

static void test_models_that_do_not_fit(void **state)
{
    (void)state;
    json_t *document = run_json("memory " JOBS "llama2-7b.yaml' --recompute none --offload 0 "
                                "--json 2>/dev/null",
                                3);
    assert_true(json_is_false(json_object_get(document, "fits")));
    assert_close(number(document, "peak_bytes"), 98.9e9, 0.005);
    json_decref(document);
    /* Norms alone are not enough, and what is enough of the rest is named, not more. */
    check_program("memory " JOBS "llama2-7b.yaml' --recompute none --offload 0 2>&1", 3,
                  "it would with --recompute balanced");
    check_program("memory " JOBS "llama-65b.yaml' --recompute none --offload 0 2>&1", 3,
                  "it would with --recompute activation\n");
    check_program("memory " JOBS "llama-65b.yaml' --recompute activation --offload 0", 0,
                  "It fits");
    check_program("memory " JOBS "llama-175b.yaml' --layout t=2,c=2,p=16,l=1 --recompute none "
                  "--offload 0 2>&1",
                  3, "stage 0 needs 137.");
    check_program("memory " JOBS "llama-175b.yaml' --layout t=2,c=2,p=16,l=1 --offload 0 2>&1", 3,
                  "it would with --offload 0.");
    check_program("memory " JOBS "llama-175b.yaml' --gpus 8 --batch 8 --layout t=8 -a 0 2>&1", 3,
                  "it would with --layout t=8,c=1,p=8,l=12,b=1 --offload 0.041 --gpus 64\n");
    check_program("memory " JOBS "llama-175b.yaml' --gpus 64 --batch 8 --layout t=8,p=8 -a 0.041",
                  0, "It fits");
    check_program("memory " JOBS "llama-175b.yaml' --gpus 1 --batch 1 --layout t=1 "
                  "--solve-offload 1e8 -r none 2>&1",
                  3, "larger degree that was tried is enough; it would fit with ");
    check_program("memory " JOBS "llama-65b.yaml' --layout t=2,c=2,p=8,l=2 -S 1000 2>&1", 3,
                  "it would fit with 27.61 GiB a GPU and --recompute full --offload 1\n");
    check_program("memory " JOBS "llama-65b.yaml' --layout t=2,c=2,p=8,l=2 --recompute full "
                  "--solve-offload 27.61GiB",
                  0, "It fits");
    /* All is offloaded and a little missing: too much for the GPUs, not for a budget. */
    check_program("memory " JOBS "llama-65b.yaml' --gpus 96 --batch 240 "
                  "--layout t=2,c=1,p=4,v=4,b=1 --recompute activation --offload 1 2>&1",
                  3, "0.09 GiB more than the 72.00 GiB");
    check_program("memory " JOBS "llama-65b.yaml' --gpus 96 --batch 240 "
                  "--layout t=2,c=1,p=4,v=4,b=1 --recompute activation --solve-offload 72GiB 2>&1",
                  0, "within the error of this model");
    /* More GPUs are of no use where nothing joins nodes. */
    check_program("memory " JOBS "llama2-7b.yaml' --solve-offload 9GiB 2>&1", 3,
                  "larger degree that was tried is enough");
}

static void test_every_example(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2-7b", "llama-65b", "llama2-70b", "llama-175b"};
    for (int i = 0; i < 4; i++) {
        struct erg_text text = {0};
        erg_text_printf(&text, "memory '%s/examples/kwai/%s.yaml' 2>&1", ERGON_TEST_SOURCE_DIR,
                        names[i]);
        check_program(text.data, 0, "It fits");
        erg_text_release(&text);
    }
    /* Layouts can be asked for of any job. */
    check_program("memory '" ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml' 2>&1", 0,
                  "recompute full");
}

static void test_page(void **state)
{
    (void)state;
    char *html = NULL;
    struct erg_text text = {0};
    struct erg_error err;
    erg_text_printf(&text, "memory " JOBS "llama2-7b.yaml' --report '%s/memory.html'", folder);
    check_program(text.data, 0, "needs most");
    text.count = 0;
    erg_text_printf(&text, "%s/memory.html", folder);
    assert_ok(erg_file_read(text.data, 0, &html, NULL, &err), &err);
    assert_non_null(strstr(html, "\"schema\":\"ergon.memory\""));
    assert_non_null(strstr(html, "function courseChart"));
    assert_null(strstr(html, "@PLAN@"));
    assert_null(strstr(html, "@SCRIPT@"));
    assert_null(strstr(html, "http://www.w3.org/1999")); /* loads nothing */
    assert_null(strstr(html, "<link rel=\"stylesheet\""));
    unlink(text.data);
    free(html);
    erg_text_release(&text);
}

/* What the job's own degrees break is said with its line, as ergon optimize does. */
static void test_wrong_degrees(void **state)
{
    (void)state;
    const struct {
        const char *line, *message;
    } cases[] = {
        {"tensor: 3\ncontext: 1", "wrong.yaml:8: key 'tensor': the 32 attention heads of"},
        {"tensor: 4\ncontext: 3", "wrong.yaml:9: key 'context': a sequence of 4096 tokens cannot"},
        {"tensor: 8\ncontext: 1", "wrong.yaml:3: key 'cluster': the cluster has 8 GPUs (2 nodes x "
                                  "4), but tensor 8 x context 1 x pipeline 2 x data 1 makes 16"},
        {"tensor: 2\ncontext: 1", "wrong.yaml:3: key 'cluster': the cluster has 8 GPUs (2 nodes x "
                                  "4), but tensor 2 x context 1 x pipeline 2 x data 1 makes 4; "
                                  "with data: 2 they would be all used"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text path = {0}, text = {0};
        struct erg_error err;
        erg_text_printf(&path, "%s/wrong.yaml", folder);
        erg_text_printf(&text,
                        "model: llama-2-7b\ncluster:\n  nodes: 2\n  gpus_per_node: 4\n"
                        "  gpu: A100-SXM4-80GB\n  inter_node_bandwidth_gb_s: 50\n"
                        "  inter_node_latency_us: 20\n%s\npipeline: 2\nmicrobatch_size: 1\n"
                        "microbatches: 4\nsequence: 4096\nrecompute: full\n",
                        cases[i].line);
        assert_ok(erg_file_write(path.data, text.data, text.count, &err), &err);
        text.count = 0;
        erg_text_printf(&text, "memory '%s' 2>&1", path.data);
        check_program(text.data, 1, cases[i].message);
        text.count = 0;
        erg_text_printf(&text, "memory '%s' --layout t=2,p=4 2>&1", path.data);
        check_program(text.data, 0, "tensor 2 x context 1 x pipeline 4 x data 1");
        unlink(path.data);
        erg_text_release(&path);
        erg_text_release(&text);
    }
}

static void test_wrong_questions(void **state)
{
    (void)state;
    const struct {
        const char *arguments, *message;
        int exit_code;
    } cases[] = {
        {"--layout t=3 --gpus 3 -a 0", "attention heads", 1},
        {"--layout t=16,p=8 -a 0", "tensor 16 x context 1 are 16 GPUs, more than the 8 of a node",
         1},
        {"--layout t=2,z=1", "is invalid at", 2},
        {"--layout 't=2 p=8'", "after 't=', and commas between parts", 2},
        {"--layout t=2,p=8,l=3", "cannot be cut into chunks of 3 for 8 pipeline stages", 1},
        {"--offload 0.1 --solve-offload 1e10", "expected one of them", 2},
        {"--per-stage", "needs --solve-offload", 2},
        {"--offload 1.5", "--offload", 2},
        {"--gpus 100", "not a multiple", 1},
        {"--batch 255", "a multiple of 8", 1},
        {"--layout p=2 -a 0.5", "at least 3", 1},
        {"--layout t=2", ": 0.2 holds for --layout, too, and offloading needs", 1},
        {"--solve-offload 60gb", "expected a number of bytes like 6e10, 64GiB", 2},
    };
    check_program("memory " JOBS "llama2-7b.yaml' --gpus 16 --layout t=2,p=8 2>&1", 1,
                  "16 GPUs are more than a node of 8");
    /* Groups that nodes have room for, but of which some would lie on two. */
    check_program("memory " JOBS "llama-65b.yaml' --gpus 96 --batch 96 --sequence 6144 "
                  "--layout t=2,c=3,p=8 -a 0 2>&1",
                  1, "makes groups of 6 GPUs, which do not fill nodes of 8 evenly");
    check_program("memory " JOBS "llama-65b.yaml' --gpus 6 --batch 96 --sequence 6144 "
                  "--layout t=2,c=3 -a 0 2>&1",
                  3, "it would fit with 305.89 GiB a GPU");
    /* What was measured on other GPUs says nothing of these. */
    check_program("memory " JOBS "llama-65b.yaml' --engine megatron-a100 2>&1", 1,
                  "is of a GPU with a peak of 312 TFLOP/s, but H800-SXM-80GB has");
    check_program("memory " JOBS "llama-65b.yaml' --layout t=2,p=8,v=7 --batch 256 "
                  "--engine megatron-kwai-a100 2>&1",
                  1, "is of a GPU with a peak of 312 TFLOP/s");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        erg_text_printf(&text, "memory " JOBS "llama-65b.yaml' %s 2>&1", cases[i].arguments);
        check_program(text.data, cases[i].exit_code, cases[i].message);
        erg_text_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_peaks),    cmocka_unit_test(test_solved_ratios),
        cmocka_unit_test(test_copies_by_layer),    cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_a_shared_link),      cmocka_unit_test(test_models_that_do_not_fit),
        cmocka_unit_test(test_every_example),      cmocka_unit_test(test_page),
        cmocka_unit_test(test_wrong_questions),    cmocka_unit_test(test_small_hosts),
        cmocka_unit_test(test_layers_that_differ), cmocka_unit_test(test_wrong_degrees),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
