/*
 * Time of layouts with FSDP: communication of weights and gradients, and its exposed part. The rest
 * is the time of the same layout without FSDP (time.c).
 */
#include "layout/time/time.h"

#include <math.h>

double erg_time_optimizer_bytes(const struct erg_engine *engine, const struct erg_layout *layout)
{
    if (erg_layout_is_sharded(layout))
        return (engine->optimizer_bytes + engine->optimizer_sharded_bytes) / (double)layout->fsdp;
    return engine->optimizer_bytes +
           engine->optimizer_sharded_bytes / (double)(layout->context * layout->data);
}

long erg_time_gradient_stride(const struct erg_layout *layout)
{
    return layout->tensor * erg_layout_shards(layout);
}

long erg_time_gradient_ranks(const struct erg_layout *layout)
{
    return layout->context * layout->data / erg_layout_shards(layout);
}

/* Replicas sum their shards in bf16: a reduce-scatter and a gather of two bytes each. */
double erg_time_gradient_bytes(const struct erg_engine *engine, const struct erg_layout *layout)
{
    const double ranks = (double)erg_time_gradient_ranks(layout);
    const double bytes =
        erg_layout_is_sharded(layout) ? 4 / (double)layout->fsdp : engine->gradient_bytes;
    return bytes * (ranks - 1) / ranks;
}

/* ---- gathers and scatters ---- */

double erg_time_shard_bytes(const struct erg_layout *layout, double parameters)
{
    const double ranks = (double)layout->fsdp;
    return erg_layout_is_sharded(layout) ? 2 * parameters * (ranks - 1) / ranks : 0;
}

/* Seconds of a gather, or of a scatter of gradients. */
static double shard_s(const struct erg_time_request *request, const struct erg_layout *layout,
                      double bandwidth, double parameters)
{
    if (!(parameters > 0))
        return 0;
    return erg_time_shard_bytes(layout, parameters) / bandwidth +
           request->engine->collective_latency_s;
}

/*
 * The work of a microbatch, in order: the compute of each unit and the communication during it.
 * `backward_s` includes recomputation. The head follows the last layer forward, and the embedding
 * follows the first layer backward; only the embedding's scatter remains after all compute.
 */
static double microbatch_s(const struct erg_time_parts *parts, double layers, double forward_s,
                           double backward_s)
{
    const struct erg_time_shards *shards = &parts->shards;
    const double gather_s = shards->layer_gather_s, both_s = gather_s + shards->layer_scatter_s;
    const double head_s = parts->head_s / 3;
    double sum = shards->embedding_gather_s + gather_s;
    sum += (layers - 1) * fmax(forward_s, gather_s) + fmax(forward_s, shards->head_gather_s);
    sum += head_s + shards->head_gather_s + fmax(2 * head_s, gather_s);
    if (layers > 1)
        sum += fmax(backward_s, gather_s + shards->head_scatter_s) +
               (layers - 2) * fmax(backward_s, both_s) +
               fmax(backward_s, shards->embedding_gather_s + shards->layer_scatter_s);
    else
        sum += fmax(backward_s, shards->embedding_gather_s + shards->head_scatter_s);
    return sum + shards->layer_scatter_s + shards->embedding_scatter_s;
}

/*
 * Sets the times of layers per pass to at least the network's time; the rest of a microbatch's time
 * is at its ends.
 */
static void apply_shards(struct erg_time_parts *parts, const struct erg_time_request *request)
{
    const struct erg_time_shards *shards = &parts->shards;
    const double layers = (double)request->model->layers;
    const double forward_s = parts->forward_s, backward_s = parts->backward_s;
    const double gather_s = shards->layer_gather_s, both_s = gather_s + shards->layer_scatter_s;
    parts->forward_s = fmax(forward_s, gather_s);
    parts->backward_s = fmax(backward_s, both_s);
    parts->forward[ERG_TIME_FSDP] = parts->forward_s - forward_s;
    parts->backward[ERG_TIME_FSDP] = parts->backward_s - backward_s;
    for (int i = 0; i < ERG_RECOMPUTES; i++) {
        const double again_s = backward_s + parts->recompute_s[i];
        const double passes_s = parts->forward_s + fmax(again_s, both_s);
        parts->recompute_s[i] = fmax(again_s, both_s) - parts->backward_s;
        parts->ends_s[i] =
            microbatch_s(parts, layers, forward_s, again_s) - layers * passes_s - parts->head_s;
    }
}

/* Parameters of one layer, of the embedding and of the head of a layout, on one GPU. */
static void count_parameters(double parameters[3], const struct erg_time_request *request,
                             const struct erg_layout *layout)
{
    const struct erg_model_shape shape = {
        .tensor = layout->tensor, .context = 1, .sequences = 1, .sequence = 1};
    struct erg_model model = *request->model;
    struct erg_model_ops ops;
    model.vocab = erg_layout_vocabulary(request->model, layout->tensor);
    for (int unit = 0; unit < 3; unit++) {
        (unit == 0   ? erg_model_layer_forward
         : unit == 1 ? erg_model_embedding_forward
                     : erg_model_head_forward)(&ops, &model, &shape);
        parameters[unit] = 0;
        for (size_t i = 0; i < ops.count; i++)
            parameters[unit] += ops.items[i].params;
    }
}

void erg_time_parts_of(struct erg_time_parts *parts, const struct erg_time_request *request,
                       const struct erg_layout *layout, long gpus)
{
    if (!erg_layout_is_sharded(layout)) {
        erg_time_parts_unsharded(parts, request, layout, gpus);
        return;
    }
    struct erg_engine engine = *request->engine;
    const struct erg_time_request whole = {request->model, &engine, request->machine};
    engine.sequence_parallel = false;
    engine.tensor_forward = engine.tensor_forward_context = 1;
    engine.tensor_backward = engine.tensor_backward_context = 1;
    erg_time_parts_unsharded(parts, &whole, layout, gpus);
    const double bandwidth = erg_time_group_bandwidth(request, layout->tensor, layout->fsdp, gpus);
    double parameters[3];
    count_parameters(parameters, request, layout);
    parts->shards = (struct erg_time_shards){
        .layer_gather_s = shard_s(request, layout, bandwidth, parameters[0]),
        .layer_scatter_s = shard_s(request, layout, bandwidth, parts->layer_parameters),
        .embedding_gather_s = shard_s(request, layout, bandwidth, parameters[1]),
        .embedding_scatter_s = shard_s(request, layout, bandwidth, parts->embedding_parameters),
        .head_gather_s = shard_s(request, layout, bandwidth, parameters[2]),
        .head_scatter_s = shard_s(request, layout, bandwidth, parts->head_parameters),
        .layer_parameters = parameters[0],
        .embedding_parameters = parameters[1],
        .head_parameters = parameters[2],
    };
    apply_shards(parts, request);
}
