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

int erg_mixed_check(const struct erg_mixed_search *search, struct erg_error *err);

#endif
