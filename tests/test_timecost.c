/*
 * The time-cost solver against known optima: hand-sized graphs, recorded frontiers of an
 * independent solver on the same cost models, linear programs, and brute force on random graphs.
 */
#include "base/memory.h"
#include "base/random.h"
#include "check.h"
#include "iteration/timecost_events_internal.h"

#include <jansson.h>
#include <stdbool.h>

static const double unit_j = 1e-9; /* one integer of slope, per tick */

/* A table from durations (falling, slow first) and their costs; convex. */
struct table {
    struct timecost_table table;
    int32_t *durations;
    int64_t *slopes;
    double cheapest_j;
};

static struct table make_table(const int32_t *durations, const double *costs, size_t count)
{
    struct table table = {.cheapest_j = costs[0]};
    table.durations = erg_xcalloc(count, sizeof *table.durations);
    table.slopes = erg_xcalloc(count + 1, sizeof *table.slopes);
    table.durations[0] = durations[0];
    int32_t levels = 1;
    for (size_t i = 1; i < count; i++) {
        double slope = (costs[i] - costs[i - 1]) / (durations[i - 1] - durations[i]);
        int64_t rounded = llround(slope / unit_j);
        if (rounded > table.slopes[levels - 1]) {
            table.slopes[levels] = rounded;
            table.durations[levels++] = durations[i];
        } else {
            assert_true(rounded == table.slopes[levels - 1]);
            table.durations[levels - 1] = durations[i];
        }
    }
    table.slopes[levels] = TIMECOST_INFINITE;
    table.table = (struct timecost_table){levels, table.durations, table.slopes};
    return table;
}

static void free_table(struct table *table)
{
    free(table->durations);
    free(table->slopes);
}

/* Cost of a duration on the hull, J. */
static double cost_of(const struct table *table, int32_t duration)
{
    double cost = table->cheapest_j;
    for (int32_t i = 1; i < table->table.levels; i++) {
        int32_t slow = table->durations[i - 1], fast = table->durations[i];
        if (duration >= slow)
            break;
        int32_t low = duration > fast ? duration : fast;
        cost += (slow - low) * (double)table->slopes[i] * unit_j;
    }
    return cost;
}

/* --- a sweep that wants a plan at every tick and checks it --- */

struct check {
    const struct timecost_problem *problem;
    const struct table *tables;
    const size_t *table_of;
    double *cost; /* by time, from `fastest` */
    int64_t fastest, slowest, end;
    double cost_now;
    int64_t last_slope;
};

static void check_piece(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope)
{
    struct check *check = visitor->context;
    assert_true(from > to && from == check->end);
    assert_true(slope > check->last_slope); /* convex, strictly: no piece is split here */
    check->last_slope = slope;
    for (int32_t time = from - 1; time >= to; time--) {
        check->cost_now += (double)slope * unit_j;
        check->cost[time - check->fastest] = check->cost_now;
    }
    check->end = to;
}

static void check_plan(struct timecost_visitor *visitor, const struct timecost_plan *plan)
{
    struct check *check = visitor->context;
    const int32_t *start = plan->start, *duration = plan->duration;
    const int64_t *flow = plan->flow;
    const struct timecost_problem *problem = check->problem;
    double cost = 0;
    for (size_t i = 0; i < problem->activity_count; i++) {
        const struct timecost_table *table = problem->table[i];
        assert_true(flow[i] >= 0 && (duration[i] == table->duration[0] || flow[i] > 0));
        assert_true(duration[i] <= table->duration[0]);
        assert_true(duration[i] >= table->duration[table->levels - 1]);
        assert_true(start[i] >= 0 && start[i] + duration[i] <= visitor->deadline);
        cost += cost_of(&check->tables[check->table_of[i]], duration[i]);
    }
    const int64_t *along = flow + problem->activity_count;
    int64_t *in = erg_xcalloc(4 * problem->activity_count, sizeof *in);
    int64_t *out = in + problem->activity_count, *entries = out + problem->activity_count;
    int64_t *exits = entries + problem->activity_count;
    for (size_t d = 0; d < problem->dependency_count; d++) {
        const struct timecost_arc *arc = &problem->dependencies[d];
        int64_t ready = (int64_t)start[arc->before] + duration[arc->before] + arc->latency;
        assert_true(ready <= start[arc->after]);
        /* Slack where it is worth something would be a cheaper plan missed. */
        assert_true(along[d] >= 0);
        assert_true(!along[d] || ready == start[arc->after]);
        out[arc->before] += along[d];
        in[arc->after] += along[d];
        exits[arc->before]++;
        entries[arc->after]++;
    }
    for (size_t i = 0; i < problem->activity_count; i++) { /* the rest begins and ends the plan */
        assert_true(in[i] == (entries[i] ? flow[i] : 0));
        assert_true(out[i] == (exits[i] ? flow[i] : 0));
    }
    free(in);
    assert_near(cost, check->cost[visitor->deadline - check->fastest], 1e-6);
    visitor->deadline--;
}

