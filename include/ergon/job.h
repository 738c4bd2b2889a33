/*
 * Jobs: what to train and on what, read from a job file; docs/formats/job.md describes every key.
 *
 *     struct erg_job *job;
 *     if (erg_job_open(&job, "job.yaml", &err) || erg_job_set(&job, "microbatches", "16", &err))
 *         ...
 *     erg_job_free(job);
 *
 * An open job is checked: its model, GPUs, software and engine exist, and its keys are consistent.
 * erg_job_check() and erg_optimize_job() also check that its own layout fills its cluster;
 * erg_memory_find() and erg_layouts_find() do not, because they may be asked about other layouts.
 * While one thread sets keys, no other may use the job; otherwise any number may.
 */
#ifndef ERGON_JOB_H
#define ERGON_JOB_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_job;

/* The largest iteration that is planned: beyond any training, and planned within seconds. */
enum { ERG_JOB_MOST_MICROBATCHES = 10000, ERG_JOB_MOST_BATCH = 100000 };

/*
 * Reads a job file, or its text; `name` then stands for its path, to whose folder relative paths
 * refer. The message of ERG_FAILED names the line, the key, what is wrong and what was expected.
 */
int erg_job_open(struct erg_job **job, const char *path, struct erg_error *err);
int erg_job_open_text(struct erg_job **job, const char *name, const char *text, size_t length,
                      struct erg_error *err);
void erg_job_free(struct erg_job *job); /* NULL is fine */

/*
 * Sets a key, such as "microbatches" or "cluster.nodes", to one YAML value on one line: 16, [14,
 * 14], "a: text". The job is read again, and *job is replaced. A failure leaves it unchanged.
 */
int erg_job_set(struct erg_job **job, const char *key, const char *value, struct erg_error *err);

/* A sentence with ergon's name for a key of other software, such as "zero_stage"; NULL: ergon has
 * no other name for it. */
const char *erg_job_own_name(const char *key);

/* Fails if the job cannot run as it is: its layout must suit the model, the cluster and the GPUs of
 * each stage. Memory is not checked: see erg_memory_find(). */
int erg_job_check(const struct erg_job *job, struct erg_error *err);

/* The file's text, with all keys that were set. It lives as long as the job. */
const char *erg_job_text(const struct erg_job *job);

/* Texts live as long as the job. The degrees are those of the job's own layout. */
struct erg_job_info {
    size_t size;
    const char *name, *model;
    const char *gpu; /* of the cluster's own nodes */
    const char *stack;
    const char *engine;    /* NULL: none is named */
    const char *recompute; /* "none", "norms", "activation", "balanced", "full"; "stages": they
                            * differ */
    int64_t gpus;          /* of the cluster, all kinds */
    int64_t kinds;         /* of GPUs */
    int64_t tensor, context, pipeline, data, virtual_stages;
    int64_t microbatch_size, microbatches, sequence;
    int64_t batch;  /* sequences of an iteration */
    double offload; /* share of the activations, 0 to 1; the highest of any stage */
    int64_t expert; /* data ranks that experts are spread over; 1: all are on each */
};
int erg_job_info(const struct erg_job *job, struct erg_job_info *info, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
