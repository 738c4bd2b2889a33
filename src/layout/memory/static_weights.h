/*
 * The sizes of a rank's weights in buckets (decoder/decoder_weights.h lists them): each tensor
 * takes a multiple of 64 elements, a bucket a multiple of 64 for each rank that shares its
 * optimizer's state.
 */
#ifndef ERG_LAYOUT_STATIC_WEIGHTS_H
#define ERG_LAYOUT_STATIC_WEIGHTS_H

#include "model/model_tensors.h"

/* In the order in which a backward pass completes them. */
enum erg_bucket_kind {
    ERG_BUCKET_HEAD,
    ERG_BUCKET_LAYER,
    ERG_BUCKET_HEAD_NORMS,
    ERG_BUCKET_VECTORS,
    ERG_BUCKET_EMBEDDING,
    ERG_BUCKETS,
};

enum { ERG_WEIGHT_ELEMENTS = 64 };

static inline enum erg_bucket_kind erg_bucket_of(enum erg_tensor tensor, bool split)
{
    bool of_heads = tensor == ERG_TENSOR_Q_NORM || tensor == ERG_TENSOR_K_NORM;
    return of_heads                         ? ERG_BUCKET_HEAD_NORMS
           : !split                         ? ERG_BUCKET_VECTORS
           : tensor == ERG_TENSOR_EMBEDDING ? ERG_BUCKET_EMBEDDING
           : tensor == ERG_TENSOR_HEAD      ? ERG_BUCKET_HEAD
                                            : ERG_BUCKET_LAYER;
}

/* Elements of a weight in its bucket. */
static inline size_t erg_weight_room(size_t elements)
{
    return (elements + ERG_WEIGHT_ELEMENTS - 1) / ERG_WEIGHT_ELEMENTS * ERG_WEIGHT_ELEMENTS;
}

/* Elements of a bucket whose state `ranks` ranks share. */
static inline size_t erg_bucket_room(size_t elements, size_t ranks)
{
    size_t multiple = ERG_WEIGHT_ELEMENTS * ranks;
    return (elements + multiple - 1) / multiple * multiple;
}

/* Elements of each bucket: of one layer, of the part before the layers, of the part after. */
struct erg_static_tensors {
    size_t layer[ERG_BUCKETS], first[ERG_BUCKETS], last[ERG_BUCKETS];
    bool tied;
};
void erg_static_tensors_init(struct erg_static_tensors *tensors, const struct erg_model *model,
                             long tensor_ranks);

struct erg_static_weights {
    size_t elements; /* of all weights, with padding */
    size_t state;    /* one rank's part of the optimizer's state */
};

/*
 * The weights of the given layers, with the embedding or the head if the rank has them; `ranks`
 * share the state. A tied head on the same rank is the embedding.
 */
struct erg_static_weights erg_static_weights_of(const struct erg_static_tensors *tensors,
                                                size_t layers, bool embedding, bool head,
                                                size_t ranks);

#endif
