/*
 * Iterations: schedules, plans in true times, rounding that never overruns its deadline, picks,
 * stage profiles and the frontier command.
 */
#include "base/memory.h"
#include "base/random.h"
#include "io/file.h"
#include "io/json.h"
#include "iteration/iteration.h"
#include "program.h"

#include <math.h>

static struct erg_pipeline pipeline_1f1b(size_t stages, size_t microbatches)
{
    return (struct erg_pipeline){.schedule = ERG_SCHEDULE_1F1B,
                                 .stages = stages,
                                 .microbatches = microbatches,
                                 .chunks = 1,
                                 .blocking_power_w = 80};
}

/* "F0 F1 B0 …", chunk after a dot when there are several. */
static void describe(const struct erg_schedule *schedule, size_t stage, struct erg_text *out)
{
    for (size_t i = stage * schedule->per_stage; i < (stage + 1) * schedule->per_stage; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        assert_int_equal(instruction->stage, stage);
        erg_text_printf(out, "%s%c%u", out->count ? " " : "",
                        instruction->direction == ERG_FORWARD ? 'F' : 'B', instruction->microbatch);
        if (schedule->pipeline.chunks > 1)
            erg_text_printf(out, ".%u", instruction->chunk);
    }
}

static void check_order(const struct erg_pipeline *pipeline, size_t stage, const char *expected)
{
    struct erg_schedule schedule;
    struct erg_error err;
    struct erg_text text = {0};
    assert_ok(erg_schedule_init(&schedule, pipeline, &err), &err);
    describe(&schedule, stage, &text);
    assert_string_equal(text.data, expected);
    erg_text_release(&text);
    erg_schedule_release(&schedule);
}

static void test_schedules(void **state)
{
    (void)state;
    struct erg_pipeline plain = pipeline_1f1b(3, 4);
    check_order(&plain, 0, "F0 F1 F2 B0 F3 B1 B2 B3");
    check_order(&plain, 1, "F0 F1 B0 F2 B1 F3 B2 B3");
    check_order(&plain, 2, "F0 B0 F1 B1 F2 B2 F3 B3");
    struct erg_pipeline few = pipeline_1f1b(4, 2);
    check_order(&few, 0, "F0 F1 B0 B1");
    struct erg_pipeline one = pipeline_1f1b(1, 1);
    check_order(&one, 0, "F0 B0");
    struct erg_pipeline interleaved = {
        .schedule = ERG_SCHEDULE_INTERLEAVED, .stages = 2, .microbatches = 4, .chunks = 2};
    check_order(&interleaved, 0,
                "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
    check_order(&interleaved, 1,
                "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
    interleaved.microbatches = 2; /* as many as stages: everything is warm-up */
    check_order(&interleaved, 1, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0");
    interleaved.microbatches = 1; /* fewer */
    check_order(&interleaved, 0, "F0.0 F0.1 B0.1 B0.0");
    interleaved.microbatches = 5; /* groups of 3 and 2 */
    check_order(&interleaved, 1,
                "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 "
                "B3.1 B4.1 B3.0 B4.0");
}

/* Each instruction is there once, and no stage waits for itself: erg_schedule_init() checks that
 * what it has ordered is everything. */
static void test_any_number_of_microbatches_interleaves(void **state)
{
    (void)state;
    struct erg_pipeline pipeline = {.schedule = ERG_SCHEDULE_INTERLEAVED};
    struct erg_schedule schedule;
    struct erg_error err;
    for (pipeline.stages = 1; pipeline.stages <= 7; pipeline.stages++)
        for (pipeline.chunks = 2; pipeline.chunks <= 4; pipeline.chunks++)
            for (pipeline.microbatches = 1; pipeline.microbatches <= 30; pipeline.microbatches++) {
                assert_ok(erg_schedule_init(&schedule, &pipeline, &err), &err);
                uint8_t *seen = erg_xcalloc(schedule.count, sizeof *seen);
                for (size_t i = 0; i < schedule.count; i++) {
                    const struct erg_instruction *instruction = &schedule.instructions[i];
                    assert_true(instruction->microbatch < pipeline.microbatches);
                    assert_true(instruction->chunk < pipeline.chunks);
                    size_t place = erg_table_index(&pipeline, instruction) * pipeline.microbatches +
                                   instruction->microbatch;
                    assert_int_equal(seen[place]++, 0);
                }
                free(seen);
                erg_schedule_release(&schedule);
            }
}

static void test_impossible_pipelines(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_pipeline pipeline = pipeline_1f1b(0, 4);
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "must be at least 1");
    pipeline = pipeline_1f1b(4, 4);
    pipeline.chunks = 2;
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "interleaved");
    pipeline.schedule = ERG_SCHEDULE_INTERLEAVED;
    assert_ok(erg_pipeline_check(&pipeline, &err), &err);
    pipeline.chunks = 1;
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "use the 1F1B schedule");
    pipeline = pipeline_1f1b(2, 2);
    pipeline.hop_latency_s = (const double[]){0, NAN};
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "latency");
    pipeline = pipeline_1f1b(2, 2);
    pipeline.hop_latency_s = (const double[]){-1e-3, 0};
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "latency");
    pipeline = pipeline_1f1b(2, 2);
    pipeline.blocking_power_w = -1;
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "blocking power");
    assert_int_equal(err.status, ERG_USAGE);
}

