/* Time and energy of a command, on all its GPUs and the CPU. */
#ifndef ERG_OBSERVE_MEASURE_COMMAND_H
#define ERG_OBSERVE_MEASURE_COMMAND_H

#include "observe/child.h"
#include "observe/runs.h"

struct erg_measure_input {
    const char *const *command; /* ends with NULL */
    const char *gpus;           /* as for erg_meter_open() */
    long repeats, warmups;      /* measured runs, after unmeasured ones */
    const char *carbon, *price; /* tables by the hour: g_per_kwh, usd_per_kwh; NULL: none */
};

/*
 * Makes all runs, until one fails or a signal comes; *end is the last run's. `runs` has the
 * measured ones, even after a failure; release it. Call it before this process has other threads:
 * it blocks signals.
 */
int erg_measure(struct erg_runs *runs, const struct erg_measure_input *input,
                struct erg_child_end *end, struct erg_error *err);

#endif
