/*
 * Tariff: price and emissions of electricity over time.
 *
 * A CSV file with the columns at_s (seconds after the first submission, from 0, increasing),
 * usd_per_kwh and g_co2_per_kwh. A row applies until the next one, the last one for ever. A last
 * row without numbers gives the time at which the table repeats, 86400 for a daily curve.
 */
#ifndef ERG_CLUSTER_TARIFF_H
#define ERG_CLUSTER_TARIFF_H

#include "ergon/error.h"

#include <stddef.h>

struct erg_rate {
    double at_s;
    double usd_per_kwh, g_co2_per_kwh;
};

struct erg_tariff {
    struct erg_rate *items;
    size_t count, capacity; /* at least one */
    double period_s;        /* INFINITY: it does not repeat */
};

int erg_tariff_load(struct erg_tariff *tariff, const char *path, struct erg_error *err);

/*
 * The same from a table hour by hour, whose times are then seconds since 1970: the columns utc_hour
 * and `column`, usd_per_kwh or g_per_kwh. Hours are 2026-11-27T18 (:00, seconds and Z may follow),
 * rising, or 0 to 23 for every day. Hours without a row are NaN, as are columns that the table
 * lacks.
 */
int erg_tariff_load_hours(struct erg_tariff *tariff, const char *path, const char *column,
                          struct erg_error *err);
void erg_tariff_release(struct erg_tariff *tariff);

/* The rate at a time from 0 on, and the time at which the next one begins (INFINITY: never). */
const struct erg_rate *erg_tariff_at(const struct erg_tariff *tariff, double now_s,
                                     double *until_s);

/*
 * The weight of energy at a time, relative to the mean over the table (over its rows if it does not
 * repeat and the last row applies for ever). Price and emissions count equally if both have a mean
 * above 0. At least 0; 1 if neither has.
 */
double erg_tariff_relative(const struct erg_tariff *tariff, double now_s);

#endif
