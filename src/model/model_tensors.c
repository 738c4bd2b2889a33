/* Shapes of the tensors of weights. */
#include "model/model_tensors.h"

struct erg_tensor_shape erg_tensor_shape(const struct erg_model *model, long tensor_ranks,
                                         enum erg_tensor tensor)
{
    size_t h = (size_t)model->hidden, d = (size_t)model->head_dim, t = (size_t)tensor_ranks;
    size_t heads = (size_t)model->heads / t, f = (size_t)model->ffn / t;
    size_t qkv = (heads + 2 * (size_t)erg_model_local_kv_heads(model, tensor_ranks)) * d;
    size_t fc1 = model->gated ? 2 * f : f;
    const struct erg_tensor_shape none = {0, 0, false}, vector = {h, 1, false};
    switch (tensor) {
    case ERG_TENSOR_NORM_A:
    case ERG_TENSOR_NORM_M:
    case ERG_TENSOR_NORM_FINAL:
        return vector;
    case ERG_TENSOR_NORM_A_BIAS:
    case ERG_TENSOR_NORM_M_BIAS:
    case ERG_TENSOR_NORM_FINAL_BIAS:
        return model->layer_norm ? vector : none;
    case ERG_TENSOR_QKV:
        return (struct erg_tensor_shape){qkv, h, true};
    case ERG_TENSOR_QKV_BIAS:
        return model->qkv_bias ? (struct erg_tensor_shape){qkv, 1, true} : none;
    case ERG_TENSOR_Q_NORM:
    case ERG_TENSOR_K_NORM:
        return model->qk_norm ? (struct erg_tensor_shape){d, 1, false} : none;
    case ERG_TENSOR_PROJ:
        return (struct erg_tensor_shape){h, heads * d, true};
    case ERG_TENSOR_PROJ_BIAS:
        return model->projection_bias ? vector : none;
    case ERG_TENSOR_FC1:
        return (struct erg_tensor_shape){fc1, h, true};
    case ERG_TENSOR_FC1_BIAS:
        return model->mlp_bias ? (struct erg_tensor_shape){fc1, 1, true} : none;
    case ERG_TENSOR_FC2:
        return (struct erg_tensor_shape){h, f, true};
    case ERG_TENSOR_FC2_BIAS:
        return model->mlp_bias ? vector : none;
    case ERG_TENSOR_EMBEDDING:
    case ERG_TENSOR_HEAD:
        return (struct erg_tensor_shape){
            (size_t)erg_model_padded_vocabulary(model, tensor_ranks) / t, h, true};
    case ERG_TENSOR_POSITIONS:
        return model->learned_positions
                   ? (struct erg_tensor_shape){(size_t)model->max_positions, h, false}
                   : none;
    default:
        return none;
    }
}
