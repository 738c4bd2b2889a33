/* Pipeline layers: sequences of operations of about equal work. */
#include "layout/grid/grid_model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

void erg_grid_split(const double *weights, size_t count, size_t parts, size_t *first)
{
    assert(parts >= 1 && parts <= count);
    /* best[p][i]: the least sum of squares when the first i weights make p runs. */
    size_t width = count + 1;
    double *best = erg_xmalloc((parts + 1) * width * sizeof *best);
    size_t *start = erg_xcalloc((parts + 1) * width, sizeof *start);
    for (size_t i = 0; i < (parts + 1) * width; i++)
        best[i] = INFINITY;
    best[0] = 0;
    for (size_t p = 1; p <= parts; p++) {
        for (size_t end = p; end <= count; end++) {
            double run = 0;
            for (size_t i = end; i-- > p - 1;) {
                run += weights[i];
                double before = best[(p - 1) * width + i];
                double squares = before + run * run;
                if (squares < best[p * width + end]) {
                    best[p * width + end] = squares;
                    start[p * width + end] = i;
                }
            }
        }
    }
    first[parts] = count;
    for (size_t p = parts; p > 0; p--)
        first[p - 1] = start[p * width + first[p]];
    free(best);
    free(start);
}

static struct erg_grid_layer sum_ops(const struct erg_grid_ops *ops, size_t first, size_t end)
{
    struct erg_grid_layer layer = {.first_op = first, .op_count = end - first};
    for (size_t i = first; i < end; i++) {
        const struct erg_grid_op *op = &ops->items[i];
        if (op->kind == ERG_GRID_MATMUL)
            layer.matmul_flops += op->flops;
        if (op->kind == ERG_GRID_CONVOLUTION) {
            layer.convolution_flops += op->flops;
            layer.flops_per_row += op->flops / op->rows;
        }
        layer.traffic += op->traffic;
        layer.weights += op->weights;
        layer.expert_weights += op->expert_weights;
        layer.reduced += op->reduced;
        layer.reductions += op->reduced > 0;
        layer.exchanged += op->exchanged;
        layer.exchanges += op->exchanged > 0;
        layer.activations += op->output;
        layer.output = op->output;
    }
    if (first > 0)
        layer.input = ops->items[first - 1].output;
    return layer;
}

size_t erg_grid_cut_layers(const struct erg_grid_ops *ops, struct erg_grid_layer *layers,
                           size_t count)
{
    /* Blocks: operations before the first FLOPs belong to the first block. */
    size_t *starts = erg_xmalloc((ops->count + 1) * sizeof *starts);
    double *flops = erg_xcalloc(ops->count + 1, sizeof *flops);
    size_t blocks = 0;
    for (size_t i = 0; i < ops->count; i++) {
        if (i == 0 || (ops->items[i].starts_block && flops[blocks - 1] > 0))
            starts[blocks++] = i;
        flops[blocks - 1] += ops->items[i].flops;
    }
    starts[blocks] = ops->count;
    if (count > blocks)
        count = blocks;
    size_t *first = erg_xmalloc((count + 1) * sizeof *first);
    erg_grid_split(flops, blocks, count, first);
    for (size_t i = 0; i < count; i++)
        layers[i] = sum_ops(ops, starts[first[i]], starts[first[i + 1]]);
    free(first);
    free(flops);
    free(starts);
    return count;
}

struct erg_grid_layer erg_grid_join_layers(const struct erg_grid_layer *layers, size_t first,
                                           size_t end)
{
    struct erg_grid_layer all = layers[first];
    for (size_t i = first + 1; i < end; i++) {
        const struct erg_grid_layer *layer = &layers[i];
        all.op_count += layer->op_count;
        all.matmul_flops += layer->matmul_flops;
        all.convolution_flops += layer->convolution_flops;
        all.flops_per_row += layer->flops_per_row;
        all.traffic += layer->traffic;
        all.weights += layer->weights;
        all.expert_weights += layer->expert_weights;
        all.reduced += layer->reduced;
        all.reductions += layer->reductions;
        all.exchanged += layer->exchanged;
        all.exchanges += layer->exchanges;
        all.activations += layer->activations;
        all.output = layer->output;
    }
    return all;
}
