/*
 * Rounding of planned times to measured options: what fits exactly is taken, nothing overruns its
 * deadline, and little is lost.
 */
#include "iteration/rounding_internal.h"
#include "iteration_world.h"

/* Tables of two options: {time, energy} of the first, of the second. */
static struct erg_frontier *tables_of_two(size_t count, const double options[][4])
{
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t t = 0; t < count; t++)
        for (int o = 0; o < 2; o++)
            erg_frontier_add(&tables[t], options[t][2 * o], options[t][2 * o + 1], 1410 - 30 * o);
    return tables;
}

/* Sums of round times meet: a slower option that ends exactly with its limit is on time. */
static void test_options_that_fit_exactly_are_taken(void **state)
{
    (void)state;
    static const double options[][4] = {{6, 43, 2, 22}, {3, 58, 3, 55}, {1, 38, 9, 5},
                                        {7, 6, 7, 51},  {5, 26, 5, 58}, {1, 36, 8, 2}};
    struct erg_frontier *tables = tables_of_two(6, options);
    struct erg_iteration_request request = {.pipeline = pipeline_1f1b(3, 2), .tables = tables};
    request.pipeline.blocking_power_w = 200;
    struct erg_iteration iteration;
    solve(&iteration, &request);
    assert_true(iteration.plans[0].time_s == 26);
    assert_near(exhaustive(&iteration.schedule, tables, 26), 7587, 1e-9);
    assert_near(iteration.plans[0].energy_j, 7587, 1e-9);
    erg_iteration_release(&iteration);
    free_tables(tables, 6);
}

/*
 * The continuous plan of least energy is the fastest one. But to give an option up costs so much
 * here that the best of all plans is slower, whatever the goal that leads to it.
 */
static void test_the_plan_of_least_energy_may_be_slower_than_planned(void **state)
{
    (void)state;
    static const double options[][4] = {
        {2, 22, 5, 12}, {5, 17, 8, 33}, {5, 19, 6, 34}, {8, 28, 7, 6}};
    struct erg_frontier *tables = tables_of_two(4, options);
    double deadline = 46;
    struct erg_iteration_request request = {.pipeline = pipeline_1f1b(2, 3),
                                            .tables = tables,
                                            .points = 10,
                                            .deadlines_s = &deadline,
                                            .deadline_count = 1};
    request.pipeline.blocking_power_w = 85;
    request.pipeline.hop_latency_s = (const double[]){0.003, 0.003};
    struct erg_iteration iteration;
    struct erg_error err;
    const struct erg_iteration_plan *plan;
    solve(&iteration, &request);
    double best = exhaustive(&iteration.schedule, tables, deadline);
    assert_near(best, 1751.04, 1e-9);
    const struct erg_goal goals[] = {LEAST_ENERGY, DEADLINE(deadline), BUDGET(best + 1e-6)};
    for (int i = 0; i < 3; i++) {
        plan = pick(&iteration, goals[i]);
        assert_near(plan->energy_j, best, 1e-9);
        assert_near(plan->time_s, 44.012, 1e-9);
    }
    erg_iteration_release(&iteration);
    request.points = 0; /* without a frontier, only the budget itself leads there */
    request.deadline_count = 0;
    solve(&iteration, &request);
    assert_ok(erg_iteration_refine_budget(&iteration, &request, best + 1e-6, &err), &err);
    plan = pick(&iteration, BUDGET(best + 1e-6));
    erg_iteration_release(&iteration);
    free_tables(tables, 4);
}

/* Round times are whole numbers of ticks, latencies among them: 0.05 / 1e-7 is a little more. */
static void test_round_times_are_planned_exactly(void **state)
{
    (void)state;
    static const double options[][4] = {
        {10, 20, 10, 20}, {10, 20, 10, 20}, {10, 20, 10, 20}, {10, 20, 10, 20}};
    struct erg_frontier *tables = tables_of_two(4, options);
    struct erg_iteration_request request = {.pipeline = pipeline_1f1b(2, 1), .tables = tables};
    request.pipeline.hop_latency_s = (const double[]){0.05, 0.05};
    struct erg_iteration iteration;
    solve(&iteration, &request);
    assert_near(iteration.planned[0].time_s, 40.1, 1e-9);
    erg_iteration_release(&iteration);
    free_tables(tables, 4);
}

