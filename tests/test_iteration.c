/*
 * Iterations: plans in true times, deadlines and picks.
 */
#include "iteration_world.h"

/* Up from the one of both virtual stages that the other follows. */
static double hop_s(const struct erg_pipeline *pipeline, const struct erg_instruction *a,
                    const struct erg_instruction *b)
{
    size_t one = a->chunk * pipeline->stages + a->stage;
    size_t other = b->chunk * pipeline->stages + b->stage;
    assert_true(one + 1 == other || other + 1 == one);
    return pipeline->hop_latency_s[(one < other ? one : other) % pipeline->stages];
}

/* What a plan says must follow from its options alone, computed here the slow way. */
static void check_plan(const struct erg_iteration *iteration, const struct erg_frontier *tables,
                       const struct erg_iteration_plan *plan)
{
    const struct erg_schedule *schedule = &iteration->schedule;
    const struct erg_pipeline *pipeline = &schedule->pipeline;
    double *start = erg_xcalloc(schedule->count, sizeof *start), time_s, energy_j, busy = 0;
    double expected = 0, end = 0;
    erg_iteration_evaluate(schedule, tables, plan->option, start, &time_s, &energy_j);
    /* A plan that ends with its deadline says so, whatever the additions make of it. */
    assert_near(time_s, plan->time_s, 1e-11 * time_s);
    assert_true(energy_j == plan->energy_j);
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        const struct erg_point *point =
            &tables[erg_table_index(pipeline, instruction)].points[plan->option[i]];
        double ready = 0;
        for (int k = 0; k < 2; k++) {
            uint32_t before = schedule->before[i][k];
            if (before == ERG_NONE)
                continue;
            const struct erg_instruction *from = &schedule->instructions[before];
            double finish =
                start[before] +
                tables[erg_table_index(pipeline, from)].points[plan->option[before]].time_s;
            if (from->stage != instruction->stage)
                finish += hop_s(pipeline, from, instruction);
            ready = finish > ready ? finish : ready;
        }
        assert_near(start[i], ready, 1e-12);
        busy += point->time_s;
        expected += point->energy_j;
        end = start[i] + point->time_s > end ? start[i] + point->time_s : end;
    }
    assert_near(plan->time_s, end, 1e-12);
    expected += pipeline->blocking_power_w * ((double)pipeline->stages * end - busy);
    assert_close(plan->energy_j, expected, 1e-9);
    free(start);
}

/* Every promise of the header for one pipeline. */
static void check_pipeline(const struct erg_pipeline *pipeline, size_t options, uint64_t seed)
{
    size_t count = 2 * pipeline->stages * pipeline->chunks;
    struct erg_frontier *tables = random_tables(seed, count, options);
    struct erg_iteration_request request = {
        .pipeline = *pipeline, .tables = tables, .points = 12, .slower_points = 3};
    struct erg_iteration iteration;
    solve(&iteration, &request);

    for (size_t i = 2; i < iteration.planned_count; i++) { /* convex and falling */
        const struct erg_breakpoint *a = &iteration.planned[i - 2], *b = a + 1, *c = a + 2;
        assert_true(a->time_s < b->time_s && b->time_s < c->time_s);
        assert_true(a->cost_j > b->cost_j && b->cost_j > c->cost_j);
        assert_true((a->cost_j - b->cost_j) / (b->time_s - a->time_s) >=
                    (b->cost_j - c->cost_j) / (c->time_s - b->time_s) * (1 - 1e-6));
    }
    uint32_t *fastest = erg_xcalloc(iteration.schedule.count, sizeof *fastest);
    for (size_t i = 0; i < iteration.schedule.count; i++) {
        const struct erg_frontier *table =
            &tables[erg_table_index(pipeline, &iteration.schedule.instructions[i])];
        for (uint32_t o = 1; o < table->count; o++)
            if (table->points[o].time_s < table->points[fastest[i]].time_s)
                fastest[i] = o;
    }
    double fastest_s, fastest_j;
    erg_iteration_evaluate(&iteration.schedule, tables, fastest, NULL, &fastest_s, &fastest_j);
    free(fastest);
    assert_true(iteration.plans[0].time_s == fastest_s);
    assert_true(iteration.plans[0].energy_j <= fastest_j);

    for (size_t i = 0; i < iteration.plan_count; i++) {
        const struct erg_iteration_plan *plan = &iteration.plans[i];
        check_plan(&iteration, tables, plan);
        assert_true(plan->time_s <= plan->planned_time_s);
        /* No assignment at all can beat the planned optimum at its own time. */
        assert_true(plan->energy_j >=
                    erg_iteration_planned_energy(&iteration, plan->time_s) * (1 - 1e-6));
        assert_close(plan->planned_energy_j,
                     erg_iteration_planned_energy(&iteration, plan->planned_time_s), 1e-9);
    }
    for (size_t i = 1; i < iteration.frontier.count; i++) {
        assert_true(iteration.frontier.points[i - 1].time_s < iteration.frontier.points[i].time_s);
        assert_true(iteration.frontier.points[i - 1].energy_j >
                    iteration.frontier.points[i].energy_j);
    }
    /* A deadline alone: the frontier from there on, with one plan. */
    const struct erg_breakpoint *slowest = &iteration.planned[iteration.planned_count - 1];
    const double middle_s = (iteration.plans[0].time_s + slowest->time_s) / 2;
    request.points = request.slower_points = 0;
    request.deadlines_s = &middle_s;
    request.deadline_count = 1;
    struct erg_iteration part;
    solve(&part, &request);
    assert_int_equal(part.plan_count, 1);
    assert_true(part.plans[0].time_s <= middle_s &&
                part.planned[0].time_s <= middle_s * (1 + 1e-6));
    assert_true(part.planned_count <= iteration.planned_count);
    for (size_t i = 1; i < part.planned_count; i++)
        assert_close(erg_iteration_planned_energy(&part, part.planned[i].time_s),
                     erg_iteration_planned_energy(&iteration, part.planned[i].time_s), 1e-9);
    erg_iteration_release(&part);
    erg_iteration_release(&iteration);
    free_tables(tables, count);
}

