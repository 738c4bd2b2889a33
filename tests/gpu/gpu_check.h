/*
 * What every GPU test includes. These programs need nothing but the driver and the C library, so
 * that they can be carried to a machine with GPUs; they exit with 77 (skipped) where there is none.
 * Checks count failures and go on, so that one run on a rented GPU tells everything.
 */
#ifndef ERGON_GPU_CHECK_H
#define ERGON_GPU_CHECK_H

#include "base/memory.h"
#include "base/random.h"
#include "device/cuda/cuda.h"
#include "ops/bf16.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPU_SKIPPED = 77 };

static int gpu_failures;
static struct erg_error gpu_error; /* for gpu_ok() */

/* A call, ending in &gpu_error, that must succeed; nothing after it makes sense otherwise. */
#define gpu_ok(call)                                                                               \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            printf("%s:%d: %s\n", __FILE__, __LINE__, gpu_error.message);                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Opens the first GPU, or leaves the program as skipped. */
static inline struct erg_cuda gpu_open(void)
{
    struct erg_cuda cuda;
    int count = 0;
    if (erg_cuda_count(&count, &gpu_error) || count == 0) {
        printf("skipped: no GPU here (%s)\n", gpu_error.message);
        exit(GPU_SKIPPED);
    }
    gpu_ok(erg_cuda_init(&cuda, 0, &gpu_error));
    printf("%s, %d SMs, capability %d\n", cuda.name, cuda.sms, cuda.capability);
    return cuda;
}

static inline void *gpu_alloc(size_t bytes)
{
    void *memory;
    gpu_ok(erg_cuda_alloc(&memory, bytes, &gpu_error));
    /* NaN in bf16 and in float: what nobody wrote does not look right by chance. */
    gpu_ok(erg_cuda_fill(memory, 0xff, bytes, NULL, &gpu_error));
    return memory;
}

static inline void *gpu_upload(const void *host, size_t bytes)
{
    void *memory = gpu_alloc(bytes);
    gpu_ok(erg_cuda_copy(memory, host, bytes, NULL, &gpu_error));
    return memory;
}

/* Waits for the GPU; the caller frees. */
static inline void *gpu_download(const void *memory, size_t bytes)
{
    void *host = erg_xmalloc(bytes);
    gpu_ok(erg_cuda_copy(host, memory, bytes, NULL, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    return host;
}

/* Normal numbers of standard deviation `scale`. */
static inline erg_bf16 *gpu_random(struct erg_rng *rng, size_t count, double scale)
{
    erg_bf16 *values = erg_xcalloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = erg_bf16_round((float)(scale * erg_rng_normal(rng)));
    return values;
}

static inline float gpu_read(const void *values, size_t i, bool bf16)
{
    return bf16 ? erg_bf16_float(((const erg_bf16 *)values)[i]) : ((const float *)values)[i];
}

/*
 * Compares `count` numbers on the GPU with those expected, on the host: each must be within
 * `relative` of itself plus `absolute`. One line per tensor; the first bad element is named.
 */
static inline void gpu_near(const char *what, const void *memory, const void *expected,
                            size_t count, bool bf16, double relative, double absolute)
{
    void *actual = gpu_download(memory, count * (bf16 ? sizeof(erg_bf16) : sizeof(float)));
    size_t bad = 0, first = 0;
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double want = gpu_read(expected, i, bf16), got = gpu_read(actual, i, bf16);
        double allowed = relative * fabs(want) + absolute;
        if (!(fabs(got - want) <= allowed) && bad++ == 0)
            first = i;
        worst = fmax(worst, fabs(got - want) / allowed);
    }
    if (bad) {
        printf("FAILED %s: %zu of %zu differ, the first at %zu: %.9g, expected %.9g\n", what, bad,
               count, first, gpu_read(actual, first, bf16), gpu_read(expected, first, bf16));
        gpu_failures++;
    } else {
        printf("ok     %s: at worst %.0f%% of what is allowed\n", what, 100 * worst);
    }
    free(actual);
}

/* bf16 tensors: two roundings apart at most, and sums of different order where they cancel. */
static inline void gpu_near_bf16(const char *what, const void *memory, const erg_bf16 *expected,
                                 size_t count, double absolute)
{
    gpu_near(what, memory, expected, count, true, 1.0 / 64, absolute);
}

static inline void gpu_near_float(const char *what, const void *memory, const float *expected,
                                  size_t count, double absolute)
{
    gpu_near(what, memory, expected, count, false, 1e-4, absolute);
}

static inline int gpu_result(void)
{
    if (gpu_failures)
        printf("%d checks failed\n", gpu_failures);
    return gpu_failures != 0;
}

#endif
