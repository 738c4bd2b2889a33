/*
 * What a grid's planner and estimator know of a model: its operations with their work, and its
 * pipeline layers, which are runs of operations of about equal work.
 *
 * Three families, described by data (estimate.h), not by code: encoder transformers, the same with
 * experts in place of some feed-forward layers (top-2 gating with capacity factor 2, dispatched by
 * dense products over groups of tokens, as GShard), and bottleneck residual networks whose 3 x 3
 * convolutions are wider by a factor.
 *
 * Numbers are of the forward pass of one sample unless said; tensors in elements.
 */
#ifndef ERG_LAYOUT_GRID_MODEL_H
#define ERG_LAYOUT_GRID_MODEL_H

#include "base/memory.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_grid_model {
    char *family, *size; /* "bert", "760M" */
    bool half;           /* computes in 2 bytes an element, with the rates of half precision */
    /* Transformers (hidden > 0). */
    long layers, hidden, heads, sequence, vocabulary;
    long ffn_factor;   /* feed-forward width in hidden sizes */
    long experts;      /* 0: none */
    long expert_every; /* the last of every so many layers has experts */
    long expert_group; /* tokens that gating looks at together */
    /* Decoders: width of queries and of keys and values, 0: both as wide as the hidden state; of
     * the feed-forward part, 0: ffn_factor times the hidden size. */
    long query_width, key_width, ffn_width;
    bool gated;  /* two widths into the activation */
    bool causal; /* attention is one kernel that skips what is masked */
    bool untied; /* the head has weights of its own */
    /* Residual networks (channels > 0). */
    long *blocks; /* of each stage of resolution */
    unsigned blocks_count;
    long channels, width_factor, image, classes;
};

enum erg_grid_op_kind {
    ERG_GRID_MATMUL,
    ERG_GRID_CONVOLUTION,
    ERG_GRID_ELEMENTWISE, /* all that memory limits */
};

struct erg_grid_op {
    enum erg_grid_op_kind kind;
    bool starts_block;     /* the tensor before it is one that stages may pass on */
    double flops;          /* 0 for elementwise */
    double rows;           /* positions of the output: tokens or pixels */
    double traffic;        /* elements read and written, weights aside */
    double output;         /* elements */
    double weights;        /* of every data replica */
    double expert_weights; /* of experts: replicas may share them out */
    double reduced;        /* elements that a tensor-parallel group sums after it */
    double exchanged;      /* elements that replicas exchange after it when they share experts */
};

struct erg_grid_ops {
    struct erg_grid_op *items;
    size_t count, capacity;
};

/* A dense decoder on sequences of so many tokens, in half precision; borrows its name and
 * `size`. */
struct erg_grid_model erg_grid_model_of(const struct erg_model *model, char *size, long sequence);

/* All operations of a model in order; the caller frees items. */
void erg_grid_model_ops(const struct erg_grid_model *model, struct erg_grid_ops *ops);

/* A run of operations: a pipeline layer, or several together. */
struct erg_grid_layer {
    size_t first_op, op_count;
    double matmul_flops, convolution_flops;
    double flops_per_row; /* sum over convolutions of flops / rows */
    double traffic;
    double weights, expert_weights;
    double reduced, reductions;  /* elements, and operations that reduce */
    double exchanged, exchanges; /* the same of experts */
    double input, output;        /* elements that it gets and passes on */
    double activations;          /* outputs of all its operations */
};

/*
 * Cuts the operations at block boundaries into at most `count` layers of FLOPs as equal as possible
 * (erg_grid_split); returns how many there are (fewer where the model has fewer blocks).
 */
size_t erg_grid_cut_layers(const struct erg_grid_ops *ops, struct erg_grid_layer *layers,
                           size_t count);

/* Layers [first, end) as one. */
struct erg_grid_layer erg_grid_join_layers(const struct erg_grid_layer *layers, size_t first,
                                           size_t end);

/*
 * Cuts `count` weights in order into `parts` runs, none empty, as equal as possible: with the least
 * sum of squares. Run p is [first[p], first[p + 1]). Needs 1 <= parts <= count.
 */
void erg_grid_split(const double *weights, size_t count, size_t parts, size_t *first);

#endif
