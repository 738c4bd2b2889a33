/* ergon simulate --sweep: results in a folder, parts under Slurm, and its refusals. */
#include "commands.h"
#include "io/csv.h"
#include "json_file.h"

#include <sys/stat.h>

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/cluster"
#define SWEEP                                                                                      \
    "clusters: [" DATA "/cluster.yaml]\n"                                                          \
    "traces: [" DATA "/trace.csv]\n"                                                               \
    "profiles: " DATA "\n"                                                                         \
    "policies: [fcfs, elasticflow-ls]\n"                                                           \
    "loads: [1, 2]\nseeds: 3\nresample: true\n"

/* simulate --sweep FOLDER/sweep.yaml -o FOLDER/output, with more arguments. */
static const char *line(const char *output, const char *more)
{
    static struct erg_text text;
    struct erg_error err;
    assert_ok(erg_file_write(in_folder("sweep.yaml"), SWEEP, strlen(SWEEP), &err), &err);
    text.count = 0;
    erg_text_printf(&text, "simulate --sweep \"%s\" -o \"%s\" %s", in_folder("sweep.yaml"),
                    in_folder(output), more);
    return text.data;
}

static char *read_text(const char *path)
{
    struct erg_error err;
    char *text;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    return text;
}

static void test_results(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_csv *rows;
    json_t *written, *document = run_json(line("all", "--json 2>/dev/null"), 0);
    assert_string_equal(text_at(document, "schema"), "ergon.sweep");
    assert_int_equal(number_at(document, "points"), 12);
    assert_int_equal(number_at(document, "missing"), 0);
    assert_string_equal(text_at(document, "reference"), "fcfs");
    assert_true(number_at(document,
                          "groups.0.loads.1.policies.1.metrics.mean_jct_s.difference.half_width") >
                0);
    assert_ok(load_json(&written, in_folder("all/sweep.json"), &err), &err);
    assert_true(json_equal(document, written));
    json_decref(written);
    json_decref(document);
    assert_ok(erg_csv_load(&rows, in_folder("all/sweep.csv"), &err), &err);
    assert_int_equal(erg_csv_rows(rows), 12);
    erg_csv_free(rows);
    char *page = read_text(in_folder("all/report.html"));
    assert_non_null(strstr(page, "\"schema\":\"ergon.sweep\""));
    free(page);
    check_program(line("all", ""), 0, "elasticflow-ls");
    check_program(line("all", ""), 0, "load 2");
}

/* Each once, by policy and with its line, whatever copies of it the seeds drew; so it is again when
 * all results are in the store. */
static void test_names_unserved_jobs(void **state)
{
    (void)state;
    static const char rows[] =
        "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,global_batch,num_gpus,"
        "gpu_type\n"
        "first,0,10,bert,1B,,64,4,big\n"
        "second,0,10,bert,1B,,64,512,big\n"
        "third,0,10,gpt,1B,,64,4,big\n";
    static const char sweep[] = "clusters: [" DATA "/cluster.yaml]\n"
                                "traces: [unfit.csv]\n"
                                "profiles: " DATA "\n"
                                "policies: [fcfs, gavel, ergon]\n"
                                "loads: [1, 2]\nseeds: 8\nresample: true\n";
    static const char *const sentences[] = {
        "unfit.csv:3: policy fcfs rejects job 'second', which asks for 512 GPUs of type big: ",
        "unfit.csv:3: policy gavel rejects job 'second', which asks for 512 GPUs of type big: ",
        "unfit.csv:4: job 'third' can never run: no profile of gpt 1B at batch 64 fits any GPUs",
    };
    struct erg_error err;
    struct erg_text command = {0};
    assert_ok(erg_file_write(in_folder("unfit.csv"), rows, strlen(rows), &err), &err);
    assert_ok(erg_file_write(in_folder("unfit.yaml"), sweep, strlen(sweep), &err), &err);
    erg_text_printf(&command, "simulate --sweep \"%s\"", in_folder("unfit.yaml"));
    erg_text_printf(&command, " -o \"%s\" 2>&1", in_folder("unfit"));
    for (int again = 0; again < 2; again++) {
        struct program_result result = run_program(command.data);
        assert_int_equal(result.exit_code, 0);
        for (size_t i = 0; i < 3; i++) {
            const char *at = strstr(result.out.data, sentences[i]);
            assert_non_null(at);
            assert_null(strstr(at + 1, sentences[i]));
        }
        assert_null(strstr(result.out.data, "policy ergon"));
        erg_text_release(&result.out);
    }
    json_t *document;
    assert_ok(load_json(&document, in_folder("unfit/sweep.json"), &err), &err);
    /* 'second' under two policies, 'third' under all three. */
    assert_int_equal(json_array_size(json_at(document, "groups.0.unserved")), 5);
    assert_string_equal(text_at(document, "groups.0.unserved.0.policy"), "fcfs");
    assert_string_equal(text_at(document, "groups.0.unserved.1.policy"), "gavel");
    assert_int_equal(number_at(document, "groups.0.unserved.1.line"), 3);
    assert_string_equal(text_at(document, "groups.0.unserved.1.fate"), "turned_away");
    assert_string_equal(text_at(document, "groups.0.unserved.4.policy"), "ergon");
    assert_string_equal(text_at(document, "groups.0.unserved.4.fate"), "nowhere");
    json_decref(document);
    erg_text_release(&command);
}

