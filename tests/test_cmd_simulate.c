/* ergon simulate: its document, its tables and its refusals, on a small case of our own. */
#include "commands.h"
#include "io/csv.h"
#include "io/file.h"

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/cluster"
#define CASE "simulate '" DATA "/cluster.yaml' '" DATA "/trace.csv' --profiles '" DATA "' "

/*
 * 'first' takes 60 + 3000 s; 'second' needs both big nodes and waits; 'third' takes a small one;
 * 'fourth' has no profile; 'fifth' names no type and waits for 'second', which is older.
 */
static void test_document(void **state)
{
    (void)state;
    json_t *document = run_json(CASE "--policy fcfs --json 2>/dev/null", 0);
    assert_string_equal(json_string_value(json_object_get(document, "schema")), "ergon.simulation");
    assert_int_equal(number(document, "submitted_jobs"), 5);
    assert_int_equal(number(document, "finished_jobs"), 4);
    assert_int_equal(number(document, "unrunnable_jobs"), 1);
    assert_int_equal(json_array_size(json_object_get(document, "unserved")), 1);
    assert_string_equal(text_at(document, "unserved.0.job"), "fourth");
    assert_string_equal(text_at(document, "unserved.0.fate"), "nowhere");
    assert_int_equal(number_at(document, "unserved.0.line"), 5);
    assert_near(number(document, "peak_throughput"), 100 + 8, 0);
    assert_true(number(document, "energy_j") > 0);
    assert_near(number(document, "deadlines_met"), 0.5, 0);
    json_decref(document);
}

/* A policy that cannot run a job as it was asked for says so; one that runs it otherwise does not.
 */
static void test_names_jobs_that_do_not_fit(void **state)
{
    (void)state;
    static const char rows[] =
        "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,global_batch,num_gpus,"
        "gpu_type\n"
        "first,0,10,bert,1B,,64,512,big\n"
        "second,0,10,bert,1B,,64,1,\n"
        "third,0,10,bert,1B,,64,4,big\n";
    static const char *const policies[] = {"fcfs", "gandiva", "tiresias", "gavel", "arena"};
    struct erg_error err;
    struct erg_text line = {0};
    assert_ok(erg_file_write(in_folder("unfit.csv"), rows, strlen(rows), &err), &err);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        line.count = 0;
        erg_text_printf(&line,
                        "simulate '" DATA "/cluster.yaml' '%s/unfit.csv' --profiles '" DATA
                        "' --policy %s 2>&1",
                        folder, policies[i]);
        struct program_result result = run_program(line.data);
        assert_int_equal(result.exit_code, 0);
        assert_non_null(strstr(result.out.data, "unfit.csv:3: policy "));
        assert_non_null(strstr(result.out.data, "job 'second', which asks for 1 GPU of any type: "
                                                "no profile of bert 1B at batch 64 fits those"));
        if (i < 4) { /* Arena runs it on fewer */
            assert_non_null(strstr(result.out.data, "unfit.csv:2: policy "));
            assert_non_null(strstr(result.out.data,
                                   "rejects job 'first', which asks for 512 GPUs of type "
                                   "big: no profile of bert 1B at batch 64 fits those in at most "
                                   "300 s an iteration"));
        }
        assert_null(strstr(result.out.data, "third"));
        erg_text_release(&result.out);
    }
    line.count = 0;
    erg_text_printf(&line,
                    "simulate '" DATA "/cluster.yaml' '%s/unfit.csv' --profiles '" DATA
                    "' --policy ergon 2>&1",
                    folder);
    struct program_result result = run_program(line.data);
    assert_null(strstr(result.out.data, "policy"));
    assert_non_null(strstr(result.out.data, "3 of 3 jobs finished"));
    erg_text_release(&result.out);
    erg_text_release(&line);
}

