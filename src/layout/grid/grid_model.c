/* Operations of a decoder, and building blocks for other models. Gradients cost twice. */
#include "layout/grid/grid_model.h"

/* Tensors read and written, in outputs: an elementwise operation reads its input and writes its
 * output; a residual sum reads two; a softmax reads scores for its sums and again to scale them. */
void erg_grid_add_elementwise(struct erg_grid_ops *ops, bool starts_block, double rows,
                              double output, int tensors)
{
    ERG_PUSH(ops, items,
             (struct erg_grid_op){.kind = ERG_GRID_ELEMENTWISE,
                                  .starts_block = starts_block,
                                  .rows = rows,
                                  .traffic = output * tensors,
                                  .output = output});
}

struct erg_grid_op erg_grid_product(double rows, double inner, double outer)
{
    return (struct erg_grid_op){.kind = ERG_GRID_MATMUL,
                                .flops = 2 * rows * inner * outer,
                                .rows = rows,
                                .traffic = rows * (inner + outer),
                                .output = rows * outer};
}

void erg_grid_add_linear(struct erg_grid_ops *ops, double rows, double inner, double outer,
                         bool reduces)
{
    struct erg_grid_op op = erg_grid_product(rows, inner, outer);
    op.weights = inner * outer;
    op.reduced = reduces ? op.output : 0;
    ERG_PUSH(ops, items, op);
}

void erg_grid_add_embedding(struct erg_grid_ops *ops, double tokens, double hidden,
                            double vocabulary)
{
    erg_grid_add_elementwise(ops, true, tokens, tokens * hidden, ERG_GRID_RESIDUAL);
    ops->items[ops->count - 1].weights = vocabulary * hidden;
}

void erg_grid_add_feed_forward(struct erg_grid_ops *ops, double tokens, double hidden, double ffn,
                               bool gated)
{
    erg_grid_add_elementwise(ops, true, tokens, tokens * hidden, ERG_GRID_PLAIN);
    erg_grid_add_linear(ops, tokens, hidden, gated ? 2 * ffn : ffn, false);
    erg_grid_add_elementwise(ops, false, tokens, tokens * ffn,
                             gated ? ERG_GRID_PLAIN + 1 : ERG_GRID_PLAIN);
    erg_grid_add_linear(ops, tokens, ffn, hidden, true);
    erg_grid_add_elementwise(ops, false, tokens, tokens * hidden, ERG_GRID_RESIDUAL);
}

void erg_grid_add_head(struct erg_grid_ops *ops, double tokens, double hidden, double vocabulary,
                       bool tied)
{
    struct erg_grid_op head = erg_grid_product(tokens, hidden, vocabulary);
    head.weights = tied ? 0 : vocabulary * hidden;
    ERG_PUSH(ops, items, head);
    erg_grid_add_elementwise(ops, false, tokens, tokens * vocabulary, ERG_GRID_SOFTMAX);
}

/*
 * Attention as one kernel that skips masked scores: half of both products, and no scores in memory.
 */
static void add_attention(struct erg_grid_ops *ops, const struct erg_model *model, double tokens)
{
    double hidden = (double)model->hidden, q = (double)(model->heads * model->head_dim),
           k = (double)(model->kv_heads * model->head_dim);
    struct erg_grid_op kernel = erg_grid_product(tokens, tokens, q);
    kernel.traffic = tokens * (2 * q + 2 * k);
    erg_grid_add_elementwise(ops, true, tokens, tokens * hidden, ERG_GRID_PLAIN);
    erg_grid_add_linear(ops, tokens, hidden, q + 2 * k, false);
    ERG_PUSH(ops, items, kernel);
    erg_grid_add_linear(ops, tokens, q, hidden, true);
    erg_grid_add_elementwise(ops, false, tokens, tokens * hidden, ERG_GRID_RESIDUAL);
}

void erg_grid_ops_init(struct erg_grid_ops *ops, const struct erg_model *model, long sequence)
{
    double tokens = (double)sequence, hidden = (double)model->hidden;
    *ops = (struct erg_grid_ops){0};
    erg_grid_add_embedding(ops, tokens, hidden, (double)model->vocab);
    for (long i = 0; i < model->layers; i++) {
        add_attention(ops, model, tokens);
        erg_grid_add_feed_forward(ops, tokens, hidden, (double)model->ffn, model->gated);
    }
    erg_grid_add_head(ops, tokens, hidden, (double)model->vocab, model->tied);
}
