/*
 * Profiler: time and energy of steps on a device, in a thermally stable way (Kareus, profiler).
 *
 * One measurement: lock the clock, wait for it to settle, find how many runs fill the window, cool
 * down, warm up, then run the window back to back while polling the sensors. Two readings of the
 * energy counter, before and after, would be less accurate: the counter moves in steps of about 100
 * ms, so its edges are recorded and interpolated to the start and the end of the window, with the
 * same work running on both sides. The window has several sub-windows; their scatter is the
 * uncertainty. If a window has less than four steps of the counter or too much scatter, it is
 * repeated, longer and after a longer cooldown.
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
    double warmup_s;   /* the same work right before the window; several sensor periods */
    double settle_s;   /* wait after a change of the clock */
    double burst_s;    /* of the time measurement */
    /* Relative standard deviation between sub-windows above which a measurement is repeated. */
    double time_scatter_max, energy_scatter_max;
    int attempts;  /* upper limit, >= 1 */
    double growth; /* the largest factor by which window and cooldown may grow; 1: unchanged */
};

/*
 * 5 s window, 5 s cooldown, 0.5 s warm-up, 2 s settling, 0.25 s burst, 2 % and 5 %, 3 attempts, up
 * to 4 times as long.
 */
struct erg_profile_options erg_profile_options_default(void);

/*
 * Measures time and energy. `key` names the measurement (erg_device_begin()): on an emulated device
 * equal keys give equal results, independent of earlier measurements. Clock 0 leaves the clock
 * unlocked. If the device refuses clock locks, it is measured at its own clock and refused_clock is
 * set. If its counter cannot be read, energy comes from power readings; without either it fails
 * with ERG_NO_DEVICE. Fails with ERG_INTERRUPTED soon after an interrupt.
 */
int erg_profile(struct erg_device *device, const struct erg_step *steps, size_t count,
                int clock_mhz, const struct erg_profile_options *options, uint64_t key,
                struct erg_measurement *result, struct erg_error *err);

/* Measures time only, in a burst: a few hundred milliseconds after the clock has settled. */
int erg_profile_time(struct erg_device *device, const struct erg_step *steps, size_t count,
                     int clock_mhz, const struct erg_profile_options *options, uint64_t key,
                     struct erg_measurement *result, struct erg_error *err);

/*
 * Measures the GPUs at rest for window_s, from `since_s` after some of that work on: time_s is one
 * second, and energy_j the energy of a GPU in it. Does not change the clock.
 */
int erg_profile_rest(struct erg_device *device, const struct erg_step *steps, size_t count,
                     double since_s, const struct erg_profile_options *options, uint64_t key,
                     struct erg_measurement *result, struct erg_error *err);

/*
 * Measures a GPU that waits for the others in the first communication of the steps, right after
 * some of that work: time_s is one second, and energy_j the waiting GPU's energy in it. Needs
 * several GPUs.
 */
int erg_profile_waiting(struct erg_device *device, const struct erg_step *steps, size_t count,
                        const struct erg_profile_options *options, uint64_t key,
                        struct erg_measurement *result, struct erg_error *err);

#endif
