/* Operations of the three families. Widths and counts: grid_model.h; gradients cost twice. */
#include "layout/grid/grid_model.h"

/* Elements read and written, in outputs: an elementwise operation reads its input and writes its
 * output; a residual sum reads two; batch statistics read the input once more; a softmax reads
 * scores for its sums and again to scale them; the masks of gating are made in several passes. */
enum { PLAIN = 2, RESIDUAL = 3, BATCH_NORM = 3, SOFTMAX = 3, MASKS = 6 };
enum { EXPERTS_OF_A_TOKEN = 2 };

static void add(struct erg_grid_ops *ops, struct erg_grid_op op)
{
    ERG_PUSH(ops, items, op);
}

static void add_elementwise(struct erg_grid_ops *ops, bool starts_block, double rows, double output,
                            int passes)
{
    add(ops, (struct erg_grid_op){.kind = ERG_GRID_ELEMENTWISE,
                                  .starts_block = starts_block,
                                  .rows = rows,
                                  .traffic = output * passes,
                                  .output = output});
}

/* Tokens x inner times inner x outer. */
static struct erg_grid_op product(double rows, double inner, double outer)
{
    return (struct erg_grid_op){.kind = ERG_GRID_MATMUL,
                                .flops = 2 * rows * inner * outer,
                                .rows = rows,
                                .traffic = rows * (inner + outer),
                                .output = rows * outer};
}

static void add_linear(struct erg_grid_ops *ops, double rows, double inner, double outer,
                       bool reduces)
{
    struct erg_grid_op op = product(rows, inner, outer);
    op.weights = inner * outer;
    op.reduced = reduces ? op.output : 0;
    add(ops, op);
}

static void add_attention(struct erg_grid_ops *ops, const struct erg_grid_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden, heads = (double)model->heads;
    double q = model->query_width > 0 ? (double)model->query_width : h;
    double k = model->key_width > 0 ? (double)model->key_width : h;
    struct erg_grid_op scores = product(s, q, s), values = product(s, s, q);
    scores.output = heads * s * s;
    scores.traffic = values.traffic = s * (q + k) + heads * s * s;
    add_elementwise(ops, true, s, s * h, PLAIN);
    add_linear(ops, s, h, q + 2 * k, false);
    if (model->causal) { /* half of both products, and no scores in memory */
        values.traffic = s * (2 * q + 2 * k);
        add(ops, values);
    } else {
        add(ops, scores);
        add_elementwise(ops, false, s, heads * s * s, SOFTMAX);
        add(ops, values);
    }
    add_linear(ops, s, q, h, true);
    add_elementwise(ops, false, s, s * h, RESIDUAL);
}

static void add_feed_forward(struct erg_grid_ops *ops, const struct erg_grid_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden;
    double ffn = model->ffn_width > 0 ? (double)model->ffn_width : h * (double)model->ffn_factor;
    add_elementwise(ops, true, s, s * h, PLAIN);
    add_linear(ops, s, h, model->gated ? 2 * ffn : ffn, false);
    add_elementwise(ops, false, s, s * ffn, model->gated ? PLAIN + 1 : PLAIN);
    add_linear(ops, s, ffn, h, true);
    add_elementwise(ops, false, s, s * h, RESIDUAL);
}

static void add_experts(struct erg_grid_ops *ops, const struct erg_grid_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden;
    double ffn = h * (double)model->ffn_factor, experts = (double)model->experts;
    double slots = EXPERTS_OF_A_TOKEN * s;                          /* rows that experts work on */
    double mask = EXPERTS_OF_A_TOKEN * (double)model->expert_group; /* of a token, over all slots */
    struct erg_grid_op up = product(slots, h, ffn), down = product(slots, ffn, h);
    struct erg_grid_op dispatch = product(s, mask, h), combine = dispatch;
    up.expert_weights = down.expert_weights = experts * h * ffn;
    down.reduced = s * h;
    dispatch.output = dispatch.exchanged = slots * h;
    combine.exchanged = s * h;
    dispatch.traffic = combine.traffic = s * mask + slots * h + s * h;
    add_elementwise(ops, true, s, s * h, PLAIN);
    add(ops,
        (struct erg_grid_op){
            .kind = ERG_GRID_ELEMENTWISE, .rows = s, .traffic = s * mask * MASKS, .output = s * h});
    add(ops, dispatch);
    add(ops, up);
    add_elementwise(ops, false, slots, slots * ffn, PLAIN);
    add(ops, down);
    add(ops, combine);
    add_elementwise(ops, false, s, s * h, RESIDUAL);
}

