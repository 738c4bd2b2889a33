/*
 * Shared between the files of the emulated device only.
 */
#ifndef ERG_DEVICE_EMULATED_INTERNAL_H
#define ERG_DEVICE_EMULATED_INTERNAL_H

#include "device/emulated/emulated.h"

/* What one pass of the event loop over all steps yields; the totals do not depend on the clock. */
struct erg_sim {
    double time_s;
    double active_s;  /* all but the joins: launch gaps and lone communication count too */
    double spin_sm_s; /* SM-seconds held by communication blocks */
    double exposed_s;
    double flops; /* in FLOPs of matrix products: what takes other energy counts as more or less */
    double hbm_bytes, wire_bytes;
};

/* `timeline` may be NULL. */
void erg_sim_run(const struct erg_gpu *gpu, const struct erg_stack *stack,
                 const struct erg_step *steps, size_t count, double clock_mhz, struct erg_sim *sim,
                 struct erg_emulated_timeline *timeline);

/* The power cap, for anything that knows its time and energy at a fixed clock. */
struct erg_cap {
    double power_w, softness_mhz, dither_mhz;
    double static_w; /* the part of the power that voltage does not change */
    void (*evaluate)(const void *context, double clock_mhz, double *time_s, double *energy_j);
    const void *context;
};

/* Fills all of *out but exposed_s. */
void erg_cap_run(const struct erg_cap *cap, double clock_mhz, struct erg_emulated_result *out);

/* Voltage relative to the knee. */
double erg_voltage(double knee_mhz, double slope_per_ghz, double slope_low_per_ghz,
                   double clock_mhz);

double erg_static_power(const struct erg_gpu *gpu, double temperature_c);

/* ERG_FAILED with a sentence when the steps cannot be run. */
int erg_steps_check(const struct erg_step *steps, size_t count, struct erg_error *err);

/* Without the checks: for callers that ran them once. */
void erg_emulated_evaluate(const struct erg_gpu *gpu, const struct erg_stack *stack,
                           const struct erg_step *steps, size_t count, double clock_mhz,
                           double temperature_c, struct erg_emulated_result *out);

#endif
