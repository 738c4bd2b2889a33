/* Optimize: from a job to its frontier, the comparison with baselines, and the plan. */
#include "optimize/optimize.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "job/layout.h"
#include "optimize/optimization_internal.h"

#include <math.h>
#include <stdlib.h>

enum {
    FRONTIER_POINTS = 24, /* deadlines spread over a frontier */
    SLOWER_POINTS = 8,    /* and beyond it, for pipelines that wait for another one */
};

/* ---- from the job to the parts ---- */

/*
 * Activations cross from a stage to the next one at the end of an instruction. The GPUs of a tensor
 * group hold the same ones, so each sends its share and the receivers gather the rest over their
 * own links. Between nodes every GPU has its share of the network, as in the time of layouts
 * (layout/time/time.h).
 */
struct crossing {
    double inside_s, between_s;
};

static struct crossing crossing_of(const struct erg_job *job, const struct erg_job_kind *kind,
                                   double boundary_bytes)
{
    const struct erg_cluster *nodes = kind->nodes;
    double share = boundary_bytes / (double)job->layout.tensor;
    double gather_s = (boundary_bytes - share) / kind->gpu->link_bandwidth;
    if (erg_job_splits_stream(job)) /* each needs its own share alone */
        gather_s = 0;
    double network = nodes->inter_node_bandwidth / nodes->gpus_per_node;
    const double senders = (double)(job->layout.tensor * job->layout.context * job->layout.data);
    struct crossing crossing = {.inside_s = share / kind->gpu->link_bandwidth + gather_s};
    if (nodes->adapters_per_node > 0) /* no more than the GPUs of a stage share one */
        network *= fmax(1, nodes->gpus_per_node / nodes->adapters_per_node / senders);
    if (nodes->shared_link_bandwidth > 0)
        network = fmin(network, nodes->shared_link_bandwidth);
    if (network > 0)
        crossing.between_s = share / network + nodes->inter_node_latency_s + gather_s;
    return crossing;
}

/* Whether the next stage is reached without leaving nodes; stages are counted among those of their
 * kind, which fill its nodes one after the other with all copies of each (layout/layout.h). */
static bool stay_inside(const struct erg_job *job, const size_t *places, size_t stage, size_t next)
{
    const struct erg_job_kind *kind = &job->kinds[job->stage_kind[stage]];
    return job->stage_kind[stage] == job->stage_kind[next] &&
           !erg_layout_leaves_node(
               (long)job->layout.tensor * job->layout.context * job->layout.data,
               kind->nodes->gpus_per_node, (long)places[stage], (long)places[next]);
}

/* Between two kinds the slower network counts. A stack with a measured overhead has these
 * transfers in it. */
static void set_latencies(struct erg_optimization *o)
{
    const struct erg_job *job = o->job;
    size_t stages = (size_t)job->layout.pipeline;
    if (job->stack->overhead > 0)
        return;
    struct crossing *crossings = erg_xcalloc(job->kind_count, sizeof *crossings);
    size_t *places = erg_xcalloc(stages, sizeof *places); /* among the stages of their kind */
    size_t *used = erg_xcalloc(job->kind_count, sizeof *used);
    for (size_t k = 0; k < job->kind_count; k++)
        crossings[k] = crossing_of(job, &job->kinds[k], o->kinds[k].workload.boundary_bytes);
    for (size_t s = 0; s < stages; s++)
        places[s] = used[job->stage_kind[s]]++;
    for (size_t s = 0; s < stages; s++) {
        size_t next = (s + 1) % stages;
        const struct crossing *here = &crossings[job->stage_kind[s]];
        const struct crossing *there = &crossings[job->stage_kind[next]];
        o->hop_latency_s[s] = stay_inside(job, places, s, next)
                                  ? here->inside_s
                                  : fmax(here->between_s, there->between_s);
    }
    free(crossings);
    free(places);
    free(used);
}

