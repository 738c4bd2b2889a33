/*
 * Clock group: one SM clock for all GPUs that measure together, locked at a user's explicit
 * request. Every lock is verified and guarded (see telemetry/clocks.h).
 */
#ifndef ERG_DEVICE_CLOCK_GROUP_H
#define ERG_DEVICE_CLOCK_GROUP_H

#include "ergon/error.h"
#include "telemetry/gpu.h"

#include <stddef.h>

struct erg_clock_group;

/*
 * Opens the group of the GPUs gpus[members[i]]. Locks and unlocks each once, so that a driver that
 * refuses (no permission, not supported) is detected before any measurement: ERG_NO_DEVICE.
 */
int erg_clock_group_open(struct erg_clock_group **group, struct erg_gpus *gpus,
                         const size_t *members, size_t count, struct erg_error *err);

/*
 * Locks all GPUs at `clock_mhz`; 0 unlocks them. If one fails, none stays locked. The status is
 * then never ERG_NO_DEVICE, because a measurement at locked clocks must not continue without them.
 */
int erg_clock_group_set(struct erg_clock_group *group, int clock_mhz, struct erg_error *err);

/* Unlocks; NULL is fine. */
int erg_clock_group_close(struct erg_clock_group *group, struct erg_error *err);

#endif
