/*
 * Every kernel against its twin of ops/ops.h, on random inputs of odd shapes.
 */
#include "device/cuda/kernels.h"

#include "gpu_check.h"
#include "ops/ops.h"

#include <stdarg.h>

/* The name of a check with its shape; valid until the next call. */
__attribute__((format(printf, 1, 2))) static const char *name(const char *format, ...)
{
    static char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

static float *zeros(size_t count)
{
    return erg_xcalloc(count, sizeof(float));
}

static void *upload_bf16(const erg_bf16 *values, size_t count)
{
    return gpu_upload(values, count * sizeof *values);
}

static void *upload_zeros(size_t count)
{
    float *host = zeros(count);
    void *memory = gpu_upload(host, count * sizeof *host);
    free(host);
    return memory;
}

static int32_t *random_ids(struct erg_rng *rng, size_t count, size_t below)
{
    int32_t *ids = erg_xcalloc(count, sizeof *ids);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)erg_rng_below(rng, below);
    return ids;
}

/* The second half of a vocabulary of 2 rows: about half of the tokens are elsewhere. */
static void check_embedding(struct erg_rng *rng, size_t tokens, size_t hidden, size_t rows)
{
    const size_t count = tokens * hidden, ids_bytes = tokens * sizeof(int32_t);
    int32_t *ids = random_ids(rng, tokens, 2 * rows);
    int32_t *order = erg_xcalloc(tokens, sizeof *order);
    erg_bf16 *table = gpu_random(rng, rows * hidden, 1), *d_out = gpu_random(rng, count, 1);
    erg_bf16 *out = erg_xcalloc(count, sizeof *out);
    float *d_table = zeros(rows * hidden);
    erg_ops_embedding_order(tokens, ids, order);
    erg_ops_embedding_forward(tokens, hidden, rows, rows, ids, table, out);
    for (int twice = 0; twice < 2; twice++)
        erg_ops_embedding_backward(tokens, hidden, rows, rows, ids, order, d_out, d_table);

    void *on_ids = gpu_upload(ids, ids_bytes), *on_order = gpu_upload(order, ids_bytes);
    void *on_table = upload_bf16(table, rows * hidden), *on_d_out = upload_bf16(d_out, count);
    void *on_out = gpu_alloc(count * sizeof *out), *on_d_table = upload_zeros(rows * hidden);
    gpu_ok(erg_cuda_embedding_forward(tokens, hidden, rows, rows, on_ids, on_table, on_out, NULL,
                                      &gpu_error));
    gpu_near_bf16(name("embedding %zu x %zu", tokens, hidden), on_out, out, count, 0);
    for (int twice = 0; twice < 2; twice++)
        gpu_ok(erg_cuda_embedding_backward(tokens, hidden, rows, rows, on_ids, on_order, on_d_out,
                                           on_d_table, NULL, &gpu_error));
    gpu_near_float(name("embedding backward %zu x %zu", tokens, hidden), on_d_table, d_table,
                   rows * hidden, 1e-4);

    erg_cuda_free(on_ids), erg_cuda_free(on_order), erg_cuda_free(on_table);
    erg_cuda_free(on_d_out), erg_cuda_free(on_out), erg_cuda_free(on_d_table);
    free(ids), free(order), free(table), free(d_out), free(out), free(d_table);
}

/* Sequences of which the last is cut short, at positions that are not in order, or counted. */
static void check_positions(struct erg_rng *rng, size_t tokens, size_t sequence, size_t hidden,
                            bool listed)
{
    const size_t count = tokens * hidden, rows = sequence + 3;
    int32_t *positions = erg_xcalloc(sequence, sizeof *positions);
    for (size_t i = 0; i < sequence; i++)
        positions[i] = (int32_t)((i + sequence / 2) % sequence + 3);
    erg_bf16 *table = gpu_random(rng, rows * hidden, 1), *x = gpu_random(rng, count, 1);
    erg_bf16 *d_out = gpu_random(rng, count, 1);
    float *d_table = zeros(rows * hidden);
    void *on_positions = gpu_upload(positions, sequence * sizeof *positions);
    void *on_table = upload_bf16(table, rows * hidden), *on_x = upload_bf16(x, count);
    void *on_d_out = upload_bf16(d_out, count), *on_d_table = upload_zeros(rows * hidden);
    const int32_t *of_host = listed ? positions : NULL, *of_gpu = listed ? on_positions : NULL;
    erg_ops_position_forward(tokens, sequence, hidden, of_host, table, x);
    gpu_ok(erg_cuda_position_forward(tokens, sequence, hidden, of_gpu, on_table, on_x, NULL,
                                     &gpu_error));
    const char *kind = listed ? ", listed" : "";
    gpu_near(name("positions %zu x %zu%s", tokens, hidden, kind), on_x, x, count, true, 0, 1e-30);
    for (int twice = 0; twice < 2; twice++) {
        erg_ops_position_backward(tokens, sequence, hidden, of_host, d_out, d_table);
        gpu_ok(erg_cuda_position_backward(tokens, sequence, hidden, of_gpu, on_d_out, on_d_table,
                                          NULL, &gpu_error));
    }
    gpu_near_float(name("positions backward %zu x %zu%s", tokens, hidden, kind), on_d_table,
                   d_table, rows * hidden, 1e-5);
    erg_cuda_free(on_positions), erg_cuda_free(on_table), erg_cuda_free(on_x);
    erg_cuda_free(on_d_out), erg_cuda_free(on_d_table);
    free(positions), free(table), free(x), free(d_out), free(d_table);
}

