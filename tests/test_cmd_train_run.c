/*
 * What a run of training does besides steps: validation, checkpoints by the clock, its end in time,
 * what it says before it starts, and its public interface.
 */
#include "train_job.h"

#include "ergon/ergon.h"
#include "io/json.h"
#include "train/run/time_limit.h"

#include <signal.h>
#include <unistd.h>

/* ---- the log of a run ---- */

/* The line of a step in RUN/metrics.jsonl. */
static json_t *line_of(const char *run, int step)
{
    char path[100], *text;
    struct erg_error err;
    json_t *found = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    assert_ok(erg_file_read(in_folder(path), 0, &text, NULL, &err), &err);
    for (char *line = strtok(text, "\n"); line && !found; line = strtok(NULL, "\n")) {
        found = json_loads(line, 0, NULL);
        if (json_integer_value(json_object_get(found, "step")) != step) {
            json_decref(found);
            found = NULL;
        }
    }
    free(text);
    assert_non_null(found);
    return found;
}

static double number_at(const char *run, int step, const char *key)
{
    json_t *line = line_of(run, step), *value = json_object_get(line, key);
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    json_decref(line);
    return number;
}

/* The job with a part replaced, in a file of this name. */
static void write_job(const char *name, const char *part, const char *by)
{
    struct erg_text text = {0};
    const char *at = strstr(job_text, part);
    assert_non_null(at);
    erg_text_add_bytes(&text, job_text, (size_t)(at - job_text));
    erg_text_printf(&text, "%s%s", by, at + strlen(part));
    write_text(name, text.data);
    erg_text_release(&text);
}

/* ---- validation ---- */

#define VALIDATION "  validation: {data: [{file: held.bin}], every: 5, batches: 2}\n"

static void validation_is_logged(void **state)
{
    (void)state;
    write_job("validated.yaml", "  warmup: 5\n", "  warmup: 5\n" VALIDATION);
    check(0, "validation", "train @/validated.yaml --dtype float32 -n 12 -o @/v");
    check(0, "trained 12 steps", "train @/job.yaml --dtype float32 -n 12 -o @/w -q");
    assert_true(number_at("v", 12, "loss") == number_at("w", 12, "loss"));
    assert_true(isnan(number_at("v", 3, "validation_loss")));
    assert_true(isnan(number_at("w", 12, "validation_loss")));
    double at_5 = number_at("v", 5, "validation_loss"),
           at_12 = number_at("v", 12, "validation_loss");
    assert_true(at_12 > 1 && at_12 < at_5 && at_5 < 7);
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("v/report.html"), 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "\"memory_items\":{\"weights\":"));
    free(text);
}

/* Of every line, and never more than the step. */
static void waits_for_tokens_are_logged(void **state)
{
    (void)state;
    check(0, "trained 4 steps", "train @/job.yaml -n 4 -o @/waits -q");
    for (int step = 1; step <= 4; step++) {
        json_t *line = line_of("waits", step);
        const json_t *wait = json_object_get(json_object_get(line, "exposed_ms"), "data");
        assert_true(json_is_number(wait));
        double step_ms =
            json_number_value(json_object_get(json_object_get(line, "step_ms"), "mean"));
        assert_true(json_number_value(wait) >= 0 && json_number_value(wait) <= step_ms);
        json_decref(line);
    }
}

/* Two stages of a pipeline say what one rank does. */
static void stages_agree_on_it(void **state)
{
    (void)state;
    write_job("two.yaml", "gpus_per_node: 1, gpu: A100-SXM4-40GB}\n",
              "gpus_per_node: 2, gpu: A100-SXM4-40GB}\npipeline: 2\n");
    char *text;
    struct erg_error err;
    struct erg_text two = {0};
    assert_ok(erg_file_read(in_folder("two.yaml"), 0, &text, NULL, &err), &err);
    erg_text_printf(&two, "%s" VALIDATION, text);
    write_text("two.yaml", two.data);
    erg_text_release(&two);
    free(text);
    struct erg_text command =
        with_folder("train @/two.yaml --device host --dtype float32 -n 12 -o @/v2");
    assert_int_equal(count_of_two_ranks(command.data, "trained 12 steps"), 1);
    erg_text_release(&command);
    for (int step = 5; step <= 10; step += 5)
        assert_near(number_at("v2", step, "validation_loss"),
                    number_at("v", step, "validation_loss"), 5e-6);
    check(0, "\n  1          1       1 ", "train @/two.yaml --device host --dry-run");
}

