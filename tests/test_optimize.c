/*
 * `ergon optimize` as a whole, on the emulated device: equal seeds give equal plans, a killed run
 * goes on where it was, shapes of jobs and selections of methods.
 */
#define _GNU_SOURCE /* sched_setaffinity */
#include "optimize.h"
#include "xgboost.h"

#include "base/random.h"
#include "plan/plan.h"

#include <sched.h>
#include <sqlite3.h>

/* Rows in FOLDER/out/profile.db; 0 while there is none. */
static size_t stored_rows(const char *out)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/profile.db", folder, out);
    struct erg_error err = {0};
    struct erg_store *store;
    if (access(path, R_OK) != 0 || erg_store_open(&store, path, &err) != 0)
        return 0; /* not there yet, or being made this very moment */
    size_t count = count_rows(store);
    erg_store_close(store);
    return count;
}

/* Equal but for when it was made and what had to be measured for it. */
static void assert_same_plan(const json_t *a, const json_t *b)
{
    static const char *const passing[] = {"created_utc", "measurements"};
    json_t *left = json_copy((json_t *)(uintptr_t)a), *right = json_copy((json_t *)(uintptr_t)b);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(json_object_del(left, passing[i]), 0);
        assert_int_equal(json_object_del(right, passing[i]), 0);
    }
    const char *key;
    json_t *value;
    json_object_foreach(left, key, value)
    {
        if (!json_equal(value, json_object_get(right, key)))
            fail_msg("the plans differ in \"%s\"", key);
    }
    assert_true(json_equal(left, right));
    json_decref(left);
    json_decref(right);
}

static json_t *reference; /* the plan of SMALL_JOB, made in one go */

static int set_up(void **state)
{
    if (make_quick_folder(state))
        return -1;
    write_job("job.yaml", "method: random", "method: gp");
    check_optimize("job.yaml", "reference", "", 0, "selected: ergon");
    reference = load_plan("reference");
    return 0;
}

static int tear_down(void **state)
{
    json_decref(reference);
    return remove_folder(state);
}

/* The reader accepts FOLDER/out/plan.json. */
static struct erg_plan *read_plan(const char *out)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/plan.json", folder, out);
    struct erg_error err = {0};
    struct erg_plan *plan = NULL;
    assert_ok(erg_plan_load(&plan, path, &err), &err);
    return plan;
}

static void test_plan_is_valid_and_beats_the_references(void **state)
{
    (void)state;
    struct erg_plan *plan = read_plan("reference");
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        assert_true(plan->methods[i].point_count > 0);
    const struct erg_plan_method *sequential = &plan->methods[ERG_METHOD_SEQUENTIAL];
    const struct erg_plan_method *ours = &plan->methods[ERG_METHOD_ERGON];
    assert_int_equal(sequential->point_count, 1);
    assert_true(ours->points[0].time_s < sequential->points[0].time_s);
    assert_true(ours->points[ours->point_count - 1].energy_j < sequential->points[0].energy_j);
    assert_true(ours->versus.max_throughput_energy > 0 && ours->versus.iso_time_energy > 0);
    assert_int_equal(plan->selected.method, ERG_METHOD_ERGON);
    assert_int_equal(plan->selected.point, 0);
    assert_int_equal(measured(reference, "cached"), 0);
    /* Every row of the store is a measurement that the plan counts. */
    assert_int_equal(stored_rows("reference"),
                     measured(reference, "energy") + measured(reference, "time_only"));
    erg_plan_free(plan);
}

/* ---- equal seeds ---- */

static void use_one_core(void)
{
    cpu_set_t usable, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        _exit(98);
    int core = 0;
    while (!CPU_ISSET(core, &usable))
        core++;
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        _exit(98);
}

