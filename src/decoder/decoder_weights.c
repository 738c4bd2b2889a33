/* The tensors of a rank: their shapes, and where they lie in buckets. */
#include "decoder/decoder_weights.h"

#include "base/memory.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

struct weight_shape {
    size_t rows, columns;
    bool split;
};

static struct weight_shape layer_shape(const struct erg_weights_request *request,
                                       enum erg_tensor tensor)
{
    const struct erg_model *model = request->model;
    size_t h = (size_t)model->hidden, d = (size_t)model->head_dim, t = (size_t)request->tensor;
    size_t heads = (size_t)model->heads / t, f = (size_t)model->ffn / t;
    size_t qkv = (heads + 2 * (size_t)erg_model_local_kv_heads(model, request->tensor)) * d;
    size_t fc1 = model->gated ? 2 * f : f;
    const struct weight_shape none = {0, 0, false};
    switch (tensor) {
    case ERG_TENSOR_NORM_A:
    case ERG_TENSOR_NORM_M:
        return (struct weight_shape){h, 1, false};
    case ERG_TENSOR_NORM_A_BIAS:
    case ERG_TENSOR_NORM_M_BIAS:
        return model->layer_norm ? (struct weight_shape){h, 1, false} : none;
    case ERG_TENSOR_QKV:
        return (struct weight_shape){qkv, h, true};
    case ERG_TENSOR_QKV_BIAS:
        return model->qkv_bias ? (struct weight_shape){qkv, 1, true} : none;
    case ERG_TENSOR_Q_NORM:
    case ERG_TENSOR_K_NORM:
        return model->qk_norm ? (struct weight_shape){d, 1, false} : none;
    case ERG_TENSOR_PROJ:
        return (struct weight_shape){h, heads * d, true};
    case ERG_TENSOR_PROJ_BIAS:
        return model->projection_bias ? (struct weight_shape){h, 1, false} : none;
    case ERG_TENSOR_FC1:
        return (struct weight_shape){fc1, h, true};
    case ERG_TENSOR_FC1_BIAS:
        return model->mlp_bias ? (struct weight_shape){fc1, 1, true} : none;
    case ERG_TENSOR_FC2:
        return (struct weight_shape){h, f, true};
    case ERG_TENSOR_FC2_BIAS:
        return model->mlp_bias ? (struct weight_shape){h, 1, false} : none;
    default:
        return none;
    }
}

static size_t rounded_up(size_t count, size_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

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

/* Adds a weight behind the last one; none of no rows. Where it lies is decided later. */
static void add(struct erg_weights *weights, enum erg_tensor tensor, long layer,
                struct weight_shape shape)
{
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
    const struct erg_model *model = request->model;
    size_t h = (size_t)model->hidden;
    size_t words = (size_t)(erg_model_padded_vocabulary(model, request->tensor) / request->tensor);
    add(weights, ERG_TENSOR_EMBEDDING, -1, (struct weight_shape){words, h, true});
    if (model->learned_positions)
        add(weights, ERG_TENSOR_POSITIONS, -1,
            (struct weight_shape){(size_t)model->max_positions, h, false});
}

static void add_last(struct erg_weights *weights, const struct erg_weights_request *request)
{
    const struct erg_model *model = request->model;
    size_t h = (size_t)model->hidden;
    size_t words = (size_t)(erg_model_padded_vocabulary(model, request->tensor) / request->tensor);
    add(weights, ERG_TENSOR_NORM_FINAL, -1, (struct weight_shape){h, 1, false});
    if (model->layer_norm)
        add(weights, ERG_TENSOR_NORM_FINAL_BIAS, -1, (struct weight_shape){h, 1, false});
    if (!model->tied || !request->embedding)
        add(weights, ERG_TENSOR_HEAD, -1, (struct weight_shape){words, h, true});
}

static enum erg_bucket_kind kind_of(const struct erg_weight *weight)
{
    bool of_heads = weight->tensor == ERG_TENSOR_Q_NORM || weight->tensor == ERG_TENSOR_K_NORM;
    return of_heads                                 ? ERG_BUCKET_HEAD_NORMS
           : !weight->split                         ? ERG_BUCKET_VECTORS
           : weight->tensor == ERG_TENSOR_EMBEDDING ? ERG_BUCKET_EMBEDDING
           : weight->tensor == ERG_TENSOR_HEAD      ? ERG_BUCKET_HEAD
                                                    : ERG_BUCKET_LAYER;
}

/* A bucket of the weights of a kind and layer; none where there are none. */
static void add_bucket(struct erg_weights *weights, enum erg_bucket_kind kind, long layer,
                       const struct erg_weights_request *request)
{
    size_t begin = weights->elements, ranks = (size_t)request->ranks;
    for (size_t i = 0; i < weights->count; i++) {
        struct erg_weight *weight = &weights->items[i];
        if (kind_of(weight) != kind || (kind == ERG_BUCKET_LAYER && weight->layer != layer))
            continue;
        weight->bucket = weights->buckets.count;
        weight->offset = weights->elements;
        weights->elements += rounded_up(weight->rows * weight->columns, ALIGNMENT);
    }
    if (begin == weights->elements)
        return;
    size_t elements = rounded_up(weights->elements - begin, ALIGNMENT * ranks);
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
                add(weights, (enum erg_tensor)tensor, request->chunks[c].first + i,
                    layer_shape(request, (enum erg_tensor)tensor));
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