static void bad_validation_is_named(void **state)
{
    (void)state;
    write_job("bad.yaml", "  warmup: 5\n",
              "  validation: {data: [{file: held.bin}], batches: 1000}\n");
    check(1, "key 'train.validation.batches': the files have ", "train @/bad.yaml -n 1");
    write_job("bad.yaml", "  warmup: 5\n", "  validation: {data: [{file: nothing.bin}]}\n");
    check(1, "key 'train.validation.data[0].file': reading '", "train @/bad.yaml -n 1");
    write_job("bad.yaml", "  warmup: 5\n", "  validation: {every: 5}\n");
    check(1, "bad.yaml", "train @/bad.yaml -n 1");
    write_job("bad.yaml", "  warmup: 5\n",
              "  validation: {data: [{file: held.bin}], batches: 0}\n");
    check(1, "key 'train.validation.batches'", "train @/bad.yaml -n 1");
    write_job("bad.yaml", "  warmup: 5\n", "  checkpoint: {minutes: -1}\n");
    check(1, "key 'train.checkpoint.minutes'", "train @/bad.yaml -n 1");
}

/* ---- time ---- */

static const int64_t second_ns = 1000000000;

static void two_steps_and_a_checkpoint_must_fit(void **state)
{
    (void)state;
    struct erg_time_limit limit;
    erg_time_limit_init(&limit, 100, NULL, 500000000); /* 5 s to a slow disk */
    const int64_t end_ns = limit.end_ns;
    assert_false(erg_time_limit_is_near(&limit, end_ns - 6 * second_ns));
    assert_true(erg_time_limit_is_near(&limit, end_ns - 4 * second_ns));
    erg_time_limit_add_step(&limit, 3);
    erg_time_limit_add_step(&limit, 1);
    assert_false(erg_time_limit_is_near(&limit, end_ns - 12 * second_ns));
    assert_true(erg_time_limit_is_near(&limit, end_ns - 10 * second_ns));
    erg_time_limit_add_write(&limit, 20);
    assert_true(erg_time_limit_is_near(&limit, end_ns - 25 * second_ns));
    for (int i = 0; i < ERG_TIME_LIMIT_STEPS; i++) /* the slow first step is forgotten */
        erg_time_limit_add_step(&limit, 1);
    assert_false(erg_time_limit_is_near(&limit, end_ns - 23 * second_ns));
    erg_time_limit_init(&limit, 0, NULL, 500000000);
    assert_false(erg_time_limit_is_near(&limit, INT64_MAX));
    erg_time_limit_init(&limit, 0, "soon", 500000000);
    assert_false(erg_time_limit_is_near(&limit, INT64_MAX));
    erg_time_limit_init(&limit, 1000, "1000000000", 0); /* the earlier one holds: 2001 */
    assert_true(erg_time_limit_is_near(&limit, limit.end_ns + 1));
    assert_true(limit.end_ns > 0 && limit.end_ns < end_ns);
}

static void run_ends_in_time(void **state)
{
    (void)state;
    write_job("long.yaml", "updates: 60\n", "updates: 1000000\n");
    check(85, " as its time ends, checkpoint ", "train @/long.yaml -o @/late --until 00:00:01 -q");
    check(0, "continues from ", "train @/job.yaml -o @/late -q");
    setenv("SLURM_JOB_END_TIME", "1000000000", 1);
    check(85, "stopped at step 1 as its time ends, checkpoint ", "train @/long.yaml -o @/over -q");
    check(130, "stopped at step 1 as its time ends, without a checkpoint", "train @/long.yaml -q");
    unsetenv("SLURM_JOB_END_TIME");
    check(2, "--until got \"1:60:00\", expected hours", "train @/long.yaml --until 1:60:00");
    check(2, "--until got \"00:00:00\"", "train @/long.yaml --until 00:00:00");
    check(2, "--until got \"5m\"", "train @/long.yaml --until 5m");
}

