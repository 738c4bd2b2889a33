/*
 * Weights: which tensors a rank holds of a model, and which parts of the tensors of a Hugging Face
 * checkpoint they are. Training learns from here alone how tensors are fused and split; their
 * shapes are those of model/model_tensors.h. Loading, exporting, initialising and checkpoints are
 * loops over spans.
 *
 * Rank r of t holds, as rows in this order:
 *   - qkv: its heads of queries, then its groups of keys, then of values; several ranks hold the
 *     same group where there are fewer groups than ranks;
 *   - fc1: its rows of the gate, then the same ones of up (or of the only matrix of a GELU MLP);
 *   - embedding and head: V padded to a multiple of 128 t rows (erg_model_padded_vocabulary()).
 * Rows beyond V are 0, get no gradient and are in no checkpoint; and columns of proj and fc2. All
 * else is whole on every rank.
 *
 * A rank's tensors lie in buckets, whose gradients are summed over the data and context ranks: the
 * head, each layer, the norms of heads, other vectors, the embedding. Vectors are the weights that
 * every tensor rank has whole, including learned positions. A bucket has a multiple of 64 elements
 * for each of those ranks, and a tensor begins at a multiple of 64.
 *
 * The optimizer's state of a bucket is shared out: rank `share` of `ranks` has the share-th part.
 * The parts of all buckets, one after the other, are its state.
 */
#ifndef ERG_DECODER_WEIGHTS_H
#define ERG_DECODER_WEIGHTS_H

#include "layout/memory/static_weights.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_weight {
    enum erg_tensor tensor;
    long layer;           /* of the model; -1: outside the layers */
    size_t rows, columns; /* of this rank; a vector has one column */
    bool decays;          /* a matrix, which weight decay applies to; else a vector */
    bool split;           /* over tensor ranks; else all of them hold the same */
    size_t bucket;        /* that it lies in */
    size_t offset;        /* elements, from the first of all */
};

struct erg_weights {
    struct erg_weight *items; /* in the order of the model */
    size_t count, capacity;
    struct {
        struct erg_weight_bucket {
            enum erg_bucket_kind kind;
            long layer;              /* of the model; -1: of none */
            size_t offset, elements; /* of all weights */
            size_t share, state; /* where this rank's part begins: of all weights, of the state */
            size_t part;         /* elements of that */
        } * items;               /* in the order in which a backward pass completes them */
        size_t count, capacity;
    } buckets;
    size_t elements; /* of all, with padding */
    size_t state;    /* elements of this rank's parts */
};

/* Layers that follow each other in the model. */
struct erg_layer_range {
    long first, count;
};

struct erg_weights_request {
    const struct erg_model *model;
    long tensor, place;                   /* the degree, and this rank's place in its group */
    const struct erg_layer_range *chunks; /* in the order of the model; outlives the request */
    size_t chunk_count;
    bool embedding, head; /* of the first stage, of the last one */
    long ranks, share;    /* that share the optimizer's state: data x context; which this one is */
};

/* All of a model on one rank. */
static inline struct erg_weights_request erg_weights_whole(const struct erg_model *model,
                                                           const struct erg_layer_range *layers)
{
    return (struct erg_weights_request){model, 1, 0, layers, 1, true, true, 1, 0};
}

void erg_weights_init(struct erg_weights *weights, const struct erg_weights_request *request);
void erg_weights_release(struct erg_weights *weights);

/* The weight of a layer, or with layer -1 one outside; NULL: this rank has none. In a tied model
 * the embedding is the head, so a request for the embedding succeeds on a rank without it: request
 * the head where the rank has one. */
const struct erg_weight *erg_weights_find(const struct erg_weights *weights, long layer,
                                          enum erg_tensor tensor);

/*
 * A part of a weight whose state this rank has, and of the tensor `name` of a checkpoint: rows
 * [row, row + rows) and columns likewise of the matrix [outputs, inputs] that they both are of.
 * Transposed: the checkpoint keeps [inputs, outputs], and element (o, i) lies at i * outputs + o.
 */
struct erg_weight_span {
    char name[96];
    size_t dimensions, shape[2]; /* of the whole tensor, as the checkpoint writes it */
    bool transposed;
    bool copy;     /* another rank has this part, too: that one counts it, and saves it */
    size_t weight; /* index into the weights' items */
    size_t row, column, rows, columns;
    size_t offset, state; /* of its first element: in all weights, in the state */
    size_t stride;        /* elements between its rows there */
};

struct erg_weight_spans {
    struct erg_weight_span *items;
    size_t count, capacity;
};

void erg_weight_spans_init(struct erg_weight_spans *spans, const struct erg_weights *weights,
                           const struct erg_weights_request *request);
void erg_weight_spans_release(struct erg_weight_spans *spans);

/* Where element (row, column) of a span's part lies: in the tensor of the checkpoint, and in the
 * state. */
static inline size_t erg_weight_span_there(const struct erg_weight_span *span, size_t row,
                                           size_t column)
{
    row += span->row;
    column += span->column;
    size_t width = span->dimensions == 2 ? span->shape[1] : 1;
    return span->transposed ? column * width + row : row * width + column;
}

static inline size_t erg_weight_span_here(const struct erg_weight_span *span, size_t row,
                                          size_t column)
{
    return span->state + row * span->stride + column;
}

#endif
