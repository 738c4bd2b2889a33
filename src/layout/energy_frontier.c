/* From a layout to its frontier over clocks. */
#include "layout/energy_frontier.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* What all steps share. */
struct solving {
    const struct erg_layout_frontier_request *request;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    struct erg_pipeline pipeline, shorter; /* shorter: that is solved */
    double gradient_bandwidth;
};

/* As many microbatches as can be solved soon: a start and an end of as many as there are stages,
 * and between them enough to repeat. A multiple of the stages, as interleaving needs. */
static long solved_microbatches(const struct erg_layout_frontier_request *request)
{
    enum { MOST = 9000, LEAST = 4 };
    const struct erg_layout *layout = request->layout;
    long stages = layout->pipeline, group = 2 * stages * stages * layout->virtual_stages;
    long most = request->most_instructions ? (long)request->most_instructions : MOST;
    long groups = most / group > LEAST ? most / group : LEAST;
    return groups * stages < layout->microbatches ? groups * stages : layout->microbatches;
}

static void start(struct solving *solving, const struct erg_layout_frontier_request *request)
{
    const struct erg_layout_energy_request *energy = request->energy;
    const struct erg_layout *layout = request->layout;
    long gpus = erg_layout_gpus(layout);
    solving->request = request;
    erg_time_parts_init(&solving->parts, &energy->time, layout->tensor, layout->context,
                        layout->microbatch, layout->sequence, gpus);
    erg_layout_work_init(&solving->work, energy, &solving->parts, layout->tensor, layout->context,
                         layout->microbatch, layout->sequence, gpus);
    solving->gradient_bandwidth = erg_time_group_bandwidth(&energy->time, layout->tensor,
                                                           layout->context * layout->data, gpus);
    solving->pipeline = (struct erg_pipeline){
        .schedule = layout->virtual_stages > 1 ? ERG_SCHEDULE_INTERLEAVED : ERG_SCHEDULE_1F1B,
        .stages = (size_t)layout->pipeline,
        .microbatches = (size_t)layout->microbatches,
        .chunks = (size_t)layout->virtual_stages,
        .p2p_latency_s = layout->pipeline > 1 ? solving->parts.message_s : 0,
        .p2p_internode_latency_s = layout->pipeline > 1 ? solving->parts.message_s : 0,
        .blocking_power_w = energy->gpu->blocking_power_w,
    };
    solving->shorter = solving->pipeline;
    solving->shorter.microbatches = (size_t)solved_microbatches(request);
}

/* Adds the options of every instruction at one clock. */
static void add_options(struct erg_layout_frontier *frontier, const struct solving *solving,
                        int clock_mhz)
{
    const struct erg_layout *layout = solving->request->layout;
    const struct erg_layout_energy_request *energy = solving->request->energy;
    struct erg_layout_costs costs;
    erg_layout_costs_at(&costs, energy, &solving->work, clock_mhz);
    for (size_t i = 0; i < frontier->table_count; i++) {
        size_t stages = solving->pipeline.stages, virtual_stage = i / 2;
        long stage = (long)(virtual_stage % stages), chunk = (long)(virtual_stage / stages);
        long layers = erg_layout_chunk_layers(layout, energy->time.model->layers, stage, chunk);
        bool head = virtual_stage + 1 == stages * solving->pipeline.chunks;
        struct erg_pass_cost cost = erg_layout_chunk_cost(
            energy, &solving->parts, &costs, layers, i % 2 == ERG_BACKWARD, head,
            erg_layout_remat(layout, stage), erg_layout_offload(layout, stage));
        erg_frontier_add(&frontier->tables[i], cost.time_s, cost.total_j, clock_mhz);
    }
}

/*
 * The highest clock, then about `clocks` from what the cap leaves of it down to the lowest, evenly.
 * What is requested above that changes nothing but the instruction's name.
 */
