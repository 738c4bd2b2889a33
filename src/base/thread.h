/*
 * Threads: run independent pieces of work on all cores. POSIX threads underneath.
 */
#ifndef ERG_BASE_THREAD_H
#define ERG_BASE_THREAD_H

#include "ergon/error.h"

#include <stddef.h>

size_t erg_thread_count(void); /* usable cores, at least 1 */

/*
 * Calls task(context, i, err) for i in [0, count), on up to `threads` threads (0 = all cores, or,
 * from within such a task, its own alone), in increasing order of start. After a failure no new
 * piece starts; of several failures the one with the smallest i is reported.
 */
int erg_parallel_for(size_t count, size_t threads,
                     int (*task)(void *context, size_t i, struct erg_error *err), void *context,
                     struct erg_error *err);

#endif
