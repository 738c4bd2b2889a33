/*
 * Sensors of virtual time: what NVML would show of power and temperatures that are known exactly.
 *
 * As on Hopper: the power reading is the mean over the last 25 ms before each refresh, every 92 to
 * 100 ms, so that three quarters of the time are seen by nobody; the energy counter moves at the
 * same moments, and misses nothing; the temperature lags and is cut to whole degrees.
 */
#ifndef ERG_THERMAL_VIRTUAL_SENSOR_H
#define ERG_THERMAL_VIRTUAL_SENSOR_H

#include <stddef.h>
#include <stdint.h>

/* A quantity over time. All-zero is a valid empty one, of which nothing may be asked. */
struct erg_series {
    double *start_s;  /* of each piece, rising */
    double *value;    /* from there on */
    double *integral; /* of the values, up to there */
    size_t count, capacity;
};

/* From start_s on, not before the start of the last piece. */
void erg_series_add(struct erg_series *series, double start_s, double value);
void erg_series_release(struct erg_series *series);

/* Of values that are constant in each piece, from the first start to `to_s`; before it the first
 * value holds, so that the integral is negative. */
double erg_series_integral(const struct erg_series *series, double to_s);

struct erg_virtual_sensor {
    double phase_s;  /* of its refreshes; below period_s */
    double period_s; /* between two */
    double window_s; /* of the power reading's mean */
    double lag_s;    /* time constant of the temperature's */
};

/* One GPU's of the Hopper generation; its phase and period are drawn from `key`. */
struct erg_virtual_sensor erg_virtual_sensor_hopper(uint64_t key, double lag_s);

/* When it was last refreshed. */
double erg_virtual_refresh(const struct erg_virtual_sensor *sensor, double at_s);

/* W that a read at a moment gives. */
double erg_virtual_power(const struct erg_virtual_sensor *sensor, const struct erg_series *power_w,
                         double at_s);

/* mJ since the first start. */
int64_t erg_virtual_energy(const struct erg_virtual_sensor *sensor,
                           const struct erg_series *power_w, double at_s);

/*
 * Whole degrees that reads at rising moments give. Between the starts of two pieces the temperature
 * runs straight from the one value to the next. Before the first it was always the first value.
 */
void erg_virtual_temperatures(const struct erg_virtual_sensor *sensor,
                              const struct erg_series *temperature_c, const double *at_s,
                              size_t count, int64_t *shown_c);

#endif
