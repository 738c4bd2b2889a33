/*
 * A lower bound of the frontiers of all layouts with given numbers of stages per kind, for any
 * order of stages, chunks, split of the layers and clocks, so that a search need not examine them
 * one by one. It takes a microsecond, and is far below bound.h if pipelines are not full.
 *
 * In an iteration of T seconds of the pipeline each of the s_k stages on kind k has T seconds to
 * run layers, at any mixture of clocks. Let L layers run for m microbatches; forward and backward
 * of a layer take a GPU t seconds and e joules beyond its waiting power P_k. Then, for any price u
 * of a layer (the dual of the linear program that assigns layers to kinds and clocks), and with g
 * GPUs per stage over all replicas,
 *
 *   E(T) >= g (m L u + T x sum over kinds of s_k (P_k - max over clocks of (u - e) / t or 0)).
 *
 * The bound is the maximum of these lines over some prices. The head, messages, gradients and the
 * optimizer are ignored, unless they could take less than waiting.
 */
#ifndef ERG_LAYOUT_ENERGY_MIXED_ROWS_H
#define ERG_LAYOUT_ENERGY_MIXED_ROWS_H

#include "layout/energy/bound.h"
#include "layout/search/layout_search.h"

enum { ERG_MIXED_PRICES = 32 };

struct erg_mixed_rows {
    const struct erg_layout_search *search;
    struct erg_layout degrees; /* for these tensor and context degrees and this microbatch */
    struct erg_mixed_row_kind {
        double fastest_s;                                 /* of a layer */
        double saved_w[ERG_RECOMPUTES][ERG_MIXED_PRICES]; /* the maximum above, at every price */
    } kinds[ERG_LAYOUT_MOST_KINDS];
    double prices_j[ERG_MIXED_PRICES]; /* rising */
    double less_j; /* J per GPU by which the rest of a microbatch may need less than waiting */
};

/* Starts empty. */
void erg_mixed_rows_init(struct erg_mixed_rows *rows, const struct erg_layout_search *search);

/* For layouts with these tensor, context and data degrees and microbatch, on these blocks, with one
 * of `recomputes` in each stage. The caller releases it. */
void erg_mixed_rows_bound(struct erg_layout_bound *bound, struct erg_mixed_rows *rows,
                          const struct erg_layout *degrees, const struct erg_layout_block *blocks,
                          size_t count, unsigned recomputes);

#endif
