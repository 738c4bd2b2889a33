/* The published comparison's rules, on numbers of our own, and its speeds. */
#include "artifact.h"
#include "base/text.h"
#include "cluster_world.h"
#include "folder.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"
#include "program.h"

#define TRACE_HEADER                                                                               \
    "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,global_batch,num_gpus,"        \
    "gpu_type\n"

/* Every plan of the world is a data parallel one, too. */
static void follow_artifact(struct world *world, struct artifact *artifact)
{
    *artifact = (struct artifact){artifact_accounting, world->speeds, world->speeds};
    world->simulation.accounting = &artifact->rules;
}

/* The rules of the published comparison, on numbers of our own. */
static void test_artifact_by_hand(void **state)
{
    (void)state;
    struct world world;
    struct artifact artifact;
    struct erg_simulated result;
    make_world(&world);
    follow_artifact(&world, &artifact);
    set_time(&world, 0, 0, 1, 4, 1.00049);
    set_time(&world, 0, 0, 1, 2, 2);
    add_job(&world, 100, 5004, 0, 4);
    add_job(&world, 401, 751, 0, 2);
    simulate(&result, &world, "fcfs");
    /* A fifth of 5004 is 1000 at 1.000 s: 1200 s after one lost round. */
    assert_near(result.jobs[0].submitted_s, 0, 0);
    assert_near(result.jobs[0].iterations, 1000, 0);
    assert_near(result.jobs[0].ended_s, 300 + 1200, 0);
    /* 301 s after the first is the second round. 150 x 2 s: 300 s at 2 s, a whole round, no work.
     */
    assert_near(result.jobs[1].submitted_s, 300, 0);
    assert_near(result.jobs[1].ended_s, 600, 0);
    /* No round counts more than 100 samples a second. */
    assert_true(isnan(result.summary.mean_throughput));
    assert_near(result.summary.peak_throughput, 12 / 1.00049, 1e-12);
    erg_simulated_release(&result);
    erg_speeds_free(world.speeds);
}

static void check_any(struct world *world, const struct erg_policy *policy)
{
    struct erg_simulated result, again;
    struct erg_error err;
    world->simulation.policy = policy;
    assert_ok(erg_simulate(&result, &world->simulation, &err), &err);
    for (size_t i = 0; i < result.jobs_count; i++) {
        const struct erg_job_result *job = &result.jobs[i];
        if (job->state == ERG_JOB_FUTURE)
            continue;
        assert_true(job->remaining >= 0 && job->remaining <= job->iterations);
        assert_near(fmod(job->submitted_s, 300), 0, 0);
        if (job->state == ERG_JOB_ENDED)
            assert_true(job->ended_s > job->started_s && fmod(job->ended_s, 300) == 0);
    }
    assert_true(result.summary.utilization <= 1 + 1e-12);
    assert_ok(erg_simulate(&again, &world->simulation, &err), &err);
    assert_int_equal(result.records_count, again.records_count);
    assert_same_course(&result, &again);
    erg_simulated_release(&result);
    erg_simulated_release(&again);
}

static void test_any_policy_on_any_cluster(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    for (int round = 0; round < 12; round++) {
        struct world world;
        struct artifact artifact;
        make_random(&world, &rng);
        follow_artifact(&world, &artifact);
        world.simulation.until_s = round % 3 == 2 ? 3000 : INFINITY;
        world.simulation.outages_count = 0;
        for (size_t p = 0; erg_policies[p]; p++)
            check_any(&world, erg_policies[p]);
        for (size_t p = 0; artifact_policies[p]; p++)
            check_any(&world, artifact_policies[p]);
        erg_speeds_free(world.speeds);
    }
}

static double speed(const struct erg_speeds *speeds, int workload, int nodes, int gpus)
{
    int shape = erg_speeds_shape(speeds, 0, nodes, gpus);
    return erg_speed_at(speeds, workload, shape)->samples_per_s;
}

/* Three decimals, and data parallel plans where 1.2 replicas fit into 0.8 of a GPU's 40 GB. */
static void test_speeds(void **state)
{
    (void)state;
    static const char jobs[] = TRACE_HEADER "a,1,10,bert,1B,,64,4,big\nb,1,10,bert,2B,,64,4,big\n";
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct artifact artifact;
    struct erg_error err;
    write_text("cluster.yaml",
               "types:\n  - {name: big, nodes: 2, gpus_per_node: 4, memory_gb: 40}\n");
    write_text("prof_optimal.csv", "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,"
                                   "iter_time_s\nbert,1B,64,big,1,4,3\nbert,2B,64,big,1,2,10\n");
    write_text("dp_mem.csv", "model,param_num,global_batch,num_gpus,dp_replica_mem_gb\n"
                             "bert,1B,64,4,26.6\nbert,1B,64,2,26.7\nbert,2B,64,2,-1\n");
    assert_ok(erg_fleet_load(&fleet, in_folder("cluster.yaml"), &err), &err);
    assert_ok(erg_job_trace_parse(&trace, "jobs", jobs, strlen(jobs), fleet, &err), &err);
    assert_ok(artifact_load(&artifact, folder, fleet, trace, &err), &err);
    assert_near(speed(artifact.speeds, 0, 1, 4), 21.333, 0);
    assert_near(speed(artifact.speeds, 0, 2, 2), 21.333 * 0.9, 1e-12);
    assert_near(speed(artifact.data_parallel, 0, 1, 4), 21.333, 0);
    assert_near(speed(artifact.data_parallel, 0, 2, 2), 21.333, 0);
    assert_near(speed(artifact.data_parallel, 0, 1, 2), ERG_SPEED_NONE, 0);
    assert_near(speed(artifact.data_parallel, 1, 1, 2), ERG_SPEED_NONE, 0);
    artifact_release(&artifact);
    write_text("dp_mem.csv", "model,param_num,global_batch,num_gpus,dp_replica_mem_gb\n"
                             "bert,1B,64,4,-2\n");
    assert_fails(artifact_load(&artifact, folder, fleet, trace, &err), &err, "dp_mem.csv:2:");
    artifact_release(&artifact);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
}