/* So is a deadline just as round: 0.1 + 0.2, three times, is a little more than 0.9. */
static void test_round_deadlines_are_met(void **state)
{
    (void)state;
    static const double options[][4] = {{0.1, 20, 0.12, 17}, {0.2, 40, 0.23, 36}};
    struct erg_frontier *tables = tables_of_two(2, options);
    double deadline = 0.9;
    struct erg_iteration_request request = {.pipeline = pipeline_1f1b(1, 3),
                                            .tables = tables,
                                            .deadlines_s = &deadline,
                                            .deadline_count = 1};
    struct erg_iteration iteration;
    const struct erg_iteration_plan *plan;
    solve(&iteration, &request);
    plan = pick(&iteration, DEADLINE(deadline));
    assert_true(plan->time_s == deadline);
    erg_iteration_release(&iteration);
    free_tables(tables, 2);
}

/* What lies between two ticks of a coarse unit may be used, so it is planned for, too. */
static void test_deadlines_between_ticks_are_planned_for(void **state)
{
    (void)state;
    static const double options[][4] = {{1, 20, 1.3, 12}, {2, 40, 2.3, 35}};
    struct erg_frontier *tables = tables_of_two(2, options);
    const double deadlines[] = {3.35, 3.6, 3.61};
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(1, 1), .tables = tables, .tick_s = 0.25, .deadline_count = 1};
    struct erg_iteration iteration;
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        request.deadlines_s = &deadlines[i];
        solve(&iteration, &request);
        const struct erg_iteration_plan *plan = &iteration.plans[0];
        assert_true(plan->time_s <= plan->planned_time_s);
        assert_near(plan->planned_time_s, deadlines[i], 1e-12);
        assert_near(plan->planned_energy_j, erg_iteration_planned_energy(&iteration, deadlines[i]),
                    1e-9);
        erg_iteration_release(&iteration);
    }
    free_tables(tables, 2);
}

/* Of plans that are the same, and of deadlines that a plan meets, the tightest one counts. */
static void test_plans_name_the_tightest_deadline_they_meet(void **state)
{
    (void)state;
    static const double options[][4] = {{0.1, 20, 0.12, 17}, {0.2, 40, 0.23, 36}};
    struct erg_frontier *tables = tables_of_two(2, options);
    double deadline = 1;
    struct erg_iteration_request request = {.pipeline = pipeline_1f1b(1, 3),
                                            .tables = tables,
                                            .points = 100,
                                            .deadlines_s = &deadline,
                                            .deadline_count = 1};
    struct erg_iteration iteration;
    const struct erg_iteration_plan *plan;
    solve(&iteration, &request);
    plan = pick(&iteration, DEADLINE(deadline));
    assert_true(plan->planned_time_s <= deadline);
    for (size_t i = 0; i < iteration.plan_count; i++)
        for (size_t k = 0; k < iteration.plan_count; k++) {
            double other_s = iteration.plans[k].planned_time_s;
            assert_false(other_s >= iteration.plans[i].time_s &&
                         other_s < iteration.plans[i].planned_time_s);
        }
    erg_iteration_release(&iteration);
    free_tables(tables, 2);
}

static void assert_costs_less(const struct erg_iteration_request *request, double percent)
{
    double loss = losses_of(request).worst;
    if (loss >= percent)
        fail_msg("rounding costs up to %.3f%%, expected less than %.2f%%", loss, percent);
}

static void test_rounding_of_full_clock_tables_costs_little(void **state)
{
    (void)state;
    struct erg_frontier *tables = random_tables(3, 8, 38);
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(4, 24), .tables = tables, .points = 12};
    assert_costs_less(&request, 0.3);
    free_tables(tables, 8);
}

/* The hardest: all stages nearly equal, so that all have to keep step in each microbatch. */
static void test_rounding_of_long_pipelines_costs_little(void **state)
{
    (void)state;
    struct erg_frontier *tables = tables_within(3, 16, 25, 0.03);
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(8, 70), .tables = tables, .points = 6};
    request.pipeline.blocking_power_w = 80;
    assert_costs_less(&request, 0.3);
    free_tables(tables, 16);
}

/*
 * All stages but the last have to run their forwards at one of two clocks far apart: microbatch by
 * microbatch, each as it comes, all wait for whoever is slow (2 % without mixtures of cycles).
 */
