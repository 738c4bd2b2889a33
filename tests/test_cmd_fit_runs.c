/* ergon fit --from RUN: the rows of runs of ergon's own training, by numbers read from their logs.
 */
#include "train_job.h"

#include "io/json.h"
#include "train/log/run_row.h"

#include <math.h>

/* A GPU and an engine that stand for the host's CPU: what it reaches is found as the overhead of a
 * layer, beside which nothing counts. */
static void make_host_machine(void)
{
    shell("sed -e 's/^name:.*/name: tiny-host/' -e 's/^driver_names:.*/driver_names: [\"host\"]/' "
          "-e 's/ peak_tflops: .*/ peak_tflops: 0.1/' -e 's/flops_per_sm_clock: .*/"
          "flops_per_sm_clock: 1/' -e 's/ sms: .*/ sms: 50/' "
          "'" ERGON_TEST_SOURCE_DIR "/data/gpus/h100-sxm.yaml' >@/cpu.yaml");
    shell("sed -e 's/^peak_tflops: .*/peak_tflops: 0.1/' -e 's/^gemm_efficiency:.*/"
          "gemm_efficiency: 2\\nlayer_overhead_us: 100/' -e 's/^attention_efficiency:.*/"
          "attention_efficiency: 2/' '" ERGON_TEST_SOURCE_DIR
          "/data/engines/ergon.yaml' >@/engine.yaml");
    shell("printf 'nodes: 1\\ngpus_per_node: 8\\ngpu: @/cpu.yaml\\n' >@/cluster.yaml");
}

static const char validation[] = "  log_every: 4\n  trace_every: 10\n  checkpoint: {every: 15}\n"
                                 "  validation:\n    data:\n      - file: tokens.bin\n"
                                 "    every: 9\n    batches: 1\n";

/* Two layouts: one rank, and two that split each layer, with another number of microbatches. */
static int make_runs(void **state)
{
    struct erg_text text = {0};
    if (make_job(state) != 0)
        return -1;
    make_host_machine();
    erg_text_printf(&text, "%s%s", job_text, validation);
    write_text("one.yaml", text.data);
    check(0, "trained 40 steps", "train @/one.yaml -d host -o @/one -n 40 -q");
    shell("sed -e 's/gpus_per_node: 1/gpus_per_node: 2/' -e 's/^microbatches: 2/microbatches: 3\\n"
          "tensor: 2/' @/one.yaml >@/two.yaml");
    struct erg_text line = with_folder("run -n 2 --plain -- '" ERGON_TEST_PROGRAM
                                       "' train @/two.yaml -d host -o @/two -n 20 -q 2>&1");
    check_program(line.data, 0, "trained 20 steps");
    erg_text_release(&line);
    erg_text_release(&text);
    return 0;
}

/* ---- the rows, by the logs ---- */

struct log_step {
    double steps, ms;
};

static int by_ms(const void *a, const void *b)
{
    double x = ((const struct log_step *)a)->ms, y = ((const struct log_step *)b)->ms;
    return (x > y) - (x < y);
}

/* The undisturbed steps of a log, one by one, in the order of their times. */
static size_t read_steps(double *ms, const char *path, double *memory_bytes)
{
    char *text;
    struct erg_error err;
    struct log_step windows[64];
    size_t count = 0, steps = 0;
    *memory_bytes = 0;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL), *own = json_object_get(object, "undisturbed");
        windows[count].steps = json_number_value(json_object_get(own, "steps"));
        windows[count++].ms = json_number_value(json_object_get(own, "ms"));
        *memory_bytes =
            fmax(*memory_bytes, json_number_value(json_object_get(object, "memory_bytes")));
        json_decref(object);
    }
    qsort(windows, count, sizeof *windows, by_ms);
    for (size_t i = 0; i < count; i++)
        for (double k = 0; k < windows[i].steps; k++)
            ms[steps++] = windows[i].ms;
    free(text);
    return steps;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

static json_t *fit_json(const char *options)
{
    struct erg_text line = with_folder(options);
    erg_text_add(&line, " -c ");
    erg_text_add(&line, in_folder("cluster.yaml"));
    erg_text_add(&line, " -e ");
    erg_text_add(&line, in_folder("engine.yaml"));
    erg_text_add(&line, " -k layer_overhead_us -f 2 --json 2>&1");
    struct program_result result = run_program(line.data);
    if (result.exit_code)
        fail_msg("ergon %s: exit code %d with:\n%s", line.data, result.exit_code, result.out.data);
    json_t *document = json_loads(result.out.data, 0, NULL);
    assert_non_null(document);
    erg_text_release(&result.out);
    erg_text_release(&line);
    return document;
}

