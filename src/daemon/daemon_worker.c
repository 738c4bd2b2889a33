/* The worker of a GPU. */
#include "daemon/daemon_worker.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The limit of pending outcomes: they are taken whenever a target is given, so at most one running,
 * the waiting ones and those that these replace are pending.
 */
enum { OUTCOMES = 16 };

struct erg_daemon_worker {
    struct erg_gpus *gpus;
    size_t gpu;
    int news;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t call, ended_call;
    struct erg_daemon_target targets[ERG_KNOBS];
    struct erg_daemon_outcome outcomes[OUTCOMES];
    size_t first, count;
    int64_t busy_since_ns;
    struct erg_knob_bounds bounds;
    bool persist, raised; /* persistence is requested; it was off before. Used by the thread only */
    bool known, stop, ended, left; /* left: no caller waits, so the thread frees everything */
};

/* Call with the lock held. */
static void tell(struct erg_daemon_worker *worker, const struct erg_daemon_outcome *outcome)
{
    assert(worker->count < OUTCOMES);
    worker->outcomes[(worker->first + worker->count++) % OUTCOMES] = *outcome;
}

/* The knob whose target is due first, or 0; `until_ns` is that time. Call with the lock held. */
static enum erg_knob next_due(const struct erg_daemon_worker *worker, int64_t *until_ns)
{
    enum erg_knob found = 0;
    *until_ns = INT64_MAX;
    for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
        const struct erg_daemon_target *target = &worker->targets[knob];
        if (target->task != ERG_TASK_NONE && target->due_ns < *until_ns) {
            *until_ns = target->due_ns;
            found = knob;
        }
    }
    return found;
}

static void ask_driver(struct erg_daemon_worker *worker, struct erg_daemon_outcome *outcome)
{
    const struct erg_daemon_target *target = &outcome->target;
    struct erg_error error = {0};
    int failed = 0;
    outcome->begin_ns = erg_now_ns();
    if (target->task == ERG_TASK_PREPARE) {
        if (outcome->knob == ERG_KNOB_POWER)
            failed =
                erg_knob_read(worker->gpus, worker->gpu, ERG_KNOB_POWER, &outcome->seen, &error);
    } else if (target->task == ERG_TASK_RESET && target->high == 0) {
        failed = erg_knob_reset(worker->gpus, worker->gpu, outcome->knob, &outcome->driver, &error);
    } else {
        failed = erg_knob_set(worker->gpus, worker->gpu, outcome->knob, target->low, target->high,
                              &outcome->driver, &error);
    }
    outcome->end_ns = erg_now_ns();
    if (!failed && target->look)
        failed = erg_knob_read(worker->gpus, worker->gpu, outcome->knob, &outcome->seen, &error);
    outcome->failed = failed != 0;
    snprintf(outcome->text, sizeof outcome->text, "%s", error.message);
}

static void release(struct erg_daemon_worker *worker)
{
    erg_knob_bounds_release(&worker->bounds);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->call);
    pthread_cond_destroy(&worker->ended_call);
    erg_gpus_close(worker->gpus);
    free(worker);
}

/* Call with the lock held; it is released during calls. */
static void work(struct erg_daemon_worker *worker)
{
    for (;;) {
        int64_t until_ns;
        enum erg_knob knob = next_due(worker, &until_ns);
        if (worker->stop)
            return;
        if (!knob) {
            pthread_cond_wait(&worker->call, &worker->lock);
            continue;
        }
        if (until_ns > erg_now_ns()) {
            erg_condition_wait(&worker->call, &worker->lock, until_ns);
            continue;
        }
        struct erg_daemon_outcome outcome = {.knob = knob, .target = worker->targets[knob]};
        worker->targets[knob].task = ERG_TASK_NONE;
        worker->busy_since_ns = erg_now_ns();
        pthread_mutex_unlock(&worker->lock);
        ask_driver(worker, &outcome);
        pthread_mutex_lock(&worker->lock);
        worker->busy_since_ns = 0;
        tell(worker, &outcome);
        if (!worker->stop) /* after a stop, this number may belong to another file */
            erg_thread_wake(worker->news);
    }
}