static void test_rounding_across_wide_gaps_costs_little(void **state)
{
    (void)state;
    struct erg_frontier *tables = tables_within(3, 12, 40, 0);
    for (size_t t = 0; t < 10; t += 2) {
        tables[t].points[1] = tables[t].points[25];
        tables[t].count = 2;
    }
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(6, 64), .tables = tables, .points = 12};
    request.pipeline.blocking_power_w = 80;
    assert_costs_less(&request, 0.31);
    request.points = 100;
    assert_costs_less(&request, 0.36);
    free_tables(tables, 12);
}

/*
 * Noise leaves few of 50 clocks on the hull, at other times in each table. Stages that go from one
 * clock to the next each for itself wait for each other (0.183 % without cycles).
 */
static void test_rounding_of_noisy_tables_costs_little(void **state)
{
    (void)state;
    struct erg_frontier *tables = tables_within(3, 16, 50, 0.03);
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(8, 96), .tables = tables, .points = 30};
    request.pipeline.blocking_power_w = 80;
    double mean = losses_of(&request).mean;
    if (mean >= 0.17)
        fail_msg("rounding costs %.3f%% on average, expected less than 0.17%%", mean);
    free_tables(tables, 16);
}

/* The least cost of a forward and a backward of one stage within a time. */
static double cheapest_pair_j(const struct option_table *tables, double time_s)
{
    double least_j = INFINITY;
    for (size_t f = 0; f < tables[0].count; f++)
        for (size_t b = 0; b < tables[1].count; b++)
            if (tables[0].options[f].time_s + tables[1].options[b].time_s <= time_s)
                least_j = fmin(least_j, tables[0].options[f].cost_j + tables[1].options[b].cost_j);
    return least_j;
}

static void test_cycles_are_the_cheapest_of_their_time(void **state)
{
    (void)state;
    struct erg_frontier *given = tables_within(5, 6, 12, 0.1);
    const struct erg_pipeline pipeline = pipeline_1f1b(3, 4);
    struct erg_schedule schedule;
    struct option_tables tables;
    struct rounding_cycles cycles;
    struct erg_error err;
    assert_ok(erg_schedule_init(&schedule, &pipeline, &err), &err);
    assert_ok(erg_option_tables_init(&tables, &schedule, given, 0, &err), &err);
    erg_rounding_cycles_init(&cycles, &schedule, &tables);
    assert_true(cycles.hull.count > 2);
    for (size_t c = 0; c < cycles.hull.count; c++) {
        const struct erg_point *cycle = &cycles.hull.points[c];
        double longest_s = 0, least_j = 0, taken_j = 0;
        for (size_t s = 0; s < 3; s++) {
            const struct option_table *stage = &tables.tables[2 * s];
            const uint16_t *taken = &cycles.option[c * cycles.table_count + 2 * s];
            const struct option *f = &stage[0].options[taken[0]], *b = &stage[1].options[taken[1]];
            longest_s = fmax(longest_s, f->time_s + b->time_s);
            taken_j += f->cost_j + b->cost_j;
            least_j += cheapest_pair_j(stage, cycle->time_s);
        }
        assert_true(longest_s == cycle->time_s);
        assert_near(taken_j, cycle->energy_j, 1e-9);
        assert_near(least_j, cycle->energy_j, 1e-9);
    }
    erg_rounding_cycles_release(&cycles);
    erg_option_tables_release(&tables);
    erg_schedule_release(&schedule);
    free_tables(given, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_that_fit_exactly_are_taken),
        cmocka_unit_test(test_the_plan_of_least_energy_may_be_slower_than_planned),
        cmocka_unit_test(test_round_times_are_planned_exactly),
        cmocka_unit_test(test_round_deadlines_are_met),
        cmocka_unit_test(test_deadlines_between_ticks_are_planned_for),
        cmocka_unit_test(test_plans_name_the_tightest_deadline_they_meet),
        cmocka_unit_test(test_rounding_of_full_clock_tables_costs_little),
        cmocka_unit_test(test_rounding_of_long_pipelines_costs_little),
        cmocka_unit_test(test_rounding_across_wide_gaps_costs_little),
        cmocka_unit_test(test_rounding_of_noisy_tables_costs_little),
        cmocka_unit_test(test_cycles_are_the_cheapest_of_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
