/* The tensors of a rank: their shapes, and where they lie in buckets. */
#include "decoder/decoder_weights.h"

#include "base/memory.h"

#include <stdlib.h>

static bool is_matrix(enum erg_tensor tensor)
{
    switch (tensor) {
    case ERG_TENSOR_QKV:
    case ERG_TENSOR_PROJ:
    case ERG_TENSOR_FC1:
    case ERG_TENSOR_FC2:
    case ERG_TENSOR_EMBEDDING:
    case ERG_TENSOR_POSITIONS:
    case ERG_TENSOR_HEAD:
        return true;
    default:
        return false;
    }
}

/* Adds a weight behind the last one; none that the model has not. Where it lies is decided later.
 */
static void add(struct erg_weights *weights, const struct erg_weights_request *request,
                enum erg_tensor tensor, long layer)
{
    struct erg_tensor_shape shape = erg_tensor_shape(request->model, request->tensor, tensor);
    if (!shape.rows)
        return;
    ERG_PUSH(weights, items,
             (struct erg_weight){.tensor = tensor,
                                 .layer = layer,
                                 .rows = shape.rows,
                                 .columns = shape.columns,
                                 .decays = is_matrix(tensor),
                                 .split = shape.split});
}

static void add_first(struct erg_weights *weights, const struct erg_weights_request *request)
{
    add(weights, request, ERG_TENSOR_EMBEDDING, -1);
    add(weights, request, ERG_TENSOR_POSITIONS, -1);
}

static void add_last(struct erg_weights *weights, const struct erg_weights_request *request)
{
    add(weights, request, ERG_TENSOR_NORM_FINAL, -1);
    add(weights, request, ERG_TENSOR_NORM_FINAL_BIAS, -1);
    if (!request->model->tied || !request->embedding)
        add(weights, request, ERG_TENSOR_HEAD, -1);
}

/* A bucket of the weights of a kind and layer; none where there are none. */
static void add_bucket(struct erg_weights *weights, enum erg_bucket_kind kind, long layer,
                       const struct erg_weights_request *request)
{
    size_t begin = weights->elements, ranks = (size_t)request->ranks;
    for (size_t i = 0; i < weights->count; i++) {
        struct erg_weight *weight = &weights->items[i];
        if (erg_bucket_of(weight->tensor, weight->split) != kind ||
            (kind == ERG_BUCKET_LAYER && weight->layer != layer))
            continue;
        weight->bucket = weights->buckets.count;
        weight->offset = weights->elements;
        weights->elements += erg_weight_room(weight->rows * weight->columns);
    }
    if (begin == weights->elements)
        return;
    size_t elements = erg_bucket_room(weights->elements - begin, ranks);
    struct erg_weight_bucket bucket = {.kind = kind,
                                       .layer = layer,
                                       .offset = begin,
                                       .elements = elements,
                                       .share = begin + (size_t)request->share * (elements / ranks),
                                       .state = weights->state,
                                       .part = elements / ranks};
    ERG_PUSH(&weights->buckets, items, bucket);
    weights->elements = begin + elements;
    weights->state += bucket.part;
}

void erg_weights_init(struct erg_weights *weights, const struct erg_weights_request *request)
{
    *weights = (struct erg_weights){0};
    if (request->embedding)
        add_first(weights, request);
    for (size_t c = 0; c < request->chunk_count; c++)
        for (long i = 0; i < request->chunks[c].count; i++)
            for (int tensor = 0; tensor < ERG_LAYER_TENSORS; tensor++)
                add(weights, request, (enum erg_tensor)tensor, request->chunks[c].first + i);
    if (request->head)
        add_last(weights, request);
    add_bucket(weights, ERG_BUCKET_HEAD, -1, request);
    for (size_t c = request->chunk_count; c > 0; c--)
        for (long i = request->chunks[c - 1].count; i > 0; i--)
            add_bucket(weights, ERG_BUCKET_LAYER, request->chunks[c - 1].first + i - 1, request);
    add_bucket(weights, ERG_BUCKET_HEAD_NORMS, -1, request);
    add_bucket(weights, ERG_BUCKET_VECTORS, -1, request);
    add_bucket(weights, ERG_BUCKET_EMBEDDING, -1, request);
}

void erg_weights_release(struct erg_weights *weights)
{
    free(weights->items);
    free(weights->buckets.items);
    *weights = (struct erg_weights){0};
}

const struct erg_weight *erg_weights_find(const struct erg_weights *weights, long layer,
                                          enum erg_tensor tensor)
{
    for (size_t i = 0; i < weights->count; i++)
        if (weights->items[i].layer == layer && weights->items[i].tensor == tensor)
            return &weights->items[i];
    return tensor == ERG_TENSOR_HEAD ? erg_weights_find(weights, -1, ERG_TENSOR_EMBEDDING) : NULL;
}
