/* Bytes on every link of every GPU in an iteration. */
#include "characterize/links.h"

#include "base/memory.h"
#include "layout/time/time.h"
#include "model/lora.h"

#include <assert.h>
#include <stdlib.h>

const char *erg_link_kind_name(enum erg_link_kind kind)
{
    static const char *const names[ERG_LINK_KINDS] = {
        [ERG_LINK_TENSOR] = "tensor",
        [ERG_LINK_CONTEXT] = "context",
        [ERG_LINK_ALL_TO_ALL] = "all-to-all",
        [ERG_LINK_EXPERT_TENSOR] = "expert tensor",
        [ERG_LINK_PIPELINE] = "pipeline",
        [ERG_LINK_GRADIENTS] = "gradients",
        [ERG_LINK_EXPERT_GRADIENTS] = "expert gradients",
        [ERG_LINK_FSDP] = "fsdp",
        [ERG_LINK_VOCABULARY] = "vocabulary",
    };
    return names[kind];
}

struct erg_link_bytes erg_links_sum(const struct erg_link_bytes bytes[ERG_LINK_KINDS])
{
    struct erg_link_bytes sum = {0};
    for (int kind = 0; kind < ERG_LINK_KINDS; kind++) {
        sum.nvlink += bytes[kind].nvlink;
        sum.network += bytes[kind].network;
    }
    return sum;
}

/* ---- transfers ---- */

static void transfer(struct erg_links *links, const struct erg_links_request *request,
                     enum erg_link_kind kind, long from, long to, double bytes)
{
    assert(from >= 0 && from < links->gpus && to >= 0 && to < links->gpus);
    const long from_place = request->places ? request->places[from] : from;
    const long to_place = request->places ? request->places[to] : to;
    struct erg_link_bytes *sent = &links->gpu[from].sent[kind];
    struct erg_link_bytes *received = &links->gpu[to].received[kind];
    if (from_place / request->node_gpus == to_place / request->node_gpus) {
        sent->nvlink += bytes;
        received->nvlink += bytes;
    } else {
        sent->network += bytes;
        received->network += bytes;
    }
}

/* `size` ranks, `stride` apart; each sends `bytes` to the next. */
static void ring(struct erg_links *links, const struct erg_links_request *request,
                 enum erg_link_kind kind, long first, long stride, long size, double bytes)
{
    for (long i = 0; size > 1 && i < size; i++)
        transfer(links, request, kind, first + i * stride, first + (i + 1) % size * stride, bytes);
}

/* The same, but each rank sends to all others, `bytes` in total. */
static void all_to_all(struct erg_links *links, const struct erg_links_request *request, long first,
                       long stride, long size, double bytes)
{
    for (long i = 0; size > 1 && i < size; i++)
        for (long k = 0; k < size; k++)
            if (i != k)
                transfer(links, request, ERG_LINK_ALL_TO_ALL, first + i * stride,
                         first + k * stride, bytes / (double)(size - 1));
}

/* ---- bytes that a rank sends ---- */

/* Bytes on the wire of one GPU, by kind. */
struct wires {
    double bytes[ERG_LINK_KINDS];
};

static enum erg_link_kind kind_of(const struct erg_model_op *op)
{
    switch (op->communication.kind) {
    case ERG_COMM_ALLTOALL:
        return ERG_LINK_ALL_TO_ALL;
    case ERG_COMM_ALLGATHER_KV:
    case ERG_COMM_REDUCESCATTER_KV:
        return ERG_LINK_CONTEXT;
    default:
        return op->id == ERG_MODEL_GATHER_E || op->id == ERG_MODEL_SCATTER_E
                   ? ERG_LINK_EXPERT_TENSOR
                   : ERG_LINK_TENSOR;
    }
}

static void add_ops(struct wires *wires, const struct erg_model_ops *ops, double times)
{
    for (size_t i = 0; i < ops->count; i++)
        if (ops->items[i].comm)
            wires->bytes[kind_of(&ops->items[i])] += times * ops->items[i].communication.wire_bytes;
}

/* Parameters on one GPU: of a layer's experts, of the rest of a layer, and the trained ones. */
struct parameters {
    double all, trained, experts, experts_trained;
};

static void count_parameters(struct parameters *into, const struct erg_model_ops *ops,
                             const struct erg_model *model)
{
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        const double trained = !erg_lora_is_on(model) || op->adapter ? op->params : 0;
        *(op->of_experts ? &into->experts : &into->all) += op->params;
        *(op->of_experts ? &into->experts_trained : &into->trained) += trained;
    }
}

/* One microbatch on one GPU. */
struct work {
    struct of_layer {
        struct wires both, again; /* both directions; a repeated forward pass */
        struct parameters parameters;
    } layer, dense; /* of either kind; dense: without experts, if others have them */
    struct wires embedding, head;
    struct parameters of_embedding, of_head;
};