static void test_tables(void **state)
{
    (void)state;
    struct erg_text line = {0};
    struct erg_csv *jobs, *events, *cluster;
    struct erg_error err;
    erg_text_printf(&line, CASE "--policy fcfs -o '%s' 2>&1", folder);
    struct program_result result = run_program(line.data);
    assert_int_equal(result.exit_code, 0);
    assert_non_null(strstr(result.out.data, "4 of 5 jobs finished"));
    assert_non_null(strstr(result.out.data, "trace.csv:5: job 'fourth' can never run"));
    assert_non_null(strstr(result.out.data, "1 of them can run on no GPUs"));
    assert_ok(erg_csv_load(&jobs, in_folder("jobs.csv"), &err), &err);
    assert_ok(erg_csv_load(&events, in_folder("events.csv"), &err), &err);
    assert_ok(erg_csv_load(&cluster, in_folder("cluster.csv"), &err), &err);
    assert_int_equal(erg_csv_rows(jobs), 5);
    static const char *const columns[] = {"job_id", "tenant", "state", "started_s", "ended_s"};
    static const char *const expected[][5] = {{"first", "vision", "ended", "0", "3060"},
                                              {"second", "speech", "ended", "3060", "3760"},
                                              {"third", "vision", "ended", "20", "4080"},
                                              {"fourth", "speech", "rejected", "", ""},
                                              {"fifth", "vision", "ended", "3760", "4020"}};
    for (size_t row = 0; row < 5; row++)
        for (size_t i = 0; i < 5; i++) {
            size_t column;
            assert_ok(erg_csv_require(jobs, columns[i], &column, &err), &err);
            assert_string_equal(erg_csv_text(jobs, row, column), expected[row][i]);
        }
    assert_int_equal(erg_csv_rows(events), 5 + 1 + 4 + 4);
    size_t gpus;
    assert_ok(erg_csv_require(events, "gpus", &gpus, &err), &err);
    assert_string_equal(erg_csv_text(events, 0, gpus), "");       /* first is submitted, */
    assert_string_equal(erg_csv_text(events, 1, gpus), "0:1111"); /* and starts */
    assert_true(erg_csv_rows(cluster) > 5);
    erg_csv_free(jobs);
    erg_csv_free(events);
    erg_csv_free(cluster);
    erg_text_release(&line);
    erg_text_release(&result.out);
}

/* Two nodes for each kind; those that no job has go off after 100 s. */
static void test_power_saving(void **state)
{
    (void)state;
    static const char cluster[] =
        "types:\n"
        "  - {name: big, nodes: 2, gpus_per_node: 4, memory_gb: 80, idle_power_w: 60}\n"
        "  - {name: small, nodes: 2, gpus_per_node: 2, memory_gb: 24, idle_power_w: 20,\n"
        "     off_power_w: 3}\n"
        "power_saving: {after_s: 100, wake_s: 30}\n";
    struct erg_text line = {0};
    struct erg_csv *events, *course;
    struct erg_error err;
    size_t kind, off, most = 0, offs = 0, wakes = 0;
    json_t *document = run_json(CASE "--policy fcfs --json 2>/dev/null", 0);
    assert_true(json_is_null(json_object_get(document, "off_gpu_s")));
    assert_true(json_is_null(json_object_get(document, "wake_ups")));
    json_decref(document);
    assert_ok(erg_file_write(in_folder("saving.yaml"), cluster, strlen(cluster), &err), &err);
    erg_text_printf(&line,
                    "simulate '%s/saving.yaml' '" DATA "/trace.csv' --profiles '" DATA
                    "' --policy fcfs --json -o '%s/saving' 2>/dev/null",
                    folder, folder);
    document = run_json(line.data, 0);
    assert_ok(erg_csv_load(&events, in_folder("saving/events.csv"), &err), &err);
    assert_ok(erg_csv_load(&course, in_folder("saving/cluster.csv"), &err), &err);
    assert_ok(erg_csv_require(events, "event", &kind, &err), &err);
    assert_ok(erg_csv_require(course, "off_gpus", &off, &err), &err);
    for (size_t row = 0; row < erg_csv_rows(events); row++) {
        offs += !strcmp(erg_csv_text(events, row, kind), "off");
        wakes += !strcmp(erg_csv_text(events, row, kind), "wake");
    }
    for (size_t row = 0; row < erg_csv_rows(course); row++) {
        size_t gpus = (size_t)atol(erg_csv_text(course, row, off));
        most = gpus > most ? gpus : most;
    }
    /* 'second' wakes the big node that 'first' does not have. */
    assert_true(number(document, "wake_ups") >= 1);
    assert_int_equal(number(document, "wake_ups"), wakes);
    assert_true(offs > wakes && most >= 4);
    assert_true(number(document, "off_gpu_s") > 4 * 2900);
    json_decref(document);
    erg_csv_free(events);
    erg_csv_free(course);
    line.count = 0;
    erg_text_printf(
        &line, "simulate '%s/saving.yaml' '" DATA "/trace.csv' --profiles '" DATA "' --policy fcfs",
        folder);
    check_program(line.data, 0, "GPUs of nodes that were off");
    erg_text_release(&line);
}

