/* From a layout to its frontier over clocks. */
#include "layout/energy/layout_frontier.h"

#include "base/memory.h"
#include "layout/energy/clock_table.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* The state of all steps. */
struct frontier_build {
    const struct erg_layout_frontier_request *request;
    struct erg_clocked_layout clocked;
    struct erg_pipeline pipeline, shorter; /* shorter: the solved one */
    double *hops_s;                        /* hops of both */
};

/*
 * The number of microbatches to solve: a start and an end with one microbatch per stage each, and
 * between them enough to repeat. A multiple of the stages, as interleaving needs.
 */
static long solved_microbatches(const struct erg_layout *layout, long most_instructions)
{
    enum { LEAST = 4 };
    long stages = layout->pipeline, group = 2 * stages * stages * layout->virtual_stages;
    long groups = most_instructions / group > LEAST ? most_instructions / group : LEAST;
    return groups * stages < layout->microbatches ? groups * stages : layout->microbatches;
}

static void start(struct frontier_build *build, const struct erg_layout_frontier_request *request)
{
    const struct erg_layout *layout = request->layout;
    build->request = request;
    erg_clocked_layout_init(&build->clocked, request);
    build->hops_s = erg_xcalloc((size_t)layout->pipeline, sizeof *build->hops_s);
    build->pipeline = erg_clocked_layout_pipeline(&build->clocked, build->hops_s);
    build->shorter = build->pipeline;
    long most = request->most_instructions ? (long)request->most_instructions
                                           : (long)ERG_LAYOUT_MOST_INSTRUCTIONS;
    build->shorter.microbatches = (size_t)solved_microbatches(layout, most);
}

/*
 * Converts the pipeline's energy, for one GPU of each stage, to that of the iteration over all
 * GPUs.
 */
static double all_gpus_j(const struct erg_layout_frontier *frontier, double pipeline_j)
{
    return frontier->replicas * pipeline_j + frontier->tail.total_j;
}

/* Collects the pipeline's plans with the work after it, over all GPUs. */
static void collect(struct erg_layout_frontier *frontier)
{
    erg_frontier_clear(&frontier->points);
    for (size_t i = 0; i < frontier->iteration.plan_count; i++) {
        const struct erg_iteration_plan *plan = &frontier->iteration.plans[i];
        double time_s = plan->time_s + frontier->tail.time_s;
        erg_frontier_add(&frontier->points, time_s, all_gpus_j(frontier, plan->energy_j),
                         (int64_t)i);
    }
    erg_frontier_copy(&frontier->frontier, &frontier->points);
    erg_frontier_filter(&frontier->frontier);
}

void erg_layout_frontier_take(struct erg_layout_frontier *frontier,
                              struct erg_layout_frontier *from)
{
    erg_iteration_take_plans(&frontier->iteration, &from->iteration);
    collect(frontier);
    erg_layout_frontier_release(from);
}

static double between_points(const struct erg_frontier *points, double time_s)
{
    ptrdiff_t at = erg_frontier_pick_deadline(points, time_s);
    if (at < 0)
        return INFINITY;
    const struct erg_point *from = &points->points[at], *to = from + 1;
    if ((size_t)at + 1 == points->count)
        return from->energy_j;
    double part = (time_s - from->time_s) / (to->time_s - from->time_s);
    return from->energy_j + part * (to->energy_j - from->energy_j);
}

double erg_layout_frontier_optimum(const struct erg_layout_frontier *frontier, double time_s)
{
    const double rounding = 1e-9; /* a point meets the deadline for which it was made */
    const struct erg_iteration *iteration = &frontier->iteration;
    if (time_s < frontier->points.points[0].time_s * (1 - rounding))
        return INFINITY;
    if (!iteration->planned)
        return between_points(&frontier->frontier, time_s);
    double pipeline_s = time_s - frontier->tail.time_s, least_j = INFINITY, own_s = 0;
    for (size_t i = 0; i < iteration->planned_count && own_s < pipeline_s; i++) {
        own_s = fmin(iteration->planned[i].time_s, pipeline_s);
        double own_j = erg_iteration_planned_energy(iteration, own_s);
        least_j = fmin(least_j, all_gpus_j(frontier, own_j));
    }
    return least_j;
}