static void fill_tables(struct erg_layout_frontier *frontier, const struct solving *solving)
{
    const struct erg_gpu *gpu = solving->request->energy->gpu;
    struct erg_layout_costs costs;
    frontier->table_count = 2 * solving->pipeline.stages * solving->pipeline.chunks;
    frontier->tables = erg_xcalloc(frontier->table_count, sizeof *frontier->tables);
    add_options(frontier, solving, gpu->search_max_mhz);
    erg_layout_costs_at(&costs, solving->request->energy, &solving->work, gpu->search_max_mhz);
    double reached =
        fmax(costs.passes[ERG_PASS_FORWARD].clock_mhz, costs.passes[ERG_PASS_BACKWARD].clock_mhz);
    int steps = (int)((reached - gpu->search_min_mhz) / gpu->search_step_mhz);
    int wanted = solving->request->clocks ? (int)solving->request->clocks : steps;
    wanted = wanted < steps ? wanted : steps;
    for (int i = wanted; i >= 0; i--) {
        int clock = gpu->search_min_mhz + (wanted ? steps * i / wanted : 0) * gpu->search_step_mhz;
        if (clock < gpu->search_max_mhz)
            add_options(frontier, solving, clock);
    }
}

/* The lowest clock at which memory-bound kernels take no longer than at the highest. */
static int tail_clock(const struct erg_gpu *gpu)
{
    int clock = gpu->search_max_mhz;
    while (clock - gpu->search_step_mhz >= gpu->search_min_mhz &&
           (clock - gpu->search_step_mhz) * gpu->memory_issue >= gpu->clock_max_mhz)
        clock -= gpu->search_step_mhz;
    return clock;
}

static void fill_tail(struct erg_layout_frontier *frontier, const struct solving *solving)
{
    const struct erg_layout *layout = solving->request->layout;
    const struct erg_layout_energy_request *energy = solving->request->energy;
    struct erg_layout_costs costs;
    frontier->tail_clock_mhz = tail_clock(energy->gpu);
    erg_layout_costs_at(&costs, energy, &solving->work, frontier->tail_clock_mhz);
    erg_layout_tail(&frontier->tail, energy, &solving->parts, &costs, layout,
                    solving->gradient_bandwidth);
    double boundaries = (double)(layout->pipeline * layout->virtual_stages - 1);
    double replicas = (double)(erg_layout_gpus(layout) / layout->pipeline);
    double messages_j = 2 * boundaries * (double)layout->microbatches * costs.message_j * replicas;
    frontier->tail.items[ERG_LAYOUT_ENERGY_WIRES] += messages_j;
    frontier->tail.total_j += messages_j;
}

/* All at the highest clock: the first option of every table. */
static void compare_closed_form(struct erg_layout_frontier *frontier, const struct solving *solving)
{
    const struct erg_schedule *schedule = &frontier->iteration.schedule;
    const struct erg_layout_energy_request *energy = solving->request->energy;
    uint32_t *option = erg_xcalloc(schedule->count, sizeof *option);
    double time_s, energy_j;
    struct erg_layout_costs costs;
    struct erg_layout_energy closed;
    erg_layout_costs_at(&costs, energy, &solving->work, energy->gpu->search_max_mhz);
    erg_layout_energy_compose(&closed, energy, &solving->parts, &costs, solving->request->layout,
                              solving->gradient_bandwidth);
    erg_iteration_evaluate(schedule, frontier->tables, option, NULL, &time_s, &energy_j);
    frontier->drift = closed.time_s / (time_s + frontier->tail.time_s) - 1;
    free(option);
}

/* The pipeline's plans with what follows, over all GPUs. */
static void collect(struct erg_layout_frontier *frontier, const struct solving *solving)
{
    const struct erg_layout_energy_request *energy = solving->request->energy;
    long gpus = erg_layout_gpus(solving->request->layout);
    double replicas = (double)(gpus / solving->request->layout->pipeline);
    double idle_w = energy->held_gpus > gpus
                        ? energy->gpu->idle_power_w * (double)(energy->held_gpus - gpus)
                        : 0;
    for (size_t i = 0; i < frontier->iteration.plan_count; i++) {
        const struct erg_plan *plan = &frontier->iteration.plans[i];
        double time_s = plan->time_s + frontier->tail.time_s;
        erg_frontier_add(&frontier->points, time_s,
                         replicas * plan->energy_j + frontier->tail.total_j + idle_w * time_s,
                         (int64_t)i);
    }
    erg_frontier_copy(&frontier->frontier, &frontier->points);
    erg_frontier_filter(&frontier->frontier);
}