static void check_add(struct erg_rng *rng, size_t tokens, size_t hidden)
{
    const size_t count = tokens * hidden;
    erg_bf16 *a = gpu_random(rng, count, 1), *b = gpu_random(rng, count, 1);
    erg_bf16 *bias = gpu_random(rng, hidden, 1);
    void *on_a = upload_bf16(a, count), *on_b = upload_bf16(b, count);
    void *on_bias = upload_bf16(bias, hidden);
    for (int biased = 0; biased < 2; biased++) {
        erg_ops_add_bias(tokens, hidden, a, b, biased ? bias : NULL, a);
        gpu_ok(erg_cuda_add_bias(tokens, hidden, on_a, on_b, biased ? on_bias : NULL, on_a, NULL,
                                 &gpu_error));
        gpu_near(name("residual add of %zu x %zu%s", tokens, hidden, biased ? " and bias" : ""),
                 on_a, a, count, true, 0, 1e-30);
    }
    erg_cuda_free(on_a), erg_cuda_free(on_b), erg_cuda_free(on_bias);
    free(a), free(b), free(bias);
}

/* The sum over tokens, added to what was there; run after run the same bits. */
static void check_bias_gradient(struct erg_rng *rng, size_t tokens, size_t width)
{
    erg_bf16 *d_y = gpu_random(rng, tokens * width, 1);
    float *d_bias = zeros(width);
    void *on_d_y = upload_bf16(d_y, tokens * width), *on_d_bias = upload_zeros(width);
    void *again = upload_zeros(width);
    void *scratch = gpu_alloc(erg_cuda_bias_gradient_scratch(tokens, width));
    for (int twice = 0; twice < 2; twice++) {
        erg_ops_bias_gradient(tokens, width, d_y, d_bias);
        gpu_ok(erg_cuda_bias_gradient(tokens, width, on_d_y, on_d_bias, scratch, NULL, &gpu_error));
        gpu_ok(erg_cuda_bias_gradient(tokens, width, on_d_y, again, scratch, NULL, &gpu_error));
    }
    gpu_near_float(name("gradient of a bias %zu x %zu", tokens, width), on_d_bias, d_bias, width,
                   1e-4 * sqrt((double)tokens));
    float *expected = gpu_download(on_d_bias, width * sizeof *expected);
    gpu_near(name("gradient of a bias %zu x %zu, again", tokens, width), again, expected, width,
             false, 0, 1e-30);
    erg_cuda_free(on_d_y), erg_cuda_free(on_d_bias), erg_cuda_free(again), erg_cuda_free(scratch);
    free(d_y), free(d_bias), free(expected);
}

enum added { NOTHING, X, BIASED_X };
static const char *const added_names[] = {"", " with add", " with biased add"};

