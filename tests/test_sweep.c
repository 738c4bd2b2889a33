/*
 * Sweeps: points and keys, resampled traces, intervals by known cases, and that nothing is lost
 * when a run is killed, interrupted, or has a point that crashes.
 */
#include "base/clock.h"
#include "base/interrupt.h"
#include "cluster/sweep/sweep.h"
#include "cluster/traces/vary.h"
#include "commands.h"
#include "io/csv.h"

#include <signal.h>
#include <sqlite3.h>

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/cluster"
#define SMALL                                                                                      \
    "clusters: [" DATA "/cluster.yaml]\n"                                                          \
    "traces: [" DATA "/trace.csv]\n"                                                               \
    "profiles: " DATA "\n"

static void write_file(const char *path, const char *text)
{
    struct erg_error err;
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
}

static struct erg_sweep *load(const char *text)
{
    struct erg_sweep *sweep;
    struct erg_error err;
    write_file(in_folder("sweep.yaml"), text);
    assert_ok(erg_sweep_load(&sweep, in_folder("sweep.yaml"), &err), &err);
    return sweep;
}

static struct erg_documents *store_of(const char *name, unsigned index, unsigned count)
{
    struct erg_documents *store;
    struct erg_error err;
    assert_ok(
        erg_sweep_store_open(&store, in_folder(name), &(struct erg_sweep_part){index, count}, &err),
        &err);
    return store;
}

static int run(const struct erg_sweep *sweep, struct erg_documents *store, struct erg_error *err)
{
    return erg_sweep_run(sweep, store, &(struct erg_sweep_part){0, 1}, err);
}

/* All points. */
static struct erg_text table_of(const struct erg_sweep *sweep, struct erg_documents *store)
{
    struct erg_text text = {0};
    struct erg_error err;
    struct erg_csv *csv;
    assert_ok(erg_sweep_table(sweep, store, &text, &err), &err);
    assert_ok(erg_csv_parse(&csv, "table", text.data, text.count, &err), &err);
    assert_int_equal(erg_csv_rows(csv), erg_sweep_points(sweep));
    erg_csv_free(csv);
    return text;
}

static void check_same(const struct erg_sweep *sweep, struct erg_documents *one,
                       struct erg_documents *other)
{
    struct erg_text a = table_of(sweep, one), b = table_of(sweep, other);
    assert_string_equal(a.data, b.data);
    erg_text_release(&a);
    erg_text_release(&b);
}

/* ---- points ---- */

static void test_points(void **state)
{
    (void)state;
    struct erg_sweep *sweep = load(SMALL "policies: [fcfs, elasticflow-ls, elasticflow]\n"
                                         "reference: elasticflow-ls\n"
                                         "loads: [1, 0.5]\npower_caps: [0.7, 1]\n"
                                         "seeds: 4\nresample: true\n");
    assert_int_equal(erg_sweep_points(sweep), 3 * 2 * 2 * 4);
    assert_int_equal(sweep->reference_index, 1);
    assert_near(sweep->inputs[0].power_w, 2 * 4 * 700 + 2 * 2 * 150, 0);
    for (size_t i = 0; i < erg_sweep_points(sweep); i++) {
        struct erg_sweep_point point = erg_sweep_point(sweep, i);
        assert_int_equal(erg_sweep_index(sweep, &point), i);
        struct erg_sweep_key key = erg_sweep_key(sweep, &point);
        assert_int_equal(strlen(key.text), 16);
        for (size_t k = 0; k < i; k++) {
            struct erg_sweep_point other = erg_sweep_point(sweep, k);
            assert_string_not_equal(key.text, erg_sweep_key(sweep, &other).text);
        }
    }
    struct erg_text words = {0};
    erg_sweep_describe(&words, sweep, &(struct erg_sweep_point){.load = 1, .seed = 2, .policy = 1});
    assert_non_null(strstr(words.data, "/trace.csv, elasticflow-ls, load 0.5, cap 0.7, seed 3"));
    erg_text_release(&words);
    erg_sweep_free(sweep);
}

