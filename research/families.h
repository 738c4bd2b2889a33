/*
 * Models of the published evaluation, as operations of a grid: encoder transformers, the same with
 * experts in place of some feed-forward layers (top-2 gating with capacity factor 2, dispatched by
 * dense products over groups of tokens, as GShard), and bottleneck residual networks whose 3 x 3
 * convolutions are wider by a factor.
 */
#ifndef RESEARCH_FAMILIES_H
#define RESEARCH_FAMILIES_H

#include "layout/grid/grid_model.h"

struct family_model {
    char *family, *size; /* "bert", "760M" */
    bool half;           /* computes in 2 bytes an element, with the rates of half precision */
    /* Transformers (hidden > 0). */
    long layers, hidden, heads, sequence, vocabulary;
    long ffn_factor;   /* feed-forward width in hidden sizes */
    long experts;      /* 0: none */
    long expert_every; /* the last of every so many layers has experts */
    long expert_group; /* tokens that gating looks at together */
    /* Residual networks (channels > 0). */
    long *blocks; /* of each stage of resolution */
    unsigned blocks_count;
    long channels, width_factor, image, classes;
};

/* All operations in order; the caller frees items. */
void family_ops(const struct family_model *model, struct erg_grid_ops *ops);

/* Published skews of layers' loads (grid_plan.h): 0.5 for residual networks, 0.15 on 4 GPUs. */
double family_skew(const struct family_model *model, long gpus);

#endif