/* Norm of the sum or of the residual alone; backward with and without a second gradient. */
static void check_norm(struct erg_rng *rng, size_t tokens, size_t hidden, enum added add)
{
    const float eps = 1e-5F;
    const size_t count = tokens * hidden;
    erg_bf16 *residual = gpu_random(rng, count, 1), *x = gpu_random(rng, count, 1);
    erg_bf16 *weight = gpu_random(rng, hidden, 1), *d_out = gpu_random(rng, count, 1);
    erg_bf16 *x_bias = gpu_random(rng, hidden, 1);
    void *on_x_bias = upload_bf16(x_bias, hidden);
    erg_bf16 *d_sum = gpu_random(rng, count, 1), *out = erg_xcalloc(count, sizeof *out);
    void *on_residual = upload_bf16(residual, count), *on_x = upload_bf16(x, count);
    void *on_weight = upload_bf16(weight, hidden), *on_d_out = upload_bf16(d_out, count);
    void *on_d_sum = upload_bf16(d_sum, count), *on_out = gpu_alloc(count * sizeof *out);
    void *on_inv_rms = gpu_alloc(tokens * sizeof(float)), *on_d_weight = upload_zeros(hidden);
    void *scratch = gpu_alloc(erg_cuda_norm_backward_scratch(tokens, hidden));
    float *inv_rms = zeros(tokens), *d_weight = zeros(hidden);

    erg_ops_norm_forward(tokens, hidden, eps, residual, add ? x : NULL,
                         add == BIASED_X ? x_bias : NULL, weight, residual, out, inv_rms);
    gpu_ok(erg_cuda_norm_forward(tokens, hidden, eps, on_residual, add ? on_x : NULL,
                                 add == BIASED_X ? on_x_bias : NULL, on_weight, on_residual, on_out,
                                 on_inv_rms, NULL, &gpu_error));
    gpu_near(name("sum %zu x %zu", tokens, hidden), on_residual, residual, count, true, 0, 1e-30);
    gpu_near_bf16(name("RMSNorm %zu x %zu%s", tokens, hidden, added_names[add]), on_out, out, count,
                  1e-6);
    gpu_near_float(name("1/rms %zu x %zu", tokens, hidden), on_inv_rms, inv_rms, tokens, 0);

    for (int twice = 0; twice < 2; twice++) {
        erg_ops_norm_backward(tokens, hidden, residual, weight, inv_rms, d_out, add ? d_sum : NULL,
                              out, d_weight);
        gpu_ok(erg_cuda_norm_backward(tokens, hidden, on_residual, on_weight, on_inv_rms, on_d_out,
                                      add ? on_d_sum : NULL, on_out, on_d_weight, scratch, NULL,
                                      &gpu_error));
    }
    gpu_near_bf16(name("RMSNorm backward %zu x %zu%s", tokens, hidden, added_names[add]), on_out,
                  out, count, 1e-4);
    gpu_near_float(name("RMSNorm weight gradient %zu x %zu", tokens, hidden), on_d_weight, d_weight,
                   hidden, 1e-4 * sqrt((double)tokens));
    if (add) { /* in place */
        gpu_ok(erg_cuda_norm_backward(tokens, hidden, on_residual, on_weight, on_inv_rms, on_d_out,
                                      on_d_sum, on_d_sum, on_d_weight, scratch, NULL, &gpu_error));
        gpu_near_bf16(name("RMSNorm backward %zu x %zu in place", tokens, hidden), on_d_sum, out,
                      count, 1e-4);
    }

    erg_cuda_free(on_residual), erg_cuda_free(on_x), erg_cuda_free(on_weight);
    erg_cuda_free(on_d_out), erg_cuda_free(on_d_sum), erg_cuda_free(on_out);
    erg_cuda_free(on_inv_rms), erg_cuda_free(on_d_weight), erg_cuda_free(scratch);
    erg_cuda_free(on_x_bias);
    free(residual), free(x), free(weight), free(d_out), free(d_sum), free(out), free(inv_rms);
    free(d_weight), free(x_bias);
}

