/*
 * The tensors of weights that a rank of a tensor group holds of a model: their shapes. Queries,
 * keys and values are one, as are gate and up; decoder/decoder_weights.h defines the rows.
 */
#ifndef ERG_MODEL_TENSORS_H
#define ERG_MODEL_TENSORS_H

#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_tensor {
    /* Tensors of a layer. */
    ERG_TENSOR_NORM_A,
    ERG_TENSOR_NORM_A_BIAS,
    ERG_TENSOR_QKV,
    ERG_TENSOR_QKV_BIAS,
    ERG_TENSOR_Q_NORM,
    ERG_TENSOR_K_NORM,
    ERG_TENSOR_PROJ,
    ERG_TENSOR_PROJ_BIAS,
    ERG_TENSOR_NORM_M,
    ERG_TENSOR_NORM_M_BIAS,
    ERG_TENSOR_FC1,
    ERG_TENSOR_FC1_BIAS,
    ERG_TENSOR_FC2,
    ERG_TENSOR_FC2_BIAS,
    ERG_LAYER_TENSORS,
    /* Outside the layers: with the embedding, then with the head. */
    ERG_TENSOR_EMBEDDING = ERG_LAYER_TENSORS,
    ERG_TENSOR_POSITIONS,
    ERG_TENSOR_NORM_FINAL,
    ERG_TENSOR_NORM_FINAL_BIAS,
    ERG_TENSOR_HEAD,
    ERG_TENSORS,
};

struct erg_tensor_shape {
    size_t rows, columns; /* of one rank; a vector has one column; no rows: the model has none */
    bool split;           /* over tensor ranks; else all of them hold the same */
};

/* With the vocabulary padded. */
struct erg_tensor_shape erg_tensor_shape(const struct erg_model *model, long tensor_ranks,
                                         enum erg_tensor tensor);

#endif