/* Costs for every tick in [fastest, slowest]; release .cost. */
static struct check solve(const struct timecost_problem *problem, const struct table *tables,
                          const size_t *table_of)
{
    struct erg_error err;
    struct check check = {.problem = problem, .tables = tables, .table_of = table_of};
    check.fastest = erg_timecost_longest_path(problem, 1);
    check.slowest = check.end = erg_timecost_longest_path(problem, 0);
    check.cost = erg_xcalloc((size_t)(check.slowest - check.fastest) + 1, sizeof(double));
    for (size_t i = 0; i < problem->activity_count; i++)
        check.cost_now += tables[table_of[i]].cheapest_j;
    check.cost[check.slowest - check.fastest] = check.cost_now;
    struct timecost_visitor visitor = {
        .context = &check, .deadline = check.slowest, .piece = check_piece, .plan = check_plan};
    assert_ok(erg_timecost_sweep(problem, &visitor, &err), &err);
    assert_true(check.end == check.fastest);
    assert_true(visitor.deadline == check.fastest - 1);
    return check;
}

static json_t *load(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/data/perseus_cases/%s", ERGON_TEST_SOURCE_DIR, name);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static size_t index_of(json_t *ops, const char *wanted)
{
    size_t index = 0;
    const char *name;
    json_t *op;
    json_object_foreach(ops, name, op)
    {
        if (strcmp(name, wanted) == 0)
            return index;
        index++;
    }
    fail_msg("no operation %s", wanted);
    return 0;
}

static void solve_toy(json_t *toy)
{
    json_t *ops = json_object_get(toy, "ops"), *edges = json_object_get(toy, "edges");
    struct table tables[16];
    const struct timecost_table *table[16];
    size_t table_of[16], count = 0;
    const char *key;
    json_t *op;
    json_object_foreach(ops, key, op)
    {
        int32_t durations[16];
        double costs[16];
        size_t options = json_array_size(op);
        for (size_t i = 0; i < options; i++) { /* recorded fast to slow */
            json_t *option = json_array_get(op, options - 1 - i);
            durations[i] = (int32_t)json_integer_value(json_array_get(option, 0));
            costs[i] = json_number_value(json_array_get(option, 1));
        }
        tables[count] = make_table(durations, costs, options);
        table[count] = &tables[count].table;
        table_of[count] = count;
        count++;
    }
    struct timecost_arc arcs[16];
    size_t arc_count = json_array_size(edges);
    for (size_t i = 0; i < arc_count; i++) {
        json_t *edge = json_array_get(edges, i);
        arcs[i] = (struct timecost_arc){
            (uint32_t)index_of(ops, json_string_value(json_array_get(edge, 0))),
            (uint32_t)index_of(ops, json_string_value(json_array_get(edge, 1))), 0};
    }
    struct timecost_problem problem = {count, table, arc_count, arcs};
    struct check check = solve(&problem, tables, table_of);
    size_t compared = 0;
    json_t *best, *optima = json_object_get(toy, "bruteforce_optimum_by_deadline");
    json_object_foreach(optima, key, best)
    {
        int64_t time = strtol(key, NULL, 10);
        assert_in_range(time, check.fastest, check.slowest);
        assert_near(check.cost[time - check.fastest], json_number_value(best), 1e-9);
        compared++;
    }
    assert_int_equal(compared, check.slowest - check.fastest + 1);
    free(check.cost);
    for (size_t i = 0; i < count; i++)
        free_table(&tables[i]);
}

static void test_toys_match_brute_force(void **state)
{
    (void)state;
    json_t *toys = load("toys.json"), *toy;
    const char *name;
    json_object_foreach(toys, name, toy) solve_toy(toy);
    json_decref(toys);
}

/* --- recorded 1F1B cases with exponential cost models sampled at every unit --- */

struct recorded {
    struct timecost_problem problem;
    struct table *tables;
    size_t table_count, *table_of;
};

static struct recorded build_recorded(json_t *input, json_t *models)
{
    size_t stages = (size_t)json_integer_value(json_object_get(input, "num_stages"));
    size_t microbatches = (size_t)json_integer_value(json_object_get(input, "num_microbatches"));
    struct recorded recorded = {.table_count = 2 * stages};
    recorded.tables = erg_xcalloc(2 * stages, sizeof *recorded.tables);
    for (size_t t = 0; t < 2 * stages; t++) {
        char key[32];
        snprintf(key, sizeof key, "%s_%zu", t % 2 ? "backward" : "forward", t / 2);
        json_t *model = json_object_get(models, key);
        double a = json_number_value(json_object_get(model, "a"));
        double b = json_number_value(json_object_get(model, "b"));
        double c = json_number_value(json_object_get(model, "c"));
        json_t *candidates = json_object_get(model, "candidates"), *candidate;
        int32_t fast = INT32_MAX, slow = 0;
        size_t i;
        json_array_foreach(candidates, i, candidate)
        {
            int32_t units = (int32_t)json_integer_value(json_object_get(candidate, "quant_time"));
            fast = units < fast ? units : fast;
            slow = units > slow ? units : slow;
        }
        size_t count = (size_t)(slow - fast) + 1;
        int32_t *durations = erg_xcalloc(count, sizeof *durations);
        double *costs = erg_xcalloc(count, sizeof *costs);
        for (size_t k = 0; k < count; k++) {
            durations[k] = slow - (int32_t)k;
            costs[k] = a * exp(b * durations[k]) + c;
        }
        recorded.tables[t] = make_table(durations, costs, count);
        free(durations);
        free(costs);
    }
    /* 1F1B, written out anew: activity (stage * 2 + direction) * microbatches + microbatch. */
    size_t count = 2 * stages * microbatches, arcs = 0;
    const struct timecost_table **table = erg_xcalloc(count, sizeof *table);
    struct timecost_arc *arc = erg_xcalloc(2 * count, sizeof *arc);
    recorded.table_of = erg_xcalloc(count, sizeof *recorded.table_of);
    for (size_t i = 0; i < count; i++) {
        recorded.table_of[i] = i / microbatches;
        table[i] = &recorded.tables[i / microbatches].table;
    }
    for (size_t k = 0; k < stages; k++) {
        size_t warm = stages - 1 - k < microbatches ? stages - 1 - k : microbatches;
        uint32_t last = UINT32_MAX;
        size_t forward = 0, backward = 0;
        while (backward < microbatches) {
            bool go_forward = forward < microbatches && forward <= backward + warm;
            uint32_t next = (uint32_t)((2 * k + !go_forward) * microbatches +
                                       (go_forward ? forward++ : backward++));
            if (last != UINT32_MAX)
                arc[arcs++] = (struct timecost_arc){last, next, 0};
            last = next;
        }
        for (size_t m = 0; k + 1 < stages && m < microbatches; m++) {
            uint32_t here = (uint32_t)(2 * k * microbatches + m);
            uint32_t next = here + 2 * (uint32_t)microbatches;
            arc[arcs++] = (struct timecost_arc){here, next, 0};
            arc[arcs++] = (struct timecost_arc){next + (uint32_t)microbatches,
                                                here + (uint32_t)microbatches, 0};
        }
    }
    recorded.problem = (struct timecost_problem){count, table, arcs, arc};
    return recorded;
}

static void free_recorded(struct recorded *recorded)
{
    for (size_t t = 0; t < recorded->table_count; t++)
        free_table(&recorded->tables[t]);
    free(recorded->tables);
    free(recorded->table_of);
    free((void *)(uintptr_t)recorded->problem.table);
    free((void *)(uintptr_t)recorded->problem.dependencies);
}

static void check_recorded(const char *name)
{
    char file[128];
    snprintf(file, sizeof file, "%s.json", name);
    json_t *input = load(file);
    snprintf(file, sizeof file, "%s.lowtime.json", name);
    json_t *lowtime = load(file);
    snprintf(file, sizeof file, "%s.cross.json", name);
    json_t *cross = load(file);
    struct recorded recorded = build_recorded(input, json_object_get(lowtime, "models"));
    struct check check = solve(&recorded.problem, recorded.tables, recorded.table_of);
    json_t *const sources[] = {lowtime, cross};
    for (size_t s = 0; s < 2; s++) {
        json_t *points = json_object_get(sources[s], "frontier"), *point;
        assert_int_equal(json_array_size(points), check.slowest - check.fastest);
        size_t i;
        json_array_foreach(points, i, point)
        {
            int64_t time = json_integer_value(json_array_get(point, 1));
            assert_in_range(time, check.fastest, check.slowest - 1);
            assert_near(check.cost[time - check.fastest],
                        json_number_value(json_array_get(point, 2)), 1e-5);
        }
    }
    json_t *optima = load("lp_check.json"), *optimum;
    size_t i;
    json_array_foreach(json_object_get(optima, name), i, optimum)
    {
        int64_t time = json_integer_value(json_object_get(optimum, "deadline_units"));
        double cost = json_number_value(json_object_get(optimum, "lp_optimum_model_cost_J"));
        assert_near(check.cost[time - check.fastest], cost, 1e-5);
    }
    assert_true(i >= 5);
    free(check.cost);
    free_recorded(&recorded);
    json_decref(optima);
    json_decref(cross);
    json_decref(lowtime);
    json_decref(input);
}

static void test_two_stages_eight_microbatches(void **state)
{
    (void)state;
    check_recorded("s2_m8");
}

static void test_four_stages_sixteen_microbatches(void **state)
{
    (void)state;
    check_recorded("s4_m16");
}

/* --- random graphs against brute force over all integer durations --- */

enum { MOST = 6 };

static void brute_force(const struct timecost_problem *problem, const struct table *tables,
                        const size_t *table_of, size_t i, int32_t *duration, double cost,
                        int64_t fastest, int64_t slowest, double *best)
{
    size_t n = problem->activity_count;
    if (i < n) {
        const struct timecost_table *table = problem->table[i];
        for (int32_t d = table->duration[table->levels - 1]; d <= table->duration[0]; d++) {
            duration[i] = d;
            brute_force(problem, tables, table_of, i + 1, duration,
                        cost + cost_of(&tables[table_of[i]], d), fastest, slowest, best);
        }
        return;
    }
    int64_t start[MOST] = {0}, end = 0;
    for (size_t k = 0; k < n; k++) { /* indices are in topological order */
        for (size_t d = 0; d < problem->dependency_count; d++) {
            const struct timecost_arc *arc = &problem->dependencies[d];
            int64_t ready = start[arc->before] + duration[arc->before] + arc->latency;
            if (arc->after == k && ready > start[k])
                start[k] = ready;
        }
        end = start[k] + duration[k] > end ? start[k] + duration[k] : end;
    }
    for (int64_t time = end < fastest ? fastest : end; time <= slowest; time++)
        if (cost < best[time - fastest])
            best[time - fastest] = cost;
}

static void check_random_graph(struct erg_rng *rng)
{
    size_t n = 2 + erg_rng_below(rng, MOST - 1), table_of[MOST];
    struct table tables[MOST];
    const struct timecost_table *table[MOST];
    for (size_t i = 0; i < n; i++) {
        int32_t durations[5];
        double costs[5];
        size_t count = 1 + erg_rng_below(rng, 4);
        durations[0] = (int32_t)(count + erg_rng_below(rng, 4));
        costs[0] = (double)erg_rng_below(rng, 10);
        double slope = 0;
        for (size_t k = 1; k < count; k++) {
            slope += 0.5 * (double)(erg_rng_below(rng, 5) + (k == 1));
            durations[k] = durations[k - 1] - 1;
            costs[k] = costs[k - 1] + slope;
        }
        tables[i] = make_table(durations, costs, count);
        table[i] = &tables[i].table;
        table_of[i] = i;
    }
    struct timecost_arc arcs[MOST * MOST];
    size_t arc_count = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++)
            if (erg_rng_below(rng, 2))
                arcs[arc_count++] =
                    (struct timecost_arc){i, j, (int32_t)(erg_rng_below(rng, 3) / 2)};
    struct timecost_problem problem = {n, table, arc_count, arcs};
    struct check check = solve(&problem, tables, table_of);
    size_t span = (size_t)(check.slowest - check.fastest) + 1;
    double *best = erg_xcalloc(span, sizeof *best);
    for (size_t i = 0; i < span; i++)
        best[i] = 1e300;
    int32_t duration[MOST];
    brute_force(&problem, tables, table_of, 0, duration, 0, check.fastest, check.slowest, best);
    for (size_t i = 0; i < span; i++)
        assert_near(check.cost[i], best[i], 1e-6);
    free(best);
    free(check.cost);
    for (size_t i = 0; i < n; i++)
        free_table(&tables[i]);
}

