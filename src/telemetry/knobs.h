/*
 * Knobs: the settings of a GPU, set directly by its driver. A setting belongs to the driver and
 * outlives the process that made it. So only a process that can guarantee the reset may use these
 * calls: the daemon (daemon/daemon.h), which others ask for clocks and limits. Programs use
 * telemetry/clocks.h.
 *
 * Values are MHz for clocks and mW for the power limit. A call may hang with the driver: make it
 * from a thread that can wait. One thread at a time per GPU; other threads may read the GPU at the
 * same time. A refusal of the driver has status ERG_NO_DEVICE, and `driver` is its result (NVML's
 * number).
 *
 * Facts of the interface: NVIDIA's NVML API reference, "Device Commands" and "Device Queries".
 */
#ifndef ERG_TELEMETRY_KNOBS_H
#define ERG_TELEMETRY_KNOBS_H

#include "telemetry/clocks.h"

enum erg_knob {
    ERG_KNOB_CLOCK = 1, /* range of the SM clock */
    ERG_KNOB_POWER,     /* power limit; the lower end of a range is ignored */
    ERG_KNOB_MEMORY,    /* range of the memory clock */
    ERG_KNOBS,          /* one more than the last */
};

const char *erg_knob_name(enum erg_knob knob); /* "clock", "power", "memory" */

/* The range of a GPU's settings. A knob that it lacks is 0 at both ends. */
struct erg_knob_bounds {
    int64_t least[ERG_KNOBS], most[ERG_KNOBS];
    int64_t limit_default_mw;
    int *clocks_mhz; /* the SM clocks, rising */
    size_t clock_count;
};

static inline bool erg_knob_has_clock(const struct erg_knob_bounds *bounds, int64_t clock_mhz)
{
    size_t i = erg_clock_not_below(bounds->clocks_mhz, bounds->clock_count, clock_mhz);
    return i < bounds->clock_count && bounds->clocks_mhz[i] == clock_mhz;
}

/* Changes nothing. Release the bounds. */
void erg_knob_bounds_read(struct erg_gpus *gpus, size_t gpu, struct erg_knob_bounds *bounds);
void erg_knob_bounds_release(struct erg_knob_bounds *bounds);

int erg_knob_set(struct erg_gpus *gpus, size_t gpu, enum erg_knob knob, int64_t low, int64_t high,
                 int *driver, struct erg_error *err);

/* Clocks only: removes a range. Succeeds, too, if the GPU has fallen off the bus. */
int erg_knob_reset(struct erg_gpus *gpus, size_t gpu, enum erg_knob knob, int *driver,
                   struct erg_error *err);

/* The value of a knob: the current clock, or the limit that is set. */
int erg_knob_read(struct erg_gpus *gpus, size_t gpu, enum erg_knob knob, int64_t *value,
                  struct erg_error *err);

/* Persistence mode: the driver keeps its settings while no program uses the GPU. */
int erg_persistence_read(struct erg_gpus *gpus, size_t gpu, bool *on, struct erg_error *err);
int erg_persistence_set(struct erg_gpus *gpus, size_t gpu, bool on, struct erg_error *err);

#endif
