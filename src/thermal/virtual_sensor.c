/* Virtual sensors: power, energy and temperature as NVML would report them. */
#include "thermal/virtual_sensor.h"

#include "base/memory.h"
#include "base/random.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void erg_series_add(struct erg_series *series, double start_s, double value)
{
    if (series->count == series->capacity) {
        series->capacity = erg_grow_capacity(series->capacity, series->count + 1);
        series->start_s = erg_xrealloc(series->start_s, series->capacity, sizeof *series->start_s);
        series->value = erg_xrealloc(series->value, series->capacity, sizeof *series->value);
        series->integral =
            erg_xrealloc(series->integral, series->capacity, sizeof *series->integral);
    }
    const size_t last = series->count++;
    assert(last == 0 || start_s >= series->start_s[last - 1]); /* find() uses bisection */
    series->start_s[last] = start_s;
    series->value[last] = value;
    series->integral[last] =
        last ? series->integral[last - 1] +
                   series->value[last - 1] * (start_s - series->start_s[last - 1])
             : 0;
}

void erg_series_release(struct erg_series *series)
{
    free(series->start_s);
    free(series->value);
    free(series->integral);
    *series = (struct erg_series){0};
}

/* The piece at a moment; the first piece for earlier moments. */
static size_t find(const struct erg_series *series, double at_s)
{
    size_t low = 0, high = series->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(series->start_s[middle] <= at_s ? &low : &high) = middle;
    }
    return low;
}

double erg_series_integral(const struct erg_series *series, double to_s)
{
    const size_t piece = find(series, to_s);
    assert(piece < series->count);
    return series->integral[piece] + series->value[piece] * (to_s - series->start_s[piece]);
}

struct erg_virtual_sensor erg_virtual_sensor_hopper(uint64_t key, double lag_s)
{
    const double period_s = 0.092 + 0.008 * erg_hash_uniform(erg_hash_at(key, 0));
    return (struct erg_virtual_sensor){
        .phase_s = period_s * erg_hash_uniform(erg_hash_at(key, 1)),
        .period_s = period_s,
        .window_s = 0.025,
        .lag_s = lag_s,
    };
}

double erg_virtual_refresh(const struct erg_virtual_sensor *sensor, double at_s)
{
    return sensor->phase_s + sensor->period_s * floor((at_s - sensor->phase_s) / sensor->period_s);
}

double erg_virtual_power(const struct erg_virtual_sensor *sensor, const struct erg_series *power_w,
                         double at_s)
{
    const double end_s = erg_virtual_refresh(sensor, at_s);
    return (erg_series_integral(power_w, end_s) -
            erg_series_integral(power_w, end_s - sensor->window_s)) /
           sensor->window_s;
}

int64_t erg_virtual_energy(const struct erg_virtual_sensor *sensor,
                           const struct erg_series *power_w, double at_s)
{
    return (int64_t)floor(1e3 * erg_series_integral(power_w, erg_virtual_refresh(sensor, at_s)));
}

/* The sensor follows tau y' = x - y. Where x is linear, y lags by tau times the slope plus an
 * exponential. */
struct lag {
    double at_s, shown_c;
};

static void follow(struct lag *lag, double lag_s, double to_s, double from_c, double slope)
{
    const double dt_s = to_s - lag->at_s;
    if (lag_s > 0) {
        const double behind = lag->shown_c - (from_c - slope * lag_s);
        lag->shown_c = from_c + slope * (dt_s - lag_s) + behind * exp(-dt_s / lag_s);
    } else {
        lag->shown_c = from_c + slope * dt_s;
    }
    lag->at_s = to_s;
}

void erg_virtual_temperatures(const struct erg_virtual_sensor *sensor,
                              const struct erg_series *temperature_c, const double *at_s,
                              size_t count, int64_t *shown_c)
{
    const double *start_s = temperature_c->start_s, *value = temperature_c->value;
    struct lag lag = {start_s[0], value[0]};
    assert(temperature_c->count > 0);
    size_t piece = 0;
    for (size_t i = 0; i < count; i++) {
        while (lag.at_s < at_s[i]) {
            const bool last = piece + 1 == temperature_c->count;
            assert(piece < temperature_c->count);
            const double end_s = last ? INFINITY : start_s[piece + 1];
            const double slope = last || !(end_s > start_s[piece])
                                     ? 0
                                     : (value[piece + 1] - value[piece]) / (end_s - start_s[piece]);
            follow(&lag, sensor->lag_s, fmin(end_s, at_s[i]),
                   value[piece] + slope * (lag.at_s - start_s[piece]), slope);
            piece += end_s <= at_s[i];
        }
        shown_c[i] = (int64_t)floor(lag.shown_c + 1e-9); /* rounding must not go below a whole
                                                          * degree */
    }
}
