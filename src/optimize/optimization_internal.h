/* The state of one optimization, shared by the files of optimize/ only. */
#ifndef ERG_OPTIMIZATION_INTERNAL_H
#define ERG_OPTIMIZATION_INTERNAL_H

#include "job/job.h"
#include "optimize/optimize.h"
#include "optimize/survey.h"

/* The work on the GPUs of one kind, and its cost there. */
struct erg_optimization_kind {
    const struct erg_job_kind *on;
    struct erg_workload_request workload_request;
    struct erg_workload workload;
    struct erg_lab *lab;
    struct erg_survey_request survey_request;
    struct erg_survey survey;
    struct erg_cost *extras; /* [stage][direction][clock of the survey]: the work of a layer's pass
                              * outside its own operations; or NULL */
};

struct erg_optimization {
    const struct erg_optimize_request *request;
    const struct erg_job *job;
    struct erg_optimization_kind *kinds; /* [job->kind_count] */
    struct erg_profile_options profiler;
    double *hop_latency_s, *beyond_w; /* of the plan's pipeline and scale */
    struct erg_method_request plan_request;
    struct erg_method_result methods[ERG_METHOD_COUNT];
    size_t verified; /* configurations measured because a plan used them */
};

/* The GPUs that a virtual stage lies on. */
static inline const struct erg_optimization_kind *
erg_optimization_kind(const struct erg_optimization *optimization, size_t virtual_stage)
{
    const struct erg_job *job = optimization->job;
    return &optimization->kinds[job->stage_kind[virtual_stage % (size_t)job->layout.pipeline]];
}

/* Plans all methods from the survey and compares them. */
int erg_optimization_plan(struct erg_optimization *optimization, struct erg_error *err);

/* The partition type that configuration k of an overlapped option belongs to. */
size_t erg_optimization_partition(const struct erg_optimization_kind *kind, int direction,
                                  size_t k);

/* How often `count` points of a method, from the `first` on, use each configuration on the GPUs of
 * a kind: [partition][config], all to be freed. */
unsigned **erg_optimization_uses(const struct erg_optimization *optimization,
                                 const struct erg_optimization_kind *kind,
                                 const struct erg_method_result *result, size_t first,
                                 size_t count);

/* The plan of a finished optimization. */
int erg_optimization_make_plan(const struct erg_optimization *optimization, struct erg_plan **plan,
                               struct erg_error *err);

#endif
