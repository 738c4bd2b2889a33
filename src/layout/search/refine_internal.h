/* Shared by the files of layout/search/refine* only. */
#ifndef ERG_LAYOUT_SEARCH_REFINE_INTERNAL_H
#define ERG_LAYOUT_SEARCH_REFINE_INTERNAL_H

#include "layout/search/cuts.h"
#include "layout/search/search_internal.h"

/* Splits between two others, chunk by chunk. */
struct erg_refining_box {
    double bound_s;
    long *least, *most;
};

struct erg_refining {
    struct erg_layout_candidate *best;
    struct erg_layout_splitter *splitter;
    struct erg_layout_stages *stages;
    const struct erg_layout_places *places;
    struct erg_layout layout; /* with what takes least, and no layers */
    long chunks, layers;
    double limit_s; /* no split that takes longer is wanted */
    struct erg_time_chunk *costs;
    struct erg_cuts cuts; /* without offloading */
    double *copies;       /* what one more ratio of offloading adds to their slopes */
    size_t copies_room;
    struct erg_cuts offloading; /* the same at a ratio */
    double ratio;
    struct erg_refining_box *boxes; /* a heap */
    size_t box_count, box_room;
    double *point, *inside, *outside, *times_s, *fractions;
    long *path, *rounded, *last;
    uint64_t passes_before, most_work;
    bool improved;
};

/* A cut that is met at the point with this ratio of offloading; returns the time there, without
 * what all splits wait. */
double erg_refining_add_cut(struct erg_refining *at, double offload);

/* Makes the point the split in real numbers, at least one each, of which all turns take equally
 * long. */
void erg_refining_level(struct erg_refining *at, double offload);

/* The value at the point of the cut that was made last. */
double erg_refining_last_cut_s(const struct erg_refining *at, double offload);

/* The cuts at a ratio of offloading. */
struct erg_cuts *erg_refining_cuts_at(struct erg_refining *at, double offload);

#endif