/* --- tables --- */

/* Clock curves like those of a GPU: t = work / f + fixed, e rising with f, with some noise. The
 * work of the stages differs from its mean by up to `spread` of it. */
static struct erg_frontier *tables_within(struct erg_rng *rng, size_t count, size_t options,
                                          double spread)
{
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t t = 0; t < count; t++) {
        double work = (t % 2 ? 0.09 : 0.05) * (1 - spread + 2 * spread * erg_rng_uniform(rng));
        for (size_t o = 0; o < options; o++) {
            double f = 1 - 0.45 * (double)o / (double)(options > 1 ? options - 1 : 1);
            double time = work * (0.2 + 0.8 / f) * (1 + 0.002 * erg_rng_uniform(rng));
            double power = 90 + 300 * f * f * f * (1 + 0.01 * erg_rng_uniform(rng));
            erg_frontier_add(&tables[t], time, power * time, (int64_t)(1400 * f));
        }
    }
    return tables;
}

static struct erg_frontier *random_tables(struct erg_rng *rng, size_t count, size_t options)
{
    return tables_within(rng, count, options, 0.2);
}

static void free_tables(struct erg_frontier *tables, size_t count)
{
    for (size_t t = 0; t < count; t++)
        erg_frontier_release(&tables[t]);
    free(tables);
}

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
                       const struct erg_plan *plan)
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
    struct erg_rng rng;
    struct erg_error err;
    size_t count = 2 * pipeline->stages * pipeline->chunks;
    erg_rng_seed(&rng, seed);
    struct erg_frontier *tables = random_tables(&rng, count, options);
    struct erg_iteration_request request = {
        .pipeline = *pipeline, .tables = tables, .points = 12, .slower_points = 3};
    struct erg_iteration iteration;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);

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
        const struct erg_plan *plan = &iteration.plans[i];
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
            struct erg_pipeline pipeline = {.schedule = shapes[i][2] > 1 ? ERG_SCHEDULE_INTERLEAVED
                                                                         : ERG_SCHEDULE_1F1B,
                                            .stages = shapes[i][0],
                                            .microbatches = shapes[i][1],
                                            .chunks = shapes[i][2],
                                            .hop_latency_s = hops_s[latency],
                                            .blocking_power_w = 80};
            check_pipeline(&pipeline, shapes[i][3], 100 + i);
        }
}

/* All assignments of a tiny pipeline: least energy for a deadline. */
static double exhaustive(const struct erg_schedule *schedule, const struct erg_frontier *tables,
                         double deadline_s)
{
    uint32_t option[12] = {0};
    double best = 1e300, time_s, energy_j;
    assert_true(schedule->count <= 12);
    for (;;) {
        erg_iteration_evaluate(schedule, tables, option, NULL, &time_s, &energy_j);
        if (time_s <= deadline_s && energy_j < best)
            best = energy_j;
        size_t i = 0;
        while (i < schedule->count &&
               ++option[i] ==
                   tables[erg_table_index(&schedule->pipeline, &schedule->instructions[i])].count)
            option[i++] = 0;
        if (i == schedule->count)
            return best;
    }
}

