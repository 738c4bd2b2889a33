/*
 * Calls: a program's call of the library that takes long or much memory. It runs on a thread of its
 * own, with the threads that erg_parallel_for() adds: so its log, progress and interruption belong
 * to its caller alone (ergon/watch.h), and it can fail where memory runs out: the functions below
 * it then never return, its threads end, the memory that they hold is leaked, and the caller gets
 * the error.
 */
#ifndef ERG_BASE_CALL_H
#define ERG_BASE_CALL_H

#include "ergon/error.h"
#include "ergon/watch.h"

#include <stdbool.h>

/* Returns what `body` does; ERG_FAILED where memory ran out. `watch` may be NULL: then within a
 * call it is a part of that. */
int erg_call_run(int (*body)(void *argument, struct erg_error *err), void *argument,
                 const struct erg_watch *watch, struct erg_error *err);

/* ---- for base/ ---- */

/* The call that this thread works for, NULL: none; and that it works for one from now on. */
struct erg_call;
struct erg_call *erg_call_current(void);
void erg_call_enter(struct erg_call *call);

/* Hands it to the call's watch; false: this thread works for no call that is watched. */
bool erg_call_log(int level, const char *text);
bool erg_call_progress(const char *task, size_t done, size_t total);

/* Whether the caller wants it to end. */
bool erg_call_is_cancelled(void);

/* `count` x `bytes` were refused: ends this thread if it works for a call, else returns. */
void erg_call_run_out(size_t count, size_t bytes);

/* Whether memory ran out in any thread of this one's call; then the others end by leave(). */
bool erg_call_is_lost(void);
void erg_call_leave(void);

#endif
