/*
 * First come, first served.
 *
 * Source: the baseline of Arena's published comparison. A job gets its requested type and number of
 * GPUs, on as few nodes as possible, and keeps them until it ends. It waits while an earlier job
 * that requested the same type waits (queues.h). The relaxed form uses more nodes, with equal
 * numbers of GPUs, if fewer nodes have no room.
 */
#include "cluster/policies/policies.h"
#include "cluster/policies/queues.h"
#include "cluster/schedule/asked.h"

#include "base/memory.h"

#include <stdlib.h>

struct fcfs {
    struct erg_queues queues;
    bool relaxed;
};

static void *open_fcfs(const struct erg_scheduler *scheduler, const void *rules)
{
    struct fcfs *fcfs = erg_xcalloc(1, sizeof *fcfs);
    erg_queues_init(&fcfs->queues, scheduler);
    fcfs->relaxed = rules != NULL;
    return fcfs;
}

static void close_fcfs(void *state)
{
    struct fcfs *fcfs = state;
    erg_queues_release(&fcfs->queues);
    free(fcfs);
}

static bool fit(void *state, struct erg_scheduler *scheduler, int job, int type)
{
    const struct fcfs *fcfs = state;
    if (fcfs->relaxed)
        return erg_asked_fit(scheduler, job, type, ERG_MOST_FREE);
    return erg_scheduler_fit(scheduler, job, erg_asked_shape(scheduler, job, type), ERG_MOST_FREE,
                             0);
}

static int decide_fcfs(void *state, struct erg_scheduler *scheduler,
                       const struct erg_occasion *occasion, struct erg_error *err)
{
    struct fcfs *fcfs = state;
    (void)err;
    erg_queues_serve(&fcfs->queues, scheduler, occasion, fit, fcfs);
    return 0;
}

const struct erg_policy erg_policy_fcfs = {
    .name = "fcfs",
    .summary = "first come, first served, on the requested GPUs",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_fcfs,
    .decide = decide_fcfs,
    .close = close_fcfs,
};

const struct erg_policy erg_policy_fcfs_relaxed = {
    .name = "fcfs-relaxed",
    .summary = "first come, first served, spread over more nodes if fewer have no room",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = "relaxed",
    .open = open_fcfs,
    .decide = decide_fcfs,
    .close = close_fcfs,
};
