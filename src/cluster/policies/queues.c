/* Queues of jobs for first come, first served. */
#include "cluster/policies/queues.h"

#include "base/memory.h"
#include "cluster/schedule/asked.h"

#include <stdlib.h>
#include <string.h>

void erg_queues_release(struct erg_queues *queues)
{
    for (size_t i = 0; i < queues->count; i++) {
        free(queues->items[i].types);
        free(queues->items[i].items);
    }
    free(queues->items);
    free(queues->types);
    free(queues->blocked);
}

/* Fills `queues->types` with the types that a job can take; returns their number. */
static int list_types(struct erg_queues *queues, const struct erg_scheduler *scheduler, int job)
{
    int count = 0, type = erg_asked_type(scheduler, job);
    while (type >= 0) {
        queues->types[count++] = type;
        type = scheduler->jobs[job].request->type >= 0 ? -1
                                                       : erg_asked_next_type(scheduler, job, type);
    }
    return count;
}

/* The queue of the given number of types in `queues->types`. */
static struct erg_queue *queue_of(struct erg_queues *queues, int types)
{
    size_t bytes = (size_t)types * sizeof *queues->types;
    for (size_t i = 0; i < queues->count; i++)
        if (queues->items[i].types_count == types &&
            memcmp(queues->items[i].types, queues->types, bytes) == 0)
            return &queues->items[i];
    struct erg_queue queue = {.types = erg_xmalloc(bytes), .types_count = types};
    memcpy(queue.types, queues->types, bytes);
    ERG_PUSH(queues, items, queue);
    return &queues->items[queues->count - 1];
}

/* Returns false if the job cannot run as requested. */
static bool enqueue(struct erg_queues *queues, const struct erg_scheduler *scheduler, int job)
{
    int types = list_types(queues, scheduler, job);
    if (types == 0)
        return false;
    struct erg_queue *queue = queue_of(queues, types);
    ERG_PUSH(queue, items, job);
    for (size_t at = queue->count - 1;
         at > queue->first && erg_scheduler_before(scheduler, job, queue->items[at - 1]); at--) {
        queue->items[at] = queue->items[at - 1];
        queue->items[at - 1] = job;
    }
    return true;
}

void erg_queues_init(struct erg_queues *queues, const struct erg_scheduler *scheduler)
{
    size_t types = scheduler->fleet->types_count;
    *queues = (struct erg_queues){.types = erg_xcalloc(types, sizeof *queues->types),
                                  .blocked = erg_xcalloc(types, sizeof *queues->blocked)};
    int *jobs;
    size_t count = erg_scheduler_told(scheduler, &jobs);
    for (size_t i = 0; i < count; i++)
        if (scheduler->jobs[jobs[i]].state == ERG_JOB_WAITING)
            enqueue(queues, scheduler, jobs[i]);
    free(jobs);
}

static bool is_blocked(const struct erg_queues *queues, const struct erg_queue *queue)
{
    for (int i = 0; i < queue->types_count; i++)
        if (!queues->blocked[queue->types[i]])
            return false;
    return true;
}

/* The queue with the earliest first job that need not wait for older ones; NULL: there is none. */
static struct erg_queue *next_queue(const struct erg_queues *queues,
                                    const struct erg_scheduler *scheduler)
{
    struct erg_queue *best = NULL;
    for (size_t i = 0; i < queues->count; i++) {
        struct erg_queue *queue = &queues->items[i];
        if (queue->first < queue->count && !is_blocked(queues, queue) &&
            (!best ||
             erg_scheduler_before(scheduler, queue->items[queue->first], best->items[best->first])))
            best = queue;
    }
    return best;
}

/* Places the first job of a queue, or makes it wait for all types that it could take. */
static void serve_first(struct erg_queues *queues, struct erg_queue *queue,
                        struct erg_scheduler *scheduler, erg_queues_fit *fit, void *policy)
{
    for (int i = 0; i < queue->types_count; i++)
        if (!queues->blocked[queue->types[i]] &&
            fit(policy, scheduler, queue->items[queue->first], queue->types[i])) {
            queue->first++;
            return;
        }
    for (int i = 0; i < queue->types_count; i++)
        queues->blocked[queue->types[i]] = true;
}

void erg_queues_serve(struct erg_queues *queues, struct erg_scheduler *scheduler,
                      const struct erg_occasion *occasion, erg_queues_fit *fit, void *policy)
{
    struct erg_queue *queue;
    for (size_t i = 0; i < occasion->evicted_count; i++)
        enqueue(queues, scheduler, occasion->evicted[i]);
    for (size_t i = 0; i < occasion->arrived_count; i++)
        if (!enqueue(queues, scheduler, occasion->arrived[i]))
            erg_scheduler_reject(scheduler, occasion->arrived[i]);
    memset(queues->blocked, 0, scheduler->fleet->types_count * sizeof *queues->blocked);
    while ((queue = next_queue(queues, scheduler)))
        serve_first(queues, queue, scheduler, fit, policy);
}

bool erg_queues_wait_for(const struct erg_queues *queues, int type)
{
    for (size_t i = 0; i < queues->count; i++) {
        const struct erg_queue *queue = &queues->items[i];
        for (int t = 0; t < queue->types_count && queue->first < queue->count; t++)
            if (queue->types[t] == type)
                return true;
    }
    return false;
}