/* A key is of what its point depends on: neither names nor what else is in the sweep. */
static void test_keys(void **state)
{
    (void)state;
    struct erg_error err;
    char *trace;
    size_t length;
    assert_ok(erg_file_read(DATA "/trace.csv", 0, &trace, &length, &err), &err);
    write_file(in_folder("copy.csv"), trace);
    struct erg_sweep *small = load(SMALL "policies: [fcfs]\n");
    static const char large_text[] = "clusters: [" DATA "/cluster.yaml]\n"
                                     "traces: [copy.csv]\nprofiles: " DATA "\n"
                                     "policies: [elasticflow, fcfs]\nloads: [2, 1]\n";
    struct erg_sweep *large = load(large_text);
    const struct erg_sweep_point first = {0}, same = {.load = 1, .policy = 1}, other = {.load = 1};
    assert_string_equal(erg_sweep_key(small, &first).text, erg_sweep_key(large, &same).text);
    assert_string_not_equal(erg_sweep_key(small, &first).text, erg_sweep_key(large, &other).text);
    erg_sweep_free(large);
    *strstr(trace, "3000") = '4'; /* iterations of the first job */
    write_file(in_folder("copy.csv"), trace);
    large = load(large_text);
    assert_string_not_equal(erg_sweep_key(small, &first).text, erg_sweep_key(large, &same).text);
    erg_sweep_free(large);
    large = load(SMALL "policies: [fcfs]\nwork: 0.5\n");
    assert_string_not_equal(erg_sweep_key(small, &first).text, erg_sweep_key(large, &first).text);
    erg_sweep_free(large);
    erg_sweep_free(small);
    free(trace);
}

/* ---- traces ---- */

static void test_load(void **state)
{
    (void)state;
    struct erg_sweep *sweep = load(SMALL "policies: [fcfs]\n");
    const struct erg_job_trace *trace = sweep->inputs[0].trace;
    struct erg_job_trace *fast =
        erg_job_trace_vary(trace, &(struct erg_trace_variation){.load = 4});
    for (size_t i = 0; i < trace->count; i++) {
        assert_near(fast->jobs[i].submit_s, 1000 + 10.0 * (double)i / 4, 1e-9);
        assert_string_equal(fast->jobs[i].id, trace->jobs[i].id);
    }
    assert_near(fast->jobs[4].deadline_s, 1010 + 960, 1e-9);
    assert_true(isinf(fast->jobs[1].deadline_s));
    erg_job_trace_free(fast);
    erg_sweep_free(sweep);
}

/* Every job comes as often as every other on average; gaps stay those between neighbours. */
static void test_resample(void **state)
{
    (void)state;
    enum { DRAWS = 4000 };
    struct erg_sweep *sweep = load(SMALL "policies: [fcfs]\n");
    const struct erg_job_trace *trace = sweep->inputs[0].trace;
    double drawn[5] = {0}, neighbours = 0;
    for (uint64_t seed = 1; seed <= DRAWS; seed++) {
        struct erg_job_trace *other = erg_job_trace_vary(
            trace, &(struct erg_trace_variation){.load = 1, .resample = true, .seed = seed});
        assert_int_equal(other->count, 5);
        size_t before = 0;
        for (size_t i = 0; i < 5; i++) {
            const struct erg_trace_job *job = &other->jobs[i];
            size_t from = job->line - trace->jobs[0].line;
            assert_near(job->submit_s, 1000 + 10 * (double)i, 1e-9); /* all gaps are 10 s */
            assert_near(job->iterations, trace->jobs[from].iterations, 0);
            assert_int_equal(strncmp(job->id, trace->jobs[from].id, strlen(trace->jobs[from].id)),
                             0);
            if (isfinite(job->deadline_s))
                assert_near(job->deadline_s - job->submit_s,
                            trace->jobs[from].deadline_s - trace->jobs[from].submit_s, 1e-9);
            drawn[from]++;
            neighbours += i > 0 && from == (before + 1) % 5;
            before = from;
        }
        erg_job_trace_free(other);
    }
    for (size_t i = 0; i < 5; i++)
        assert_near(drawn[i] / DRAWS, 1, 0.05);
    /* Runs of ceil(5^(1/3)) = 2 jobs: half go on with the next one, and a fifth of the others. */
    assert_near(neighbours / (4.0 * DRAWS), 0.5 + 0.5 / 5, 0.01);
    struct erg_trace_variation variation = {.load = 1, .resample = true, .seed = 7};
    struct erg_job_trace *one = erg_job_trace_vary(trace, &variation);
    struct erg_job_trace *two = erg_job_trace_vary(trace, &variation);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(one->jobs[i].id, two->jobs[i].id);
    erg_job_trace_free(one);
    erg_job_trace_free(two);
    erg_sweep_free(sweep);
}