/* Several policies: a folder each, one page and one document. */
static void test_comparison(void **state)
{
    (void)state;
    struct erg_text line = {0};
    size_t bytes;
    struct erg_error err;
    erg_text_printf(&line, CASE "--policy fcfs,elasticflow-ls -o '%s' --json 2>/dev/null",
                    in_folder("both"));
    json_t *document = run_json(line.data, 0), *policies = json_object_get(document, "policies");
    assert_string_equal(json_string_value(json_object_get(document, "schema")),
                        "ergon.simulations");
    assert_int_equal(json_array_size(policies), 2);
    const json_t *second = json_array_get(policies, 1);
    assert_string_equal(json_string_value(json_object_get(second, "policy")), "elasticflow-ls");
    json_decref(document);
    static const char *const files[] = {"both/fcfs/summary.json", "both/elasticflow-ls/trace.json",
                                        "both/report.html"};
    char *text = NULL;
    for (size_t i = 0; i < 3; i++) {
        free(text);
        assert_ok(erg_file_read(in_folder(files[i]), 1 << 24, &text, &bytes, &err), &err);
    }
    assert_non_null(strstr(text, "\"name\":\"elasticflow-ls\""));
    assert_non_null(strstr(text, "\"uses\":[["));
    free(text);
    erg_text_release(&line);
    check_program(CASE "-p fcfs,elasticflow-ls,fcfs 2>&1", 2, "'fcfs' is listed twice");
    check_program(CASE "-p fcfs, 2>&1", 2, "unknown policy ''");
}

/* The failure of the only node that it is on sends 'third' back; drawn failures follow the seed. */
static void test_failures(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text line = {0};
    const char *rows = "node,from_s,to_s\n2,1000,2000\n3,0,\n";
    assert_ok(erg_file_write(in_folder("outages.csv"), rows, strlen(rows), &err), &err);
    erg_text_printf(&line, CASE "--policy fcfs --outages '%s' --json 2>/dev/null",
                    in_folder("outages.csv"));
    json_t *document = run_json(line.data, 0);
    /* From 2000 s on again: 60 + 4000 s. */
    assert_near(number(document, "simulated_s"), 6060, 1e-6);
    json_decref(document);
    static const char drawn[] = CASE "-p elasticflow-ls -m 1 -R 0.2 -r 40 %s --json 2>/dev/null";
    static const char *const seeds[] = {"--seed 7", "--seed 7", "--seed 8", "--seed 0", ""};
    double energy[5];
    for (int i = 0; i < 5; i++) {
        line.count = 0;
        erg_text_printf(&line, drawn, seeds[i]);
        document = run_json(line.data, 0);
        energy[i] = number(document, "energy_j");
        json_decref(document);
    }
    assert_near(energy[0], energy[1], 0);
    assert_true(energy[0] != energy[2]);
    assert_near(energy[3], energy[4], 0); /* without a seed that of 0, as of traces */
    line.count = 0;
    rows = "node,from_s,to_s\n2,1000,2000\n1,3,4\n2,1500,3000\n";
    assert_ok(erg_file_write(in_folder("outages.csv"), rows, strlen(rows), &err), &err);
    erg_text_printf(&line, CASE "-p fcfs --outages '%s' 2>&1", in_folder("outages.csv"));
    check_program(line.data, 1,
                  "outages.csv:4: node 2 fails at 1500 s, but by line 2 it is down from 1000 s on");
    rows = "node,from_s,to_s\n";
    assert_ok(erg_file_write(in_folder("outages.csv"), rows, strlen(rows), &err), &err);
    check_program(line.data, 1, "outages.csv:1: expected at least one outage below the header");
    /* The second policy fails: there is no document, and the error is printed all the same. */
    assert_ok(erg_file_write(in_folder("tiresias"), "", 0, &err), &err);
    line.count = 0;
    erg_text_printf(&line, CASE "-p fcfs,tiresias --json -o '%s' 2>&1", folder);
    check_program(line.data, 1, "/tiresias': Not a directory");
    erg_text_release(&line);
}

