/* Kernels that fill tensors with seeded random numbers. */
#include "device/cuda/kernels.h"

#include "device/cuda/cuda_internal.h"

#include <cuda_bf16.h>

/* A bijection that mixes all bits (the finaliser of SplitMix64, Steele et al. 2014). */
static __device__ uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static __global__ void fill_normal(size_t count, float mean, float sd, uint64_t seed,
                                   __nv_bfloat16 *out)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint64_t bits = mix(seed ^ mix(i));
        float u = ((uint32_t)(bits >> 32) + 0.5f) * 0x1p-32f, v = (uint32_t)bits * 0x1p-32f;
        out[i] = __float2bfloat16(mean + sd * sqrtf(-2 * logf(u)) * cospif(2 * v));
    }
}

int erg_cuda_random_normal(size_t count, float mean, float sd, uint64_t seed, erg_bf16 *out,
                           struct CUstream_st *stream, struct erg_error *err)
{
    fill_normal<<<1024, 256, 0, stream>>>(count, mean, sd, seed, (__nv_bfloat16 *)out);
    return erg_cuda_check_launch("random normal numbers", err);
}
