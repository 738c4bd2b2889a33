/*
 * Training by a plan from outside: what `ergon optimize` found is run, said beforehand and in the
 * log; clocks are set where that is asked for, and given back; and what is no plan of the job is
 * refused.
 */
#include "fake_clocks.h"
#include "train_job.h"

#include "io/json.h"

#include <signal.h>

static const char planned_job[] = "model: model\n"
                                  "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                                  "tensor: 2\n"
                                  "microbatch_size: 4\n"
                                  "microbatches: 4\n"
                                  "sequence: 32\n"
                                  "train:\n"
                                  "  data: [{file: tokens.bin}]\n"
                                  "  updates: 8\n"
                                  "  learning_rate: 0.01\n"
                                  "  warmup: 2\n"
                                  "  log_every: 1\n"
                                  "  trace_every: 8\n";

/* On two ranks of the host. */
static void check_two(int exit_code, const char *part, const char *arguments)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "run -n 2 -- '%s' train --device host --dtype float32 %s",
                    ERGON_TEST_PROGRAM, arguments);
    check(exit_code, part, line.data);
    erg_text_release(&line);
}

static json_t *last_line(const char *run)
{
    char path[100], *text, *last = NULL;
    struct erg_error err;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    assert_ok(erg_file_read(in_folder(path), 0, &text, NULL, &err), &err);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        last = line;
    assert_non_null(last);
    json_t *object = json_loads(last, 0, NULL);
    assert_non_null(object);
    free(text);
    return object;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

/* ---- the plan is run ---- */

static void plans_are_run(void **state)
{
    (void)state;
    check_two(0, "trained 8 steps", "@/planned.yaml -o @/plain");
    check_two(0, "by ", "@/planned.yaml -o @/nano --plan @/opt/plan.json --method nanobatching");
    json_t *plain = last_line("plain"), *nano = last_line("nano");
    double apart = number_of(plain, "loss") - number_of(nano, "loss");
    assert_true(fabs(apart) < 1e-4);
    assert_true(json_is_null(json_object_get(plain, "planned_ms")));
    assert_true(number_of(nano, "planned_ms") > 0 && number_of(nano, "planned_j") > 0);
    assert_true(json_is_null(json_object_get(plain, "planned_step_ms")));
    /* What a step takes beyond the iteration is the plan's. */
    json_t *document = json_load_file(in_folder("opt/plan.json"), 0, NULL);
    const json_t *beyond = json_object_get(document, "beyond");
    assert_close(number_of(nano, "planned_step_ms") - number_of(nano, "planned_ms"),
                 1e3 * number_of(beyond, "time_s"), 1e-6);
    assert_close(number_of(nano, "planned_step_j") - number_of(nano, "planned_j"),
                 number_of(beyond, "energy_j"), 1e-6);
    json_decref(document);
    assert_true(json_is_null(json_object_get(nano, "clocks")));
    /* Its steps say nothing of an engine. */
    check(1, "/nano/sessions.jsonl: the run was trained by point 1 of a plan's method nanobatching",
          "fit --from @/nano");
    shell("cmp @/opt/plan.json @/nano/latest/plan.json && test ! -e @/plain/latest/plan.json");
    json_decref(plain);
    json_decref(nano);
    /* The trace says in which mode each pass ran. */
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("nano/trace-00000008.json"), 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "\"mode\":\"nanobatch\""));
    assert_null(strstr(text, "\"mode\":\"sequential\""));
    free(text);
}

/* Under sequence parallelism, every way to run its passes. */
static void shares_of_the_stream_are_overlapped(void **state)
{
    (void)state;
    static const char *const methods[] = {"sequential", "nanobatching", "ergon"};
    struct erg_text text = {0};
    erg_text_printf(&text, "%s  sequence_parallel: true\n", planned_job);
    write_text("parts.yaml", text.data);
    erg_text_release(&text);
    check(0, "plan.json", "optimize @/parts.yaml -o @/opt-parts");
    check_two(0, "trained 8 steps", "@/parts.yaml -o @/parts");
    json_t *plain = last_line("parts");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char arguments[160], run[32];
        snprintf(run, sizeof run, "parts-%s", methods[i]);
        snprintf(arguments, sizeof arguments,
                 "@/parts.yaml -o @/%s --plan @/opt-parts/plan.json --method %s", run, methods[i]);
        check_two(0, "trained 8 steps", arguments);
        json_t *line = last_line(run);
        assert_true(fabs(number_of(plain, "loss") - number_of(line, "loss")) < 1e-4);
        json_decref(line);
    }
    json_decref(plain);
    check_two(2, "key 'train.sequence_parallel'", "@/planned.yaml --plan @/opt-parts/plan.json");
    check_two(2, "key 'train.sequence_parallel'", "@/parts.yaml --plan @/opt/plan.json");
}

