/* Shared by the files of the emulated device only. */
#ifndef ERG_DEVICE_EMULATED_INTERNAL_H
#define ERG_DEVICE_EMULATED_INTERNAL_H

#include "device/emulated/emulated.h"
#include "device/emulated/power.h"

/* The result of one pass of the event loop over all steps; the totals do not depend on the
 * clock. */
struct erg_sim {
    double time_s;
    double active_s;  /* all but the joins: includes launch gaps and communication alone */
    double spin_sm_s; /* SM-seconds held by communication blocks */
    double exposed_s;
    double flops; /* FLOPs of matrix products with the same energy as all ops */
    double hbm_bytes, wire_bytes;
};

/* `timeline` may be NULL. */
void erg_sim_run(const struct erg_gpu *gpu, const struct erg_stack *stack,
                 const struct erg_step *steps, size_t count, double clock_mhz, struct erg_sim *sim,
                 struct erg_emulated_timeline *timeline);

/* ERG_FAILED if the steps cannot run. */
int erg_steps_check(const struct erg_step *steps, size_t count, struct erg_error *err);

/* Without the checks, for callers that have made them once. */
void erg_emulated_evaluate(const struct erg_gpu *gpu, const struct erg_stack *stack,
                           const struct erg_step *steps, size_t count, double clock_mhz,
                           double temperature_c, struct erg_emulated_result *out);

#endif