/* As check_norm(); the residual's mean is not near 0. */
static void check_layer_norm(struct erg_rng *rng, size_t tokens, size_t hidden, enum added add)
{
    const float eps = 1e-5F;
    const size_t count = tokens * hidden;
    erg_bf16 *residual = gpu_random(rng, count, 1), *x = gpu_random(rng, count, 1);
    for (size_t i = 0; i < count; i++)
        residual[i] = erg_bf16_round(erg_bf16_float(residual[i]) + 3);
    /* weight, bias, bias of x */
    erg_bf16 *vectors = gpu_random(rng, 3 * hidden, 1), *bias = vectors + hidden;
    erg_bf16 *x_bias = add == BIASED_X ? vectors + 2 * hidden : NULL;
    erg_bf16 *d_out = gpu_random(rng, count, 1), *d_sum = gpu_random(rng, count, 1);
    erg_bf16 *out = erg_xcalloc(count, sizeof *out);
    float *stats = zeros(2 * tokens), *d_vectors = zeros(2 * hidden);
    void *on_residual = upload_bf16(residual, count), *on_x = upload_bf16(x, count);
    erg_bf16 *on_vectors = upload_bf16(vectors, 3 * hidden);
    void *on_d_out = upload_bf16(d_out, count), *on_d_sum = upload_bf16(d_sum, count);
    void *on_out = gpu_alloc(count * sizeof *out),
         *on_stats = gpu_alloc(2 * tokens * sizeof *stats);
    float *on_d_vectors = upload_zeros(2 * hidden);
    void *scratch = gpu_alloc(erg_cuda_layer_norm_backward_scratch(tokens, hidden));

    erg_ops_layer_norm_forward(tokens, hidden, eps, residual, add ? x : NULL, x_bias, vectors, bias,
                               residual, out, stats);
    gpu_ok(erg_cuda_layer_norm_forward(tokens, hidden, eps, on_residual, add ? on_x : NULL,
                                       x_bias ? on_vectors + 2 * hidden : NULL, on_vectors,
                                       on_vectors + hidden, on_residual, on_out, on_stats, NULL,
                                       &gpu_error));
    const char *kind = added_names[add];
    gpu_near(name("sum %zu x %zu%s", tokens, hidden, kind), on_residual, residual, count, true, 0,
             1e-30);
    gpu_near_bf16(name("LayerNorm %zu x %zu%s", tokens, hidden, kind), on_out, out, count, 1e-4);
    gpu_near_float(name("mean and 1/deviation %zu x %zu", tokens, hidden), on_stats, stats,
                   2 * tokens, 1e-5);
    for (int twice = 0; twice < 2; twice++) {
        erg_ops_layer_norm_backward(tokens, hidden, residual, vectors, stats, d_out,
                                    add ? d_sum : NULL, out, d_vectors, d_vectors + hidden);
        gpu_ok(erg_cuda_layer_norm_backward(tokens, hidden, on_residual, on_vectors, on_stats,
                                            on_d_out, add ? on_d_sum : NULL, on_out, on_d_vectors,
                                            on_d_vectors + hidden, scratch, NULL, &gpu_error));
    }
    gpu_near_bf16(name("LayerNorm backward %zu x %zu%s", tokens, hidden, kind), on_out, out, count,
                  1e-4);
    gpu_near_float(name("LayerNorm weight and bias gradients %zu x %zu", tokens, hidden),
                   on_d_vectors, d_vectors, 2 * hidden, 1e-4 * sqrt((double)tokens));
    if (add) { /* in place */
        gpu_ok(erg_cuda_layer_norm_backward(tokens, hidden, on_residual, on_vectors, on_stats,
                                            on_d_out, on_d_sum, on_d_out, on_d_vectors,
                                            on_d_vectors + hidden, scratch, NULL, &gpu_error));
        gpu_near_bf16(name("LayerNorm backward %zu x %zu in place", tokens, hidden), on_d_out, out,
                      count, 1e-4);
    }
    erg_cuda_free(on_residual), erg_cuda_free(on_x), erg_cuda_free(on_vectors);
    erg_cuda_free(on_d_out), erg_cuda_free(on_d_sum), erg_cuda_free(on_out);
    erg_cuda_free(on_stats), erg_cuda_free(on_d_vectors), erg_cuda_free(scratch);
    free(residual), free(x), free(vectors), free(d_out), free(d_sum), free(out), free(stats);
    free(d_vectors);
}