/*
 * The deadlines that the pipeline can meet, without the work after it. The deadlines of a shorter
 * pipeline are about the same share of its time, so a few tries suffice.
 */
enum { TRIES = 6, NEAR = 2 }; /* tries to meet a deadline; to be near it */

struct tried {
    double *items; /* with room for all tries */
    size_t count;
};

static void add_tries(struct tried *tried, const struct erg_layout_frontier *frontier,
                      const struct frontier_build *build, double deadline_s, size_t tries,
                      double shortest_s)
{
    static const double early[TRIES] = {1, 0.992, 0.996, 1.004, 0.988, 0.984};
    double fill = (double)(build->pipeline.stages - 1) / (double)build->pipeline.chunks;
    double share = ((double)build->shorter.microbatches + fill) /
                   ((double)build->pipeline.microbatches + fill);
    for (size_t i = 0; i < (share < 1 ? tries : 1); i++) {
        double own_s = share * early[i] * (deadline_s - frontier->tail.time_s);
        if (own_s >= shortest_s)
            tried->items[tried->count++] = own_s;
    }
}

static struct tried list_deadlines(const struct erg_layout_frontier *frontier,
                                   const struct frontier_build *build, double shortest_s)
{
    const struct erg_layout_frontier_request *request = build->request;
    size_t most = TRIES * request->deadline_count + NEAR * request->time_count;
    struct tried tried = {.items = erg_xcalloc(most + 1, sizeof(double))};
    for (size_t i = 0; i < request->deadline_count; i++)
        add_tries(&tried, frontier, build, request->deadlines_s[i], TRIES, shortest_s);
    for (size_t i = 0; i < request->time_count; i++)
        add_tries(&tried, frontier, build, request->times_s[i], NEAR, shortest_s);
    return tried;
}

/* ---- from the solved pipeline to the whole one ---- */

/* The microbatch of the shorter pipeline that represents microbatch `i` of the whole one. */
static size_t stands_for(const struct frontier_build *build, size_t i)
{
    size_t stages = build->pipeline.stages, shorter = build->shorter.microbatches;
    size_t whole = build->pipeline.microbatches, start = shorter - stages;
    if (i < start || shorter == whole)
        return i;
    if (i >= whole - stages)
        return i - (whole - shorter);
    return stages + (i - start) % (shorter - 2 * stages);
}

static int by_time(const void *left, const void *right)
{
    const struct erg_iteration_plan *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return (a->energy_j > b->energy_j) - (a->energy_j < b->energy_j);
}

/*
 * Repeats the middle of each plan; time and energy are then those of the whole plan. Stages that
 * fall slightly behind in the middle of a plan stall when the middle is repeated, so the fastest
 * plan is a separate one, with everything at the highest clock.
 */
static int stretch(struct erg_layout_frontier *frontier, const struct frontier_build *build,
                   struct erg_error *err)
{
    struct erg_iteration *iteration = &frontier->iteration;
    size_t shorter = build->shorter.microbatches;
    struct erg_schedule whole;
    if (erg_schedule_init(&whole, &build->pipeline, err) != 0)
        return -1;
    uint32_t *place = erg_xcalloc(frontier->table_count * shorter, sizeof *place);
    for (size_t i = 0; i < iteration->schedule.count; i++) {
        const struct erg_instruction *at = &iteration->schedule.instructions[i];
        place[erg_table_index(&build->shorter, at) * shorter + at->microbatch] = (uint32_t)i;
    }
    erg_frontier_clear(&iteration->frontier);
    iteration->plans =
        erg_xrealloc(iteration->plans, iteration->plan_count + 1, sizeof *iteration->plans);
    iteration->plans[iteration->plan_count++] = (struct erg_iteration_plan){
        .option = erg_xcalloc(iteration->schedule.count, sizeof(uint32_t))};
    for (size_t k = 0; k < iteration->plan_count; k++) {
        struct erg_iteration_plan *plan = &iteration->plans[k];
        uint32_t *option = erg_xcalloc(whole.count, sizeof *option);
        for (size_t i = 0; i < whole.count; i++) {
            const struct erg_instruction *at = &whole.instructions[i];
            size_t table = erg_table_index(&build->pipeline, at);
            option[i] = plan->option[place[table * shorter + stands_for(build, at->microbatch)]];
        }
        free(plan->option);
        plan->option = option;
        erg_iteration_evaluate(&whole, frontier->tables, option, NULL, &plan->time_s,
                               &plan->energy_j);
        plan->planned_time_s = plan->time_s;
        plan->planned_energy_j = plan->energy_j;
    }
    free(place);
    qsort(iteration->plans, iteration->plan_count, sizeof *iteration->plans, by_time);
    for (size_t k = 0; k < iteration->plan_count; k++)
        erg_frontier_add(&iteration->frontier, iteration->plans[k].time_s,
                         iteration->plans[k].energy_j, (int64_t)k);
    erg_frontier_filter(&iteration->frontier);
    erg_schedule_release(&iteration->schedule);
    iteration->schedule = whole;
    free(iteration->planned);
    iteration->planned = NULL;
    iteration->planned_count = 0;
    return 0;
}

