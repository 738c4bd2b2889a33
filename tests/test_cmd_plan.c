/* ergon plan: its document, its tables, its files and its refusals. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "program.h"

#include "io/file.h"
#include "io/json.h"
#include "layout/memory.h"

#include <unistd.h>

#define JOB "'" ERGON_TEST_SOURCE_DIR "/examples/kwai/llama-65b.yaml'"
static char folder[] = "/tmp/ergon-plan-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static json_t *document_of(const char *arguments)
{
    struct program_result result = run_program(arguments);
    struct erg_error err;
    json_t *document = NULL;
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_json_parse(&document, "output", result.out.data, result.out.count, &err), &err);
    erg_text_release(&result.out);
    return document;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* The best of all: in order, within memory, with GPUs and batch as asked, and adding up. */
static void test_document(void **state)
{
    (void)state;
    json_t *document =
        document_of("plan " JOB " --gpus 64 --sequence 4096 --batch 256 --top 7 --json");
    const json_t *layouts = json_object_get(document, "layouts"),
                 *tried = json_object_get(document, "tried");
    assert_int_equal(number(document, "schema_version"), 1);
    assert_int_equal(json_array_size(layouts), 7);
    assert_near(number(tried, "evaluated"),
                number(tried, "feasible") + number(tried, "slower") + number(tried, "memory") +
                    number(tried, "host_memory"),
                0);
    double before = 0, budget = number(document, "memory_budget_bytes");
    for (size_t i = 0; i < 7; i++) {
        const json_t *layout = json_array_get(layouts, i), *item;
        const char *name;
        double sum = 0;
        json_object_foreach(json_object_get(layout, "time_items_s"), name, item) sum +=
            json_number_value(item);
        assert_close(sum, number(layout, "time_s"), 1e-9);
        assert_near(number(layout, "t") * number(layout, "c") * number(layout, "p") *
                        number(layout, "d"),
                    64, 0);
        assert_near(number(layout, "microbatch") * number(layout, "microbatches") *
                        number(layout, "d"),
                    256, 0);
        assert_close(number(layout, "tokens_per_s"), 256 * 4096 / number(layout, "time_s"), 1e-9);
        assert_true(number(layout, "peak_bytes") <= (1 + ERG_MEMORY_ERROR) * budget);
        sum = 0;
        json_object_foreach(json_object_get(layout, "energy_items_j"), name, item) sum +=
            json_number_value(item);
        assert_close(sum, number(layout, "energy_j"), 1e-9);
        assert_close(number(layout, "gpu_power_w"),
                     number(layout, "energy_j") / number(layout, "time_s") / 64, 1e-6);
        assert_true(number(layout, "time_s") >= before);
        before = number(layout, "time_s");
    }
    json_decref(document);
}

/* One of the published iterations: 256 GPUs, 233981 tokens/s at an offload ratio of 0.355. */
static void test_one_layout(void **state)
{
    (void)state;
    json_t *document = document_of("plan " JOB " --sequence 4096 --recompute none "
                                   "--memory 68719476736 --layout t=2,p=8,l=2 --json");
    const json_t *layout = json_array_get(json_object_get(document, "layouts"), 0);
    assert_int_equal(json_array_size(json_object_get(document, "layouts")), 1);
    assert_close(number(layout, "tokens_per_s"), 233981, 0.03);
    assert_near(number(layout, "offload"), 0.355, 0.02);
    assert_int_equal(number(layout, "d"), 16);
    json_decref(document);
}

static void check_output(const char *arguments, int exit_code, const char *expected)
{
    struct program_result result = run_program(arguments);
    if (result.exit_code != exit_code || !strstr(result.out.data, expected))
        fail_msg("ergon %s: exit %d, expected %d with \"%s\", got\n%s", arguments, result.exit_code,
                 exit_code, expected, result.out.data);
    erg_text_release(&result.out);
}

static void test_tables(void **state)
{
    (void)state;
    check_output("plan " JOB " --top 3", 0, "times of the engine megatron-kwai-h800");
    check_output("plan " JOB " --why t=8,p=4,l=2 --recompute balanced", 0,
                 "slower than the fastest");
    check_output("plan " JOB " --layout t=2,c=2,p=8,l=2", 0, "where the time goes");
    check_output("plan " JOB " --layout t=2,c=2,p=8,l=2 --export megatron", 0,
                 "--pipeline-model-parallel-size 8");
    check_output("plan " JOB " --export torchtitan", 0, "[parallelism]");
}

/* The job with the fastest layout is one that other commands take. */
static void test_files(void **state)
{
    (void)state;
    char command[400], path[200];
    snprintf(command, sizeof command, "plan " JOB " --top 3 -o %s", folder);
    check_output(command, 0, "the fastest as a job");
    snprintf(command, sizeof command, "memory %s/job.yaml", folder);
    check_output(command, 0, "It fits");
    /* On another cluster, and on GPUs that do not fill its nodes, too. */
    snprintf(command, sizeof command,
             "plan " JOB " --cluster '" ERGON_TEST_SOURCE_DIR
             "/data/clusters/2x8-a100-sxm4-40gb.yaml' --gpus 12 --batch 240 --sequence 2048 "
             "--memory 1.2e11 --top 1 -o %s",
             folder);
    check_output(command, 0, "on 12 A100-SXM4-40GB");
    snprintf(command, sizeof command, "plan %s/job.yaml --top 1 --memory 1.2e11", folder);
    check_output(command, 0, "on 12 A100-SXM4-40GB");
    static const char *const names[] = {"layouts.json", "layouts.html", "job.yaml"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    check_output("plan '" ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml' 2>&1", 2,
                 "expected the key 'engine'");
    check_output("plan " JOB " --engine megatron-h801 2>&1", 1, "did you mean");
    check_output("plan " JOB " --layout t=3 2>&1", 1, "--layout t=3");
    check_output("plan " JOB " --layout t=1,p=4,l=20 2>&1", 3, "--layout t=1,p=4,l=20");
    check_output("plan " JOB " --layout t=2 --why t=4 2>&1", 2, "expected one of them");
    check_output("plan " JOB " --why t=4 --json 2>&1", 2, "--why is text for people");
    check_output("plan " JOB " --layout t=4 -o /nowhere 2>&1", 2, "--output writes all layouts");
    check_output("plan " JOB " --export megatron --json 2>&1", 2, "expected one of them");
    check_output("plan " JOB " --gpus 1 --batch 4 2>&1", 3, "GiB");
    check_output("plan " JOB " --batch-slack 2 2>&1", 2, "batch-slack");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document), cmocka_unit_test(test_one_layout),
        cmocka_unit_test(test_tables),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
