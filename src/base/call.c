/* Calls of the library on threads of their own, watched, and ended where memory runs out. */
#include "base/call.h"

#include "base/clock.h"
#include "base/sized.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct erg_call {
    int (*body)(void *argument, struct erg_error *err);
    void *argument;
    struct erg_watch watch;
    bool watched;
    pthread_mutex_t lock; /* one callback at a time */
    int64_t asked_ns;     /* when cancel was last called; with the lock */
    atomic_bool cancelled, lost;
    size_t count, bytes; /* that were refused first */
    int result;
    struct erg_error error;
};

static _Thread_local struct erg_call *current;

struct erg_call *erg_call_current(void)
{
    return current;
}

void erg_call_enter(struct erg_call *call)
{
    current = call;
}

/* ---- the watch ---- */

bool erg_call_log(int level, const char *text)
{
    struct erg_call *call = current;
    if (!call || !call->watched)
        return false;
    if (call->watch.log) {
        pthread_mutex_lock(&call->lock);
        call->watch.log(call->watch.context, level, text);
        pthread_mutex_unlock(&call->lock);
    }
    return true;
}

bool erg_call_progress(const char *task, size_t done, size_t total)
{
    struct erg_call *call = current;
    if (!call || !call->watched)
        return false;
    if (call->watch.progress) {
        pthread_mutex_lock(&call->lock);
        call->watch.progress(call->watch.context, task, done, total);
        pthread_mutex_unlock(&call->lock);
    }
    return true;
}

bool erg_call_is_cancelled(void)
{
    enum { PERIOD_NS = 10000000 };
    struct erg_call *call = current;
    if (!call || !call->watched || !call->watch.cancel)
        return false;
    if (atomic_load(&call->cancelled))
        return true;
    if (pthread_mutex_trylock(&call->lock) != 0)
        return false;
    const int64_t now_ns = erg_now_ns();
    if (now_ns - call->asked_ns >= PERIOD_NS) {
        call->asked_ns = now_ns;
        if (call->watch.cancel(call->watch.context) != 0)
            atomic_store(&call->cancelled, true);
    }
    pthread_mutex_unlock(&call->lock);
    return atomic_load(&call->cancelled);
}

/* ---- memory ---- */

bool erg_call_is_lost(void)
{
    return current && atomic_load(&current->lost);
}

void erg_call_leave(void)
{
    pthread_exit(NULL);
}

void erg_call_run_out(size_t count, size_t bytes)
{
    struct erg_call *call = current;
    if (!call)
        return;
    bool first = false;
    if (atomic_compare_exchange_strong(&call->lost, &first, true)) {
        call->count = count;
        call->bytes = bytes;
    }
    erg_call_leave();
}

/* ---- the call ---- */

static void *run(void *argument)
{
    struct erg_call *call = argument;
    current = call;
    call->result = call->body(call->argument, &call->error);
    return NULL;
}

/* The C library loads what pthread_exit() needs when that is first called: while there is memory.
 */
static void *leave_once(void *argument)
{
    (void)argument;
    erg_call_leave();
    return NULL;
}

static void prepare_to_leave(void)
{
    pthread_t thread;
    if (erg_thread_start(&thread, leave_once, NULL) == 0)
        pthread_join(thread, NULL);
}

int erg_call_run(int (*body)(void *argument, struct erg_error *err), void *argument,
                 const struct erg_watch *watch, struct erg_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct erg_call call = {.body = body, .argument = argument, .watched = watch != NULL};
    pthread_t thread;
    if (current && !watch)
        return body(argument, err); /* a part of the call at hand */
    if (erg_sized_take(&call.watch, sizeof call.watch, watch, "erg_watch", err) != 0)
        return -1;
    pthread_once(&once, prepare_to_leave);
    pthread_mutex_init(&call.lock, NULL);
    const int code = erg_thread_start(&thread, run, &call);
    if (code == 0)
        pthread_join(thread, NULL);
    pthread_mutex_destroy(&call.lock);
    if (code != 0)
        return erg_fail(err, ERG_FAILED, "a thread cannot be started: %s", strerror(code));
    if (atomic_load(&call.lost))
        return erg_fail(err, ERG_FAILED,
                        "out of memory: %zu x %zu bytes could not be allocated; expected more "
                        "memory for this process, or a smaller job",
                        call.count, call.bytes);
    if (call.result != 0 && err)
        *err = call.error;
    return call.result != 0 ? -1 : 0;
}
