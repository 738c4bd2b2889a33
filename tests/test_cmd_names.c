/* Names of any bytes, of GPUs, arguments, files and jobs: documents stay whole, and valid UTF-8. */
#include "commands.h"
#include "json_file.h"
#include "side_by_side.h"

#include "io/csv.h"

#define FFFD "\xEF\xBF\xBD"
#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/cluster"

static const char world[] = "gpus 2\n"
                            "gpu 0 name \xf8NVIDIA\xae A100\n"
                            "gpu 1 name \xED\xA0\x80 \"quoted\\\" \xC0\xAF\n"
                            "gpu 1 uuid GPU-b\xff,\"x\n"
                            "gpu * power 0=300\n";
static const char first_name[] = FFFD "NVIDIA" FFFD " A100";
static const char second_name[] = FFFD FFFD FFFD " \"quoted\\\" " FFFD FFFD;
static const char second_uuid[] = "GPU-b" FFFD ",\"x";

static void check_gpus(json_t *root)
{
    assert_int_equal(json_array_size(json_at(root, "gpus")), 2);
    assert_string_equal(text_at(root, "gpus.0.name"), first_name);
    assert_string_equal(text_at(root, "gpus.1.name"), second_name);
    assert_string_equal(text_at(root, "gpus.1.uuid"), second_uuid);
    json_decref(root);
}

static void test_gpus_of_any_name(void **state)
{
    (void)state;
    set_world(world);
    check_gpus(run_json("monitor --once --json", 0));
    check_gpus(run_json("doctor --json", 0));
    check_gpus(run_json("measure --json -- sleep 0.3", 0));
    struct program_result table = run_program("measure -- true $(printf 'caf\\351') 2>&1");
    assert_true(erg_utf8_is_valid(table.out.data, table.out.count));
    erg_text_release(&table.out);
}

static void test_recordings_of_any_name(void **state)
{
    (void)state;
    struct erg_text arguments = {0};
    struct erg_error err;
    struct erg_csv *csv;
    size_t uuid, rows = 0;
    set_world(world);
    erg_text_printf(&arguments, "record -o %s -d 0.5 2>&1", in_folder("r.rec"));
    check_program(arguments.data, 0, "");
    arguments.count = 0;
    erg_text_printf(&arguments, "export %s -f csv -o %s", in_folder("r.rec"), in_folder("r.csv"));
    check_program(arguments.data, 0, "");
    assert_ok(erg_csv_load(&csv, in_folder("r.csv"), &err), &err);
    assert_ok(erg_csv_require(csv, "gpu_uuid", &uuid, &err), &err);
    for (size_t i = 0; i < erg_csv_rows(csv); i++)
        rows += strcmp(erg_csv_text(csv, i, uuid), second_uuid) == 0;
    assert_true(rows > 2 && rows < erg_csv_rows(csv));
    erg_csv_free(csv);
    arguments.count = 0;
    erg_text_printf(&arguments, "export %s -f jsonl", in_folder("r.rec"));
    struct program_result lines = run_program(arguments.data);
    size_t found = 0;
    for (char *rest = lines.out.data, *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        json_t *sample;
        assert_ok(erg_json_parse(&sample, "line", line, strlen(line), &err), &err);
        found += strcmp(text_at(sample, "gpu_uuid"), second_uuid) == 0;
        json_decref(sample);
    }
    assert_int_equal(found, rows);
    erg_text_release(&lines.out);
    erg_text_release(&arguments);
}

/* A path opens with its own bytes and is shown as UTF-8. */
static void test_arguments_and_files_of_any_name(void **state)
{
    (void)state;
    struct erg_text arguments = {0}, command = {0};
    set_world(world);
    json_t *root = run_json("measure --json -- true $(printf 'caf\\351') 2>/dev/null", 0);
    assert_int_equal(json_array_size(json_at(root, "command")), 2);
    assert_string_equal(text_at(root, "command.1"), "caf" FFFD);
    json_decref(root);
    erg_text_printf(&command, "cp '%s/examples/quickstart.yaml' '%s/caf\xe9.yaml'",
                    ERGON_TEST_SOURCE_DIR, folder);
    assert_int_equal(system(command.data), 0);
    erg_text_printf(&arguments, "memory '%s/caf\xe9.yaml' --json", folder);
    root = run_json(arguments.data, 0);
    const char *job = text_at(root, "job");
    assert_non_null(strstr(job, "caf" FFFD));
    json_decref(root);
    erg_text_release(&command);
    erg_text_release(&arguments);
}

static void test_jobs_of_any_name(void **state)
{
    (void)state;
    static const char trace[] =
        "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,global_batch,num_gpus,"
        "gpu_type,tenant\n"
        "Jos\xe9-1,1000,3000,bert,1B,20000,64,4,big,vision\xff\n"
        "nowhere\xe9,1010,1000,bert,9B,,64,8,big,speech\n";
    static const char *const files[] = {"trace.json", "summary.json"};
    struct erg_error err;
    struct erg_text arguments = {0};
    assert_ok(erg_file_write(in_folder("jobs.csv"), trace, sizeof trace - 1, &err), &err);
    erg_text_printf(&arguments,
                    "simulate '" DATA "/cluster.yaml' %s --profiles '" DATA
                    "' -p fcfs --json -o %s 2>/dev/null",
                    in_folder("jobs.csv"), in_folder("out"));
    json_t *root = run_json(arguments.data, 0);
    assert_string_equal(text_at(root, "unserved.0.job"), "nowhere" FFFD);
    json_decref(root);
    size_t named = 0;
    for (size_t i = 0; i < 2; i++) {
        struct erg_text path = {0};
        erg_text_printf(&path, "%s/out/%s", folder, files[i]);
        char *text;
        assert_ok(load_json(&root, path.data, &err), &err); /* is JSON */
        assert_ok(erg_file_read(path.data, 0, &text, NULL, &err), &err);
        named += strstr(text, "Jos" FFFD "-1") != NULL;
        free(text);
        json_decref(root);
        erg_text_release(&path);
    }
    assert_true(named >= 1);
    erg_text_release(&arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_of_any_name),
        cmocka_unit_test(test_recordings_of_any_name),
        cmocka_unit_test(test_arguments_and_files_of_any_name),
        cmocka_unit_test(test_jobs_of_any_name),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
