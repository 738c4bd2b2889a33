/* The planner of grids, step by step, on layers whose loads and bytes are round numbers. */
#include "check.h"
#include "layout/grid/grid_plan.h"

#define GIGA 0x1p30

/* One heavy operation a layer on a machine of 1 GFLOP/s whose memory never limits: its GFLOP are
 * its seconds. */
static const struct erg_roofline unit = {1, 1e9};

struct made {
    struct erg_heavy_op ops[ERG_GRID_MAX_STAGES];
    struct erg_planner_layer items[ERG_GRID_MAX_STAGES];
    struct erg_planner_layers layers;
    struct erg_grid_problem problem;
};

static void make(struct made *made, const double *loads_s, const double *outputs,
                 const double *weights, size_t count, long gpus, size_t stages)
{
    for (size_t i = 0; i < count; i++) {
        made->ops[i] = (struct erg_heavy_op){loads_s[i] * GIGA, 1, outputs[i]};
        made->items[i] = (struct erg_planner_layer){&made->ops[i], 1, weights[i]};
    }
    made->layers = (struct erg_planner_layers){.items = made->items, .count = count, .samples = 16};
    erg_grid_problem_init(&made->problem, &made->layers, &unit, 0, gpus, stages);
}

static const double none[ERG_GRID_MAX_STAGES];

static void test_loads_and_fractions(void **state)
{
    (void)state;
    /* 100 GFLOP/s and 10 GB/s: 200 GFLOP on 10 GB are at the peak, 2 s; 20 GFLOP on 10 GB at 20
     * GFLOP/s, 1 s; 0.05 GFLOP on 0.1 GB are small, 0.01 s, and 99 GFLOP on 0.5 GB 0.99 s. */
    const struct erg_roofline roofline = {100, 10};
    struct erg_heavy_op ops[] = {{200 * GIGA, 10 * GIGA, 0},
                                 {20 * GIGA, 10 * GIGA, 0},
                                 {0.05 * GIGA, 0.1 * GIGA, 0},
                                 {99 * GIGA, 0.5 * GIGA, 0}};
    struct erg_planner_layer items[] = {{ops, 1, 0}, {ops + 1, 1, 0}, {ops + 2, 2, 0}};
    const struct erg_planner_layers layers = {.items = items, .count = 3, .samples = 16};
    struct erg_grid_problem problem;
    erg_grid_problem_init(&problem, &layers, &roofline, 0.5, 4, 1);
    /* Times 1, 1.5 and 2: 2, 1.5 and 2 s of 5.5, of 4 GPUs, in three decimals. */
    assert_near(problem.loads[0], 2, 1e-12);
    assert_near(problem.loads[1], 1.5, 1e-12);
    assert_near(problem.loads[2], 2, 1e-12);
    assert_near(problem.fractions[0], 1.455, 1e-12);
    assert_near(problem.fractions[1], 1.091, 1e-12);
    assert_near(problem.fractions[2], 1.455, 1e-12);
}

static void test_stage_sizes(void **state)
{
    (void)state;
    long sizes[3];
    /* The only two powers of two that make 4 are 2 and 2: 0.8^2 + 0.9^2. */
    assert_near(erg_grid_stage_sizes((const double[]){1.2, 2.9}, 2, 4, sizes), sqrt(1.45), 1e-12);
    assert_int_equal(sizes[0], 2);
    assert_int_equal(sizes[1], 2);
    /* 1 2 1 and 2 1 1 are as near, 1 1 2 is not. */
    assert_near(erg_grid_stage_sizes((const double[]){1.5, 1.5, 1}, 3, 4, sizes), sqrt(0.5), 1e-12);
    assert_int_equal(sizes[0], 1);
    assert_int_equal(sizes[1], 2);
    assert_int_equal(sizes[2], 1);
    assert_true(isinf(erg_grid_stage_sizes((const double[]){1, 1, 1}, 3, 2, sizes)));
}

static void test_partitions(void **state)
{
    (void)state;
    struct made made;
    struct erg_grid_partitions partitions;
    /* Fractions 1.5, 1, 1, 0.5; a stage needs 0.7 x 4 / 2 = 1.4: cuts after one layer (1.5 | 2.5)
     * and after two (2.5 | 1.5), both 2 x 0.5^2 from two stages of 2 GPUs. */
    make(&made, (const double[]){3, 2, 2, 1}, none, none, 4, 4, 2);
    erg_grid_partitions(&made.problem, &partitions);
    assert_int_equal(partitions.count, 2);
    assert_int_equal(partitions.items[0].first[1], 1);
    assert_int_equal(partitions.items[1].first[1], 2);
    assert_int_equal(partitions.items[1].sizes[0], 2);
    assert_near(partitions.items[0].imbalance, sqrt(0.5), 1e-12);
    free(partitions.items);
    /* Fractions 2, 2, 2, 2 on 8 GPUs: a cut in the middle is exact; the others, 2 | 6, have a
     * stage below 2.8. */
    make(&made, (const double[]){1, 1, 1, 1}, none, none, 4, 8, 2);
    erg_grid_partitions(&made.problem, &partitions);
    assert_int_equal(partitions.count, 1);
    assert_int_equal(partitions.items[0].first[1], 2);
    assert_near(partitions.items[0].imbalance, 0, 0);
    free(partitions.items);
}