/*
 * The deadlines that the pipeline can meet, without what follows it. Those of a shorter pipeline
 * are about the same share of its time: some tries, of which one will hardly be early or late.
 */
enum { TRIES = 6 };

static size_t list_deadlines(double *deadlines_s, const struct erg_layout_frontier *frontier,
                             const struct solving *solving, double shortest_s)
{
    static const double early[TRIES] = {1.004, 1, 0.996, 0.992, 0.988, 0.984};
    const struct erg_layout_frontier_request *request = solving->request;
    double fill = (double)(solving->pipeline.stages - 1) / (double)solving->pipeline.chunks;
    double share = ((double)solving->shorter.microbatches + fill) /
                   ((double)solving->pipeline.microbatches + fill);
    size_t count = 0, tries = share < 1 ? TRIES : 1;
    for (size_t i = 0; i < request->deadline_count * tries; i++) {
        double whole_s = request->deadlines_s[i / tries] - frontier->tail.time_s;
        double deadline_s = share * (tries > 1 ? early[i % tries] : 1) * whole_s;
        if (deadline_s >= shortest_s)
            deadlines_s[count++] = deadline_s;
    }
    return count;
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
    const struct erg_plan *a = left, *b = right;
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
    iteration->plans[iteration->plan_count++] =
        (struct erg_plan){.option = erg_xcalloc(iteration->schedule.count, sizeof(uint32_t))};
    for (size_t k = 0; k < iteration->plan_count; k++) {
        struct erg_plan *plan = &iteration->plans[k];
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

/* The time of the pipeline that is solved with every instruction at its fastest. */
static int shortest(double *time_s, const struct erg_layout_frontier *frontier,
                    const struct solving *solving, struct erg_error *err)
{
    struct erg_schedule schedule;
    if (erg_schedule_init(&schedule, &solving->shorter, err) != 0)
        return -1;
    uint32_t *option = erg_xcalloc(schedule.count, sizeof *option);
    double energy_j;
    erg_iteration_evaluate(&schedule, frontier->tables, option, NULL, time_s, &energy_j);
    free(option);
    erg_schedule_release(&schedule);
    return 0;
}

int erg_layout_frontier_init(struct erg_layout_frontier *frontier,
                             const struct erg_layout_frontier_request *request,
                             struct erg_error *err)
{
    struct solving solving;
    double *deadlines_s = erg_xcalloc(TRIES * request->deadline_count + 1, sizeof *deadlines_s);
    double shortest_s = 0;
    *frontier = (struct erg_layout_frontier){0};
    start(&solving, request);
    fill_tables(frontier, &solving);
    fill_tail(frontier, &solving);
    bool stretched = solving.shorter.microbatches < solving.pipeline.microbatches;
    int result = shortest(&shortest_s, frontier, &solving, err);
    if (result == 0) {
        const struct erg_iteration_request iteration = {
            .pipeline = solving.shorter,
            .tables = frontier->tables,
            .points = request->points,
            .slower_points = request->slower_points,
            .deadlines_s = deadlines_s,
            .deadline_count = list_deadlines(deadlines_s, frontier, &solving, shortest_s),
            .tries = stretched,
        };
        result = erg_iteration_solve(&frontier->iteration, &iteration, err);
    }
    if (result == 0 && stretched)
        result = stretch(frontier, &solving, err);
    free(deadlines_s);
    if (result != 0) {
        erg_layout_frontier_release(frontier);
        return -1;
    }
    compare_closed_form(frontier, &solving);
    collect(frontier, &solving);
    return 0;
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