static void test_plans_keep_every_promise(void **state)
{
    (void)state;
    static const size_t shapes[][4] = {/* stages, microbatches, chunks, options */
                                       {1, 1, 1, 8},   {1, 4, 1, 3},   {2, 1, 1, 8},  {3, 2, 1, 12},
                                       {4, 16, 1, 38}, {8, 12, 1, 20}, {2, 4, 2, 10}, {4, 8, 2, 38},
                                       {3, 3, 3, 6},   {4, 12, 1, 1},  {1, 3, 2, 9}};
    /* None, all on one node, and every hop another one. */
    static const double hops_s[][8] = {{0},
                                       {0.003, 0.003, 0.003, 0.003, 0.003, 0.003, 0.003, 0.003},
                                       {0.003, 0.010, 0.006, 0.010, 0.003, 0.010, 0.001, 0.012}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int latency = 0; latency < 3; latency++) {
            struct erg_pipeline pipeline = {.stages = shapes[i][0],
                                            .microbatches = shapes[i][1],
                                            .chunks = shapes[i][2],
                                            .hop_latency_s = hops_s[latency],
                                            .blocking_power_w = 80};
            check_pipeline(&pipeline, shapes[i][3], 100 + i);
        }
}

static void test_tiny_plans_are_close_to_the_best_assignment(void **state)
{
    (void)state;
    struct erg_pipeline pipeline = pipeline_1f1b(2, 2);
    double loss = 0;
    size_t plans = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct erg_frontier *tables = random_tables(seed, 4, 4);
        struct erg_iteration_request request = {
            .pipeline = pipeline, .tables = tables, .points = 5};
        struct erg_iteration iteration;
        solve(&iteration, &request);
        for (size_t i = 0; i < iteration.plan_count; i++) {
            const struct erg_iteration_plan *plan = &iteration.plans[i];
            double best = exhaustive(&iteration.schedule, tables, plan->planned_time_s);
            assert_true(plan->energy_j >= best * (1 - 1e-12));
            assert_true(plan->energy_j <= best * 1.03);
            loss += plan->energy_j / best - 1;
            plans++;
        }
        erg_iteration_release(&iteration);
        free_tables(tables, 4);
    }
    assert_true(loss / (double)plans < 0.001);
}

static double sum_energy_j(const struct erg_iteration_request *request)
{
    struct erg_iteration iteration;
    double sum = 0;
    solve(&iteration, request);
    for (size_t i = 0; i < iteration.plan_count; i++)
        sum += iteration.plans[i].energy_j;
    erg_iteration_release(&iteration);
    return sum;
}

static void test_the_seed_decides_the_search(void **state)
{
    (void)state;
    struct erg_frontier *tables = random_tables(11, 8, 12);
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(4, 12), .tables = tables, .points = 6, .seed = 1};
    double one = sum_energy_j(&request), again = sum_energy_j(&request);
    request.seed = 2;
    double two = sum_energy_j(&request);
    assert_true(one == again);
    assert_true(one != two);
    assert_true(fabs(one / two - 1) < 0.005);
    free_tables(tables, 8);
}