/* Without nanobatches there is sequential execution only; was anything else asked for? */
static int check_methods(const struct erg_optimization *o, struct erg_error *err)
{
    if (o->kinds[0].workload.nanobatched)
        return 0;
    const char *reason =
        o->job->even_microbatch ? "no communication to hide" : "no two equal halves";
    const bool *methods = o->request->methods;
    if (!methods[ERG_METHOD_SEQUENTIAL] && !methods[ERG_METHOD_SEQUENTIAL_CLOCKS] &&
        !methods[ERG_METHOD_ERGON])
        return erg_fail(
            err, ERG_INFEASIBLE,
            "planning %s: a microbatch of %ld sequences on tensor %ld x context %ld has "
            "%s, so nothing but sequential execution is possible",
            o->job->name, o->job->layout.microbatch, o->job->layout.tensor, o->job->layout.context,
            reason);
    const bool others = methods[ERG_METHOD_NANOBATCHING] ||
                        methods[ERG_METHOD_NANOBATCHING_CLOCKS] || methods[ERG_METHOD_ERGON];
    if (others && o->job->even_microbatch) /* else the job has warned already */
        erg_log(ERG_LOG_WARNING,
                "tensor %ld x context %ld has no communication to hide: only sequential execution "
                "is planned",
                o->job->layout.tensor, o->job->layout.context);
    return 0;
}

int erg_optimize_check_device(const struct erg_job *job, const struct erg_device *device,
                              struct erg_error *err)
{
    bool again = job->layout.stage_recompute || (job->layout.recompute != ERG_RECOMPUTE_NONE &&
                                                 job->layout.recompute != ERG_RECOMPUTE_FULL);
    if (erg_job_check_whole(job, "ergon optimize", err) != 0)
        return -1;
    if (device && (again || job->layout.offload > 0))
        return erg_fail(err, ERG_USAGE,
                        "the job %s %s, which is planned on emulated GPUs only; expected recompute "
                        "none or full and no offload to measure on these",
                        job->name,
                        job->layout.offload > 0
                            ? "offloads activations"
                            : "recomputes norms or the activation alone, or by stages");
    if (device && erg_job_splits_stream(job))
        return erg_fail(err, ERG_USAGE,
                        "the job %s trains with sequence parallelism, which is planned on emulated "
                        "GPUs only; expected train.sequence_parallel false to measure on these",
                        job->name);
    if (device && job->kind_count > 1)
        return erg_fail(err, ERG_USAGE,
                        "the job %s lies on GPUs of %zu kinds, which is planned on emulated GPUs "
                        "only; expected a job on one kind to measure on these",
                        job->name, job->kind_count);
    if (device && device->board && !erg_gpu_is_board(job->gpu, device->board))
        erg_log(ERG_LOG_WARNING,
                "the job is for %s, but this machine has %s: times and energies are measured on "
                "the latter, blocking power, links and clocks assumed of the former",
                job->gpu->name, device->board);
    return 0;
}

static void set_survey(const struct erg_optimization *o, struct erg_optimization_kind *kind)
{
    const struct erg_job *job = o->job;
    const bool *methods = o->request->methods;
    bool nanobatching = methods[ERG_METHOD_NANOBATCHING] || methods[ERG_METHOD_NANOBATCHING_CLOCKS];
    kind->survey_request = (struct erg_survey_request){
        .lab = kind->lab,
        .workload = &kind->workload,
        .job = job,
        .gpu = kind->on->gpu,
        .whole_sequential = true, /* the reference of every comparison */
        .whole_nanobatch =
            (nanobatching || methods[ERG_METHOD_ERGON]) && kind->workload.nanobatched,
        .partitions = methods[ERG_METHOD_ERGON] && kind->workload.nanobatched,
        .ends = job->stack->overhead <= 0,
    };
}

static int open_lab(const struct erg_optimization *o, struct erg_optimization_kind *kind,
                    struct erg_error *err)
{
    struct erg_lab_request lab = {
        .store_path = o->request->store_path,
        .gpu = kind->on->gpu,
        .stack = o->job->stack,
        .device = o->request->device,
        .seed = o->job->search.seed,
        .gpus = (size_t)(o->job->layout.tensor * o->job->layout.context),
        .chassis = kind->on->chassis,
        .profiler = o->profiler,
    };
    return erg_lab_open(&kind->lab, &lab, err);
}

