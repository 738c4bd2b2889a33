/* Solver of an iteration: collects plans at the wanted deadlines from the exact sweep. */
#include "iteration/iteration_internal.h"
#include "iteration/realise_internal.h"
#include "iteration/rounding_internal.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The points of one sweep. Times in ticks fall during the sweep. */
struct collector {
    struct timecost_visitor visitor;
    const struct erg_iteration_request *request;
    struct erg_iteration *iteration;
    const struct option_tables *tables;
    struct realiser realiser;
    double cheapest_j;        /* sum of all cheapest costs: C at the slow end */
    double shortest_s;        /* true time with everything at its fastest */
    int64_t slowest, fastest; /* T_max, T_min */
    double *deadlines;        /* further deadlines, falling */
    size_t deadline, deadline_count;
    int64_t useful;             /* where -dC/dT passes P*S; 0 until the sweep is there */
    size_t point, slower_point; /* next of each grid */
    struct {
        struct piece {
            int32_t to;
            int64_t slope;
        } * items;
        size_t count, capacity;
    } pieces;
    erg_cost cost; /* at the end of the last piece, in slope units * ticks */
};

static int64_t deadline_ticks(const struct collector *collector, double deadline_s)
{
    double ticks = floor(deadline_s / collector->tables->tick_s);
    if (ticks >= (double)collector->slowest)
        return collector->slowest;
    return ticks > (double)collector->fastest ? (int64_t)ticks : collector->fastest;
}

/* The grid is denser towards the fast end, where energy changes most. */
static int64_t grid_point(const struct collector *collector)
{
    size_t last = collector->request->points - 1;
    assert(last > 0 && collector->point <= last);
    double part = (double)(last - collector->point) / (double)last;
    double range = (double)(collector->useful - collector->fastest);
    return collector->fastest + (int64_t)(range * part * sqrt(part));
}

static int64_t slower_grid_point(const struct collector *collector)
{
    double step = (double)(collector->slowest - collector->fastest) /
                  (double)(collector->request->slower_points + 1);
    return collector->slowest - (int64_t)(step * (double)collector->slower_point);
}

/* The latest time in ticks for which any of the sources needs a plan; -1 when none is left. */
static int64_t next_deadline(const struct collector *collector)
{
    int64_t next = -1, candidate;
    if (collector->deadline < collector->deadline_count) {
        candidate = deadline_ticks(collector, collector->deadlines[collector->deadline]);
        next = candidate > next ? candidate : next;
    }
    if (!collector->useful && collector->slower_point < collector->request->slower_points) {
        candidate = slower_grid_point(collector);
        next = candidate > next ? candidate : next;
    }
    if (collector->useful && collector->point < collector->request->points) {
        candidate = grid_point(collector);
        next = candidate > next ? candidate : next;
    }
    return next;
}

static void collect_piece(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope)
{
    struct collector *collector = visitor->context;
    const struct erg_pipeline *pipeline = &collector->request->pipeline;
    double slope_w = (double)slope * collector->tables->slope_unit_w;
    if (!collector->useful && slope_w >= pipeline->blocking_power_w * (double)pipeline->stages)
        collector->useful = from;
    visitor->deadline = next_deadline(collector);
    ERG_PUSH(&collector->pieces, items, (struct piece){to, slope});
    collector->cost += (erg_cost)slope * (from - to);
    erg_progress("solving the pipeline", (size_t)(collector->slowest - to),
                 (size_t)(collector->slowest - collector->fastest));
}

/* C(T) at a time of the current piece. */
static double cost_at(const struct collector *collector, double time_s)
{
    const struct option_tables *tables = collector->tables;
    double cost_j = (double)collector->cost * tables->slope_unit_w * tables->tick_s;
    if (collector->pieces.count) {
        const struct piece *piece = &collector->pieces.items[collector->pieces.count - 1];
        cost_j -= (double)piece->slope * tables->slope_unit_w *
                  (time_s - (double)piece->to * tables->tick_s);
    }
    return collector->cheapest_j + cost_j;
}

/*
 * A plan for a time in ticks, to be realised within a deadline. The plan may use a deadline between
 * two ticks, so it is compared with that.
 */
static void want(struct collector *collector, const struct timecost_plan *plan, int64_t time,
                 double deadline_s, bool will_run)
{
    const struct erg_pipeline *pipeline = &collector->request->pipeline;
    double planned_s = (double)time * collector->tables->tick_s;
    if (time < collector->slowest)
        planned_s = fmax(planned_s, deadline_s);
    double waiting_j = pipeline->blocking_power_w * (double)pipeline->stages * planned_s;
    erg_realiser_want(&collector->realiser, plan, planned_s,
                      cost_at(collector, planned_s) + waiting_j, deadline_s, will_run);
}

static void collect_plan(struct timecost_visitor *visitor, const struct timecost_plan *plan)
{
    struct collector *collector = visitor->context;
    int64_t time = visitor->deadline;
    double grid_s = time == collector->fastest ? collector->shortest_s
                                               : (double)time * collector->tables->tick_s;
    bool grid = false;
    while (!collector->useful && collector->slower_point < collector->request->slower_points &&
           slower_grid_point(collector) >= time) {
        collector->slower_point++;
        grid = true;
    }
    while (collector->useful && collector->point < collector->request->points &&
           grid_point(collector) >= time) {
        collector->point++;
        grid = true;
    }
    if (grid && time > collector->fastest)
        want(collector, plan, time, grid_s, false);
    while (collector->deadline < collector->deadline_count &&
           deadline_ticks(collector, collector->deadlines[collector->deadline]) >= time) {
        want(collector, plan, time, collector->deadlines[collector->deadline++], true);
    }
    visitor->deadline = next_deadline(collector);
}