static void test_deadlines_and_picks(void **state)
{
    (void)state;
    struct erg_pipeline pipeline = pipeline_1f1b(4, 8);
    struct erg_error err;
    struct erg_frontier *tables = random_tables(7, 8, 20);
    struct erg_iteration iteration;
    double deadlines[] = {1.9, 2.05};
    struct erg_iteration_request request = {.pipeline = pipeline,
                                            .tables = tables,
                                            .points = 10,
                                            .slower_points = 5,
                                            .deadlines_s = deadlines,
                                            .deadline_count = 2};
    solve(&iteration, &request);
    const struct erg_iteration_plan *plan, *other;
    size_t none;
    for (size_t i = 0; i < 2; i++) {
        plan = pick(&iteration, DEADLINE(deadlines[i]));
        assert_true(plan->time_s <= deadlines[i]);
        assert_true(plan->energy_j <
                    erg_iteration_planned_energy(&iteration, deadlines[i]) * 1.004);
    }
    plan = pick(&iteration, FASTEST);
    assert_true(plan == &iteration.plans[0]);
    plan = pick(&iteration, LEAST_ENERGY);
    for (size_t i = 0; i < iteration.plan_count; i++)
        assert_true(iteration.plans[i].energy_j >= plan->energy_j);
    /* A straggler holds the pipeline beyond the plan of least energy: slower plans are worth it. */
    double least_s = plan->time_s;
    other = pick(&iteration, STRAGGLER(10 * least_s));
    assert_true(other->time_s > least_s);
    other = pick(&iteration, KNEE);
    assert_true(other->time_s < least_s);

    double budget = 0.5 * (iteration.plans[0].energy_j + plan->energy_j);
    plan = pick(&iteration, BUDGET(budget));
    double before = plan->time_s;
    assert_ok(erg_iteration_refine_budget(&iteration, &request, budget, &err), &err);
    plan = pick(&iteration, BUDGET(budget));
    assert_true(plan->energy_j <= budget);
    assert_true(plan->time_s <= before);
    assert_true(erg_iteration_planned_energy(&iteration, plan->time_s * 0.995) > budget * 0.999);

    assert_fails(erg_iteration_pick(&iteration, &DEADLINE(0.1), &none, &err), &err,
                 "fastest takes");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_fails(erg_iteration_pick(&iteration, &BUDGET(1), &none, &err), &err, "cheapest needs");
    assert_fails(erg_iteration_pick(&iteration, &STRAGGLER(0.1), &none, &err), &err, "straggler");
    erg_iteration_release(&iteration);
    deadlines[0] = 0.5;
    assert_fails(erg_iteration_solve(&iteration, &request, &err), &err, "cannot be met");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    free_tables(tables, 8);
}

static void test_impossible_tables(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_frontier tables[2] = {0};
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(1, 1), .tables = tables, .points = 2};
    struct erg_iteration iteration;
    erg_frontier_add(&tables[0], 1, 1, 0);
    assert_fails(erg_iteration_solve(&iteration, &request, &err), &err,
                 "backward of virtual stage 0 has no options");
    erg_frontier_add(&tables[1], 0, 1, 0);
    assert_fails(erg_iteration_solve(&iteration, &request, &err), &err, "takes 0 s");
    tables[1].points[0].time_s = 2;
    tables[1].points[0].energy_j = -1;
    assert_fails(erg_iteration_solve(&iteration, &request, &err), &err, "needs -1 J");
    tables[1].points[0].energy_j = 200;
    request.tick_s = 1e-12;
    assert_fails(erg_iteration_solve(&iteration, &request, &err), &err, "too short");
    request.tick_s = 0;
    solve(&iteration, &request);
    assert_int_equal(iteration.frontier.count, 1);
    assert_near(iteration.plans[0].time_s, 3, 0);
    assert_near(iteration.plans[0].energy_j, 201, 1e-9);
    erg_iteration_release(&iteration);
    for (size_t t = 0; t < 2; t++)
        erg_frontier_release(&tables[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_keep_every_promise),
        cmocka_unit_test(test_tiny_plans_are_close_to_the_best_assignment),
        cmocka_unit_test(test_the_seed_decides_the_search),
        cmocka_unit_test(test_deadlines_and_picks),
        cmocka_unit_test(test_impossible_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
