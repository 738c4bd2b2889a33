/*
 * The parts of the power model that do not depend on the work: voltage by clock, and the regulator
 * that keeps the mean power under a cap by lowering the clock. For any work with known time and
 * energy at a fixed clock.
 */
#ifndef ERG_DEVICE_EMULATED_POWER_H
#define ERG_DEVICE_EMULATED_POWER_H

#include "hardware/hardware.h"

/* Voltage relative to the knee. */
double erg_gpu_voltage(const struct erg_gpu *gpu, double clock_mhz);

/* Static power in W at a die temperature. */
double erg_static_power(const struct erg_gpu *gpu, double temperature_c);

/* J per byte read from or written to HBM. */
double erg_hbm_byte_energy(const struct erg_gpu *gpu, double voltage);

struct erg_cap {
    double power_w, softness_mhz, dither_mhz;
    double static_w; /* the part of the power that voltage does not change */
    void (*evaluate)(const void *context, double clock_mhz, double *time_s, double *energy_j);
    const void *context;
};

/*
 * The clock from `low_mhz` to `high_mhz` at which the mean power equals the cap, or the nearest end
 * of that range.
 */
double erg_cap_clock(const struct erg_cap *cap, double low_mhz, double high_mhz);

/* The regulator's clock for a request if the power equals the cap at `cap_mhz`. */
struct erg_regulation {
    double clock_mhz;
    double throttle; /* 0: the cap does not act; towards 1: it sets the clock */
    /*
     * The clock dithers: 1/f and f v^2 are convex, so the mean time rises by this share and the
     * mean dynamic energy by three times this share (Jensen).
     */
    double dither;
};
struct erg_regulation erg_cap_regulate(const struct erg_cap *cap, double request_mhz,
                                       double cap_mhz);

#endif
