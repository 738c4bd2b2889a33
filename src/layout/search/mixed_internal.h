/* Shared by the files of layout/search/mixed* and layout/energy/mixed.c only. */
#ifndef ERG_LAYOUT_SEARCH_MIXED_INTERNAL_H
#define ERG_LAYOUT_SEARCH_MIXED_INTERNAL_H

#include "layout/search/mixed.h"
#include "layout/search/search_internal.h"

/* A search as each kind would see it, and what is known of all layouts of the same tensor and
 * context degree and microbatch: of stages that all lie in one node, and of others. */
struct erg_mixed_views {
    const struct erg_mixed_search *search;
    struct erg_layout_search kinds[ERG_MIXED_MOST_KINDS];
    struct erg_layout_pieces pieces[ERG_MIXED_MOST_KINDS][2];
};

void erg_mixed_views_init(struct erg_mixed_views *views, const struct erg_mixed_search *search);
void erg_mixed_views_fill(struct erg_mixed_views *views, const struct erg_layout *layout);

/* Where the stages of a layout lie. The places point into the views, in which the kinds may offload
 * as this layout may. */
void erg_mixed_places_init(struct erg_layout_places *places, struct erg_mixed_views *views,
                           const struct erg_layout *layout, const struct erg_layout_block *blocks,
                           size_t count);

/* Fills the peak of each of a candidate's blocks. */
void erg_mixed_fill_peaks(struct erg_layout_candidate *candidate,
                          const struct erg_layout_places *places);

/* ---- layers of stages (mixed_split.c) ---- */

struct erg_mixed_room {
    const struct erg_mixed_search *search;
    struct erg_layout_splitter splitter;
    struct erg_layout_stages stages; /* of search->per_stage */
};

void erg_mixed_room_init(struct erg_mixed_room *room, const struct erg_mixed_search *search);
void erg_mixed_room_release(struct erg_mixed_room *room);

/* Seconds that no split takes less than, whatever stages do: without offloading, each with the
 * recomputation that takes least. From `limit` on less may be said. */
double erg_mixed_split_bound(struct erg_mixed_room *room, const struct erg_layout *layout,
                             const struct erg_layout_places *places, double limit);

/*
 * A candidate with nothing but its batch and blocks becomes the fastest split of a layout's layers
 * that fits, with lists of its own: with the layout's recomputation or, where each stage does what
 * is best for it, with any of those that are tried. Its time stays 0 where none fits, or none takes
 * less than `limit`.
 */
void erg_mixed_split_fastest(struct erg_layout_candidate *best, struct erg_mixed_room *room,
                             const struct erg_layout *layout,
                             const struct erg_layout_places *places, double limit);

int erg_mixed_check(const struct erg_mixed_search *search, struct erg_error *err);

#endif
