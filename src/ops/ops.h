/*
 * Ops: what each operation of a transformer computes, forward and backward, in plain C.
 *
 * These functions define the operations; the kernels of a device (device/cuda/kernels.h,
 * device/cuda/gemm.h, …) have the same arguments and agree with them within the rounding of bf16.
 * Tensors are bf16, dense and row-major, with a row per token unless said otherwise; sums and
 * everything in between is float. Gradients of weights are float and are added to what is there,
 * so that microbatches accumulate; all other outputs are overwritten. `tokens` is the local number
 * of tokens, sequences one after the other. Arguments are the caller's promise, nothing can fail.
 */
#ifndef ERG_OPS_H
#define ERG_OPS_H

#include "ops/bf16.h"

#include <stddef.h>

/*
 * SwiGLU (Shazeer 2020, arXiv 2002.05202): out = silu(gate) x up. gate_up [tokens, 2 width] holds
 * gate, then up; out [tokens, width]. Backward: d_gate_up may be gate_up itself.
 */
void erg_ops_swiglu_forward(size_t tokens, size_t width, const erg_bf16 *gate_up, erg_bf16 *out);
void erg_ops_swiglu_backward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                             const erg_bf16 *d_out, erg_bf16 *d_gate_up);

#endif
