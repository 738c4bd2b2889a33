/*
 * A day of jobs on a real Slurm (tests/live/mini-cluster.sh) and in the simulator: the same trace,
 * cluster, profiles and policy must give nearly the same. Trainers are fake ones, as fast as the
 * profiles say; time passes LIVE_COMPRESS times as fast. LIVE_POLICIES (names), LIVE_JOBS
 * and LIVE_SEED choose other days ("make live-check"), of which LIVE_TABLE gets a row each: policy,
 * seed, jobs; mean completion and makespan in seconds, moves, and energy in MJ, each live and
 * simulated.
 *
 * The simulator runs after the live day, with what a start and a move cost there, and with jobs
 * that arrive when the live controller saw them. No limit here is one of this machine's speed: a
 * busy one makes restarts dearer, which the simulator is told. Under fcfs both decide the same. The
 * policy ergon weighs jobs again at every event, and events that come in another order by a second
 * make it decide otherwise between near-equals: days differ by more than their means do.
 */
#include "check.h"
#include "io/csv.h"
#include "live_power.h"
#include "program.h"
#include "side_by_side.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_JOBS = 200 };

static const char types_text[] =
    "  - {name: H800-SXM-80GB, nodes: %s, gpus_per_node: 8, memory_gb: 85.9, idle_power_w: 70}\n"
    "  - {name: A100-SXM4-80GB, nodes: %s, gpus_per_node: 8, memory_gb: 85.9, idle_power_w: 55}\n"
    "  - {name: A100-SXM4-40GB, nodes: %s, gpus_per_node: 4, memory_gb: 42.9, idle_power_w: 50}\n";

static const char recipe_text[] =
    "jobs: %ld\n"
    "jobs_per_day: 400\n"
    "duration: {median_h: 0.3, sigma: 0.7, least_h: 0.1, most_h: 1}\n"
    "gpus: [{count: 1, weight: 20}, {count: 2, weight: 20}, {count: 4, weight: 30},"
    " {count: 8, weight: 30}]\n"
    "models:\n"
    "  - {model: Llama-3.2-1B, size: 1.24B, batch: 128, weight: 1}\n"
    "  - {model: Qwen3-1.7B, size: 1.72B, batch: 128, weight: 1}\n"
    "  - {model: Llama-3.2-3B, size: 3.21B, batch: 128, weight: 1}\n";

static double compress = 120;
static long jobs_count = 12;

/* As in types_text. */
static double idle_w(const char *gpu)
{
    return gpu[0] == 'h' ? 70 : gpu[0] == 'a' ? 55 : 50;
}

/* ---- the day ---- */

/* A job of the trace, and what became of it. */
struct day_job {
    char id[40], model[60], size[20], type[40];
    double submit_s, iterations;
    long batch, gpus;
    double live_submitted_s, live_ended_s, live_jct_s, simulated_jct_s, simulated_ended_s;
    double seen_s; /* from its submission until the controller knew it */
    long starts;
};

struct day {
    const char *policy;
    struct day_job jobs[MOST_JOBS];
    size_t count;
    double began_s, makespan_s, gpu_s;
    double start_s, move_s, end_s; /* an end: until the controller knows that GPUs are free */
    long placements, simulated_placements; /* of jobs on GPUs, by decisions */
    double energy_j, simulated_energy_j;
};

static void write_files(void)
{
    char text[2000];
    int at = snprintf(text, sizeof text, "types:\n");
    at += snprintf(text + at, sizeof text - (size_t)at, types_text, "1", "1", "2");
    write_text("cluster.yaml", text);
    at = snprintf(text, sizeof text,
                  "slurm: {partition: ergon, spool: %s/spool, poll_s: 0.1, settle_s: 0.1}\n"
                  "profiles: " ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles\n"
                  "reconfiguration: {fixed_s: %g}\ntypes:\n",
                  folder, 1.5 * compress);
    snprintf(text + at, sizeof text - (size_t)at, types_text, "h1", "a1", "\"b[1-2]\"");
    write_text("live.yaml", text);
    snprintf(text, sizeof text, recipe_text, jobs_count);
    write_text("recipe.yaml", text);
    mkdir(in_folder("spool"), 0777);
}

static double field(const struct erg_csv *csv, size_t row, size_t column)
{
    double value;
    struct erg_error err;
    assert_ok(erg_csv_double(csv, row, column, &value, &err), &err);
    return value;
}

static struct erg_csv *open_csv(const char *name)
{
    struct erg_csv *csv;
    struct erg_error err;
    assert_ok(erg_csv_load(&csv, in_folder(name), &err), &err);
    return csv;
}