static void count_layer(struct of_layer *layer, const struct erg_model *model,
                        const struct erg_model_shape *shape)
{
    struct erg_model_ops ops;
    erg_model_layer_forward(&ops, model, shape);
    add_ops(&layer->both, &ops, 1);
    add_ops(&layer->again, &ops, 1);
    count_parameters(&layer->parameters, &ops, model);
    erg_model_layer_backward(&ops, model, shape);
    add_ops(&layer->both, &ops, 1);
}

static void vocabulary_only(struct wires *wires)
{
    wires->bytes[ERG_LINK_VOCABULARY] = wires->bytes[ERG_LINK_TENSOR];
    wires->bytes[ERG_LINK_TENSOR] = 0;
}

static void work_init(struct work *work, const struct erg_links_request *request)
{
    const struct erg_layout *layout = request->layout;
    struct erg_model model = *request->model; /* with the padded vocabulary */
    model.vocab = erg_layout_vocabulary(request->model, layout->tensor);
    struct erg_model_shape shape = erg_time_shape(request->engine, layout);
    shape.sequence_parallel = request->engine->sequence_parallel && !erg_layout_is_sharded(layout);
    struct erg_model_ops ops;
    *work = (struct work){0};
    const struct erg_model dense = erg_model_without_experts(&model);
    count_layer(&work->layer, &model, &shape);
    if (model.experts.dense_layers > 0)
        count_layer(&work->dense, &dense, &shape);
    erg_model_embedding_forward(&ops, &model, &shape);
    add_ops(&work->embedding, &ops, 1);
    count_parameters(&work->of_embedding, &ops, &model);
    erg_model_embedding_backward(&ops, &model, &shape);
    add_ops(&work->embedding, &ops, 1);
    erg_model_head_forward(&ops, &model, &shape);
    add_ops(&work->head, &ops, 1);
    count_parameters(&work->of_head, &ops, &model);
    erg_model_head_backward(&ops, &model, &shape);
    add_ops(&work->head, &ops, 1);
    vocabulary_only(&work->embedding);
    vocabulary_only(&work->head);
}

static void add_wires(struct wires *wires, const struct wires *more, double times)
{
    for (int kind = 0; kind < ERG_LINK_KINDS; kind++)
        wires->bytes[kind] += times * more->bytes[kind];
}

static void add_layers(struct wires *wires, const struct of_layer *layer, double times, bool again)
{
    add_wires(wires, &layer->both, times);
    if (again)
        add_wires(wires, &layer->again, times);
}

/* Bytes that a GPU of a stage sends in exchanges inside layers, embedding and head, in an
 * iteration. */
static void stage_wires(struct wires *wires, const struct work *work,
                        const struct erg_links_request *request, long stage)
{
    const struct erg_layout *layout = request->layout;
    const double microbatches = (double)layout->microbatches;
    const long layers = erg_layout_stage_layers(layout, request->model->layers, stage);
    const long dense = erg_layout_dense_layers(layout, request->model, stage, layers);
    const bool again = erg_layout_recompute(layout, stage) == ERG_RECOMPUTE_FULL;
    *wires = (struct wires){0};
    add_layers(wires, &work->layer, (double)(layers - dense) * microbatches, again);
    add_layers(wires, &work->dense, (double)dense * microbatches, again);
    if (stage == 0)
        add_wires(wires, &work->embedding, microbatches);
    if (stage == layout->pipeline - 1)
        add_wires(wires, &work->head, microbatches);
}

static void add_parameters(struct parameters *sum, const struct parameters *own, double times)
{
    sum->all += times * own->all;
    sum->trained += times * own->trained;
    sum->experts += times * own->experts;
    sum->experts_trained += times * own->experts_trained;
}

static struct parameters stage_parameters(const struct work *work,
                                          const struct erg_links_request *request, long stage)
{
    const struct erg_layout *layout = request->layout;
    const long last = layout->pipeline - 1;
    const long layers = erg_layout_stage_layers(layout, request->model->layers, stage);
    const long dense = erg_layout_dense_layers(layout, request->model, stage, layers);
    struct parameters sum = {0};
    add_parameters(&sum, &work->layer.parameters, (double)(layers - dense));
    add_parameters(&sum, &work->dense.parameters, (double)dense);
    if (stage == 0)
        add_parameters(&sum, &work->of_embedding, 1);
    if (stage == last && (last > 0 || !request->model->tied))
        add_parameters(&sum, &work->of_head, 1);
    return sum;
}

/* ---- groups ---- */

