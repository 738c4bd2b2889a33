/*
 * Threads: run independent pieces of work on all cores. POSIX threads underneath.
 */
#ifndef ERG_BASE_THREAD_H
#define ERG_BASE_THREAD_H

#include "ergon/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Cores that this process may use, at least 1: those of its affinity, but no more than the CPU time
 * that the quota of its control groups allows. */
size_t erg_thread_count(void);

/*
 * CPU seconds per second that the control groups of this process allow (cpu.max of version 2,
 * cpu.cfs_quota_us of version 1; the tightest of a group and those above it), or infinity. `root`
 * is put before /proc and /sys; "" except in tests.
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

/* Starts a thread that takes no signals, which belong to the program's own ones. Returns errno. */
int erg_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Wakes a thread that polls this eventfd. */
void erg_thread_wake(int fd);

/* A condition that is waited for by erg_now_ns()'s clock. */
void erg_condition_init(pthread_cond_t *condition);

/* With the lock held; false once the moment has come. */
bool erg_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns);

#endif
