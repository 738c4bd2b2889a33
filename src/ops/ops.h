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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Embedding, split over the vocabulary: this rank holds the rows of the ids [first, first + rows).
 * Tokens of other ranks get zeros, so that the sum over ranks is the embedding. The gradient adds
 * to d_table [rows, hidden]; `order` lists the tokens by id, equal ids by position
 * (erg_ops_embedding_order), which fixes the order of the sums on any device.
 */
void erg_ops_embedding_forward(size_t tokens, size_t hidden, size_t first, size_t rows,
                               const int32_t *ids, const erg_bf16 *table, erg_bf16 *out);
void erg_ops_embedding_order(size_t tokens, const int32_t *ids, int32_t *order);
void erg_ops_embedding_backward(size_t tokens, size_t hidden, size_t first, size_t rows,
                                const int32_t *ids, const int32_t *order, const erg_bf16 *d_out,
                                float *d_table);

/* Residual add alone, forward; and of two gradients at a fork, backward. out may be a or b. */
void erg_ops_add(size_t count, const erg_bf16 *a, const erg_bf16 *b, erg_bf16 *out);

/* to += x in `runs` runs of `count` elements, each so many elements further than the one before. */
void erg_ops_add_runs(size_t runs, size_t count, const erg_bf16 *x, size_t x_stride, erg_bf16 *to,
                      size_t to_stride);

/*
 * Residual add and RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) in one pass:
 *     sum = residual + x,  out = sum / rms(sum) x weight,  rms(v) = sqrt(mean(v^2) + eps)
 * with sum rounded to bf16 before it is normalised. sum may be residual or x. With x = NULL only
 * the norm of residual, and sum is not written. inv_rms [tokens] is kept for the backward pass.
 *
 * Backward: d_in = d_sum + (gradient through the norm), the gradient of residual and of x alike.
 * d_sum is what reached the sum by other ways, NULL for nothing. d_in may be d_sum or d_out.
 */
void erg_ops_norm_forward(size_t tokens, size_t hidden, float eps, const erg_bf16 *residual,
                          const erg_bf16 *x, const erg_bf16 *weight, erg_bf16 *sum, erg_bf16 *out,
                          float *inv_rms);
void erg_ops_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                           const erg_bf16 *weight, const float *inv_rms, const erg_bf16 *d_out,
                           const erg_bf16 *d_sum, erg_bf16 *d_in, float *d_weight);

/*
 * A row of the fused QKV projection: query_heads heads of queries, kv_heads of keys, kv_heads of
 * values, head_dim elements each. `sequence` local tokens make one sequence.
 */
struct erg_ops_qkv {
    size_t tokens, sequence, query_heads, kv_heads, head_dim;
};

static inline size_t erg_ops_qkv_row(const struct erg_ops_qkv *shape)
{
    return (shape->query_heads + 2 * shape->kv_heads) * shape->head_dim;
}

/*
 * Rotary embedding (Su et al. 2021, arXiv 2104.09864; halves of a head are paired, as in the
 * published Llama weights): element i < d/2 and element i + d/2 turn by
 * position x theta^(-2i/d). table [count, d/2, 2] holds cos and sin of the token at each place of a
 * sequence; positions NULL stands for 0, 1, 2, ….
 */
void erg_ops_rope_table(size_t count, const int32_t *positions, size_t head_dim, double theta,
                        float *table);

/*
 * What follows the QKV projection: RMSNorm of each head of queries and keys with the weights
 * q_weight, k_weight [head_dim] (both NULL: none), then the rotation. out has `out_row` elements a
 * row, queries then keys; it may be qkv itself (out_row = erg_ops_qkv_row()) where there is no
 * norm. With a norm the backward pass needs qkv, so out is another buffer. Values are not touched.
 *
 * Backward: d_rotated has the gradients of the rotated queries and keys, in rows like those of
 * d_qkv, and may be d_qkv itself. Without a norm qkv and the last two arguments are not looked at.
 */
void erg_ops_rope_forward(const struct erg_ops_qkv *shape, float eps, const erg_bf16 *q_weight,
                          const erg_bf16 *k_weight, const float *table, const erg_bf16 *qkv,
                          erg_bf16 *out, size_t out_row);
