/*
 * Profiler: time and energy of steps on a device, in a thermally stable way (Kareus section 4.2).
 *
 * One measurement: lock the clock, wait for it to settle, find how many runs fill the window, cool
 * down, warm up, then run the window back to back while the sensors are polled. Two readings of the
 * energy counter, before and after, would be less accurate: the counter moves in steps of about 100
 * ms, so its edges are recorded and interpolated to the start and the end of the window, with the
 * same work running on both sides of them. The window is several sub-windows; their scatter is the
 * uncertainty. A window of less than four steps of the counter, or one that scatters too much, is
 * measured again with a longer window after a longer cooldown.
 *
 * Works with any kind of device.
 */
#ifndef ERG_DEVICE_PROFILER_H
#define ERG_DEVICE_PROFILER_H

#include "device/device.h"
#include "device/work.h"
#include "ergon/error.h"
#include "io/measurement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_profile_options {
    double window_s;   /* of the energy measurement */
    double cooldown_s; /* before it */
    double warmup_s;   /* same work right before the window; several sensor periods */
    double settle_s;   /* after a change of the clock */
    double burst_s;    /* of the time measurement */
    /* Relative standard deviation between sub-windows above which a measurement is repeated. */
    double time_scatter_max, energy_scatter_max;
    int attempts;  /* at most, >= 1 */
    double growth; /* the largest factor by which window and cooldown may grow; 1 = unchanged */
};

/*
 * 5 s window, 5 s cooldown, 0.5 s warm-up, 2 s settling, 0.25 s burst, 2 % and 5 %, 3 attempts that
 * may be 4 times as long.
 */
struct erg_profile_options erg_profile_options_default(void);

/*
 * Measures time and energy. `key` names the measurement (erg_device_begin()): on an emulated device
 * equal keys give equal results, independent of earlier measurements. Clock 0 leaves the clock
 * unlocked. A device that refuses clock locks is measured at its own clock, with refused_clock set;
 * one whose counter cannot be read gives energy from power readings, and one without either fails
 * with ERG_NO_DEVICE. Fails with ERG_INTERRUPTED soon after an interrupt.
 */
int erg_profile(struct erg_device *device, const struct erg_step *steps, size_t count,
                int clock_mhz, const struct erg_profile_options *options, uint64_t key,
                struct erg_measurement *result, struct erg_error *err);

/* Time only, in a burst: a few hundred milliseconds after the clock has settled. */
int erg_profile_time(struct erg_device *device, const struct erg_step *steps, size_t count,
                     int clock_mhz, const struct erg_profile_options *options, uint64_t key,
                     struct erg_measurement *result, struct erg_error *err);

/*
 * The GPUs at rest, from `since_s` after some of that work on for window_s: time_s is one second
 * and energy_j a GPU's energy in it. The clock is left alone.
 */
int erg_profile_rest(struct erg_device *device, const struct erg_step *steps, size_t count,
                     double since_s, const struct erg_profile_options *options, uint64_t key,
                     struct erg_measurement *result, struct erg_error *err);

/*
 * A GPU that waits for the others in the first communication of the steps, right after some of that
 * work: time_s is one second and energy_j the waiting GPU's energy in it. Expects several GPUs.
 */
int erg_profile_waiting(struct erg_device *device, const struct erg_step *steps, size_t count,
                        const struct erg_profile_options *options, uint64_t key,
                        struct erg_measurement *result, struct erg_error *err);

#endif