int erg_layout_frontier_init(struct erg_layout_frontier *frontier,
                             const struct erg_layout_frontier_request *request,
                             struct erg_error *err)
{
    struct frontier_build build;
    double pipeline_s = 0, shortest_s = 0;
    start(&build, request);
    *frontier = (struct erg_layout_frontier){
        .tables = erg_clocked_layout_tables(&build.clocked),
        .table_count = erg_clocked_layout_table_count(request->layout),
        .tail_clock_mhz = build.clocked.tables[0].tail.clock_mhz,
        .replicas = (double)erg_layout_gpus(request->layout) / (double)request->layout->pipeline,
    };
    bool stretched = build.shorter.microbatches < build.pipeline.microbatches;
    int result =
        erg_pipeline_time(&pipeline_s, &build.pipeline, frontier->tables, false, err) ||
                erg_pipeline_time(&shortest_s, &build.shorter, frontier->tables, false, err)
            ? -1
            : 0;
    if (result == 0) {
        frontier->drift_s = erg_clocked_layout_tail(&frontier->tail, &build.clocked, pipeline_s);
        struct tried deadlines = list_deadlines(frontier, &build, shortest_s);
        const struct erg_iteration_request iteration = {
            .pipeline = build.shorter,
            .tables = frontier->tables,
            .points = request->points,
            .slower_points = request->slower_points,
            .deadlines_s = deadlines.items,
            .deadline_count = deadlines.count,
            .tries = stretched,
        };
        result = erg_iteration_solve(&frontier->iteration, &iteration, err);
        free(deadlines.items);
    }
    if (result == 0 && stretched)
        result = stretch(frontier, &build, err);
    if (result == 0)
        collect(frontier);
    else
        erg_layout_frontier_release(frontier);
    erg_clocked_layout_release(&build.clocked);
    free(build.hops_s);
    return result;
}

void erg_layout_frontier_release(struct erg_layout_frontier *frontier)
{
    erg_clocked_layout_free_tables(frontier->tables, frontier->table_count);
    erg_frontier_release(&frontier->points);
    erg_frontier_release(&frontier->frontier);
    erg_iteration_release(&frontier->iteration);
    *frontier = (struct erg_layout_frontier){0};
}

void erg_layout_plan_clocks(struct erg_layout_clocks *clocks,
                            const struct erg_layout_frontier *frontier, size_t plan)
{
    const struct erg_schedule *schedule = &frontier->iteration.schedule;
    const uint32_t *chosen = frontier->iteration.plans[plan].option;
    double time_s[2] = {0}, sum[2] = {0};
    *clocks = (struct erg_layout_clocks){.lowest_mhz = INT_MAX};
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *at = &schedule->instructions[i];
        const struct erg_point *option =
            &frontier->tables[erg_table_index(&schedule->pipeline, at)].points[chosen[i]];
        int clock = (int)option->recipe;
        time_s[at->direction] += option->time_s;
        sum[at->direction] += option->time_s * clock;
        clocks->lowest_mhz = clock < clocks->lowest_mhz ? clock : clocks->lowest_mhz;
        clocks->highest_mhz = clock > clocks->highest_mhz ? clock : clocks->highest_mhz;
    }
    for (int direction = 0; direction < 2; direction++)
        clocks->mean_mhz[direction] = sum[direction] / time_s[direction];
}