static void check_row(const json_t *row, const char *run, double tokens)
{
    double ms[64], memory_bytes;
    char path[200];
    snprintf(path, sizeof path, "%s/metrics.jsonl", in_folder(run));
    const size_t count = read_steps(ms, path, &memory_bytes);
    const double median_ms = (ms[(count - 1) / 2] + ms[count / 2]) / 2;
    assert_string_equal(json_string_value(json_object_get(row, "run")), in_folder(run));
    assert_string_equal(json_string_value(json_object_get(row, "device")), "host");
    assert_string_equal(json_string_value(json_object_get(row, "type")), "bfloat16");
    assert_near(number(row, "steps"), (double)count, 0);
    assert_close(number(row, "measured_s"), 1e-3 * median_ms, 1e-9);
    assert_close(number(row, "tokens_per_s"), 1e3 * tokens / median_ms, 1e-9);
    assert_close(number(row, "memory_bytes"), memory_bytes, 1e-12);
    assert_true(json_is_null(json_object_get(row, "energy_j")));
    assert_true(number(row, "spread") >= 0);
    assert_true(number(row, "predicted_s") > 0 && number(row, "predicted_j") > 0);
}

static void runs_become_rows(void **state)
{
    (void)state;
    json_t *document = fit_json("fit --from @/one --from @/two"), *rows;
    rows = json_object_get(document, "rows");
    assert_int_equal(json_array_size(rows), 2);
    const json_t *one = json_array_get(rows, 0), *two = json_array_get(rows, 1);
    check_row(one, "one", 2 * 2 * 16);
    check_row(two, "two", 3 * 2 * 16);
    assert_near(number(one, "tensor"), 1, 0);
    assert_near(number(two, "tensor"), 2, 0);
    assert_near(number(two, "microbatches"), 3, 0);
    assert_near(number(two, "sequence"), 16, 0);
    assert_near(number(two, "lines_other") + number(two, "lines_damaged"), 0, 0);
    json_decref(document);
}

/* Of 40 steps the first three warm up, 10, 20, 30 and 40 are traced, and 10, 19, 28 and 37 follow a
 * validation. A run that goes on alike warms up again, and gives one row of both parts. */
static void disturbed_steps_do_not_count(void **state)
{
    (void)state;
    double ms[64], memory_bytes;
    shell("sed '/checkpoint/d' @/one.yaml >@/alike.yaml");
    check(0, "trained 40 steps", "train @/alike.yaml -d host -o @/alike -n 40 -q");
    assert_int_equal(read_steps(ms, in_folder("alike/metrics.jsonl"), &memory_bytes), 40 - 10);
    check(0, "trained 49 steps", "train @/alike.yaml -d host -o @/alike -n 49 -q");
    shell("test $(wc -l <@/alike/sessions.jsonl) = 2");
    /* 41 to 43 warm up, 46 follows a validation. */
    assert_int_equal(read_steps(ms, in_folder("alike/metrics.jsonl"), &memory_bytes), 30 + 9 - 4);
    json_t *document = fit_json("fit --from @/one --from @/alike");
    const json_t *row = json_array_get(json_object_get(document, "rows"), 1);
    check_row(row, "alike", 64);
    assert_near(number(row, "lines_other"), 0, 0);
    json_decref(document);
    /* Those beside a checkpoint are left out, too: 16 and 31 at least. */
    const size_t count = read_steps(ms, in_folder("one/metrics.jsonl"), &memory_bytes);
    assert_in_range(count, ERG_RUN_ROW_LEAST_STEPS, 40 - 10 - 2);
}