static void plans_are_said_beforehand(void **state)
{
    (void)state;
    check(0, "a step with sums of gradients and optimizer: ",
          "train @/planned.yaml --device host --dry-run --plan @/opt/plan.json");
    check(0, "nanobatched", "train @/planned.yaml --device host --dry-run --plan @/opt/plan.json");
    check(0, "\"method\": \"sequential+clocks\"",
          "train @/planned.yaml --device host --dry-run --json --plan @/opt/plan.json "
          "--method sequential+clocks --deadline 1");
    check(0, "\"plan\": null", "train @/planned.yaml --device host --dry-run --json");
}

/* ---- clocks ---- */

/* The clocks of the driver's log; how many. */
static size_t count_clocks(const struct world *world, int gpu)
{
    FILE *log = fopen(world->log, "r");
    char line[128], what[16];
    size_t count = 0;
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        int index, low;
        assert_int_equal(sscanf(line, "%*d %15s %d %d", what, &index, &low), 3);
        count += index == gpu && strcmp(what, "set") == 0;
    }
    fclose(log);
    return count;
}

static void clocks_are_set_and_given_back(void **state)
{
    (void)state;
    struct world world = world_begin("");
    check_two(0, "trained 8 steps",
              "@/planned.yaml -o @/clocks --plan @/opt/plan.json --method ergon --deadline 1 "
              "--require-clocks");
    json_t *line = last_line("clocks");
    const json_t *clocks = json_object_get(line, "clocks");
    assert_true(json_is_false(json_object_get(clocks, "refused")));
    assert_true(number_of(clocks, "asked") == 8 * 8); /* steps x instructions */
    assert_true(number_of(clocks, "set") + number_of(clocks, "skipped") +
                    number_of(clocks, "superseded") <=
                64);
    assert_true(number_of(clocks, "set") >= 1);
    json_decref(line);
    for (int gpu = 0; gpu < 2; gpu++) {
        assert_true(count_clocks(&world, gpu) >= 2); /* with the trial */
        assert_int_equal(lock_of(&world, gpu), 0);
    }
    world_end(&world);
}

/* The clocks that a GPU was set to: the highest, and the last. */
static void clocks_set(int *highest, int *last, const struct world *world, int gpu)
{
    FILE *log = fopen(world->log, "r");
    char line[128], what[16];
    *highest = *last = 0;
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        int index, low, high;
        assert_int_equal(sscanf(line, "%*d %15s %d %d %d", what, &index, &low, &high), 4);
        if (index != gpu || strcmp(what, "set") != 0)
            continue;
        *highest = high > *highest ? high : *highest;
        *last = high;
    }
    fclose(log);
}

/* A managed run that begins at the fastest point, and is to be as slow as the last: its clocks are
 * then those of a run at the last one. */
static void the_schedulers_pace_sets_clocks(void **state)
{
    (void)state;
    int fastest[2], obeyed[2], slow[2];
    char text[120], arguments[160];
    json_t *document = json_load_file(in_folder("opt/plan.json"), 0, NULL);
    const json_t *points = json_object_get(
        json_object_get(json_object_get(document, "methods"), "sequential+clocks"), "points");
    const size_t count = json_array_size(points);
    snprintf(text, sizeof text, "{\"number\": 1, \"slowdown\": %.9g}",
             number_of(json_array_get(points, count - 1), "time_s") /
                 number_of(json_array_get(points, 0), "time_s"));
    json_decref(document);
    shell("mkdir @/managed");
    write_text("managed/plan.json", text);

    struct world world = world_begin("");
    setenv("ERGON_JOB", in_folder("managed"), 1);
    setenv("ERGON_PLAN", in_folder("managed/plan.json"), 1);
    check_two(0, "trained 8 steps",
              "@/planned.yaml -o @/obeys --plan @/opt/plan.json --method sequential+clocks "
              "--point 1 --require-clocks");
    unsetenv("ERGON_JOB");
    unsetenv("ERGON_PLAN");
    for (int gpu = 0; gpu < 2; gpu++)
        clocks_set(&fastest[gpu], &obeyed[gpu], &world, gpu);
    world_end(&world);
    world = world_begin("");
    snprintf(arguments, sizeof arguments,
             "@/planned.yaml -o @/slowest --plan @/opt/plan.json --method sequential+clocks "
             "--point %zu --require-clocks",
             count);
    check_two(0, "trained 8 steps", arguments);
    for (int gpu = 0; gpu < 2; gpu++) {
        int highest;
        clocks_set(&highest, &slow[gpu], &world, gpu);
        print_message("GPU %d: %d MHz, then %d MHz; at the last point %d MHz\n", gpu, fastest[gpu],
                      obeyed[gpu], slow[gpu]);
        assert_int_equal(obeyed[gpu], slow[gpu]);
        assert_true(obeyed[gpu] < fastest[gpu] - 200);
    }
    world_end(&world);
    shell("tail -n 1 @/managed/reports.jsonl | grep -q '\"plan\":1}'");
}

