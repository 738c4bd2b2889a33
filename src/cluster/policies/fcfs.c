/*
 * First come, first served.
 *
 * Source: the baseline of Arena's published comparison. A job gets the type and the number of GPUs
 * that it asked for, on as few nodes as they need, and keeps them to its end. It waits while a job
 * that asked for the same type before it waits (queues.h). The relaxed form takes more nodes, with
 * equally many GPUs on each, where few are not free.
 */
#include "cluster/policies/policies.h"
#include "cluster/policies/queues.h"
#include "cluster/schedule/asked.h"

#include "base/memory.h"

#include <stdlib.h>

static int open_fcfs(void **state, const struct erg_scheduler *scheduler, struct erg_error *err)
{
    (void)err;
    struct erg_queues *queues = erg_xcalloc(1, sizeof *queues);
    erg_queues_init(queues, scheduler);
    *state = queues;
    return 0;
}

static void close_fcfs(void *state)
{
    erg_queues_release(state);
    free(state);
}

static bool fit_strict(void *state, struct erg_scheduler *scheduler, int job, int type)
{
    (void)state;
    return erg_scheduler_fit(scheduler, job, erg_asked_shape(scheduler, job, type), ERG_MOST_FREE,
                             0);
}

static bool fit_relaxed(void *state, struct erg_scheduler *scheduler, int job, int type)
{
    (void)state;
    return erg_fit_relaxed(scheduler, job, erg_asked_shape(scheduler, job, type), ERG_MOST_FREE);
}

static int decide_strict(void *state, struct erg_scheduler *scheduler,
                         const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)err;
    erg_queues_serve(state, scheduler, occasion, fit_strict, state);
    return 0;
}

static int decide_relaxed(void *state, struct erg_scheduler *scheduler,
                          const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)err;
    erg_queues_serve(state, scheduler, occasion, fit_relaxed, state);
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
