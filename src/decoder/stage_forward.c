/* The forward pass of a stage: which kernel on which tensors. */
#include "decoder/stage_internal.h"

/* residual + x + x_bias into `sum` where there is an x, then the norm. */
static int norm(struct erg_stage *stage, void *residual, void *x, void *x_bias, void *weight,
                void *bias, void *sum, void *out, float *stats, struct erg_stream *stream,
                struct erg_error *err)
{
    bool layer = stage->model->layer_norm;
    struct erg_kernel kernel = {layer ? ERG_KERNEL_LAYER_NORM : ERG_KERNEL_NORM,
                                .norm = {.tokens = stage->rows,
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

/* The same with the stream's rows of all tensor ranks. */
static int linear_of_stream(struct erg_stage *stage, size_t outputs, void *rows, void *weight,
                            void *bias, void *y, struct erg_stream *stream, struct erg_error *err)
{
    void *x;
    return erg_stage_gather(stage, rows, &x, stream, err) ||
                   linear(stage, stage->hidden, outputs, x, weight, bias, y, stream, err)
               ? -1
               : 0;
}

/* The term of this rank's inputs, summed over tensor ranks into `reduce`. */
static int linear_to_stream(struct erg_stage *stage, size_t inputs, void *x, void *weight,
                            struct erg_stream *stream, struct erg_error *err)
{
    return linear(stage, inputs, stage->hidden, x, weight, NULL, stage->partial, stream, err) ||
                   erg_stage_sum(stage, stage->reduce, stream, err)
               ? -1
               : 0;
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

/* `before`: the layer before in the chunk, what it adds to the stream is still in `reduce`. */
static int forward_layer(struct erg_stage *stage, const struct erg_stage_layer *layer,
                         const struct erg_stage_activations *act,
                         const struct erg_stage_layer *before, void *x_m_before,
                         struct erg_stream *stream, struct erg_error *err)
{
    void *const *w = layer->values;
    void *residual = before ? x_m_before : act->x_a;
    return norm(stage, residual, before ? stage->reduce : NULL,
                before ? before->values[ERG_TENSOR_FC2_BIAS] : NULL, w[ERG_TENSOR_NORM_A],
                w[ERG_TENSOR_NORM_A_BIAS], act->x_a, act->n_a, act->stats_a, stream, err) ||
                   linear_of_stream(stage, stage->qkv_row, act->n_a, w[ERG_TENSOR_QKV],
                                    w[ERG_TENSOR_QKV_BIAS], act->qkv, stream, err) ||
                   rotate(stage, layer, act, stream, err) ||
                   erg_stage_attention(stage, act, stream, err) ||
                   linear_to_stream(stage, stage->attn_row, act->attn, w[ERG_TENSOR_PROJ], stream,
                                    err) ||
                   norm(stage, act->x_a, stage->reduce, w[ERG_TENSOR_PROJ_BIAS],
                        w[ERG_TENSOR_NORM_M], w[ERG_TENSOR_NORM_M_BIAS], act->x_m, act->n_m,
                        act->stats_m, stream, err) ||
                   linear_of_stream(stage, stage->fc1_width, act->n_m, w[ERG_TENSOR_FC1],
                                    w[ERG_TENSOR_FC1_BIAS], act->fc1, stream, err) ||
                   activate(stage, act, stream, err) ||
                   linear_to_stream(stage, stage->ffn, act->act, w[ERG_TENSOR_FC2], stream, err)
               ? -1
               : 0;
}

static int embed(struct erg_stage *stage, void *x, const struct erg_stage_tokens *tokens,
                 struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel word = {ERG_KERNEL_EMBEDDING, .embedding = {.tokens = stage->tokens,
                                                                  .hidden = stage->hidden,
                                                                  .first = stage->first_word,
                                                                  .rows = stage->words,
                                                                  .ids = tokens->ids,
                                                                  .in = stage->embedding,
                                                                  .out = stage->partial}};
    struct erg_kernel position = {ERG_KERNEL_POSITION,
                                  .position = {.tokens = stage->rows,
                                               .sequence = stage->positions_count,
                                               .hidden = stage->hidden,
                                               .positions = stage->place_of,
                                               .in = stage->positions,
                                               .x = x}};
    if (stage->ranks == 1)
        word.embedding.out = x;
    return erg_stage_launch(stage, &word, stream, err) ||
                   (stage->ranks > 1 && erg_stage_sum(stage, x, stream, err)) ||
                   (stage->positions && erg_stage_launch(stage, &position, stream, err))
               ? -1
               : 0;
}

static int run_loss(struct erg_stage *stage, const struct erg_stage_head *head,
                    enum erg_kernel_kind kind, const struct erg_stage_tokens *tokens,
                    struct erg_stream *stream, struct erg_error *err)
{
    bool own = kind == ERG_KERNEL_LOSS_STATS;
    size_t place = own ? (size_t)stage->options.weights.place * 3 * stage->tokens : 0;
    struct erg_kernel kernel = {kind, .loss = {.tokens = stage->tokens,
                                               .columns = stage->words,
                                               .valid = stage->valid_words,
                                               .first = stage->first_word,
                                               .ranks = stage->ranks,
                                               .targets = tokens->targets,
                                               .logits = head->logits,
                                               .stats = head->loss_stats + place,
                                               .scale = tokens->scale,
                                               .log_sum = head->log_sum,
                                               .loss = tokens->loss}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* Each rank's statistics of its words become those of all. */
static int gather_stats(struct erg_stage *stage, const struct erg_stage_head *head,
                        struct erg_stream *stream, struct erg_error *err)
{
    size_t count = 3 * stage->tokens;
    return stage->ranks == 1
               ? 0
               : erg_stage_exchange(stage, stage->options.tensor_group, ERG_EXCHANGE_ALL_GATHER,
                                    true, count,
                                    head->loss_stats + (size_t)stage->options.weights.place * count,
                                    head->loss_stats, stream, err);
}

/* Final norm and logits; with targets also the loss, after which the logits are their gradients. */
static int finish(struct erg_stage *stage, const struct erg_stage_head *head,
                  const struct erg_stage_tokens *tokens, struct erg_stream *stream,
                  struct erg_error *err)
{
    if (norm(stage, head->output, NULL, NULL, stage->norm_final, stage->norm_final_bias, NULL,
             head->n_final, head->stats_final, stream, err) ||
        linear_of_stream(stage, stage->words, head->n_final, stage->head, NULL, head->logits,
                         stream, err))
        return -1;
    if (!tokens->targets)
        return 0;
    return run_loss(stage, head, ERG_KERNEL_LOSS_STATS, tokens, stream, err) ||
                   gather_stats(stage, head, stream, err) ||
                   run_loss(stage, head, ERG_KERNEL_LOSS_COMBINE, tokens, stream, err) ||
                   run_loss(stage, head, ERG_KERNEL_LOSS_GRADIENT, tokens, stream, err)
               ? -1
               : 0;
}

/* What the last layer adds to the stream. */
static int add_last(struct erg_stage *stage, const struct erg_stage_layer *layer, void *x_m,
                    void *output, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel add = {ERG_KERNEL_ADD, .add = {stage->rows, stage->hidden, x_m, stage->reduce,
                                                     layer->values[ERG_TENSOR_FC2_BIAS], output}};
    return erg_stage_launch(stage, &add, stream, err);
}

static int tell_first(const struct erg_stage *stage, const struct erg_stage_listener *reads,
                      struct erg_error *err)
{
    return erg_stage_tell(stage, reads, ERG_BUCKET_EMBEDDING, -1, err) ||
                   erg_stage_tell(stage, reads, ERG_BUCKET_VECTORS, -1, err) ||
                   erg_stage_tell(stage, reads, ERG_BUCKET_HEAD_NORMS, -1, err)
               ? -1
               : 0;
}

int erg_stage_forward(struct erg_stage *stage, size_t index, const struct erg_stage_tokens *tokens,
                      void *output, const struct erg_stage_listener *reads,
                      struct erg_stream *stream, struct erg_error *err)
{
    struct erg_stage_pass *pass = erg_stage_enter(stage, index);
    const struct erg_layer_range *range = &stage->chunks[pass->chunk];
    const struct erg_stage_layer *first = &stage->layer[stage->chunk_first[pass->chunk]];
    size_t layers = (size_t)range->count;
    if (tell_first(stage, reads, err) || (stage->options.weights.embedding && pass->chunk == 0 &&
                                          embed(stage, pass->input, tokens, stream, err)))
        return -1;
    for (size_t i = 0; i < layers; i++)
        if (erg_stage_tell(stage, reads, ERG_BUCKET_LAYER, range->first + (long)i, err) ||
            forward_layer(stage, first + i, pass->layers[i], i ? first + i - 1 : NULL,
                          i ? pass->layers[i - 1]->x_m : NULL, stream, err))
            return -1;
    if (add_last(stage, first + layers - 1, pass->layers[layers - 1]->x_m,
                 pass->head ? pass->head->output : output, stream, err))
        return -1;
    if (!pass->head)
        return 0;
    return erg_stage_tell(stage, reads, ERG_BUCKET_HEAD, -1, err) ||
                   finish(stage, pass->head, tokens, stream, err)
               ? -1
               : 0;
}
