/* ergon layout --planner arena: its grids beside our own times of the same layouts, what it needs,
 * and its profile as what the policy of that scheduler sees. */
#include "commands.h"
#include "io/csv.h"
#include "io/file.h"

#include <math.h>

#define SOURCE ERGON_TEST_SOURCE_DIR
#define JOB                                                                                        \
    "layout '" SOURCE "/examples/kwai/llama2-7b.yaml' --cluster '" SOURCE                          \
    "/data/clusters/32x8-h800-sxm-80gb.yaml' --sequence 4096 "
#define ARENA JOB "--planner arena "

/* Seconds of the same layout by our own model, with as many microbatches. */
static double own_time(const char *layout)
{
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, JOB "--gpus 8 --batch 64 --recompute full --layout %s --json",
                    layout);
    json_t *document = run_json(arguments.data, 0);
    assert_near(number_at(document, "layouts.0.microbatches"), 16, 0);
    double time_s = number_at(document, "layouts.0.time_s");
    json_decref(document);
    erg_text_release(&arguments);
    return time_s;
}

static void grids_take_about_as_long_as_our_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *plan, *layout;
        double most; /* relative difference; transfers of tensor groups are not overlapped */
    } expected[] = {
        {"0_15::4_2", "t=2,p=1,l=32,b=1", 0.20},
        {"0_7__8_15::4_1__4_1", "t=1,p=2,l=16,b=1", 0.07},
        {"0_3__4_7__8_11__12_15::2_1__2_1__2_1__2_1", "t=1,p=4,l=8,b=2", 0.05},
        {"0_1__2_3__4_5__6_7__8_9__10_11__12_13__14_15::1_1__1_1__1_1__1_1__1_1__1_1__1_1__1_1",
         "t=1,p=8,l=4,b=4", 0.02},
    };
    json_t *document = run_json(ARENA "--gpus 8 --batch 64 --json", 0);
    const json_t *grids = json_object_get(document, "grids"), *grid, *plan;
    size_t i, k;
    double least_s = INFINITY;
    assert_string_equal(text_at(document, "planner"), "arena");
    assert_int_equal(json_array_size(grids), 4);
    json_array_foreach(grids, i, grid)
    {
        double time_s = number(grid, "time_s");
        assert_string_equal(json_string_value(json_object_get(grid, "plan")), expected[i].plan);
        assert_near(number(grid, "p"), (double)(1 << i), 0);
        assert_close(number(grid, "compute_s") + number(grid, "within_stages_s") +
                         number(grid, "between_stages_s"),
                     time_s, 1e-9);
        assert_close(number(grid, "tokens_per_s"), 64 * 4096 / time_s, 1e-9);
        assert_close(time_s, own_time(expected[i].layout), expected[i].most);
        least_s = fmin(least_s, time_s);
        /* The grid's plan is one of its set. */
        size_t found = 0;
        json_array_foreach(json_object_get(grid, "pareto"), k, plan)
        {
            assert_near(number(plan, "p"), number(grid, "p"), 0);
            found += !strcmp(json_string_value(json_object_get(plan, "plan")), expected[i].plan);
        }
        assert_int_equal(found, 1);
    }
    assert_near(number_at(document, "proxy.time_s"), least_s, 0);
    assert_string_equal(text_at(document, "proxy.plan"), expected[1].plan);
    json_decref(document);
    check_program(ARENA "--gpus 8 --batch 64", 0, "<- proxy");
    check_program(ARENA "--gpus 16 --batch 64", 0, "0_7__8_15::4_2__4_2");
}

static void unsupported_plans_are_reported(void **state)
{
    (void)state;
    check_program(ARENA "--gpus 8 --batch 20 2>&1", 1, "expected a multiple of 16 sequences");
    check_program(ARENA "--gpus 6 --batch 16 2>&1", 1,
                  "powers of two with a product of at most 16");
    check_program(ARENA "--gpus 32 --batch 16 2>&1", 1, "a product of at most 16, got 4 x 8");
    check_program(ARENA "--gpus 4,8 --batch 16 2>&1", 2, "--planner arena needs one");
    check_program(ARENA "--gpus 8 --batch 16 --deadline 9 2>&1", 2, "--planner arena plans time");
    check_program(ARENA "--gpus 8 --batch 16 -x megatron 2>&1", 2, "--planner arena plans time");
    check_program(ARENA "--gpus 8 --batch 16 --memory-budget 2GiB 2>&1", 3,
                  "meta-llama/Llama-2-7b-hf 6.74B does not fit on 1 x 8 H800-SXM-80GB");
    check_program("layout '" SOURCE
                  "/examples/mixed/llama-65b_h800_a100.yaml' --planner arena 2>&1",
                  2, "nodes of several kinds");
}

/* 64 sequences of a job that was submitted for 2 GPUs: the policy gives it the node's 8. */
static void the_policy_takes_its_profile(void **state)
{
    (void)state;
    struct program_result result =
        run_program(ARENA "--gpus 1,2,4,8,24 --batch 64 --export profile 2>/dev/null");
    struct erg_error err;
    struct erg_csv *csv;
    double time_s;
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_csv_parse(&csv, "profile", result.out.data, result.out.count, &err), &err);
    assert_int_equal(erg_csv_rows(csv), 4); /* not 24 GPUs */
    assert_ok(erg_csv_double(csv, 3, 6, &time_s, &err), &err);
    assert_close(time_s, 4.83998, 1e-3);
    assert_string_equal(erg_csv_text(csv, 3, 7), "");
    erg_csv_free(csv);
    assert_ok(
        erg_file_write(in_folder("prof_optimal.csv"), result.out.data, result.out.count, &err),
        &err);
    erg_text_release(&result.out);
    static const char fleet[] = "types:\n  - name: H800-SXM-80GB\n    nodes: 1\n"
                                "    gpus_per_node: 8\n    memory_gb: 85.9\n    idle_power_w: 70\n"
                                "    points: [{slowdown: 1, power_w: 694}]\n";
    static const char trace[] = "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,"
                                "global_batch,num_gpus,gpu_type\n"
                                "one,0,1000,Llama-2-7b-hf,6.74B,,64,2,H800-SXM-80GB\n";
    assert_ok(erg_file_write(in_folder("cluster.yaml"), fleet, strlen(fleet), &err), &err);
    assert_ok(erg_file_write(in_folder("trace.csv"), trace, strlen(trace), &err), &err);
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "simulate %s", in_folder("cluster.yaml"));
    erg_text_printf(&arguments, " %s", in_folder("trace.csv"));
    erg_text_printf(&arguments, " --profiles %s --policy arena --json 2>/dev/null", in_folder(""));
    json_t *document = run_json(arguments.data, 0);
    assert_near(number(document, "finished_jobs"), 1, 0);
    assert_near(number(document, "unrunnable_jobs"), 0, 0);
    assert_close(number(document, "peak_throughput"), 64 / 4.83998, 1e-3);
    json_decref(document);
    erg_text_release(&arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids_take_about_as_long_as_our_layouts),
        cmocka_unit_test(unsupported_plans_are_reported),
        cmocka_unit_test(the_policy_takes_its_profile),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