static void test_equal_seeds_give_equal_plans_on_any_number_of_threads(void **state)
{
    (void)state;
    assert_int_equal(wait_for(start_optimize("job.yaml", "one_core", use_one_core)), 0);
    json_t *plan = load_plan("one_core");
    assert_same_plan(plan, reference);
    assert_int_equal(measured(plan, "energy"), measured(reference, "energy"));
    json_decref(plan);

    check_optimize("job.yaml", "other_seed", "--seed 8", 0, "selected: ergon");
    plan = load_plan("other_seed");
    assert_int_equal(json_integer_value(json_object_get(plan, "seed")), 8);
    assert_false(
        json_equal(json_object_get(plan, "methods"), json_object_get(reference, "methods")));
    json_decref(plan);
}

static void test_second_run_measures_nothing(void **state)
{
    (void)state;
    check_optimize("job.yaml", "twice", "", 0, "");
    check_optimize("job.yaml", "twice", "", 0, "");
    json_t *plan = load_plan("twice");
    assert_int_equal(measured(plan, "energy") + measured(plan, "time_only"), 0);
    assert_int_equal(measured(plan, "cached"), measured(reference, "energy") +
                                                   measured(reference, "time_only") +
                                                   measured(reference, "cached"));
    assert_same_plan(plan, reference);
    json_decref(plan);
    /* Another window is another measurement: what was stored does not answer it. */
    write_job("window.yaml", "method: random, seed: 7, budget: 5}\nprofiler: {window_s: 0.5",
              "method: gp, seed: 7, budget: 5}\nprofiler: {window_s: 0.75");
    check_optimize("window.yaml", "twice", "", 0, "");
    plan = load_plan("twice");
    assert_true(measured(plan, "energy") > 0);
    json_decref(plan);
}

/* ---- stopped runs ---- */

/* Waits until the store has `rows` rows or the process has ended. */
static void wait_for_rows(pid_t child, const char *out, size_t rows)
{
    siginfo_t info = {0};
    while (stored_rows(out) < rows) {
        info.si_pid = 0;
        assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        if (info.si_pid)
            return;
        usleep(500);
    }
}

static void test_killed_runs_lose_nothing_and_reach_the_same_plan(void **state)
{
    (void)state;
    size_t all = stored_rows("reference"), before = 0, kills = 0;
    struct erg_rng rng;
    erg_rng_seed(&rng, 20);
    for (size_t i = 0; i < 5; i++) {
        pid_t child = start_optimize("job.yaml", "killed", NULL);
        wait_for_rows(child, "killed", i * all / 5 + 1);
        usleep((useconds_t)erg_rng_below(&rng, 3000)); /* anywhere in a measurement */
        kill(child, SIGKILL);
        kills += wait_for(child) == -SIGKILL;
        size_t rows = stored_rows("killed");
        assert_true(rows >= before);
        before = rows;
    }
    assert_true(kills > 1); /* the rest was too fast for us */
    assert_int_equal(wait_for(start_optimize("job.yaml", "killed", NULL)), 0);
    json_t *plan = load_plan("killed");
    assert_same_plan(plan, reference);
    assert_int_equal(stored_rows("killed"), all);
    assert_int_equal(measured(plan, "energy") + measured(plan, "time_only"), all - before);
    assert_true(measured(plan, "cached") >= before && before > 0);
    json_decref(plan);
}

static void check_interrupted(int signal, const char *out)
{
    pid_t child = start_optimize("job.yaml", out, NULL);
    wait_for_rows(child, out, 10);
    kill(child, signal);
    int code = wait_for(child);
    if (code == 0)
        return; /* it was done before the signal */
    assert_int_equal(code, 128 + signal);
    check_messages("interrupted; finished measurements are stored, run the same command to "
                   "continue\n");
    assert_true(stored_rows(out) >= 10);
    char plan_path[64];
    snprintf(plan_path, sizeof plan_path, "%s/plan.json", out);
    assert_int_not_equal(access(in_folder(plan_path), F_OK), 0);
    assert_int_equal(wait_for(start_optimize("job.yaml", out, NULL)), 0);
    json_t *plan = load_plan(out);
    assert_same_plan(plan, reference);
    json_decref(plan);
}

