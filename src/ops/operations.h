/*
 * The operations on elements, declared by ops.h once for each type: there erg_element is the type
 * and ERG_OPS() makes the name. No include guard.
 */

/*
 * Embedding, split over the vocabulary: this rank holds the rows of the ids [first, first + rows).
 * Tokens of other ranks get zeros, so that the sum over ranks is the embedding. The gradient adds
 * to d_table [rows, hidden]; `order` lists the tokens by id, equal ids by position
 * (erg_ops_embedding_order), which fixes the order of the sums on any device.
 */
void ERG_OPS(embedding_forward)(size_t tokens, size_t hidden, size_t first, size_t rows,
                                const int32_t *ids, const erg_element *table, erg_element *out);
void ERG_OPS(embedding_backward)(size_t tokens, size_t hidden, size_t first, size_t rows,
                                 const int32_t *ids, const int32_t *order, const erg_element *d_out,
                                 float *d_table);

/*
 * Learned positions: x += the table's row of each token's position. `sequence` local tokens make
 * one sequence, whose positions differ; positions NULL stands for 0, 1, 2, …. The gradient adds to
 * d_table, sequence after sequence.
 */
void ERG_OPS(position_forward)(size_t tokens, size_t sequence, size_t hidden,
                               const int32_t *positions, const erg_element *table, erg_element *x);
void ERG_OPS(position_backward)(size_t tokens, size_t sequence, size_t hidden,
                                const int32_t *positions, const erg_element *d_out, float *d_table);

/*
 * Residual add alone: a + b + bias [hidden] (NULL: none), rounded once. out may be a or b. Without
 * a bias also the sum of two gradients at a fork.
 */
void ERG_OPS(add_bias)(size_t tokens, size_t hidden, const erg_element *a, const erg_element *b,
                       const erg_element *bias, erg_element *out);

/* to += x in `runs` runs of `count` elements, each a stride of elements further than the one
 * before. */
void ERG_OPS(add_runs)(size_t runs, size_t count, const erg_element *x, size_t x_stride,
                       erg_element *to, size_t to_stride);

/*
 * Residual add and RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) in one pass:
 *     sum = residual + x + x_bias,  out = sum / rms(sum) x weight,  rms(v) = sqrt(mean(v^2) + eps)
 * with sum rounded once before it is normalised. sum may be residual or x. x_bias [hidden] may be
 * NULL. With x = NULL only the norm of residual, and sum is not written. inv_rms [tokens] is kept
 * for the backward pass.
 *
 * Backward: d_in = d_sum + (gradient through the norm), the gradient of residual and of x alike.
 * d_sum is what reached the sum by other ways, NULL for nothing. d_in may be d_sum or d_out.
 */
void ERG_OPS(norm_forward)(size_t tokens, size_t hidden, float eps, const erg_element *residual,
                           const erg_element *x, const erg_element *x_bias,
                           const erg_element *weight, erg_element *sum, erg_element *out,
                           float *inv_rms);
void ERG_OPS(norm_backward)(size_t tokens, size_t hidden, const erg_element *sum,
                            const erg_element *weight, const float *inv_rms,
                            const erg_element *d_out, const erg_element *d_sum, erg_element *d_in,
                            float *d_weight);

/*
 * The same with LayerNorm (Ba et al. 2016, arXiv 1607.06450):
 *     out = (sum - mean) / sqrt(variance + eps) x weight + bias, rounded once
 * with the variance over hidden elements, not one fewer. stats [tokens, 2]: the mean, and one over
 * the root.
 */
void ERG_OPS(layer_norm_forward)(size_t tokens, size_t hidden, float eps,
                                 const erg_element *residual, const erg_element *x,
                                 const erg_element *x_bias, const erg_element *weight,
                                 const erg_element *bias, erg_element *sum, erg_element *out,
                                 float *stats);
void ERG_OPS(layer_norm_backward)(size_t tokens, size_t hidden, const erg_element *sum,
                                  const erg_element *weight, const float *stats,
                                  const erg_element *d_out, const erg_element *d_sum,
                                  erg_element *d_in, float *d_weight, float *d_bias);

/*
 * The operation after the QKV projection: RMSNorm of each head of queries and keys with the weights
 * q_weight, k_weight [head_dim] (both NULL: none), then the rotation by the angles of `table`
 * (erg_ops_rope_table). out has `out_row` elements a row, queries then keys; it may be qkv itself
 * (out_row = erg_ops_qkv_row()) where there is no norm. With a norm the backward pass needs qkv, so
 * out is another buffer. Values are not touched.
 *
 * Backward: d_rotated has the gradients of the rotated queries and keys, in rows like those of
 * d_qkv, and may be d_qkv itself. Without a norm qkv and the last two arguments are not used.
 */
