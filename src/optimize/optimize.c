#include "optimize/optimize.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "optimize/optimization_internal.h"

#include <math.h>
#include <stdlib.h>

enum {
    FRONTIER_POINTS = 24, /* deadlines spread over a frontier */
    SLOWER_POINTS = 8,    /* and beyond it, for pipelines that wait for another one */
};

/* ---- from the job to the parts ---- */

/*
 * Activations cross from a stage to the next one at the end of an instruction. The GPUs of a
 * tensor group hold the same ones, so each sends its share and the receivers gather the rest over
 * their own links; between nodes, the senders of a node share the node's link. A node holds as
 * many whole stages as fit. A stack with a measured overhead has these transfers in it.
 */
static void set_latencies(struct erg_pipeline *pipeline, const struct erg_job *job,
                          double boundary_bytes)
{
    const struct erg_cluster *cluster = &job->cluster;
    if (job->stack->overhead > 0)
        return;
    int stage_gpus = job->tensor * job->context;
    int senders = stage_gpus < cluster->gpus_per_node ? stage_gpus : cluster->gpus_per_node;
    pipeline->stages_per_node = (size_t)(cluster->gpus_per_node / senders);
    double link = cluster->intra_node_bandwidth > 0 ? cluster->intra_node_bandwidth
                                                    : job->gpu->link_bandwidth;
    double share = boundary_bytes / job->tensor;
    double gather_s = (boundary_bytes - share) / link;
    pipeline->p2p_latency_s = share / link + gather_s;
    if (cluster->nodes > 1)
        pipeline->p2p_internode_latency_s = share * senders / cluster->inter_node_bandwidth +
                                            cluster->inter_node_latency_s + gather_s;
}

/* Without nanobatches there is sequential execution only; was anything else asked for? */
static int check_methods(const struct erg_optimization *o, struct erg_error *err)
{
    if (o->workload.nanobatched)
        return 0;
    const char *reason =
        o->job->even_microbatch ? "no communication to hide" : "no two equal halves";
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

int erg_optimize_check_device(const struct erg_job *job, const struct erg_device *device,
                              struct erg_error *err)
{
    bool again = job->stage_recompute ||
                 (job->recompute != ERG_RECOMPUTE_NONE && job->recompute != ERG_RECOMPUTE_FULL);
    if (device && (again || job->offload > 0))
        return erg_fail(err, ERG_USAGE,
                        "the job %s %s, which is planned on emulated GPUs only; expected recompute "
                        "none or full and no offload to measure on these",
                        job->name,
                        job->offload > 0
                            ? "offloads activations"
                            : "recomputes norms or the activation alone, or by stages");
    if (device && device->board && !erg_gpu_is_board(job->gpu, device->board))
        erg_log(ERG_LOG_WARNING,
                "the job is for %s, but this machine has %s: times and energies are measured on "
                "the latter, blocking power, links and clocks assumed of the former",
                job->gpu->name, device->board);
    return 0;
}

static int prepare(struct erg_optimization *o, struct erg_error *err)
{
    const struct erg_job *job = o->job;
    if (erg_optimize_check_device(job, o->request->device, err))
        return -1;
    o->workload_request = erg_survey_workload_request(job);
    o->profiler = erg_survey_profile_options(job);
    if (erg_workload_build(&o->workload, &o->workload_request, err))
        return -1;
    if (check_methods(o, err))
        return -1;
    struct erg_lab_request lab = {
        .store_path = o->request->store_path,
        .gpu = job->gpu,
        .stack = job->stack,
        .device = o->request->device,
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
        .whole_nanobatch = (nanobatching || methods[ERG_METHOD_ERGON]) && o->workload.nanobatched,
        .partitions = methods[ERG_METHOD_ERGON] && o->workload.nanobatched,
        .ends = job->stack->overhead <= 0,
    };
    o->plan_request = (struct erg_method_request){
        .pipeline =
            {
                .schedule = job->schedule == ERG_JOB_INTERLEAVED ? ERG_SCHEDULE_INTERLEAVED
                                                                 : ERG_SCHEDULE_1F1B,
                .stages = (size_t)job->pipeline,
                .microbatches = (size_t)job->microbatches,
                .chunks = (size_t)job->virtual_stages,
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
        .seed = job->search.seed,
        .points = FRONTIER_POINTS,
        .slower_points = SLOWER_POINTS,
    };
    set_latencies(&o->plan_request.pipeline, job, o->workload.boundary_bytes);
    return erg_pipeline_check(&o->plan_request.pipeline, err);
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
            status =
                erg_fail(err, ERG_INFEASIBLE,
                         "selecting a plan: the deadline of %.9g s binds: the fastest iteration "
                         "takes %.4f s",
                         bound, ceil(points[0].time_s * 1e4) / 1e4);
        break;
    case ERG_JOB_BUDGET:
        picked = erg_frontier_pick_budget(&frontier, bound);
        o->selected_rule = "the fastest within the energy budget";
        if (picked < 0)
            status = erg_fail(err, ERG_INFEASIBLE,
                              "selecting a plan: the energy budget of %.9g J binds: the cheapest "
                              "iteration needs %.1f J",
                              bound, ceil(points[frontier.count - 1].energy_j * 10) / 10);
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
    int status = prepare(&o, err) || erg_survey_run(&o.survey, &o.survey_request, err) ? -1 : 0;
    if (!status)
        erg_optimization_extras(&o);
    if (!status)
        status = erg_optimization_plan(&o, err) || select_point(&o, err) ? -1 : 0;
    if (!status)
        status = erg_interrupt_check(err);
    if (!status) {
        *plan = erg_optimization_document(&o, err);
        status = *plan ? 0 : -1;
    }
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        erg_method_release(&o.methods[i]);
    erg_survey_release(&o.survey);
    free(o.extras);
    erg_lab_close(o.lab);
    erg_workload_release(&o.workload);
    return status;
}