static size_t column(const struct erg_csv *csv, const char *name)
{
    size_t at;
    struct erg_error err;
    assert_ok(erg_csv_require(csv, name, &at, &err), &err);
    return at;
}

static void draw(struct day *day)
{
    const char *seed = getenv("LIVE_SEED");
    assert_int_equal(
        shell_of("'" ERGON_TEST_PROGRAM "' simulate @/cluster.yaml --generate @/recipe.yaml "
                 "--profiles " ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles --seed %s "
                 ">@/trace.csv",
                 seed ? seed : "1"),
        0);
    struct erg_csv *csv = open_csv("trace.csv");
    day->count = erg_csv_rows(csv);
    assert_int_equal(day->count, jobs_count);
    for (size_t i = 0; i < day->count; i++) {
        struct day_job *job = &day->jobs[i];
        snprintf(job->id, sizeof job->id, "%s", erg_csv_text(csv, i, column(csv, "job_id")));
        snprintf(job->model, sizeof job->model, "%s", erg_csv_text(csv, i, column(csv, "model")));
        snprintf(job->size, sizeof job->size, "%s", erg_csv_text(csv, i, column(csv, "param_num")));
        snprintf(job->type, sizeof job->type, "%s", erg_csv_text(csv, i, column(csv, "gpu_type")));
        job->submit_s = field(csv, i, column(csv, "submit_time_s"));
        job->iterations = field(csv, i, column(csv, "num_iterations"));
        job->batch = (long)field(csv, i, column(csv, "global_batch"));
        job->gpus = (long)field(csv, i, column(csv, "num_gpus"));
    }
    for (size_t i = day->count; i-- > 0;)
        day->jobs[i].submit_s -= day->jobs[0].submit_s;
    erg_csv_free(csv);
}

/* Job ids of the live day are their names. */
static void submit(const struct day_job *job)
{
    const int status =
        shell_of("'" ERGON_TEST_PROGRAM "' submit --live @/live.yaml --like %s-%s:%ld:%.0f -n %ld "
                 "%s%s --json "
                 "'" ERGON_TEST_FAKE_TRAINER
                 "' -- compress=%g report_s=1 log=@/steps >@/submitted-%s.json 2>>@/submit.log",
                 job->model, job->size, job->batch, job->iterations, job->gpus,
                 job->type[0] ? "-t " : "", job->type, compress, job->id);
    if (status != 0)
        shell_of("cat @/submit.log");
    assert_int_equal(status, 0);
}

