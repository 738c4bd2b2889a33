/*
 * Logs of other clusters as traces. Which layout a file has, its columns say:
 *
 *   Philly     JSON: an array of jobs with vc, submitted_time and attempts (start_time, end_time,
 *              detail with the GPUs of each machine). Microsoft, Jeon et al., ATC 2019. A job's run
 *              is that of all its attempts together, its GPUs those of the largest. Times are of
 *              the Pacific coast's clock.
 *   Helios     job_id, vc, gpu_num, submit_time, duration. SenseTime, Hu et al., SC 2021.
 *   Acme       the same without vc: tenants are users. Shanghai AI Laboratory, Hu et al., NSDI
 * 2024. PAI        job_name, inst_num, start_time, end_time, plan_gpu, gpu_type: the task table,
 * with its header line. Alibaba, Weng et al., NSDI 2022. Tasks of one job are added up; it comes
 * when the first starts; plan_gpu is per cent of a GPU, rounded up. Pollux     name, time,
 * application, num_replicas, batch_size, and maybe duration. Qiao et al., OSDI 2021; Sia's are
 * alike. Where there is no duration, the GPU-hours of an application are drawn, uniform in their
 * logarithm, from its class in that paper's table 1: small 0.1 to 1, medium 1 to 10, large 10 to
 * 100, extra-large 100 to 1000. Arena      job_id, submission_time, num_iteration, model_name
 * (FAMILY__SIZE), deadline, batch_size, num_gpu, gpu_type: the artifact's own.
 *
 * What a log does not say is drawn, for each job by the seed and the job's name alone. A job's GPU
 * type is the log's, if the fleet has one of that name (in any case), else one by the number of its
 * GPUs. It asks for the largest number of GPUs not above the log's of which profiles speak. Its
 * model is the log's if profiles know it, with any size and batch where the log says no size; else
 * any that can run on those GPUs, all alike. Its iterations are those that fit into its run.
 * Time begins with the first job. Failed and cancelled jobs are taken: they held GPUs, too.
 *
 * Jobs that asked for no GPUs, never ran, still ran when the log ended (their last attempt, or a
 * task of theirs, has no end), or are wrong (numbers below 0, an end before the start, a name that
 * another has, too few fields, a model that profiles do not know where only they tell how long it
 * runs) are left out and counted. An attempt or a task that is wrong is left out of its job.
 */
#ifndef ERG_CLUSTER_TRACES_IMPORT_H
#define ERG_CLUSTER_TRACES_IMPORT_H

#include "cluster/traces/maker.h"

#include <stdint.h>

struct erg_trace_import {
    const char *layout;                               /* "Helios" */
    size_t jobs;                                      /* that the trace has */
    size_t without_gpus, never_ran, still_ran, wrong; /* left out */
    size_t with_wrong_part;         /* not left out: but for a task or an attempt */
    struct erg_error first_wrong;   /* what is wrong with the first of both; empty: none */
    size_t resized;                 /* ask for another number of GPUs than in the log */
    size_t given_model, given_type; /* drawn */
};

/* Fills a maker that has no jobs yet. Errors name file and line (Philly: the entry). A
 * log of which no job is left is one. */
int erg_trace_import(struct erg_trace_import *import, struct erg_trace_maker *maker,
                     const char *path, uint64_t seed, struct erg_error *err);
/* The same from memory; `name` stands for the file in messages. */
int erg_trace_import_text(struct erg_trace_import *import, struct erg_trace_maker *maker,
                          const char *name, const char *text, size_t length, uint64_t seed,
                          struct erg_error *err);

#endif