static void test_tiny_plans_are_close_to_the_best_assignment(void **state)
{
    (void)state;
    struct erg_pipeline pipeline = pipeline_1f1b(2, 2);
    struct erg_rng rng;
    struct erg_error err;
    double loss = 0;
    size_t plans = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        erg_rng_seed(&rng, seed);
        struct erg_frontier *tables = random_tables(&rng, 4, 4);
        struct erg_iteration_request request = {
            .pipeline = pipeline, .tables = tables, .points = 5};
        struct erg_iteration iteration;
        assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
        for (size_t i = 0; i < iteration.plan_count; i++) {
            const struct erg_plan *plan = &iteration.plans[i];
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
    struct erg_error err;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
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
    size_t plan;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    double best = exhaustive(&iteration.schedule, tables, deadline);
    assert_near(best, 1751.04, 1e-9);
    const enum erg_goal goals[] = {ERG_GOAL_LEAST_ENERGY, ERG_GOAL_DEADLINE, ERG_GOAL_BUDGET};
    const double bounds[] = {0, deadline, best + 1e-6};
    for (int i = 0; i < 3; i++) {
        assert_ok(erg_iteration_pick(&iteration, goals[i], bounds[i], &plan, &err), &err);
        assert_near(iteration.plans[plan].energy_j, best, 1e-9);
        assert_near(iteration.plans[plan].time_s, 44.012, 1e-9);
    }
    erg_iteration_release(&iteration);
    request.points = 0; /* without a frontier, only the budget itself leads there */
    request.deadline_count = 0;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    assert_ok(erg_iteration_refine_budget(&iteration, &request, best + 1e-6, &err), &err);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_BUDGET, best + 1e-6, &plan, &err), &err);
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
    struct erg_error err;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
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
    struct erg_error err;
    size_t plan;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_DEADLINE, deadline, &plan, &err), &err);
    assert_true(iteration.plans[plan].time_s == deadline);
    erg_iteration_release(&iteration);
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
    struct erg_error err;
    size_t plan;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_DEADLINE, deadline, &plan, &err), &err);
    assert_true(iteration.plans[plan].planned_time_s <= deadline);
    for (size_t i = 0; i < iteration.plan_count; i++)
        for (size_t k = 0; k < iteration.plan_count; k++) {
            double other_s = iteration.plans[k].planned_time_s;
            assert_false(other_s >= iteration.plans[i].time_s &&
                         other_s < iteration.plans[i].planned_time_s);
        }
    erg_iteration_release(&iteration);
    free_tables(tables, 2);
}

/* The worst loss against the planned energy at the same deadline, in per cent. */
static double worst_loss(const struct erg_iteration_request *request)
{
    struct erg_iteration iteration;
    struct erg_error err;
    double worst = 0;
    assert_ok(erg_iteration_solve(&iteration, request, &err), &err);
    for (size_t i = 0; i < iteration.plan_count; i++) {
        const struct erg_plan *plan = &iteration.plans[i];
        double power_w = request->pipeline.blocking_power_w * (double)request->pipeline.stages;
        double held = plan->energy_j + power_w * (plan->planned_time_s - plan->time_s);
        worst = fmax(worst, 100 * (held / plan->planned_energy_j - 1));
    }
    erg_iteration_release(&iteration);
    return worst;
}

static void assert_costs_little(const struct erg_iteration_request *request)
{
    double loss = worst_loss(request);
    if (loss >= 0.3)
        fail_msg("rounding costs up to %.3f%%, expected less than 0.3%%", loss);
}

static void test_rounding_of_full_clock_tables_costs_little(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    struct erg_frontier *tables = random_tables(&rng, 8, 38);
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(4, 24), .tables = tables, .points = 12};
    assert_costs_little(&request);
    free_tables(tables, 8);
}

/* The hardest: all stages nearly equal, so that all have to keep step in each microbatch. */
static void test_rounding_of_long_pipelines_costs_little(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    struct erg_frontier *tables = tables_within(&rng, 16, 25, 0.03);
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(8, 70), .tables = tables, .points = 6};
    request.pipeline.blocking_power_w = 80;
    assert_costs_little(&request);
    free_tables(tables, 16);
}

/*
 * All stages but the last have to run their forwards at one of two clocks far apart: microbatch by
 * microbatch, each as it comes, all wait for whoever is slow (0.5%).
 */