static void test_interrupt_keeps_the_measurements(void **state)
{
    (void)state;
    check_interrupted(SIGINT, "stopped");
    check_interrupted(SIGTERM, "terminated");
}

static int expect_ok(void *context, int columns, char **values, char **names)
{
    (void)names;
    *(bool *)context = columns == 1 && values[0] && !strcmp(values[0], "ok");
    return 0;
}

static void test_two_runs_share_a_store(void **state)
{
    (void)state;
    pid_t first = start_optimize("job.yaml", "shared", NULL);
    pid_t second = start_optimize("job.yaml", "shared", NULL);
    assert_int_equal(wait_for(first), 0);
    assert_int_equal(wait_for(second), 0);
    json_t *plan = load_plan("shared");
    assert_same_plan(plan, reference);
    json_decref(plan);
    assert_int_equal(stored_rows("shared"), stored_rows("reference"));

    sqlite3 *database;
    bool intact = false;
    assert_int_equal(sqlite3_open(in_folder("shared/profile.db"), &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, "PRAGMA integrity_check", expect_ok, &intact, NULL),
                     SQLITE_OK);
    sqlite3_close(database);
    assert_true(intact);
}

/* ---- methods and shapes ---- */

static void test_methods_are_reported_as_asked_for(void **state)
{
    (void)state;
    write_job("quick.yaml", "", "");
    check_optimize("quick.yaml", "methods", "", 0, "selected: ergon");
    json_t *all = load_plan("methods");
    for (int i = 0; i < ERG_METHOD_COUNT; i++) {
        const char *name = erg_method_name((enum erg_method)i);
        char option[64];
        snprintf(option, sizeof option, "--method %s", name);
        check_optimize("quick.yaml", "methods", option, 0, name);
        struct erg_plan *plan = read_plan("methods");
        for (int k = 0; k < ERG_METHOD_COUNT; k++)
            assert_true((plan->methods[k].point_count > 0) == (k == i));
        assert_int_equal(plan->selected.method, i);
        erg_plan_free(plan);
    }
    check_optimize("quick.yaml", "methods", "-m sequential+clocks,ergon", 0, "selected: ergon");
    json_t *plan = load_plan("methods");
    const json_t *own = json_object_get(plan, "methods");
    assert_int_equal(json_object_size(own), 2);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "ergon" : "sequential+clocks";
        const json_t *expected = json_object_get(json_object_get(all, "methods"), name);
        assert_true(json_equal(json_object_get(json_object_get(own, name), "versus"),
                               json_object_get(expected, "versus")));
    }
    json_decref(all);
    json_decref(plan);
    check_optimize("quick.yaml", "methods", "-m ergom", 2, "did you mean 'ergon'");
}

static void check_sequential_only(const char *job, const char *out, const char *warning,
                                  const char *refusal)
{
    check_optimize(job, out, "", 0, warning);
    struct erg_plan *plan = read_plan(out);
    assert_int_equal(plan->methods[ERG_METHOD_NANOBATCHING].point_count, 0);
    assert_int_equal(plan->methods[ERG_METHOD_NANOBATCHING_CLOCKS].point_count, 0);
    const struct erg_plan_method *clocks = &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    const struct erg_plan_method *ours = &plan->methods[ERG_METHOD_ERGON];
    assert_true(clocks->point_count > 0 && ours->point_count > 0);
    assert_close(ours->points[0].time_s, clocks->points[0].time_s, 1e-9);
    /* The same options: whatever the reference's search found is known. */
    assert_true(ours->points[ours->point_count - 1].energy_j <=
                clocks->points[clocks->point_count - 1].energy_j * (1 + 1e-9));
    for (size_t i = 0; i < plan->schedule.count; i++)
        assert_int_equal(erg_plan_option(plan, &ours->points[0], i)->mode, ERG_MODE_SEQUENTIAL);
    erg_plan_free(plan);
    check_optimize(job, out, "-m nanobatching", 3, refusal);
}