static void *run(void *context)
{
    struct erg_daemon_worker *worker = context;
    struct erg_knob_bounds bounds;
    pthread_mutex_lock(&worker->lock);
    worker->busy_since_ns = erg_now_ns();
    pthread_mutex_unlock(&worker->lock);
    erg_knob_bounds_read(worker->gpus, worker->gpu, &bounds);
    bool on = true;
    if (worker->persist && erg_persistence_read(worker->gpus, worker->gpu, &on, NULL) == 0 && !on)
        worker->raised = erg_persistence_set(worker->gpus, worker->gpu, true, NULL) == 0;
    pthread_mutex_lock(&worker->lock);
    worker->bounds = bounds;
    worker->known = true;
    worker->busy_since_ns = 0;
    work(worker);
    pthread_mutex_unlock(&worker->lock);
    if (worker->raised)
        erg_persistence_set(worker->gpus, worker->gpu, false, NULL);
    pthread_mutex_lock(&worker->lock);
    worker->ended = true;
    bool left = worker->left;
    pthread_cond_signal(&worker->ended_call);
    pthread_mutex_unlock(&worker->lock);
    if (left)
        release(worker);
    return NULL;
}

struct erg_daemon_worker *erg_daemon_worker_start(struct erg_gpus *gpus, size_t gpu, int news,
                                                  bool persist)
{
    struct erg_daemon_worker *worker = erg_xcalloc(1, sizeof *worker);
    worker->gpus = erg_gpus_retain(gpus);
    worker->gpu = gpu;
    worker->news = news;
    worker->persist = persist;
    pthread_mutex_init(&worker->lock, NULL);
    erg_condition_init(&worker->call);
    erg_condition_init(&worker->ended_call);
    if (erg_thread_start(&worker->thread, run, worker) == 0)
        return worker;
    release(worker);
    return NULL;
}

void erg_daemon_worker_give(struct erg_daemon_worker *worker, enum erg_knob knob,
                            const struct erg_daemon_target *target)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->targets[knob].task != ERG_TASK_NONE) {
        struct erg_daemon_outcome replaced = {
            .knob = knob, .target = worker->targets[knob], .superseded = true};
        tell(worker, &replaced);
        erg_thread_wake(worker->news);
    }
    worker->targets[knob] = *target;
    pthread_cond_signal(&worker->call);
    pthread_mutex_unlock(&worker->lock);
}

struct erg_daemon_target erg_daemon_worker_waiting(struct erg_daemon_worker *worker,
                                                   enum erg_knob knob)
{
    pthread_mutex_lock(&worker->lock);
    struct erg_daemon_target target = worker->targets[knob];
    pthread_mutex_unlock(&worker->lock);
    return target;
}

bool erg_daemon_worker_take(struct erg_daemon_worker *worker, struct erg_daemon_outcome *outcome)
{
    pthread_mutex_lock(&worker->lock);
    bool found = worker->count > 0;
    if (found) {
        *outcome = worker->outcomes[worker->first];
        worker->first = (worker->first + 1) % OUTCOMES;
        worker->count--;
    }
    pthread_mutex_unlock(&worker->lock);
    return found;
}

int64_t erg_daemon_worker_busy_ns(struct erg_daemon_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    int64_t busy_ns = worker->busy_since_ns ? erg_now_ns() - worker->busy_since_ns : 0;
    pthread_mutex_unlock(&worker->lock);
    return busy_ns;
}

const struct erg_knob_bounds *erg_daemon_worker_bounds(struct erg_daemon_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    const struct erg_knob_bounds *bounds = worker->known ? &worker->bounds : NULL;
    pthread_mutex_unlock(&worker->lock);
    return bounds;
}

void erg_daemon_worker_stop(struct erg_daemon_worker *worker)
{
    int64_t until_ns = erg_now_ns() + 1000000000;
    pthread_mutex_lock(&worker->lock);
    worker->stop = true;
    pthread_cond_signal(&worker->call);
    while (!worker->ended && erg_condition_wait(&worker->ended_call, &worker->lock, until_ns))
        ;
    bool ended = worker->ended;
    worker->left = !ended;
    pthread_t thread = worker->thread;
    pthread_mutex_unlock(&worker->lock);
    if (ended) {
        pthread_join(thread, NULL);
        release(worker);
    } else {
        pthread_detach(thread);
    }
}
