/*
 * Watch: callbacks for the log, the progress and the cancellation of long calls.
 *
 *     static int cancel(void *context) { return *(volatile int *)context; }
 *     struct erg_watch watch = {.size = sizeof watch, .context = &stop, .cancel = cancel};
 *
 * Options of long calls have a member `watch`. The library calls these functions only during that
 * call, one at a time, some from its own threads; they must return soon. Without a watch the call
 * is silent and cannot be cancelled.
 *
 * Sizes. Structs passed to the library begin with `size_t size`, which the caller sets to sizeof
 * the struct. A program compiled against an older header passes a shorter struct: missing inputs
 * have their defaults, and a result is filled up to its size. A program compiled against a newer
 * header passes a longer struct: the call fails with ERG_USAGE if an unknown byte of an input is
 * not 0, and leaves unknown bytes of a result unchanged.
 *
 * Memory. Long calls (those with a watch) and calls that read files work on their own thread. If
 * memory runs out there, they fail with ERG_FAILED, and their allocations are not freed; clocks
 * that such a call had locked are unlocked only at the end of the process. If memory runs out in
 * any other call, or in the solver of linear programs behind some policies of
 * erg_simulations_run(), the process ends with a message.
 */
#ifndef ERGON_WATCH_H
#define ERGON_WATCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum erg_watch_level {
    ERG_WATCH_ERROR = 0,
    ERG_WATCH_WARNING = 1,
    ERG_WATCH_INFO = 2,
    ERG_WATCH_DEBUG = 3
};

/* Every function may be NULL. */
struct erg_watch {
    size_t size;
    void *context; /* passed to all functions */
    /* One line without its line break. */
    void (*log)(void *context, int level, const char *text);
    /* `done` of `total` steps of `task`; total 0: unknown. */
    void (*progress)(void *context, const char *task, size_t done, size_t total);
    /* Called between two steps, at most every 10 ms: a value other than 0 ends the call with
     * ERG_INTERRUPTED. Finished measurements are kept if the call keeps measurements. */
    int (*cancel)(void *context);
};

#ifdef __cplusplus
}
#endif

#endif
