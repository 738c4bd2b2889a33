/*
 * Parts: the energy of a program, cut at every full hour, since emissions and prices of energy are
 * known by the hour. At each cut, a thread ends one window and begins the next.
 */
#ifndef ERG_OBSERVE_PARTS_H
#define ERG_OBSERVE_PARTS_H

#include "ergon/telemetry.h"
#include "telemetry/rapl.h"

struct erg_part {
    double begin_s, end_s; /* since 1970, UTC */
    double energy_j;       /* known energy of GPUs, CPUs and their memory; NaN: none is known */
};

struct erg_parts;

/*
 * Measures with a meter or, if it is NULL, with the CPU's counters; keep both open until the end.
 * Cuts at multiples of `period_s`, 3600 for hours.
 */
int erg_parts_begin(struct erg_parts **parts, struct erg_meter *meter, struct erg_rapl *rapl,
                    double period_s, struct erg_error *err);

/* The program has ended: no more cuts. */
void erg_parts_stop(struct erg_parts *parts);

/*
 * Call it after erg_parts_stop(). Frees the parts. The last item is `whole`, the window over all,
 * minus the others. At least one item; the caller frees them.
 */
void erg_parts_end(struct erg_parts *parts, const struct erg_window_result *whole,
                   struct erg_part **items, size_t *count);

#endif