static int falling(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

static int list_deadlines(struct collector *collector, struct erg_error *err)
{
    const struct erg_iteration_request *request = collector->request;
    size_t count = request->deadline_count;
    const bool fastest = request->points > 0 || count == 0;
    collector->deadlines = erg_xcalloc(count + 1, sizeof *collector->deadlines);
    for (size_t i = 0; i < count; i++) {
        /* A time that was printed, or added up in another order, is met as well. */
        if (!(request->deadlines_s[i] >= collector->shortest_s * (1 - ROUNDING_MARGIN)))
            return erg_fail(err, ERG_INFEASIBLE,
                            "The deadline of %.9g s cannot be met: with every instruction at its "
                            "fastest, the iteration takes %.9g s.",
                            request->deadlines_s[i],
                            collector->shortest_s * (1 + 1e-9)); /* not below it, as printed */
        collector->deadlines[i] = request->deadlines_s[i];
    }
    if (fastest)
        collector->deadlines[count++] = collector->shortest_s;
    collector->deadline_count = count;
    qsort(collector->deadlines, count, sizeof *collector->deadlines, falling);
    return 0;
}

static void store_planned(struct collector *collector)
{
    struct erg_iteration *iteration = collector->iteration;
    double tick_s = collector->tables->tick_s;
    double unit_j = collector->tables->slope_unit_w * tick_s;
    size_t count = collector->pieces.count;
    iteration->planned = erg_xcalloc(count + 1, sizeof *iteration->planned);
    iteration->planned_count = count + 1;
    erg_cost cost = 0;
    int64_t from = collector->slowest;
    iteration->planned[count] =
        (struct erg_breakpoint){(double)from * tick_s, collector->cheapest_j};
    for (size_t i = 0; i < count; i++) {
        const struct piece *piece = &collector->pieces.items[i];
        assert(piece->to < from); /* time falls from piece to piece */
        cost += (erg_cost)piece->slope * (from - piece->to);
        from = piece->to;
        iteration->planned[count - 1 - i] = (struct erg_breakpoint){
            (double)from * tick_s, collector->cheapest_j + (double)cost * unit_j};
    }
}

static int solve_with(struct collector *collector, const struct timecost_problem *problem,
                      struct erg_error *err)
{
    const struct erg_schedule *schedule = &collector->iteration->schedule;
    collector->visitor = (struct timecost_visitor){
        .context = collector, .piece = collect_piece, .plan = collect_plan};
    collector->slowest = erg_timecost_longest_path(problem, 0);
    collector->fastest = erg_timecost_longest_path(problem, 1);
    collector->shortest_s = erg_option_tables_span_s(collector->tables, schedule, true, NULL);
    collector->cheapest_j = erg_option_tables_cheapest_j(collector->tables, schedule);
    assert(collector->fastest > 0 && collector->fastest <= collector->slowest);
    if (list_deadlines(collector, err) != 0)
        return -1;
    collector->realiser = (struct realiser){.request = collector->request,
                                            .tables = collector->tables,
                                            .iteration = collector->iteration,
                                            .problem = problem,
                                            .expected = collector->request->points +
                                                        collector->request->slower_points +
                                                        collector->deadline_count};
    collector->visitor.deadline = next_deadline(collector);
    if (erg_timecost_sweep(problem, &collector->visitor, err) != 0 ||
        erg_realiser_finish(&collector->realiser, err) != 0)
        return -1;
    store_planned(collector);
    erg_iteration_sort_plans(collector->iteration);
    return 0;
}

int erg_iteration_solve(struct erg_iteration *iteration,
                        const struct erg_iteration_request *request, struct erg_error *err)
{
    *iteration = (struct erg_iteration){0};
    struct option_tables tables = {0};
    struct timecost_problem problem = {0};
    struct collector collector = {.request = request, .iteration = iteration, .tables = &tables};
    assert(request->points != 1 && "a range of deadlines has two ends");
    int result = erg_schedule_init(&iteration->schedule, &request->pipeline, err);
    if (result == 0)
        result = erg_option_tables_init(&tables, &iteration->schedule, request->tables,
                                        request->tick_s, err);
    if (result == 0) {
        erg_option_tables_problem(&tables, &iteration->schedule, &problem);
        result = solve_with(&collector, &problem, err);
    }
    free(collector.deadlines);
    free(collector.pieces.items);
    erg_realiser_release(&collector.realiser);
    erg_option_tables_problem_release(&problem);
    erg_option_tables_release(&tables);
    if (result == 0 && request->points)
        result = erg_iteration_refine_least(iteration, request, err);
    if (result != 0)
        erg_iteration_release(iteration);
    return result;
}

void erg_iteration_release(struct erg_iteration *iteration)
{
    for (size_t i = 0; i < iteration->plan_count; i++)
        free(iteration->plans[i].option);
    free(iteration->plans);
    free(iteration->planned);
    erg_frontier_release(&iteration->frontier);
    erg_schedule_release(&iteration->schedule);
    *iteration = (struct erg_iteration){0};
}
