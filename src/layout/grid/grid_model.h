/*
 * A model for a grid's planner and estimator: its operations with their work, and its pipeline
 * layers, which are sequences of operations of about equal work.
 *
 * Numbers are for the forward pass of one sample where not stated otherwise; tensors in elements.
 * Only the models of research/'s replays have convolutions and experts.
 */
#ifndef ERG_LAYOUT_GRID_MODEL_H
#define ERG_LAYOUT_GRID_MODEL_H

#include "base/memory.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_grid_op_kind {
    ERG_GRID_MATMUL,
    ERG_GRID_CONVOLUTION,
    ERG_GRID_ELEMENTWISE, /* all that memory limits */
};

struct erg_grid_op {
    enum erg_grid_op_kind kind;
    bool starts_block;     /* stages may be cut before it */
    double flops;          /* 0 for elementwise */
    double rows;           /* positions of the output: tokens or pixels */
    double traffic;        /* elements read and written, without weights */
    double output;         /* elements */
    double weights;        /* of every data replica */
    double expert_weights; /* of experts: replicas may share them */
    double reduced;        /* elements that a tensor-parallel group sums after it */
    double exchanged;      /* elements that replicas exchange after it when they share experts */
};

struct erg_grid_ops {
    struct erg_grid_op *items;
    size_t count, capacity;
};

/* All operations of a dense decoder, in order; the caller frees items. */
void erg_grid_ops_init(struct erg_grid_ops *ops, const struct erg_model *model, long sequence);

/*
 * The parts of models. An elementwise operation is limited by memory and reads and writes `tensors`
 * tensors of the size of its output; a product multiplies rows x inner by inner x outer; its tensor
 * group sums a linear that `reduces`.
 */
enum { ERG_GRID_PLAIN = 2, ERG_GRID_RESIDUAL = 3, ERG_GRID_SOFTMAX = 3 };
void erg_grid_add_elementwise(struct erg_grid_ops *ops, bool starts_block, double rows,
                              double output, int tensors);
struct erg_grid_op erg_grid_product(double rows, double inner, double outer);
void erg_grid_add_linear(struct erg_grid_ops *ops, double rows, double inner, double outer,
                         bool reduces);
void erg_grid_add_embedding(struct erg_grid_ops *ops, double tokens, double hidden,
                            double vocabulary);
void erg_grid_add_feed_forward(struct erg_grid_ops *ops, double tokens, double hidden, double ffn,
                               bool gated);
void erg_grid_add_head(struct erg_grid_ops *ops, double tokens, double hidden, double vocabulary,
                       bool tied);

/* A sequence of operations: a pipeline layer, or several together. */
struct erg_grid_layer {
    size_t first_op, op_count;
    double matmul_flops, convolution_flops;
    double flops_per_row; /* sum over convolutions of flops / rows */
    double traffic;
    double weights, expert_weights;
    double reduced, reductions;  /* elements, and operations that reduce */
    double exchanged, exchanges; /* the same for experts */
    double input, output;        /* elements that it gets and passes on */
    double activations;          /* outputs of all its operations */
};

/*
 * Cuts the operations at block boundaries into at most `count` layers of FLOPs as equal as possible
 * (erg_grid_split); returns their number (fewer if the model has fewer blocks).
 */
size_t erg_grid_cut_layers(const struct erg_grid_ops *ops, struct erg_grid_layer *layers,
                           size_t count);

/* Layers [first, end) as one. */
struct erg_grid_layer erg_grid_join_layers(const struct erg_grid_layer *layers, size_t first,
                                           size_t end);

/*
 * Cuts `count` weights in order into `parts` runs, none empty, as equal as possible, with the least
 * sum of squares. Run p is [first[p], first[p + 1]). Needs 1 <= parts <= count.
 */
void erg_grid_split(const double *weights, size_t count, size_t parts, size_t *first);

#endif
