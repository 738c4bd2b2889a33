/*
 * Kernels: the memory-bound operations of ops/ops.h on the GPU, with the same arguments and then
 * the stream. All pointers are GPU memory, 16-byte aligned, and rows are multiples of 8 elements
 * (16 bytes); other shapes are errors.
 *
 * Each kernel reads its tensors once, 16 bytes per load, and adds in float. Results do not depend
 * on the number of free SMs or on concurrent work, bit for bit: sums over tokens (the gradients of
 * weights) and over weights have a fixed order in two stages, without atomics. Their first stage
 * writes into `scratch`, whose size a function next to the kernel returns; two streams need two.
 */
#ifndef ERG_CUDA_KERNELS_H
#define ERG_CUDA_KERNELS_H

#include "ergon/error.h"
#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

int erg_cuda_embedding_forward(size_t tokens, size_t hidden, size_t first, size_t rows,
                               const int32_t *ids, const erg_bf16 *table, erg_bf16 *out,
                               struct CUstream_st *stream, struct erg_error *err);
/* `order` is computed on the host, where the ids come from. */
int erg_cuda_embedding_backward(size_t tokens, size_t hidden, size_t first, size_t rows,
                                const int32_t *ids, const int32_t *order, const erg_bf16 *d_out,
                                float *d_table, struct CUstream_st *stream, struct erg_error *err);

int erg_cuda_position_forward(size_t tokens, size_t sequence, size_t hidden,
                              const int32_t *positions, const erg_bf16 *table, erg_bf16 *x,
                              struct CUstream_st *stream, struct erg_error *err);
int erg_cuda_position_backward(size_t tokens, size_t sequence, size_t hidden,
                               const int32_t *positions, const erg_bf16 *d_out, float *d_table,
                               struct CUstream_st *stream, struct erg_error *err);

int erg_cuda_add_bias(size_t tokens, size_t hidden, const erg_bf16 *a, const erg_bf16 *b,
                      const erg_bf16 *bias, erg_bf16 *out, struct CUstream_st *stream,
                      struct erg_error *err);

/* Up to 65535 runs. */
int erg_cuda_add_runs(size_t runs, size_t count, const erg_bf16 *x, size_t x_stride, erg_bf16 *to,
                      size_t to_stride, struct CUstream_st *stream, struct erg_error *err);

/* Norms: rows of up to 16384 elements. */
int erg_cuda_norm_forward(size_t tokens, size_t hidden, float eps, const erg_bf16 *residual,
                          const erg_bf16 *x, const erg_bf16 *x_bias, const erg_bf16 *weight,
                          erg_bf16 *sum, erg_bf16 *out, float *inv_rms, struct CUstream_st *stream,
                          struct erg_error *err);
size_t erg_cuda_norm_backward_scratch(size_t tokens, size_t hidden); /* bytes */
int erg_cuda_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                           const erg_bf16 *weight, const float *inv_rms, const erg_bf16 *d_out,
                           const erg_bf16 *d_sum, erg_bf16 *d_in, float *d_weight, void *scratch,
                           struct CUstream_st *stream, struct erg_error *err);

int erg_cuda_layer_norm_forward(size_t tokens, size_t hidden, float eps, const erg_bf16 *residual,
                                const erg_bf16 *x, const erg_bf16 *x_bias, const erg_bf16 *weight,
                                const erg_bf16 *bias, erg_bf16 *sum, erg_bf16 *out, float *stats,
                                struct CUstream_st *stream, struct erg_error *err);
size_t erg_cuda_layer_norm_backward_scratch(size_t tokens, size_t hidden);
int erg_cuda_layer_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                                 const erg_bf16 *weight, const float *stats, const erg_bf16 *d_out,
                                 const erg_bf16 *d_sum, erg_bf16 *d_in, float *d_weight,
                                 float *d_bias, void *scratch, struct CUstream_st *stream,
                                 struct erg_error *err);

