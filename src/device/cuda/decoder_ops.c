/* The operations of a decoder, forward and backward: their kernels and tensors. */
#include "device/cuda/decoder_internal.h"

#include "device/cuda/kernels.h"

#define PART(id) (1u << ERG_MODEL_##id)

static erg_bf16 *at(erg_bf16 *tensor, size_t row, struct decoder_rows rows)
{
    return tensor + rows.first * row;
}

static struct erg_ops_qkv qkv_shape(const struct erg_decoder *decoder, struct decoder_rows rows)
{
    return (struct erg_ops_qkv){
        .tokens = rows.count,
        .sequence = decoder->sequence,
        .query_heads = decoder->heads,
        .kv_heads = decoder->kv_heads,
        .head_dim = decoder->head_dim,
    };
}

/* ---- forward ---- */

/* With `add`, starts with the residual add that closes the previous layer. */
static int norm_a(struct erg_decoder *decoder, size_t layer, bool add, struct decoder_rows rows,
                  const struct erg_decoder_launch *launch, struct erg_error *err)
{
    struct decoder_activations *act = &decoder->layers[layer].act;
    erg_bf16 *residual = act->x_a, *sum = NULL;
    if (add) {
        /*
         * The first layer has no predecessor; in steady-state measurements its input replaces the
         * stream and must not change.
         */
        residual = layer ? decoder->layers[layer - 1].act.x_m : decoder->input;
        sum = at(layer ? act->x_a : decoder->output, decoder->hidden, rows);
    }
    return erg_cuda_norm_forward(
        rows.count, decoder->hidden, (float)decoder->options.model->norm_eps,
        at(residual, decoder->hidden, rows),
        add ? at(decoder->reduce[DECODER_REDUCE_M], decoder->hidden, rows) : NULL, NULL,
        decoder->layers[layer].weights[ERG_WEIGHT_NORM_A], sum, at(act->n_a, decoder->hidden, rows),
        act->inv_a + rows.first, launch->stream, err);
}

static int norm_m(struct erg_decoder *decoder, size_t layer, struct decoder_rows rows,
                  const struct erg_decoder_launch *launch, struct erg_error *err)
{
    struct decoder_activations *act = &decoder->layers[layer].act;
    return erg_cuda_norm_forward(
        rows.count, decoder->hidden, (float)decoder->options.model->norm_eps,
        at(act->x_a, decoder->hidden, rows),
        at(decoder->reduce[DECODER_REDUCE_A], decoder->hidden, rows), NULL,
        decoder->layers[layer].weights[ERG_WEIGHT_NORM_M], at(act->x_m, decoder->hidden, rows),
        at(act->n_m, decoder->hidden, rows), act->inv_m + rows.first, launch->stream, err);
}

int erg_decoder_product(struct erg_decoder *decoder, enum erg_gemm_kind kind,
                        struct decoder_rows rows, size_t inputs, size_t outputs, const void *a,
                        const void *b, void *c, const struct erg_decoder_launch *launch,
                        struct erg_error *err)
{
    struct erg_gemm_shape shape = {kind, rows.count, inputs, outputs};
    return erg_gemm_run(decoder->options.gemm, &shape, a, b, NULL, c, true, launch->sms,
                        decoder->gemm_workspace, launch->stream, err);
}

static int linear(struct erg_decoder *decoder, struct decoder_rows rows, size_t inputs,
                  size_t outputs, erg_bf16 *x, const erg_bf16 *weight, erg_bf16 *y,
                  const struct erg_decoder_launch *launch, struct erg_error *err)
{
    return erg_decoder_product(decoder, ERG_GEMM_FORWARD, rows, inputs, outputs,
                               at(x, inputs, rows), weight, at(y, outputs, rows), launch, err);
}

