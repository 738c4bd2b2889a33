/* The backward pass of a stage: which kernel on which tensors. */
#include "decoder/stage_internal.h"

/* Of a linear y = x weight: the gradient of x. */
static int input_gradient(struct erg_stage *stage, size_t inputs, size_t outputs, void *d_y,
                          void *weight, void *d_x, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_LINEAR_INPUT_GRADIENT,
                                .linear = {stage->tokens, inputs, outputs, d_y, weight, NULL, d_x}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int weight_gradient(struct erg_stage *stage, size_t inputs, size_t outputs, void *x,
                           void *d_y, float *d_weight, struct erg_stream *stream,
                           struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_LINEAR_WEIGHT_GRADIENT,
                                .linear = {stage->tokens, inputs, outputs, x, d_y, NULL, d_weight}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* Of a bias that is there, over `tokens` rows. */
static int bias_gradient(struct erg_stage *stage, size_t tokens, size_t width, void *d_y,
                         float *d_bias, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_BIAS_GRADIENT, .bias = {tokens, width, d_y, d_bias}};
    return d_bias ? erg_stage_launch(stage, &kernel, stream, err) : 0;
}

/* Through a linear whose input x is the stream's rows and whose output is this rank's: the gradient
 * of the rows is summed over tensor ranks into `reduce`. */
static int linear_of_stream_gradients(struct erg_stage *stage, size_t outputs, void *rows,
                                      void *weight, void *d_y, float *d_weight, float *d_bias,
                                      struct erg_stream *stream, struct erg_error *err)
{
    void *x;
    return input_gradient(stage, stage->hidden, outputs, d_y, weight, stage->partial, stream,
                          err) ||
                   erg_stage_sum(stage, stage->reduce, stream, err) ||
                   erg_stage_gather(stage, rows, &x, stream, err) ||
                   weight_gradient(stage, stage->hidden, outputs, x, d_y, d_weight, stream, err) ||
                   bias_gradient(stage, stage->tokens, outputs, d_y, d_bias, stream, err)
               ? -1
               : 0;
}

/* Through a linear whose input x is this rank's and whose output goes into the stream. */
static int linear_to_stream_gradients(struct erg_stage *stage, size_t inputs, void *x, void *weight,
                                      void *d_rows, void *d_x, float *d_weight, float *d_bias,
                                      struct erg_stream *stream, struct erg_error *err)
{
    void *d_y;
    return erg_stage_gather(stage, d_rows, &d_y, stream, err) ||
                   input_gradient(stage, inputs, stage->hidden, d_y, weight, d_x, stream, err) ||
                   weight_gradient(stage, inputs, stage->hidden, x, d_y, d_weight, stream, err) ||
                   bias_gradient(stage, stage->rows, stage->hidden, d_rows, d_bias, stream, err)
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
                                .norm_gradient = {stage->rows, stage->hidden, sum, weight, stats,
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
static int backward_layer(struct erg_stage *stage, const struct erg_stage_layer *layer,
                          const struct erg_stage_activations *act, void *d_out, void *d_in,
                          struct erg_stream *stream, struct erg_error *err)
{
    void *const *w = layer->values;
    float *const *d = layer->gradients;
    return linear_to_stream_gradients(stage, stage->ffn, act->act, w[ERG_TENSOR_FC2], d_out,
                                      stage->d_act, d[ERG_TENSOR_FC2], d[ERG_TENSOR_FC2_BIAS],
                                      stream, err) ||
                   activation_gradient(stage, act, stream, err) ||
                   linear_of_stream_gradients(stage, stage->fc1_width, act->n_m, w[ERG_TENSOR_FC1],
                                              stage->d_fc1, d[ERG_TENSOR_FC1],
                                              d[ERG_TENSOR_FC1_BIAS], stream, err) ||
                   norm_gradient(stage, act->x_m, w[ERG_TENSOR_NORM_M], act->stats_m, stage->reduce,
                                 d_out, stage->d_mid, d[ERG_TENSOR_NORM_M],
                                 d[ERG_TENSOR_NORM_M_BIAS], stream, err) ||
                   linear_to_stream_gradients(stage, stage->attn_row, act->attn, w[ERG_TENSOR_PROJ],
                                              stage->d_mid, stage->d_attn, d[ERG_TENSOR_PROJ],
                                              d[ERG_TENSOR_PROJ_BIAS], stream, err) ||
                   erg_stage_attention_gradient(stage, act, stream, err) ||
                   rotation_gradient(stage, layer, act, stream, err) ||
                   linear_of_stream_gradients(stage, stage->qkv_row, act->n_a, w[ERG_TENSOR_QKV],
                                              stage->d_qkv, d[ERG_TENSOR_QKV],
                                              d[ERG_TENSOR_QKV_BIAS], stream, err) ||
                   norm_gradient(stage, act->x_a, w[ERG_TENSOR_NORM_A], act->stats_a, stage->reduce,
                                 stage->d_mid, d_in, d[ERG_TENSOR_NORM_A],
                                 d[ERG_TENSOR_NORM_A_BIAS], stream, err)
               ? -1
               : 0;
}

static int head_gradient(struct erg_stage *stage, const struct erg_stage_head *head, void *d_output,
                         struct erg_stream *stream, struct erg_error *err)
{
    return linear_of_stream_gradients(stage, stage->words, head->n_final, stage->head, head->logits,
                                      stage->d_head, NULL, stream, err) ||
                   norm_gradient(stage, head->output, stage->norm_final, head->stats_final,
                                 stage->reduce, NULL, d_output, stage->d_norm_final,
                                 stage->d_norm_final_bias, stream, err)
               ? -1
               : 0;
}

static int embedding_gradient(struct erg_stage *stage, const struct erg_stage_tokens *tokens,
                              void *d_input, struct erg_stream *stream, struct erg_error *err)
{
    void *d_all;
    if (erg_stage_gather(stage, d_input, &d_all, stream, err) != 0)
        return -1;
    struct erg_kernel word = {ERG_KERNEL_EMBEDDING_GRADIENT,
                              .embedding = {.tokens = stage->tokens,
                                            .hidden = stage->hidden,
                                            .first = stage->first_word,
                                            .rows = stage->words,
                                            .ids = tokens->ids,
                                            .order = tokens->order,
                                            .in = d_all,
                                            .d_table = stage->d_embedding}};
    struct erg_kernel position = {ERG_KERNEL_POSITION_GRADIENT,
                                  .position = {.tokens = stage->rows,
                                               .sequence = stage->positions_count,
                                               .hidden = stage->hidden,
                                               .positions = stage->place_of,
                                               .in = d_input,
                                               .d_table = stage->d_positions}};
    return erg_stage_launch(stage, &word, stream, err) ||
                   (stage->positions && erg_stage_launch(stage, &position, stream, err))
               ? -1
               : 0;
}

static int tell_rest(const struct erg_stage *stage, const struct erg_stage_listener *listener,
                     struct erg_error *err)
{
    return erg_stage_tell(stage, listener, ERG_BUCKET_HEAD_NORMS, -1, err) ||
                   erg_stage_tell(stage, listener, ERG_BUCKET_VECTORS, -1, err) ||
                   erg_stage_tell(stage, listener, ERG_BUCKET_EMBEDDING, -1, err)
               ? -1
               : 0;
}

int erg_stage_backward(struct erg_stage *stage, size_t index, const struct erg_stage_tokens *tokens,
                       void *d_output, void *d_input, const struct erg_stage_listener *adds,
                       struct erg_stream *stream, struct erg_error *err)
{
    const struct erg_stage_pass *pass = &stage->passes[index];
    const struct erg_layer_range *range = &stage->chunks[pass->chunk];
    const struct erg_stage_layer *layers = &stage->layer[stage->chunk_first[pass->chunk]];
    void *d_out = d_output, *d_in = stage->d_stream[1];
    if (pass->head) {
        d_out = stage->d_stream[0];
        if (head_gradient(stage, pass->head, d_out, stream, err) ||
            erg_stage_tell(stage, adds, ERG_BUCKET_HEAD, -1, err))
            return -1;
    }
    for (size_t i = (size_t)range->count; i > 0; i--) {
        if (i == 1 && d_input)
            d_in = d_input;
        if (backward_layer(stage, &layers[i - 1], pass->layers[i - 1], d_out, d_in, stream, err) ||
            erg_stage_tell(stage, adds, ERG_BUCKET_LAYER, range->first + (long)i - 1, err))
            return -1;
        d_out = d_in;
        d_in = d_in == stage->d_stream[0] ? stage->d_stream[1] : stage->d_stream[0];
    }
    if (stage->options.weights.embedding && pass->chunk == 0 &&
        embedding_gradient(stage, tokens, d_out, stream, err))
        return -1;
    if (pass->chunk == 0 && tell_rest(stage, adds, err))
        return -1;
    erg_stage_leave(stage, index);
    return 0;
}
