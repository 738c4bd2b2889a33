/*
 * Virtual sensors: what NVML would report for powers and temperatures that are known exactly.
 *
 * As on Hopper: the power reading is the mean over the last 25 ms before each refresh, and
 * refreshes are 92 to 100 ms apart, so that readings miss three quarters of the time. The energy
 * counter changes at the same moments, and misses nothing. The temperature lags and is truncated to
 * whole degrees.
 */
#ifndef ERG_THERMAL_VIRTUAL_SENSOR_H
#define ERG_THERMAL_VIRTUAL_SENSOR_H

#include <stddef.h>
#include <stdint.h>

/* A piecewise function of time. Zeros are a valid empty one, which may not be evaluated. */
struct erg_series {
    double *start_s;  /* start of each piece, increasing */
    double *value;    /* value from start_s on */
    double *integral; /* integral up to start_s */
    size_t count, capacity;
};

/* Adds a piece at start_s, which is not before the start of the last piece. */
void erg_series_add(struct erg_series *series, double start_s, double value);
void erg_series_release(struct erg_series *series);

/* Integrates a piecewise constant function from the first start to `to_s`. Before the first start
 * the first value holds, so that the integral is negative there. */
double erg_series_integral(const struct erg_series *series, double to_s);

struct erg_virtual_sensor {
    double phase_s;  /* of its refreshes; below period_s */
    double period_s; /* between two refreshes */
    double window_s; /* averaging window of the power reading */
    double lag_s;    /* time constant of the temperature reading */
};

/* The sensor of a Hopper GPU; `key` determines its random phase and period. */
struct erg_virtual_sensor erg_virtual_sensor_hopper(uint64_t key, double lag_s);

/* Time of the last refresh. */
double erg_virtual_refresh(const struct erg_virtual_sensor *sensor, double at_s);

/* The power in W that a read returns. */
double erg_virtual_power(const struct erg_virtual_sensor *sensor, const struct erg_series *power_w,
                         double at_s);

/* The energy in mJ since the first start. */
int64_t erg_virtual_energy(const struct erg_virtual_sensor *sensor,
                           const struct erg_series *power_w, double at_s);

/*
 * The whole degrees that reads at increasing times return. The temperature is linear between the
 * starts of two pieces, and constant before the first.
 */
void erg_virtual_temperatures(const struct erg_virtual_sensor *sensor,
                              const struct erg_series *temperature_c, const double *at_s,
                              size_t count, int64_t *shown_c);

#endif
