/*
 * Kernels: time and energy of a training by kind of kernel, from traces of its GPUs; see
 * ergon-import(1).
 *
 *     const char *const files[] = {"rank-0.json.gz", "rank-1.json.gz"};
 *     struct erg_kernels *kernels;
 *     struct erg_kernels_options options = {.size = sizeof options, .files = files,
 *         .file_count = 2};
 *     if (erg_kernels_import(&kernels, &options, &err)) ...
 *     for (size_t i = 0; i < erg_kernels_gpus(kernels); i++) ...
 *     erg_kernels_free(kernels);
 *
 * Traces come from PyTorch's profiler (Kineto) or from ergon-train(1). They may be compressed by
 * gzip and larger than memory. Unknown values are NaN.
 */
#ifndef ERGON_KERNELS_H
#define ERGON_KERNELS_H

#include "ergon/error.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_kernels;

enum erg_kernel_category {
    ERG_CATEGORY_MATMUL = 0,
    ERG_CATEGORY_SEND_RECV = 1,
    ERG_CATEGORY_ALL_GATHER = 2,
    ERG_CATEGORY_REDUCE_SCATTER = 3,
    ERG_CATEGORY_ALL_REDUCE = 4,
    ERG_CATEGORY_MEMORY = 5, /* elementwise kernels, copies, fills */
    ERG_CATEGORY_LAYERNORM = 6,
    ERG_CATEGORY_OTHER = 7,
    ERG_CATEGORIES = 8
};

/* `files` and `file_count` are required. */
struct erg_kernels_options {
    size_t size;
    const char *const *files; /* traces, one of each rank */
    size_t file_count;
    const char *recording;  /* of ergon record, of the same time: gives joules. NULL: none */
    const char *categories; /* "ergon", or "charllm", the rule of a published study. NULL: ergon */
    const struct erg_watch *watch;
};

/* Fails for wrong files, with line and byte, and if the recording and a trace share no time. */
int erg_kernels_import(struct erg_kernels **kernels, const struct erg_kernels_options *options,
                       struct erg_error *err);
void erg_kernels_free(struct erg_kernels *kernels); /* NULL is fine */

/* One category on one GPU. */
struct erg_kernels_category {
    int64_t count;
    double summed_s;  /* of all its kernels, on all streams */
    double exposed_s; /* while one of them runs; communication and copies count only while no
                       * kernel computes */
    double wait_s;    /* part of summed_s in which exchanges wait for their last peer */
    double energy_j;  /* of exposed_s */
};

/* One GPU of one file. window_s = compute_s + exposed_s + idle_s. Texts live as long as the
 * answer. */
struct erg_kernels_gpu {
    size_t size;
    const char *file;
    int32_t rank, device;
    double window_s;  /* from the first kernel to the end of the last */
    double compute_s; /* a kernel computes */
    double exposed_s; /* only communication or copies run */
    double idle_s;
    double energy_j, idle_energy_j;                       /* of the window; of idle_s */
    struct erg_kernels_category category[ERG_CATEGORIES]; /* by enum erg_kernel_category */
};

size_t erg_kernels_gpus(const struct erg_kernels *kernels);
/* Index from 0, in the order of files and devices. */
int erg_kernels_gpu(const struct erg_kernels *kernels, size_t index, struct erg_kernels_gpu *gpu,
                    struct erg_error *err);

/* "MatMul"; NULL: there is no such category. */
const char *erg_kernels_category_name(int category);

/* The answer with sub-categories as JSON, which lives as long as the answer. */
const char *erg_kernels_json(const struct erg_kernels *kernels);

/* For people, and a row of CSV for each category of each GPU, as ergon import(1) prints
 * them, with the same lifetime. NULL: out of memory. */
const char *erg_kernels_text(const struct erg_kernels *kernels);
const char *erg_kernels_csv(const struct erg_kernels *kernels);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
