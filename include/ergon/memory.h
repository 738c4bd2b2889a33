/*
 * Memory: what each stage of a job's layout needs, and what would make it fit.
 *
 *     struct erg_memory *memory;
 *     struct erg_memory_info info = {.size = sizeof info};
 *     if (erg_memory_find(&memory, job, NULL, &err) || erg_memory_info(memory, &info, &err)) ...
 *     if (!info.fits) puts(info.change);
 *     erg_memory_free(memory);
 *
 * The simulation follows every allocation of a GPU of each stage through two iterations. A layout
 * that does not fit is an answer, not a failure. Recomputation, offloading, engine and sequence are
 * keys of the job (erg_job_set()).
 */
#ifndef ERGON_MEMORY_H
#define ERGON_MEMORY_H

#include "ergon/error.h"
#include "ergon/job.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_memory;

/* With only the size set: the job as it is. Texts need not outlive the call. */
struct erg_memory_options {
    size_t size;
    const char *layout;  /* degrees that replace the job's, such as "t=2,c=2,p=8,l=2"
                          * (ergon-layout(1)). NULL: the job's */
    int64_t gpus, batch; /* 0: those of the cluster; sequences of the job */
    /* Finds the smallest ratio of offloading that fits into these bytes, such as "64GiB", or into
     * "gpu": the memory of each stage's GPU. NULL: the ratio is the job's. */
    const char *solve_offload;
    int32_t per_stage; /* 1, with solve_offload: a ratio for each stage */
    /* "arena", "framework" or "static": bytes of tensors, of the blocks of a caching allocator, or
     * of the buffers of ergon's own training. NULL: "static" for the engine ergon, else "arena". */
    const char *accounting;
    int32_t layer_copies; /* 1: offloads layer by layer, not a chunk at once */
    const struct erg_watch *watch;
};

/* ERG_USAGE for wrong options, ERG_FAILED or ERG_INFEASIBLE for degrees that do not suit the model
 * or the cluster. `options` may be NULL. The job need not outlive the answer. */
int erg_memory_find(struct erg_memory **memory, const struct erg_job *job,
                    const struct erg_memory_options *options, struct erg_error *err);
void erg_memory_free(struct erg_memory *memory); /* NULL is fine */

/* Texts live as long as the answer. */
struct erg_memory_info {
    size_t size;
    int32_t fits;      /* 1: every stage fits into its GPUs */
    int32_t host_fits; /* 1: offloaded bytes fit into the nodes' host memory */
    int64_t stages;
    int64_t binding_stage; /* the stage whose GPUs have the least left, or lack the most */
    int64_t tensor, context, pipeline, data, virtual_stages;
    int64_t microbatch_size, microbatches, sequence;
    const char *recompute; /* "none", …; "stages" if they differ */
    double offload;        /* the highest of any stage; with solve_offload the ratio found */
    /* If it does not fit: a sentence with what is missing and the smallest change that helps; else
     * "". */
    const char *change;
    int64_t expert; /* data ranks that experts are spread over; 1: all are on each */
    int64_t fsdp;   /* ranks that share the weights; 1: they are not sharded */
};
int erg_memory_info(const struct erg_memory *memory, struct erg_memory_info *info,
                    struct erg_error *err);

/* One GPU of a stage at its peak, in bytes. The items add up to the peak. */
struct erg_memory_stage_info {
    size_t size;
    const char *gpu;
    double peak_bytes;
    double gpu_bytes; /* the memory that it has for them */
    double weights_bytes, gradients_bytes, optimizer_bytes;
    double activations_bytes; /* in flight, not offloaded */
    double other_bytes;       /* buffers, logits, messages, tensors inside a layer */
    double host_bytes;        /* host memory of one GPU */
    double offload;
    int64_t layers;
};

/* Stage from 0; ERG_USAGE beyond the last. */
int erg_memory_stage(const struct erg_memory *memory, size_t stage,
                     struct erg_memory_stage_info *info, struct erg_error *err);

/* The answer as JSON (docs/formats/memory.md), which lives as long as the answer; and as a page
 * with memory over time. */
const char *erg_memory_json(struct erg_memory *memory);
int erg_memory_write_page(const struct erg_memory *memory, const char *path, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
