#include "optimize/optimize.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "optimize/optimization_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    FRONTIER_POINTS = 24, /* deadlines spread over a frontier */
    SLOWER_POINTS = 8,    /* and beyond it, for pipelines that wait for another one */
    VERIFY_ROUNDS = 4,    /* after that, plan with what was measured */
};

/* ---- from the job to the parts ---- */

/*
 * Activations cross from a stage to the next one at the end of an instruction. The GPUs of a
 * tensor group hold the same ones, so each sends its share and the receivers gather the rest over
 * their own links; between nodes, all groups of a node share the node's link. A stack with a
 * measured overhead has these transfers in it.
 */
static double boundary_latency(const struct erg_job *job, double boundary_bytes)
{
    const struct erg_cluster *cluster = &job->cluster;
    int stage_gpus = job->tensor * job->context;
    if (job->pipeline * job->virtual_stages == 1 || job->stack->overhead > 0)
        return 0;
    double link = cluster->intra_node_bandwidth > 0 ? cluster->intra_node_bandwidth
                                                    : job->gpu->link_bandwidth;
    double share = boundary_bytes / job->tensor;
    double gather_s = (boundary_bytes - share) / link;
    if (job->pipeline * stage_gpus <= cluster->gpus_per_node || cluster->inter_node_bandwidth <= 0)
        return share / link + gather_s;
    int senders = stage_gpus < cluster->gpus_per_node ? stage_gpus : cluster->gpus_per_node;
    return share * senders / cluster->inter_node_bandwidth + cluster->inter_node_latency_s +
           gather_s;
}

static struct erg_profile_options profile_options(const struct erg_job *job)
{
    struct erg_profile_options options = erg_profile_options_default();
    if (job->profiler.window_s >= 0)
        options.window_s = job->profiler.window_s;
    if (job->profiler.cooldown_s >= 0)
        options.cooldown_s = job->profiler.cooldown_s;
    if (job->profiler.warmup_s >= 0)
        options.warmup_s = job->profiler.warmup_s;
    return options;
}

/* Without nanobatches there is sequential execution only; was anything else asked for? */
static int check_methods(const struct erg_optimization *o, struct erg_error *err)
{
    if (o->workload.nanobatched)
        return 0;
    const char *reason = o->job->even_microbatch ? "no communication to hide" : "no two equal halves";
    const bool *methods = o->request->methods;
    if (!methods[ERG_METHOD_SEQUENTIAL] && !methods[ERG_METHOD_SEQUENTIAL_CLOCKS] &&
        !methods[ERG_METHOD_ERGON])
        return erg_fail(err, ERG_INFEASIBLE,
                        "planning %s: a microbatch of %d sequences on tensor %d x context %d has "
                        "%s, so nothing but sequential execution is possible",
                        o->job->name, o->job->microbatch_size, o->job->tensor, o->job->context,
                        reason);
    if (o->job->even_microbatch) /* else the job has warned already */
        erg_log(ERG_LOG_WARNING,
                "tensor %d x context %d has no communication to hide: only sequential execution "
                "is planned",
                o->job->tensor, o->job->context);
    return 0;
}

static int prepare(struct erg_optimization *o, struct erg_error *err)
{
    const struct erg_job *job = o->job;
    o->workload_request = (struct erg_workload_request){
        .model = job->model,
        .gpu = job->gpu,
        .stack = job->stack,
        .tensor = job->tensor,
        .context = job->context,
        .microbatch_size = job->microbatch_size,
        .sequence = job->sequence,
        .recompute = job->recompute == ERG_RECOMPUTE_FULL,
    };
    o->profiler = profile_options(job);
    if (erg_workload_build(&o->workload, &o->workload_request, err))
        return -1;
    if (check_methods(o, err))
        return -1;
    struct erg_lab_request lab = {
        .store_path = o->request->store_path,
        .gpu = job->gpu,
        .stack = job->stack,
        .seed = job->search.seed,
        .gpus = (size_t)(job->tensor * job->context),
        .profiler = o->profiler,
    };
    if (erg_lab_open(&o->lab, &lab, err))
        return -1;
    const bool *methods = o->request->methods;
    bool nanobatching = methods[ERG_METHOD_NANOBATCHING] || methods[ERG_METHOD_NANOBATCHING_CLOCKS];
    o->survey_request = (struct erg_survey_request){
        .lab = o->lab,
        .workload = &o->workload,
        .job = job,
        .whole_sequential = true, /* the reference of every comparison */
        .whole_nanobatch = nanobatching && o->workload.nanobatched,
        .partitions = methods[ERG_METHOD_ERGON] && o->workload.nanobatched,
    };
    o->plan_request = (struct erg_method_request){
        .pipeline =
            {
                .schedule = job->schedule == ERG_JOB_INTERLEAVED ? ERG_SCHEDULE_INTERLEAVED
                                                                 : ERG_SCHEDULE_1F1B,
                .stages = (size_t)job->pipeline,
                .microbatches = (size_t)job->microbatches,
                .chunks = (size_t)job->virtual_stages,
                .p2p_latency_s = boundary_latency(job, o->workload.boundary_bytes),
                .blocking_power_w = job->gpu->blocking_power_w,
            },
        .scale =
            {
                .overhead = job->stack->overhead,
                .blocking_power_w = job->gpu->blocking_power_w,
                .static_power_w = job->gpu->static_power_w,
                .stages = job->pipeline,
                .gpus_per_stage = job->tensor * job->context,
            },
        .points = FRONTIER_POINTS,
        .slower_points = SLOWER_POINTS,
    };
    return erg_pipeline_check(&o->plan_request.pipeline, err);
}

