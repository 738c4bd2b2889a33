#define _GNU_SOURCE /* sched_getaffinity */
#include "base/thread.h"

#include "base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

size_t erg_thread_count(void)
{
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) > 0)
        return (size_t)CPU_COUNT(&usable);
    return 1;
}

/* Within a task all cores have work already. */
static _Thread_local bool within_task;

struct parallel {
    pthread_mutex_t lock;
    size_t next, count;
    int (*task)(void *context, size_t i, struct erg_error *err);
    void *context;
    bool failed;
    size_t failed_at;
    struct erg_error error;
};

static void *worker(void *argument)
{
    struct parallel *work = argument;
    for (;;) {
        pthread_mutex_lock(&work->lock);
        bool stop = work->failed || work->next >= work->count;
        size_t i = stop ? 0 : work->next++;
        pthread_mutex_unlock(&work->lock);
        if (stop)
            return NULL;
        struct erg_error error = {0};
        bool outer = within_task;
        within_task = true;
        int result = work->task(work->context, i, &error);
        within_task = outer;
        if (result) {
            pthread_mutex_lock(&work->lock);
            if (!work->failed || i < work->failed_at) {
                work->failed = true;
                work->failed_at = i;
                work->error = error;
            }
            pthread_mutex_unlock(&work->lock);
        }
    }
}

int erg_parallel_for(size_t count, size_t threads,
                     int (*task)(void *context, size_t i, struct erg_error *err), void *context,
                     struct erg_error *err)
{
    struct parallel work = {.count = count, .task = task, .context = context};
    pthread_mutex_init(&work.lock, NULL);
    size_t wanted = threads ? threads : within_task ? 1 : erg_thread_count();
    if (wanted > count)
        wanted = count;
    pthread_t *handles = erg_xcalloc(wanted, sizeof *handles);
    size_t started = 0;
    while (started + 1 < wanted && !pthread_create(&handles[started], NULL, worker, &work))
        started++;
    worker(&work); /* the caller works too, so a refused thread only costs speed */
    for (size_t i = 0; i < started; i++)
        pthread_join(handles[i], NULL);
    free(handles);
    pthread_mutex_destroy(&work.lock);
    if (work.failed && err)
        *err = work.error;
    return work.failed ? -1 : 0;
}