static void test_jobs_without_overlap_are_sequential(void **state)
{
    (void)state;
    write_job("odd.yaml", "microbatch_size: 4", "microbatch_size: 3");
    check_sequential_only("odd.yaml", "odd", "warning: ", "has no two equal halves");
    write_job("one.yaml", "microbatch_size: 4\nmicrobatches: 2",
              "microbatch_size: 1\nmicrobatches: 6");
    check_sequential_only("one.yaml", "one", "warning: ", "has no two equal halves");
    write_job("alone.yaml",
              "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\n",
              "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\ntensor: 1\n");
    check_sequential_only("alone.yaml", "alone", "has no communication to hide: only sequential",
                          "has no communication to hide");
}

/* Each of the four GPUs would hold 16 bytes for a quarter of 65 billion parameters. */
static void test_jobs_that_do_not_fit_are_planned_with_a_warning(void **state)
{
    (void)state;
    write_job("large.yaml", "model: llama-3.2-1b", "model: llama-65b");
    check_optimize("large.yaml", "large", "", 0, "warning: this will not fit into memory: stage ");
    write_job("fits.yaml", "", "");
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "optimize %s/fits.yaml -o %s/fits 2>&1 | grep -c memory", folder,
                    folder);
    check_program(arguments.data, 1, "0");
    erg_text_release(&arguments);
}

static void check_shape(const char *line, const char *replacement, size_t stages, size_t chunks,
                        size_t microbatches)
{
    write_job("shape.yaml", line, replacement);
    check_optimize("shape.yaml", "shape", "", 0, "selected: ergon");
    struct erg_plan *plan = read_plan("shape");
    const struct erg_pipeline *pipeline = &plan->schedule.pipeline;
    assert_int_equal(pipeline->stages, stages);
    assert_int_equal(pipeline->chunks, chunks);
    assert_int_equal(pipeline->microbatches, microbatches);
    long layers = 0;
    for (size_t x = 0; x < stages * chunks; x++)
        layers += plan->stages[x].layers;
    assert_int_equal(layers, 16);
    /* Where overlap does not pay, sequential execution is one of its options. */
    assert_true(plan->methods[ERG_METHOD_ERGON].points[0].time_s <=
                plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].points[0].time_s * (1 + 1e-9));
    erg_plan_free(plan);
}

static void test_shapes_of_jobs(void **state)
{
    (void)state;
    check_shape("gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 2",
                "gpus_per_node: 2, gpu: A100-SXM4-40GB}\ntensor: 2", 1, 1, 2);
    check_shape("pipeline: 2", "pipeline: 2\nvirtual_stages: 2", 2, 2, 2);
    check_shape("pipeline: 2", "pipeline: 2\nlayers: [9, 7]\nrecompute: full", 2, 1, 2);
    check_shape("microbatches: 2", "microbatches: 1", 2, 1, 1);
    check_shape("microbatches: 2", "microbatches: 5\nvirtual_stages: 2", 2, 2, 5);
    check_shape("tensor: 2", "context: 2", 2, 1, 2);
    if (trees_are_here())
        check_shape("method: random, seed: 7, budget: 5", "method: trees, budget: 40", 2, 1, 2);
    check_shape("method: random", "prior: emulator", 2, 1, 2);
    check_shape("sequence: 2048\n", "sequence: 2048\nstack: published-python\n", 2, 1, 2);
}

/*
 * A microbatch is 4 x 2048 tokens of 2048 bf16 values; each GPU sends half of it, over a link of
 * 300 GB/s or its share of the node's 50 GB/s, and gathers the other half inside the node. Ranks
 * fill nodes stage by stage, each with all its copies. The last stage's next is the first.
 */
