/* From a layout to its frontier over clocks. */
#include "layout/energy/frontier.h"

#include "base/memory.h"
#include "layout/energy/ladder.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* What all steps share. */
struct solving {
    const struct erg_layout_frontier_request *request;
    struct erg_layout_ladder ladders[ERG_LAYOUT_MOST_KINDS]; /* of every place */
    struct erg_time_place places[ERG_LAYOUT_MOST_KINDS];
    struct erg_layout_climb climb;
    struct erg_pipeline pipeline, shorter; /* shorter: that is solved */
    double *hops_s;                        /* of both */
};

/* As many microbatches as can be solved soon: a start and an end of as many as there are stages,
 * and between them enough to repeat. A multiple of the stages, as interleaving needs. */
static long solved_microbatches(const struct erg_layout *layout, long most_instructions)
{
    enum { LEAST = 4 };
    long stages = layout->pipeline, group = 2 * stages * stages * layout->virtual_stages;
    long groups = most_instructions / group > LEAST ? most_instructions / group : LEAST;
    return groups * stages < layout->microbatches ? groups * stages : layout->microbatches;
}

static void start(struct solving *solving, const struct erg_layout_frontier_request *request)
{
    const struct erg_layout *layout = request->layout;
    struct erg_layout_ladder *ladders = solving->ladders;
    *solving = (struct solving){.request = request};
    solving->climb = (struct erg_layout_climb){ladders, solving->places, request->place_count,
                                               request->closed_s};
    if (request->place_count == 0) {
        erg_layout_ladder_init(&ladders[0], request->energy, layout, request->clocks);
        solving->places[0] = erg_layout_ladder_place(&ladders[0], layout);
        solving->climb.count = 1;
        solving->climb.closed_s = erg_layout_ladder_time(&ladders[0], layout, request->uneven_s);
    }
    for (size_t i = 0; i < request->place_count; i++) {
        erg_layout_ladder_init(&ladders[i], &request->energy[i], layout, request->clocks);
        solving->places[i] = request->places[i];
    }
    solving->hops_s = erg_xcalloc((size_t)layout->pipeline, sizeof *solving->hops_s);
    solving->pipeline = erg_layout_climb_pipeline(&solving->climb, layout, solving->hops_s);
    solving->shorter = solving->pipeline;
    long most = request->most_instructions ? (long)request->most_instructions
                                           : (long)ERG_LAYOUT_MOST_INSTRUCTIONS;
    solving->shorter.microbatches = (size_t)solved_microbatches(layout, most);
}

static void finish(struct solving *solving)
{
    for (size_t i = 0; i < solving->climb.count; i++)
        erg_layout_ladder_release(&solving->ladders[i]);
    free(solving->hops_s);
}

static void fill_tail(struct erg_layout_frontier *frontier, const struct solving *solving)
{
    erg_layout_climb_tail(&frontier->tail, &solving->climb, solving->request->layout);
    frontier->tail_clock_mhz = solving->ladders[0].tail.clock_mhz;
}

static void fill_whole(struct erg_layout_frontier *frontier, const struct solving *solving)
{
    const struct erg_layout_energy_request *energy = solving->request->energy;
    long gpus = erg_layout_gpus(solving->request->layout);
    frontier->replicas = (double)(gpus / solving->request->layout->pipeline);
    if (energy->held_gpus > gpus)
        frontier->idle_w = energy->gpu->idle_power_w * (double)(energy->held_gpus - gpus);
}

/* From the pipeline, one GPU of each stage, to the iteration over all GPUs. */
static double whole_j(const struct erg_layout_frontier *frontier, double pipeline_j, double time_s)
{
    return frontier->replicas * pipeline_j + frontier->tail.total_j + frontier->idle_w * time_s;
}

