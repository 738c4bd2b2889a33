/*
 * ergon train records the kernels of traced steps on every rank: on a fake of CUPTI, whose kernels
 * are as many as the pieces of the step.
 */
#define _DEFAULT_SOURCE /* setenv */
#include "folder.h"
#include "json_file.h"
#include "program.h"

#ifdef ERGON_TEST_FAKE_CUPTI

static const char job[] = "model: " ERGON_TEST_SOURCE_DIR "/tests/data/train/llama\n"
                          "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                          "pipeline: 2\nmicrobatch_size: 2\nmicrobatches: 4\nsequence: 16\n"
                          "train:\n"
                          "  data: [{file: text, type: uint16}]\n"
                          "  updates: 8\n  learning_rate: 0.01\n  log_every: 1\n"
                          "  trace_every: 6\n  trace_kernels: true\n";

/* Both ranks, and what they say. */
static void train(const char *words, const char *run, const char *part)
{
    struct erg_text line = {0};
    setenv("ERGON_CUPTI", ERGON_TEST_FAKE_CUPTI, 1);
    setenv("ERGON_FAKE_CUPTI", words, 1);
    erg_text_printf(
        &line, "run -n 2 -- " ERGON_TEST_PROGRAM " train %s/job.yaml --device host -o %s/%s 2>&1",
        folder, folder, run);
    check_program(line.data, 0, part);
    erg_text_release(&line);
}

static size_t count_names(const json_t *events, const char *category, const char *part)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *cat = json_string_value(json_object_get(event, "cat"));
        count += cat && strcmp(cat, category) == 0 &&
                 strstr(json_string_value(json_object_get(event, "name")), part);
    }
    return count;
}

static void test_files(void **state)
{
    (void)state;
    struct erg_error err;
    train("", "run", "; the step took ");
    for (int rank = 0; rank < 2; rank++) {
        static const char *const suffixes[] = {"json", "et", "chakra.json"};
        struct erg_text path = {0};
        json_t *root;
        for (int i = 2; i >= 0; i--) {
            path.count = 0;
            erg_text_printf(&path, "%s/run/kernels-00000006.rank-%d.%s", folder, rank, suffixes[i]);
            assert_int_equal(access(path.data, R_OK), 0);
        }
        assert_ok(load_json(&root, path.data, &err), &err);
        const json_t *events = json_object_get(root, "traceEvents");
        /* A kernel for each piece of the step, and a piece over it; a copy to the host, one between
         * GPUs and a fill. */
        size_t pieces = count_names(events, "gpu_user_annotation", "");
        assert_int_equal(count_names(events, "kernel", "fake_gemm_"), pieces);
        assert_int_equal(count_names(events, "gpu_user_annotation", "forward "), 4);
        assert_int_equal(count_names(events, "gpu_user_annotation", "backward "), 4);
        assert_int_equal(count_names(events, "gpu_user_annotation", "message"), 8);
        assert_int_equal(count_names(events, "gpu_user_annotation", "update"), 1);
        assert_int_equal(count_names(events, "gpu_memcpy", ""), 2);
        assert_int_equal(count_names(events, "gpu_memset", ""), 1);
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(root, "distributedInfo"), "rank")),
            rank);
        json_decref(root);
        path.count = 0;
        erg_text_printf(&path, "import kineto %s/run/kernels-00000006.rank-%d.json", folder, rank);
        check_program(path.data, 0, "  MatMul ");
        erg_text_release(&path);
    }
    assert_int_not_equal(access(in_folder("run/kernels-00000005.rank-0.json"), F_OK), 0);
}

/* A trace that cannot be had is a warning, and training goes on. */
static void test_refusals(void **state)
{
    (void)state;
    train("drop=5", "run-drop", "no kernels of step 6: CUPTI dropped 5 records of kernels");
    assert_int_not_equal(access(in_folder("run-drop/kernels-00000006.rank-0.json"), F_OK), 0);
    assert_int_equal(access(in_folder("run-drop/trace-00000006.json"), F_OK), 0);
    train("version=120000", "run-old", "no kernels of traced steps: CUPTI here has version 120000");
    assert_int_equal(access(in_folder("run-old/trace-00000006.json"), F_OK), 0);
    struct erg_text text = {0};
    erg_text_add(&text, job);
    memcpy(strstr(text.data, "trace_every: 6"), "trace_every: 0", 14);
    write_text("none.yaml", text.data);
    erg_text_release(&text);
    struct erg_text line = with_folder("train @/none.yaml --device host -o @/none 2>&1");
    check_program(line.data, 1,
                  "train.trace_kernels': expected false while train.trace_every is 0");
    erg_text_release(&line);
}

static int prepare(void **state)
{
    uint16_t tokens[4000];
    struct erg_error err;
    if (make_folder(state) != 0)
        return -1;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i * i % 499);
    return erg_file_write(in_folder("text"), (const char *)tokens, sizeof tokens, &err) ||
                   erg_file_write(in_folder("job.yaml"), job, strlen(job), &err)
               ? -1
               : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, prepare, remove_folder);
}

#else

int main(void)
{
    puts("built without the header of CUPTI");
    return 0;
}

#endif
