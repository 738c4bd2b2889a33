#include "cluster/policies/queues.h"

#include "base/memory.h"
#include "cluster/schedule/asked.h"

#include <stdlib.h>
#include <string.h>

void erg_queues_init(struct erg_queues *queues, const struct erg_scheduler *scheduler)
{
    queues->types = (int)scheduler->fleet->types_count;
    queues->items = erg_xcalloc((size_t)queues->types + 1, sizeof *queues->items);
    queues->blocked = erg_xcalloc((size_t)queues->types, sizeof *queues->blocked);
}

void erg_queues_release(struct erg_queues *queues)
{
    for (int i = 0; i <= queues->types; i++)
        free(queues->items[i].items);
    free(queues->items);
    free(queues->blocked);
}

static void enqueue(struct erg_queues *queues, const struct erg_scheduler *scheduler, int job)
{
    int type = scheduler->jobs[job].request->type;
    struct erg_queue *queue = &queues->items[type < 0 ? queues->types : type];
    ERG_PUSH(queue, items, job);
    for (size_t at = queue->count - 1;
         at > queue->first && erg_scheduler_before(scheduler, job, queue->items[at - 1]); at--) {
        queue->items[at] = queue->items[at - 1];
        queue->items[at - 1] = job;
    }
}

/* Places a job that names no type, or has it wait for all that it could take. */
static bool fit_anywhere(const struct erg_queues *queues, struct erg_scheduler *scheduler, int job,
                         erg_queues_fit *fit, void *policy)
{
    int type = -1;
    while ((type = erg_asked_next_type(scheduler, job, ERG_PLANS_ANY, type)) >= 0)
        if (!queues->blocked[type] && fit(policy, scheduler, job, type))
            return true;
    while ((type = erg_asked_next_type(scheduler, job, ERG_PLANS_ANY, type)) >= 0)
        queues->blocked[type] = true;
    return false;
}

/* The oldest job that nobody blocks: the type of its queue; `any_at` is where the last queue is
 * looked at. -1: there is none. */
static int next_queue(const struct erg_queues *queues, const struct erg_scheduler *scheduler,
                      size_t any_at)
{
    const struct erg_queue *any = &queues->items[queues->types];
    int best = any_at < any->count ? queues->types : -1;
    int oldest = best < 0 ? -1 : any->items[any_at];
    for (int type = 0; type < queues->types; type++) {
        const struct erg_queue *queue = &queues->items[type];
        if (queues->blocked[type] || queue->first == queue->count)
            continue;
        int job = queue->items[queue->first];
        if (oldest < 0 || erg_scheduler_before(scheduler, job, oldest)) {
            oldest = job;
            best = type;
        }
    }
    return best;
}

static bool all_blocked(const struct erg_queues *queues)
{
    for (int type = 0; type < queues->types; type++)
        if (!queues->blocked[type])
            return false;
    return true;
}

static void serve(struct erg_queues *queues, struct erg_scheduler *scheduler, erg_queues_fit *fit,
                  void *policy)
{
    struct erg_queue *any = &queues->items[queues->types];
    size_t any_at = any->first;
    int type;
    memset(queues->blocked, 0, (size_t)queues->types * sizeof *queues->blocked);
    while (!all_blocked(queues) && (type = next_queue(queues, scheduler, any_at)) >= 0) {
        struct erg_queue *queue = &queues->items[type];
        if (type < queues->types) {
            queues->blocked[type] = !fit(policy, scheduler, queue->items[queue->first], type);
            queue->first += !queues->blocked[type];
        } else if (fit_anywhere(queues, scheduler, any->items[any_at], fit, policy)) {
            memmove(any->items + any->first + 1, any->items + any->first,
                    (any_at - any->first) * sizeof *any->items);
            any_at++;
            any->first++;
        } else {
            any_at++;
        }
    }
}

void erg_queues_serve(struct erg_queues *queues, struct erg_scheduler *scheduler,
                      const struct erg_occasion *occasion, erg_queues_fit *fit, void *policy)
{
    for (size_t i = 0; i < occasion->evicted_count; i++)
        enqueue(queues, scheduler, occasion->evicted[i]);
    for (size_t i = 0; i < occasion->arrived_count; i++) {
        int job = occasion->arrived[i];
        if (erg_asked_type(scheduler, job, ERG_PLANS_ANY) >= 0)
            enqueue(queues, scheduler, job);
        else
            erg_scheduler_reject(scheduler, job);
    }
    serve(queues, scheduler, fit, policy);
}

bool erg_queues_wait_for(const struct erg_queues *queues, const struct erg_scheduler *scheduler,
                         int type)
{
    const struct erg_queue *own = &queues->items[type], *any = &queues->items[queues->types];
    bool waits = own->first < own->count;
    for (size_t i = any->first; i < any->count && !waits; i++)
        waits = erg_asked_shape(scheduler, any->items[i], type, ERG_PLANS_ANY) >= 0;
    return waits;
}
