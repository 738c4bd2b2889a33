/*
 * Jobs: what to train and on what, as a job file says it; examples/quickstart.yaml explains every
 * key.
 *
 *     struct erg_job *job;
 *     if (erg_job_open(&job, "job.yaml", &err) || erg_job_set(&job, "microbatches", "16", &err))
 * ... erg_job_free(job);
 *
 * A job that is open is checked: its model, GPUs, software and engine are there, and its keys go
 * together. Whether its own layout fits the GPUs of its cluster is another matter, which
 * erg_job_check() and erg_optimize_job() look at: erg_memory_find() and erg_layouts_find() ask
 * about other layouts. A job is used by one thread at a time where one of them sets keys, else by
 * any.
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
 * A job file, or its text; `name` stands for its path then, from whose folder relative paths are.
 * ERG_FAILED has the line, the key, what is wrong and what was expected.
 */
int erg_job_open(struct erg_job **job, const char *path, struct erg_error *err);
int erg_job_open_text(struct erg_job **job, const char *name, const char *text, size_t length,
                      struct erg_error *err);
void erg_job_free(struct erg_job *job); /* NULL is fine */

/*
 * Sets a key, such as "microbatches" or "cluster.nodes", to one YAML value on one line: 16, [14,
 * 14], "a: text". The job is then read anew, and *job is another one. A failure leaves it as it
 * was.
 */
int erg_job_set(struct erg_job **job, const char *key, const char *value, struct erg_error *err);

/* A sentence that says what ergon calls what other software has under this key, such as
 * "zero_stage"; NULL: it is the name of nothing else. */
const char *erg_job_own_name(const char *key);

/* Whether the job can run as it is: its layout fits the model, the cluster and the GPUs of each
 * stage. Memory is not looked at. */
int erg_job_check(const struct erg_job *job, struct erg_error *err);

/* The file's text, with all keys that were set. Lives as long as the job. */
const char *erg_job_text(const struct erg_job *job);

/* Texts live as long as the job. Of the job's own layout are the degrees. */
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
    double offload; /* share of the activations, 0 to 1; the most of any stage */
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