static void check_tariff(const char *rows, int exit_code, const char *part)
{
    struct erg_error err;
    struct erg_text line = {0};
    assert_ok(erg_file_write(in_folder("tariff.csv"), rows, strlen(rows), &err), &err);
    erg_text_printf(&line, CASE "-p fcfs --json --tariff '%s' 2>&1", in_folder("tariff.csv"));
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

#define TARIFF "at_s,usd_per_kwh,g_co2_per_kwh\n"

static void test_tariffs(void **state)
{
    (void)state;
    check_tariff(TARIFF "0,0.2,400\n3600,-0.01,100\n86400,,\n", 0, "\"co2_kg\": ");
    check_tariff(TARIFF "5,0.2,400\n", 1, "tariff.csv:2: column 'at_s'");
    check_tariff(TARIFF "0,0.2,400\n0,0.2,400\n", 1, "tariff.csv:3: column 'at_s'");
    check_tariff(TARIFF "0,0.2,-1\n", 1, "column 'g_co2_per_kwh'");
    check_tariff(TARIFF "0,,\n", 1, "got ''");
    check_tariff(TARIFF, 1, "at least one row");
}

#define EXAMPLE ERGON_TEST_SOURCE_DIR "/examples/cluster/"
#define GENERATE "simulate '" EXAMPLE "cluster.yaml' --generate '" EXAMPLE "recipe.yaml' "
#define IMPORT "import trace '" DATA "/logs/helios.csv' -c '" EXAMPLE "cluster.yaml' "
#define PROFILES "-P '" EXAMPLE "profiles' "

/* Traces on standard output, drawn and from a log of another cluster; ergon simulate reads them. */
static void test_made_traces(void **state)
{
    (void)state;
    struct erg_text line = {0};
    const char *path = in_folder("helios.csv");
    check_program(GENERATE PROFILES "--seed 3", 0, "\njob-400,");
    check_program(GENERATE PROFILES "-p fcfs 2>&1", 2, "--policy was given with --generate");
    check_program(GENERATE "2>&1", 2, "needs CLUSTER.yaml and the option --profiles");
    check_program(IMPORT PROFILES "2>&1 >/dev/null", 0,
                  "1 job of a log as of Helios; left out: 1 that asked for no GPUs");
    check_program(IMPORT PROFILES "-o x 2>&1", 2, "needs LOG, --cluster FILE and --profiles DIR");
    erg_text_printf(&line, IMPORT PROFILES "2>/dev/null > '%s'", path);
    check_program(line.data, 0, "");
    line.count = 0;
    erg_text_printf(&line, "simulate '" EXAMPLE "cluster.yaml' '%s' " PROFILES "-p fcfs", path);
    check_program(line.data, 0, "1 of 1 jobs finished in 1.0 hours");
    check_program("simulate '" EXAMPLE "cluster.yaml' '" DATA "/logs/helios.csv' " PROFILES
                  "-p fcfs 2>&1",
                  1, "a log in the format of Helios is not a trace");
    erg_text_release(&line);
}

static void test_refusals(void **state)
{
    (void)state;
    check_program(CASE "-p fifo 2>&1", 2, "unknown policy 'fifo'; expected one of fcfs, ");
    check_program(CASE "2>&1", 2, "--policy");
    check_program(CASE "-p fcfs -E -r 3 2>&1", 2, "exclude each other");
    check_program(CASE "-p fcfs -m 3 2>&1", 2, "--mean-failure needs --rounds");
    check_program(CASE "-p fcfs -R 3 2>&1", 2, "--repair needs --mean-failure");
    check_program(CASE "-p fcfs -w 1 2>&1", 1, "a power cap of 1 W cannot be kept");
    check_program("simulate '" DATA "/cluster.yaml' '" DATA "/trace.csv' -p fcfs -P /nowhere 2>&1",
                  1, "/nowhere/prof_optimal.csv");
    check_program("simulate '" DATA "/trace.csv' '" DATA "/trace.csv' -p fcfs -P '" DATA "' 2>&1",
                  1, "trace.csv");
}

/* Three days of jobs that ask for more than there is. Whoever is stopped just before its end waits
 * for a restart that is longer than what it has left; such jobs took over a hundred times as long
 * as in a share of their own. */
static void test_jobs_about_to_end(void **state)
{
    (void)state;
    char *recipe, command[1024];
    struct erg_error err;
    assert_ok(erg_file_read(EXAMPLE "recipe.yaml", 0, &recipe, NULL, &err), &err);
    char *rate = strstr(recipe, "jobs_per_day: 130");
    assert_non_null(rate);
    memcpy(rate, "jobs_per_day: 400", strlen("jobs_per_day: 400"));
    assert_ok(erg_file_write(in_folder("busy.yaml"), recipe, strlen(recipe), &err), &err);
    free(recipe);
    for (int seed = 6; seed <= 12; seed += 3) {
        snprintf(command, sizeof command,
                 "simulate '" EXAMPLE "cluster.yaml' --generate '%s/busy.yaml' " PROFILES
                 "--seed %d >'%s/busy.csv'",
                 folder, seed, folder);
        check_program(command, 0, "");
        snprintf(command, sizeof command,
                 "simulate '" EXAMPLE "cluster.yaml' '%s/busy.csv' " PROFILES
                 "-p ergon --json 2>/dev/null",
                 folder);
        json_t *document = run_json(command, 0);
        assert_int_equal(number(document, "finished_jobs"), 400);
        assert_true(number(document, "worst_finish_time_fairness") < 10);
        json_decref(document);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_about_to_end),
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_names_jobs_that_do_not_fit),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_power_saving),
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_tariffs),
        cmocka_unit_test(test_made_traces),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
