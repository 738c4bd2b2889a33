/*
 * Ops: reference implementations of a transformer's operations, forward and backward, in plain C.
 *
 * These functions define the operations; the kernels of a device (device/cuda/kernels.h,
 * device/cuda/gemm.h, …) have the same arguments and agree with them within the rounding of bf16.
 * Tensors are dense and row-major, with a row per token where not stated otherwise; sums and
 * intermediate values are float. Gradients of weights are float and accumulate over microbatches;
 * all other outputs are overwritten. `tokens` is the local number of tokens, sequences one after
 * the other. Arguments are not checked, and no function fails.
 *
 * The elements of tensors are bf16 in erg_ops_NAME() and float in erg_ops32_NAME(): operations.h
 * declares both. Operations without elements are here.
 */
#ifndef ERG_OPS_H
#define ERG_OPS_H

#include "ops/bf16.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_rope;

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
 * Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245), scores scaled by 1/sqrt(d):
 * query head h reads key head h / (query_heads / kv_heads). Tokens of q are [batch, queries], of k
 * and v [batch, keys]; a token's heads lie together, tokens are q_row, k_row, … elements apart, so
 * that all may be slices of packed rows. `causal`: the queries are the last of the keys' tokens,
 * query i sees the keys up to i + keys - queries.
 */
struct erg_ops_attention {
    size_t batch, queries, keys, query_heads, kv_heads, head_dim;
    size_t q_row, k_row, v_row, out_row;
    bool causal;
};

/* The scalars of one update of weights, in memory of the device: they change from step to step. */
struct erg_ops_update {
    float rate, decay; /* of learning; of weights, to be multiplied by the rate */
    float beta1, beta2, eps;
    float correction1, correction2; /* 1 - beta1^t and sqrt(1 - beta2^t) of update t = 1, 2, … */
    float factor;                   /* of the gradient: below 1 where its norm is clipped */
};

#define erg_element erg_bf16
#define ERG_OPS(name) erg_ops_##name
#include "ops/operations.h"
#undef erg_element
#undef ERG_OPS
#define erg_element float
#define ERG_OPS(name) erg_ops32_##name
#include "ops/operations.h"
#undef erg_element
#undef ERG_OPS

/* The tokens by id, equal ids by position, for embedding_backward(). */
void erg_ops_embedding_order(size_t tokens, const int32_t *ids, int32_t *order);

/*
 * Rotary embedding (Su et al. 2021, arXiv 2104.09864; halves of a head are paired, as in the
 * published Llama weights): element i < d/2 and element i + d/2 turn by position x frequency i,
 * theta^(-2i/d), which `rope` (model/model.h; NULL: unscaled) scales: linearly, or as Llama 3 does.
 * Other scalings are ignored here: a caller that needs exact numbers must refuse them. table
 * [count, d/2, 2] holds cos and sin of the token at each place of a sequence; positions NULL stands
 * for 0, 1, 2, ….
 */
void erg_ops_rope_table(size_t count, const int32_t *positions, size_t head_dim, double theta,
                        const struct erg_rope *rope, float *table);

/*
 * From the stats of all ranks [ranks, tokens, 3] (loss_stats()): log_sum [tokens], the log of the
 * sum of exp over the whole row, and *loss += *scale x sum over tokens of (log_sum - target's
 * logit).
 */
void erg_ops_loss_combine(size_t tokens, size_t ranks, const int32_t *targets, const float *stats,
                          const float *scale, float *log_sum, float *loss);

/* *sum += the sum of squares. */
void erg_ops_squares(size_t count, const float *gradient, double *sum);

#endif