static void test_random_graphs_match_brute_force(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 20240607);
    for (int round = 0; round < 300; round++)
        check_random_graph(&rng);
}

static void test_fixed_activities_have_one_schedule(void **state)
{
    (void)state;
    const int32_t durations[] = {7};
    const double costs[] = {3.5};
    struct table fixed = make_table(durations, costs, 1);
    const struct timecost_table *table[] = {&fixed.table, &fixed.table, &fixed.table};
    const size_t table_of[] = {0, 0, 0};
    const struct timecost_arc arcs[] = {{0, 1, 2}};
    struct timecost_problem problem = {3, table, 1, arcs};
    struct check check = solve(&problem, &fixed, table_of);
    assert_int_equal(check.slowest, 16);
    assert_int_equal(check.fastest, 16);
    assert_near(check.cost[0], 10.5, 0);
    free(check.cost);
    free_table(&fixed);
}

/* --- how many events there are --- */

static int32_t count_events(size_t activities, const struct timecost_arc *arcs, size_t arc_count,
                            int32_t *explicit_arcs)
{
    const int32_t durations[] = {7, 5};
    const double costs[] = {1, 3};
    struct table both = make_table(durations, costs, 2);
    const struct timecost_table *table[MOST];
    size_t table_of[MOST] = {0};
    for (size_t i = 0; i < activities; i++)
        table[i] = &both.table;
    struct timecost_problem problem = {activities, table, arc_count, arcs};
    struct timecost_events events;
    erg_timecost_events_init(&events, &problem);
    *explicit_arcs = 0;
    for (size_t d = 0; d < arc_count; d++) {
        const struct timecost_moment *end = &events.moments[2 * arcs[d].before + 1];
        const struct timecost_moment *start = &events.moments[2 * arcs[d].after];
        *explicit_arcs += !events.met[d];
        if (events.met[d]) {
            assert_int_equal(end->event, start->event);
            assert_int_equal(start->offset - end->offset, arcs[d].latency);
        }
    }
    int32_t count = events.count;
    erg_timecost_events_release(&events);
    struct check check = solve(&problem, &both, table_of); /* its plans are checked there */
    free(check.cost);
    free_table(&both);
    return count;
}

