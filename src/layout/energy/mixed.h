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
 * Of what was found those are planned over clocks that may be the best by what is asked
 * (choice.h), of which searches, list and energy do not count. Layouts that are slower at
 * the highest clocks than all that were found are not looked at: `fitting`, the gap and, where none
 * is within the query's bounds, the nearest are of what was found. Up to seconds for each that is
 * planned. ERG_INFEASIBLE where none is within the bounds. To be released by
 * erg_layout_choice_release(), also after ERG_INFEASIBLE.
 */
int erg_mixed_choose(struct erg_layout_choice *choice, const struct erg_mixed_search *search,
                     const struct erg_layout_found *found,
                     const struct erg_layout_choice_request *asked, struct erg_error *err);

#endif