static void checkpoints_come_by_the_clock(void **state)
{
    (void)state;
    write_job("often.yaml", "  warmup: 5\n", "  checkpoint: {minutes: 1.0e-9, keep: 100}\n");
    check(0, "trained 4 steps", "train @/often.yaml -n 4 -o @/often -q");
    for (int step = 1; step <= 4; step++) {
        char name[60], *text;
        struct erg_error err;
        snprintf(name, sizeof name, "often/step-%08d/manifest.json", step);
        assert_ok(erg_file_read(in_folder(name), 0, &text, NULL, &err), &err);
        free(text);
    }
}

/* A run for a measurement has a log and a page, but no checkpoint, however it ends. */
static void no_checkpoint_is_written(void **state)
{
    (void)state;
    write_job("unkept.yaml", "  warmup: 5\n",
              "  checkpoint: {minutes: 1.0e-9, every: 2, keep: 0}\n");
    check(0, "trained 4 steps", "train @/unkept.yaml -n 4 -o @/unkept -q");
    setenv("SLURM_JOB_END_TIME", "1000000000", 1);
    check(130, "stopped at step 1 as its time ends, without a checkpoint",
          "train @/unkept.yaml -o @/ended -q");
    unsetenv("SLURM_JOB_END_TIME");
    shell(
        "ls @/unkept/report.html @/unkept/metrics.jsonl && ! ls -d @/unkept/step-* @/unkept/latest "
        "@/ended/step-* 2>/dev/null");
    write_job("less.yaml", "  warmup: 5\n", "  checkpoint: {keep: -1}\n");
    check(1, "train.checkpoint.keep", "train @/less.yaml -n 4 -q");
}

/* ---- before it starts ---- */

/* Whoever waits for ranks that nobody has started says for which, once. */
static void missing_ranks_are_named(void **state)
{
    (void)state;
    struct erg_text command = {0};
    erg_text_printf(
        &command,
        "cd @ && touch rank0 rank2 && export MASTER_ADDR=127.0.0.1 WORLD_SIZE=3 && "
        "port=$((20000 + $$ %% 10000)) || exit 1; "
        "RANK=0 MASTER_PORT=$port '%s' train job.yaml 2>rank0 & first=$!; "
        "RANK=2 MASTER_PORT=$((port + 1)) '%s' train job.yaml 2>rank2 & second=$!; "
        "for i in $(seq 600); do grep -q missing rank0 && grep -q missing rank2 && break; sleep "
        "0.1; done; kill $first $second; wait $first; first=$?; wait $second; second=$?; cat rank0 "
        "rank2; grep 'rank 0 waits at 127.0.0.1 port [0-9]*, for 29[0-9] s more; missing: rank 1, "
        "2$' rank0 && grep 'rank 2 of 3 waits, for 29[0-9] s more; missing: rank 0 at 127.0.0.1 "
        "port' rank2 && test $(grep -c missing rank0) = 1 && test $(grep -c missing rank2) = 1 && "
        "test $first = 85 && test $second = 85",
        ERGON_TEST_PROGRAM, ERGON_TEST_PROGRAM);
    shell(command.data);
    erg_text_release(&command);
}

/* Ranks that have just been started are asked as later ones are. */
static void early_signals_are_heard(void **state)
{
    (void)state;
    static const char *const signals[] = {"TERM", "USR1", "HUP"};
    write_job("two.yaml", "gpus_per_node: 1", "gpus_per_node: 2");
    shell("echo 'data: 2' >>@/two.yaml");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct erg_text command = {0};
        erg_text_printf(&command,
                        "cd @ && rm -rf early && %s run -n 2 --plain -- sh -c 'echo started; sleep "
                        "0.3; exec %s train two.yaml --device host -o early' >out 2>&1 & run=$!; "
                        "while ! grep -q started @/out; do sleep 0.01; done; kill -%s $run; "
                        "wait $run; status=$?; cat @/out; test $status = 85 && test -e "
                        "@/early/latest/manifest.json",
                        ERGON_TEST_PROGRAM, ERGON_TEST_PROGRAM, signals[i]);
        shell("rm -f @/out; touch @/out");
        shell(command.data);
        erg_text_release(&command);
    }
}