static void set_powers(struct erg_optimization *o)
{
    const struct erg_job *job = o->job;
    struct erg_method_request *request = &o->plan_request;
    double *static_w = erg_xcalloc((size_t)job->layout.pipeline, sizeof *static_w);
    for (int s = 0; s < job->layout.pipeline; s++) {
        const struct erg_gpu *gpu = job->kinds[job->stage_kind[s]].gpu;
        o->beyond_w[s] = gpu->blocking_power_w;
        static_w[s] = gpu->static_power_w;
    }
    erg_scale_set_powers(&request->scale, o->beyond_w, static_w);
    request->pipeline.blocking_power_w = request->scale.blocking_power_w;
    free(static_w);
}

static int prepare_plan(struct erg_optimization *o, struct erg_error *err)
{
    const struct erg_job *job = o->job;
    o->hop_latency_s = erg_xcalloc((size_t)job->layout.pipeline, sizeof *o->hop_latency_s);
    o->beyond_w = erg_xcalloc((size_t)job->layout.pipeline, sizeof *o->beyond_w);
    o->plan_request = (struct erg_method_request){
        .pipeline =
            {
                .stages = (size_t)job->layout.pipeline,
                .microbatches = (size_t)job->layout.microbatches,
                .chunks = (size_t)job->layout.virtual_stages,
                .hop_latency_s = o->hop_latency_s,
            },
        .scale =
            {
                .overhead = job->stack->overhead,
                .stages = (int)job->layout.pipeline,
                .gpus_per_stage = (int)(job->layout.tensor * job->layout.context),
            },
        .seed = job->search.seed,
        .points = FRONTIER_POINTS,
        .slower_points = SLOWER_POINTS,
    };
    set_latencies(o);
    set_powers(o);
    return erg_pipeline_check(&o->plan_request.pipeline, err);
}

static int prepare(struct erg_optimization *o, struct erg_error *err)
{
    const struct erg_job *job = o->job;
    if (erg_optimize_check_device(job, o->request->device, err))
        return -1;
    o->profiler = erg_survey_profile_options(job);
    for (size_t k = 0; k < job->kind_count; k++) {
        struct erg_optimization_kind *kind = &o->kinds[k];
        kind->on = &job->kinds[k];
        kind->workload_request = erg_workload_of_job(job, kind->on->gpu);
        if (erg_workload_build(&kind->workload, &kind->workload_request, err))
            return -1;
    }
    if (check_methods(o, err))
        return -1;
    for (size_t k = 0; k < job->kind_count; k++) {
        if (open_lab(o, &o->kinds[k], err))
            return -1;
        set_survey(o, &o->kinds[k]);
    }
    return prepare_plan(o, err);
}

static int survey(struct erg_optimization *o, struct erg_error *err)
{
    for (size_t k = 0; k < o->job->kind_count; k++) {
        struct erg_optimization_kind *kind = &o->kinds[k];
        if (o->job->kind_count > 1)
            erg_log(ERG_LOG_INFO, "measuring on %s", kind->on->gpu->name);
        if (erg_survey_run(&kind->survey, &kind->survey_request, err))
            return -1;
    }
    return 0;
}

static void release(struct erg_optimization *o)
{
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        erg_method_release(&o->methods[i]);
    for (size_t k = 0; k < o->job->kind_count; k++) {
        erg_survey_release(&o->kinds[k].survey);
        free(o->kinds[k].extras);
        erg_lab_close(o->kinds[k].lab);
        erg_workload_release(&o->kinds[k].workload);
    }
    free(o->kinds);
    free(o->hop_latency_s);
    free(o->beyond_w);
}

int erg_optimize(const struct erg_optimize_request *request, struct erg_plan **plan,
                 struct erg_error *err)
{
    const struct erg_job *job = request->job;
    struct erg_optimization o = {
        .request = request, .job = job, .kinds = erg_xcalloc(job->kind_count, sizeof *o.kinds)};
    int status = prepare(&o, err) || survey(&o, err) || erg_optimization_plan(&o, err) ||
                         erg_interrupt_check(err)
                     ? -1
                     : 0;
    if (!status)
        status = erg_optimization_make_plan(&o, plan, err);
    release(&o);
    return status;
}
