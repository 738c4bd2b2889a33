/*
 * What is missing: the smallest change with which a layout, or a job, would fit. Found by trying.
 */
#ifndef ERG_LAYOUT_SEARCH_NEAREST_H
#define ERG_LAYOUT_SEARCH_NEAREST_H

#include "layout/search/layout_search.h"

struct erg_layout_change {
    /* Of tensor, context and pipeline degree, virtual stages, microbatch and recomputation as few
     * changed as possible, one or two, so that the layout is one of the search; of several such the
     * fastest. 0: none is. Offloading is the least that fits. By ERG_CUT_EQUALLY chunks keep their
     * layers with other pipeline degrees. */
    int changed;
    struct erg_layout_candidate candidate;
    /* What a GPU would have to have for tensors so that the layout fits as it is; 0: that is not
     * what is missing. */
    double memory_bytes;
};

/* Some hundred layouts are evaluated, some ten thousand where two must change: up to a second. The
 * candidate is to be released. */
void erg_layout_find_change(struct erg_layout_change *change,
                            const struct erg_layout_search *search,
                            const struct erg_layout *layout);

/* For a search in which nothing fits; 0: nothing up to `most` helps. The fewest GPUs, whole nodes
 * where they are more than one; and the nearest batch, on as many GPUs. */
long erg_layout_fewest_gpus(const struct erg_layout_search *search, long most);
long erg_layout_nearest_batch(const struct erg_layout_search *search, long most);

/* The bytes of a GPU with which something fits, to 0.05 %; 0: that is not what is missing. */
double erg_layout_least_memory(const struct erg_layout_search *search);

#endif