static void a_dry_run_is_reported(void **state)
{
    (void)state;
    check(2, "--json needs --dry-run", "train @/job.yaml --json");
    struct erg_text command = with_folder("train @/job.yaml --dtype float32 --dry-run --json");
    struct program_result result = run_program(command.data);
    erg_text_release(&command);
    assert_int_equal(result.exit_code, 0);
    json_t *document = json_loads(result.out.data, 0, NULL);
    assert_non_null(document);
    erg_text_release(&result.out);
    assert_string_equal(json_string_value(json_object_get(document, "schema")),
                        "ergon.training_preview");
    assert_int_equal(json_integer_value(json_object_get(document, "tokens")), 60 * 4 * 16);
    const json_t *stage = json_array_get(json_object_get(document, "stages"), 0);
    json_int_t bytes = json_integer_value(json_object_get(stage, "memory_bytes"));
    json_int_t items = 0, buffers = 0;
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(json_object_get(stage, "memory_items"), key, value) items +=
        json_integer_value(value);
    json_array_foreach(json_object_get(stage, "buffers"), i, value) buffers +=
        json_integer_value(json_object_get(value, "bytes"));
    assert_int_equal(items, bytes);
    assert_int_equal(buffers, bytes);
    assert_true((double)bytes == number_at("v", 12, "memory_bytes")); /* as the run then takes */
    assert_true(json_is_null(json_object_get(document, "step_s")));
    json_decref(document);
    write_job("engine.yaml", "gpu: A100-SXM4-40GB}\n",
              "gpu: A100-SXM4-40GB}\nengine: megatron-a100\n");
    check(0,
          " J expected of engine megatron-a100 at the highest clock, of which 0 s sum gradients "
          "and ",
          "train @/engine.yaml --dry-run");
}

/* Terabytes of activations. */
static void too_large_is_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text command =
        with_folder("sed 's/\"hidden_size\": 32/\"hidden_size\": 8192/' @/model/config.json "
                    ">@/wide/config.json");
    assert_ok(erg_dir_make(in_folder("wide"), &err), &err);
    assert_int_equal(system(command.data), 0);
    erg_text_release(&command);
    write_job("huge.yaml",
              "model: model\n"
              "cluster: {nodes: 1, gpus_per_node: 1, gpu: A100-SXM4-40GB}\n"
              "microbatch_size: 2\n"
              "microbatches: 2\n"
              "sequence: 16\n",
              "model: wide\n"
              "cluster: {nodes: 1, gpus_per_node: 1, gpu: A100-SXM4-40GB}\n"
              "microbatch_size: 10000\n"
              "microbatches: 1\n"
              "sequence: 1024\n");
    check(3, " are free; in GiB: activations ", "train @/huge.yaml --device host -o @/huge");
    check(3, "; with microbatch_size ", "train @/huge.yaml --device host --dry-run");
    assert_int_not_equal(access(in_folder("huge"), F_OK), 0); /* nothing has been started */
}

/* ---- the public interface ---- */

static int lines;

static void count_line(void *context, const char *text)
{
    assert_ptr_equal(context, &lines);
    assert_non_null(strstr(text, "loss"));
    lines++;
}

