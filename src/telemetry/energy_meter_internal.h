/* Declarations shared by meters and windows. Private to the room. */
#ifndef ERG_TELEMETRY_ENERGY_METER_INTERNAL_H
#define ERG_TELEMETRY_ENERGY_METER_INTERNAL_H

#include "ergon/telemetry.h"
#include "telemetry/energy_log.h"
#include "telemetry/rapl.h"
#include "telemetry/sampler.h"

#include <pthread.h>

enum { VIOLATIONS = 16 };

#define ERG_METER_USUAL_PERIOD_S 0.1 /* of a counter whose period is still unknown */

/* The time so far for which clocks were held down. */
struct violation {
    double time_s, power_s, thermal_s;
};

/* The meter's state for one GPU. */
struct watched {
    struct erg_energy_log *log;
    bool has_counter, lost;
    double temperature_c; /* the latest; NaN: none yet */
    double seen_s;        /* when the latest sample came */

    struct violation violations[VIOLATIONS]; /* ring, from the driver's counters */
    size_t violation_count;
    /*
     * The same from the reasons read, each assumed to last until the next: for drivers without
     * counters.
     */
    struct violation by_reasons;
    uint32_t reasons;
    bool has_reasons;

    /* Integral up to a time, and the clock since; the clock is NaN before it is known. */
    double clock_s_mhz, clock_mhz, clock_time_s;
};

/* One end of a window on one GPU. */
struct mark {
    struct erg_energy_value counter, power;
    struct violation by_reasons, by_counters;
    double clock_s_mhz, temperature_c;
    size_t run; /* of the counter at that time */
    bool counter_settled, settled;
};

struct window_gpu {
    struct mark begin, end;
    double peak_w, temperature_max_c, memory_temperature_max_c;
    size_t after; /* samples that were taken after the end */
};

struct erg_window {
    struct erg_meter *meter;
    struct erg_window *next;
    double begin_s, end_s; /* end_s is infinite while the window is open */
    struct erg_rapl_reading cpu;
    struct window_gpu gpus[];
};

struct erg_meter {
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    struct erg_rapl *rapl; /* NULL where it cannot be read */
    size_t count;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t news;
    struct watched *watched;
    struct erg_window *windows; /* the open ones */
};

/* ---- the state of a GPU (energy_meter.c); under the meter's lock ---- */

/* The period of its counter's steps, or a usual value while it is unknown. */
double erg_watched_period(const struct watched *watched);

/* The time so far at a moment, if the latest readings still hold; NaN before the first. */
struct violation erg_watched_by_reasons(const struct watched *watched, double at_s);
double erg_watched_clock(const struct watched *watched, double at_s);

/*
 * Linear between the readings around the moment; NaN while there are none. True if later readings
 * cannot change it.
 */
bool erg_watched_by_counters(const struct watched *watched, double at_s, struct violation *value);

/* ---- windows (window.c) ---- */

/* Adds a sample to an open window; under the meter's lock. */
void erg_window_update(struct erg_window *window, size_t gpu, const struct watched *watched,
                       const struct erg_gpu_sample *sample);

#endif
