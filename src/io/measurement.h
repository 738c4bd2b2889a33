/*
 * Measurement: time and energy of one run of steps on a device, passed from the profiler through
 * the store to the search. Energies are those of one GPU.
 */
#ifndef ERG_IO_MEASUREMENT_H
#define ERG_IO_MEASUREMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum erg_energy_source {
    ERG_ENERGY_NONE,    /* a time measurement */
    ERG_ENERGY_COUNTER, /* the energy counter's edges */
    ERG_ENERGY_POWER,   /* mean of power readings, where the counter cannot be read */
};

struct erg_measurement {
    double time_s;             /* of one run of all steps; the slowest GPU's */
    double energy_j;           /* of one run, mean over the GPUs; NaN: time was measured alone */
    double time_sd, energy_sd; /* relative standard deviations; 0 or NaN: not known */
    double clock_mhz;          /* that it ran at, mean; 0: not known */
    uint32_t reasons;          /* all that were seen (enum erg_clock_reason) */
    double temperature_start_c, temperature_end_c; /* of the hottest GPU; NaN: not known */
    double window_s;                               /* how long the window was */

    /* How it was made; not kept in the store. */
    enum erg_energy_source energy_source;
    bool refused_clock; /* the device does not lock clocks: measured at its own */
    bool missed_clock;  /* locked, but ran at another clock without giving a reason */
    bool unstable;      /* too short or scattered too much in every attempt; the best is given */
    size_t repeats;     /* runs in the window */
    int attempts;
    double device_s; /* of the device's time, everything included */
};

#endif