void ERG_OPS(rope_forward)(const struct erg_ops_qkv *shape, float eps, const erg_element *q_weight,
                           const erg_element *k_weight, const float *table, const erg_element *qkv,
                           erg_element *out, size_t out_row);
void ERG_OPS(rope_backward)(const struct erg_ops_qkv *shape, float eps, const erg_element *q_weight,
                            const erg_element *k_weight, const float *table, const erg_element *qkv,
                            const erg_element *d_rotated, erg_element *d_qkv, float *d_q_weight,
                            float *d_k_weight);

/* Gradients have the layout of their tensors: d_q in rows of q_row, … stats [batch, query_heads,
 * queries]: natural log of the sum of exp of a query's scores. */
void ERG_OPS(attention_forward)(const struct erg_ops_attention *shape, const erg_element *q,
                                const erg_element *k, const erg_element *v, erg_element *out,
                                float *stats);
void ERG_OPS(attention_backward)(const struct erg_ops_attention *shape, const erg_element *q,
                                 const erg_element *k, const erg_element *v, const erg_element *out,
                                 const float *stats, const erg_element *d_out, erg_element *d_q,
                                 erg_element *d_k, erg_element *d_v);

/*
 * Linear: y [tokens, outputs] = x [tokens, inputs] times the transpose of weight [outputs, inputs],
 * plus bias [outputs] (NULL: none), rounded once. d_bias is the sum of d_y over the tokens.
 */
void ERG_OPS(linear_forward)(size_t tokens, size_t inputs, size_t outputs, const erg_element *x,
                             const erg_element *weight, const erg_element *bias, erg_element *y);
void ERG_OPS(linear_input_gradient)(size_t tokens, size_t inputs, size_t outputs,
                                    const erg_element *d_y, const erg_element *weight,
                                    erg_element *d_x);
void ERG_OPS(linear_weight_gradient)(size_t tokens, size_t inputs, size_t outputs,
                                     const erg_element *x, const erg_element *d_y, float *d_weight);
void ERG_OPS(bias_gradient)(size_t tokens, size_t width, const erg_element *d_y, float *d_bias);

/*
 * SwiGLU (Shazeer 2020, arXiv 2002.05202): out = silu(gate) x up. gate_up [tokens, 2 width] holds
 * gate, then up; out [tokens, width]. Backward: d_gate_up may be gate_up itself.
 */
void ERG_OPS(swiglu_forward)(size_t tokens, size_t width, const erg_element *gate_up,
                             erg_element *out);
void ERG_OPS(swiglu_backward)(size_t tokens, size_t width, const erg_element *gate_up,
                              const erg_element *d_out, erg_element *d_gate_up);

/*
 * GELU (Hendrycks & Gimpel 2016, arXiv 1606.08415): out = x times the normal distribution at x, by
 * erf or by the form with tanh (GPT-2's). Backward: d_x may be d_out.
 */
void ERG_OPS(gelu_forward)(size_t tokens, size_t width, bool tanh_form, const erg_element *x,
                           erg_element *out);
void ERG_OPS(gelu_backward)(size_t tokens, size_t width, bool tanh_form, const erg_element *x,
                            const erg_element *d_out, erg_element *d_x);

/*
 * Cross entropy of logits split over the vocabulary: this rank holds `columns` of each row; [first,
 * first + valid) of these are words. The others are padding: their logits count as -inf and their
 * gradients are 0. Three steps, with an exchange of stats between the first two:
 *   1. stats [tokens, 3]: largest local logit, sum of exp(logit - largest), and the target's
 *      logit, or -inf where another rank has it;
 *   2. erg_ops_loss_combine();
 *   3. logits become their gradients, scale x (softmax - 1 at the target).
 * With *scale = 1 / (tokens of the batch) the loss is the mean. A negative target does not count:
 * no loss and no gradient.
 */
void ERG_OPS(loss_stats)(size_t tokens, size_t columns, size_t valid, size_t first,
                         const int32_t *targets, const erg_element *logits, float *stats);
void ERG_OPS(loss_backward)(size_t tokens, size_t columns, size_t valid, size_t first,
                            const int32_t *targets, const float *log_sum, const float *scale,
                            erg_element *logits);

/*
 * One update by AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) of `count` weights, whose state
 * is float; weight is the rounded master, which passes use. In this order:
 *     g = factor gradient,  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
 *     master -= rate decay master, if it decays
 *     master -= rate / correction1 x m / (sqrt(v) / correction2 + eps)
 */
void ERG_OPS(adamw)(size_t count, bool decays, const struct erg_ops_update *update,
                    const float *gradient, float *master, float *m, float *v, erg_element *weight);

/* Rounds floats to elements. */
void ERG_OPS(to_element)(size_t count, const float *from, erg_element *to);
