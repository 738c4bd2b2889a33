/*
 * Imbalance: how uneven GPUs with the same work are, as the largest value over the mean of all. 1:
 * all equal; NAN: known for fewer than two. Temperatures are in degrees C.
 */
#ifndef ERG_OBSERVE_IMBALANCE_H
#define ERG_OBSERVE_IMBALANCE_H

#include "base/text.h"
#include "observe/live.h"

enum erg_imbalance_of {
    ERG_IMBALANCE_POWER,
    ERG_IMBALANCE_CLOCK,
    ERG_IMBALANCE_TEMPERATURE,
    ERG_IMBALANCES,
};

extern const char *const erg_imbalance_names[ERG_IMBALANCES]; /* "power" */

/* The ratios at a moment. */
void erg_imbalance_now(const struct erg_live_view *view, double ratios[ERG_IMBALANCES]);

/* The means of each GPU over time, from samples. */
struct erg_imbalance_means; /* opaque */
struct erg_imbalance_means *erg_imbalance_new(size_t gpus);
void erg_imbalance_put(struct erg_imbalance_means *means, const struct erg_sampler_item *item);
void erg_imbalance_over_time(const struct erg_imbalance_means *means,
                             double ratios[ERG_IMBALANCES]);
void erg_imbalance_free(struct erg_imbalance_means *means);

/* "power 1.04, clock 1.00, temperature -". */
void erg_imbalance_text(struct erg_text *out, const double ratios[ERG_IMBALANCES]);

#endif
