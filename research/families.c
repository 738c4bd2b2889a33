/* Operations of the three families. Widths and counts: families.h. */
#include "families.h"

/* Tensors read and written, in outputs: batch statistics read the input once more; the masks of
 * gating are made in several passes. */
enum { BATCH_NORM = 3, MASKS = 6 };
enum { EXPERTS_OF_A_TOKEN = 2 };

static void add(struct erg_grid_ops *ops, struct erg_grid_op op)
{
    ERG_PUSH(ops, items, op);
}

static void add_attention(struct erg_grid_ops *ops, const struct family_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden, heads = (double)model->heads;
    struct erg_grid_op scores = erg_grid_product(s, h, s), values = erg_grid_product(s, s, h);
    scores.output = heads * s * s;
    scores.traffic = values.traffic = s * 2 * h + heads * s * s;
    erg_grid_add_elementwise(ops, true, s, s * h, ERG_GRID_PLAIN);
    erg_grid_add_linear(ops, s, h, 3 * h, false);
    add(ops, scores);
    erg_grid_add_elementwise(ops, false, s, heads * s * s, ERG_GRID_SOFTMAX);
    add(ops, values);
    erg_grid_add_linear(ops, s, h, h, true);
    erg_grid_add_elementwise(ops, false, s, s * h, ERG_GRID_RESIDUAL);
}

static void add_experts(struct erg_grid_ops *ops, const struct family_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden;
    double ffn = h * (double)model->ffn_factor, experts = (double)model->experts;
    double slots = EXPERTS_OF_A_TOKEN * s;                          /* rows that experts work on */
    double mask = EXPERTS_OF_A_TOKEN * (double)model->expert_group; /* of a token, over all slots */
    struct erg_grid_op up = erg_grid_product(slots, h, ffn), down = erg_grid_product(slots, ffn, h);
    struct erg_grid_op dispatch = erg_grid_product(s, mask, h), combine = dispatch;
    up.expert_weights = down.expert_weights = experts * h * ffn;
    down.reduced = s * h;
    dispatch.output = dispatch.exchanged = slots * h;
    combine.exchanged = s * h;
    dispatch.traffic = combine.traffic = s * mask + slots * h + s * h;
    erg_grid_add_elementwise(ops, true, s, s * h, ERG_GRID_PLAIN);
    add(ops,
        (struct erg_grid_op){
            .kind = ERG_GRID_ELEMENTWISE, .rows = s, .traffic = s * mask * MASKS, .output = s * h});
    add(ops, dispatch);
    add(ops, up);
    erg_grid_add_elementwise(ops, false, slots, slots * ffn, ERG_GRID_PLAIN);
    add(ops, down);
    add(ops, combine);
    erg_grid_add_elementwise(ops, false, s, s * h, ERG_GRID_RESIDUAL);
}

static void add_transformer(struct erg_grid_ops *ops, const struct family_model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden;
    erg_grid_add_embedding(ops, s, h, (double)model->vocabulary);
    for (long i = 1; i <= model->layers; i++) {
        add_attention(ops, model);
        if (model->experts > 0 && i % model->expert_every == 0)
            add_experts(ops, model);
        else
            erg_grid_add_feed_forward(ops, s, h, h * (double)model->ffn_factor, false);
    }
    erg_grid_add_head(ops, s, h, (double)model->vocabulary, true);
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
    erg_grid_add_elementwise(ops, false, pixels_out, op.output, BATCH_NORM);
}

static void add_residual_network(struct erg_grid_ops *ops, const struct family_model *model)
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
            erg_grid_add_elementwise(ops, false, pixels, pixels * out, ERG_GRID_RESIDUAL);
            in = out;
        }
    }
    erg_grid_add_linear(ops, 1, in, (double)model->classes, false);
}

void family_ops(const struct family_model *model, struct erg_grid_ops *ops)
{
    *ops = (struct erg_grid_ops){0};
    if (model->hidden > 0)
        add_transformer(ops, model);
    else
        add_residual_network(ops, model);
}

double family_skew(const struct family_model *model, long gpus)
{
    if (model->channels == 0)
        return 0;
    return gpus == 4 ? 0.15 : 0.5;
}
