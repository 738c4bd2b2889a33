/*
 * Kernel import: reads the traces of the ranks of a training run, and gives each GPU's time and,
 * with a power recording made at the same time, energy by category. Memory does not grow with the
 * traces.
 */
#ifndef ERG_TRACE_KERNEL_IMPORT_H
#define ERG_TRACE_KERNEL_IMPORT_H

#include "trace/kernel_category.h"
#include "trace/kernel_time.h"
#include "trace/kineto_read.h"

/* One GPU in one trace file. */
struct erg_kernel_lane {
    size_t number;    /* index of the file, from 0 */
    const char *file; /* from `files` */
    int rank;         /* the trace's; else that in the file name, "rank-N"; else `number` */
    int32_t device;
    char uuid[ERG_KINETO_UUID_BYTES]; /* "": unknown */
    int64_t unix_ns;                  /* Unix time of time 0 of the file's clock */
    bool has_unix;
    int64_t first_ns, last_ns; /* first start and last end of its kernels, copies and fills */
    double sub_ns[ERG_CATEGORIES][ERG_SUBS]; /* durations added, overlaps counted twice */
    size_t sub_count[ERG_CATEGORIES][ERG_SUBS];
    double wait_ns[ERG_CATEGORIES];
    size_t waits[ERG_CATEGORIES]; /* kernels with a known wait */
    struct erg_kernel_time time;
};

struct erg_kernel_lanes {
    struct erg_kernel_lane *items; /* by file, then device */
    size_t count, capacity;
    size_t left_out; /* records that the rule does not count */
};

/* `recording` NULL: no energies. The caller releases the lanes even after a failure. */
int erg_kernel_import(struct erg_kernel_lanes *lanes, const char *const *files, size_t file_count,
                      enum erg_kernel_rule rule, const char *recording, struct erg_error *err);
void erg_kernel_lanes_release(struct erg_kernel_lanes *lanes);

#endif