int erg_decoder_forward(struct erg_decoder *decoder, size_t layer, unsigned parts,
                        struct decoder_rows rows, const struct erg_decoder_launch *launch,
                        struct erg_error *err)
{
    erg_bf16 *const *w = decoder->layers[layer].weights;
    struct decoder_activations *act = &decoder->layers[layer].act;
    size_t h = decoder->hidden;
    struct erg_ops_qkv shape = qkv_shape(decoder, rows);
    switch (parts) {
    case PART(NORM_A):
    case PART(BDA_M) | PART(NORM_A):
        return norm_a(decoder, layer, parts & PART(BDA_M), rows, launch, err);
    case PART(QKV):
        return linear(decoder, rows, h, decoder->qkv_row, act->n_a, w[ERG_WEIGHT_QKV], act->qkv,
                      launch, err);
    case PART(QKV_POST) | PART(ROPE):
        return erg_cuda_rope_forward(
            &shape, (float)decoder->options.model->norm_eps, w[ERG_WEIGHT_Q_NORM],
            w[ERG_WEIGHT_K_NORM], decoder->rope_table, at(act->qkv, decoder->qkv_row, rows),
            at(act->rotated, decoder->qkv_row, rows), decoder->qkv_row, launch->stream, err);
    case PART(ATTENTION):
        return erg_decoder_attention(decoder, act, false, rows, launch, err);
    case PART(PROJ):
        return linear(decoder, rows, decoder->attn_row, h, act->attn, w[ERG_WEIGHT_PROJ],
                      decoder->reduce[DECODER_REDUCE_A], launch, err);
    case PART(BDA_A) | PART(NORM_M):
        return norm_m(decoder, layer, rows, launch, err);
    case PART(FC1):
        return linear(decoder, rows, h, 2 * decoder->ffn, act->n_m, w[ERG_WEIGHT_FC1], act->gate_up,
                      launch, err);
    case PART(ACTIVATION):
        return erg_cuda_swiglu_forward(rows.count, decoder->ffn,
                                       at(act->gate_up, 2 * decoder->ffn, rows),
                                       at(act->act, decoder->ffn, rows), launch->stream, err);
    case PART(FC2):
        return linear(decoder, rows, decoder->ffn, h, act->act, w[ERG_WEIGHT_FC2],
                      decoder->reduce[DECODER_REDUCE_M], launch, err);
    case PART(BDA_M):
        /*
         * Only the last layer's sum is needed; in a replay, that of another layer is the input of
         * the next one, which was kept.
         */
        if (layer + 1 < (size_t)decoder->options.layers)
            return 0;
        return erg_cuda_add_bias(rows.count, h, at(act->x_m, h, rows),
                                 at(decoder->reduce[DECODER_REDUCE_M], h, rows), NULL,
                                 at(decoder->output, h, rows), launch->stream, err);
    default:
        return erg_fail(err, ERG_FAILED,
                        "running a forward op on the GPU: no kernel does the parts 0x%x together",
                        parts);
    }
}

/* ---- backward ---- */

/* The input gradient (d_y -> d_x) or the weight gradient (x, d_y -> d_w) of a linear. */
static int linear_gradient(struct erg_decoder *decoder, bool weights, struct decoder_rows rows,
                           size_t inputs, size_t outputs, erg_bf16 *x, const erg_bf16 *weight,
                           erg_bf16 *d_y, erg_bf16 *d_x, float *d_weight,
                           const struct erg_decoder_launch *launch, struct erg_error *err)
{
    if (weights)
        return erg_decoder_product(decoder, ERG_GEMM_WEIGHT_GRADIENT, rows, inputs, outputs,
                                   at(x, inputs, rows), at(d_y, outputs, rows), d_weight, launch,
                                   err);
    return erg_decoder_product(decoder, ERG_GEMM_INPUT_GRADIENT, rows, inputs, outputs,
                               at(d_y, outputs, rows), weight, at(d_x, inputs, rows), launch, err);
}

/*
 * The gradient through a norm and the fork before it: d_in = d_stream + gradient through the norm.
 */
static int norm_gradient(struct erg_decoder *decoder, struct decoder_rows rows, erg_bf16 *x,
                         const erg_bf16 *weight, const float *inv, int reduce, erg_bf16 *d_stream,
                         erg_bf16 *d_in, float *d_weight, const struct erg_decoder_launch *launch,
                         struct erg_error *err)
{
    size_t h = decoder->hidden;
    return erg_cuda_norm_backward(rows.count, h, at(x, h, rows), weight, inv + rows.first,
                                  at(decoder->reduce[reduce], h, rows), at(d_stream, h, rows),
                                  at(d_in, h, rows), d_weight, decoder->scratch, launch->stream,
                                  err);
}

