/* Shared by the files of layout/mixed* only. */
#ifndef ERG_LAYOUT_SEARCH_MIXED_INTERNAL_H
#define ERG_LAYOUT_SEARCH_MIXED_INTERNAL_H

#include "layout/search/mixed.h"
#include "layout/search/search_internal.h"

/* Where the stages of one layout lie, with all that this points to: not to be copied. */
struct erg_mixed_places {
    struct erg_layout_places at;
    struct erg_layout_search kinds[ERG_MIXED_MOST_KINDS];
    struct erg_layout_pieces pieces[ERG_MIXED_MOST_KINDS];
};

void erg_mixed_places_init(struct erg_mixed_places *places, const struct erg_mixed_search *search,
                           const struct erg_mixed_candidate *candidate);

#endif
