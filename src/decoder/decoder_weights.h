/*
 * Weights: which tensors a rank holds of a model, and which parts of the tensors of a Hugging Face
 * checkpoint they are. It is the only place that knows how tensors are fused and split; loading,
 * exporting, initialising, checkpoints and comparisons are loops over spans.
 *
 * Rank r of t holds, as rows in this order:
 *   - qkv: its heads of queries, then its groups of keys, then of values; several ranks hold the
 *     same group where there are fewer groups than ranks;
 *   - fc1: its rows of the gate, then the same ones of up (or of the only matrix of a GELU MLP);
 *   - embedding and head: V padded to a multiple of 128 t rows (erg_model_padded_vocabulary()).
 * Rows beyond V are 0, get no gradient and are in no checkpoint; and columns of proj and fc2. All
 * else is whole on every rank.
 *
 * A rank's tensors lie in buckets, which gradients are summed by over data and context ranks: the
 * head with the final norm, each layer, the embedding. A bucket has a multiple of 64 elements a
 * rank, a tensor begins at a multiple of 64.
 */
#ifndef ERG_DECODER_WEIGHTS_H
#define ERG_DECODER_WEIGHTS_H

#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_tensor {
    /* Of a layer. */
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
    /* Outside the layers. */
    ERG_TENSOR_EMBEDDING = ERG_LAYER_TENSORS,
    ERG_TENSOR_POSITIONS,
    ERG_TENSOR_NORM_FINAL,
    ERG_TENSOR_NORM_FINAL_BIAS,
    ERG_TENSOR_HEAD,
    ERG_TENSORS,
};

struct erg_weight {
    enum erg_tensor tensor;
    long layer;           /* of the model; -1: outside the layers */
    size_t rows, columns; /* of this rank; a vector has one column */
    bool decays;          /* a matrix, which weight decay applies to; else a vector */
    bool split;           /* over tensor ranks; else all of them hold the same */
    size_t offset;        /* elements, from the first of all */
};

struct erg_weights {
    struct erg_weight *items; /* in the order of the model */
    size_t count, capacity;
    struct {
        struct erg_weight_bucket {
            size_t offset, elements;
        } * items; /* in the order in which a backward pass completes them */
        size_t count, capacity;
    } buckets;
    size_t elements; /* of all, with padding */
};

struct erg_weights_request {
    const struct erg_model *model;
    long tensor, place; /* the degree, and this rank's place in its group */
    long first_layer, layers;
    bool embedding, head; /* of the first stage, of the last one */
    long ranks;           /* that share the optimizer's state: data x context */
};

void erg_weights_init(struct erg_weights *weights, const struct erg_weights_request *request);
void erg_weights_release(struct erg_weights *weights);

/* The weight of a layer, or with layer -1 one outside; NULL: this rank has none. The head of a tied
 * model whose embedding is here is the embedding. */
const struct erg_weight *erg_weights_find(const struct erg_weights *weights, long layer,
                                          enum erg_tensor tensor);

/*
 * A part of a weight and of the tensor `name` of a checkpoint: rows [row, row + rows) and columns
 * likewise of the matrix [outputs, inputs] that they both are of. Transposed: the checkpoint keeps
 * [inputs, outputs], and element (o, i) lies at i * outputs + o.
 */
struct erg_weight_span {
    char name[96];
    size_t dimensions, shape[2]; /* of the whole tensor, as the checkpoint writes it */
    bool transposed;
    size_t weight; /* index into the weights' items */
    size_t row, column, rows, columns;
    size_t local_row, local_column;
};

struct erg_weight_spans {
    struct erg_weight_span *items;
    size_t count, capacity;
};

void erg_weight_spans_init(struct erg_weight_spans *spans, const struct erg_weights *weights,
                           const struct erg_weights_request *request);
void erg_weight_spans_release(struct erg_weight_spans *spans);

/* Where element (row, column) of a span's part lies: in the tensor of the checkpoint, and in the
 * weight. */
static inline size_t erg_weight_span_there(const struct erg_weight_span *span, size_t row,
                                           size_t column)
{
    row += span->row;
    column += span->column;
    size_t width = span->dimensions == 2 ? span->shape[1] : 1;
    return span->transposed ? column * width + row : row * width + column;
}

static inline size_t erg_weight_span_here(const struct erg_weight_span *span,
                                          const struct erg_weight *weight, size_t row,
                                          size_t column)
{
    return (span->local_row + row) * weight->columns + span->local_column + column;
}

#endif
