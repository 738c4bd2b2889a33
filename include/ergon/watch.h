/*
 * Watch: who waits for a long call hears how far it is, and may end it.
 *
 *     static int cancel(void *context) { return *(volatile int *)context; }
 *     struct erg_watch watch = {.size = sizeof watch, .context = &stop, .cancel = cancel};
 *
 * Options of long calls have a member `watch`. The library calls these functions during that call
 * only, one at a time, some from threads of its own; they must return, and soon. Without a watch
 * nothing is said, and nothing but the call's own end ends it.
 *
 * Sizes. Structs that cross the border of the library begin with `size_t size`, which the caller
 * sets to sizeof the struct. A program that was compiled against an older header passes a shorter
 * struct: the rest of an input means the defaults, and a result is filled as far as it goes. One of
 * a newer header passes a longer struct: ERG_USAGE where it asks there for something, that is,
 * where a byte that this library does not know is not 0; in a result such bytes stay as they are.
 *
 * Memory. The long calls (those with a watch) and those that read files work on a thread of their
 * own. Where memory runs out there they fail with ERG_FAILED, and what they had allocated until
 * then is lost, not freed; a call that has locked clocks by then unlocks them only with the
 * process. All other calls, and the solver of linear programs behind some policies of
 * erg_simulations_run(), end the process with a message in that case.
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
    void *context; /* of all functions */
    /* One line without its line break. */
    void (*log)(void *context, int level, const char *text);
    /* `done` of `total` steps of `task`; total 0: not known. */
    void (*progress)(void *context, const char *task, size_t done, size_t total);
    /* Asked between two steps, every 10 ms at most: not 0 ends the call with ERG_INTERRUPTED. What
     * was measured until then is kept where the call keeps measurements. */
    int (*cancel)(void *context);
};

#ifdef __cplusplus
}
#endif

#endif
