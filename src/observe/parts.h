/*
 * Parts: the energy of something that runs, cut wherever another hour begins, since what energy
 * emits and costs is known hour by hour. A thread ends one window and begins the next at each cut.
 */
#ifndef ERG_OBSERVE_PARTS_H
#define ERG_OBSERVE_PARTS_H

#include "ergon/telemetry.h"
#include "telemetry/rapl.h"

struct erg_part {
    double begin_s, end_s; /* since 1970, UTC */
    double energy_j;       /* of GPUs, CPUs and their memory, where known; NaN: of none */
};

struct erg_parts;

/* Measures with a meter, or, where it is NULL, with the CPU's counters; both stay open until the
 * end. Cuts at multiples of `period_s`, 3600 for hours. */
int erg_parts_begin(struct erg_parts **parts, struct erg_meter *meter, struct erg_rapl *rapl,
                    double period_s, struct erg_error *err);

/* The program has ended: no more cuts. */
void erg_parts_stop(struct erg_parts *parts);

/* After that; frees the parts. The last one is `whole`, the window of all, less the others. At
 * least one item, to be freed by the caller. */
void erg_parts_end(struct erg_parts *parts, const struct erg_window_result *whole,
                   struct erg_part **items, size_t *count);

#endif
