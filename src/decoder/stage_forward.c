/* The forward pass of a stage: which kernel on which tensors. */
#include "decoder/stage_internal.h"

/* residual + x + x_bias into `sum` where there is an x, then the norm. */
static int norm(struct erg_stage *stage, void *residual, void *x, void *x_bias, void *weight,
                void *bias, void *sum, void *out, float *stats, struct erg_stream *stream,
                struct erg_error *err)
{
    bool layer = stage->model->layer_norm;
    struct erg_kernel kernel = {layer ? ERG_KERNEL_LAYER_NORM : ERG_KERNEL_NORM,
                                .norm = {.tokens = stage->tokens,
                                         .hidden = stage->hidden,
                                         .eps = (float)stage->model->norm_eps,
                                         .residual = residual,
                                         .x = x,
                                         .x_bias = x_bias,
                                         .weight = weight,
                                         .bias = bias,
                                         .sum = sum,
                                         .out = out,
                                         .stats = stats}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int linear(struct erg_stage *stage, size_t inputs, size_t outputs, void *x, void *weight,
                  void *bias, void *y, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_LINEAR,
                                .linear = {stage->tokens, inputs, outputs, x, weight, bias, y}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int rotate(struct erg_stage *stage, const struct erg_stage_layer *layer,
                  const struct erg_stage_activations *act, struct erg_stream *stream,
                  struct erg_error *err)
{
    if (stage->model->learned_positions)
        return 0;
    struct erg_kernel kernel = {ERG_KERNEL_ROPE,
                                .rope = {.shape = erg_stage_qkv_shape(stage),
                                         .eps = (float)stage->model->norm_eps,
                                         .q_weight = layer->values[ERG_TENSOR_Q_NORM],
                                         .k_weight = layer->values[ERG_TENSOR_K_NORM],
                                         .table = stage->rope_table,
                                         .qkv = act->qkv,
                                         .out = act->rotated,
                                         .out_row = stage->qkv_row}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int attend(struct erg_stage *stage, const struct erg_stage_activations *act,
                  struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {
        ERG_KERNEL_ATTENTION, .attention = {.shape = erg_stage_attention_shape(stage),
                                            .q = act->rotated,
                                            .k = erg_stage_at(stage, act->rotated, stage->attn_row),
                                            .v = erg_stage_at(stage, act->qkv, stage->values_at),
                                            .out = act->attn,
                                            .stats = act->stats}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int activate(struct erg_stage *stage, const struct erg_stage_activations *act,
                    struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {stage->model->gated ? ERG_KERNEL_SWIGLU : ERG_KERNEL_GELU,
                                .activation = {.tokens = stage->tokens,
                                               .width = stage->ffn,
                                               .tanh_form = !stage->model->gelu_exact,
                                               .in = act->fc1,
                                               .out = act->act}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* `add`: what the layer before adds to the stream is still in `reduce`. */
static int forward_layer(struct erg_stage *stage, size_t slot, size_t index,
                         struct erg_stream *stream, struct erg_error *err)
{
    const struct erg_stage_layer *layer = &stage->layer[index];
    void *const *w = layer->values;
    const struct erg_stage_activations *act = &stage->activations[slot * stage->layers + index];
    const struct erg_stage_activations *before = index ? act - 1 : NULL;
    void *bias = before ? stage->layer[index - 1].values[ERG_TENSOR_FC2_BIAS] : NULL;
    size_t h = stage->hidden;
    return norm(stage, before ? before->x_m : act->x_a, before ? stage->reduce : NULL, bias,
                w[ERG_TENSOR_NORM_A], w[ERG_TENSOR_NORM_A_BIAS], act->x_a, act->n_a, act->stats_a,
                stream, err) ||
                   linear(stage, h, stage->qkv_row, act->n_a, w[ERG_TENSOR_QKV],
                          w[ERG_TENSOR_QKV_BIAS], act->qkv, stream, err) ||
                   rotate(stage, layer, act, stream, err) || attend(stage, act, stream, err) ||
                   linear(stage, stage->attn_row, h, act->attn, w[ERG_TENSOR_PROJ], NULL,
                          stage->reduce, stream, err) ||
                   norm(stage, act->x_a, stage->reduce, w[ERG_TENSOR_PROJ_BIAS],
                        w[ERG_TENSOR_NORM_M], w[ERG_TENSOR_NORM_M_BIAS], act->x_m, act->n_m,
                        act->stats_m, stream, err) ||
                   linear(stage, h, stage->fc1_width, act->n_m, w[ERG_TENSOR_FC1],
                          w[ERG_TENSOR_FC1_BIAS], act->fc1, stream, err) ||
                   activate(stage, act, stream, err) ||
                   linear(stage, stage->ffn, h, act->act, w[ERG_TENSOR_FC2], NULL, stage->reduce,
                          stream, err)
               ? -1
               : 0;
}

static int embed(struct erg_stage *stage, size_t slot, const struct erg_stage_tokens *tokens,
                 struct erg_stream *stream, struct erg_error *err)
{
    void *x = stage->activations[slot * stage->layers].x_a;
    struct erg_kernel word = {ERG_KERNEL_EMBEDDING, .embedding = {.tokens = stage->tokens,
                                                                  .hidden = stage->hidden,
                                                                  .first = stage->first_word,
                                                                  .rows = stage->words,
                                                                  .ids = tokens->ids,
                                                                  .in = stage->embedding,
                                                                  .out = x}};
    struct erg_kernel position = {ERG_KERNEL_POSITION, .position = {.tokens = stage->tokens,
                                                                    .sequence = stage->sequence,
                                                                    .hidden = stage->hidden,
                                                                    .in = stage->positions,
                                                                    .x = x}};
    return erg_stage_launch(stage, &word, stream, err) ||
                   (stage->positions && erg_stage_launch(stage, &position, stream, err))
               ? -1
               : 0;
}

static struct erg_kernel loss_kernel(struct erg_stage *stage, enum erg_kernel_kind kind,
                                     const struct erg_stage_tokens *tokens)
{
    return (struct erg_kernel){kind, .loss = {.tokens = stage->tokens,
                                              .columns = stage->words,
                                              .valid = stage->valid_words,
                                              .first = stage->first_word,
                                              .ranks = 1,
                                              .targets = tokens->targets,
                                              .logits = stage->logits,
                                              .stats = stage->loss_stats,
                                              .scale = tokens->scale,
                                              .log_sum = stage->log_sum,
                                              .loss = tokens->loss}};
}

/* Final norm and logits; with targets also the loss, after which the logits are their gradients. */
static int finish(struct erg_stage *stage, const struct erg_stage_tokens *tokens,
                  struct erg_stream *stream, struct erg_error *err)
{
    if (norm(stage, stage->output, NULL, NULL, stage->norm_final, stage->norm_final_bias, NULL,
             stage->n_final, stage->stats_final, stream, err) ||
        linear(stage, stage->hidden, stage->words, stage->n_final, stage->head, NULL, stage->logits,
               stream, err))
        return -1;
    if (!tokens->targets)
        return 0;
    const enum erg_kernel_kind kinds[] = {ERG_KERNEL_LOSS_STATS, ERG_KERNEL_LOSS_COMBINE,
                                          ERG_KERNEL_LOSS_GRADIENT};
    for (size_t i = 0; i < 3; i++) {
        struct erg_kernel kernel = loss_kernel(stage, kinds[i], tokens);
        if (erg_stage_launch(stage, &kernel, stream, err))
            return -1;
    }
    return 0;
}

int erg_stage_forward(struct erg_stage *stage, size_t slot, const struct erg_stage_tokens *tokens,
                      struct erg_stream *stream, struct erg_error *err)
{
    if (stage->options.weights.embedding && embed(stage, slot, tokens, stream, err))
        return -1;
    for (size_t i = 0; i < stage->layers; i++)
        if (forward_layer(stage, slot, i, stream, err))
            return -1;
    const struct erg_stage_activations *last = &stage->activations[(slot + 1) * stage->layers - 1];
    struct erg_kernel add = {ERG_KERNEL_ADD,
                             .add = {stage->tokens, stage->hidden, last->x_m, stage->reduce,
                                     stage->layer[stage->layers - 1].values[ERG_TENSOR_FC2_BIAS],
                                     stage->output}};
    if (erg_stage_launch(stage, &add, stream, err))
        return -1;
    return stage->options.weights.head ? finish(stage, tokens, stream, err) : 0;
}