/* ---- intervals ---- */

static void put_value(const struct erg_sweep *sweep, struct erg_documents *store,
                      struct erg_sweep_point point, double value)
{
    struct erg_error err;
    json_t *document, *about = json_object();
    assert_ok(erg_sweep_simulate(sweep, &point, &document, &err), &err);
    json_object_set_new(document, "mean_jct_s", json_real(value));
    json_object_set_new(document, "p99_jct_s", json_null());
    assert_ok(erg_documents_put(store, erg_sweep_key(sweep, &point).text, about, document, &err),
              &err);
    json_decref(about);
    json_decref(document);
}

static void test_intervals(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *document;
    struct erg_sweep *sweep =
        load(SMALL "policies: [fcfs, elasticflow]\nseeds: 4\nresample: true\n");
    struct erg_documents *store = store_of("intervals", 0, 1);
    static const double values[3][2] = {{10, 9}, {20, 18}, {60, 57}};
    assert_fails(erg_sweep_document(sweep, store, &document, &err), &err,
                 "none of its 8 simulations has a result");
    for (unsigned seed = 0; seed < 3; seed++)
        for (unsigned policy = 0; policy < 2; policy++)
            put_value(sweep, store, (struct erg_sweep_point){.seed = seed, .policy = policy},
                      values[seed][policy]);
    /* Of the fourth seed only one of a pair is there. */
    put_value(sweep, store, (struct erg_sweep_point){.seed = 3, .policy = 1}, 8);
    assert_ok(erg_sweep_document(sweep, store, &document, &err), &err);
    assert_int_equal(number_at(document, "missing"), 1);
    json_t *first = json_at(document, "groups.0.loads.0.policies.0.metrics.mean_jct_s");
    json_t *second = json_at(document, "groups.0.loads.0.policies.1.metrics.mean_jct_s");
    /* sqrt(700 / 3) times t(2) = 4.30265. */
    assert_near(number_at(first, "mean"), 30, 1e-12);
    assert_near(number_at(first, "half_width"), 65.7241, 1e-4);
    assert_null(json_object_get(first, "difference"));
    assert_near(number_at(second, "mean"), 23, 1e-12);
    assert_int_equal(number_at(second, "count"), 4);
    /* -1, -2, -3: 1 / sqrt(3) times t(2). */
    assert_near(number_at(second, "difference.mean"), -2, 1e-12);
    assert_near(number_at(second, "difference.half_width"), 2.48414, 1e-5);
    assert_int_equal(number_at(second, "difference.count"), 3);
    /* 0.9, 0.9, 0.95: the mean of the logarithms, give or take 0.0180 times t(2). */
    assert_near(number_at(second, "change.mean"), -0.0836328, 1e-6);
    assert_near(number_at(second, "change.low"), -0.1520065, 1e-5);
    assert_near(number_at(second, "change.high"), -0.0097461, 1e-5);
    assert_int_equal(number_at(second, "change.count"), 3);
    assert_null(json_object_get(first, "change"));
    assert_true(
        json_is_null(json_at(document, "groups.0.loads.0.policies.0.metrics.p99_jct_s.mean")));
    json_decref(document);
    erg_documents_close(store);
    erg_sweep_free(sweep);
}

