/*
 * The loop of a run that looks for the best way to train, on two ranks whose device is made slow in
 * one way of running steps, then in the other: what is measured decides against the plan's model,
 * and is looked for again when it no longer holds.
 */
#include "rank_world.h"
#include "train_job.h"

#include "base/clock.h"
#include "io/json.h"
#include "optimize/optimize.h"
#include "train/run/session_internal.h"

static const char text_of_job[] = "model: model\n"
                                  "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                                  "tensor: 2\n"
                                  "microbatch_size: 2\n"
                                  "microbatches: 1\n"
                                  "sequence: 16\n"
                                  "train:\n"
                                  "  data: [{file: tokens.bin}]\n"
                                  "  updates: 100000\n"
                                  "  learning_rate: 0.001\n";

static int plan_job(void *context, const struct erg_job *job, bool sequential,
                    struct erg_plan **plan, struct erg_error *err)
{
    const struct erg_optimize_request request = {
        .job = job,
        .store_path = ":memory:",
        .methods = {[ERG_METHOD_SEQUENTIAL] = true, [ERG_METHOD_NANOBATCHING] = true}};
    (void)context;
    assert_false(sequential);
    return erg_optimize(&request, plan, err);
}

/* ---- a device that is slow in one way ---- */

static struct erg_train *train;
static struct erg_backend_table table, own;
static size_t slow_way;

/* Of the many calls of a step one that there is once. */
static int fill(struct erg_backend *backend, void *memory, int byte, size_t bytes,
                struct erg_stream *stream, struct erg_error *err)
{
    if (train->env.rank == 1 && train->tuning.trials.way == slow_way)
        erg_sleep_ns(30000000);
    return own.fill(backend, memory, byte, bytes, stream, err);
}

static void slow_down(size_t way)
{
    slow_way = way;
    own = *train->backend->table;
    table = own;
    table.fill = fill;
    train->backend->table = &table;
}

/* Steps until trials have ended with this way as the best; which steps there were. */
static uint64_t run_until(size_t way)
{
    enum { MOST = 20000 };
    struct erg_error err;
    const struct erg_trials *trials = &train->tuning.trials;
    uint64_t step = 0;
    do {
        assert_ok(erg_train_step(train, &err), &err);
        if (++step == MOST)
            fail_msg("way %zu does not become the best", way);
    } while (trials->trying || trials->best != way);
    assert_int_equal(trials->way, way);
    assert_string_equal(train->plan->selected.rule, erg_run_ways_rule);
    assert_int_equal(train->plan->selected.method,
                     way ? ERG_METHOD_NANOBATCHING : ERG_METHOD_SEQUENTIAL);
    return step;
}

static void run_rank(void)
{
    struct erg_error err;
    const struct erg_train_options options = {.size = sizeof options,
                                              .folder = in_folder("run"),
                                              .device = ERG_TRAIN_HOST,
                                              .type = ERG_TRAIN_FLOAT32};
    const struct erg_train_auto asked = {.budget_s = 0.01, .plan = plan_job};
    assert_ok(erg_train_open_auto(&train, in_folder("auto.yaml"), &options, &asked, &err), &err);
    assert_int_equal(train->tuning.count, 2);
    /* By the model nanobatches are slower. */
    assert_true(train->tuning.ways[1].time_s > train->tuning.ways[0].time_s);
    slow_down(0);
    run_until(1);
    assert_int_equal(train->tuning.trials.series, 1);
    for (int i = 0; i < 20; i++)
        assert_ok(erg_train_step(train, &err), &err);
    slow_way = 1;
    run_until(0);
    assert_true(train->tuning.trials.series >= 2);
    struct erg_trials_saved saved;
    erg_trials_saved(&saved, &train->tuning.trials, 0);
    assert_near(saved.time, 0, 0);
    for (int i = 0; i < 12; i++) /* until a line of the log is due */
        assert_ok(erg_train_step(train, &err), &err);
    assert_ok(erg_train_close(train, &err), &err);
}

/* A run makes its own plan; another one would be ignored. */
static void a_plan_is_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_train *none = NULL;
    const struct erg_train_options options = {
        .size = sizeof options, .folder = in_folder("none"), .plan = "own.json"};
    const struct erg_train_auto asked = {.plan = plan_job};
    const char *said = "the options have the plan own.json, expected none: a run that searches for "
                       "the best way to train makes its own plan";
    assert_fails(erg_train_open_auto(&none, in_folder("auto.yaml"), &options, &asked, &err), &err,
                 said);
    assert_int_equal(err.status, ERG_USAGE);
    assert_fails(erg_train_open_best(&none, in_folder("auto.yaml"), &options, 0, &err), &err, said);
    assert_int_equal(err.status, ERG_USAGE);
    assert_null(none);
}

static void the_loop_closes(void **state)
{
    (void)state;
    int port, listener = listen_anywhere(&port);
    pid_t children[2];
    for (int rank = 0; rank < 2; rank++) {
        fflush(NULL);
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank])
            continue;
        char number[16];
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* no other test goes on in here */
        setenv("ERGON_RANK", rank ? "1" : "0", 1);
        setenv("ERGON_LOCAL_RANK", rank ? "1" : "0", 1);
        setenv("ERGON_WORLD_SIZE", "2", 1);
        setenv("ERGON_HOST", "127.0.0.1", 1);
        snprintf(number, sizeof number, "%d", port);
        setenv("ERGON_PORT", number, 1);
        setenv("ERGON_JOB", "test", 1);
        snprintf(number, sizeof number, "%d", listener);
        if (rank == 0)
            setenv("ERGON_LISTENER", number, 1);
        else
            close(listener);
        run_rank();
        fflush(NULL);
        _exit(0);
    }
    close(listener);
    for (int rank = 0; rank < 2; rank++) {
        int status;
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        assert_int_equal(status, 0);
    }
    /* The log says what was found, and what had changed. */
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("run/metrics.jsonl"), 0, &text, NULL, &err), &err);
    const char *first = strstr(text, "\"trials\":{\"best\":\"nanobatching\"");
    assert_non_null(first);
    assert_non_null(strstr(text, "\"changed\":null"));
    const char *second = strstr(first, "\"trials\":{\"best\":\"sequential\"");
    assert_non_null(second);
    assert_non_null(strstr(second, "\"changed\":\"time\""));
    free(text);
    json_t *plan = json_load_file(in_folder("run/plan.json"), 0, NULL);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(plan, "selected"), "method")),
        "sequential");
    json_decref(plan);
}

static int make(void **state)
{
    if (make_job(state) != 0)
        return -1;
    write_text("auto.yaml", text_of_job);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_refused),
        cmocka_unit_test(the_loop_closes),
    };
    return cmocka_run_group_tests(tests, make, remove_folder);
}
