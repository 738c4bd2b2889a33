/*
 * Threads: run independent pieces of work on all cores. POSIX threads underneath.
 */
#ifndef ERG_BASE_THREAD_H
#define ERG_BASE_THREAD_H

#include "ergon/error.h"

#include <stddef.h>

/* Cores that this process may use, at least 1: those of its affinity, but no more than the CPU time
 * that the quota of its control groups allows. */
size_t erg_thread_count(void);

/*
 * CPU seconds per second that the control groups of this process allow (cpu.max of version 2,
 * cpu.cfs_quota_us of version 1; the tightest of a group and those above it), or infinity. `root`
 * is before /proc and /sys; "" but for tests.
 */
double erg_thread_quota(const char *root);

/*
 * Calls task(context, i, err) for i in [0, count), on up to `threads` threads (0 = all cores, or,
 * from within such a task, its own alone), in increasing order of start. After a failure no new
 * piece starts; of several failures the one with the smallest i is reported.
 */
int erg_parallel_for(size_t count, size_t threads,
                     int (*task)(void *context, size_t i, struct erg_error *err), void *context,
                     struct erg_error *err);

#endif
