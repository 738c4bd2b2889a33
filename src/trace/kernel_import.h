/*
 * Kernel import: reads the traces of the ranks of a training run, and gives each GPU's time and,
 * with a recording of the same time, energy by category. Memory does not grow with the traces.
 */
#ifndef ERG_TRACE_KERNEL_IMPORT_H
#define ERG_TRACE_KERNEL_IMPORT_H

#include "trace/kernel_category.h"
#include "trace/kernel_time.h"
#include "trace/kineto_read.h"

/* One GPU of one file. */
struct erg_kernel_lane {
    size_t number;    /* index of the file, from 0 */
    const char *file; /* borrowed */
    int rank;
    int32_t device;
    char uuid[ERG_KINETO_UUID_BYTES]; /* "": unknown */
    int64_t unix_ns;                  /* Unix time of moment 0 of the file's times */
    bool has_unix;
    int64_t first_ns, last_ns;               /* first start and last end of its kernels */
    double sub_ns[ERG_CATEGORIES][ERG_SUBS]; /* summed */
    size_t sub_count[ERG_CATEGORIES][ERG_SUBS];
    double wait_ns[ERG_CATEGORIES];
    size_t waits[ERG_CATEGORIES]; /* kernels with a known wait */
    struct erg_kernel_time time;
};

struct erg_kernel_lanes {
    struct erg_kernel_lane *items;
    size_t count, capacity;
    size_t left_out; /* records that the rule does not count */
};

/* `recording` NULL: no energies. The caller releases it in any case. */
int erg_kernel_import(struct erg_kernel_lanes *lanes, const char *const *files, size_t file_count,
                      enum erg_kernel_rule rule, const char *recording, struct erg_error *err);
void erg_kernel_lanes_release(struct erg_kernel_lanes *lanes);

#endif