static void test_rounding_across_wide_gaps_costs_little(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    struct erg_frontier *tables = tables_within(&rng, 12, 40, 0);
    for (size_t t = 0; t < 10; t += 2) {
        tables[t].points[1] = tables[t].points[25];
        tables[t].count = 2;
    }
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(6, 64), .tables = tables, .points = 12};
    request.pipeline.blocking_power_w = 80;
    assert_costs_little(&request);
    free_tables(tables, 12);
}

static double sum_energy_j(const struct erg_iteration_request *request)
{
    struct erg_iteration iteration;
    struct erg_error err;
    double sum = 0;
    assert_ok(erg_iteration_solve(&iteration, request, &err), &err);
    for (size_t i = 0; i < iteration.plan_count; i++)
        sum += iteration.plans[i].energy_j;
    erg_iteration_release(&iteration);
    return sum;
}

static void test_the_seed_decides_the_search(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 11);
    struct erg_frontier *tables = random_tables(&rng, 8, 12);
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
    struct erg_rng rng;
    struct erg_error err;
    erg_rng_seed(&rng, 7);
    struct erg_frontier *tables = random_tables(&rng, 8, 20);
    struct erg_iteration iteration;
    double deadlines[] = {1.9, 2.05};
    struct erg_iteration_request request = {.pipeline = pipeline,
                                            .tables = tables,
                                            .points = 10,
                                            .slower_points = 5,
                                            .deadlines_s = deadlines,
                                            .deadline_count = 2};
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    size_t plan, other;
    for (size_t i = 0; i < 2; i++) {
        assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_DEADLINE, deadlines[i], &plan, &err),
                  &err);
        assert_true(iteration.plans[plan].time_s <= deadlines[i]);
        assert_true(iteration.plans[plan].energy_j <
                    erg_iteration_planned_energy(&iteration, deadlines[i]) * 1.004);
    }
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_FASTEST, 0, &plan, &err), &err);
    assert_int_equal(plan, 0);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_LEAST_ENERGY, 0, &plan, &err), &err);
    for (size_t i = 0; i < iteration.plan_count; i++)
        assert_true(iteration.plans[i].energy_j >= iteration.plans[plan].energy_j);
    /* A straggler holds the pipeline beyond the plan of least energy: slower plans are worth it. */
    double least_s = iteration.plans[plan].time_s;
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_STRAGGLER, 10 * least_s, &other, &err), &err);
    assert_true(iteration.plans[other].time_s > least_s);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_KNEE, 0, &other, &err), &err);
    assert_true(iteration.plans[other].time_s < least_s);

    double budget = 0.5 * (iteration.plans[0].energy_j + iteration.plans[plan].energy_j);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_BUDGET, budget, &plan, &err), &err);
    double before = iteration.plans[plan].time_s;
    assert_ok(erg_iteration_refine_budget(&iteration, &request, budget, &err), &err);
    assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_BUDGET, budget, &plan, &err), &err);
    assert_true(iteration.plans[plan].energy_j <= budget);
    assert_true(iteration.plans[plan].time_s <= before);
    assert_true(erg_iteration_planned_energy(&iteration, iteration.plans[plan].time_s * 0.995) >
                budget * 0.999);

    assert_fails(erg_iteration_pick(&iteration, ERG_GOAL_DEADLINE, 0.1, &plan, &err), &err,
                 "fastest takes");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_fails(erg_iteration_pick(&iteration, ERG_GOAL_BUDGET, 1, &plan, &err), &err,
                 "cheapest needs");
    assert_fails(erg_iteration_pick(&iteration, ERG_GOAL_STRAGGLER, 0.1, &plan, &err), &err,
                 "straggler");
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
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    assert_int_equal(iteration.frontier.count, 1);
    assert_near(iteration.plans[0].time_s, 3, 0);
    assert_near(iteration.plans[0].energy_j, 201, 1e-9);
    erg_iteration_release(&iteration);
    for (size_t t = 0; t < 2; t++)
        erg_frontier_release(&tables[t]);
}

/* --- stage profiles --- */

static void check_profile_error(const char *text, const char *part)
{
    struct erg_profile profile;
    struct erg_error err;
    if (erg_profile_parse(&profile, "p.csv", text, strlen(text), &err) == 0)
        fail_msg("read, expected an error with \"%s\":\n%s", part, text);
    if (!strstr(err.message, part) || !strstr(err.message, "p.csv"))
        fail_msg("said \"%s\", expected \"%s\"", err.message, part);
}

