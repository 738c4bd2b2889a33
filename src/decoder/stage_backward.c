/* The backward pass of a stage: which kernel on which tensors. */
#include "decoder/stage_internal.h"

#define PART(id) (1u << ERG_MODEL_##id)

/* ---- kernels ---- */

/* The backward pass of a linear y = x weight + bias, over all rows of x and y. */
struct linear {
    size_t inputs, outputs;
    void *x, *weight, *d_y, *d_x;
    float *d_weight;
    bool *written; /* whether d_weight is added to */
};

static int input_gradient(struct erg_stage *stage, const struct linear *l,
                          const struct erg_stage_rows *rows, struct erg_stream *stream,
                          struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_LINEAR_INPUT_GRADIENT,
                                .linear = {rows->tokens, l->inputs, l->outputs,
                                           erg_stage_row(stage, l->d_y, l->outputs, rows),
                                           l->weight, NULL,
                                           erg_stage_row(stage, l->d_x, l->inputs, rows), false}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int weight_gradient(struct erg_stage *stage, const struct linear *l,
                           const struct erg_stage_rows *rows, struct erg_stream *stream,
                           struct erg_error *err)
{
    struct erg_kernel kernel = {
        ERG_KERNEL_LINEAR_WEIGHT_GRADIENT,
        .linear = {rows->tokens, l->inputs, l->outputs, erg_stage_row(stage, l->x, l->inputs, rows),
                   erg_stage_row(stage, l->d_y, l->outputs, rows), NULL, l->d_weight, *l->written}};
    *l->written |= stage->mode == ERG_STAGE_RUNS;
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* The gradient of an existing bias, over `count` rows from d_y on. */
static int bias_gradient(struct erg_stage *stage, size_t count, size_t width, void *d_y,
                         float *d_bias, struct erg_stream *stream, struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_BIAS_GRADIENT, .bias = {count, width, d_y, d_bias}};
    return d_bias ? erg_stage_launch(stage, &kernel, stream, err) : 0;
}

/* Through a norm and the fork before it: d_in = d_sum (NULL: nothing) + the gradient through it. */
static int norm_gradient(struct erg_stage *stage, void *sum, void *weight, float *stats,
                         void *d_out, void *d_sum, void *d_in, float *d_weight, float *d_bias,
                         const struct erg_stage_rows *rows, struct erg_stream *stream,
                         struct erg_error *err)
{
    const bool layer = stage->model->layer_norm;
    struct erg_kernel kernel = {
        layer ? ERG_KERNEL_LAYER_NORM_GRADIENT : ERG_KERNEL_NORM_GRADIENT,
        .norm_gradient = {rows->rows, stage->hidden, erg_stage_stream_row(stage, sum, rows), weight,
                          erg_stage_stats_row(stage, stats, rows),
                          erg_stage_stream_row(stage, d_out, rows),
                          erg_stage_stream_row(stage, d_sum, rows),
                          erg_stage_stream_row(stage, d_in, rows), d_weight, d_bias}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* And GELU's bias, whose rows are in registers here. */
static int activation_gradient(struct erg_stage *stage, const struct erg_stage_place *place,
                               const struct erg_stage_rows *rows, struct erg_stream *stream,
                               struct erg_error *err)
{
    struct erg_kernel kernel = {
        stage->model->gated ? ERG_KERNEL_SWIGLU_GRADIENT : ERG_KERNEL_GELU_GRADIENT,
        .activation = {
            .tokens = rows->tokens,
            .width = stage->ffn,
            .tanh_form = !stage->model->gelu_exact,
            .in = erg_stage_row(stage, place->act->fc1, stage->fc1_width, rows),
            .d_out = erg_stage_row(stage, stage->d_act, stage->ffn, rows),
            .out = erg_stage_row(stage, stage->d_fc1, stage->fc1_width, rows),
            .d_bias = stage->model->gated ? NULL : place->layer->gradients[ERG_TENSOR_FC1_BIAS]}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int rotation_gradient(struct erg_stage *stage, const struct erg_stage_place *place,
                             const struct erg_stage_rows *rows, struct erg_stream *stream,
                             struct erg_error *err)
{
    const struct erg_stage_layer *layer = place->layer;
    if (stage->model->learned_positions)
        return 0;
    void *d_qkv = erg_stage_row(stage, stage->d_qkv, stage->qkv_row, rows);
    struct erg_kernel kernel = {
        ERG_KERNEL_ROPE_GRADIENT,
        .rope = {.shape = erg_stage_qkv_shape(stage, rows),
                 .eps = (float)stage->model->norm_eps,
                 .q_weight = layer->values[ERG_TENSOR_Q_NORM],
                 .k_weight = layer->values[ERG_TENSOR_K_NORM],
                 .table = stage->rope_table,
                 .qkv = erg_stage_row(stage, place->act->qkv, stage->qkv_row, rows),
                 .d_rotated = d_qkv,
                 .out = d_qkv,
                 .d_q_weight = layer->gradients[ERG_TENSOR_Q_NORM],
                 .d_k_weight = layer->gradients[ERG_TENSOR_K_NORM]}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* ---- operations of a layer ---- */

/* The linears of a layer, by their input and output. */
static struct linear linear_of(const struct erg_stage *stage, const struct erg_stage_place *place,
                               uint32_t parts)
{
    void *const *w = place->layer->values;
    float *const *d = place->layer->gradients;
    bool *written = place->layer->written;
    const struct erg_stage_activations *act = place->act;
    const size_t h = stage->hidden;
    switch (parts) {
    case PART(QKV):
        return (struct linear){h,
                               stage->qkv_row,
                               erg_stage_gathered(stage, act->n_a, stage->partial),
                               w[ERG_TENSOR_QKV],
                               stage->d_qkv,
                               stage->partial,
                               d[ERG_TENSOR_QKV],
                               &written[ERG_TENSOR_QKV]};
    case PART(PROJ):
        return (struct linear){stage->attn_row,
                               h,
                               act->attn,
                               w[ERG_TENSOR_PROJ],
                               erg_stage_gathered(stage, stage->d_mid, stage->gathered),
                               stage->d_attn,
                               d[ERG_TENSOR_PROJ],
                               &written[ERG_TENSOR_PROJ]};
    case PART(FC1):
        return (struct linear){h,
                               stage->fc1_width,
                               erg_stage_gathered(stage, act->n_m, stage->partial),
                               w[ERG_TENSOR_FC1],
                               stage->d_fc1,
                               stage->partial,
                               d[ERG_TENSOR_FC1],
                               &written[ERG_TENSOR_FC1]};
    default:
        return (struct linear){stage->ffn,
                               h,
                               act->act,
                               w[ERG_TENSOR_FC2],
                               erg_stage_gathered(stage, place->d_out, stage->gathered),
                               stage->d_act,
                               d[ERG_TENSOR_FC2],
                               &written[ERG_TENSOR_FC2]};
    }
}

/* The bias of a linear: of one that puts out the stream each tensor rank sums its own rows; that
 * before GELU has its gradient already. */
static int linear_bias_gradient(struct erg_stage *stage, const struct erg_stage_place *place,
                                uint32_t parts, const struct linear *l,
                                const struct erg_stage_rows *rows, struct erg_stream *stream,
                                struct erg_error *err)
{
    float *const *d = place->layer->gradients;
    void *d_stream = parts == PART(PROJ) ? stage->d_mid : place->d_out;
    if (parts == PART(PROJ) || parts == PART(FC2))
        return bias_gradient(
            stage, rows->rows, l->outputs, erg_stage_stream_row(stage, d_stream, rows),
            d[parts == PART(PROJ) ? ERG_TENSOR_PROJ_BIAS : ERG_TENSOR_FC2_BIAS], stream, err);
    if (parts == PART(FC1) && !stage->model->gated)
        return 0;
    return bias_gradient(
        stage, rows->tokens, l->outputs, erg_stage_row(stage, l->d_y, l->outputs, rows),
        d[parts == PART(QKV) ? ERG_TENSOR_QKV_BIAS : ERG_TENSOR_FC1_BIAS], stream, err);
}

/* Recomputes a linear's input where it was not kept. Under sequence parallelism norms are
 * recomputed before they are gathered. */
static int linear_input_again(struct erg_stage *stage, const struct erg_stage_place *place,
                              uint32_t parts, const struct erg_stage_rows *rows,
                              struct erg_stream *stream, struct erg_error *err)
{
    const bool gathered = stage->options.sequence_parallel;
    if (parts == PART(PROJ) || (parts != PART(FC2) && gathered))
        return 0;
    return erg_stage_again_op(stage, place,
                              parts == PART(QKV)   ? ERG_MODEL_NORM_A
                              : parts == PART(FC1) ? ERG_MODEL_NORM_M
                                                   : ERG_MODEL_ACTIVATION,
                              rows, stream, err);
}

static int linear_gradient(struct erg_stage *stage, const struct erg_stage_place *place,
                           uint32_t parts, bool weights, const struct erg_stage_rows *rows,
                           struct erg_stream *stream, struct erg_error *err)
{
    const struct linear l = linear_of(stage, place, parts);
    if (!weights)
        return input_gradient(stage, &l, rows, stream, err);
    return linear_input_again(stage, place, parts, rows, stream, err) ||
                   weight_gradient(stage, &l, rows, stream, err) ||
                   linear_bias_gradient(stage, place, parts, &l, rows, stream, err)
               ? -1
               : 0;
}

int erg_stage_backward_op(struct erg_stage *stage, const struct erg_stage_place *place,
                          uint32_t parts, bool weights, const struct erg_stage_rows *rows,
                          struct erg_stream *stream, struct erg_error *err)
{
    void *const *w = place->layer->values;
    float *const *d = place->layer->gradients;
    const struct erg_stage_activations *act = place->act;
    switch (parts) {
    case PART(BDA_M): /* the gradient of the layer's output is that of both summands */
        return 0;
    case PART(FC2):
    case PART(FC1):
    case PART(PROJ):
    case PART(QKV):
        return linear_gradient(stage, place, parts, weights, rows, stream, err);
    case PART(ACTIVATION):
        return activation_gradient(stage, place, rows, stream, err);
    case PART(NORM_M) | PART(FORK_M) | PART(BDA_A):
        return norm_gradient(stage, act->x_m, w[ERG_TENSOR_NORM_M], act->stats_m, stage->reduce,
                             place->d_out, stage->d_mid, d[ERG_TENSOR_NORM_M],
                             d[ERG_TENSOR_NORM_M_BIAS], rows, stream, err);
    case PART(ATTENTION):
        return erg_stage_attention_gradient(stage, act, rows, stream, err);
    case PART(QKV_POST):
    case PART(QKV_POST) | PART(ROPE):
        return rotation_gradient(stage, place, rows, stream, err);
    case PART(NORM_A) | PART(FORK_A):
    case PART(NORM_A) | PART(FORK_A) | PART(BDA_M):
        return norm_gradient(stage, act->x_a, w[ERG_TENSOR_NORM_A], act->stats_a, stage->reduce,
                             stage->d_mid, place->d_in, d[ERG_TENSOR_NORM_A],
                             d[ERG_TENSOR_NORM_A_BIAS], rows, stream, err);
    default:
        return erg_fail(err, ERG_FAILED,
                        "training a layer backward: no kernel does the operations 0x%x together",
                        parts);
    }
}

/* ---- before and after the layers ---- */

static int head_gradient(struct erg_stage *stage, const struct erg_stage_head *head, void *d_output,
                         struct erg_stream *stream, struct erg_error *err)
{
    const struct erg_stage_rows all = erg_stage_all_rows(stage);
    void *x = erg_stage_gathered(stage, head->n_final, stage->gathered);
    const struct linear l = {stage->hidden, stage->words,        x,
                             stage->head,   head->logits,        stage->partial,
                             stage->d_head, &stage->head_written};
    return erg_stage_gather(stage, head->n_final, stage->gathered, &all, stream, err) ||
                   weight_gradient(stage, &l, &all, stream, err) ||
                   input_gradient(stage, &l, &all, stream, err) ||
                   erg_stage_sum(stage, stage->reduce, &all, stream, err) ||
                   norm_gradient(stage, head->output, stage->norm_final, head->stats_final,
                                 stage->reduce, NULL, d_output, stage->d_norm_final,
                                 stage->d_norm_final_bias, &all, stream, err)
               ? -1
               : 0;
}

static int embedding_gradient(struct erg_stage *stage, const struct erg_stage_tokens *tokens,
                              void *d_input, struct erg_stream *stream, struct erg_error *err)
{
    const struct erg_stage_rows all = erg_stage_all_rows(stage);
    if (erg_stage_gather(stage, d_input, stage->gathered, &all, stream, err) != 0)
        return -1;
    struct erg_kernel word = {
        ERG_KERNEL_EMBEDDING_GRADIENT,
        .embedding = {.tokens = stage->tokens,
                      .hidden = stage->hidden,
                      .first = stage->first_word,
                      .rows = stage->words,
                      .ids = tokens->ids,
                      .order = tokens->order,
                      .in = erg_stage_gathered(stage, d_input, stage->gathered),
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

/* ---- the pass ---- */

/* A layer of the whole microbatch; each exchange follows the operation that makes its input. */
static int backward_layer(struct erg_stage *stage, const struct erg_stage_place *place,
                          struct erg_stream *stream, struct erg_error *err)
{
    static const struct {
        uint32_t parts;
        bool weights;
        int exchange; /* enum erg_model_op_id; 0: none */
    } order[] = {
        {PART(BDA_M), false, ERG_MODEL_GATHER_M},
        {PART(FC2), false, 0},
        {PART(FC2), true, 0},
        {PART(ACTIVATION), false, 0},
        {PART(FC1), true, 0}, /* before the place of its input is overwritten */
        {PART(FC1), false, ERG_MODEL_REDUCE_M},
        {PART(NORM_M) | PART(FORK_M) | PART(BDA_A), false, ERG_MODEL_GATHER_A},
        {PART(PROJ), false, 0},
        {PART(PROJ), true, ERG_MODEL_GATHER_KV},
        {PART(ATTENTION), false, ERG_MODEL_SCATTER_KV},
        {PART(QKV_POST) | PART(ROPE), false, 0},
        {PART(QKV), true, 0},
        {PART(QKV), false, ERG_MODEL_REDUCE_A},
        {PART(NORM_A) | PART(FORK_A), false, 0},
    };
    const struct erg_stage_rows all = erg_stage_all_rows(stage);
    if (erg_stage_layer_again(stage, place, stream, err) != 0)
        return -1;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (erg_stage_backward_op(stage, place, order[i].parts, order[i].weights, &all, stream,
                                  err) ||
            (order[i].exchange &&
             erg_stage_exchange_op(stage, place, (enum erg_model_op_id)order[i].exchange, true,
                                   &all, stream, err)))
            return -1;
    return 0;
}

static int backward_layers(struct erg_stage *stage, size_t index, const struct erg_stage_ends *ends,
                           const struct erg_stage_listener *adds, struct erg_stream *stream,
                           struct erg_error *err)
{
    const struct erg_stage_pass *pass = &stage->passes[index];
    const struct erg_layer_range *range = &stage->chunks[pass->chunk];
    for (size_t i = (size_t)range->count; i > 0; i--) {
        if (erg_stage_tell_layer(stage, index, i - 1, false, err) != 0)
            return -1;
        const struct erg_stage_place place = erg_stage_place_of(stage, pass, i - 1, ends);
        if (backward_layer(stage, &place, stream, err) ||
            erg_stage_tell_layer(stage, index, i - 1, true, err) ||
            erg_stage_tell(stage, adds, ERG_BUCKET_LAYER, range->first + (long)i - 1, err))
            return -1;
    }
    return 0;
}

int erg_stage_backward(struct erg_stage *stage, size_t index, const struct erg_stage_tokens *tokens,
                       void *d_output, void *d_input, const struct erg_stage_program *program,
                       const struct erg_stage_listener *adds, struct erg_stream *stream,
                       struct erg_error *err)
{
    const struct erg_stage_pass *pass = &stage->passes[index];
    struct erg_stage_ends ends = {.d_output = d_output, .d_input = d_input};
    if (pass->head) {
        ends.d_output = stage->d_stream[0];
        if (head_gradient(stage, pass->head, ends.d_output, stream, err) ||
            erg_stage_tell(stage, adds, ERG_BUCKET_HEAD, -1, err))
            return -1;
    }
    if (program ? erg_stage_run_program(stage, pass, program, true, &ends, adds, stream, err) != 0
                : backward_layers(stage, index, &ends, adds, stream, err) != 0)
        return -1;
    if (stage->options.weights.embedding && pass->chunk == 0) {
        const struct erg_stage_place first = erg_stage_place_of(stage, pass, 0, &ends);
        if (embedding_gradient(stage, tokens, first.d_in, stream, err) != 0)
            return -1;
    }
    if (pass->chunk == 0 && tell_rest(stage, adds, err))
        return -1;
    erg_stage_leave(stage, index);
    return 0;
}
