/*
 * Random numbers on the GPU: first weights, and data to measure with (zeros draw less power).
 */
#ifndef ERG_CUDA_KERNELS_RANDOM_H
#define ERG_CUDA_KERNELS_RANDOM_H

#include "ergon/error.h"
#include "ops/bf16.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* out[i] is normal with this mean and standard deviation, a function of seed and i alone. */
int erg_cuda_random_normal(size_t count, float mean, float sd, uint64_t seed, erg_bf16 *out,
                           struct CUstream_st *stream, struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