/* ---- option tables ---- */

/* Work outside the layers of virtual stage x in one direction, at every clock. */
static void fixed_work(const struct erg_optimization *o, size_t x, int direction, bool nanobatched,
                       struct erg_cost *fixed)
{
    size_t last = (size_t)(o->job->pipeline * o->job->virtual_stages) - 1;
    struct {
        enum erg_fixed what;
        int times;
    } parts[2];
    size_t count = 0;
    if (x == 0) {
        enum erg_fixed backward =
            nanobatched ? ERG_FIXED_EMBEDDING_BACKWARD_NANOBATCH : ERG_FIXED_EMBEDDING_BACKWARD;
        parts[count].what = direction == ERG_FORWARD ? ERG_FIXED_EMBEDDING_FORWARD : backward;
        parts[count++].times = direction == ERG_BACKWARD && nanobatched ? 2 : 1;
    }
    if (x == last) {
        parts[count].what =
            direction == ERG_FORWARD ? ERG_FIXED_HEAD_FORWARD : ERG_FIXED_HEAD_BACKWARD;
        parts[count++].times = 1;
    }
    struct erg_host_model host = {o->job->stack->host_per_kernel_s, o->job->gpu->static_power_w};
    for (size_t clock = 0; clock < o->survey.clock_count; clock++) {
        fixed[clock] = (struct erg_cost){0, 0};
        for (size_t i = 0; i < count; i++) {
            struct erg_cost one = erg_host_floor(&host, o->survey.fixed[parts[i].what][clock],
                                                 o->workload.fixed[parts[i].what].kernels);
            fixed[clock].time_s += parts[i].times * one.time_s;
            fixed[clock].energy_j += parts[i].times * one.energy_j;
        }
    }
}

static void new_tables(const struct erg_optimization *o, struct erg_method_result *result,
                       enum erg_method method)
{
    erg_method_release(result);
    result->method = method;
    result->table_count = (size_t)(2 * o->job->pipeline * o->job->virtual_stages);
    result->tables = erg_xcalloc(result->table_count, sizeof *result->tables);
}

/* Tables of whole layers (sequential or nanobatched), unfiltered: one option per clock. */
static void add_whole_layers(const struct erg_optimization *o, struct erg_method_result *result,
                             enum erg_mode mode)
{
    bool nanobatched = mode == ERG_MODE_NANOBATCH;
    struct erg_host_model host = {o->job->stack->host_per_kernel_s, o->job->gpu->static_power_w};
    struct erg_cost *fixed = erg_xcalloc(o->survey.clock_count, sizeof *fixed);
    for (size_t i = 0; i < result->table_count; i++) {
        size_t x = i / 2;
        int direction = (int)(i % 2);
        fixed_work(o, x, direction, nanobatched, fixed);
        const struct erg_steps *layer =
            nanobatched ? &o->workload.nanobatch[direction] : &o->workload.sequential[direction];
        const struct erg_cost *cost =
            nanobatched ? o->survey.nanobatch[direction] : o->survey.sequential[direction];
        erg_microbatch_add_whole(&result->tables[i], mode, cost, layer->kernels,
                                 o->job->chunk_layers[x], fixed, o->survey.clock_count, &host);
    }
    free(fixed);
}