static void test_communicating_shapes(void **state)
{
    (void)state;
    struct made made;
    struct erg_shape_cost costs[ERG_GRID_MAX_SHAPES];
    make(&made, (const double[]){1, 1}, (const double[]){60, 40}, (const double[]){3000, 200}, 2, 4,
         1);
    assert_int_equal(erg_grid_shape_costs(&made.problem, 0, 2, 4, costs), 3);
    assert_int_equal(costs[0].shape.tensor, 4);
    assert_near(costs[0].per_stage, 75, 0);
    assert_near(costs[0].additional, 0, 0);
    assert_near(costs[1].per_stage, 50, 0);
    assert_near(costs[1].additional, 100, 0);
    assert_near(costs[2].per_stage, 0, 0);
    assert_near(costs[2].additional, 150, 0); /* 3200 x 3 / 4 / 16 */
    /* Two samples are too few for four replicas. */
    made.layers.samples = 2;
    assert_int_equal(erg_grid_shape_costs(&made.problem, 0, 2, 4, costs), 2);
    assert_int_equal(costs[1].shape.data, 2);
}

/* Much output and few weights in the first two layers, the opposite in the others. */
static const double outputs[] = {1000, 1000, 8, 8}, weights[] = {16, 16, 32000, 32000};

static void assert_plan(const struct erg_grid_plan *plan, const char *expected)
{
    struct erg_text text = {0};
    erg_grid_plan_text(plan, &text);
    assert_string_equal(text.data, expected);
    erg_text_release(&text);
}

static void test_plan(void **state)
{
    (void)state;
    struct made made;
    struct erg_grid_plan plan;
    struct erg_error err;
    /* Stage 0: 2000 / 2 bytes by tensor, floor(32 / 2 / 16) = 1 by data. Stage 1: 16 / 2 x 1.1
     * (another shape) by tensor, 64000 / 2 / 16 = 2000 by data. */
    make(&made, (const double[]){1, 1, 1, 1}, outputs, weights, 4, 4, 2);
    assert_ok(erg_grid_plan(&made.problem, &plan, &err), &err);
    assert_plan(&plan, "0_1__2_3::2_1__1_2");
    /* One layer has nearly all load: no second stage gets 0.7 of half. */
    make(&made, (const double[]){97, 1, 1, 1}, outputs, weights, 4, 4, 2);
    assert_fails(erg_grid_plan(&made.problem, &plan, &err), &err,
                 "grid of 2 stages on 4 GPUs: no partition of the 4 layers");
    assert_int_equal(err.status, ERG_INFEASIBLE);
}

static void test_quiet_partitions_are_kept(void **state)
{
    (void)state;
    /* Cut after one layer or after two, as above. After one: stage 0 sends no weights and little
     * output by data (0 and floor(16 / 32) = 0 bytes), stage 1 by data floor(64016 / 32) = 2000,
     * by tensor 1016 / 2 = 508, 1.1 times as much after another shape: per stage 508, and 0.2 x 508
     * for resharding: 609.6. After two: 8 by tensor, 1 by data: 8 + 1 + 1.6 = 10.6, under a tenth
     * of it. */
    struct made made;
    struct erg_grid_partitions partitions;
    make(&made, (const double[]){3, 2, 2, 1}, outputs, weights, 4, 4, 2);
    erg_grid_partitions(&made.problem, &partitions);
    assert_int_equal(partitions.count, 2);
    erg_grid_keep_quiet(&made.problem, &partitions);
    assert_int_equal(partitions.count, 1);
    assert_int_equal(partitions.items[0].first[1], 2);
    free(partitions.items);
}

/* Every AllReduce within one node takes as long; of groups across nodes only `across` knows. */
struct constant {
    double seconds;
    bool across;
};