static void check_hops(const char *cluster, const char *degrees, int per_node, const bool *leaves,
                       size_t count)
{
    struct erg_text nodes = {0};
    erg_text_printf(&nodes,
                    "%s, gpus_per_node: %d, gpu: A100-SXM4-40GB, inter_node_bandwidth_gb_s: 50, "
                    "inter_node_latency_us: 20}\ntensor: 2\n%s\n",
                    cluster, per_node, degrees);
    write_job("nodes.yaml",
              "nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 2\n",
              nodes.data);
    erg_text_release(&nodes);
    check_optimize("nodes.yaml", "nodes", "-m sequential", 0, "selected: sequential");
    struct erg_plan *plan = read_plan("nodes");
    const struct erg_pipeline *pipeline = &plan->schedule.pipeline;
    const double bytes = 4 * 2048 * 2048 * 2.0, gather_s = bytes / 2 / 300e9;
    assert_int_equal(pipeline->stages, count);
    for (size_t s = 0; s < count; s++)
        assert_close(pipeline->hop_latency_s[s],
                     gather_s +
                         (leaves[s] ? bytes / 2 / (50e9 / per_node) + 20e-6 : bytes / 2 / 300e9),
                     1e-9);
    assert_int_equal(plan->kinds[0].gpus_used, (long)count * 2 * plan->layout.data);
    erg_plan_free(plan);
}

static void test_transfers_know_the_nodes(void **state)
{
    (void)state;
    check_hops("nodes: 2", "pipeline: 4", 4, (const bool[]){false, true, false, true}, 4);
    /* Copies of a stage lie beside each other, so two stages fill the first node. */
    check_hops("nodes: 2, gpus_used: 12", "pipeline: 3\ndata: 2", 8,
               (const bool[]){false, true, true}, 3);
    /* Three stages of six GPUs: every one lies on two nodes or has its next on another. */
    check_hops("nodes: 3, gpus_used: 18", "pipeline: 3\ndata: 3", 8,
               (const bool[]){true, true, true}, 3);
    check_hops("nodes: 1, gpus_used: 6", "pipeline: 3", 8, (const bool[]){false, false, false}, 3);
}

static void test_overrides_win_over_the_job(void **state)
{
    (void)state;
    check_optimize("job.yaml", "overridden", "-M 3 -b 2 -S 1024", 0, "selected: ergon");
    struct erg_plan *plan = read_plan("overridden");
    assert_int_equal(plan->schedule.pipeline.microbatches, 3);
    assert_int_equal(plan->layout.microbatch, 2);
    assert_int_equal(plan->layout.sequence, 1024);
    erg_plan_free(plan);
}

/* What the plan says of its search is what was done: everything, whatever the job's budget. */
static void test_exhaustive_search_lists_its_measurements(void **state)
{
    (void)state;
    check_optimize("job.yaml", "exhaustive", "--search exhaustive", 0, "selected: ergon");
    struct erg_plan *plan = read_plan("exhaustive");
    size_t largest = 0;
    for (size_t i = 0; i < plan->partition_count; i++) {
        size_t all = plan->partitions[i].configurations;
        assert_int_equal(plan->partitions[i].measured, all);
        largest = all > largest ? all : largest;
    }
    assert_true(largest > 0);
    assert_int_equal(plan->search.budget, largest);
    assert_int_equal(plan->search.start, 0);
    erg_plan_free(plan);
}

static double fastest_time(const json_t *plan, const char *method)
{
    const json_t *one = json_object_get(json_object_get(plan, "methods"), method);
    const json_t *points = json_object_get(one, "points");
    return json_number_value(json_object_get(json_array_get(points, 0), "time_s"));
}