/* Tables of ergon: overlapped partitions and sequential layers side by side. */
static void add_partitions(const struct erg_optimization *o, struct erg_method_result *result,
                           bool measured_only)
{
    add_whole_layers(o, result, ERG_MODE_SEQUENTIAL);
    struct erg_cost *fixed = erg_xcalloc(o->survey.clock_count, sizeof *fixed);
    for (int direction = 0; direction < 2 && o->survey.partition_count; direction++) {
        struct erg_layer *layer =
            erg_survey_layer(&o->survey, &o->survey_request, direction == ERG_BACKWARD,
                             o->workload_request.recompute, measured_only);
        for (size_t x = 0; x < result->table_count / 2; x++) {
            fixed_work(o, x, direction, true, fixed);
            erg_microbatch_add_overlap(&result->tables[2 * x + (size_t)direction], layer,
                                       o->job->chunk_layers[x], fixed);
        }
        erg_layer_free(layer);
    }
    free(fixed);
    for (size_t i = 0; i < result->table_count; i++)
        erg_microbatch_filter(&result->tables[i], o->job->gpu->blocking_power_w);
}

/* ---- planning ---- */

static int plan_whole_layers(struct erg_optimization *o, enum erg_method full_clock,
                             enum erg_method clocks, enum erg_mode mode, struct erg_error *err)
{
    struct erg_method_result *one = &o->methods[full_clock], *frontier = &o->methods[clocks];
    new_tables(o, one, full_clock);
    add_whole_layers(o, one, mode);
    new_tables(o, frontier, clocks);
    add_whole_layers(o, frontier, mode);
    for (size_t i = 0; i < frontier->table_count; i++)
        erg_microbatch_filter(&frontier->tables[i], o->job->gpu->blocking_power_w);
    return erg_interrupt_check(err) ||
                   erg_method_run_at(one, &o->plan_request, (int)o->survey.clock_count - 1, err) ||
                   erg_method_plan(frontier, &o->plan_request, err)
               ? -1
               : 0;
}

/* Configurations that the plans use and that were only predicted. */
static struct erg_survey_pick *list_unmeasured(const struct erg_optimization *o,
                                               const struct erg_method_result *result,
                                               size_t *count)
{
    struct {
        struct erg_survey_pick *items;
        size_t count, capacity;
    } picks = {0};
    bool **seen = erg_xcalloc(o->survey.partition_count, sizeof *seen);
    for (size_t i = 0; i < o->survey.partition_count; i++)
        seen[i] = erg_xcalloc(o->survey.searches[i]->config_count, sizeof **seen);
    const struct erg_schedule *schedule = &result->iteration.schedule;
    for (size_t p = 0; p < result->point_count + result->slower_count; p++)
        for (size_t i = 0; i < schedule->count; i++) {
            const struct erg_instruction *instruction = &schedule->instructions[i];
            const struct erg_microbatch *table =
                &result->tables[erg_table_index(&schedule->pipeline, instruction)];
            const struct erg_microbatch_option *option =
                &table->options[result->points[p].option[i]];
            for (size_t k = 0; option->configurations && k < table->partition_count; k++) {
                size_t partition = erg_optimization_partition(o, (int)instruction->direction, k);
                size_t config = (size_t)option->configurations[k];
                if (seen[partition][config] ||
                    o->survey.searches[partition]->table[config].knowledge == ERG_MEASURED)
                    continue;
                seen[partition][config] = true;
                ERG_PUSH(&picks, items, (struct erg_survey_pick){partition, config});
            }
        }
    for (size_t i = 0; i < o->survey.partition_count; i++)
        free(seen[i]);
    free(seen);
    *count = picks.count;
    return picks.items;
}

static int plan_ergon(struct erg_optimization *o, struct erg_error *err)
{
    struct erg_method_result *result = &o->methods[ERG_METHOD_ERGON];
    for (int round = 0;; round++) {
        bool measured_only = round == VERIFY_ROUNDS;
        new_tables(o, result, ERG_METHOD_ERGON);
        add_partitions(o, result, measured_only);
        if (erg_interrupt_check(err) || erg_method_plan(result, &o->plan_request, err))
            return -1;
        size_t count, added;
        struct erg_survey_pick *picks = list_unmeasured(o, result, &count);
        int status =
            count ? erg_survey_verify(&o->survey, &o->survey_request, picks, count, &added, err)
                  : 0;
        free(picks);
        if (status)
            return -1;
        if (!count)
            return 0;
        o->verified += added;
        erg_log(ERG_LOG_INFO, "planning round %d: %zu configurations of the plans measured",
                round + 1, added);
    }
}

