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

static void check_add(struct erg_rng *rng, size_t count)
{
    erg_bf16 *a = gpu_random(rng, count, 1), *b = gpu_random(rng, count, 1);
    void *on_a = upload_bf16(a, count), *on_b = upload_bf16(b, count);
    erg_ops_add(count, a, b, a);
    gpu_ok(erg_cuda_add(count, on_a, on_b, on_a, NULL, &gpu_error));
    gpu_near(name("residual add of %zu", count), on_a, a, count, true, 0, 1e-30);
    erg_cuda_free(on_a), erg_cuda_free(on_b);
    free(a), free(b);
}

/* Norm of the sum or of the residual alone; backward with and without a second gradient. */
static void check_norm(struct erg_rng *rng, size_t tokens, size_t hidden, bool add)
{
    const float eps = 1e-5F;
    const size_t count = tokens * hidden;
    erg_bf16 *residual = gpu_random(rng, count, 1), *x = gpu_random(rng, count, 1);
    erg_bf16 *weight = gpu_random(rng, hidden, 1), *d_out = gpu_random(rng, count, 1);
    erg_bf16 *d_sum = gpu_random(rng, count, 1), *out = erg_xcalloc(count, sizeof *out);
    void *on_residual = upload_bf16(residual, count), *on_x = upload_bf16(x, count);
    void *on_weight = upload_bf16(weight, hidden), *on_d_out = upload_bf16(d_out, count);
    void *on_d_sum = upload_bf16(d_sum, count), *on_out = gpu_alloc(count * sizeof *out);
    void *on_inv_rms = gpu_alloc(tokens * sizeof(float)), *on_d_weight = upload_zeros(hidden);
    void *scratch = gpu_alloc(erg_cuda_norm_backward_scratch(tokens, hidden));
    float *inv_rms = zeros(tokens), *d_weight = zeros(hidden);

    erg_ops_norm_forward(tokens, hidden, eps, residual, add ? x : NULL, weight, residual, out,
                         inv_rms);
    gpu_ok(erg_cuda_norm_forward(tokens, hidden, eps, on_residual, add ? on_x : NULL, on_weight,
                                 on_residual, on_out, on_inv_rms, NULL, &gpu_error));
    gpu_near(name("sum %zu x %zu", tokens, hidden), on_residual, residual, count, true, 0, 1e-30);
    gpu_near_bf16(name("RMSNorm %zu x %zu%s", tokens, hidden, add ? " with add" : ""), on_out, out,
                  count, 1e-6);
    gpu_near_float(name("1/rms %zu x %zu", tokens, hidden), on_inv_rms, inv_rms, tokens, 0);

    for (int twice = 0; twice < 2; twice++) {
        erg_ops_norm_backward(tokens, hidden, residual, weight, inv_rms, d_out, add ? d_sum : NULL,
                              out, d_weight);
        gpu_ok(erg_cuda_norm_backward(tokens, hidden, on_residual, on_weight, on_inv_rms, on_d_out,
                                      add ? on_d_sum : NULL, on_out, on_d_weight, scratch, NULL,
                                      &gpu_error));
    }
    gpu_near_bf16(name("RMSNorm backward %zu x %zu%s", tokens, hidden, add ? " with add" : ""),
                  on_out, out, count, 1e-4);
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
    free(residual), free(x), free(weight), free(d_out), free(d_sum), free(out), free(inv_rms);
    free(d_weight);
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
    erg_ops_rope_table(shape->sequence, NULL, d, 10000, table);
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

/* Two ranks, one after the other; one token counts for nothing. */
static void check_loss(struct erg_rng *rng, size_t tokens, size_t columns)
{
    const size_t count = tokens * columns;
    const float scale = 1 / (float)tokens;
    int32_t *targets = random_ids(rng, tokens, 2 * columns);
    targets[tokens / 2] = -1;
    erg_bf16 *logits = gpu_random(rng, 2 * count, 4); /* of rank 0, then of rank 1 */
    float *stats = zeros(2 * tokens * 3), *log_sum = zeros(tokens), loss = 1;
    void *on_targets = gpu_upload(targets, tokens * sizeof *targets);
    erg_bf16 *on_logits = upload_bf16(logits, 2 * count);
    float *on_stats = gpu_alloc(2 * tokens * 3 * sizeof *stats);
    void *on_log_sum = gpu_alloc(tokens * sizeof *log_sum);
    void *on_loss = gpu_upload(&loss, sizeof loss);

    for (size_t rank = 0; rank < 2; rank++) {
        erg_ops_loss_stats(tokens, columns, rank * columns, targets, logits + rank * count,
                           stats + rank * tokens * 3);
        gpu_ok(erg_cuda_loss_stats(tokens, columns, rank * columns, on_targets,
                                   on_logits + rank * count, on_stats + rank * tokens * 3, NULL,
                                   &gpu_error));
    }
    erg_ops_loss_combine(tokens, 2, targets, stats, scale, log_sum, &loss);
    gpu_ok(erg_cuda_loss_combine(tokens, 2, on_targets, on_stats, scale, on_log_sum, on_loss, NULL,
                                 &gpu_error));
    gpu_near_float(name("log of the sum of exp %zu x %zu", tokens, columns), on_log_sum, log_sum,
                   tokens, 1e-5);
    gpu_near_float(name("loss %zu x %zu", tokens, columns), on_loss, &loss, 1, 1e-5);
    for (size_t rank = 0; rank < 2; rank++) {
        erg_ops_loss_backward(tokens, columns, rank * columns, targets, log_sum, scale,
                              logits + rank * count);
        gpu_ok(erg_cuda_loss_backward(tokens, columns, rank * columns, on_targets, on_log_sum,
                                      scale, on_logits + rank * count, NULL, &gpu_error));
    }
    gpu_near_bf16(name("loss backward %zu x %zu", tokens, columns), on_logits, logits, 2 * count,
                  1e-30);
    erg_cuda_free(on_targets), erg_cuda_free(on_logits), erg_cuda_free(on_stats);
    erg_cuda_free(on_log_sum), erg_cuda_free(on_loss);
    free(targets), free(logits), free(stats), free(log_sum);
}

/* A shape that a kernel cannot do is refused with a sentence. */
static void check_refusal(void)
{
    if (erg_cuda_norm_forward(1, 12, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &gpu_error) ==
            0 ||
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
    check_add(&rng, 8);
    check_add(&rng, 100008);
    const size_t hidden[] = {8, 1000, 2048, 3072, 4104, 8200, 16384};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        for (int add = 0; add < 2; add++)
            check_norm(&rng, i == 0 ? 1 : 601, hidden[i], add); /* some blocks have three rows */
    check_norm(&rng, 20011, 64, true); /* more partial sums than are read at a time */
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
    check_loss(&rng, 1, 8);
    check_loss(&rng, 37, 4104);
    check_loss(&rng, 1500, 264);
    check_refusal();
    return gpu_result();
}