static void add_layer_exchanges(struct erg_links *links, const struct erg_links_request *request,
                                const struct wires *wires, long stage)
{
    const struct erg_layout *layout = request->layout;
    const long experts = erg_layout_experts(layout);
    for (long data = 0; data < layout->data; data++) {
        for (long context = 0; context < layout->context; context++) {
            const long first = erg_rank_of(layout, 0, context, data, stage);
            ring(links, request, ERG_LINK_TENSOR, first, 1, layout->tensor,
                 wires->bytes[ERG_LINK_TENSOR]);
            ring(links, request, ERG_LINK_EXPERT_TENSOR, first, 1, layout->tensor,
                 wires->bytes[ERG_LINK_EXPERT_TENSOR]);
            ring(links, request, ERG_LINK_VOCABULARY, first, 1, layout->tensor,
                 wires->bytes[ERG_LINK_VOCABULARY]);
        }
        for (long tensor = 0; tensor < layout->tensor && data % experts == 0; tensor++)
            all_to_all(links, request, erg_rank_of(layout, tensor, 0, data, stage),
                       layout->tensor * layout->context, experts,
                       wires->bytes[ERG_LINK_ALL_TO_ALL]);
        for (long tensor = 0; tensor < layout->tensor; tensor++)
            ring(links, request, ERG_LINK_CONTEXT, erg_rank_of(layout, tensor, 0, data, stage),
                 layout->tensor, layout->context, wires->bytes[ERG_LINK_CONTEXT]);
    }
}

/* Ranks with the same weights: groups of `size`, every `stride`-th of context x data. */
static void add_replica_rings(struct erg_links *links, const struct erg_links_request *request,
                              enum erg_link_kind kind, long stage, long stride, long size,
                              double bytes)
{
    const struct erg_layout *layout = request->layout;
    const long all = layout->context * layout->data, first = erg_rank_of(layout, 0, 0, 0, stage);
    for (long block = 0; block < all; block += stride * size)
        for (long member = 0; member < stride; member++)
            for (long tensor = 0; tensor < layout->tensor; tensor++)
                ring(links, request, kind, first + (block + member) * layout->tensor + tensor,
                     stride * layout->tensor, size, bytes);
}

static void add_weights(struct erg_links *links, const struct erg_links_request *request,
                        const struct work *work, long stage)
{
    const struct erg_layout *layout = request->layout;
    const struct parameters own = stage_parameters(work, request, stage);
    const long shards = erg_layout_shards(layout), experts = erg_layout_experts(layout);
    add_replica_rings(links, request, ERG_LINK_GRADIENTS, stage, shards,
                      erg_time_gradient_ranks(layout),
                      erg_time_gradient_bytes(request->engine, layout) * own.trained);
    add_replica_rings(
        links, request, ERG_LINK_EXPERT_GRADIENTS, stage, experts, erg_time_expert_replicas(layout),
        erg_time_expert_gradient_bytes(request->engine, layout) * own.experts_trained);
    /* Every microbatch gathers all weights in the forward and the backward pass, and scatters their
     * gradients. */
    add_replica_rings(links, request, ERG_LINK_FSDP, stage, 1, shards,
                      erg_time_shard_bytes(layout, 2 * own.all + own.trained) *
                          (double)layout->microbatches);
}

/* Messages of a stage's chunks to the next stage, and back. */
static void add_messages(struct erg_links *links, const struct erg_links_request *request)
{
    const struct erg_layout *layout = request->layout;
    const long ranks = layout->tensor * layout->context * layout->data;
    const long chunks = layout->pipeline * layout->virtual_stages;
    const double bytes = 2 * (double)layout->microbatch * (double)layout->sequence *
                         (double)request->model->hidden /
                         (double)(layout->tensor * layout->context) * (double)layout->microbatches;
    for (long chunk = 0; layout->pipeline > 1 && chunk + 1 < chunks; chunk++) {
        const long from = chunk % layout->pipeline, to = (chunk + 1) % layout->pipeline;
        for (long rank = 0; rank < ranks; rank++) {
            transfer(links, request, ERG_LINK_PIPELINE, from * ranks + rank, to * ranks + rank,
                     bytes);
            transfer(links, request, ERG_LINK_PIPELINE, to * ranks + rank, from * ranks + rank,
                     bytes);
        }
    }
}

void erg_links_init(struct erg_links *links, const struct erg_links_request *request)
{
    const struct erg_layout *layout = request->layout;
    struct work work;
    links->gpus = erg_layout_gpus(layout);
    links->gpu = erg_xcalloc((size_t)links->gpus, sizeof *links->gpu);
    work_init(&work, request);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct wires wires;
        stage_wires(&wires, &work, request, stage);
        add_layer_exchanges(links, request, &wires, stage);
        add_weights(links, request, &work, stage);
    }
    add_messages(links, request);
}

void erg_links_release(struct erg_links *links)
{
    free(links->gpu);
    *links = (struct erg_links){0};
}
