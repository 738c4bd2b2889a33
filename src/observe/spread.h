/*
 * Spread: mean and sample standard deviation of a quantity over repeated runs. NaN is not counted.
 */
#ifndef ERG_OBSERVE_SPREAD_H
#define ERG_OBSERVE_SPREAD_H

#include <stddef.h>

/* All-zero is a valid empty one. */
struct erg_spread {
    size_t count;
    double mean;
    double squares; /* sum of squared differences from the mean */
    double least, most;
};

void erg_spread_add(struct erg_spread *spread, double value);

double erg_spread_mean(const struct erg_spread *spread); /* NaN of none */
double erg_spread_sd(const struct erg_spread *spread);   /* NaN of fewer than two */

#endif
