/* Time and energy of a command, on all its GPUs and the CPU. */
#ifndef ERG_OBSERVE_MEASURE_COMMAND_H
#define ERG_OBSERVE_MEASURE_COMMAND_H

#include "observe/child.h"
#include "observe/runs.h"

struct erg_measure_wish {
    const char *const *command; /* ends with NULL */
    const char *gpus;           /* as of erg_meter_open() */
    long repeats, warmups;      /* those that count, behind those that do not */
    const char *carbon, *price; /* tables by the hour: g_per_kwh, usd_per_kwh; NULL: none */
};

/*
 * Runs it until all is done, one fails or a signal comes; *end is the last run's. `runs` has those
 * that were measured, also after a failure, and is to be released. Before this process has other
 * threads: signals are blocked.
 */
int erg_measure(struct erg_runs *runs, const struct erg_measure_wish *wish,
                struct erg_child_end *end, struct erg_error *err);

#endif