/* Loads the published profiles with a trace of one job for each model of the golden look-ups. */
static void test_golden_lookups(void **state)
{
    (void)state;
    char golden_path[4096], profiles[4096];
    const char *path = shared_data("arena/golden_lookup.csv");
    skip_without(path, "arena/golden_lookup.csv");
    strcpy(golden_path, path);
    strcpy(profiles, shared_data("arena"));
    struct erg_error err;
    struct erg_csv *golden;
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct artifact artifact;
    assert_ok(erg_csv_load(&golden, golden_path, &err), &err);
    assert_ok(
        erg_fleet_load(&fleet, ERGON_TEST_SOURCE_DIR "/examples/arena/cluster-1280.yaml", &err),
        &err);
    struct erg_text jobs = {0};
    erg_text_add(&jobs, TRACE_HEADER);
    for (size_t row = 0; row < erg_csv_rows(golden); row++)
        erg_text_printf(&jobs, "%zu,0,1,%s,%s,,%s,1,a100\n", row, erg_csv_text(golden, row, 0),
                        erg_csv_text(golden, row, 1), erg_csv_text(golden, row, 2));
    assert_ok(erg_job_trace_parse(&trace, "jobs", jobs.data, jobs.count, fleet, &err), &err);
    assert_int_equal(trace->workloads_count, 54);
    assert_ok(artifact_load(&artifact, profiles, fleet, trace, &err), &err);
    const struct erg_speeds *tables[] = {artifact.speeds, artifact.data_parallel};
    size_t feasible[2] = {0};
    for (size_t row = 0; row < erg_csv_rows(golden); row++) {
        static const size_t columns[2] = {8, 11};
        double batch = (double)trace->workloads[trace->jobs[row].workload].batch, iteration;
        long nodes, gpus;
        assert_ok(erg_csv_long(golden, row, 5, &nodes, &err), &err);
        assert_ok(erg_csv_long(golden, row, 6, &gpus, &err), &err);
        int shape =
            erg_speeds_shape(artifact.speeds, erg_fleet_type(fleet, erg_csv_text(golden, row, 3)),
                             (int)nodes, (int)gpus);
        assert_true(shape >= 0);
        for (int plans = 0; plans < 2; plans++) {
            const struct erg_speed *found =
                erg_speed_at(tables[plans], trace->jobs[row].workload, shape);
            double expected;
            assert_ok(erg_csv_double(golden, row, columns[plans], &expected, &err), &err);
            assert_near(found->samples_per_s, expected, 0);
            feasible[plans] += erg_speed_feasible(found);
            if (plans == 0 && expected > 0) {
                assert_ok(erg_csv_double(golden, row, 9, &iteration, &err), &err);
                assert_near(found->iteration_s, iteration, 0.00051);
                assert_near(found->iteration_s, batch / expected, 0);
            }
        }
    }
    assert_int_equal(erg_csv_rows(golden), 2430);
    assert_int_equal(feasible[0], 791);
    assert_int_equal(feasible[1], 482);
    erg_text_release(&jobs);
    artifact_release(&artifact);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
    erg_csv_free(golden);
}

#define DATA ERGON_TEST_SOURCE_DIR "/tests/data/cluster"
#define CASE "'" DATA "/cluster.yaml' '" DATA "/trace.csv' --profiles '" DATA "' "

/* The keys of the library's document, and two more. */
static void test_program(void **state)
{
    (void)state;
    struct program_result result = run_program(CASE "--policy elasticflow-ls --rounds 20 --json");
    struct erg_error err;
    json_t *document;
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_json_parse(&document, "replay", result.out.data, result.out.count, &err), &err);
    assert_string_equal(json_string_value(json_object_get(document, "accounting")), "artifact");
    assert_string_equal(json_string_value(json_object_get(document, "policy")), "elasticflow-ls");
    assert_int_equal(json_object_size(document), 37);
    assert_true(json_number_value(json_object_get(document, "cpu_s")) >= 0);
    assert_near(json_number_value(json_object_get(document, "simulated_s")), 6000, 0);
    json_decref(document);
    erg_text_release(&result.out);
    check_program(CASE "--policy gavel-no 2>&1", 2, "ergon-thrifty, arena-ns, arena-nh, arena-no");
    check_program(CASE "--policy gavel --rounds 0 2>&1", 2, "--rounds: expected a number");
    check_program("2>&1", 2, "expected CLUSTER.yaml TRACE.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_artifact_by_hand), cmocka_unit_test(test_any_policy_on_any_cluster),
        cmocka_unit_test(test_speeds),           cmocka_unit_test(test_golden_lookups),
        cmocka_unit_test(test_program),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