static void check_rope(struct erg_rng *rng, const struct erg_ops_qkv *shape, bool norm)
{
    const float eps = 1e-6F;
    const size_t row = erg_ops_qkv_row(shape), count = shape->tokens * row, d = shape->head_dim;
    const size_t out_row = norm ? (shape->query_heads + shape->kv_heads) * d : row;
    const size_t out_count = shape->tokens * out_row;
    erg_bf16 *qkv = gpu_random(rng, count, 1), *d_qkv = gpu_random(rng, count, 1);
    erg_bf16 *weights = gpu_random(rng, 2 * d, 1), *out = erg_xcalloc(out_count, sizeof *out);
    float *table = zeros(shape->sequence * d), *d_weights = zeros(2 * d);
    erg_ops_rope_table(shape->sequence, NULL, d, 10000, NULL, table);
    erg_bf16 *d_rotated = gpu_random(rng, count, 1); /* in place without a norm */
    const erg_bf16 *d_from = norm ? d_rotated : d_qkv;
    void *on_qkv = upload_bf16(qkv, count), *on_d_qkv = upload_bf16(d_qkv, count);
    void *on_d_rotated = upload_bf16(d_rotated, count);
    const void *on_d_from = norm ? on_d_rotated : on_d_qkv;
    erg_bf16 *on_weights = upload_bf16(weights, 2 * d);
    void *on_table = gpu_upload(table, shape->sequence * d * sizeof *table);
    float *on_d_weights = upload_zeros(2 * d);
    void *scratch = gpu_alloc(erg_cuda_rope_backward_scratch(shape));
    void *on_out = norm ? gpu_alloc(out_count * sizeof *out) : on_qkv;

    if (!norm)
        memcpy(out, qkv, count * sizeof *out); /* values stay */
    erg_ops_rope_forward(shape, eps, norm ? weights : NULL, norm ? weights + d : NULL, table, qkv,
                         out, out_row);
    gpu_ok(erg_cuda_rope_forward(shape, eps, norm ? on_weights : NULL, norm ? on_weights + d : NULL,
                                 on_table, on_qkv, on_out, out_row, NULL, &gpu_error));
    gpu_near_bf16(name("RoPE%s %zu x %zu", norm ? " with norm" : "", shape->tokens, d), on_out, out,
                  out_count, 1e-4);
    erg_ops_rope_backward(shape, eps, norm ? weights : NULL, norm ? weights + d : NULL, table, qkv,
                          d_from, d_qkv, d_weights, d_weights + d);
    gpu_ok(erg_cuda_rope_backward(
        shape, eps, norm ? on_weights : NULL, norm ? on_weights + d : NULL, on_table, on_qkv,
        on_d_from, on_d_qkv, on_d_weights, on_d_weights + d, scratch, NULL, &gpu_error));
    gpu_near_bf16(name("RoPE%s backward %zu x %zu", norm ? " with norm" : "", shape->tokens, d),
                  on_d_qkv, d_qkv, count, 1e-4);
    if (norm)
        gpu_near_float(name("norm per head, weight gradients %zu x %zu", shape->tokens, d),
                       on_d_weights, d_weights, 2 * d, 1e-4 * sqrt((double)shape->tokens * 4));

    if (norm)
        erg_cuda_free(on_out);
    erg_cuda_free(on_qkv), erg_cuda_free(on_d_qkv), erg_cuda_free(on_weights);
    erg_cuda_free(on_d_rotated), erg_cuda_free(on_table), erg_cuda_free(on_d_weights),
        erg_cuda_free(scratch);
    free(qkv), free(d_qkv), free(weights), free(out), free(table), free(d_weights);
    free(d_rotated);
}

static void check_swiglu(struct erg_rng *rng, size_t tokens, size_t width)
{
    const size_t count = tokens * width;
    erg_bf16 *gate_up = gpu_random(rng, 2 * count, 2), *d_out = gpu_random(rng, count, 1);
    erg_bf16 *out = erg_xcalloc(count, sizeof *out),
             *d_gate_up = erg_xcalloc(count, 2 * sizeof *out);
    void *on_gate_up = upload_bf16(gate_up, 2 * count), *on_d_out = upload_bf16(d_out, count);
    void *on_out = gpu_alloc(count * sizeof *out);
    erg_ops_swiglu_forward(tokens, width, gate_up, out);
    gpu_ok(erg_cuda_swiglu_forward(tokens, width, on_gate_up, on_out, NULL, &gpu_error));
    gpu_near_bf16(name("SwiGLU %zu x %zu", tokens, width), on_out, out, count, 1e-6);
    erg_ops_swiglu_backward(tokens, width, gate_up, d_out, d_gate_up);
    gpu_ok(erg_cuda_swiglu_backward(tokens, width, on_gate_up, on_d_out, on_gate_up, NULL,
                                    &gpu_error));
    gpu_near_bf16(name("SwiGLU backward %zu x %zu in place", tokens, width), on_gate_up, d_gate_up,
                  2 * count, 1e-5);
    erg_cuda_free(on_gate_up), erg_cuda_free(on_d_out), erg_cuda_free(on_out);
    free(gate_up), free(d_out), free(out), free(d_gate_up);
}