#define HEADER "stage,instruction,frequency,time,energy\n"
#define GOOD "0,forward,1400,0.1,30\n0,backward,1400,0.2,60\n"

static void test_profiles(void **state)
{
    (void)state;
    struct erg_profile profile;
    struct erg_error err;
    const char *text = HEADER GOOD "0,forward,1200,0.12,28\n0,backward,1200,0.24,55\n";
    assert_ok(erg_profile_parse(&profile, "p.csv", text, strlen(text), &err), &err);
    assert_int_equal(profile.virtual_stages, 1);
    assert_int_equal(profile.tables[1].count, 2);
    assert_int_equal(profile.tables[1].points[1].recipe, 1200);
    assert_near(profile.tables[1].points[1].energy_j, 55, 0);
    erg_profile_release(&profile);

    check_profile_error("", "p.csv");
    check_profile_error(HEADER, "no rows");
    check_profile_error("stage,instruction,clock,time,energy\n" GOOD, "frequency");
    check_profile_error(HEADER "0,forward,1400,nan,30\n", "time");
    check_profile_error(HEADER "0,forward,1400,0.1,-3\n", "p.csv:2");
    check_profile_error(HEADER "0,forward,1400,0.1,-3\n", "column 'energy' is -3");
    check_profile_error(HEADER "0,forward,1400,0,3\n", "column 'time' is 0");
    check_profile_error(HEADER "0,forwards,1400,0.1,3\n", "must be forward or backward");
    check_profile_error(HEADER "-1,forward,1400,0.1,3\n", "numbered from 0");
    check_profile_error(HEADER "0,forward,0,0.1,3\n", "column 'frequency' is 0");
    check_profile_error(HEADER GOOD "0,forward,1400,0.1,30\n",
                        "measured twice, here and in line 2");
    check_profile_error(HEADER "0,forward,1400,0.1,30\n", "no rows with instruction \"backward\"");
    check_profile_error(HEADER GOOD "2,forward,1400,0.1,30\n2,backward,1400,0.1,30\n",
                        "stage 1 has no rows");
    check_profile_error(HEADER GOOD "0,forward,1200,0.1,30\n",
                        "p.csv:4: the clock 1200 MHz is measured for stage 0 forward in this row, "
                        "but not for stage 0 backward");
    check_profile_error(HEADER GOOD "0,backward,1300,0.1,30\n", "but not for stage 0 forward");
}

/* Saved at the fastest point against all at the highest clock, and lost by rounding at any, in per
 * cent. */
static void check_measured(const char *name, size_t microbatches, double power_w, double percent,
                           double largest_loss)
{
    char file[128];
    snprintf(file, sizeof file, "perseus/stage_profile/%s.csv", name);
    const char *path = shared_data(file);
    skip_without(path, "perseus/stage_profile");
    struct erg_profile profile;
    struct erg_error err;
    assert_ok(erg_profile_load(&profile, path, &err), &err);
    struct erg_iteration_request request = {.pipeline =
                                                pipeline_1f1b(profile.virtual_stages, microbatches),
                                            .tables = profile.tables,
                                            .points = 20};
    request.pipeline.blocking_power_w = power_w;
    struct erg_iteration iteration;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    uint32_t *highest = erg_xcalloc(iteration.schedule.count, sizeof *highest);
    double time_s, energy_j;
    erg_profile_highest_clock(&iteration.schedule, profile.tables, highest);
    erg_iteration_evaluate(&iteration.schedule, profile.tables, highest, NULL, &time_s, &energy_j);
    free(highest);
    const struct erg_plan *plan = &iteration.plans[iteration.frontier.points[0].recipe];
    assert_true(plan->time_s <= time_s);
    double saved = 100 * (1 - plan->energy_j / energy_j);
    if (saved < percent)
        fail_msg("%s, %zu microbatches: saved %.2f%%, expected %.1f%%", name, microbatches, saved,
                 percent);
    erg_iteration_release(&iteration);
    double loss = worst_loss(&request);
    if (loss > largest_loss)
        fail_msg("%s, %zu microbatches: rounding costs up to %.2f%%, expected %.1f%%", name,
                 microbatches, loss, largest_loss);
    erg_profile_release(&profile);
}