static void test_close_moments_are_one_event(void **state)
{
    (void)state;
    int32_t left;
    /* A chain: source, two between, sink. */
    const struct timecost_arc chain[] = {{0, 1, 3}, {1, 2, 0}};
    assert_int_equal(count_events(3, chain, 2, &left), 4);
    assert_int_equal(left, 0);
    /* Two wait for the same two: one event between source and sink. */
    const struct timecost_arc meeting[] = {{0, 2, 0}, {0, 3, 0}, {1, 3, 0}, {1, 2, 0}};
    assert_int_equal(count_events(4, meeting, 4, &left), 3);
    assert_int_equal(left, 0);
    /* With latency they are four. */
    const struct timecost_arc apart[] = {{0, 2, 0}, {0, 3, 1}, {1, 3, 0}, {1, 2, 0}};
    assert_int_equal(count_events(4, apart, 4, &left), 6);
    assert_int_equal(left, 4);
    /* 3 waits for 1 alone and lies with its end; 2 for both, and only the end of 0 lies with it. */
    const struct timecost_arc fork[] = {{0, 2, 2}, {1, 2, 0}, {1, 3, 4}};
    assert_int_equal(count_events(4, fork, 3, &left), 4);
    assert_int_equal(left, 1);
    /* Two that wait for the same two, and one of them for a third. */
    const struct timecost_arc third[] = {{0, 3, 0}, {0, 4, 0}, {1, 3, 0}, {1, 4, 0}, {2, 4, 0}};
    assert_int_equal(count_events(5, third, 5, &left), 6);
    assert_int_equal(left, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toys_match_brute_force),
        cmocka_unit_test(test_two_stages_eight_microbatches),
        cmocka_unit_test(test_four_stages_sixteen_microbatches),
        cmocka_unit_test(test_random_graphs_match_brute_force),
        cmocka_unit_test(test_fixed_activities_have_one_schedule),
        cmocka_unit_test(test_close_moments_are_one_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
