/*
 * Memory of FSDP on a GPU: its share of every parameter's state, and the gathered part of the
 * model.
 *
 * Units are gathered whole, in bf16: the embedding, each layer, the head with the norm before it.
 * While one runs the next one arrives, forward and backward, so there are two at once; the head
 * runs alone forward, since nothing comes after it. The gradient of a unit grows while its backward
 * pass runs, as that of the unit before it, which is being scattered, goes tensor by tensor:
 * together they are taken as one. Rows that pad a tensor for its shards are left out.
 */
#include "layout/memory/stage_run.h"

#include <math.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double parameters_of(const struct erg_memory_sizes *sizes, enum erg_memory_unit unit)
{
    switch (unit) {
    case ERG_MEMORY_EMBEDDING_UNIT:
        return sizes->embedding_parameters;
    case ERG_MEMORY_HEAD_UNIT:
        return sizes->head_parameters;
    default:
        return sizes->layer_parameters;
    }
}

/* Bytes of a unit, gathered in bf16, and of its gradient. */
static double unit_bytes(const struct erg_memory_sizes *sizes, enum erg_memory_unit unit)
{
    return 2 * parameters_of(sizes, unit);
}

static double unit_gradient_bytes(const struct erg_memory_sizes *sizes, enum erg_memory_unit unit)
{
    switch (unit) {
    case ERG_MEMORY_EMBEDDING_UNIT:
        return 2 * sizes->trained_embedding;
    case ERG_MEMORY_HEAD_UNIT:
        return 2 * sizes->trained_head;
    default:
        return 2 * sizes->trained_layer;
    }
}

void erg_memory_shards(double items[ERG_MEMORY_ITEMS], const struct erg_memory_request *request,
                       double parameters, double trained)
{
    const double moments = 8, ranks = (double)erg_layout_shards(request->layout);
    const double kept = request->fsdp_bytes > 0 ? request->fsdp_bytes : ERG_FSDP_BYTES;
    const double each = (kept - moments) / 2; /* weights and gradients have the same width */
    items[ERG_MEMORY_WEIGHTS] = (each * trained + 2 * (parameters - trained)) / ranks;
    items[ERG_MEMORY_GRADIENTS] = each * trained / ranks;
    items[ERG_MEMORY_OPTIMIZER] = moments * trained / ranks;
}

void erg_memory_gathered(double weights[ERG_MEMORY_MOMENTS], double gradients[ERG_MEMORY_MOMENTS],
                         const struct erg_memory_request *request,
                         const struct erg_memory_sizes *sizes)
{
    const long layers = request->model->layers;
    const double layer = unit_bytes(sizes, ERG_MEMORY_LAYER_UNIT);
    const double embedding = unit_bytes(sizes, ERG_MEMORY_EMBEDDING_UNIT);
    const double head = unit_bytes(sizes, ERG_MEMORY_HEAD_UNIT);
    const double kept = (double)sizes->kept[erg_layout_recompute(request->layout, 0)];
    const double back = layers > 1
                            ? larger(2 * layer, layer + embedding - kept * (double)(layers - 1))
                            : layer + embedding;
    weights[ERG_MEMORY_FORWARD] =
        layers > 1 ? larger(layer + head, 2 * layer - kept) : layer + head;
    gradients[ERG_MEMORY_FORWARD] = 0;
    for (int i = ERG_MEMORY_FFN; i < ERG_MEMORY_AT_HEAD; i++) {
        weights[i] = back;
        gradients[i] = unit_gradient_bytes(sizes, ERG_MEMORY_LAYER_UNIT);
    }
    /*
     * In the forward the logits again in fp32; in the backward the layer below and the head's
     * gradient.
     */
    const double beside = layer + unit_gradient_bytes(sizes, ERG_MEMORY_HEAD_UNIT);
    weights[ERG_MEMORY_AT_HEAD] = head + larger(0, beside - 2 * (double)sizes->logits);
    gradients[ERG_MEMORY_AT_HEAD] = 0;
}

/* ---- simulated ---- */

static uint32_t gather(struct erg_memory_stage_run *run, enum erg_memory_unit unit)
{
    return erg_memory_take(&run->s.memory, ERG_MEMORY_WEIGHTS,
                           (int64_t)unit_bytes(run->s.sizes, unit), 0);
}

void erg_memory_fsdp_first(struct erg_memory_stage_run *run, enum erg_memory_unit unit)
{
    if (erg_layout_is_sharded(run->s.request->layout))
        run->unit = gather(run, unit);
}

void erg_memory_fsdp_next(struct erg_memory_stage_run *run, enum erg_memory_unit unit)
{
    if (erg_layout_is_sharded(run->s.request->layout))
        run->next_unit = gather(run, unit);
}

void erg_memory_fsdp_gradient(struct erg_memory_stage_run *run, enum erg_memory_unit unit)
{
    if (erg_layout_is_sharded(run->s.request->layout))
        run->unit_gradient = erg_memory_take(&run->s.memory, ERG_MEMORY_GRADIENTS,
                                             (int64_t)unit_gradient_bytes(run->s.sizes, unit), 0);
}

void erg_memory_fsdp_done(struct erg_memory_stage_run *run)
{
    erg_memory_give(&run->s.memory, &run->unit);
    erg_memory_give(&run->s.memory, &run->unit_gradient);
    run->unit = run->next_unit;
    run->next_unit = ERG_MEMORY_NO_BLOCK;
}

void erg_memory_fsdp_take_shards(struct erg_memory_stage_run *run, double parameters,
                                 double trained)
{
    double items[ERG_MEMORY_ITEMS] = {0};
    erg_memory_shards(items, run->s.request, parameters, trained);
    for (int i = ERG_MEMORY_WEIGHTS; i <= ERG_MEMORY_OPTIMIZER; i++)
        erg_memory_take(&run->s.memory, (enum erg_memory_item)i, (int64_t)ceil(items[i]), 0);
}
