/*
 * Kernels: the memory-bound operations of ops/ops.h on the GPU, with the same arguments and then
 * the stream. All pointers are GPU memory, 16-byte aligned, and rows are multiples of 8 elements
 * (16 bytes); a shape that breaks this is refused with a sentence.
 *
 * Each kernel passes once over its tensors, 16 bytes a load, and adds in float. Results do not
 * depend on the number of free SMs or on what runs beside, bit for bit: sums over tokens (the
 * gradients of weights) have a fixed order in two stages, without atomics. Their first stage
 * writes into `scratch`, whose size a function beside the kernel says; two streams need two.
 */
#ifndef ERG_CUDA_KERNELS_H
#define ERG_CUDA_KERNELS_H

#include "ergon/error.h"
#include "ops/bf16.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

int erg_cuda_swiglu_forward(size_t tokens, size_t width, const erg_bf16 *gate_up, erg_bf16 *out,
                            struct CUstream_st *stream, struct erg_error *err);
int erg_cuda_swiglu_backward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                             const erg_bf16 *d_out, erg_bf16 *d_gate_up, struct CUstream_st *stream,
                             struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
