/*
 * Energy of layouts over GPUs of one kind or several (search/layout_search.h), and their frontiers
 * over clocks: every stage uses the power and the clocks of its own GPUs (layout_energy.h,
 * layout_frontier.h).
 */
#ifndef ERG_LAYOUT_ENERGY_CANDIDATE_H
#define ERG_LAYOUT_ENERGY_CANDIDATE_H

#include "layout/energy/layout_frontier.h"
#include "layout/search/layout_search.h"

/* The energy with everything at the highest clock. */
void erg_layout_candidate_energy(struct erg_layout_energy *energy,
                                 const struct erg_layout_search *search,
                                 const struct erg_layout_candidate *candidate);

/*
 * The places of one layout's stages: fills `energy`, `layout` and the members about places. Returns
 * the memory that they point to; release it with free().
 */
void *erg_layout_locate(struct erg_layout_frontier_request *request,
                        const struct erg_layout_search *search,
                        const struct erg_layout_candidate *candidate);

#endif