/* A GPU that is held below its clock does the same at all higher ones, whatever noise says. */
static void test_clocks_above_the_power_cap_save_no_time(void **state)
{
    (void)state;
    write_job("capped.yaml",
              "A100-SXM4-40GB}\ntensor: 2\npipeline: 2\nmicrobatch_size: 4\nmicrobatches: 2\n"
              "sequence: 2048\nsearch: {method: random",
              "H100-SXM-measured}\ntensor: 2\npipeline: 2\nmicrobatch_size: 8\nmicrobatches: 2\n"
              "sequence: 4096\nsearch: {method: gp");
    check_optimize("capped.yaml", "capped", "--method sequential,sequential+clocks", 0, "");
    json_t *plan = load_plan("capped");
    assert_close(fastest_time(plan, "sequential+clocks"), fastest_time(plan, "sequential"), 5e-4);
    json_decref(plan);
    check_optimize("capped.yaml", "whole", "", 0, "selected");
    plan = load_plan("whole");
    size_t i;
    const json_t *partition;
    json_array_foreach(json_object_get(plan, "partitions"), i, partition)
    {
        /* Clocks that were not measured are not said to be, though one reading stands for them. */
        const json_t *progress = json_object_get(partition, "hypervolume");
        json_int_t measured = json_integer_value(json_object_get(partition, "measured"));
        assert_in_range(measured, json_array_size(progress), json_array_size(progress) + 40);
    }
    json_decref(plan);
}

/* Of a budget of 5, no 8 come before the first model. */
static void test_search_starts_within_its_budget(void **state)
{
    (void)state;
    const json_t *search = json_object_get(reference, "search");
    assert_int_equal(json_integer_value(json_object_get(search, "budget")), 5);
    assert_int_equal(json_integer_value(json_object_get(search, "start")), 5);
}

/* Trees know no prior: the plan must not say that they had one, nor the job's author believe it. */
static void test_prior_is_of_gaussian_processes_alone(void **state)
{
    (void)state;
    if (!trees_are_here())
        skip();
    write_job("prior.yaml", "method: random", "method: trees, prior: emulator");
    check_optimize("prior.yaml", "trees", "", 0, "prior.yaml:8: only the search gp takes a prior");
    json_t *trees = load_plan("trees");
    const char *prior = NULL;
    int swept = -1;
    assert_int_equal(json_unpack(json_object_get(trees, "search"), "{s:s, s:i}", "prior", &prior,
                                 "sweep_clocks", &swept),
                     0);
    assert_string_equal(prior, "none");
    assert_int_equal(swept, 0);
    json_decref(trees);

    check_optimize("prior.yaml", "gp", "--search gp", 0, "selected: ergon");
    json_t *gp = load_plan("gp");
    assert_string_equal(json_string_value(json_object_get(json_object_get(gp, "search"), "prior")),
                        "emulator");
    json_decref(gp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_valid_and_beats_the_references),
        cmocka_unit_test(test_equal_seeds_give_equal_plans_on_any_number_of_threads),
        cmocka_unit_test(test_second_run_measures_nothing),
        cmocka_unit_test(test_killed_runs_lose_nothing_and_reach_the_same_plan),
        cmocka_unit_test(test_interrupt_keeps_the_measurements),
        cmocka_unit_test(test_two_runs_share_a_store),
        cmocka_unit_test(test_methods_are_reported_as_asked_for),
        cmocka_unit_test(test_jobs_without_overlap_are_sequential),
        cmocka_unit_test(test_jobs_that_do_not_fit_are_planned_with_a_warning),
        cmocka_unit_test(test_shapes_of_jobs),
        cmocka_unit_test(test_transfers_know_the_nodes),
        cmocka_unit_test(test_overrides_win_over_the_job),
        cmocka_unit_test(test_exhaustive_search_lists_its_measurements),
        cmocka_unit_test(test_clocks_above_the_power_cap_save_no_time),
        cmocka_unit_test(test_search_starts_within_its_budget),
        cmocka_unit_test(test_prior_is_of_gaussian_processes_alone),
    };
    return cmocka_run_group_tests_name("optimize", tests, set_up, tear_down);
}