/* Pooled: two traces with two seeds each are two values, 15 and 35, not four. */
static void test_pooled(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *document;
    char *trace;
    size_t length;
    assert_ok(erg_file_read(DATA "/trace.csv", 0, &trace, &length, &err), &err);
    *strstr(trace, "3000") = '4';
    write_file(in_folder("other.csv"), trace);
    free(trace);
    struct erg_sweep *sweep =
        load("clusters: [" DATA "/cluster.yaml]\ntraces: [" DATA "/trace.csv, other.csv]\n"
             "profiles: " DATA "\npolicies: [fcfs]\nseeds: 2\nresample: true\npool_traces: true\n");
    struct erg_documents *store = store_of("pooled", 0, 1);
    for (unsigned i = 0; i < 4; i++)
        put_value(sweep, store, (struct erg_sweep_point){.trace = i / 2, .seed = i % 2},
                  10 * (i + 1));
    assert_ok(erg_sweep_document(sweep, store, &document, &err), &err);
    assert_int_equal(json_array_size(json_at(document, "groups")), 1);
    assert_true(json_is_null(json_at(document, "groups.0.trace")));
    json_t *metric = json_at(document, "groups.0.loads.0.policies.0.metrics.mean_jct_s");
    assert_near(number_at(metric, "mean"), 25, 1e-12);
    assert_near(number_at(metric, "half_width"), 127.062, 1e-3); /* 10 times t(1) */
    json_decref(document);
    erg_documents_close(store);
    erg_sweep_free(sweep);
}

/* ---- running ---- */

#define BOTH SMALL "policies: [fcfs, elasticflow-ls]\nloads: [1, 3]\nseeds: 5\nresample: true\n"

/* A point of a sweep is what ergon simulate says of the same. */
static void test_run(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *document, *known;
    struct erg_sweep *sweep = load(SMALL "policies: [fcfs, elasticflow-ls]\n");
    struct erg_documents *store = store_of("run", 0, 1);
    assert_ok(run(sweep, store, &err), &err);
    json_t *alone = run_json("simulate '" DATA "/cluster.yaml' '" DATA "/trace.csv' -P '" DATA
                             "' -p elasticflow-ls --json 2>/dev/null",
                             0);
    const struct erg_sweep_point point = {.policy = 1};
    assert_ok(erg_documents_get(store, erg_sweep_key(sweep, &point).text, &known, &err), &err);
    assert_true(json_equal(alone, known));
    json_decref(alone);
    json_decref(known);
    assert_ok(erg_sweep_document(sweep, store, &document, &err), &err);
    assert_true(json_is_null(
        json_at(document, "groups.0.loads.0.policies.0.metrics.mean_jct_s.half_width")));
    json_decref(document);
    erg_documents_close(store);
    erg_sweep_free(sweep);
}

static int crash(void *policy_state, struct erg_scheduler *scheduler,
                 const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)policy_state;
    (void)scheduler;
    (void)occasion;
    (void)err;
    raise(SIGKILL); /* as the kernel does when memory is short */
    return 0;
}

static int hang(void *policy_state, struct erg_scheduler *scheduler,
                const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)policy_state;
    (void)scheduler;
    (void)occasion;
    for (;;)
        pause();
    return erg_fail(err, ERG_FAILED, "it ended all the same");
}

static int refuse(void *policy_state, struct erg_scheduler *scheduler,
                  const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)policy_state;
    (void)scheduler;
    (void)occasion;
    return erg_fail(err, ERG_FAILED, "the solver has no memory");
}

/* The second policy, with another way to decide. */
static struct erg_policy with(const struct erg_sweep *sweep,
                              int (*decide)(void *, struct erg_scheduler *,
                                            const struct erg_occasion *, struct erg_error *))
{
    struct erg_policy policy = *sweep->policy[1];
    policy.decide = decide;
    return policy;
}

/* Parts that were run apart are one run; nothing of them is simulated again. */
static void test_parts(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_sweep *sweep = load(BOTH);
    struct erg_documents *whole = store_of("whole", 0, 1);
    assert_ok(run(sweep, whole, &err), &err);
    for (unsigned i = 0; i < 3; i++) {
        struct erg_documents *part = store_of("apart", i, 3);
        assert_ok(erg_sweep_run(sweep, part, &(struct erg_sweep_part){i, 3}, &err), &err);
        erg_documents_close(part);
    }
    struct erg_documents *merged = store_of("apart", 0, 1);
    struct erg_policy crashing = with(sweep, crash);
    sweep->policy[0] = sweep->policy[1] = &crashing;
    assert_ok(run(sweep, merged, &err), &err);
    check_same(sweep, whole, merged);
    erg_documents_close(whole);
    erg_documents_close(merged);
    erg_sweep_free(sweep);
}

