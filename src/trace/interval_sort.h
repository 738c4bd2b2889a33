/*
 * Interval sort: sorts more intervals than fit into the memory limit. They are put in any order and
 * taken in order of their start. Intervals beyond the limit go to an unnamed temporary file in
 * $TMPDIR or /tmp, in sorted runs.
 */
#ifndef ERG_TRACE_INTERVAL_SORT_H
#define ERG_TRACE_INTERVAL_SORT_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_kernel_interval {
    int64_t start_ns, end_ns; /* end >= start */
    uint32_t lane;            /* the GPU of a file */
    uint8_t category;
    bool computes; /* computes, so it hides concurrent communication and copies */
};

/* For qsort(), by start. */
int erg_kernel_interval_compare(const void *left, const void *right);

struct erg_interval_sort;

/* `most`: the number of intervals in memory; 0: 12 MiB. */
struct erg_interval_sort *erg_interval_sort_new(size_t most);
void erg_interval_sort_free(struct erg_interval_sort *sort); /* NULL is fine */

int erg_interval_sort_put(struct erg_interval_sort *sort,
                          const struct erg_kernel_interval *interval, struct erg_error *err);

/* After the last put. Returns 1 with the next interval, 0 at the end, -1 on failure. */
int erg_interval_sort_take(struct erg_interval_sort *sort, struct erg_kernel_interval *interval,
                           struct erg_error *err);

#endif