static void check_gelu(struct erg_rng *rng, size_t tokens, size_t width, bool tanh_form)
{
    const size_t count = tokens * width;
    erg_bf16 *x = gpu_random(rng, count, 2), *d_out = gpu_random(rng, count, 1);
    x[0] = erg_bf16_round(100), x[1] = erg_bf16_round(-100), x[2] = erg_bf16_round(0);
    erg_bf16 *out = erg_xcalloc(count, sizeof *out);
    void *on_x = upload_bf16(x, count), *on_d_out = upload_bf16(d_out, count);
    void *on_out = gpu_alloc(count * sizeof *out);
    const char *form = tanh_form ? "tanh" : "erf";
    erg_ops_gelu_forward(tokens, width, tanh_form, x, out);
    gpu_ok(erg_cuda_gelu_forward(tokens, width, tanh_form, on_x, on_out, NULL, &gpu_error));
    gpu_near_bf16(name("GELU by %s %zu x %zu", form, tokens, width), on_out, out, count, 1e-6);
    erg_ops_gelu_backward(tokens, width, tanh_form, x, d_out, d_out);
    float *d_bias = zeros(width);
    void *on_d_bias = upload_zeros(width), *again = upload_zeros(width);
    void *scratch = gpu_alloc(erg_cuda_gelu_backward_scratch(tokens, width));
    gpu_ok(erg_cuda_gelu_backward(tokens, width, tanh_form, on_x, on_d_out, on_out, again, scratch,
                                  NULL, &gpu_error));
    gpu_ok(erg_cuda_gelu_backward(tokens, width, tanh_form, on_x, on_d_out, on_d_out, on_d_bias,
                                  scratch, NULL, &gpu_error));
    gpu_near_bf16(name("GELU by %s backward %zu x %zu in place", form, tokens, width), on_d_out,
                  d_out, count, 1e-5);
    erg_bf16 *stored = gpu_download(on_d_out, count * sizeof *stored);
    erg_ops_bias_gradient(tokens, width, stored, d_bias);
    gpu_near_float(name("the bias before GELU by %s %zu x %zu", form, tokens, width), on_d_bias,
                   d_bias, width, 1e-4 * sqrt((double)tokens));
    float *first = gpu_download(on_d_bias, width * sizeof *first);
    gpu_near(name("the bias before GELU by %s %zu x %zu, again", form, tokens, width), again, first,
             width, false, 0, 1e-30);
    erg_cuda_free(on_x), erg_cuda_free(on_d_out), erg_cuda_free(on_out);
    erg_cuda_free(on_d_bias), erg_cuda_free(again), erg_cuda_free(scratch);
    free(x), free(d_out), free(out), free(d_bias), free(stored), free(first);
}

/* Two ranks, one after the other; the vocabulary ends with `vocab`, what follows is padding; one
 * token counts for nothing. */
static void check_loss(struct erg_rng *rng, size_t tokens, size_t columns, size_t vocab)
{
    const size_t count = tokens * columns;
    const size_t valid[2] = {vocab < columns ? vocab : columns,
                             vocab < columns ? 0 : vocab - columns};
    const float scale = 1 / (float)tokens;
    int32_t *targets = random_ids(rng, tokens, vocab);
    targets[tokens / 2] = -1;
    void *on_scale = gpu_upload(&scale, sizeof scale);
    erg_bf16 *logits = gpu_random(rng, 2 * count, 4); /* of rank 0, then of rank 1 */
    float *stats = zeros(2 * tokens * 3), *log_sum = zeros(tokens), loss = 1;
    void *on_targets = gpu_upload(targets, tokens * sizeof *targets);
    erg_bf16 *on_logits = upload_bf16(logits, 2 * count);
    float *on_stats = gpu_alloc(2 * tokens * 3 * sizeof *stats);
    void *on_log_sum = gpu_alloc(tokens * sizeof *log_sum);
    void *on_loss = gpu_upload(&loss, sizeof loss);

    for (size_t rank = 0; rank < 2; rank++) {
        erg_ops_loss_stats(tokens, columns, valid[rank], rank * columns, targets,
                           logits + rank * count, stats + rank * tokens * 3);
        gpu_ok(erg_cuda_loss_stats(tokens, columns, valid[rank], rank * columns, on_targets,
                                   on_logits + rank * count, on_stats + rank * tokens * 3, NULL,
                                   &gpu_error));
    }
    erg_ops_loss_combine(tokens, 2, targets, stats, &scale, log_sum, &loss);
    gpu_ok(erg_cuda_loss_combine(tokens, 2, on_targets, on_stats, on_scale, on_log_sum, on_loss,
                                 NULL, &gpu_error));
    gpu_near_float(name("log of the sum of exp %zu x %zu, %zu words", tokens, columns, vocab),
                   on_log_sum, log_sum, tokens, 1e-5);
    gpu_near_float(name("loss %zu x %zu", tokens, columns), on_loss, &loss, 1, 1e-5);
    for (size_t rank = 0; rank < 2; rank++) {
        erg_ops_loss_backward(tokens, columns, valid[rank], rank * columns, targets, log_sum,
                              &scale, logits + rank * count);
        gpu_ok(erg_cuda_loss_backward(tokens, columns, valid[rank], rank * columns, on_targets,
                                      on_log_sum, on_scale, on_logits + rank * count, NULL,
                                      &gpu_error));
    }
    gpu_near_bf16(name("loss backward %zu x %zu, %zu words", tokens, columns, vocab), on_logits,
                  logits, 2 * count, 1e-30);
    erg_cuda_free(on_scale), erg_cuda_free(on_targets), erg_cuda_free(on_logits),
        erg_cuda_free(on_stats);
    erg_cuda_free(on_log_sum), erg_cuda_free(on_loss);
    free(targets), free(logits), free(stats), free(log_sum);
}

