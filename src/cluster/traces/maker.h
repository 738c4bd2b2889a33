/*
 * Makes traces: jobs with only a submission, GPUs and a run time, known or drawn, become jobs of
 * models in the profiles.
 *
 * A job gets as many iterations as fit into its run time on the GPUs that it requests, on as few
 * nodes as possible. So a trace stands for the same work under every policy. Source: the rule of
 * the traces of Arena's published comparison.
 */
#ifndef ERG_CLUSTER_TRACES_MAKER_H
#define ERG_CLUSTER_TRACES_MAKER_H

#include "base/text.h"
#include "cluster/job_trace.h"
#include "cluster/speed_table.h"

struct erg_trace_maker {
    const struct erg_fleet *fleet; /* borrowed */
    struct erg_job_trace *trace;   /* its workloads are all models of the profiles */
    size_t capacity;               /* of its jobs */
    struct erg_speeds *speeds;
};

/* A job before it has iterations. */
struct erg_made_job {
    const char *id, *tenant; /* copied */
    double submit_s;
    double duration_s; /* on these GPUs */
    double deadline_s; /* INFINITY: none */
    int workload, type, gpus;
    size_t line; /* of the file that it comes from, or its number */
};

/* `folder` as for erg_speeds_load(). To be released, also after a failure. */
int erg_trace_maker_init(struct erg_trace_maker *maker, const struct erg_fleet *fleet,
                         const char *folder, struct erg_error *err);
void erg_trace_maker_release(struct erg_trace_maker *maker);

/* Seconds of an iteration at the fastest; INFINITY: the workload cannot run so. */
double erg_trace_maker_iteration(const struct erg_trace_maker *maker, int workload, int type,
                                 int gpus);

/* The job must be able to run. It does at least one iteration. */
void erg_trace_maker_add(struct erg_trace_maker *maker, const struct erg_made_job *made);

/* Sorts all jobs, which have distinct names, by submission, then by line. */
void erg_trace_maker_finish(struct erg_trace_maker *maker);

/* Appends the trace as the file that erg_job_trace_load() reads. */
void erg_trace_maker_write(struct erg_text *out, const struct erg_trace_maker *maker);

#endif