static void a_table_and_runs_mix(void **state)
{
    (void)state;
    write_text("rows.csv", "model,sequence,gpus,batch,t,c,p,microbatch,time_s,device\n"
                           "MODEL,16,1,8,1,1,1,2,0.0001,host\n");
    shell("sed -i 's|MODEL|@/model/config.json|' @/rows.csv");
    json_t *document = fit_json("fit @/rows.csv --from @/one"), *rows;
    rows = json_object_get(document, "rows");
    assert_int_equal(json_array_size(rows), 2);
    assert_near(number(json_array_get(rows, 0), "line"), 2, 0);
    assert_null(json_object_get(json_array_get(rows, 0), "run"));
    check_row(json_array_get(rows, 1), "one", 64);
    json_decref(document);
    check(0, "Furthest off: ",
          "fit @/rows.csv --from @/one -c @/cluster.yaml -e @/engine.yaml -k "
          "layer_overhead_us -f 2 -o @/fitted.yaml");
    shell("grep -q '^#     --from @/one' @/fitted.yaml && grep -q '^layer_overhead_us: [0-9.e+]* "
          "*# fitted' @/fitted.yaml");
    /* Another device in the table. */
    shell("sed -i 's/,host/,NVIDIA H100 80GB HBM3/' @/rows.csv");
    check(1, "/one: it was measured on the host's CPU, and ",
          "fit @/rows.csv --from @/one -c @/cluster.yaml -e @/engine.yaml -k layer_overhead_us");
    check(1, "on NVIDIA H100 80GB HBM3; expected rows of one kind of device",
          "fit @/rows.csv --from @/one -c @/cluster.yaml -e @/engine.yaml -k layer_overhead_us");
}

/* ---- what a run was measured on ---- */

static void the_hosts_cpu_is_no_gpu(void **state)
{
    (void)state;
    check(1,
          "/one: it was measured on the host's CPU, and the cluster's GPU is A100-SXM4-40GB; "
          "expected rows of that GPU, or --cluster FILE with a GPU whose file has \"host\" among "
          "its driver_names",
          "fit --from @/one --from @/two -k layer_overhead_us -f 2");
    /* A run on a GPU is not mixed with it, nor is one in another type. */
    shell("cp -r @/two @/gpu && sed -i 's/\"device\":\"host\"/\"device\":\"NVIDIA H100 80GB "
          "HBM3\"/' @/gpu/sessions.jsonl");
    check(1, "/gpu: it was measured on NVIDIA H100 80GB HBM3, and ",
          "fit --from @/one --from @/gpu -k layer_overhead_us -f 2");
    check(1, "and the cluster's GPU is A100-SXM4-40GB", "fit --from @/gpu -k layer_overhead_us");
    shell("sed -i 's/A100-SXM4-40GB/H100-SXM/' @/gpu/sessions.jsonl");
    check(1, "--from: 1 rows are too few to fit 1 constants in 2 folds; expected at least 2",
          "fit --from @/gpu -k gemm_efficiency -f 2"); /* of the run's own cluster */
    shell("cp -r @/two @/floats && sed -i 's/\"bfloat16\"/\"float32\"/' @/floats/sessions.jsonl");
    check(1, "/floats: it was trained in float32, and ",
          "fit --from @/one --from @/floats -k layer_overhead_us -f 2");
}

/* ---- what is no good run ---- */