static int plan_all(struct erg_optimization *o, struct erg_error *err)
{
    const bool *wanted = o->request->methods;
    if (plan_whole_layers(o, ERG_METHOD_SEQUENTIAL, ERG_METHOD_SEQUENTIAL_CLOCKS,
                          ERG_MODE_SEQUENTIAL, err))
        return -1;
    /* The other methods also get plans exactly at the references' time and energy. */
    const struct erg_method_result *clocks = &o->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    double deadlines[2] = {clocks->points[0].time_s, 0};
    double budgets[2] = {clocks->points[clocks->point_count - 1].energy_j, 0};
    o->plan_request.deadlines_s = deadlines;
    o->plan_request.budgets_j = budgets;
    o->plan_request.deadline_count = o->plan_request.budget_count = 1;
    if (o->job->goal == ERG_JOB_DEADLINE)
        deadlines[o->plan_request.deadline_count++] = o->job->goal_bound;
    if (o->job->goal == ERG_JOB_BUDGET)
        budgets[o->plan_request.budget_count++] = o->job->goal_bound;
    int status = 0;
    if (o->survey_request.whole_nanobatch)
        status = plan_whole_layers(o, ERG_METHOD_NANOBATCHING, ERG_METHOD_NANOBATCHING_CLOCKS,
                                   ERG_MODE_NANOBATCH, err);
    if (!status && wanted[ERG_METHOD_ERGON])
        status = plan_ergon(o, err);
    o->plan_request.deadlines_s = o->plan_request.budgets_j = NULL;
    o->plan_request.deadline_count = o->plan_request.budget_count = 0;
    if (status)
        return -1;

    const struct erg_method_point *m = &o->methods[ERG_METHOD_SEQUENTIAL].points[0];
    struct erg_point full_clock = {m->time_s, m->energy_j, 0};
    struct erg_frontier reference = {0}, own = {0};
    erg_method_frontier(clocks, &reference);
    for (int i = 0; i < ERG_METHOD_COUNT; i++) {
        erg_method_frontier(&o->methods[i], &own);
        o->methods[i].versus = erg_compare(&own, full_clock, &reference);
    }
    erg_frontier_release(&reference);
    erg_frontier_release(&own);
    return 0;
}

/* ---- the point to run ---- */

static int select_point(struct erg_optimization *o, struct erg_error *err)
{
    static const enum erg_method preference[] = {
        ERG_METHOD_ERGON,        ERG_METHOD_SEQUENTIAL_CLOCKS, ERG_METHOD_NANOBATCHING_CLOCKS,
        ERG_METHOD_NANOBATCHING, ERG_METHOD_SEQUENTIAL,
    };
    for (size_t i = 0; i < sizeof preference / sizeof *preference; i++) {
        o->selected_method = preference[i];
        if (o->request->methods[preference[i]] && o->methods[preference[i]].point_count)
            break;
    }
    struct erg_frontier frontier = {0};
    erg_method_frontier(&o->methods[o->selected_method], &frontier);
    erg_frontier_filter(&frontier);
    const struct erg_point *points = frontier.points;
    double bound = o->job->goal_bound;
    ptrdiff_t picked = 0;
    int status = 0;
    switch (o->job->goal) {
    case ERG_JOB_FASTEST:
        o->selected_rule = "the fastest";
        break;
    case ERG_JOB_LEAST_ENERGY:
        picked = (ptrdiff_t)frontier.count - 1;
        o->selected_rule = "the least energy";
        break;
    case ERG_JOB_KNEE:
        picked = erg_frontier_pick_knee(&frontier);
        o->selected_rule = "the knee of the frontier";
        break;
    case ERG_JOB_DEADLINE:
        picked = erg_frontier_pick_deadline(&frontier, bound);
        o->selected_rule = "the least energy within the deadline";
        if (picked < 0)
            status = erg_fail(err, ERG_INFEASIBLE,
                              "selecting a plan: the deadline of %g s binds: the fastest iteration "
                              "takes %.4g s",
                              bound, points[0].time_s);
        break;
    case ERG_JOB_BUDGET:
        picked = erg_frontier_pick_budget(&frontier, bound);
        o->selected_rule = "the fastest within the energy budget";
        if (picked < 0)
            status = erg_fail(err, ERG_INFEASIBLE,
                              "selecting a plan: the energy budget of %g J binds: the cheapest "
                              "iteration needs %.6g J",
                              bound, points[frontier.count - 1].energy_j);
        break;
    }
    if (!status)
        o->selected_point = (size_t)points[picked].recipe;
    erg_frontier_release(&frontier);
    return status;
}

int erg_optimize(const struct erg_optimize_request *request, json_t **plan, struct erg_error *err)
{
    struct erg_optimization o = {.request = request, .job = request->job};
    int status = prepare(&o, err) || erg_survey_run(&o.survey, &o.survey_request, err) ||
                         plan_all(&o, err) || select_point(&o, err)
                     ? -1
                     : 0;
    if (!status)
        status = erg_interrupt_check(err);
    if (!status) {
        *plan = erg_optimization_document(&o, err);
        status = *plan ? 0 : -1;
    }
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        erg_method_release(&o.methods[i]);
    erg_survey_release(&o.survey);
    erg_lab_close(o.lab);
    erg_workload_release(&o.workload);
    return status;
}
