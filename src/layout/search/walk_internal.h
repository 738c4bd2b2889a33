/* Shared by search.c, which walks over all layouts, and kept_splits.c. */
#ifndef ERG_LAYOUT_SEARCH_WALK_INTERNAL_H
#define ERG_LAYOUT_SEARCH_WALK_INTERNAL_H

#include "layout/search/search_internal.h"

struct erg_layout_walk {
    const struct erg_layout_search *search;
    struct erg_layout_keeping kept;
    bool any; /* is wanted, and what does not fit does not matter */
    struct erg_layout_pieces pieces;
    struct erg_layout_places places; /* of the stages at hand */
    struct erg_layout_splitter splitter;
    struct erg_layout_stages own; /* of search->per_stage */
    double *gradient_bandwidths;  /* by stages, of the tensor degree at hand; 0: not known yet */
    long *stages;                 /* numbers of them that the GPUs allow, for the group at hand */
    size_t stage_count;
    bool *divides; /* [1 … layers]: numbers that divide the layers */
    /* Of what does not fit while nothing does, without its pointers. */
    struct erg_layout_candidate nearest;
    double nearest_excess, nearest_host_excess;
};

/* The splits of all that was kept become the fastest there are, and of these as many are left as
 * were asked for, with their gap. */
int erg_layout_walk_refine(struct erg_layout_walk *walk, struct erg_error *err);

#endif
