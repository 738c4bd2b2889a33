/*
 * Fleets, traces and speeds from files: a small case of our own, and all look-ups of the published
 * profiles.
 */
#include "check.h"
#include "cluster/speed_table.h"
#include "folder.h"
#include "io/csv.h"
#include "io/file.h"

#define FLEET                                                                                      \
    "types:\n"                                                                                     \
    "  - {name: big, nodes: 2, gpus_per_node: 8, memory_gb: 80, idle_power_w: 60,\n"               \
    "     points: [{slowdown: 1, power_w: 700}, {slowdown: 1.2, power_w: 450}]}\n"                 \
    "  - {name: small, nodes: 4, gpus_per_node: 2, memory_gb: 24}\n"                               \
    "reconfiguration: {fixed_s: 30, per_gpu_s: 2}\n"

#define TRACE_HEADER                                                                               \
    "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,global_batch,num_gpus,"        \
    "gpu_type\n"

#define TIMES_HEADER "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s\n"

static const char *write_file(const char *name, const char *text)
{
    static char path[4096];
    struct erg_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
    return path;
}

static struct erg_fleet *fleet_of(const char *text)
{
    struct erg_fleet *fleet;
    struct erg_error err;
    assert_ok(erg_fleet_load(&fleet, write_file("cluster.yaml", text), &err), &err);
    return fleet;
}

static void assert_no_fleet(const char *text, const char *part)
{
    struct erg_fleet *fleet;
    struct erg_error err;
    assert_fails(erg_fleet_load(&fleet, write_file("cluster.yaml", text), &err), &err, part);
}

static void test_fleet(void **state)
{
    (void)state;
    struct erg_fleet *fleet = fleet_of(FLEET);
    assert_int_equal(fleet->nodes, 6);
    assert_int_equal(fleet->gpus, 24);
    assert_int_equal(fleet->types[1].first_node, 2);
    assert_near(fleet->types[0].memory_bytes, 80e9, 0);
    assert_near(fleet->types[0].points[1].power_w, 450, 0);
    assert_int_equal(fleet->types[1].points_count, 1);
    assert_near(fleet->types[1].points[0].slowdown, 1, 0);
    assert_near(fleet->reconfiguration.per_gpu_s, 2, 0);
    assert_true(isinf(fleet->reconfiguration.most_s));
    assert_true(isinf(fleet->checkpoint_interval_s));
    assert_int_equal(erg_fleet_type(fleet, "small"), 1);
    assert_int_equal(erg_fleet_type(fleet, "tiny"), -1);
    assert_false(fleet->saves_power);
    erg_fleet_free(fleet);
    assert_no_fleet("types: []\n", "types");
    assert_no_fleet("types:\n  - {name: a, nodes: 0, gpus_per_node: 1, memory_gb: 1}\n", ":2:");
    assert_no_fleet("types:\n  - {name: a, nodes: 1, gpus_per_node: 65, memory_gb: 1}\n",
                    "1 to 64");
    assert_no_fleet("types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1}\n"
                    "  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1}\n",
                    "twice");
    assert_no_fleet("types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1,\n"
                    "     points: [{slowdown: 1, power_w: 9}, {slowdown: 2, power_w: 9}]}\n",
                    "a lower power than its 9 W");
    assert_no_fleet("types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1,\n"
                    "     points: [{slowdown: 0,\n       power_w: 9}]}\n",
                    "cluster.yaml:3: key 'types[0].points[0].slowdown': expected a number from 1");
    assert_no_fleet("types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1,\n"
                    "     points: [{slowdown: 1,\n       power_w: -9}]}\n",
                    "cluster.yaml:4: key 'types[0].points[0].power_w': expected a number from 0");
    assert_no_fleet(
        "types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1,\n"
        "     idle_power_w: 9, waiting_power_w: 20, points: [{slowdown: 1, power_w: 19}]}\n",
        "19 W is below 20 W, the power of such a GPU when it does not compute");
    assert_no_fleet("types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1,\n"
                    "     idle_power_w: 9, waiting_power_w: 20}\n",
                    "cluster.yaml:2:");
    assert_no_fleet(
        "types:\n  - {name: a, nodes: 1, gpus_per_node: 1, memory_gb: 1,\n"
        "     idle_power_w: 9, waiting_power_w: 8, points: [{slowdown: 1, power_w: 19}]}\n",
        "waiting_power_w");
}