static void program_trains_by_the_library(void **state)
{
    (void)state;
    struct erg_train *train;
    struct erg_train_stats stats = {.size = sizeof stats};
    struct erg_error err;
    struct erg_train_options options = {.size = sizeof options,
                                        .folder = in_folder("own"),
                                        .device = ERG_TRAIN_HOST,
                                        .type = ERG_TRAIN_FLOAT32,
                                        .steps = 8,
                                        .line = count_line,
                                        .context = &lines};
    assert_ok(erg_train_open(&train, in_folder("job.yaml"), &options, &err), &err);
    assert_ok(erg_train_resume(train, NULL, &err), &err);
    erg_train_stats(train, &stats, NULL);
    assert_true(stats.step == 0 && stats.steps == 8 && isnan(stats.loss) && !stats.resumed);
    for (int i = 0; i < 5; i++)
        assert_ok(erg_train_step(train, &err), &err);
    assert_ok(erg_train_checkpoint(train, &err), &err);
    erg_train_stop(train, SIGTERM);
    assert_ok(erg_train_step(train, &err), &err);
    erg_train_stats(train, &stats, NULL);
    assert_true(stats.step == 6 && stats.end == ERG_TRAIN_STOPPED && stats.signal == SIGTERM);
    assert_true(stats.saved && stats.tokens == 6 * 64 && stats.ranks == 1);
    assert_int_equal(erg_train_step(train, &err), -1);
    assert_int_equal(err.status, ERG_USAGE);
    assert_ok(erg_train_close(train, &err), &err);
    assert_int_equal(lines, 3);

    options.size = 0;
    assert_fails(erg_train_open(&train, in_folder("job.yaml"), &options, &err), &err,
                 "struct erg_train_options: its size is 0");
    options.size = sizeof options;
    assert_ok(erg_train_open(&train, in_folder("job.yaml"), &options, &err), &err);
    assert_ok(erg_train_resume(train, NULL, &err), &err);
    erg_train_stats(train, &stats, NULL);
    struct erg_train_stats none = {0};
    assert_fails(erg_train_stats(train, &none, &err), &err,
                 "struct erg_train_stats: its size is 0");
    assert_true(stats.step == 6 && stats.updates == 6 && strstr(stats.resumed, "step-00000006"));
    while (!stats.end) {
        assert_ok(erg_train_step(train, &err), &err);
        erg_train_stats(train, &stats, NULL);
    }
    assert_int_equal(stats.end, ERG_TRAIN_DONE);
    assert_ok(erg_train_export(train, in_folder("own_model"), &err), &err);
    assert_ok(erg_train_close(train, &err), &err);
    check(0, "trained 8 steps",
          "train @/job.yaml --dtype float32 -n 8 -o @/command --export @/command_model -q");
    assert_true(stats.loss == number_at("command", 8, "loss"));
    assert_same_bytes(in_folder("own_model/model.safetensors"),
                      in_folder("command_model/model.safetensors"));
    options.folder = NULL;
    assert_ok(erg_train_open(&train, in_folder("job.yaml"), &options, &err), &err);
    assert_int_equal(erg_train_checkpoint(train, &err), -1);
    assert_int_equal(erg_train_resume(train, in_folder("nowhere"), &err), -1);
    assert_ok(erg_train_close(train, &err), &err);
    assert_int_equal(erg_train_open(&train, in_folder("none.yaml"), NULL, &err), -1);
}

static int make_data(void **state)
{
    if (make_job(state) != 0)
        return -1;
    write_text("held_out",
               "a lazy dog and a quick fox, over and over; over and over they jump. the "
               "fox is brown and the dog is not, so much is known of them and no more.");
    check(0, "1 document", "tokenize bytes @/held_out -o @/held");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validation_is_logged),
        cmocka_unit_test(waits_for_tokens_are_logged),
        cmocka_unit_test(stages_agree_on_it),
        cmocka_unit_test(bad_validation_is_named),
        cmocka_unit_test(two_steps_and_a_checkpoint_must_fit),
        cmocka_unit_test(run_ends_in_time),
        cmocka_unit_test(checkpoints_come_by_the_clock),
        cmocka_unit_test(no_checkpoint_is_written),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(early_signals_are_heard),
        cmocka_unit_test(a_dry_run_is_reported),
        cmocka_unit_test(too_large_is_refused),
        cmocka_unit_test(program_trains_by_the_library),
    };
    return cmocka_run_group_tests(tests, make_data, remove_folder);
}