static void add_transformer(struct erg_grid_ops *ops, const struct erg_grid_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden;
    double vocabulary = (double)model->vocabulary;
    add(ops, (struct erg_grid_op){.kind = ERG_GRID_ELEMENTWISE,
                                  .starts_block = true,
                                  .rows = s,
                                  .traffic = s * h * RESIDUAL,
                                  .output = s * h,
                                  .weights = vocabulary * h});
    for (long i = 1; i <= model->layers; i++) {
        add_attention(ops, model);
        if (model->experts > 0 && i % model->expert_every == 0)
            add_experts(ops, model);
        else
            add_feed_forward(ops, model);
    }
    struct erg_grid_op head = product(s, h, vocabulary);
    if (model->untied) /* else with the weights of the embedding */
        head.weights = vocabulary * h;
    add(ops, head);
    add_elementwise(ops, false, s, s * vocabulary, SOFTMAX);
}

/* A convolution from `in` to `out` channels, of a window of `window` pixels, and its batch norm. */
static void add_convolution(struct erg_grid_ops *ops, bool starts_block, double window,
                            double pixels_in, double pixels_out, double in, double out,
                            bool reduces)
{
    struct erg_grid_op op = {.kind = ERG_GRID_CONVOLUTION,
                             .starts_block = starts_block,
                             .flops = 2 * pixels_out * window * in * out,
                             .rows = pixels_out,
                             .traffic = pixels_in * in + pixels_out * out,
                             .output = pixels_out * out,
                             .weights = window * in * out};
    op.reduced = reduces ? op.output : 0;
    add(ops, op);
    add_elementwise(ops, false, pixels_out, op.output, BATCH_NORM);
}

static void add_residual_network(struct erg_grid_ops *ops, const struct erg_grid_model *model)
{
    double resolution = (double)model->image / 2, channels = (double)model->channels;
    double pixels = resolution * resolution, in = channels;
    add_convolution(ops, true, 49, 4 * pixels, pixels, 3, channels, false);
    pixels /= 4; /* pooling */
    add(ops, (struct erg_grid_op){.kind = ERG_GRID_ELEMENTWISE,
                                  .rows = pixels,
                                  .traffic = 5 * pixels * channels,
                                  .output = pixels * channels});
    for (unsigned stage = 0; stage < model->blocks_count; stage++) {
        double narrow = channels * (double)(1L << stage), out = 4 * narrow;
        double wide = narrow * (double)model->width_factor;
        for (long block = 0; block < model->blocks[stage]; block++) {
            double pixels_in = pixels;
            if (block == 0 && stage > 0)
                pixels /= 4;
            if (block == 0)
                add_convolution(ops, true, 1, pixels_in, pixels, in, out, false);
            add_convolution(ops, block > 0, 1, pixels_in, pixels_in, in, narrow, true);
            add_convolution(ops, false, 9, pixels_in, pixels, narrow, wide, true);
            add_convolution(ops, false, 1, pixels, pixels, wide, out, false);
            add_elementwise(ops, false, pixels, pixels * out, RESIDUAL);
            in = out;
        }
    }
    add_linear(ops, 1, in, (double)model->classes, false);
}

struct erg_grid_model erg_grid_model_of(const struct erg_model *model, char *size, long sequence)
{
    return (struct erg_grid_model){
        .family = model->name,
        .size = size,
        .half = true,
        .layers = model->layers,
        .hidden = model->hidden,
        .heads = model->heads,
        .sequence = sequence,
        .vocabulary = model->vocab,
        .query_width = model->heads * model->head_dim,
        .key_width = model->kv_heads * model->head_dim,
        .ffn_width = model->ffn,
        .gated = model->gated,
        .causal = true,
        .untied = !model->tied,
    };
}

void erg_grid_model_ops(const struct erg_grid_model *model, struct erg_grid_ops *ops)
{
    *ops = (struct erg_grid_ops){0};
    if (model->hidden > 0)
        add_transformer(ops, model);
    else
        add_residual_network(ops, model);
}