#define SAVING(after, wake) "power_saving: {after_s: " after ", wake_s: " wake "}\n"
#define TYPE_OFF(power)                                                                            \
    "types:\n  - name: a\n    nodes: 1\n    gpus_per_node: 1\n    memory_gb: 1\n"                  \
    "    idle_power_w: 50\n    off_power_w: " power "\n"

static void test_fleet_saves_power(void **state)
{
    (void)state;
    struct erg_fleet *fleet = fleet_of(TYPE_OFF("4.5") SAVING("600", "120"));
    assert_true(fleet->saves_power);
    assert_near(fleet->power_saving.after_s, 600, 0);
    assert_near(fleet->power_saving.wake_s, 120, 0);
    assert_near(fleet->types[0].off_power_w, 4.5, 0);
    erg_fleet_free(fleet);
    assert_no_fleet(TYPE_OFF("51") SAVING("600", "120"), "cluster.yaml:7: ");
    assert_no_fleet(TYPE_OFF("51") SAVING("600", "120"), "types[0].off_power_w");
    assert_no_fleet(TYPE_OFF("-1") SAVING("600", "120"), "cluster.yaml:7: ");
    assert_no_fleet(TYPE_OFF("4"), "cluster.yaml:7: ");
    assert_no_fleet(TYPE_OFF("4"), "nodes are never off: expected the key power_saving");
    assert_no_fleet(TYPE_OFF("4") SAVING("-1", "120"), "cluster.yaml:8: ");
    assert_no_fleet(TYPE_OFF("4") SAVING("600", "-1"), "power_saving.wake_s");
    assert_no_fleet(TYPE_OFF("4") "power_saving: {after_s: 600}\n", "wake_s");
}

static void assert_no_trace(const struct erg_fleet *fleet, const char *rows, const char *part)
{
    struct erg_job_trace *trace;
    struct erg_error err;
    struct erg_text text = {0};
    erg_text_printf(&text, "%s%s", TRACE_HEADER, rows);
    assert_fails(erg_job_trace_load(&trace, write_file("trace.csv", text.data), fleet, &err), &err,
                 part);
    erg_text_release(&text);
}

static void test_trace(void **state)
{
    (void)state;
    struct erg_fleet *fleet = fleet_of(FLEET);
    struct erg_job_trace *trace;
    struct erg_error err;
    const char *path = write_file("trace.csv", TRACE_HEADER "a,100,10,bert,1B,200.5,64,4,big\n"
                                                            "b,90,20,bert,1B,,64,2,small\n"
                                                            "c,95,30,bert,2B,,64,2,\n");
    assert_ok(erg_job_trace_load(&trace, path, fleet, &err), &err);
    assert_int_equal(trace->count, 3);
    assert_int_equal(trace->workloads_count, 2);
    assert_int_equal(trace->jobs[1].workload, 0);
    assert_int_equal(trace->jobs[2].workload, 1);
    assert_string_equal(trace->workloads[1].size, "2B");
    assert_near(trace->jobs[0].deadline_s, 200.5, 0);
    assert_true(isinf(trace->jobs[1].deadline_s));
    assert_int_equal(trace->jobs[1].type, 1);
    assert_int_equal(trace->jobs[2].type, -1);
    assert_int_equal(trace->inversions, 1);
    assert_int_equal(trace->first_inversion, 1);
    assert_int_equal(trace->tenants_count, 1);
    erg_job_trace_free(trace);
    assert_no_trace(fleet, "", "at least one job");
    assert_no_trace(fleet, "a,1,5,bert,1B,,64,4,big\na,2,5,bert,1B,,64,4,big\n",
                    "trace.csv:3: the job 'a' is in line 2");
    assert_no_trace(fleet, "a,1,-5,bert,1B,,64,4,big\n", "trace.csv:2: column 'num_iterations'");
    assert_no_trace(fleet, "a,1,5,,1B,,64,4,big\n", "trace.csv:2: column 'model'");
    assert_no_trace(fleet, "a,1,5,bert,1B,,64,0,big\n", "'num_gpus'");
    assert_no_trace(fleet, "a,1,5,bert,1B,,64,4,huge\n", "no GPU type 'huge', but big, small");
    assert_no_trace(fleet, "a,0,5,bert,1B,0,64,4,big\nb,9,5,bert,1B,8.5,64,4,big\n",
                    "trace.csv:3: the deadline, 8.5 s, is before the submission at 9 s");
    assert_no_trace(fleet, "a,1e300,5,bert,1B,,64,4,big\n", "trace.csv:2: column 'submit_time_s'");
    assert_no_trace(fleet, "a,soon,5,bert,1B,,64,4,big\n", "expected a number, got 'soon'");
    erg_fleet_free(fleet);
}