/* Failures and crashes are named and cost their own points only. */
static void test_failures(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *document;
    struct erg_sweep *sweep = load(BOTH);
    struct erg_documents *store = store_of("failures", 0, 1);
    const struct erg_policy *right = sweep->policy[1];
    struct erg_policy crashing = with(sweep, crash), refusing = with(sweep, refuse);
    sweep->policy[1] = &crashing;
    assert_fails(run(sweep, store, &err), &err, "10 of 20 simulations failed; the first is ");
    assert_non_null(strstr(err.message, "elasticflow-ls, load "));
    assert_non_null(strstr(err.message, "the simulation was ended by signal 9"));
    sweep->policy[1] = &refusing;
    assert_fails(run(sweep, store, &err), &err, "the solver has no memory");
    assert_ok(erg_sweep_document(sweep, store, &document, &err), &err);
    assert_int_equal(number_at(document, "missing"), 10);
    json_decref(document);
    sweep->policy[1] = right;
    assert_ok(run(sweep, store, &err), &err);
    struct erg_documents *fresh = store_of("fresh", 0, 1);
    assert_ok(run(sweep, fresh, &err), &err);
    check_same(sweep, fresh, store);
    erg_documents_close(fresh);
    erg_documents_close(store);
    erg_sweep_free(sweep);
}

/*
 * A run in another process whose second policy never ends: it comes as far as it has cores. Once
 * its first point is stored it gets the signal; what it had begun must end with it, which closes
 * the last writing end of `alive`.
 */
static int end_by(int signal_number, struct erg_sweep *sweep, const char *name)
{
    struct erg_error err;
    struct erg_policy hanging = with(sweep, hang);
    const struct erg_policy *right = sweep->policy[1];
    const struct erg_sweep_point first = {0};
    int alive[2], status;
    char byte;
    assert_int_equal(pipe(alive), 0);
    pid_t child = fork();
    if (child == 0) {
        close(alive[0]);
        erg_interrupt_install();
        sweep->policy[1] = &hanging;
        struct erg_documents *store = store_of(name, 0, 1);
        _exit(run(sweep, store, &err) == 0 ? 0 : (int)err.status);
    }
    close(alive[1]);
    json_t *known = NULL;
    while (!known) { /* a store of one's own: the other may not have made the file yet */
        struct erg_documents *store = store_of(name, 0, 1);
        assert_ok(erg_documents_get(store, erg_sweep_key(sweep, &first).text, &known, &err), &err);
        erg_documents_close(store);
        erg_sleep_ns(2000000);
    }
    json_decref(known);
    kill(child, signal_number);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(read(alive[0], &byte, 1), 0);
    close(alive[0]);
    sweep->policy[1] = right;
    return status;
}

static void check_goes_on(int signal_number, int exit_code, const char *name)
{
    struct erg_error err;
    struct erg_sweep *sweep = load(BOTH);
    int status = end_by(signal_number, sweep, name);
    if (exit_code)
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == exit_code);
    else
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal_number);
    struct erg_documents *store = store_of(name, 0, 1), *whole = store_of("whole", 0, 1);
    assert_ok(run(sweep, store, &err), &err);
    check_same(sweep, whole, store); /* of test_parts */
    erg_documents_close(whole);
    erg_documents_close(store);
    erg_sweep_free(sweep);
}

static void test_killed(void **state)
{
    (void)state;
    check_goes_on(SIGKILL, 0, "killed");
}

static void test_interrupted(void **state)
{
    (void)state;
    check_goes_on(SIGINT, ERG_INTERRUPTED, "interrupted");
}

