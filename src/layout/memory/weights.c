/* Parameters of a stage, and the ranks' parts of their optimizer state. */
#include "layout/memory/memory_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void erg_memory_chunk_weights(struct erg_memory_weights *weights,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long chunk)
{
    const struct erg_layout *layout = request->layout;
    long chunks = layout->virtual_stages, last = layout->pipeline - 1;
    long layers = erg_layout_chunk_layers(layout, request->model->layers, stage, chunk);
    bool embeds = stage == 0 && chunk == 0, head = stage == last && chunk == chunks - 1;
    weights->count = 0;
    for (int i = 0; i < 2 && embeds; i++)
        if (sizes->embedding[i])
            ERG_PUSH(weights, items, sizes->embedding[i]);
    const long dense = erg_layout_dense_layers(request->layout, request->model, stage, layers);
    for (long layer = 0; layer < layers; layer++) {
        const bool plain = layer < dense;
        const size_t count = plain ? sizes->dense_weight_count : sizes->weight_count;
        for (size_t i = 0; i < count; i++)
            ERG_PUSH(weights, items, plain ? sizes->dense_weights[i] : sizes->weights[i]);
        for (size_t i = 0; i < sizes->adapter_count; i++)
            ERG_PUSH(weights, items, sizes->adapter_weights[i]);
    }
    /* A tied head is a copy of the embedding if that is on another stage. */
    bool shared = request->model->tied && embeds && head;
    for (int i = 0; i < 3 && head; i++)
        if (sizes->head[i] && !(i == 2 && shared))
            ERG_PUSH(weights, items, sizes->head[i]);
}

void erg_memory_chunk_trained(struct erg_memory_weights *weights,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long chunk)
{
    const long all = request->model->layers;
    if (!sizes->adapters) {
        erg_memory_chunk_weights(weights, request, sizes, stage, chunk);
        return;
    }
    const long layers = erg_layout_chunk_layers(request->layout, all, stage, chunk);
    weights->count = 0;
    for (long layer = 0; layer < layers; layer++)
        for (size_t i = 0; i < sizes->adapter_count; i++)
            ERG_PUSH(weights, items, sizes->adapter_weights[i]);
}

void erg_memory_shard(const struct erg_memory_weights *weights, long ranks, long rank,
                      int64_t *shard)
{
    int64_t total = 0, start = 0;
    for (size_t i = 0; i < weights->count; i++)
        total += weights->items[i];
    int64_t part = (total + ranks - 1) / ranks, first = part * rank, end = first + part;
    for (size_t i = weights->count; i-- > 0;) { /* last tensor first, in the order of gradients */
        int64_t low = start > first ? start : first;
        start += weights->items[i];
        int64_t high = start < end ? start : end;
        shard[i] = high > low ? high - low : 0;
    }
}

/* Each of `degree` ranks has other weights, sharded over all ranks with the same ones. */
static void add_rounding(int64_t *rounding, const struct erg_memory_weights *weights,
                         const struct erg_memory_sizes *sizes, long ranks, long degree)
{
    int64_t *shard = erg_xcalloc(weights->count, sizeof *shard);
    for (long rank = 0; rank < ranks; rank++) {
        erg_memory_shard(weights, ranks / degree, rank / degree, shard);
        for (size_t i = 0; i < weights->count; i++)
            rounding[rank] += 2 * (erg_memory_served_bytes(sizes, 4 * shard[i]) - 4 * shard[i]);
    }
    free(shard);
}

void erg_memory_moments_rounding(const struct erg_memory_request *request,
                                 const struct erg_memory_sizes *sizes, long stage,
                                 int64_t *rounding)
{
    const struct erg_layout *layout = request->layout;
    long ranks = layout->data * layout->context;
    const long degree = erg_layout_experts(layout);
    struct erg_memory_weights weights = {0};
    memset(rounding, 0, (size_t)ranks * sizeof *rounding);
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++) {
        erg_memory_chunk_trained(&weights, request, sizes, stage, chunk);
        add_rounding(rounding, &weights, sizes, ranks, 1);
        erg_memory_expert_weights(&weights, request, sizes, stage, chunk);
        if (weights.count > 0 && !sizes->adapters)
            add_rounding(rounding, &weights, sizes, ranks, degree);
    }
    free(weights.items);
}