static json_t *status_of_controller(void)
{
    return json_load_file(in_folder("spool/.controller/status.json"), 0, NULL);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A text or the number that `ergon submit` printed of a job, as text. To be freed. */
static char *submitted(const struct day_job *job, const char *key)
{
    char name[80], *text;
    snprintf(name, sizeof name, "submitted-%s.json", job->id);
    json_t *document = json_load_file(in_folder(name), 0, NULL);
    const json_t *value = json_object_get(document, key);
    assert_true(json_is_string(value) || json_is_integer(value));
    text = json_is_string(value) ? strdup(json_string_value(value))
                                 : json_dumps(value, JSON_ENCODE_ANY);
    json_decref(document);
    assert_non_null(text);
    return text;
}

/* The number that Slurm gave it. */
static json_int_t id_of(const struct day_job *job)
{
    char *text = submitted(job, "job");
    const json_int_t id = atoll(text);
    free(text);
    return id;
}

/* Whether all jobs have ended; none may end otherwise. */
static bool all_ended(struct day *day)
{
    json_t *status = status_of_controller(), *one;
    size_t k, ended = 0;
    day->gpu_s = 0;
    json_array_foreach(json_object_get(status, "jobs"), k, one)
    {
        const char *phase = json_string_value(json_object_get(one, "phase"));
        if (strcmp(phase, "failed") == 0 || strcmp(phase, "cancelled") == 0 ||
            strcmp(phase, "gone") == 0 || json_is_true(json_object_get(one, "needs_attention")))
            fail_msg("job %lld is %s: %s", json_integer_value(json_object_get(one, "id")), phase,
                     json_string_value(json_object_get(one, "reason")));
        if (strcmp(phase, "ended") != 0)
            continue;
        ended++;
        for (size_t i = 0; i < day->count; i++)
            if (id_of(&day->jobs[i]) == json_integer_value(json_object_get(one, "id"))) {
                struct day_job *job = &day->jobs[i];
                job->live_submitted_s = number(one, "submitted_unix_s");
                job->live_ended_s = number(one, "since_unix_s");
                job->live_jct_s = (job->live_ended_s - job->live_submitted_s) * compress;
                job->starts = (long)number(one, "starts");
                day->gpu_s += number(one, "attained_gpu_s") * compress;
            }
    }
    json_decref(status);
    return ended == day->count;
}

static void live(struct day *day)
{
    assert_int_equal(shell_of("'" ERGON_TEST_SOURCE_DIR "/tests/live/mini-cluster.sh' start @/mini "
                              "OWNER=%d NODES='h:1:h800:8 a:1:a100:8 b:2:a100-40:4' CPUS=16 "
                              /* A busy machine is slow to answer and no broken node. */
                              "EXTRA='SlurmdTimeout=120\\nMessageTimeout=60' >@/mini.log 2>&1",
                              (int)getpid()),
                     0);
    setenv("SLURM_CONF", in_folder("mini/slurm.conf"), 1);
    assert_int_equal(shell_of("'" ERGON_TEST_PROGRAM "' schedule @/live.yaml --policy %s "
                              "--compress %g >@/schedule.log 2>&1 & echo $! >@/schedule.pid",
                              day->policy, compress),
                     0);
    day->began_s = unix_s() + 1;
    for (size_t i = 0; i < day->count; i++) {
        sleep_until(day->began_s + day->jobs[i].submit_s / compress);
        submit(&day->jobs[i]);
    }
    /* A job that takes ten times as long as the whole day should is stuck. */
    const double give_up_s = unix_s() + 600;
    while (!all_ended(day)) {
        if (unix_s() > give_up_s || shell_of("kill -0 $(cat @/schedule.pid)") != 0) {
            shell_of("tail -n 40 @/schedule.log; squeue");
            fail_msg("the live day does not end");
        }
        sleep_until(unix_s() + 0.3);
    }
    assert_int_equal(
        shell_of("kill $(cat @/schedule.pid); while kill -0 $(cat @/schedule.pid) 2>/dev/null; do "
                 "sleep 0.1; done"),
        0);
    for (size_t i = 0; i < day->count; i++)
        day->makespan_s =
            fmax(day->makespan_s,
                 (day->jobs[i].live_ended_s - day->jobs[0].live_submitted_s) * compress);
}

/* One number from the controller's journal; NAN: there is none. `text`: of its ?, or NULL. */
static double ask_journal(sqlite3 *journal, const char *query, const char *text)
{
    sqlite3_stmt *statement;
    double value = NAN;
    assert_int_equal(sqlite3_prepare_v2(journal, query, -1, &statement, NULL), SQLITE_OK);
    if (text)
        assert_int_equal(sqlite3_bind_text(statement, 1, text, -1, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    if (sqlite3_column_type(statement, 0) != SQLITE_NULL)
        value = sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

/* What starts, moves, and the ways into and out of Slurm took, from the controller's journal. */
static void read_journal(struct day *day)
{
    sqlite3 *journal;
    assert_int_equal(sqlite3_open(in_folder("live.yaml.journal"), &journal), SQLITE_OK);
    day->start_s =
        compress * ask_journal(journal, "SELECT avg(took_s) FROM restart WHERE first", NULL);
    day->move_s =
        compress * ask_journal(journal, "SELECT avg(took_s) FROM restart WHERE NOT first", NULL);
    day->end_s =
        compress * ask_journal(journal, "SELECT avg(seconds) FROM delay WHERE kind = 'end'", NULL);
    day->placements = (long)ask_journal(
        journal,
        "SELECT count(*) FROM decision, json_each(decision.changes) "
        "WHERE json_extract(value, '$.moves') AND json_extract(value, '$.gpus') > 0",
        NULL);
    for (size_t i = 0; i < day->count; i++) {
        char *token = submitted(&day->jobs[i], "token");
        day->jobs[i].seen_s =
            compress *
            ask_journal(journal, "SELECT avg(seconds) FROM delay WHERE kind = 'seen' AND token = ?",
                        token);
        assert_false(isnan(day->jobs[i].seen_s));
        free(token);
    }
    sqlite3_close(journal);
    assert_false(isnan(day->start_s) || isnan(day->end_s));
    if (isnan(day->move_s))
        day->move_s = day->start_s;
}

/* The trace in which each job arrives when the live controller saw it. */
static void write_seen(const struct day *day)
{
    struct erg_csv *csv = open_csv("trace.csv");
    const size_t submit = column(csv, "submit_time_s");
    struct erg_text text = {0};
    for (size_t c = 0; erg_csv_header(csv, c); c++)
        erg_text_printf(&text, "%s%s", c ? "," : "", erg_csv_header(csv, c));
    for (size_t i = 0; i < day->count; i++)
        for (size_t c = 0; erg_csv_header(csv, c); c++) {
            const char *before = c ? "," : "\n";
            if (c == submit)
                erg_text_printf(&text, "%s%.3f", before,
                                day->jobs[i].submit_s + day->jobs[i].seen_s);
            else
                erg_text_printf(&text, "%s%s", before, erg_csv_text(csv, i, c));
        }
    erg_text_add(&text, "\n");
    write_text("seen.csv", text.data);
    erg_text_release(&text);
    erg_csv_free(csv);
}

/* From the first submission to the last end. */
static void add_energy(struct day *day, const struct steps *steps)
{
    const double idle_all_w = 8 * idle_w("h") + 8 * idle_w("a") + 2 * 4 * idle_w("b");
    day->energy_j = idle_all_w * day->makespan_s + compress * drawn_j(steps, idle_w);
}

static void simulate(struct day *day)
{
    char text[300];
    snprintf(text, sizeof text, "reconfiguration: {fixed_s: %.1f, start_s: %.1f, most_s: 3600}\n",
             day->move_s, day->start_s + day->end_s);
    char types[1000], all[1400];
    snprintf(types, sizeof types, types_text, "1", "1", "2");
    snprintf(all, sizeof all, "types:\n%s%s", types, text);
    write_text("cluster.yaml", all);
    write_seen(day);
    assert_int_equal(
        shell_of("'" ERGON_TEST_PROGRAM "' simulate @/cluster.yaml @/seen.csv --policy %s "
                 "--profiles " ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles --until-empty "
                 "-o @/simulated >@/simulate.log 2>&1",
                 day->policy),
        0);
    json_t *summary = json_load_file(in_folder("simulated/summary.json"), 0, NULL);
    day->simulated_energy_j = number(summary, "energy_j");
    json_decref(summary);
    struct erg_csv *csv = open_csv("simulated/jobs.csv");
    for (size_t i = 0; i < day->count; i++)
        for (size_t row = 0; row < erg_csv_rows(csv); row++)
            if (strcmp(erg_csv_text(csv, row, column(csv, "job_id")), day->jobs[i].id) == 0) {
                day->jobs[i].simulated_jct_s =
                    field(csv, row, column(csv, "jct_s")) + day->jobs[i].seen_s;
                day->jobs[i].simulated_ended_s = field(csv, row, column(csv, "ended_s"));
                day->simulated_placements += (long)field(csv, row, column(csv, "reconfigurations"));
            }
    erg_csv_free(csv);
}

/* A row for whoever compares days of several seeds. */
static void append_row(const struct day *day, double live_s, double simulated_s, double last_s)
{
    FILE *table = fopen(getenv("LIVE_TABLE"), "a");
    const char *seed = getenv("LIVE_SEED");
    assert_non_null(table);
    fprintf(table, "%s,%s,%zu,%.1f,%.1f,%.1f,%.1f,%ld,%ld,%.3f,%.3f\n", day->policy,
            seed ? seed : "1", day->count, live_s, simulated_s, day->makespan_s, last_s,
            day->placements - (long)day->count, day->simulated_placements - (long)day->count,
            1e-6 * day->energy_j, 1e-6 * day->simulated_energy_j);
    assert_int_equal(fclose(table), 0);
}

/* Fcfs decides the same in both; the others decide anew at every event. On a busy host starts are
 * dearer than the usual 1.5 s, and the less alike, of which the simulator has but the mean. */
static void compare(const struct day *day)
{
    const double most =
        (strcmp(day->policy, "fcfs") == 0 ? 0.05 : 0.12) * fmax(1, day->start_s / (1.5 * compress));
    double live_s = 0, simulated_s = 0, last_s = 0, worst_s = 0;
    long starts = 0;
    for (size_t i = 0; i < day->count; i++) {
        const struct day_job *job = &day->jobs[i];
        live_s += job->live_jct_s / (double)day->count;
        simulated_s += job->simulated_jct_s / (double)day->count;
        last_s = fmax(last_s, job->simulated_ended_s);
        worst_s = fmax(worst_s, fabs(job->live_jct_s - job->simulated_jct_s) / compress);
        starts += job->starts;
        printf("%-10s %ld GPUs asked, %2ld starts: %6.0f s live, %6.0f s simulated\n", job->id,
               job->gpus, job->starts, job->live_jct_s, job->simulated_jct_s);
    }
    printf("%s: mean completion %.0f s live, %.0f s simulated (%+.1f %%); makespan %+.1f %%; "
           "energy %.1f MJ, %+.1f %%; %ld placements, %ld simulated, %ld starts; a start took %.2f "
           "s, a move %.2f s, an end %.2f "
           "s of real time; largest difference of a job %.1f real s\n",
           day->policy, live_s, simulated_s, 100 * (live_s / simulated_s - 1),
           100 * (day->makespan_s / last_s - 1), 1e-6 * day->energy_j,
           100 * (day->energy_j / day->simulated_energy_j - 1), day->placements,
           day->simulated_placements, starts, day->start_s / compress, day->move_s / compress,
           day->end_s / compress, worst_s);
    if (getenv("LIVE_KEEP"))
        shell_of("cp -r @ %s/%s", getenv("LIVE_KEEP"), day->policy);
    if (getenv("LIVE_TABLE")) { /* bounds are of the mean over seeds, and the caller's */
        append_row(day, live_s, simulated_s, last_s);
        return;
    }
    const double energies = day->energy_j / day->simulated_energy_j;
    if (fabs(live_s / simulated_s - 1) > most || fabs(day->makespan_s / last_s - 1) > 1.5 * most ||
        fabs(energies - 1) > most)
        shell_of("cat @/schedule.log");
    assert_true(fabs(live_s / simulated_s - 1) <= most);
    assert_true(fabs(day->makespan_s / last_s - 1) <= 1.5 * most);
    assert_true(fabs(energies - 1) <= most);
}

/* Whether an incarnation ended otherwise than done or saved (85), by Slurm's own records. */
static bool has_failures(void)
{
    return shell_of(
               "grep -E 'JobState=[A-Z]*FAIL' @/mini/log/jobcomp | grep -v ' ExitCode=85:0'") == 0;
}

/* A job whose trainer failed avoids that node for two minutes, which are hours of the compressed
 * day. The simulator knows nothing of it, so the day runs again. A busy machine can make a trainer
 * fail; the controller's answer to failures is tested in test_slurm_faults. */
static void a_day(const char *policy)
{
    enum { DAYS_MOST = 3 };
    static struct day day;
    struct steps *steps;
    for (int days = 1;; days++) {
        day = (struct day){.policy = policy};
        write_files();
        draw(&day);
        live(&day);
        steps = read_steps();
        check_steps(steps);
        if (!has_failures())
            break;
        shell_of("cat @/schedule.log; tail -n 5 @/spool/*/log");
        if (days == DAYS_MOST)
            fail_msg("trainers failed on each of %d days", days);
        printf("%s: a trainer failed; the day runs again\n", policy);
        assert_int_equal(
            shell_of("'" ERGON_TEST_SOURCE_DIR "/tests/live/mini-cluster.sh' stop @/mini"), 0);
        assert_int_equal(remove_folder(NULL), 0);
        assert_int_equal(make_folder(NULL), 0);
    }
    read_journal(&day);
    add_energy(&day, steps);
    simulate(&day);
    compare(&day);
}

static void one_policy(void **state)
{
    a_day(*state);
}

int main(void)
{
    enum { MOST_POLICIES = 16, TOGETHER = 3 };
    static char policies[400];
    struct CMUnitTest tests[MOST_POLICIES];
    const char *given = getenv("LIVE_COMPRESS"), *jobs = getenv("LIVE_JOBS");
    const char *list = getenv("LIVE_POLICIES");
    size_t count = 0;
    int failed = 0;
    if (system("PATH=$PATH:/usr/sbin:/sbin; command -v slurmctld slurmd munged >/dev/null") != 0) {
        puts("skipped: Slurm or munge is not installed");
        return 77;
    }
    compress = given ? atof(given) : compress;
    jobs_count = jobs ? atol(jobs) : jobs_count;
    if (!(compress >= 1) || jobs_count < 1 || jobs_count > MOST_JOBS) {
        printf("LIVE_COMPRESS must be at least 1, and LIVE_JOBS from 1 to %d\n", MOST_JOBS);
        return 2;
    }
    snprintf(policies, sizeof policies, "%s", list ? list : "fcfs ergon");
    for (char *name = strtok(policies, " ,"); name && count < MOST_POLICIES;
         name = strtok(NULL, " ,"))
        tests[count++] = (struct CMUnitTest)cmocka_unit_test_prestate(one_policy, name);
    for (size_t i = 0; i < count; i++)
        tests[i].name = tests[i].initial_state;
    for (size_t i = 0; i < count; i += TOGETHER)
        failed += run_side_by_side(&tests[i], count - i < TOGETHER ? count - i : TOGETHER,
                                   make_folder, remove_folder);
    return failed;
}