/* Workloads: 0 = bert 1B, 1 = bert 2B, 2 = gpt 1B of which no profile speaks. */
static int load_small(struct erg_speeds **speeds, struct erg_fleet **fleet,
                      struct erg_job_trace **trace, const char *times, struct erg_error *err)
{
    *fleet = fleet_of(FLEET);
    struct erg_error bad;
    assert_ok(erg_job_trace_load(trace,
                                 write_file("trace.csv", TRACE_HEADER "a,1,10,bert,1B,,64,4,big\n"
                                                                      "b,1,10,bert,2B,,64,4,big\n"
                                                                      "c,1,10,gpt,1B,,64,4,big\n"),
                                 *fleet, &bad),
              &bad);
    write_file("prof_optimal.csv", times);
    return erg_speeds_load(speeds, folder, *fleet, *trace, err);
}

static double speed(const struct erg_speeds *speeds, int workload, int type, int nodes, int gpus)
{
    int shape = erg_speeds_shape(speeds, type, nodes, gpus);
    assert_true(shape >= 0);
    return erg_speed_at(speeds, workload, shape)->samples_per_s;
}

static void test_speeds_of_our_own(void **state)
{
    (void)state;
    struct erg_speeds *speeds;
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_error err;
    assert_ok(load_small(&speeds, &fleet, &trace,
                         TIMES_HEADER "bert,1B,64,big,1,4,3\n"
                                      "bert,1B,64,big,1,8,301\n"
                                      "bert,1B,64,big,1,2,-1\n"
                                      "bert,2B,64,big,1,2,10\n"
                                      "bert,4B,64,big,1,8,8\n"
                                      "bert,4B,64,small,1,2,20\n"
                                      "bert,4B,64,small,1,4,20\n"
                                      "bert,4B,64,else,1,4,20\n",
                         &err),
              &err);
    /* 64 / 3 samples a second; on 2 x 2 GPUs 0.9 of that, on 4 x 1 too many nodes. */
    assert_near(speed(speeds, 0, 0, 1, 4), 64.0 / 3, 1e-12);
    assert_near(speed(speeds, 0, 0, 2, 2), 64.0 / 3 * 0.9, 1e-12);
    assert_int_equal(erg_speeds_shape(speeds, 0, 4, 1), -1);
    /* Above 300 s it does not count: two sizes larger is 8 samples a second, 1.8^2 times as fast.
     */
    assert_near(speed(speeds, 0, 0, 1, 8), 8 * 1.8 * 1.8, 1e-12);
    assert_near(speed(speeds, 1, 0, 1, 8), 8 * 1.8, 1e-12);
    /* What was seen not to run does not run, whatever a larger model does. */
    assert_true(speed(speeds, 0, 0, 1, 2) < 0);
    assert_near(speed(speeds, 0, 1, 1, 2), 3.2 * 1.8 * 1.8, 1e-12);
    const struct erg_speed *best = erg_speed_at(speeds, 0, erg_speeds_best(speeds, 0, 4));
    assert_near(best->iteration_s, 3, 1e-12);
    assert_int_equal(best->points_count, 2);
    assert_int_equal(erg_speeds_best(speeds, 0, 3), -1);
    assert_true(erg_speeds_runnable(speeds, 0, -1));
    assert_false(erg_speeds_runnable(speeds, 2, -1));
    erg_speeds_free(speeds);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
}

