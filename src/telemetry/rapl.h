/*
 * RAPL: energy of CPU packages and their DRAM from Linux' powercap tree (Intel, and AMD through the
 * same driver). The counters wrap every few minutes to hours; the reader follows the wraps, so it
 * must be read more often than that (every 30 s is plenty).
 *
 * Usually only root may read the counters. Kernel documentation: power/powercap/powercap.rst.
 */
#ifndef ERG_TELEMETRY_RAPL_H
#define ERG_TELEMETRY_RAPL_H

#include "ergon/error.h"

#include <stdbool.h>

struct erg_rapl_reading {
    double cpu_j, dram_j; /* since the reader was opened, summed over packages */
    bool cpu_valid, dram_valid;
};

struct erg_rapl;

/*
 * Finds the packages below `root`, NULL for $ERGON_POWERCAP or /sys/class/powercap. ERG_NO_DEVICE
 * where there are none or they may not be read; the message says which.
 */
int erg_rapl_open(struct erg_rapl **rapl, const char *root, struct erg_error *err);
void erg_rapl_close(struct erg_rapl *rapl);

/* Safe to call from several threads. */
void erg_rapl_read(struct erg_rapl *rapl, struct erg_rapl_reading *reading);

#endif
