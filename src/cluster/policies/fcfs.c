/*
 * First come, first served.
 *
 * Source: the baseline of Arena's published comparison. A job gets the type and the number of GPUs
 * that it asked for, on as few nodes as they need, and keeps them to its end. It waits while a job
 * that asked for the same type before it waits. The relaxed form takes more nodes, with equally
 * many GPUs on each, where few are not free.
 *
 * Departures: a job that names no type takes the one on which it is fastest of those with room for
 * which no older job waits, and while it waits no later job of any type overtakes it. A job whose
 * node failed goes to the head of its queue.
 */
#include "cluster/policies/policies.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Jobs that wait for one type, in the order in which they came. */
struct queue {
    int *items;
    size_t first, count, capacity; /* those before `first` are gone */
};

struct fcfs {
    struct queue *queues; /* by type; the last one is of jobs that name none */
    unsigned types;
};

static int open_fcfs(void **state, const struct erg_scheduler *scheduler, struct erg_error *err)
{
    (void)err;
    struct fcfs *fcfs = erg_xcalloc(1, sizeof *fcfs);
    fcfs->types = scheduler->fleet->types_count;
    fcfs->queues = erg_xcalloc(fcfs->types + 1, sizeof *fcfs->queues);
    *state = fcfs;
    return 0;
}

static void close_fcfs(void *state)
{
    struct fcfs *fcfs = state;
    for (unsigned i = 0; i <= fcfs->types; i++)
        free(fcfs->queues[i].items);
    free(fcfs->queues);
    free(fcfs);
}

static struct queue *queue_of(struct fcfs *fcfs, const struct erg_scheduler *scheduler, int job)
{
    int type = scheduler->jobs[job].request->type;
    return &fcfs->queues[type < 0 ? fcfs->types : (unsigned)type];
}

/* The fastest shape of what the job asked for on this type; -1: it cannot run so. */
static int shape_on(const struct erg_scheduler *scheduler, int job, int type)
{
    int shape = erg_speeds_best(scheduler->speeds, type, scheduler->jobs[job].request->gpus);
    bool runs =
        shape >= 0 && erg_speed_feasible(erg_scheduler_speed(scheduler, job, ERG_PLANS_ANY, shape));
    return runs ? shape : -1;
}

static bool can_run(const struct erg_scheduler *scheduler, int job)
{
    int wanted = scheduler->jobs[job].request->type;
    for (int type = 0; type < (int)scheduler->fleet->types_count; type++)
        if ((wanted < 0 || type == wanted) && shape_on(scheduler, job, type) >= 0)
            return true;
    return false;
}

/* On the best locality; relaxed, on twice as many nodes as long as such is known to run. */
static bool fit(struct erg_scheduler *scheduler, int job, int type, bool relaxed)
{
    const struct erg_speeds *speeds = scheduler->speeds;
    int shape = shape_on(scheduler, job, type);
    while (shape >= 0 &&
           erg_speed_feasible(erg_scheduler_speed(scheduler, job, ERG_PLANS_ANY, shape))) {
        if (erg_scheduler_fit(scheduler, job, shape, ERG_MOST_FREE, 0))
            return true;
        const struct erg_gpu_shape *tried = &speeds->shapes[shape];
        if (!relaxed || tried->gpus_per_node % 2 != 0)
            return false;
        shape = erg_speeds_shape(speeds, type, tried->nodes * 2, tried->gpus_per_node / 2);
    }
    return false;
}

static bool fit_anywhere(const struct fcfs *fcfs, struct erg_scheduler *scheduler, int job,
                         bool relaxed)
{
    double tried = 0; /* the speed of the type that was tried last; slower ones come next */
    for (unsigned i = 0; i < scheduler->fleet->types_count; i++) {
        double best = 0;
        int best_type = -1;
        for (int type = 0; type < (int)scheduler->fleet->types_count; type++) {
            const struct queue *older = &fcfs->queues[type];
            int shape = shape_on(scheduler, job, type);
            if (shape < 0 || (older->first < older->count && older->items[older->first] < job))
                continue;
            double speed = erg_scheduler_speed(scheduler, job, ERG_PLANS_ANY, shape)->samples_per_s;
            if (speed > best && (i == 0 || speed < tried)) {
                best = speed;
                best_type = type;
            }
        }
        if (best_type < 0)
            return false;
        if (fit(scheduler, job, best_type, relaxed))
            return true;
        tried = best;
    }
    return false;
}

static void enqueue(struct fcfs *fcfs, struct erg_scheduler *scheduler,
                    const struct erg_occasion *occasion)
{
    for (size_t i = occasion->evicted_count; i-- > 0;) {
        struct queue *queue = queue_of(fcfs, scheduler, occasion->evicted[i]);
        ERG_RESERVE(queue, items, 1);
        memmove(queue->items + queue->first + 1, queue->items + queue->first,
                (queue->count++ - queue->first) * sizeof *queue->items);
        queue->items[queue->first] = occasion->evicted[i];
    }
    for (size_t i = 0; i < occasion->arrived_count; i++) {
        int job = occasion->arrived[i];
        if (can_run(scheduler, job))
            ERG_PUSH(queue_of(fcfs, scheduler, job), items, job);
        else
            erg_scheduler_reject(scheduler, job);
    }
}

static void decide(struct fcfs *fcfs, struct erg_scheduler *scheduler,
                   const struct erg_occasion *occasion, bool relaxed)
{
    struct queue *any = &fcfs->queues[fcfs->types];
    enqueue(fcfs, scheduler, occasion);
    for (;;) { /* a job that names no type is as old as its number says */
        int oldest = any->first < any->count ? any->items[any->first] : (int)scheduler->jobs_count;
        for (unsigned type = 0; type < fcfs->types; type++) {
            struct queue *queue = &fcfs->queues[type];
            while (queue->first < queue->count && queue->items[queue->first] < oldest &&
                   fit(scheduler, queue->items[queue->first], (int)type, relaxed))
                queue->first++;
        }
        if (any->first == any->count || !fit_anywhere(fcfs, scheduler, oldest, relaxed))
            return;
        any->first++;
    }
}

static int decide_strict(void *state, struct erg_scheduler *scheduler,
                         const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)err;
    decide(state, scheduler, occasion, false);
    return 0;
}

static int decide_relaxed(void *state, struct erg_scheduler *scheduler,
                          const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)err;
    decide(state, scheduler, occasion, true);
    return 0;
}

#define CALLED (ERG_EVENT_ARRIVAL | ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR)

const struct erg_policy erg_policy_fcfs = {
    .name = "fcfs",
    .summary = "first come, first served, on the GPUs asked for",
    .events = CALLED,
    .open = open_fcfs,
    .decide = decide_strict,
    .close = close_fcfs,
};

const struct erg_policy erg_policy_fcfs_relaxed = {
    .name = "fcfs-relaxed",
    .summary = "first come, first served, spread over more nodes where few are not free",
    .events = CALLED,
    .open = open_fcfs,
    .decide = decide_relaxed,
    .close = close_fcfs,
};