static void assert_no_speeds(const char *times, const char *part)
{
    struct erg_speeds *speeds;
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_error err;
    assert_fails(load_small(&speeds, &fleet, &trace, times, &err), &err, part);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
}

static void test_wrong_profiles(void **state)
{
    (void)state;
    assert_no_speeds(TIMES_HEADER "bert,1B,64,big,1,4,0\n",
                     "prof_optimal.csv:2: column 'iter_time_s'");
    assert_no_speeds(TIMES_HEADER "bert,1B,64,big,1,4,\n", "got ''");
    assert_no_speeds(TIMES_HEADER "bert,1,64,big,1,4,1\n", "760M or 2.6B");
    assert_no_speeds(TIMES_HEADER "bert,1B,64,big,1,4,1\nbert,1B,64,big,1,4,2\n",
                     "prof_optimal.csv:3: 2 s, but another row gives");
    assert_no_speeds(TIMES_HEADER "bert,1B,64,else,1,4,1\n", "which has big, small");
}

#define POWER_HEADER                                                                               \
    "model,param_num,global_batch,gpu_type,num_nodes,gpus_per_node,iter_time_s,gpu_power_w\n"

/* A frontier of its own where rows say powers, that of the best locality elsewhere, and else the
 * points of the type. */
static void test_frontiers(void **state)
{
    (void)state;
    struct erg_speeds *speeds;
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_error err;
    static const char times[] = POWER_HEADER "bert,1B,64,big,1,4,4,300\n"
                                             "bert,1B,64,big,1,4,2,500\n"
                                             "bert,1B,64,big,1,4,2,500\n"
                                             "bert,1B,64,big,1,4,3,350\n"
                                             "bert,1B,64,big,1,8,2,\n";
    assert_ok(load_small(&speeds, &fleet, &trace, times, &err), &err);
    for (int nodes = 1; nodes <= 2; nodes++) {
        const struct erg_speed *speed =
            erg_speed_at(speeds, 0, erg_speeds_shape(speeds, 0, nodes, 4 / nodes));
        assert_int_equal(speed->points_count, 3);
        assert_near(speed->points[0].slowdown, 1, 0);
        assert_near(speed->points[0].power_w, 500, 0);
        assert_near(speed->points[1].slowdown, 1.5, 0);
        assert_near(speed->points[2].power_w, 300, 0);
        assert_near(speed->samples_per_s, nodes == 1 ? 32 : 32 * 0.9, 1e-12);
    }
    const struct erg_speed *plain = erg_speed_at(speeds, 0, erg_speeds_shape(speeds, 0, 1, 8));
    assert_ptr_equal(plain->points, fleet->types[0].points);
    erg_speeds_free(speeds);
    erg_job_trace_free(trace);
    erg_fleet_free(fleet);
    assert_no_speeds(POWER_HEADER "bert,1B,64,big,1,4,1,\nbert,1B,64,big,1,4,2,300\n",
                     "or a gpu_power_w in each");
    assert_no_speeds(POWER_HEADER "bert,1B,64,big,1,4,1,300\nbert,1B,64,big,1,4,2,300\n",
                     "prof_optimal.csv:3: 2 s at 300 W per GPU, but another row");
    assert_no_speeds(POWER_HEADER "bert,1B,64,big,1,4,1,0\n",
                     "prof_optimal.csv:2: column 'gpu_power_w'");
    assert_no_speeds(POWER_HEADER "bert,1B,64,big,1,4,1,1\n",
                     "prof_optimal.csv:2: column 'gpu_power_w': 1 W are less than the");
    assert_no_speeds(POWER_HEADER "bert,1B,0,big,1,4,1,300\n",
                     "prof_optimal.csv:2: column 'global_batch'");
    assert_no_speeds(POWER_HEADER "bert,1B,64,big,1,4,2,300\nbert,1B,64,big,1,4,-1,\n",
                     "prof_optimal.csv:2: 2 s, but another row gives");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fleet),          cmocka_unit_test(test_fleet_saves_power),
        cmocka_unit_test(test_trace),          cmocka_unit_test(test_speeds_of_our_own),
        cmocka_unit_test(test_wrong_profiles), cmocka_unit_test(test_frontiers),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
