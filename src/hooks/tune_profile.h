/*
 * The tuner's profile file: the measurements at each value of the knob, in the format of Zeus'
 * GlobalPowerLimitOptimizer,
 *
 *     {"measurements": [{"power_limit": W, "energy": J, "time": s}, …]}
 *
 * Ergon adds "per": "step" for energies and times of a step (Zeus: of its window), uncertainties
 * and numbers of blocks, and for clocks "clock_mhz" instead of "power_limit".
 */
#ifndef ERG_HOOKS_TUNE_PROFILE_H
#define ERG_HOOKS_TUNE_PROFILE_H

#include "ergon/tune.h"

#include <stdbool.h>
#include <stddef.h>

/* The caller frees the result. `per_step`: whether the file contains values per step. */
int erg_tune_profile_read(const char *path, int knob, struct erg_tune_point **points, size_t *count,
                          bool *per_step, struct erg_error *err);
int erg_tune_profile_write(const char *path, int knob, const struct erg_tune_point *points,
                           size_t count, struct erg_error *err);

#endif
