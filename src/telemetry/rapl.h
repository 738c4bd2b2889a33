/*
 * RAPL: energy of CPU packages and their DRAM from Linux' powercap tree (Intel, and AMD through the
 * same driver). The counters wrap every few minutes to hours, and restart when the machine wakes up
 * or the driver is reloaded. A thread reads them every second, so that it misses no wrap and can
 * tell an impossible value from a wrap.
 *
 * Usually only root may read the counters. Kernel documentation: power/powercap/powercap.rst.
 *
 * A counter is updated about once per millisecond (Intel, Software Developer's Manual 3B, "RAPL
 * interfaces"): a reading lacks the energy used since the last update.
 */
#ifndef ERG_TELEMETRY_RAPL_H
#define ERG_TELEMETRY_RAPL_H

#include "ergon/error.h"
#include "ergon/telemetry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_rapl_reading {
    /* Summed over packages, since the reader was opened or one of their counters restarted. */
    double cpu_j, dram_j;
    size_t cpu_run, dram_run; /* how often that happened: take no differences between runs */
    /* All packages could be read, and none stood still: a partial sum is never valid. */
    bool cpu_valid, dram_valid;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC: all counters were read between these */
};

struct erg_rapl;

/*
 * Finds the packages below `root`, NULL for $ERGON_POWERCAP or /sys/class/powercap. ERG_NO_DEVICE
 * if there are none or they may not be read; the message contains the reason. If only some packages
 * can be read, their sums are not valid, and a warning reports it.
 */
int erg_rapl_open(struct erg_rapl **rapl, const char *root, struct erg_error *err);
void erg_rapl_close(struct erg_rapl *rapl);

/* Safe to call from several threads. */
void erg_rapl_read(struct erg_rapl *rapl, struct erg_rapl_reading *reading);

/*
 * Energy of CPUs and their memory between two readings of the same run, for a window whose begin_ns
 * and end_ns are set and lie between them. The uncertainty is the energy that the counters had not
 * yet counted at either end, plus the energy between the readings and the window: both at up to
 * twice the mean power, since the load may peak there.
 */
void erg_rapl_between(const struct erg_rapl_reading *before, const struct erg_rapl_reading *after,
                      struct erg_window_result *window);

#endif