/* Three updates, of which the clipping and the corrections differ; squares of the last gradient. */
static void check_update(struct erg_rng *rng, size_t count, bool decays)
{
    float *gradient = zeros(count), *master = zeros(count), *m = zeros(count), *v = zeros(count);
    erg_bf16 *weight = erg_xcalloc(count, sizeof *weight);
    for (size_t i = 0; i < count; i++)
        master[i] = (float)(0.02 * erg_rng_normal(rng));
    void *on_master = gpu_upload(master, count * sizeof *master),
         *on_gradient = upload_zeros(count);
    void *on_m = upload_zeros(count), *on_v = upload_zeros(count);
    void *on_weight = gpu_alloc(count * sizeof *weight);
    for (int t = 1; t <= 3; t++) {
        for (size_t i = 0; i < count; i++)
            gradient[i] = (float)(1e-3 * erg_rng_normal(rng));
        const struct erg_ops_update update = {
            .rate = 1e-3F / (float)t,
            .decay = 0.1F,
            .beta1 = 0.9F,
            .beta2 = 0.95F,
            .eps = 1e-8F,
            .correction1 = (float)(1 - pow(0.9, t)),
            .correction2 = (float)sqrt(1 - pow(0.95, t)),
            .factor = 1 / (float)t,
        };
        void *on_update = gpu_upload(&update, sizeof update);
        gpu_ok(erg_cuda_copy(on_gradient, gradient, count * sizeof *gradient, NULL, &gpu_error));
        erg_ops_adamw(count, decays, &update, gradient, master, m, v, weight);
        gpu_ok(erg_cuda_adamw(count, decays, on_update, on_gradient, on_master, on_m, on_v,
                              on_weight, NULL, &gpu_error));
        gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
        erg_cuda_free(on_update);
    }
    gpu_near(name("AdamW of %zu, weights", count), on_master, master, count, false, 1e-5, 1e-8);
    gpu_near(name("AdamW of %zu, m", count), on_m, m, count, false, 1e-5, 1e-10);
    gpu_near(name("AdamW of %zu, v", count), on_v, v, count, false, 1e-5, 1e-15);
    gpu_near(name("AdamW of %zu, weights in use", count), on_weight, weight, count, true, 1.0 / 128,
             1e-8);
    float *kept = gpu_download(on_master, count * sizeof *kept);
    erg_ops_to_element(count, kept, weight);
    gpu_near(name("AdamW of %zu, rounding", count), on_weight, weight, count, true, 0, 1e-30);
    gpu_ok(erg_cuda_fill(on_weight, 0xff, count * sizeof *weight, NULL, &gpu_error));
    gpu_ok(erg_cuda_to_element(count, on_master, on_weight, NULL, &gpu_error));
    gpu_near(name("rounding of %zu", count), on_weight, weight, count, true, 0, 1e-30);

    double sum = 2, sums[2];
    void *on_sum = gpu_upload(&sum, sizeof sum);
    void *scratch = gpu_alloc(erg_cuda_squares_scratch(count));
    erg_ops_squares(count, gradient, &sum);
    for (int again = 0; again < 2; again++) {
        const double start = 2;
        gpu_ok(erg_cuda_copy(on_sum, &start, sizeof start, NULL, &gpu_error));
        gpu_ok(erg_cuda_squares(count, on_gradient, on_sum, scratch, NULL, &gpu_error));
        double *result = gpu_download(on_sum, sizeof *result);
        sums[again] = *result;
        free(result);
    }
    const bool right = fabs(sums[0] - sum) <= 1e-12 * sum && sums[0] == sums[1];
    printf("%s squares of %zu: %.17g, again %.17g, expected %.17g\n", right ? "ok    " : "FAILED",
           count, sums[0], sums[1], sum);
    gpu_failures += !right;
    erg_cuda_free(on_master), erg_cuda_free(on_gradient), erg_cuda_free(on_m), erg_cuda_free(on_v);
    erg_cuda_free(on_weight), erg_cuda_free(on_sum), erg_cuda_free(scratch);
    free(gradient), free(master), free(m), free(v), free(weight), free(kept);
}