size_t erg_cuda_bias_gradient_scratch(size_t tokens, size_t width);
int erg_cuda_bias_gradient(size_t tokens, size_t width, const erg_bf16 *d_y, float *d_bias,
                           void *scratch, struct CUstream_st *stream, struct erg_error *err);

/* Head dimensions are multiples of 16, at most 256. */
int erg_cuda_rope_forward(const struct erg_ops_qkv *shape, float eps, const erg_bf16 *q_weight,
                          const erg_bf16 *k_weight, const float *table, const erg_bf16 *qkv,
                          erg_bf16 *out, size_t out_row, struct CUstream_st *stream,
                          struct erg_error *err);
/* Bytes; the scratch is used only with weights. */
size_t erg_cuda_rope_backward_scratch(const struct erg_ops_qkv *shape);
int erg_cuda_rope_backward(const struct erg_ops_qkv *shape, float eps, const erg_bf16 *q_weight,
                           const erg_bf16 *k_weight, const float *table, const erg_bf16 *qkv,
                           const erg_bf16 *d_rotated, erg_bf16 *d_qkv, float *d_q_weight,
                           float *d_k_weight, void *scratch, struct CUstream_st *stream,
                           struct erg_error *err);

int erg_cuda_swiglu_forward(size_t tokens, size_t width, const erg_bf16 *gate_up, erg_bf16 *out,
                            struct CUstream_st *stream, struct erg_error *err);
int erg_cuda_swiglu_backward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                             const erg_bf16 *d_out, erg_bf16 *d_gate_up, struct CUstream_st *stream,
                             struct erg_error *err);

int erg_cuda_gelu_forward(size_t tokens, size_t width, bool tanh_form, const erg_bf16 *x,
                          erg_bf16 *out, struct CUstream_st *stream, struct erg_error *err);
size_t erg_cuda_gelu_backward_scratch(size_t tokens,
                                      size_t width); /* bytes; for the gradient of a bias */
/* d_bias: of the bias before GELU; NULL: no bias. */
int erg_cuda_gelu_backward(size_t tokens, size_t width, bool tanh_form, const erg_bf16 *x,
                           const erg_bf16 *d_out, erg_bf16 *d_x, float *d_bias, void *scratch,
                           struct CUstream_st *stream, struct erg_error *err);

int erg_cuda_loss_stats(size_t tokens, size_t columns, size_t valid, size_t first,
                        const int32_t *targets, const erg_bf16 *logits, float *stats,
                        struct CUstream_st *stream, struct erg_error *err);
int erg_cuda_loss_combine(size_t tokens, size_t ranks, const int32_t *targets, const float *stats,
                          const float *scale, float *log_sum, float *loss,
                          struct CUstream_st *stream, struct erg_error *err);
int erg_cuda_loss_backward(size_t tokens, size_t columns, size_t valid, size_t first,
                           const int32_t *targets, const float *log_sum, const float *scale,
                           erg_bf16 *logits, struct CUstream_st *stream, struct erg_error *err);

/* Counts of weights are multiples of 8. */
int erg_cuda_adamw(size_t count, bool decays, const struct erg_ops_update *update,
                   const float *gradient, float *master, float *m, float *v, erg_bf16 *weight,
                   struct CUstream_st *stream, struct erg_error *err);
size_t erg_cuda_squares_scratch(size_t count);
int erg_cuda_squares(size_t count, const float *gradient, double *sum, void *scratch,
                     struct CUstream_st *stream, struct erg_error *err);
int erg_cuda_to_element(size_t count, const float *from, erg_bf16 *to, struct CUstream_st *stream,
                        struct erg_error *err);

/*
 * Random numbers for initial weights and for data of measurements (zeros draw less power). out[i]
 * is normal with this mean and standard deviation, a function of seed and i alone.
 */
int erg_cuda_random_normal(size_t count, float mean, float sd, uint64_t seed, erg_bf16 *out,
                           struct CUstream_st *stream, struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
