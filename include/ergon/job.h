/*
 * Jobs: what to train and on what, read from a job file; docs/formats/job.md describes every key.
 *
 *     struct erg_job *job = NULL;
 *     if (erg_job_open(&job, "job.yaml", &err) || erg_job_set(&job, "microbatches", "16", &err))
 *         ...
 *     erg_job_free(job);
 *
 * An open job is checked: its model, GPUs, software and engine exist, and keys that do not depend
 * on the layout are consistent. erg_job_check() and erg_optimize_job() also check its own layout;
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

/* Limits on a job: microbatches per data rank, and sequences of an iteration over all data ranks.
 * They are more than any real run needs. */
enum { ERG_JOB_MOST_MICROBATCHES = 10000, ERG_JOB_MOST_BATCH = 100000 };

/*
 * Reads a job file, or its text. With a text, `name` is used as its path: relative paths start at
 * its folder. The message of ERG_FAILED names the line, the key, what is wrong and what was
 * expected.
 */
int erg_job_open(struct erg_job **job, const char *path, struct erg_error *err);
int erg_job_open_text(struct erg_job **job, const char *name, const char *text, size_t length,
                      struct erg_error *err);
void erg_job_free(struct erg_job *job); /* NULL is fine */

/*
 * Sets a key, such as "microbatches" or "cluster.nodes", to one YAML value on one line:
 * 16, [14, 14], "a: text". The job is read again, and *job is replaced. A failure leaves it
 * unchanged.
 */
int erg_job_set(struct erg_job **job, const char *key, const char *value, struct erg_error *err);

/* A sentence that gives ergon's key for an option of other software, such as "zero_stage"; NULL:
 * unknown here. */
const char *erg_job_own_name(const char *key);

/* Fails if the job cannot run as it is: its layout must suit the model, the cluster and the GPUs of
 * each stage. Memory is not checked: see erg_memory_find(). */
int erg_job_check(const struct erg_job *job, struct erg_error *err);

/* The file's text, with all keys that were set. It lives as long as the job. */
const char *erg_job_text(const struct erg_job *job);

/* Texts live as long as the job. Structs begin with their size: see ergon/watch.h. */
struct erg_job_info {
    size_t size;
    const char *name, *model;
    const char *gpu;       /* of the first kind of nodes */
    const char *stack;     /* software stack */
    const char *engine;    /* NULL: none is named */
    const char *recompute; /* "none", "norms", "activation", "balanced", "full"; "stages": they
                            * differ */
    int64_t gpus;          /* of the cluster, all kinds */
    int64_t kinds;         /* number of GPU kinds */
    /* The job's own layout. A degree that the file leaves open reads 1 (`data` may follow from
     * train.batch); open microbatch numbers follow from train.batch. */
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
