/*
 * The whole model's layers on the CPU, from the full weights of all ranks: what every way to split
 * it must give. Sizes are those of the tests of decoders, small and odd.
 */
#ifndef ERGON_GPU_DECODER_TWIN_H
#define ERGON_GPU_DECODER_TWIN_H

#include "device/cuda/decoder.h"
#include "gpu_check.h"
#include "ops/ops.h"

enum { LAYERS = 2, SEQUENCES = 4, SEQUENCE = 320, HIDDEN = 128, HEADS = 8, GROUPS = 4, DIM = 64 };
enum { FFN = 256, TOKENS = SEQUENCES * SEQUENCE, WIDTH = HEADS * DIM };
enum { ROW = (HEADS + 2 * GROUPS) * DIM, VALUES = (HEADS + GROUPS) * DIM };
#define ROPE_THETA 10000.0
#define NORM_EPS 1e-5

/* Elements of a whole weight; 0 where the model has none. */
static inline size_t twin_count(enum erg_decoder_weight weight, bool qk_norm)
{
    switch (weight) {
    case ERG_WEIGHT_NORM_A:
    case ERG_WEIGHT_NORM_M:
        return HIDDEN;
    case ERG_WEIGHT_QKV:
        return (size_t)ROW * HIDDEN;
    case ERG_WEIGHT_Q_NORM:
    case ERG_WEIGHT_K_NORM:
        return qk_norm ? DIM : 0;
    case ERG_WEIGHT_PROJ:
        return (size_t)HIDDEN * WIDTH;
    case ERG_WEIGHT_FC1:
        return 2 * (size_t)FFN * HIDDEN;
    default:
        return (size_t)HIDDEN * FFN;
    }
}

/* Where element i of the share of rank `place` of `ranks` lies in the whole weight. */
static inline size_t twin_index(enum erg_decoder_weight weight, size_t i, size_t place,
                                size_t ranks)
{
    size_t q = WIDTH / ranks, kv = (size_t)GROUPS * DIM / ranks, f = FFN / ranks;
    size_t row = i / HIDDEN, column = i % HIDDEN;
    switch (weight) {
    case ERG_WEIGHT_QKV:
        row = row < q        ? place * q + row
              : row < q + kv ? WIDTH + place * kv + row - q
                             : VALUES + place * kv + row - q - kv;
        return row * HIDDEN + column;
    case ERG_WEIGHT_FC1:
        row = row < f ? place * f + row : FFN + place * f + row - f;
        return row * HIDDEN + column;
    case ERG_WEIGHT_PROJ:
        return i / q * WIDTH + place * q + i % q;
    case ERG_WEIGHT_FC2:
        return i / f * FFN + place * f + i % f;
    default:
        return i;
    }
}

/* The layers' weights and their gradients, and what goes in and comes out. */
struct twin {
    erg_bf16 *weights[LAYERS][ERG_WEIGHTS];
    float *gradients[LAYERS][ERG_WEIGHTS];
    erg_bf16 *input, *output, *output_gradient, *input_gradient; /* [TOKENS, HIDDEN] */
};

struct twin_layer { /* activations */
    erg_bf16 *x_a, *n_a, *qkv, *rotated, *attn, *x_m, *n_m, *gate_up, *act;
    float *inv_a, *inv_m, *stats;
};

static const struct erg_ops_qkv twin_qkv = {TOKENS, SEQUENCE, HEADS, GROUPS, DIM};
static const struct erg_ops_attention twin_attention = {
    SEQUENCES, SEQUENCE, SEQUENCE, HEADS, GROUPS, DIM, ROW, ROW, ROW, WIDTH, true};

static inline erg_bf16 *twin_tensor(size_t row)
{
    return erg_xcalloc(TOKENS * row, sizeof(erg_bf16));
}

static inline struct twin_layer twin_forward(erg_bf16 *const *w, const erg_bf16 *input,
                                             const float *table, erg_bf16 *output)
{
    struct twin_layer t = {
        .x_a = twin_tensor(HIDDEN),
        .n_a = twin_tensor(HIDDEN),
        .qkv = twin_tensor(ROW),
        .rotated = twin_tensor(ROW),
        .attn = twin_tensor(WIDTH),
        .x_m = twin_tensor(HIDDEN),
        .n_m = twin_tensor(HIDDEN),
        .gate_up = twin_tensor(2 * FFN),
        .act = twin_tensor(FFN),
        .inv_a = erg_xcalloc(TOKENS, sizeof(float)),
        .inv_m = erg_xcalloc(TOKENS, sizeof(float)),
        .stats = erg_xcalloc((size_t)TOKENS * HEADS, sizeof(float)),
    };
    const float eps = (float)NORM_EPS;
    erg_bf16 *sum = twin_tensor(HIDDEN);
    memcpy(t.x_a, input, (size_t)TOKENS * HIDDEN * sizeof *input);
    erg_ops_norm_forward(TOKENS, HIDDEN, eps, t.x_a, NULL, NULL, w[ERG_WEIGHT_NORM_A], NULL, t.n_a,
                         t.inv_a);
    erg_ops_linear_forward(TOKENS, HIDDEN, ROW, t.n_a, w[ERG_WEIGHT_QKV], NULL, t.qkv);
    erg_ops_rope_forward(&twin_qkv, eps, w[ERG_WEIGHT_Q_NORM], w[ERG_WEIGHT_K_NORM], table, t.qkv,
                         t.rotated, ROW);
    erg_ops_attention_forward(&twin_attention, t.rotated, t.rotated + WIDTH, t.qkv + VALUES, t.attn,
                              t.stats);
    erg_ops_linear_forward(TOKENS, WIDTH, HIDDEN, t.attn, w[ERG_WEIGHT_PROJ], NULL, sum);
    erg_ops_norm_forward(TOKENS, HIDDEN, eps, t.x_a, sum, NULL, w[ERG_WEIGHT_NORM_M], t.x_m, t.n_m,
                         t.inv_m);
    erg_ops_linear_forward(TOKENS, HIDDEN, 2 * FFN, t.n_m, w[ERG_WEIGHT_FC1], NULL, t.gate_up);
    erg_ops_swiglu_forward(TOKENS, FFN, t.gate_up, t.act);
    erg_ops_linear_forward(TOKENS, FFN, HIDDEN, t.act, w[ERG_WEIGHT_FC2], NULL, sum);
    erg_ops_add_bias(TOKENS, HIDDEN, t.x_m, sum, NULL, output);
    free(sum);
    return t;
}