static void test_measured_profiles_save_what_was_published(void **state)
{
    (void)state;
    check_measured("gpt3-175b_a100-sxm_bf16", 12, 83.64, 15.2, 0.2);
    check_measured("gpt3-175b_a100-sxm_bf16", 48, 83.64, 13.6, 0.25);
    check_measured("bloom-176b_a40_bf16", 12, 70.38, 7.0, 0.3);
    check_measured("bloom-176b_a40_bf16", 48, 70.38, 4.0, 0.3);
}

/* --- against what the peer really achieves after rounding its plans --- */

static json_t *load_case(const char *name, const char *suffix)
{
    char path[4096];
    struct erg_error err;
    json_t *root;
    snprintf(path, sizeof path, "%s/tests/data/perseus_cases/%s%s", ERGON_TEST_SOURCE_DIR, name,
             suffix);
    assert_ok(erg_json_load(&root, path, &err), &err);
    return root;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void check_against_peer(const char *name)
{
    json_t *input = load_case(name, ".json"), *peer = load_case(name, ".lowtime.json");
    json_t *stages = json_object_get(input, "stages");
    size_t count = 2 * json_array_size(stages);
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t t = 0; t < count; t++) {
        json_t *option,
            *list = json_object_get(json_array_get(stages, t / 2), t % 2 ? "backward" : "forward");
        size_t o;
        json_array_foreach(list, o, option)
            erg_frontier_add(&tables[t], number(option, "time_s"), number(option, "energy_J"),
                             (int64_t)number(option, "freq"));
    }
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(count / 2, (size_t)number(input, "num_microbatches")),
        .tables = tables};
    request.pipeline.blocking_power_w = number(input, "p2p_power_W");

    /* Its realised points: [5] time, [6] energy; a good dozen of them, as deadlines of ours. */
    json_t *points = json_object_get(peer, "frontier");
    size_t step = json_array_size(points) / 12;
    double deadlines[16], energies[16], ratio = 0;
    for (size_t i = 0; i < json_array_size(points); i += step) {
        json_t *point = json_array_get(points, i);
        deadlines[request.deadline_count] =
            json_number_value(json_array_get(point, 5)) + 1e-6; /* six digits */
        energies[request.deadline_count++] = json_number_value(json_array_get(point, 6));
    }
    request.deadlines_s = deadlines;
    struct erg_iteration iteration;
    struct erg_error err;
    assert_ok(erg_iteration_solve(&iteration, &request, &err), &err);
    for (size_t i = 0; i < request.deadline_count; i++) {
        size_t plan;
        assert_ok(erg_iteration_pick(&iteration, ERG_GOAL_DEADLINE, deadlines[i], &plan, &err),
                  &err);
        double energy = iteration.plans[plan].energy_j;
        assert_true(energy <= energies[i] * 1.001);
        ratio += energy / energies[i] / (double)request.deadline_count;
    }
    assert_true(ratio < 0.999);
    erg_iteration_release(&iteration);
    free_tables(tables, count);
    json_decref(peer);
    json_decref(input);
}

static void test_realised_plans_beat_the_peer(void **state)
{
    (void)state;
    check_against_peer("s2_m8");
    check_against_peer("s4_m16");
}

/* --- the command --- */

static void write_profile(const char *path)
{
    struct erg_rng rng;
    struct erg_error err;
    struct erg_text text = {0};
    erg_rng_seed(&rng, 3);
    struct erg_frontier *tables = random_tables(&rng, 8, 12);
    erg_text_add(&text, HEADER);
    for (size_t t = 0; t < 8; t++)
        for (size_t o = 0; o < tables[t].count; o++)
            erg_text_printf(&text, "%zu,%s,%d,%.9g,%.9g\n", t / 2, t % 2 ? "backward" : "forward",
                            (int)(1400 - 30 * o), tables[t].points[o].time_s,
                            tables[t].points[o].energy_j);
    assert_ok(erg_file_write(path, text.data, text.count, &err), &err);
    erg_text_release(&text);
    free_tables(tables, 8);
}