static void clocks_are_left_alone(void **state)
{
    (void)state;
    struct world world = world_begin("");
    check_two(0, "trained 8 steps", "@/planned.yaml -o @/alone --plan @/opt/plan.json");
    assert_true(access(world.log, F_OK) != 0); /* the driver was not asked */
    /* The page names the plan. */
    shell(
        "grep -q '\"by\": *{' @/alone/report.html && grep -q 'opt/plan.json' @/alone/report.html");
    world_end(&world);
    setenv("ERGON_NVML", "/nonexistent", 1);
    check_two(0, "clocks: refused",
              "@/planned.yaml -o @/refused --plan @/opt/plan.json --lock-clocks");
    check_two(4, "clocks of the plan",
              "@/planned.yaml -o @/required --plan @/opt/plan.json --require-clocks");
}

/* ---- what is no plan of the job ---- */

static void wrong_plans_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *key, *by, *said;
    } cases[] = {
        {"microbatches: 4", "microbatches: 8", "key 'microbatches'"},
        {"microbatch_size: 4", "microbatch_size: 2", "key 'microbatch_size'"},
        {"sequence: 32", "sequence: 16", "key 'sequence'"},
        {"tensor: 2", "context: 2", "key 'tensor'"},
        {"tensor: 2", "pipeline: 2", "key 'tensor'"},
        {"model: model", "model: other", "key 'model'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        const char *at = strstr(planned_job, cases[i].key);
        erg_text_add_bytes(&text, planned_job, (size_t)(at - planned_job));
        erg_text_printf(&text, "%s%s", cases[i].by, at + strlen(cases[i].key));
        write_text("wrong.yaml", text.data);
        erg_text_release(&text);
        check_two(2, cases[i].said, "@/wrong.yaml --plan @/opt/plan.json");
    }
    check_two(2, "points 1 to", "@/planned.yaml --plan @/opt/plan.json --point 9999");
    check_two(2, "unknown method", "@/planned.yaml --plan @/opt/plan.json --method fast");
    check_two(3, "deadline", "@/planned.yaml --plan @/opt/plan.json --deadline 1e-9");
    check_two(1, "No such file", "@/planned.yaml --plan @/none.json");
    check_two(1, "planned.yaml", "@/planned.yaml --plan @/planned.yaml");
    check(2, "the layout has 2 ranks",
          "run -n 5 -- '" ERGON_TEST_PROGRAM
          "' train @/planned.yaml --device host --plan @/opt/plan.json");
    check(2, "needs --plan", "train @/planned.yaml --lock-clocks");
    check(2, "exclude each other", "train @/planned.yaml --plan x --point 1 --deadline 1");
}

static int make_plan(void **state)
{
    struct erg_error err;
    if (make_job(state) != 0 || erg_dir_make(in_folder("other"), &err) != 0)
        return -1;
    write_text("other/config.json", small_llama);
    write_text("planned.yaml", planned_job);
    check(0, "plan.json", "optimize @/planned.yaml -o @/opt");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_run),
        cmocka_unit_test(shares_of_the_stream_are_overlapped),
        cmocka_unit_test(plans_are_said_beforehand),
        cmocka_unit_test(clocks_are_set_and_given_back),
        cmocka_unit_test(the_schedulers_pace_sets_clocks),
        cmocka_unit_test(clocks_are_left_alone),
        cmocka_unit_test(wrong_plans_are_named),
    };
    return cmocka_run_group_tests(tests, make_plan, remove_folder);
}