/* A shape that a kernel cannot do is refused with a sentence. */
static void check_refusal(void)
{
    if (erg_cuda_norm_forward(1, 12, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                              &gpu_error) == 0 ||
        !strstr(gpu_error.message, "multiple of 8")) {
        printf("FAILED rows of 12 elements: \"%s\"\n", gpu_error.message);
        gpu_failures++;
    }
}

int main(void)
{
    gpu_open();
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    check_embedding(&rng, 1, 8, 3);
    check_embedding(&rng, 333, 1032, 50);
    check_embedding(&rng, 2000, 64, 1); /* long runs of one id */
    for (int listed = 0; listed < 2; listed++) {
        check_positions(&rng, 1, 1, 8, listed);
        check_positions(&rng, 333, 50, 1032, listed); /* more sequences than are read at a time */
        check_positions(&rng, 100, 64, 768, listed);
        check_positions(&rng, 30, 64, 264, listed); /* less than a sequence */
    }
    check_add(&rng, 1, 8);
    check_add(&rng, 1, 100008);
    check_add(&rng, 333, 1032);
    check_bias_gradient(&rng, 1, 8);
    check_bias_gradient(&rng, 601, 264);
    check_bias_gradient(&rng, 70, 8200);
    check_bias_gradient(&rng, 70001, 264); /* all blocks take several turns */
    const size_t hidden[] = {8, 1000, 2048, 3072, 4104, 8200, 16384};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (int add = NOTHING; add <= BIASED_X; add++) {
            check_norm(&rng, i == 0 ? 1 : 601, hidden[i], add); /* some blocks have three rows */
            check_layer_norm(&rng, i == 0 ? 1 : 601, hidden[i], add);
        }
    check_norm(&rng, 20011, 64, X); /* more partial sums than are read at a time */
    check_layer_norm(&rng, 20011, 64, X);
    const struct erg_ops_qkv qkv[] = {
        {.tokens = 1, .sequence = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 16},
        {.tokens = 333, .sequence = 111, .query_heads = 6, .kv_heads = 2, .head_dim = 128},
        {.tokens = 129, .sequence = 43, .query_heads = 24, .kv_heads = 8, .head_dim = 128},
        {.tokens = 66, .sequence = 33, .query_heads = 5, .kv_heads = 5, .head_dim = 80},
        {.tokens = 50, .sequence = 25, .query_heads = 9, .kv_heads = 3, .head_dim = 64},
        {.tokens = 20, .sequence = 20, .query_heads = 3, .kv_heads = 1, .head_dim = 256},
        {.tokens = 3001, .sequence = 3001, .query_heads = 6, .kv_heads = 2, .head_dim = 128},
        {.tokens = 9, .sequence = 3, .query_heads = 37, .kv_heads = 37, .head_dim = 256},
        /* more sequences than one run of a block has; many runs, the last sequence cut short */
        {.tokens = 700, .sequence = 20, .query_heads = 8, .kv_heads = 4, .head_dim = 128},
        {.tokens = 2420, .sequence = 1100, .query_heads = 12, .kv_heads = 4, .head_dim = 128},
    };
    for (size_t i = 0; i < sizeof qkv / sizeof *qkv; i++)
        for (int norm = 0; norm < 2; norm++)
            check_rope(&rng, &qkv[i], norm);
    check_swiglu(&rng, 1, 8);
    check_swiglu(&rng, 333, 1000);
    check_swiglu(&rng, 77, 2048);
    for (int tanh_form = 0; tanh_form < 2; tanh_form++) {
        check_gelu(&rng, 1, 8, tanh_form);
        check_gelu(&rng, 333, 1000, tanh_form);
        check_gelu(&rng, 20001, 264, tanh_form); /* all blocks take several turns */
    }
    check_loss(&rng, 1, 8, 16);
    check_loss(&rng, 37, 4104, 8208);
    check_loss(&rng, 1500, 264, 528);
    check_loss(&rng, 37, 4104, 8197);   /* ends within a vector */
    check_loss(&rng, 37, 16520, 16531); /* the second rank has one vector and a half */
    check_loss(&rng, 20, 264, 261);     /* it has nothing but padding */
    for (int decays = 0; decays < 2; decays++) {
        check_update(&rng, 8, decays);
        check_update(&rng, 100008, decays);
    }
    check_update(&rng, 5000008, true); /* blocks of the sum of squares take several turns */
    check_refusal();
    return gpu_result();
}