static void test_frontier_command(void **state)
{
    (void)state;
    char folder[] = "/tmp/ergon-test-XXXXXX", arguments[512];
    assert_non_null(mkdtemp(folder));
    char profile[64], plan[64];
    snprintf(profile, sizeof profile, "%s/p.csv", folder);
    snprintf(plan, sizeof plan, "%s/plan.json", folder);
    write_profile(profile);
    static const struct {
        const char *options;
        int exit_code;
        const char *part;
    } cases[] = {
        {"-m 8 -p 80 --format csv", 0, "time_s,energy_j,planned_time_s,planned_energy_j\n"},
        {"-m 8 -p 80", 0, "points; --format csv prints all"},
        {"-m 8 -p 80 --json", 0, "\"schema_version\": 1"},
        {"-m 8 -p 80 --points 5 --unit 0.001 --p2p-latency 0.001", 0, "planned_energy_j"},
        {"-m 8 -p 80 --schedule interleaved --virtual-stages 2 -f csv", 0, "time_s"},
        {"-m 8 -p 80 --deadline 2.2 -f csv", 0, "\n2.1"},
        {"-m 8 -p 80 --energy-budget 2500 -f csv", 0, "time_s"},
        {"-m 8 2>&1 >/dev/null", 0, "without --blocking-power"},
        {"-m 8 -q 2>&1 >/dev/null", 0, ""},
        {"-m 8 -p 80 --deadline 0.2 2>&1", 3, "cannot be met"},
        {"-m 8 -p 80 --energy-budget 2 2>&1", 3, "cheapest needs"},
        {"-m 8 -p 80 --deadline 2 --energy-budget 2 2>&1", 2, "exclude each other"},
        {"-p 80 2>&1", 2, "needs the option --microbatches"},
        {"-m 0 2>&1", 2, "must lie between 1"},
        {"-m 8 -p 80 --virtual-stages 3 --schedule interleaved 2>&1", 2, "no multiple"},
        {"-m 7 -p 80 --virtual-stages 2 --schedule interleaved -f csv", 0, "time_s"},
        {"-m 8 -p 80 --schedule gpipe 2>&1", 2, "must be one of \"1f1b\", \"interleaved\""},
        {"-m 8 -p 80 --plan /nonexistent/plan.json 2>&1", 1, "/nonexistent/plan.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(arguments, sizeof arguments, "frontier %s %s", profile, cases[i].options);
        check_program(arguments, cases[i].exit_code, cases[i].part);
    }
    snprintf(arguments, sizeof arguments, "frontier %s/none.csv -m 8 2>&1", folder);
    check_program(arguments, 1, "none.csv");
    snprintf(arguments, sizeof arguments, "frontier %s -m 8 -p 80 --deadline 2.2 --plan %s",
             profile, plan);
    check_program(arguments, 0, "time_s");
    struct erg_error err;
    char *text;
    assert_ok(erg_file_read(plan, 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "\"schema_version\": 2"));
    assert_non_null(strstr(text, "\"frequency_mhz\""));
    size_t instructions = 0;
    for (const char *at = text; (at = strstr(at, "\"start_s\"")); at++)
        instructions++;
    assert_int_equal(instructions, 4 * 8 * 2);
    free(text);
    unlink(plan);
    unlink(profile);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_any_number_of_microbatches_interleaves),
        cmocka_unit_test(test_impossible_pipelines),
        cmocka_unit_test(test_plans_keep_every_promise),
        cmocka_unit_test(test_tiny_plans_are_close_to_the_best_assignment),
        cmocka_unit_test(test_options_that_fit_exactly_are_taken),
        cmocka_unit_test(test_the_plan_of_least_energy_may_be_slower_than_planned),
        cmocka_unit_test(test_round_times_are_planned_exactly),
        cmocka_unit_test(test_round_deadlines_are_met),
        cmocka_unit_test(test_plans_name_the_tightest_deadline_they_meet),
        cmocka_unit_test(test_rounding_of_full_clock_tables_costs_little),
        cmocka_unit_test(test_rounding_of_long_pipelines_costs_little),
        cmocka_unit_test(test_rounding_across_wide_gaps_costs_little),
        cmocka_unit_test(test_the_seed_decides_the_search),
        cmocka_unit_test(test_deadlines_and_picks),
        cmocka_unit_test(test_impossible_tables),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_measured_profiles_save_what_was_published),
        cmocka_unit_test(test_realised_plans_beat_the_peer),
        cmocka_unit_test(test_frontier_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