/* d: the gradient of the layer's output, then of its input. */
static inline void twin_backward(const struct twin_layer *t, erg_bf16 *const *w, float *const *g,
                                 const float *table, erg_bf16 *d)
{
    erg_bf16 *d_act = twin_tensor(FFN), *d_gate_up = twin_tensor(2 * FFN);
    erg_bf16 *d_n = twin_tensor(HIDDEN), *d_attn = twin_tensor(WIDTH), *d_qkv = twin_tensor(ROW);
    const float eps = (float)NORM_EPS;
    erg_ops_linear_input_gradient(TOKENS, FFN, HIDDEN, d, w[ERG_WEIGHT_FC2], d_act);
    erg_ops_linear_weight_gradient(TOKENS, FFN, HIDDEN, t->act, d, g[ERG_WEIGHT_FC2]);
    erg_ops_swiglu_backward(TOKENS, FFN, t->gate_up, d_act, d_gate_up);
    erg_ops_linear_input_gradient(TOKENS, HIDDEN, 2 * FFN, d_gate_up, w[ERG_WEIGHT_FC1], d_n);
    erg_ops_linear_weight_gradient(TOKENS, HIDDEN, 2 * FFN, t->n_m, d_gate_up, g[ERG_WEIGHT_FC1]);
    erg_ops_norm_backward(TOKENS, HIDDEN, t->x_m, w[ERG_WEIGHT_NORM_M], t->inv_m, d_n, d, d,
                          g[ERG_WEIGHT_NORM_M]);
    erg_ops_linear_input_gradient(TOKENS, WIDTH, HIDDEN, d, w[ERG_WEIGHT_PROJ], d_attn);
    erg_ops_linear_weight_gradient(TOKENS, WIDTH, HIDDEN, t->attn, d, g[ERG_WEIGHT_PROJ]);
    erg_ops_attention_backward(&twin_attention, t->rotated, t->rotated + WIDTH, t->qkv + VALUES,
                               t->attn, t->stats, d_attn, d_qkv, d_qkv + WIDTH, d_qkv + VALUES);
    erg_ops_rope_backward(&twin_qkv, eps, w[ERG_WEIGHT_Q_NORM], w[ERG_WEIGHT_K_NORM], table, t->qkv,
                          d_qkv, d_qkv, g[ERG_WEIGHT_Q_NORM], g[ERG_WEIGHT_K_NORM]);
    erg_ops_linear_input_gradient(TOKENS, HIDDEN, ROW, d_qkv, w[ERG_WEIGHT_QKV], d_n);
    erg_ops_linear_weight_gradient(TOKENS, HIDDEN, ROW, t->n_a, d_qkv, g[ERG_WEIGHT_QKV]);
    erg_ops_norm_backward(TOKENS, HIDDEN, t->x_a, w[ERG_WEIGHT_NORM_A], t->inv_a, d_n, d, d,
                          g[ERG_WEIGHT_NORM_A]);
    free(d_act), free(d_gate_up), free(d_n), free(d_attn), free(d_qkv);
}

static inline void twin_layer_release(struct twin_layer *t)
{
    free(t->x_a), free(t->n_a), free(t->qkv), free(t->rotated), free(t->attn), free(t->x_m);
    free(t->n_m), free(t->gate_up), free(t->act), free(t->inv_a), free(t->inv_m), free(t->stats);
}

/* From the weights, input and output_gradient to all the rest. */
static inline void twin_run(struct twin *twin)
{
    struct twin_layer layers[LAYERS];
    float *table = erg_xcalloc((size_t)SEQUENCE * DIM, sizeof *table);
    erg_ops_rope_table(SEQUENCE, NULL, DIM, ROPE_THETA, NULL, table);
    twin->output = twin_tensor(HIDDEN);
    twin->input_gradient = twin_tensor(HIDDEN);
    for (int i = 0; i < LAYERS; i++)
        layers[i] =
            twin_forward(twin->weights[i], i ? twin->output : twin->input, table, twin->output);
    memcpy(twin->input_gradient, twin->output_gradient,
           (size_t)TOKENS * HIDDEN * sizeof *twin->input_gradient);
    for (int i = LAYERS - 1; i >= 0; i--) {
        for (int k = 0; k < ERG_WEIGHTS; k++)
            if (twin->weights[i][k])
                twin->gradients[i][k] =
                    erg_xcalloc(twin_count((enum erg_decoder_weight)k, true), sizeof(float));
        twin_backward(&layers[i], twin->weights[i], twin->gradients[i], table,
                      twin->input_gradient);
        twin_layer_release(&layers[i]);
    }
    free(table);
}

static inline void twin_release(struct twin *twin)
{
    free(twin->input), free(twin->output);
    free(twin->output_gradient), free(twin->input_gradient);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            free(twin->weights[layer][i]);
            free(twin->gradients[layer][i]);
        }
}

#endif
