/* The forward pass of a stage: which kernel on which tensors. */
#include "decoder/stage_internal.h"

#include <assert.h>

#define PART(id) (1u << ERG_MODEL_##id)

/* ---- kernels ---- */

/* residual + x + x_bias into `sum` where there is an x, then the norm. */
struct norm {
    void *residual, *x, *x_bias, *weight, *bias, *sum, *out;
    float *stats;
};

static int run_norm(struct erg_stage *stage, const struct norm *n,
                    const struct erg_stage_rows *rows, struct erg_stream *stream,
                    struct erg_error *err)
{
    const bool layer = stage->model->layer_norm;
    const size_t h = stage->hidden;
    struct erg_kernel kernel = {layer ? ERG_KERNEL_LAYER_NORM : ERG_KERNEL_NORM,
                                .norm = {.tokens = rows->rows,
                                         .hidden = h,
                                         .eps = (float)stage->model->norm_eps,
                                         .residual = erg_stage_stream_row(stage, n->residual, rows),
                                         .x = erg_stage_stream_row(stage, n->x, rows),
                                         .x_bias = n->x_bias,
                                         .weight = n->weight,
                                         .bias = n->bias,
                                         .sum = erg_stage_stream_row(stage, n->sum, rows),
                                         .out = erg_stage_stream_row(stage, n->out, rows),
                                         .stats = erg_stage_stats_row(stage, n->stats, rows)}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int linear(struct erg_stage *stage, size_t inputs, size_t outputs, void *x, void *weight,
                  void *bias, void *y, const struct erg_stage_rows *rows, struct erg_stream *stream,
                  struct erg_error *err)
{
    struct erg_kernel kernel = {ERG_KERNEL_LINEAR,
                                .linear = {rows->tokens, inputs, outputs,
                                           erg_stage_row(stage, x, inputs, rows), weight, bias,
                                           erg_stage_row(stage, y, outputs, rows), false}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int rotate(struct erg_stage *stage, const struct erg_stage_place *place,
                  const struct erg_stage_rows *rows, struct erg_stream *stream,
                  struct erg_error *err)
{
    const struct erg_stage_activations *act = place->act;
    if (stage->model->learned_positions)
        return 0;
    struct erg_kernel kernel = {
        ERG_KERNEL_ROPE, .rope = {.shape = erg_stage_qkv_shape(stage, rows),
                                  .eps = (float)stage->model->norm_eps,
                                  .q_weight = place->layer->values[ERG_TENSOR_Q_NORM],
                                  .k_weight = place->layer->values[ERG_TENSOR_K_NORM],
                                  .table = stage->rope_table,
                                  .qkv = erg_stage_row(stage, act->qkv, stage->qkv_row, rows),
                                  .out = erg_stage_row(stage, act->rotated, stage->qkv_row, rows),
                                  .out_row = stage->qkv_row}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

static int activate(struct erg_stage *stage, const struct erg_stage_activations *act,
                    const struct erg_stage_rows *rows, struct erg_stream *stream,
                    struct erg_error *err)
{
    struct erg_kernel kernel = {
        stage->model->gated ? ERG_KERNEL_SWIGLU : ERG_KERNEL_GELU,
        .activation = {.tokens = rows->tokens,
                       .width = stage->ffn,
                       .tanh_form = !stage->model->gelu_exact,
                       .in = erg_stage_row(stage, act->fc1, stage->fc1_width, rows),
                       .out = erg_stage_row(stage, act->act, stage->ffn, rows)}};
    return erg_stage_launch(stage, &kernel, stream, err);
}

/* ---- operations of a layer ---- */

/* `adds`: the addend of the layer before is still in `reduce`. */
static int norm_a(struct erg_stage *stage, const struct erg_stage_place *place, bool adds,
                  const struct erg_stage_rows *rows, struct erg_stream *stream,
                  struct erg_error *err)
{
    const struct erg_stage_activations *act = place->act;
    void *const *w = place->layer->values;
    const struct norm n = {
        .residual = adds ? place->x_m_before : act->x_a,
        .x = adds ? stage->reduce : NULL,
        .x_bias = adds ? place->before->values[ERG_TENSOR_FC2_BIAS] : NULL,
        .weight = w[ERG_TENSOR_NORM_A],
        .bias = w[ERG_TENSOR_NORM_A_BIAS],
        .sum = adds ? act->x_a : NULL,
        .out = act->n_a,
        .stats = act->stats_a,
    };
    return run_norm(stage, &n, rows, stream, err);
}

static int norm_m(struct erg_stage *stage, const struct erg_stage_place *place,
                  const struct erg_stage_rows *rows, struct erg_stream *stream,
                  struct erg_error *err)
{
    const struct erg_stage_activations *act = place->act;
    void *const *w = place->layer->values;
    const struct norm n = {.residual = act->x_a,
                           .x = stage->reduce,
                           .x_bias = w[ERG_TENSOR_PROJ_BIAS],
                           .weight = w[ERG_TENSOR_NORM_M],
                           .bias = w[ERG_TENSOR_NORM_M_BIAS],
                           .sum = act->x_m,
                           .out = act->n_m,
                           .stats = act->stats_m};
    return run_norm(stage, &n, rows, stream, err);
}

int erg_stage_again_op(struct erg_stage *stage, const struct erg_stage_place *place,
                       enum erg_model_op_id part, const struct erg_stage_rows *rows,
                       struct erg_stream *stream, struct erg_error *err)
{
    const enum erg_recompute recompute = stage->options.recompute;
    const struct erg_stage_activations *act = place->act;
    void *const *w = place->layer->values;
    const bool of_a = part == ERG_MODEL_NORM_A;
    if (part == ERG_MODEL_ACTIVATION)
        return erg_recompute_activation(recompute) ? activate(stage, act, rows, stream, err) : 0;
    assert(of_a || part == ERG_MODEL_NORM_M);
    const struct norm n = {
        .residual = of_a ? act->x_a : act->x_m,
        .weight = w[of_a ? ERG_TENSOR_NORM_A : ERG_TENSOR_NORM_M],
        .bias = w[of_a ? ERG_TENSOR_NORM_A_BIAS : ERG_TENSOR_NORM_M_BIAS],
        .out = of_a ? act->n_a : act->n_m,
        .stats = of_a ? act->stats_a : act->stats_m,
    };
    return erg_recompute_norms(recompute) ? run_norm(stage, &n, rows, stream, err) : 0;
}

/* Adds the output of a chunk's last layer to the stream; the output of other layers is added by the
 * next layer. */
static int add_last(struct erg_stage *stage, const struct erg_stage_place *place,
                    const struct erg_stage_rows *rows, struct erg_stream *stream,
                    struct erg_error *err)
{
    struct erg_kernel add = {ERG_KERNEL_ADD,
                             .add = {rows->rows, stage->hidden,
                                     erg_stage_stream_row(stage, place->act->x_m, rows),
                                     erg_stage_stream_row(stage, stage->reduce, rows),
                                     place->layer->values[ERG_TENSOR_FC2_BIAS],
                                     erg_stage_stream_row(stage, place->output, rows)}};
    return place->output ? erg_stage_launch(stage, &add, stream, err) : 0;
}

int erg_stage_forward_op(struct erg_stage *stage, const struct erg_stage_place *place,
                         uint32_t parts, const struct erg_stage_rows *rows,
                         struct erg_stream *stream, struct erg_error *err)
{
    void *const *w = place->layer->values;
    const struct erg_stage_activations *act = place->act;
    switch (parts) {
    case PART(NORM_A):
        return norm_a(stage, place, false, rows, stream, err);
    case PART(BDA_M) | PART(NORM_A):
        return norm_a(stage, place, true, rows, stream, err);
    case PART(QKV):
        return linear(stage, stage->hidden, stage->qkv_row,
                      erg_stage_gathered(stage, act->n_a, stage->gathered), w[ERG_TENSOR_QKV],
                      w[ERG_TENSOR_QKV_BIAS], act->qkv, rows, stream, err);
    case PART(QKV_POST):
    case PART(QKV_POST) | PART(ROPE):
        return rotate(stage, place, rows, stream, err);
    case PART(ATTENTION):
        return erg_stage_attention(stage, act, rows, stream, err);
    case PART(PROJ):
        return linear(stage, stage->attn_row, stage->hidden, act->attn, w[ERG_TENSOR_PROJ], NULL,
                      stage->partial, rows, stream, err);
    case PART(BDA_A) | PART(NORM_M):
        return norm_m(stage, place, rows, stream, err);
    case PART(FC1):
        return linear(stage, stage->hidden, stage->fc1_width,
                      erg_stage_gathered(stage, act->n_m, stage->gathered), w[ERG_TENSOR_FC1],
                      w[ERG_TENSOR_FC1_BIAS], act->fc1, rows, stream, err);
    case PART(ACTIVATION):
        return activate(stage, act, rows, stream, err);
    case PART(FC2):
        return linear(stage, stage->ffn, stage->hidden, act->act, w[ERG_TENSOR_FC2], NULL,
                      stage->partial, rows, stream, err);
    case PART(BDA_M):
        return add_last(stage, place, rows, stream, err);
    default:
        return erg_fail(err, ERG_FAILED,
                        "training a layer forward: no kernel does the operations 0x%x together",
                        parts);
    }
}

/* ---- before and after the layers ---- */

static int embed(struct erg_stage *stage, void *x, const struct erg_stage_tokens *tokens,
                 struct erg_stream *stream, struct erg_error *err)
{
    const struct erg_stage_rows all = erg_stage_all_rows(stage);
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
                   (stage->ranks > 1 && erg_stage_sum(stage, x, &all, stream, err)) ||
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
    const struct erg_stage_rows all = erg_stage_all_rows(stage);
    const struct norm n = {.residual = head->output,
                           .weight = stage->norm_final,
                           .bias = stage->norm_final_bias,
                           .out = head->n_final,
                           .stats = head->stats_final};
    if (run_norm(stage, &n, &all, stream, err) ||
        erg_stage_gather(stage, head->n_final, stage->gathered, &all, stream, err) ||
        linear(stage, stage->hidden, stage->words,
               erg_stage_gathered(stage, head->n_final, stage->gathered), stage->head, NULL,
               head->logits, &all, stream, err))
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

/* ---- the pass ---- */

static int tell_first(const struct erg_stage *stage, const struct erg_stage_listener *reads,
                      struct erg_error *err)
{
    return erg_stage_tell(stage, reads, ERG_BUCKET_EMBEDDING, -1, err) ||
                   erg_stage_tell(stage, reads, ERG_BUCKET_VECTORS, -1, err) ||
                   erg_stage_tell(stage, reads, ERG_BUCKET_HEAD_NORMS, -1, err)
               ? -1
               : 0;
}

/* A layer of the whole microbatch; each exchange follows the operation that makes its input.
 * `again`: its input exists, and its output is not needed. */
static int forward_layer(struct erg_stage *stage, const struct erg_stage_place *place, bool again,
                         struct erg_stream *stream, struct erg_error *err)
{
    static const struct {
        uint32_t parts;
        int exchange; /* enum erg_model_op_id; 0: none */
    } order[] = {
        {PART(NORM_A), ERG_MODEL_GATHER_A},
        {PART(QKV), 0},
        {PART(QKV_POST) | PART(ROPE), ERG_MODEL_GATHER_KV},
        {PART(ATTENTION), 0},
        {PART(PROJ), ERG_MODEL_REDUCE_A},
        {PART(BDA_A) | PART(NORM_M), ERG_MODEL_GATHER_M},
        {PART(FC1), 0},
        {PART(ACTIVATION), 0},
        {PART(FC2), ERG_MODEL_REDUCE_M},
        {PART(BDA_M), 0},
    };
    enum { ALL = sizeof order / sizeof *order, OUTPUT = 2 }; /* the last two make the output */
    const struct erg_stage_rows all = erg_stage_all_rows(stage);
    for (size_t i = 0; i < (again ? ALL - OUTPUT : ALL); i++) {
        const bool adds = i == 0 && place->before && !again; /* the output of the layer before */
        if (erg_stage_forward_op(stage, place, order[i].parts | (adds ? PART(BDA_M) : 0), &all,
                                 stream, err) ||
            (order[i].exchange &&
             erg_stage_exchange_op(stage, place, (enum erg_model_op_id)order[i].exchange, false,
                                   &all, stream, err)))
            return -1;
    }
    return 0;
}

int erg_stage_layer_again(struct erg_stage *stage, const struct erg_stage_place *place,
                          struct erg_stream *stream, struct erg_error *err)
{
    return stage->options.recompute == ERG_RECOMPUTE_FULL
               ? forward_layer(stage, place, true, stream, err)
               : 0;
}

static int forward_layers(struct erg_stage *stage, size_t index, const struct erg_stage_ends *ends,
                          const struct erg_stage_listener *reads, struct erg_stream *stream,
                          struct erg_error *err)
{
    const struct erg_stage_pass *pass = &stage->passes[index];
    const struct erg_layer_range *range = &stage->chunks[pass->chunk];
    for (size_t i = 0; i < (size_t)range->count; i++) {
        erg_stage_take_moved(stage, index, i);
        const struct erg_stage_place place = erg_stage_place_of(stage, pass, i, ends);
        if (erg_stage_tell(stage, reads, ERG_BUCKET_LAYER, range->first + (long)i, err) ||
            erg_stage_tell_layer(stage, index, i, false, err) ||
            forward_layer(stage, &place, false, stream, err) ||
            erg_stage_tell_layer(stage, index, i, true, err))
            return -1;
    }
    return 0;
}

int erg_stage_forward(struct erg_stage *stage, size_t index, const struct erg_stage_tokens *tokens,
                      void *output, const struct erg_stage_program *program,
                      const struct erg_stage_listener *reads, struct erg_stream *stream,
                      struct erg_error *err)
{
    struct erg_stage_pass *pass = erg_stage_enter(stage, index);
    const struct erg_stage_ends ends = {.output = pass->head ? pass->head->output : output};
    if (tell_first(stage, reads, err) || (stage->options.weights.embedding && pass->chunk == 0 &&
                                          embed(stage, pass->input, tokens, stream, err)))
        return -1;
    if (program ? erg_stage_run_program(stage, pass, program, false, &ends, reads, stream, err) != 0
                : forward_layers(stage, index, &ends, reads, stream, err) != 0)
        return -1;
    if (!pass->head)
        return 0;
    return erg_stage_tell(stage, reads, ERG_BUCKET_HEAD, -1, err) ||
                   finish(stage, pass->head, tokens, stream, err)
               ? -1
               : 0;
}
