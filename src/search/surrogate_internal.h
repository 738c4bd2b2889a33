/*
 * Surrogate of a partition: Gaussian processes on ln t and ln E (or on the logs' remainder over a
 * prior), the energy's with the time's posterior mean as a feature, which carries over where the
 * communication stops being exposed.
 */
#ifndef ERG_SEARCH_SURROGATE_INTERNAL_H
#define ERG_SEARCH_SURROGATE_INTERNAL_H

#include "search/search_internal.h"

/* `space` must outlive the pair. */
struct erg_gp_pair *erg_gp_pair_new(const struct erg_space *space);
void erg_gp_pair_free(struct erg_gp_pair *pair); /* NULL is fine */

/* Takes all readings of the model into account; fits the kernels anew when they grew by a fifth. */
void erg_gp_pair_refit(struct erg_gp_pair *pair, const struct erg_search_model *model);

/* Calibrates the prior on the model's readings where it has parameters, and takes it on. */
int erg_gp_pair_set_prior(struct erg_gp_pair *pair, const struct erg_prior *prior,
                          const struct erg_search_model *model, struct erg_rng *rng,
                          struct erg_error *err);

/* Both processes treat their own prediction at `config` as if it had been measured, until the next
 * refit. */
void erg_gp_pair_pretend(struct erg_gp_pair *pair, size_t config);

/* Never ERG_MEASURED: only the model of the readings knows that. */
struct erg_estimate erg_gp_pair_estimate(const struct erg_gp_pair *pair, size_t config);

#endif
