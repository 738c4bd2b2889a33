/* The backward pass of a stage: which kernel on which tensors. */
#include "decoder/stage_internal.h"

/* Of a linear y = x weight: the gradient of x, and what is added to those of weight and bias. */
static int linear_gradients(struct erg_stage *stage, size_t inputs, size_t outputs, void *x,
                            void *weight, void *d_y, void *d_x, float *d_weight, float *d_bias,
                            struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel input = {ERG_KERNEL_LINEAR_INPUT_GRADIENT,
                               .linear = {stage->tokens, inputs, outputs, d_y, weight, NULL, d_x}};
    struct erg_kernel matrix = {ERG_KERNEL_LINEAR_WEIGHT_GRADIENT,
                                .linear = {stage->tokens, inputs, outputs, x, d_y, NULL, d_weight}};
    struct erg_kernel bias = {ERG_KERNEL_BIAS_GRADIENT,
                              .bias = {stage->tokens, outputs, d_y, d_bias}};
    return erg_stage_launch(stage, &input, stream, err) ||
                   erg_stage_launch(stage, &matrix, stream, err) ||
                   (d_bias && erg_stage_launch(stage, &bias, stream, err))
               ? -1
               : 0;
}

/* Through a norm and the fork before it: d_in = d_sum (NULL: nothing) + the gradient through it. */
static int norm_gradient(struct erg_stage *stage, void *sum, void *weight, const float *stats,
                         void *d_out, void *d_sum, void *d_in, float *d_weight, float *d_bias,
                         struct erg_stream *stream, struct erg_error *err)
{
    bool layer = stage->model->layer_norm;
    struct erg_kernel kernel = {layer ? ERG_KERNEL_LAYER_NORM_GRADIENT : ERG_KERNEL_NORM_GRADIENT,
                                .norm_gradient = {stage->tokens, stage->hidden, sum, weight, stats,
                                                  d_out, d_sum, d_in, d_weight, d_bias}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int activation_gradient(struct erg_stage *stage, const struct erg_stage_activations *act,
                               struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {stage->model->gated ? ERG_KERNEL_SWIGLU_GRADIENT
                                                    : ERG_KERNEL_GELU_GRADIENT,
                                .activation = {.tokens = stage->tokens,
                                               .width = stage->ffn,
                                               .tanh_form = !stage->model->gelu_exact,
                                               .in = act->fc1,
                                               .d_out = stage->d_act,
                                               .out = stage->d_fc1}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int attention_gradient(struct erg_stage *stage, const struct erg_stage_activations *act,
                              struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {
        ERG_KERNEL_ATTENTION_GRADIENT,
        .attention = {.shape = erg_stage_attention_shape(stage),
                      .q = act->rotated,
                      .k = erg_stage_at(stage, act->rotated, stage->attn_row),
                      .v = erg_stage_at(stage, act->qkv, stage->values_at),
                      .out = act->attn,
                      .stats = act->stats,
                      .d_out = stage->d_attn,
                      .d_q = stage->d_qkv,
                      .d_k = erg_stage_at(stage, stage->d_qkv, stage->attn_row),
                      .d_v = erg_stage_at(stage, stage->d_qkv, stage->values_at)}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int rotation_gradient(struct erg_stage *stage, const struct erg_stage_layer *layer,
                             const struct erg_stage_activations *act, struct erg_stream *stream,
                             struct erg_error *err)
{
    if (stage->model->learned_positions)
        return 0;
    struct erg_kernel kernel = {ERG_KERNEL_ROPE_GRADIENT,
                                .rope = {.shape = erg_stage_qkv_shape(stage),
                                         .eps = (float)stage->model->norm_eps,
                                         .q_weight = layer->values[ERG_TENSOR_Q_NORM],
                                         .k_weight = layer->values[ERG_TENSOR_K_NORM],
                                         .table = stage->rope_table,
                                         .qkv = act->qkv,
                                         .d_rotated = stage->d_qkv,
                                         .out = stage->d_qkv,
                                         .d_q_weight = layer->gradients[ERG_TENSOR_Q_NORM],
                                         .d_k_weight = layer->gradients[ERG_TENSOR_K_NORM]}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* d_out: of the layer's output; d_in: of its input. */
static int backward_layer(struct erg_stage *stage, size_t slot, size_t index, void *d_out,
                          void *d_in, struct erg_stream *stream, struct erg_error *err)
{
    const struct erg_stage_layer *layer = &stage->layer[index];
    void *const *w = layer->values;
    float *const *d = layer->gradients;
    const struct erg_stage_activations *act = &stage->activations[slot * stage->layers + index];
    size_t h = stage->hidden;
    return linear_gradients(stage, stage->ffn, h, act->act, w[ERG_TENSOR_FC2], d_out, stage->d_act,
                            d[ERG_TENSOR_FC2], d[ERG_TENSOR_FC2_BIAS], stream, err) ||
                   activation_gradient(stage, act, stream, err) ||
                   linear_gradients(stage, h, stage->fc1_width, act->n_m, w[ERG_TENSOR_FC1],
                                    stage->d_fc1, stage->reduce, d[ERG_TENSOR_FC1],
                                    d[ERG_TENSOR_FC1_BIAS], stream, err) ||
                   norm_gradient(stage, act->x_m, w[ERG_TENSOR_NORM_M], act->stats_m, stage->reduce,
                                 d_out, stage->d_mid, d[ERG_TENSOR_NORM_M],
                                 d[ERG_TENSOR_NORM_M_BIAS], stream, err) ||
                   linear_gradients(stage, stage->attn_row, h, act->attn, w[ERG_TENSOR_PROJ],
                                    stage->d_mid, stage->d_attn, d[ERG_TENSOR_PROJ],
                                    d[ERG_TENSOR_PROJ_BIAS], stream, err) ||
                   attention_gradient(stage, act, stream, err) ||
                   rotation_gradient(stage, layer, act, stream, err) ||
                   linear_gradients(stage, h, stage->qkv_row, act->n_a, w[ERG_TENSOR_QKV],
                                    stage->d_qkv, stage->reduce, d[ERG_TENSOR_QKV],
                                    d[ERG_TENSOR_QKV_BIAS], stream, err) ||
                   norm_gradient(stage, act->x_a, w[ERG_TENSOR_NORM_A], act->stats_a, stage->reduce,
                                 stage->d_mid, d_in, d[ERG_TENSOR_NORM_A],
                                 d[ERG_TENSOR_NORM_A_BIAS], stream, err)
               ? -1
               : 0;
}

static int head_gradient(struct erg_stage *stage, void *d_output, struct erg_stream *stream,
                         struct erg_error *err)
{
    return linear_gradients(stage, stage->hidden, stage->words, stage->n_final, stage->head,
                            stage->logits, stage->reduce, stage->d_head, NULL, stream, err) ||
                   norm_gradient(stage, stage->output, stage->norm_final, stage->stats_final,
                                 stage->reduce, NULL, d_output, stage->d_norm_final,
                                 stage->d_norm_final_bias, stream, err)
               ? -1
               : 0;
}

static int embedding_gradient(struct erg_stage *stage, const struct erg_stage_tokens *tokens,
                              void *d_input, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel word = {ERG_KERNEL_EMBEDDING_GRADIENT,
                              .embedding = {.tokens = stage->tokens,
                                            .hidden = stage->hidden,
                                            .first = stage->first_word,
                                            .rows = stage->words,
                                            .ids = tokens->ids,
                                            .order = tokens->order,
                                            .in = d_input,
                                            .d_table = stage->d_embedding}};
    struct erg_kernel position = {ERG_KERNEL_POSITION_GRADIENT,
                                  .position = {.tokens = stage->tokens,
                                               .sequence = stage->sequence,
                                               .hidden = stage->hidden,
                                               .in = d_input,
                                               .d_table = stage->d_positions}};
    return erg_stage_launch(stage, &word, stream, err) ||
                   (stage->positions && erg_stage_launch(stage, &position, stream, err))
               ? -1
               : 0;
}

int erg_stage_backward(struct erg_stage *stage, size_t slot, const struct erg_stage_tokens *tokens,
                       struct erg_stream *stream, struct erg_error *err)
{
    void *d_out = stage->d_stream[0], *d_in = stage->d_stream[1];
    if (stage->options.weights.head && head_gradient(stage, d_out, stream, err))
        return -1;
    for (size_t i = stage->layers; i > 0; i--) {
        if (backward_layer(stage, slot, i - 1, d_out, d_in, stream, err))
            return -1;
        void *swapped = d_out;
        d_out = d_in;
        d_in = swapped;
    }
    return stage->options.weights.embedding ? embedding_gradient(stage, tokens, d_out, stream, err)
                                            : 0;
}
