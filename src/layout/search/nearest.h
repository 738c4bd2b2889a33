/* The smallest change with which a layout, or a job, would fit, found by trial. */
#ifndef ERG_LAYOUT_SEARCH_NEAREST_H
#define ERG_LAYOUT_SEARCH_NEAREST_H

#include "layout/search/layout_search.h"

struct erg_layout_change {
    /*
     * The number of changes, one or two, of tensor, context and pipeline degree, virtual stages,
     * microbatch and recomputation after which the search accepts the layout; ties go to the
     * fastest. 0: there are none. Offloading is the least that fits. With ERG_CUT_EQUALLY chunks
     * keep their layers with other pipeline degrees.
     */
    int changed;
    struct erg_layout_candidate candidate;
    /* The bytes for tensors that a GPU would need for the unchanged layout to fit; 0: memory is not
     * the obstacle. */
    double memory_bytes;
};

/*
 * Evaluates some hundred layouts, or some ten thousand if two values must change: up to a second.
 * The caller releases the candidate.
 */
void erg_layout_find_change(struct erg_layout_change *change,
                            const struct erg_layout_search *search,
                            const struct erg_layout *layout);

/*
 * For a search in which nothing fits; 0: nothing up to `most` helps. The fewest GPUs, in whole
 * nodes if more than one; and the nearest batch on the same number of GPUs.
 */
long erg_layout_fewest_gpus(const struct erg_layout_search *search, long most);
long erg_layout_nearest_batch(const struct erg_layout_search *search, long most);

/* The bytes per GPU with which some layout fits, to 0.05 %; 0: memory is not the obstacle. */
double erg_layout_least_memory(const struct erg_layout_search *search);

#endif