int erg_decoder_backward(struct erg_decoder *decoder, size_t layer, const struct erg_op_code *code,
                         struct decoder_rows rows, const struct erg_decoder_launch *launch,
                         struct erg_error *err)
{
    erg_bf16 *const *w = decoder->layers[layer].weights;
    float *const *d = decoder->layers[layer].gradients;
    struct decoder_activations *act = &decoder->layers[layer].act;
    size_t h = decoder->hidden, f = decoder->ffn;
    struct erg_ops_qkv shape = qkv_shape(decoder, rows);
    erg_bf16 *reduce_a = decoder->reduce[DECODER_REDUCE_A],
             *reduce_m = decoder->reduce[DECODER_REDUCE_M];
    erg_bf16 *d_out = decoder_output_gradient(decoder, layer);
    switch (code->parts) {
    case PART(BDA_M): /* both summands have the gradient of the layer's output */
        return 0;
    case PART(FC2):
        return linear_gradient(decoder, code->weights, rows, f, h, act->act, w[ERG_WEIGHT_FC2],
                               d_out, decoder->d_act, d[ERG_WEIGHT_FC2], launch, err);
    case PART(ACTIVATION):
        return erg_cuda_swiglu_backward(rows.count, f, at(act->gate_up, 2 * f, rows),
                                        at(decoder->d_act, f, rows),
                                        at(decoder->d_gate_up, 2 * f, rows), launch->stream, err);
    case PART(FC1):
        return linear_gradient(decoder, code->weights, rows, h, 2 * f, act->n_m, w[ERG_WEIGHT_FC1],
                               decoder->d_gate_up, reduce_m, d[ERG_WEIGHT_FC1], launch, err);
    case PART(NORM_M) | PART(FORK_M) | PART(BDA_A):
        return norm_gradient(decoder, rows, act->x_m, w[ERG_WEIGHT_NORM_M], act->inv_m,
                             DECODER_REDUCE_M, d_out, decoder->d_mid, d[ERG_WEIGHT_NORM_M], launch,
                             err);
    case PART(PROJ):
        return linear_gradient(decoder, code->weights, rows, decoder->attn_row, h, act->attn,
                               w[ERG_WEIGHT_PROJ], decoder->d_mid, decoder->d_attn,
                               d[ERG_WEIGHT_PROJ], launch, err);
    case PART(ATTENTION):
        return erg_decoder_attention(decoder, act, true, rows, launch, err);
    case PART(QKV_POST) | PART(ROPE):
        return erg_cuda_rope_backward(
            &shape, (float)decoder->options.model->norm_eps, w[ERG_WEIGHT_Q_NORM],
            w[ERG_WEIGHT_K_NORM], decoder->rope_table, at(act->qkv, decoder->qkv_row, rows),
            at(decoder->d_rotated, decoder->qkv_row, rows),
            at(decoder->d_qkv, decoder->qkv_row, rows), d[ERG_WEIGHT_Q_NORM], d[ERG_WEIGHT_K_NORM],
            decoder->scratch, launch->stream, err);
    case PART(QKV):
        return linear_gradient(decoder, code->weights, rows, h, decoder->qkv_row, act->n_a,
                               w[ERG_WEIGHT_QKV], decoder->d_qkv, reduce_a, d[ERG_WEIGHT_QKV],
                               launch, err);
    case PART(NORM_A) | PART(FORK_A):
    case PART(NORM_A) | PART(FORK_A) | PART(BDA_M):
        return norm_gradient(decoder, rows, act->x_a, w[ERG_WEIGHT_NORM_A], act->inv_a,
                             DECODER_REDUCE_A, decoder->d_mid,
                             decoder_input_gradient(decoder, layer), d[ERG_WEIGHT_NORM_A], launch,
                             err);
    default:
        return erg_fail(err, ERG_FAILED,
                        "running a backward op on the GPU: no kernel does the parts 0x%x together",
                        code->parts);
    }
}