void erg_ops_rope_backward(const struct erg_ops_qkv *shape, float eps, const erg_bf16 *q_weight,
                           const erg_bf16 *k_weight, const float *table, const erg_bf16 *qkv,
                           const erg_bf16 *d_rotated, erg_bf16 *d_qkv, float *d_q_weight,
                           float *d_k_weight);

/*
 * Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245), scores scaled by 1/sqrt(d):
 * query head h reads key head h / (query_heads / kv_heads). Tokens of q are [batch, queries], of k
 * and v [batch, keys]; a token's heads lie together, tokens are q_row, k_row, … elements apart, so
 * that all may be slices of packed rows. `causal`: the queries are the last of the keys' tokens,
 * query i sees the keys up to i + keys - queries. stats
 * [batch, query_heads, queries]: natural log of the sum of exp of a query's scores.
 */
struct erg_ops_attention {
    size_t batch, queries, keys, query_heads, kv_heads, head_dim;
    size_t q_row, k_row, v_row, out_row;
    bool causal;
};

void erg_ops_attention_forward(const struct erg_ops_attention *shape, const erg_bf16 *q,
                               const erg_bf16 *k, const erg_bf16 *v, erg_bf16 *out, float *stats);
/* Gradients lie as what they belong to: d_q in rows of q_row, … */
void erg_ops_attention_backward(const struct erg_ops_attention *shape, const erg_bf16 *q,
                                const erg_bf16 *k, const erg_bf16 *v, const erg_bf16 *out,
                                const float *stats, const erg_bf16 *d_out, erg_bf16 *d_q,
                                erg_bf16 *d_k, erg_bf16 *d_v);

/*
 * Linear: y [tokens, outputs] = x [tokens, inputs] times the transpose of weight [outputs, inputs].
 */
void erg_ops_linear_forward(size_t tokens, size_t inputs, size_t outputs, const erg_bf16 *x,
                            const erg_bf16 *weight, erg_bf16 *y);
void erg_ops_linear_input_gradient(size_t tokens, size_t inputs, size_t outputs,
                                   const erg_bf16 *d_y, const erg_bf16 *weight, erg_bf16 *d_x);
void erg_ops_linear_weight_gradient(size_t tokens, size_t inputs, size_t outputs, const erg_bf16 *x,
                                    const erg_bf16 *d_y, float *d_weight);

/*
 * SwiGLU (Shazeer 2020, arXiv 2002.05202): out = silu(gate) x up. gate_up [tokens, 2 width] holds
 * gate, then up; out [tokens, width]. Backward: d_gate_up may be gate_up itself.
 */
void erg_ops_swiglu_forward(size_t tokens, size_t width, const erg_bf16 *gate_up, erg_bf16 *out);
void erg_ops_swiglu_backward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                             const erg_bf16 *d_out, erg_bf16 *d_gate_up);

/*
 * Cross entropy of logits split over the vocabulary: this rank holds the columns
 * [first, first + columns) of each row. Three steps, with an exchange of stats between the first
 * two:
 *   1. stats [tokens, 3]: largest local logit, sum of exp(logit - largest), and the target's
 *      logit, or -inf where another rank has it;
 *   2. from the stats of all ranks [ranks, tokens, 3]: log_sum [tokens], the log of the sum of
 *      exp over the whole row, and *loss += scale x sum over tokens of (log_sum - target's logit);
 *   3. logits become their gradients, scale x (softmax - 1 at the target).
 * With scale = 1 / (tokens of the batch) the loss is the mean. A negative target counts for
 * nothing: no loss and no gradient.
 */
void erg_ops_loss_stats(size_t tokens, size_t columns, size_t first, const int32_t *targets,
                        const erg_bf16 *logits, float *stats);
void erg_ops_loss_combine(size_t tokens, size_t ranks, const int32_t *targets, const float *stats,
                          float scale, float *log_sum, float *loss);
void erg_ops_loss_backward(size_t tokens, size_t columns, size_t first, const int32_t *targets,
                           const float *log_sum, float scale, erg_bf16 *logits);

#endif