static void bad_folders_are_named(void **state)
{
    (void)state;
    shell("mkdir @/empty @/old @/short && touch @/old/run.json && cp @/one/*.json* @/short && "
          "head -n 4 @/one/metrics.jsonl >@/short/metrics.jsonl");
    static const struct {
        const char *command, *message;
        int exit_code;
    } cases[] = {
        {"fit -c @/cluster.yaml -e @/engine.yaml", "needs ROWS.csv or --from RUN", 2},
        {"fit --from @/one --from @/one", "was given twice; expected each run once", 2},
        {"fit @/rows.csv --from @/one", "needs the option --engine NAME", 2},
        {"fit @/rows.csv --from @/one -e ergon",
         "expected one of --cluster FILE and --job JOB.yaml", 2},
        {"fit --from @/nowhere",
         "/nowhere: there is no file sessions.jsonl; expected the folder of "
         "a run (ergon train --output)",
         1},
        {"fit --from @/empty", "/empty: there is no file sessions.jsonl", 1},
        {"fit --from @/old",
         "/old: the run has no file sessions.jsonl with its GPUs and its "
         "layout; expected a run of this ergon or a later one",
         1},
        {"fit --from @/short",
         "/short/metrics.jsonl: its 4 lines of one layout have 1 undisturbed "
         "steps, expected at least 5",
         1},
        {"fit --from @/half", "/half/metrics.jsonl: none of its 2 lines is a line of a log", 1},
        {"fit --from @/lost", "/lost/metrics.jsonl", 1},
        {"fit --from @/wrong", "/wrong/sessions.jsonl:1: key 'layout.tensor': expected", 1},
        {"fit --from @/void", "/void/sessions.jsonl: the file is empty", 1},
        {"fit --from @/ranks", "/ranks/sessions.jsonl: 1 ranks, expected the 2 of the layout", 1},
        {"fit --from @/mixed", "/mixed/sessions.jsonl: the run's cluster has GPUs of 2 kinds", 1},
        {"fit --from @/config", "/config/sessions.jsonl: the model's config.json:1:", 1},
    };
    shell("for f in half lost wrong void ranks mixed config; do cp -r @/two @/$f; done; cd @ && "
          "printf '{\"step\":4\\nnonsense\\n' >half/metrics.jsonl && rm lost/metrics.jsonl && "
          "sed -i 's/\"tensor\":2/\"tensor\":0/' wrong/sessions.jsonl && : >void/sessions.jsonl && "
          "sed -i 's/\"ranks\":2/\"ranks\":1/' ranks/sessions.jsonl && "
          "sed -i 's/\"kinds\":1/\"kinds\":2/' mixed/sessions.jsonl && "
          "sed -i 's/Qwen3ForCausalLM/Qwen9ForCausalLM/' config/sessions.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cases[i].exit_code, cases[i].message, cases[i].command);
}

/* What a killed run leaves: the good lines are used, and a warning says how many are not. */
static void damaged_lines_are_left_out(void **state)
{
    (void)state;
    shell("cp -r @/two @/torn && cd @/torn && "
          "sed -i '2s/{/{{/' metrics.jsonl && truncate -s -40 metrics.jsonl && "
          "printf '{\"schema\":\"ergon.se' >>sessions.jsonl");
    check(0,
          "/torn/metrics.jsonl: 2 of 10 lines, the first of them line 2, are skipped; expected "
          "complete lines of a log",
          "fit --from @/one --from @/torn -c @/cluster.yaml -e @/engine.yaml -k layer_overhead_us "
          "-f 2");
    check(0, "/torn/sessions.jsonl: 1 line is skipped",
          "fit --from @/one --from @/torn -c @/cluster.yaml -e @/engine.yaml -k layer_overhead_us "
          "-f 2");
}

/* A log that its run is writing: half a line is neither counted nor said. */
static void unfinished_lines_are_awaited(void **state)
{
    (void)state;
    struct erg_fit_rows rows = {0};
    struct erg_error err;
    shell("cp -r @/two @/writing && cd @/writing && truncate -s -40 metrics.jsonl && "
          "printf '{\"schema\":\"ergon.se' >>sessions.jsonl");
    assert_ok(erg_run_row_add_training(&rows, in_folder("writing"), &err), &err);
    assert_int_equal(rows.items[0].run->lines_damaged, 0);
    assert_int_equal(rows.items[0].run->lines, 9);
    erg_fit_rows_release(&rows);
}

/* A run that goes on with another layout gives the row of the one with which it made most steps. */
static void another_layout_is_left_out(void **state)
{
    (void)state;
    shell("sed '/checkpoint/d' @/one.yaml >@/before.yaml");
    shell("sed 's/^microbatches: 3/microbatches: 2/; /checkpoint/d' @/two.yaml >@/spread.yaml");
    check(0, "trained 20 steps", "train @/before.yaml -d host -o @/spread -n 20 -q");
    struct erg_text line = with_folder("run -n 2 --plain -- '" ERGON_TEST_PROGRAM
                                       "' train @/spread.yaml -d host -o @/spread -n 60 -q 2>&1");
    check_program(line.data, 0, "trained 60 steps");
    erg_text_release(&line);
    shell("test $(wc -l <@/spread/sessions.jsonl) = 2");
    check(0, "/spread/metrics.jsonl: 10 of ",
          "fit --from @/one --from @/spread -c @/cluster.yaml -e @/engine.yaml -k "
          "layer_overhead_us -f 2");
    check(0, "lines are skipped; the run continued with another layout, device, model or plan",
          "fit --from @/one --from @/spread -c @/cluster.yaml -e @/engine.yaml -k "
          "layer_overhead_us -f 2");
    check(0, "t2 c1 p1 d1, 2 x 2 x 16",
          "fit --from @/one --from @/spread -c @/cluster.yaml -e @/engine.yaml -k "
          "layer_overhead_us -f 2");
}

/* ---- from texts, where every number is known ---- */

static const char session_text[] =
    "{\"schema\":\"ergon.session\",\"schema_version\":1,\"behind\":0,\"time_unix_s\":1,"
    "\"ergon_version\":\"1\",\"host\":\"h\",\"device\":\"D\",\"type\":\"bfloat16\",\"ranks\":1,"
    "\"kinds\":1,\"sequence_parallel\":true,\"layout\":{\"tensor\":1,\"context\":1,\"pipeline\":1,"
    "\"data\":1,\"virtual_stages\":1,\"microbatch_size\":3,\"microbatches\":4,\"sequence\":16,"
    "\"recompute\":\"full\",\"offload\":0},\"cluster\":{\"nodes\":1,\"gpus_per_node\":8,\"gpu\":\"G"
    "\",\"intra_node_bandwidth\":1,\"inter_node_bandwidth\":2,\"host_memory_bandwidth\":0,"
    "\"shared_link_bandwidth\":0},\"model\":{\"name\":\"M\",\"config\":CONFIG,\"tied\":false,"
    "\"vocabulary\":384,\"words\":257}}\n";

static struct erg_text known_session(void)
{
    struct erg_text text = {0};
    const char *at = strstr(session_text, "CONFIG");
    erg_text_add_bytes(&text, session_text, (size_t)(at - session_text));
    erg_json_add_string(&text, config_text);
    erg_text_add(&text, at + strlen("CONFIG"));
    return text;
}

static void medians_count_steps(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows = {0};
    struct erg_cluster cluster;
    struct erg_text session = known_session();
    static const char *const metrics =
        "{\"step\":3,\"window_steps\":3,\"undisturbed\":{\"steps\":0,\"ms\":null}}\n"
        "{\"step\":7,\"window_steps\":4,\"undisturbed\":{\"steps\":2,\"ms\":10},\"energy_j\":99}\n"
        "{\"step\":17,\"window_steps\":10,\"undisturbed\":{\"steps\":10,\"ms\":20},\"energy_j\":50,"
        "\"memory_bytes\":7}\n"
        "{\"step\":20,\"window_steps\":3,\"undisturbed\":{\"steps\":3,\"ms\":40},\"energy_j\":28,"
        "\"memory_bytes\":9}\n"
        "{\"step\":25,\"window_steps\":5,\"undisturbed\":{\"steps\":5,\"ms\":30},\"energy_j\":null"
        "}\n"
        "{\"step\":26,\"window_steps\":1,\"undisturbed\":{\"steps\":2,\"ms\":1}}\n";
    assert_ok(erg_run_row_parse(&rows, "R", session.data, metrics, &cluster, &err), &err);
    const struct erg_fit_row *row = &rows.items[0];
    /* 2 of 10 ms, 10 of 20, 5 of 30, 3 of 40: the tenth and the eleventh of twenty take 20 ms, a
     * quarter no more than 20 ms, three quarters no more than 30 ms. */
    assert_near(row->run->steps, 20, 0);
    assert_close(row->time_s, 0.020, 1e-12);
    assert_close(row->run->spread, (30. - 20) / 2 / 20, 1e-12);
    /* Joules of the windows that are undisturbed as a whole and know them: 50 + 28 over 13 steps.
     */
    assert_close(row->run->energy_j, 78. / 13, 1e-12);
    assert_close(row->run->memory_bytes, 9, 1e-12);
    assert_int_equal(row->run->lines, 5);
    assert_int_equal(row->run->lines_damaged, 1);
    assert_int_equal(row->batch, 12);
    assert_int_equal(row->sequence_parallel, ERG_FIT_PARALLEL);
    assert_int_equal(row->layout.recompute, ERG_RECOMPUTE_FULL);
    assert_int_equal(row->model->vocab, 384);
    assert_int_equal(erg_model_words(row->model), 257);
    assert_string_equal(cluster.gpu, "G");
    assert_near(cluster.inter_node_bandwidth, 2, 0);
    /* A second run of the model shares it; what is unknown stays so. */
    assert_ok(erg_run_row_parse(&rows, "S", session.data,
                                "{\"step\":9,\"window_steps\":6,\"undisturbed\":{\"steps\":6,"
                                "\"ms\":5}}",
                                NULL, &err),
              &err);
    assert_ptr_equal(rows.items[0].model, rows.items[1].model);
    assert_true(isnan(rows.items[1].run->spread) && isnan(rows.items[1].run->energy_j) &&
                isnan(rows.items[1].run->memory_bytes));
    erg_fit_rows_release(&rows);
    erg_text_release(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_become_rows),
        cmocka_unit_test(disturbed_steps_do_not_count),
        cmocka_unit_test(a_table_and_runs_mix),
        cmocka_unit_test(the_hosts_cpu_is_no_gpu),
        cmocka_unit_test(bad_folders_are_named),
        cmocka_unit_test(damaged_lines_are_left_out),
        cmocka_unit_test(unfinished_lines_are_awaited),
        cmocka_unit_test(another_layout_is_left_out),
        cmocka_unit_test(medians_count_steps),
    };
    return cmocka_run_group_tests(tests, make_runs, remove_folder);
}
