/* ergon train as a managed job: it follows the plans that its scheduler leaves. */
#define _GNU_SOURCE
#include "train_ranks.h"

#include "base/clock.h"
#include "base/memory.h"
#include "io/json.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- runs ---- */

enum { UPDATES = 60, MOST_LINES = 128 };

static int make_paced_job(void **state)
{
    int result = make_job(state);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    shell("sed 's/gpus_per_node: 1/gpus_per_node: 2/; s/^microbatches: .*/microbatches: 32/; "
          "s/^sequence/data: 2\\nsequence/; s/^train:/train:\\n  log_every: 1/' @/job.yaml "
          ">@/paced.yaml");
    return result;
}

/* Two ranks of ergon train with the options, whose scheduler has the folder JOB; ends go to
 * finish_launched(), and what they print to `out.0`. */
static pid_t launch_paced(const char *job, const char *options)
{
    world = (struct world){.ranks = 1};
    fflush(NULL);
    pid_t launcher = fork();
    assert_true(launcher >= 0);
    if (launcher > 0)
        return launcher;
    struct erg_text line = {0}, rest = with_folder(options), plan = {0};
    int out = open(in_folder("out.0"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(out, 1);
    dup2(out, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    erg_text_printf(&plan, "%s/plan.json", in_folder(job));
    setenv("ERGON_JOB", in_folder(job), 1);
    setenv("ERGON_PLAN", plan.data, 1);
    erg_text_printf(&line,
                    "exec '%s' run -n 2 --plain -- '%s' train %s/paced.yaml --device host %s",
                    ERGON_TEST_PROGRAM, ERGON_TEST_PROGRAM, folder, rest.data);
    execl("/bin/sh", "sh", "-c", line.data, (char *)NULL);
    _exit(127);
}

static void write_plan(const char *job, const char *text)
{
    char path[64];
    struct erg_error err;
    snprintf(path, sizeof path, "%s/plan.json", job);
    assert_ok(erg_file_write(in_folder(path), text, strlen(text), &err), &err);
}

/* The lines of JSON in a file of the folder; 0 where there is none. */
static size_t read_lines(json_t *lines[MOST_LINES], const char *path)
{
    char *text;
    size_t count = 0;
    assert_int_equal(erg_file_read(in_folder(path), 0, &text, NULL, NULL), 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(count < MOST_LINES);
        assert_non_null(lines[count++] = json_loads(line, 0, NULL));
    }
    free(text);
    return count;
}

static void free_lines(json_t *lines[MOST_LINES], size_t count)
{
    for (size_t i = 0; i < count; i++)
        json_decref(lines[i]);
}

static double number(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

static double step_s(const json_t *line)
{
    return 1e-3 * number(json_object_get(line, "step_ms"), "mean");
}

/* The steps behind line `first` up to `last` came more than twice as slowly as they worked. */
static void check_paced(const char *run, size_t first, size_t last)
{
    char path[64];
    json_t *lines[MOST_LINES];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    size_t count = read_lines(lines, path);
    double worked_s = 0, counted_s = 0;
    assert_true(count > last);
    for (size_t i = first + 1; i <= last; i++) {
        double tokens = number(lines[i], "tokens") - number(lines[i - 1], "tokens");
        worked_s += step_s(lines[i]);
        counted_s += tokens / number(lines[i], "tokens_per_s");
    }
    double whole_s = number(lines[last], "time_unix_s") - number(lines[first], "time_unix_s");
    print_message("steps %zu to %zu: %.3f s, of which they worked %.3f s\n", first + 2, last + 1,
                  whole_s, worked_s);
    assert_true(whole_s > 2 * worked_s);
    assert_true(counted_s > 2 * worked_s && counted_s < 1.5 * whole_s);
    free_lines(lines, count);
}

/* The numbers that the reports say, each once and in order; the iteration of the first. */
static char *reported_plans(const char *job, long *iteration)
{
    char path[64];
    json_t *lines[MOST_LINES];
    struct erg_text plans = {0};
    json_int_t before = 0;
    snprintf(path, sizeof path, "%s/reports.jsonl", job);
    size_t count = read_lines(lines, path);
    erg_text_add(&plans, "");
    for (size_t i = 0; i < count; i++) {
        json_int_t plan = json_integer_value(json_object_get(lines[i], "plan"));
        if (plan != before && before == 0)
            *iteration = (long)json_integer_value(json_object_get(lines[i], "iteration"));
        if (plan != before)
            erg_text_printf(&plans, " %ld", (long)plan);
        before = plan;
    }
    free_lines(lines, count);
    return plans.data;
}

static void check_output(const char *part, int times)
{
    struct erg_text all = output_of_all();
    if (times_in(all.data, part) != times)
        fail_msg("expected \"%s\" %d times in:\n%s", part, times, all.data);
    erg_text_release(&all);
}

/* ---- tests ---- */

/* Slower, then a file that is no plan, then at full speed: the same bits all the time. */
static void a_run_follows_plans(void **state)
{
    (void)state;
    long iteration = 0;
    shell("mkdir @/idle @/obeys");
    write_plan("idle", "{\"number\": 9, \"slowdown\": 1}");
    assert_int_equal(finish_launched(launch_paced("idle", "-o @/plain --export @/plain-model")), 0);
    char *plans = reported_plans("idle", &iteration);
    assert_string_equal(plans, " 9");
    free(plans);

    write_plan("obeys", "{\"number\": 3, \"type\": \"A\", \"slowdown\": 5}");
    pid_t launcher = launch_paced("obeys", "-o @/slow --export @/slow-model");
    await_steps("slow", 6);
    write_plan("obeys", "{\"number\": 4, \"slow");
    await_steps("slow", 14);
    write_plan("obeys", "{\"number\": 5}");
    assert_int_equal(finish_launched(launcher), 0);
    check_paced("slow", 1, 12);
    check_output("training continues at its pace", 1);
    plans = reported_plans("obeys", &iteration);
    assert_string_equal(plans, " 3 5");
    /* The ranks agree in the first step, and the second is the first that they make by it. */
    assert_int_equal(iteration, 2);
    free(plans);
    assert_same_run("slow", "plain");
}

static void an_invalid_plan_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {NULL, "/plan.json': No such file"},
        {"number: 3", "/plan.json:1"},
        {"{\"number\": 0, \"slowdown\": 2}", "key 'number': expected"},
        {"{\"number\": 3, \"slowdown\": 0.5}", "key 'slowdown': expected"},
        {"{\"slowdown\": 2}", "key 'number'"},
        {"[3]", "/plan.json"},
        {"{\"number\": 3, \"slowdown\": 2}", "belongs to user 12345; expected the owner"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        long iteration;
        bool foreign = strstr(bad[i].message, "belongs") != NULL;
        if (foreign && geteuid() != 0)
            continue; /* only root can give a file away */
        shell("rm -rf @/bad @/bad-run; mkdir @/bad");
        if (bad[i].text)
            write_plan("bad", bad[i].text);
        if (foreign)
            assert_int_equal(chown(in_folder("bad/plan.json"), 12345, (gid_t)-1), 0);
        assert_int_equal(finish_launched(launch_paced("bad", "-o @/bad-run -n 4")), 0);
        check_output(bad[i].message, 1);
        check_output("training continues at its pace", 1);
        char *plans = reported_plans("bad", &iteration);
        assert_string_equal(plans, "");
        free(plans);
    }
}

/* A pause of a thousand steps does not keep a stop waiting. */
static void a_signal_ends_the_pause(void **state)
{
    (void)state;
    json_t *lines[MOST_LINES];
    shell("mkdir @/stops");
    write_plan("stops", "{\"number\": 1, \"slowdown\": 1000}");
    pid_t launcher = launch_paced("stops", "-o @/stopped");
    await_steps("stopped", 1);
    int64_t start_ns = erg_now_ns();
    kill(launcher, SIGTERM);
    assert_int_equal(finish_launched(launcher), 85);
    double waited_s = 1e-9 * (double)(erg_now_ns() - start_ns);
    size_t count = read_lines(lines, "stopped/metrics.jsonl");
    double pause_s = 999 * step_s(lines[0]);
    print_message("stopped after %.3f s; the pause was to take about %.3f s\n", waited_s, pause_s);
    assert_int_equal(count, 2); /* the step in which all ranks hear of it */
    assert_true(waited_s < pause_s / 2);
    free_lines(lines, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_follows_plans),
        cmocka_unit_test(an_invalid_plan_changes_nothing),
        cmocka_unit_test(a_signal_ends_the_pause),
    };
    return cmocka_run_group_tests(tests, make_paced_job, remove_folder);
}
