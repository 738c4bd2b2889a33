/*
 * Energy of layouts over GPUs of several kinds (search/mixed.h), and their frontiers over clocks:
 * every stage by the power and the clocks of its own GPUs (energy.h, frontier.h).
 */
#ifndef ERG_LAYOUT_ENERGY_MIXED_H
#define ERG_LAYOUT_ENERGY_MIXED_H

#include "layout/energy/choice.h"
#include "layout/search/mixed.h"

/* With everything at the highest clock. */
void erg_mixed_energy(struct erg_layout_energy *energy, const struct erg_mixed_search *search,
                      const struct erg_layout_candidate *candidate);

/*
 * Searches that are alike but for how many GPUs of which kinds layouts use, as a source of
 * erg_layout_choose(), whose `search_count` they are. A search does not ask for layouts that cannot
 * be among those with the best bounds, or take longer than all deadlines: see mixed_rows.h. The
 * searches must outlive it.
 */
struct erg_layout_source erg_mixed_source(const struct erg_mixed_search *searches);

#endif