static int time_of_constant(const void *context, const struct erg_allocation *allocation,
                            enum erg_grid_collective op, struct erg_comm_group group,
                            double elements, double *seconds, struct erg_error *err)
{
    const struct constant *constant = context;
    (void)elements;
    assert_int_equal(op, ERG_ALL_REDUCE);
    if (group.nodes > 1 && !constant->across)
        return erg_fail(err, ERG_FAILED, "no all-reduce of %ld GPUs across %ld nodes of %ld",
                        group.size, group.nodes, allocation->gpus_per_node);
    *seconds += constant->seconds;
    return 0;
}

static void test_pareto_set(void **state)
{
    (void)state;
    struct made made;
    struct erg_grid_plan_set set;
    struct erg_error err;
    const struct erg_allocation allocation = {"x", 2, 2, false};
    const struct erg_grid_network slow = {time_of_constant, &(struct constant){100, false}};
    const struct erg_grid_network fast = {time_of_constant, &(struct constant){1e-9, false}};
    /* One partition, perfectly balanced. By tensor and data of both stages: 15 x 1000;
     * 15 x (1000 + 1.1 x 2000); 15 x (1.1 x 8 + 1); 15 x 2001: the third beats the others. */
    make(&made, (const double[]){1, 1, 1, 1}, outputs, weights, 4, 4, 2);
    assert_ok(erg_grid_plan_set(&made.problem, &slow, &allocation, &set, &err), &err);
    assert_int_equal(set.count, 1);
    assert_plan(&set.items[0].plan, "0_1__2_3::2_1__1_2");
    assert_near(set.items[0].communication, 15 * 9.8, 1e-9);
    assert_near(set.items[0].imbalance, 0, 0);
    assert_false(set.items[0].insignificant);
    /* Fractions 1.5, 1, 1, 0.5 without weights and outputs: both partitions are as balanced and
     * silent, so the first plan beats all others, unless communication hides anyway: then nothing
     * is ten times better balanced, and all 2 x 2 x 2 plans stay. */
    make(&made, (const double[]){3, 2, 2, 1}, none, none, 4, 4, 2);
    assert_ok(erg_grid_plan_set(&made.problem, &slow, &allocation, &set, &err), &err);
    assert_int_equal(set.count, 1);
    assert_plan(&set.items[0].plan, "0_0__1_3::1_2__1_2");
    assert_ok(erg_grid_plan_set(&made.problem, &fast, &allocation, &set, &err), &err);
    assert_int_equal(set.count, 8);
    assert_true(set.items[7].insignificant);
    assert_plan(&set.items[7].plan, "0_1__2_3::2_1__2_1");
    /* Loads that grow from layer to layer, in 4 stages of 2 GPUs: no partition is exact, and each
     * has 16 shapes. */
    double loads[16];
    for (int i = 0; i < 16; i++)
        loads[i] = 1 + 0.05 * i;
    const struct erg_allocation four = {"x", 4, 2, false};
    const struct erg_grid_network many = {time_of_constant, &(struct constant){1e-9, true}};
    make(&made, loads, none, none, 16, 8, 4);
    assert_ok(erg_grid_plan_set(&made.problem, &many, &four, &set, &err), &err);
    assert_int_equal(set.count, ERG_GRID_SET_PLANS);
    /* What the network does not know is said. */
    make(&made, (const double[]){1, 1}, none, none, 2, 4, 1);
    assert_fails(erg_grid_plan_set(&made.problem, &fast, &allocation, &set, &err), &err,
                 "no all-reduce of 4 GPUs across 2 nodes of 2");
}

static void check_places(const long *sizes, size_t stages, long gpus_per_node, const long *expected)
{
    long first[ERG_GRID_MAX_STAGES];
    erg_grid_place(sizes, stages, gpus_per_node, first);
    for (size_t i = 0; i < stages; i++)
        assert_int_equal(first[i], expected[i]);
}

static void test_places(void **state)
{
    (void)state;
    /* A stage of a whole node leaves the begun one to the smaller stages. */
    check_places((const long[]){1, 4, 1, 2}, 4, 4, (const long[]){0, 4, 1, 2});
    /* Twice what is left lies across two nodes. */
    check_places((const long[]){2, 1, 2, 1, 2}, 5, 4, (const long[]){0, 2, 3, 5, 6});
    check_places((const long[]){8, 8}, 2, 4, (const long[]){0, 8});
    /* Filling nodes would leave GPUs over and need others that are not there. */
    check_places((const long[]){1, 1, 1, 4, 2, 2, 1, 4}, 8, 4,
                 (const long[]){0, 1, 2, 3, 7, 9, 11, 12});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_and_fractions),
        cmocka_unit_test(test_stage_sizes),
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_communicating_shapes),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_quiet_partitions_are_kept),
        cmocka_unit_test(test_pareto_set),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
