/*
 * Logs of other clusters as traces. The columns of a file determine its layout:
 *
 *   Philly   JSON: an array of jobs with vc, submitted_time and attempts (start_time, end_time,
 *            detail with the GPUs of each machine). Microsoft, Jeon et al., ATC 2019. A job's
 *            run is the sum of all its attempts, its GPUs are those of the largest. Times are
 *            US Pacific time.
 *   Helios   job_id, vc, gpu_num, submit_time, duration. SenseTime, Hu et al., SC 2021.
 *   Acme     the same without vc: tenants are users. Shanghai AI Lab, Hu et al., NSDI '24.
 *   PAI      job_name, inst_num, start_time, end_time, plan_gpu, gpu_type: the task table with
 *            its header line. Alibaba, Weng et al., NSDI '22. Tasks of one job are added up;
 *            it arrives when the first starts; plan_gpu is per cent of a GPU, rounded up.
 *   Pollux   name, time, application, num_replicas, batch_size, and optionally duration. Qiao
 *            et al., OSDI 2021; Sia's are alike. Without a duration, the GPU-hours of an
 *            application are drawn, uniform in their logarithm, from its class in that paper's
 *            table 1: small 0.1 to 1, medium 1 to 10, large 10 to 100, extra-large 100 to 1000.
 *   Arena    job_id, submission_time, num_iteration, model_name (FAMILY__SIZE), deadline,
 *            batch_size, num_gpu, gpu_type: the artifact's own.
 *
 * Values that a log lacks are drawn for each job, from the seed and the job's name alone. A job's
 * GPU type is the log's if the fleet has a type with that name (case-insensitive), else one drawn
 * by the numbers of GPUs. It requests the largest number of GPUs in the profiles that is not above
 * the log's. Its model is the log's if the profiles contain it, with any size and batch if the log
 * has no size; else any model that can run on those GPUs, with equal probability. Its iterations
 * are those that fit into its run. Time begins with the first job. Failed and cancelled jobs are
 * kept, since they used GPUs, too.
 *
 * Jobs that requested no GPUs, never ran, still ran when the log ended (their last attempt, or one
 * of their tasks, has no end), or are invalid (numbers below 0, an end before the start, a
 * duplicate name, too few fields, a model that the profiles lack if only they give its run time)
 * are left out and counted. An invalid attempt or task is left out of its job.
 */
#ifndef ERG_CLUSTER_TRACES_IMPORT_H
#define ERG_CLUSTER_TRACES_IMPORT_H

#include "cluster/traces/maker.h"

#include <stdint.h>

struct erg_trace_import {
    const char *layout;                               /* "Helios" */
    size_t jobs;                                      /* that the trace has */
    size_t without_gpus, never_ran, still_ran, wrong; /* left out */
    size_t with_wrong_part;         /* jobs kept, except for a task or an attempt */
    struct erg_error first_wrong;   /* the error of the first of both; empty: none */
    size_t resized;                 /* request another number of GPUs than in the log */
    size_t given_model, given_type; /* drawn */
};

/* Fills an empty maker. Errors name file and line (Philly: the entry). A log without a usable job
 * is an error. */
int erg_trace_import(struct erg_trace_import *import, struct erg_trace_maker *maker,
                     const char *path, uint64_t seed, struct erg_error *err);
/* The same from memory; `name` stands for the file in messages. */
int erg_trace_import_text(struct erg_trace_import *import, struct erg_trace_maker *maker,
                          const char *name, const char *text, size_t length, uint64_t seed,
                          struct erg_error *err);

#endif
