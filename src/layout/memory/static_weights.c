/* Elements of a rank's buckets. */
#include "layout/memory/static_weights.h"

void erg_static_tensors_init(struct erg_static_tensors *tensors, const struct erg_model *model,
                             long tensor_ranks)
{
    *tensors = (struct erg_static_tensors){.tied = model->tied};
    for (int i = 0; i < ERG_TENSORS; i++) {
        enum erg_tensor tensor = (enum erg_tensor)i;
        struct erg_tensor_shape shape = erg_tensor_shape(model, tensor_ranks, tensor);
        size_t *of = tensor < ERG_LAYER_TENSORS       ? tensors->layer
                     : tensor < ERG_TENSOR_NORM_FINAL ? tensors->first
                                                      : tensors->last;
        of[erg_bucket_of(tensor, shape.split)] += erg_weight_room(shape.rows * shape.columns);
    }
}

struct erg_static_weights erg_static_weights_of(const struct erg_static_tensors *tensors,
                                                size_t layers, bool embedding, bool head,
                                                size_t ranks)
{
    struct erg_static_weights weights = {
        .elements = layers * erg_bucket_room(tensors->layer[ERG_BUCKET_LAYER], ranks)};
    for (int kind = 0; kind < ERG_BUCKETS; kind++) {
        bool shared = kind == ERG_BUCKET_HEAD && tensors->tied && embedding;
        size_t elements = kind == ERG_BUCKET_LAYER ? 0 : layers * tensors->layer[kind];
        elements += embedding ? tensors->first[kind] : 0;
        elements += head && !shared ? tensors->last[kind] : 0;
        weights.elements += erg_bucket_room(elements, ranks);
    }
    weights.state = weights.elements / ranks;
    return weights;
}