static void change_document(const char *store, const char *key, const char *content)
{
    struct erg_text path = {0}, change = {0};
    sqlite3 *database;
    erg_text_printf(&path, "%s/sweep.db", store);
    erg_text_printf(&change, "UPDATE document SET content = '%s' WHERE key = '%s'", content, key);
    assert_int_equal(sqlite3_open(path.data, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, change.data, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_changes(database), 1);
    sqlite3_close(database);
    erg_text_release(&path);
    erg_text_release(&change);
}

/* A document that is no summary does not fall out of the means without a word. */
static void test_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *content, *says;
    } cases[] = {{"{}", "'schema'"},
                 {"[]", "'schema'"},
                 {"3", "[' or '{"},
                 {"{\"schema\": \"ergon.simulation\"}", "'gpus'"},
                 {"{\"schema\": \"ergon.sweep\"}", "'schema'"}};
    struct erg_error err;
    json_t *document;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[24];
        struct erg_sweep *sweep = load(SMALL "policies: [fcfs, elasticflow-ls]\n");
        snprintf(name, sizeof name, "damaged%zu", i);
        struct erg_documents *store = store_of(name, 0, 1);
        assert_ok(run(sweep, store, &err), &err);
        erg_documents_close(store);
        const struct erg_sweep_point point = {.policy = 1};
        change_document(in_folder(name), erg_sweep_key(sweep, &point).text, cases[i].content);
        store = store_of(name, 0, 1);
        assert_fails(run(sweep, store, &err), &err, cases[i].says);
        assert_fails(erg_sweep_document(sweep, store, &document, &err), &err, cases[i].says);
        erg_documents_close(store);
        erg_sweep_free(sweep);
    }
}

/* ---- what is wrong is said ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {SMALL, "sweep.yaml:1: the key 'policies' is missing"},
        {SMALL "policies: [fcfs]\nload: [1]\n", "sweep.yaml:5: unknown key 'load'; did "
                                                "you mean 'loads'?"},
        {SMALL "policies: [fcfs, fifo]\n",
         "sweep.yaml:4: key 'policies[1]': unknown policy 'fifo'"},
        {SMALL "policies: [fcfs, fcfs]\n", "key 'policies[1]': 'fcfs' is listed twice"},
        {SMALL "policies: [fcfs]\nreference: sia\n", "sweep.yaml:5: key 'reference': expected one "
                                                     "of the policies, got 'sia'"},
        {SMALL "policies: [fcfs]\nloads: [1, 0]\n", "sweep.yaml:5: key 'loads[1]': expected a "
                                                    "number from 0.001 to 1000, got 0"},
        {SMALL "policies: [fcfs]\nloads: [2, 1, 2]\n", "key 'loads[2]': 2 is listed twice"},
        {SMALL "policies: [fcfs]\npower_caps: [1.5]\n", "key 'power_caps[0]': expected a number"},
        {SMALL "policies: [fcfs]\nseeds: 3\n", "sweep.yaml:5: key 'seeds': every seed would give "
                                               "the same results"},
        {SMALL "policies: [fcfs]\nseeds: 0\nresample: true\n", "key 'seeds': expected a number"},
        {SMALL "policies: [fcfs]\nfailures: {mean_h: 100}\n", "expected the key 'rounds'"},
        {SMALL "policies: [fcfs]\naccounting: fair\n", "unknown key 'accounting'"},
        {SMALL "policies: [fcfs]\npool_traces: true\n", "expected at least two traces"},
        {"clusters: [none.yaml]\ntraces: [a]\nprofiles: " DATA "\npolicies: [fcfs]\n",
         "sweep.yaml:1: key 'clusters[0]': reading '"},
        {"clusters: [none.yaml]\ntraces: [a]\nprofiles: " DATA "\npolicies: [fcfs]\n",
         "/none.yaml': No such file"},
        {"clusters: [a]\ntraces: [a]\nprofiles: /nowhere\npolicies: [fcfs]\n",
         "sweep.yaml:3: key 'profiles': reading '/nowhere/prof_optimal.csv'"},
    };
    struct erg_sweep *sweep;
    struct erg_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(in_folder("sweep.yaml"), cases[i].text);
        assert_fails(erg_sweep_load(&sweep, in_folder("sweep.yaml"), &err), &err, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points),    cmocka_unit_test(test_keys),
        cmocka_unit_test(test_load),      cmocka_unit_test(test_resample),
        cmocka_unit_test(test_intervals), cmocka_unit_test(test_pooled),
        cmocka_unit_test(test_run),       cmocka_unit_test(test_parts),
        cmocka_unit_test(test_failures),  cmocka_unit_test(test_killed),
        cmocka_unit_test(test_damaged),   cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
