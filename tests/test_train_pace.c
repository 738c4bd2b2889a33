/* ergon train as a managed job: it follows the plans that its scheduler leaves. */
#define _GNU_SOURCE
#include "train_ranks.h"

#include "base/clock.h"
#include "base/memory.h"
#include "io/json.h"

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- runs ---- */

enum { MOST_LINES = 40000 };

static int make_paced_job(void **state)
{
    int result = make_job(state);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    shell("sed 's/gpus_per_node: 1/gpus_per_node: 2/; s/^microbatches: .*/microbatches: 32/; "
          "s/^sequence/data: 2\\nsequence/; s/^train:/train:\\n  log_every: 1/' @/job.yaml "
          ">@/paced.yaml; sed 's/updates: .*/updates: 1000000/' @/paced.yaml >@/endless.yaml");
    return result;
}

/* Two ranks of ergon train on a file with the options, whose scheduler has the folder JOB; ends go
 * to finish_launched(), and what they print to `out.0`. */
static pid_t launch_file(const char *file, const char *job, const char *options)
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
    erg_text_printf(&line, "exec '%s' run -n 2 --plain -- '%s' train %s/%s --device host %s",
                    ERGON_TEST_PROGRAM, ERGON_TEST_PROGRAM, folder, file, rest.data);
    execl("/bin/sh", "sh", "-c", line.data, (char *)NULL);
    _exit(127);
}