/*
 * The script under a Slurm that runs every task at once, in order, and the merging job after them:
 * it gives what one run gives.
 */
static void test_slurm(void **state)
{
    (void)state;
    static const char sbatch[] = "#!/bin/sh\n"
                                 "case $1 in\n"
                                 "--parsable) for task in 1 2 3 4; do\n"
                                 "    SLURM_ARRAY_TASK_ID=$task sh \"$2\" || exit\n"
                                 "  done\n"
                                 "  echo '17;here' ;;\n"
                                 "--dependency=afterany:17) SLURM_ARRAY_TASK_ID=0 sh \"$3\" ;;\n"
                                 "*) exit 9 ;;\n"
                                 "esac\n";
    struct erg_error err;
    struct erg_text command = {0};
    struct stat info;
    json_t *apart, *whole;
    assert_ok(erg_file_write(in_folder("sbatch"), sbatch, strlen(sbatch), &err), &err);
    assert_int_equal(chmod(in_folder("sbatch"), 0755), 0);
    erg_text_printf(&command, "--slurm 4 > \"%s\"", in_folder("it's.sbatch"));
    check_program(line("it's apart", command.data), 0, "");
    command.count = 0;
    erg_text_printf(&command, "cd / && bash -n \"%s\" && PATH=\"%s:$PATH\" sh \"%s\" > /dev/null",
                    in_folder("it's.sbatch"), folder, in_folder("it's.sbatch"));
    assert_int_equal(system(command.data), 0);
    assert_int_equal(stat(in_folder("it's apart/parts/4-of-4.db"), &info), 0);
    assert_ok(load_json(&apart, in_folder("it's apart/sweep.json"), &err), &err);
    whole = run_json(line("whole", "--json 2>/dev/null"), 0);
    assert_true(json_equal(apart, whole));
    json_decref(apart);
    json_decref(whole);
    static const char *const files[] = {"sweep.csv", "sweep.json", "report.html"};
    for (size_t i = 0; i < 3; i++) { /* equal seeds, equal bytes */
        command.count = 0;
        erg_text_printf(&command, "cmp \"%s/it's apart/%s\" '%s/whole/%s'", folder, files[i],
                        folder, files[i]);
        assert_int_equal(system(command.data), 0);
    }
    erg_text_release(&command);
}

static void test_refusals(void **state)
{
    (void)state;
    check_program("simulate --sweep x.yaml 2>&1", 2, "--sweep needs --output DIR");
    check_program("simulate a.yaml --sweep x.yaml -o y 2>&1", 2,
                  "a.yaml: expected it as a key of the --sweep file");
    check_program("simulate --sweep x.yaml -o y -p fcfs 2>&1", 2,
                  "--policy: expected it as a key of the --sweep file");
    check_program("simulate --sweep x.yaml -o y -W 1 2>&1", 2,
                  "--work: expected it as a key of the --sweep file");
    check_program("simulate --sweep x.yaml -o y --seed 0 2>&1", 2,
                  "--seed: expected it as a key of the --sweep file");
    check_program("simulate --sweep /nowhere/x.yaml -o y 2>&1", 1, "'/nowhere/x.yaml'");
    check_program("simulate c.yaml t.csv -p fcfs -P d --part 1/2 2>&1", 2,
                  "--part was given without --sweep");
    check_program("simulate c.yaml -p fcfs -P d 2>&1", 2, "needs CLUSTER.yaml TRACE.csv");
    static const char *const parts[] = {"0/4", "5/4",  "1",    "1/4x", "a/b",
                                        "1/0", "2/-8", "+2/8", "2/+8"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct erg_text more = {0};
        erg_text_printf(&more, "--part %s 2>&1", parts[i]);
        check_program(line("refused", more.data), 2, "expected K/N with K from 1 to N");
        erg_text_release(&more);
    }
    check_program(line("refused", "--part 1/2 --slurm 3 2>&1"), 2, "exclude each other");
    check_program(line("refused", "--part 1/2 --json 2>&1"), 2,
                  "--json was given with --part or --slurm");
    check_program(line("refused", "--slurm 13 2>&1"), 2, "13 tasks for 12 simulations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_names_unserved_jobs),
        cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