/* The pipeline's plans with what follows, over all GPUs. */
static void collect(struct erg_layout_frontier *frontier)
{
    erg_frontier_clear(&frontier->points);
    for (size_t i = 0; i < frontier->iteration.plan_count; i++) {
        const struct erg_iteration_plan *plan = &frontier->iteration.plans[i];
        double time_s = plan->time_s + frontier->tail.time_s;
        erg_frontier_add(&frontier->points, time_s, whole_j(frontier, plan->energy_j, time_s),
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
    const double rounding = 1e-9; /* a deadline that a point was made for is met */
    const struct erg_iteration *iteration = &frontier->iteration;
    if (time_s < frontier->points.points[0].time_s * (1 - rounding))
        return INFINITY;
    if (!iteration->planned)
        return between_points(&frontier->frontier, time_s);
    double pipeline_s = time_s - frontier->tail.time_s, least_j = INFINITY, own_s = 0;
    for (size_t i = 0; i < iteration->planned_count && own_s < pipeline_s; i++) {
        own_s = fmin(iteration->planned[i].time_s, pipeline_s);
        double own_j = erg_iteration_planned_energy(iteration, own_s);
        least_j = fmin(least_j, whole_j(frontier, own_j, own_s + frontier->tail.time_s));
    }
    return least_j;
}

/*
 * The deadlines that the pipeline can meet, without what follows it. Those of a shorter pipeline
 * are about the same share of its time: some tries, of which one will hardly be early or late.
 */
enum { TRIES = 6, NEAR = 2 }; /* to meet one; to be near it */

struct tried {
    double *items; /* with room for all tries */
    size_t count;
};

static void add_tries(struct tried *tried, const struct erg_layout_frontier *frontier,
                      const struct solving *solving, double deadline_s, size_t tries,
                      double shortest_s)
{
    static const double early[TRIES] = {1, 0.992, 0.996, 1.004, 0.988, 0.984};
    double fill = (double)(solving->pipeline.stages - 1) / (double)solving->pipeline.chunks;
    double share = ((double)solving->shorter.microbatches + fill) /
                   ((double)solving->pipeline.microbatches + fill);
    for (size_t i = 0; i < (share < 1 ? tries : 1); i++) {
        double own_s = share * early[i] * (deadline_s - frontier->tail.time_s);
        if (own_s >= shortest_s)
            tried->items[tried->count++] = own_s;
    }
}

static struct tried list_deadlines(const struct erg_layout_frontier *frontier,
                                   const struct solving *solving, double shortest_s)
{
    const struct erg_layout_frontier_request *request = solving->request;
    size_t most = TRIES * request->deadline_count + NEAR * request->time_count;
    struct tried tried = {.items = erg_xcalloc(most + 1, sizeof(double))};
    for (size_t i = 0; i < request->deadline_count; i++)
        add_tries(&tried, frontier, solving, request->deadlines_s[i], TRIES, shortest_s);
    for (size_t i = 0; i < request->time_count; i++)
        add_tries(&tried, frontier, solving, request->times_s[i], NEAR, shortest_s);
    return tried;
}

/* ---- from the pipeline that was solved to the whole one ---- */

/* The microbatch of the shorter pipeline that does what microbatch `i` of the whole one does. */
static size_t stands_for(const struct solving *solving, size_t i)
{
    size_t stages = solving->pipeline.stages, shorter = solving->shorter.microbatches;
    size_t whole = solving->pipeline.microbatches, start = shorter - stages;
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
 * Repeats what the middle of each plan does; time and energy are then those of the whole plan.
 * Stages that drift a little behind in the middle of a plan stall when that is repeated, so the
 * fastest plan is another one, with everything at the highest clock.
 */
static int stretch(struct erg_layout_frontier *frontier, const struct solving *solving,
                   struct erg_error *err)
{
    struct erg_iteration *iteration = &frontier->iteration;
    size_t shorter = solving->shorter.microbatches;
    struct erg_schedule whole;
    if (erg_schedule_init(&whole, &solving->pipeline, err) != 0)
        return -1;
    uint32_t *place = erg_xcalloc(frontier->table_count * shorter, sizeof *place);
    for (size_t i = 0; i < iteration->schedule.count; i++) {
        const struct erg_instruction *at = &iteration->schedule.instructions[i];
        place[erg_table_index(&solving->shorter, at) * shorter + at->microbatch] = (uint32_t)i;
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
            size_t table = erg_table_index(&solving->pipeline, at);
            option[i] = plan->option[place[table * shorter + stands_for(solving, at->microbatch)]];
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

/* The time of a pipeline with every instruction at its fastest. */
static int shortest(double *time_s, const struct erg_layout_frontier *frontier,
                    const struct erg_pipeline *pipeline, struct erg_error *err)
{
    struct erg_schedule schedule;
    if (erg_schedule_init(&schedule, pipeline, err) != 0)
        return -1;
    uint32_t *option = erg_xcalloc(schedule.count, sizeof *option);
    double energy_j;
    erg_iteration_evaluate(&schedule, frontier->tables, option, NULL, time_s, &energy_j);
    free(option);
    erg_schedule_release(&schedule);
    return 0;
}

/* What the closed form counts beyond the schedule, as waiting after it. */
static int add_drift(struct erg_layout_frontier *frontier, const struct solving *solving,
                     struct erg_error *err)
{
    const struct erg_layout *layout = solving->request->layout;
    double schedule_s;
    if (shortest(&schedule_s, frontier, &solving->pipeline, err) != 0)
        return -1;
    double drift_s = fmax(0, solving->climb.closed_s - schedule_s - frontier->tail.time_s);
    double waiting_j =
        drift_s * solving->pipeline.blocking_power_w * (double)erg_layout_gpus(layout);
    frontier->drift_s = drift_s;
    frontier->tail.time_s += drift_s;
    frontier->tail.items[ERG_LAYOUT_ENERGY_WAITING] += waiting_j;
    frontier->tail.total_j += waiting_j;
    return 0;
}

int erg_layout_frontier_init(struct erg_layout_frontier *frontier,
                             const struct erg_layout_frontier_request *request,
                             struct erg_error *err)
{
    struct solving solving;
    double shortest_s = 0;
    *frontier = (struct erg_layout_frontier){0};
    start(&solving, request);
    frontier->table_count = 2 * solving.pipeline.stages * solving.pipeline.chunks;
    frontier->tables = erg_xcalloc(frontier->table_count, sizeof *frontier->tables);
    erg_layout_climb_tables(frontier->tables, &solving.climb, request->layout);
    fill_tail(frontier, &solving);
    bool stretched = solving.shorter.microbatches < solving.pipeline.microbatches;
    int result =
        add_drift(frontier, &solving, err) || shortest(&shortest_s, frontier, &solving.shorter, err)
            ? -1
            : 0;
    if (result == 0) {
        struct tried deadlines = list_deadlines(frontier, &solving, shortest_s);
        const struct erg_iteration_request iteration = {
            .pipeline = solving.shorter,
            .tables = frontier->tables,
            .points = request->points,
            .slower_points = request->slower_points,
            .deadlines_s = deadlines.items,
            .deadline_count = deadlines.count,
            .tries = stretched || request->tries,
        };
        result = erg_iteration_solve(&frontier->iteration, &iteration, err);
        free(deadlines.items);
    }
    if (result == 0 && stretched)
        result = stretch(frontier, &solving, err);
    if (result == 0) {
        fill_whole(frontier, &solving);
        collect(frontier);
    } else {
        erg_layout_frontier_release(frontier);
    }
    finish(&solving);
    return result;
}

void erg_layout_frontier_release(struct erg_layout_frontier *frontier)
{
    for (size_t i = 0; i < frontier->table_count; i++)
        erg_frontier_release(&frontier->tables[i]);
    free(frontier->tables);
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