static pid_t launch_paced(const char *job, const char *options)
{
    return launch_file("paced.yaml", job, options);
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
    check_output("training continues at its current pace", 1);
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
        {"{\"number\": 3, \"capped\": true, \"power_w\": 0}", "key 'power_w': expected"},
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
        check_output("training continues at its current pace", 1);
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

/* ---- operating points ---- */

/* Waits until a plan is the last that the job has reported. */
static void await_plan(const char *job, long number)
{
    struct erg_text word = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/reports.jsonl", job);
    erg_text_printf(&word, "\"plan\":%ld}", number);
    for (bool found = false; !found; nap()) {
        char *text;
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
        if (erg_file_read(in_folder(path), 0, &text, NULL, NULL) != 0)
            continue;
        found = strstr(text, word.data) != NULL;
        free(text);
    }
    erg_text_release(&word);
}

static void write_slowdown(long number, double slowdown)
{
    char text[120];
    snprintf(text, sizeof text, "{\"number\": %ld, \"point\": 7, \"slowdown\": %.17g}", number,
             slowdown);
    write_plan("points", text);
    await_plan("points", number);
}

/* How many times as long as they worked the steps behind line `first` up to `last` took. */
static double slowdown_of(json_t *lines[MOST_LINES], size_t first, size_t last)
{
    double worked_s = 0, counted_s = 0;
    for (size_t i = first + 1; i <= last; i++) {
        worked_s += step_s(lines[i]);
        counted_s += (number(lines[i], "tokens") - number(lines[i - 1], "tokens")) /
                     number(lines[i], "tokens_per_s");
    }
    return counted_s / worked_s;
}

/* The times of the points that the lines tell, each change once: "A B". */
static char *planned_of(json_t *lines[MOST_LINES], size_t count)
{
    struct erg_text planned = {0};
    double before = NAN;
    erg_text_add(&planned, "");
    for (size_t i = 0; i < count; i++) {
        double now = number(lines[i], "planned_ms");
        if (now != before)
            erg_text_printf(&planned, " %.9g", now);
        before = now;
    }
    return planned.data;
}

/* A run by a plan goes to points that are as slow as its scheduler plans, and pauses for the rest.
 * It is never faster than at the point of its options. */
static void a_run_takes_points(void **state)
{
    (void)state;
    enum { MOST_POINTS = 500 };
    char options[120];
    static double ms[MOST_POINTS];
    static json_t *lines[MOST_LINES];
    struct erg_text expected = {0};
    check(0, "plan.json", "optimize @/endless.yaml -o @/opt");
    json_t *document = json_load_file(in_folder("opt/plan.json"), 0, NULL);
    const json_t *points = json_object_get(
        json_object_get(json_object_get(document, "methods"), "sequential+clocks"), "points");
    const size_t last = json_array_size(points) - 1;
    assert_true(last >= 4 && last < MOST_POINTS);
    for (size_t i = 0; i <= last; i++)
        ms[i] = 1e3 * number(json_array_get(points, i), "time_s");
    const double beyond_ms = 1e3 * number(json_object_get(document, "beyond"), "time_s");
    json_decref(document);
    const size_t own = 1, other = 2; /* neighbours, however near */
    assert_true(beyond_ms > 0);

    shell("mkdir @/points");
    write_plan("points", "{\"number\": 1}");
    snprintf(options, sizeof options,
             "-o @/pointed --plan @/opt/plan.json --method sequential+clocks --point %zu", own + 1);
    pid_t launcher = launch_file("endless.yaml", "points", options);
    await_plan("points", 1);
    write_slowdown(2, (ms[other] + beyond_ms) / (ms[own] + beyond_ms));
    const size_t at_point = lines_of("pointed");
    await_steps("pointed", at_point + 3);
    write_slowdown(3, 1);
    write_slowdown(4, 3 * ms[last] / ms[own]);
    const size_t slower = lines_of("pointed");
    await_steps("pointed", slower + 8);
    kill(launcher, SIGTERM);
    assert_int_equal(finish_launched(launcher), 85);

    const size_t count = read_lines(lines, "pointed/metrics.jsonl");
    char *planned = planned_of(lines, count);
    for (size_t i = 0; i < 4; i++)
        erg_text_printf(&expected, " %.9g", ms[(const size_t[]){own, other, own, last}[i]]);
    assert_string_equal(planned, expected.data);
    const double alone = slowdown_of(lines, at_point - 1, at_point + 1);
    const double rest = slowdown_of(lines, slower, slower + 6);
    print_message("at the point %.3f times, with the rest %.3f times as long\n", alone, rest);
    assert_true(alone < 1.05); /* the point is all of the slowdown */
    assert_true(rest > 2);     /* three times, in the least time of a rank */
    free(planned);
    erg_text_release(&expected);
    free_lines(lines, count);
}

/* ---- power ---- */

static const double idle_w = 5, busy_w = 50; /* of the host, and of a busy CPU beyond that */

/* CPU seconds of the processes that train in this folder. */
static double trained_s(void)
{
    DIR *all = opendir("/proc");
    double sum_s = 0;
    assert_non_null(all);
    for (const struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[64], text[4096];
        unsigned long user, system;
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/cmdline", entry->d_name);
        FILE *file = fopen(path, "r");
        const size_t count = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file)
            fclose(file);
        if (!count || !memmem(text, count, "endless.yaml", strlen("endless.yaml")) ||
            !memmem(text, count, folder, strlen(folder)))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
        file = fopen(path, "r");
        const bool read = file && fgets(text, sizeof text, file);
        if (file)
            fclose(file);
        if (read && sscanf(strrchr(text, ')') + 1, "%*s%*d%*d%*d%*d%*d%*u%*u%*u%*u%*u%lu%lu", &user,
                           &system) == 2)
            sum_s += (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    }
    closedir(all);
    return sum_s;
}

/* The counter of a CPU package of which trainers need the power, moved until it is told to end. */
static struct package {
    int file;
    pthread_t thread;
    _Atomic(double) energy_j;
    atomic_bool ends;
} package;

static void *move_counter(void *unused)
{
    (void)unused;
    const int64_t start_ns = erg_now_ns();
    double energy_j = 0;
    while (!package.ends) {
        char text[32];
        /* Processes that end take their seconds with them. */
        energy_j = fmax(energy_j,
                        1e-9 * (double)(erg_now_ns() - start_ns) * idle_w + busy_w * trained_s());
        snprintf(text, sizeof text, "%020.0f\n", 1e6 * energy_j);
        if (pwrite(package.file, text, strlen(text), 0) != (ssize_t)strlen(text))
            abort();
        package.energy_j = energy_j;
        erg_sleep_ns(10000000);
    }
    return NULL;
}

static void begin_package(void)
{
    shell("mkdir -p @/rapl/intel-rapl:0; cd @/rapl/intel-rapl:0; echo package-0 >name; "
          "echo 262143328850 >max_energy_range_uj; echo 0 >energy_uj");
    setenv("ERGON_POWERCAP", in_folder("rapl"), 1);
    package.file = open(in_folder("rapl/intel-rapl:0/energy_uj"), O_WRONLY);
    assert_true(package.file >= 0);
    assert_int_equal(pthread_create(&package.thread, NULL, move_counter, NULL), 0);
}

static void end_package(void)
{
    package.ends = true;
    pthread_join(package.thread, NULL);
    close(package.file);
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
}

static double mean_w(double duration_s)
{
    const double before_j = package.energy_j;
    const int64_t start_ns = erg_now_ns();
    erg_sleep_ns((int64_t)(1e9 * duration_s));
    const double energy_j = package.energy_j - before_j;
    return energy_j / (1e-9 * (double)(erg_now_ns() - start_ns));
}

static void write_limit(long number, double limit_w)
{
    char text[160];
    snprintf(text, sizeof text,
             "{\"number\": %ld, \"slowdown\": 1, \"capped\": true, \"power_w\": %.3f}", number,
             limit_w / 2); /* of each of two ranks */
    write_plan("holds", text);
    await_plan("holds", number);
}

/* The power of the next seconds, and how many times as long as they worked their steps took. */
static double held_for(double duration_s, double *slowdown)
{
    static json_t *lines[MOST_LINES];
    const size_t first = lines_of("held");
    const double power_w = mean_w(duration_s);
    const size_t last = lines_of("held"), count = read_lines(lines, "held/metrics.jsonl");
    *slowdown = last > first + 1 ? slowdown_of(lines, first, last - 1) : NAN;
    free_lines(lines, count);
    return power_w;
}

/* A plan that expects no pauses allows half of what training draws beyond idle power. */
static void a_run_holds_its_power(void **state)
{
    (void)state;
    enum { ATTEMPTS = 8, WINDOWS = 4 };
    bool held = false;
    shell("mkdir @/holds");
    begin_package();
    write_plan("holds", "{\"number\": 1, \"slowdown\": 1}");
    pid_t launcher = launch_file("endless.yaml", "holds", "-o @/held");
    await_plan("holds", 1);
    /* This host has other work, too: what is left for the trainer changes. */
    for (int i = 0; i < ATTEMPTS && !held; i++) {
        write_limit(2 * i + 2, 1e5);
        const double full_w = mean_w(2), limit_w = idle_w + (full_w - idle_w) / 2;
        write_limit(2 * i + 3, limit_w);
        mean_w(2.5);
        for (int k = 0; k < WINDOWS && !held; k++) {
            double slowdown, power_w = held_for(2.5, &slowdown);
            print_message("%.1f W before, %.1f W of %.1f W held, %.2f times the time\n", full_w,
                          power_w, limit_w, slowdown);
            held = fabs(power_w / limit_w - 1) < 0.12 && slowdown > 1.2;
        }
    }
    kill(launcher, SIGTERM);
    assert_int_equal(finish_launched(launcher), 85);
    end_package();
    assert_true(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_follows_plans),
        cmocka_unit_test(an_invalid_plan_changes_nothing),
        cmocka_unit_test(a_signal_ends_the_pause),
        cmocka_unit_test(a_run_takes_points),
        cmocka_unit_test(a_run_holds_its_power),
    };
    return cmocka_run_group_tests(tests, make_paced_job, remove_folder);
}
