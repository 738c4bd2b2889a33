/*
 * Traces: jobs as users submitted them, from a CSV file (traces/read.c).
 *
 * Columns: job_id, submit_time_s, num_iterations, model, param_num, deadline_s, global_batch,
 * num_gpus, gpu_type, and optionally tenant. An empty deadline means none, an empty gpu_type any
 * type. Times are seconds of one clock with any zero.
 *
 * Jobs that differ in nothing but time and resources share a workload; speeds are known per
 * workload.
 */
#ifndef ERG_CLUSTER_JOB_TRACE_H
#define ERG_CLUSTER_JOB_TRACE_H

#include "cluster/fleet.h"

#include <stddef.h>

struct erg_trace_workload {
    char *family, *size; /* "bert", "2.6B" */
    long batch;          /* samples of an iteration, all GPUs together */
};

struct erg_trace_job {
    char *id;
    double submit_s;
    double deadline_s; /* on the same clock; INFINITY: none */
    double iterations; /* a whole number, at least 1 */
    int workload;      /* index in the trace */
    int tenant;        /* index in the trace; 0 for all where the trace names none */
    int type;          /* requested: index in the fleet; -1: any */
    int gpus;          /* requested, at least 1 */
    size_t line;       /* of the file */
};

struct erg_job_trace {
    char *path;
    struct erg_trace_job *jobs; /* in the order of the file */
    size_t count;
    struct erg_trace_workload *workloads;
    size_t workloads_count;
    char **tenants;
    size_t tenants_count;
    double first_submit_s; /* the earliest of all */
    /* How many jobs were submitted earlier than the job before them in the file, and the index of
     * the first such job. The trace is not sorted: rounds keep the file's order. */
    size_t inversions, first_inversion;
};

/* Every error names file and line. */
int erg_job_trace_load(struct erg_job_trace **trace, const char *path,
                       const struct erg_fleet *fleet, struct erg_error *err);
/* The same from memory; `name` stands for the file in messages. */
int erg_job_trace_parse(struct erg_job_trace **trace, const char *name, const char *text,
                        size_t length, const struct erg_fleet *fleet, struct erg_error *err);
void erg_job_trace_free(struct erg_job_trace *trace);

#endif
