/*
 * RAPL: energy of CPU packages and their DRAM from Linux' powercap tree (Intel, and AMD through the
 * same driver). The counters wrap every few minutes to hours, and start anew when the machine wakes
 * up or the driver is loaded again. A thread reads them every second, so that no wrap is missed and
 * impossible values are distinguished from a wrap.
 *
 * Usually only root may read the counters. Kernel documentation: power/powercap/powercap.rst.
 *
 * A counter is brought up to date once a millisecond or so (Intel, Software Developer's Manual 3B,
 * "RAPL interfaces"): what was used since is not in a reading.
 */
#ifndef ERG_TELEMETRY_RAPL_H
#define ERG_TELEMETRY_RAPL_H

#include "ergon/error.h"
#include "ergon/telemetry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_rapl_reading {
    /* Summed over packages, since the reader was opened or one of their counters started anew. */
    double cpu_j, dram_j;
    size_t cpu_run, dram_run; /* how often that happened: no differences between runs */
    /* All packages could be read, and none stood still: a sum of some is never given. */
    bool cpu_valid, dram_valid;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC: all counters were read between these */
};

struct erg_rapl;

/*
 * Finds the packages below `root`, NULL for $ERGON_POWERCAP or /sys/class/powercap. ERG_NO_DEVICE
 * where there are none or they may not be read; the message names it. Where some of the packages
 * cannot be read, sums over them are not valid, and a warning reports it.
 */
int erg_rapl_open(struct erg_rapl **rapl, const char *root, struct erg_error *err);
void erg_rapl_close(struct erg_rapl *rapl);

/* Safe to call from several threads. */
void erg_rapl_read(struct erg_rapl *rapl, struct erg_rapl_reading *reading);

/*
 * Energy of CPUs and their memory between two readings of the same run, as that of a window whose
 * begin_ns and end_ns are set and lie between them. The uncertainty is the energy that the counters
 * had not yet counted at either end, and the energy between the readings and the window: both at up
 * to twice the mean power, since a load may be at its highest there.
 */
void erg_rapl_between(const struct erg_rapl_reading *before, const struct erg_rapl_reading *after,
                      struct erg_window_result *window);

#endif
