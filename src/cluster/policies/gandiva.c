/*
 * Gandiva: first come, first served, with jobs that migrate to better places and grow into idle
 * GPUs.
 *
 * Source: Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018,
 * sections 3.2 to 3.4, in the form of Arena's published comparison. A job keeps its requested type
 * and waits while an earlier one of that type waits (queues.h). It runs on more nodes than it needs
 * where few GPUs are free. When GPUs are free, jobs that are spread over more nodes than they need
 * migrate together, and jobs of one node double their GPUs there as long as that makes them faster.
 * They return GPUs beyond their request as soon as another job waits for them.
 *
 * Departures: no time slicing and no packing of two jobs on a GPU, since here every suspension
 * costs a restart, and profiles do not cover shared GPUs. For the same reason a job migrates or
 * grows only if it then ends earlier.
 */
#include "cluster/policies/policies.h"
#include "cluster/policies/queues.h"
#include "cluster/schedule/asked.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct gandiva {
    struct erg_queues queues;
    struct erg_placement placement; /* scratch */
};

static void *open_gandiva(const struct erg_scheduler *scheduler, const void *rules)
{
    (void)rules;
    struct gandiva *gandiva = erg_xcalloc(1, sizeof *gandiva);
    erg_queues_init(&gandiva->queues, scheduler);
    return gandiva;
}

static void close_gandiva(void *state)
{
    struct gandiva *gandiva = state;
    erg_queues_release(&gandiva->queues);
    erg_placement_release(&gandiva->placement);
    free(gandiva);
}

static int gpus_of(const struct erg_scheduler *scheduler, int job)
{
    return erg_placement_gpus(&scheduler->jobs[job].placement);
}

static bool runs_on(const struct erg_scheduler *scheduler, int job, int type)
{
    return scheduler->speeds->shapes[scheduler->jobs[job].shape].type == type;
}

static bool has_grown(const struct erg_scheduler *scheduler, int job)
{
    return gpus_of(scheduler, job) > scheduler->jobs[job].request->gpus;
}

/* Takes back GPUs beyond a job's request; it keeps the first GPUs of its node. */
static void shrink(struct gandiva *gandiva, struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    const struct erg_slice *slice = &job->placement.slices[0];
    gandiva->placement.count = 0;
    erg_placement_add(&gandiva->placement, slice->node,
                      erg_gpus_lowest(slice->gpus, job->request->gpus));
    erg_scheduler_place(scheduler, id, &gandiva->placement, 0);
}

/* Places a job, if necessary on GPUs that others have grown into. */
static bool fit_or_reclaim(void *state, struct erg_scheduler *scheduler, int job, int type)
{
    struct gandiva *gandiva = state;
    if (erg_asked_fit(scheduler, job, type, ERG_LEAST_FREE))
        return true;
    int reclaimable = scheduler->occupancy->free_gpus[type];
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next)
        if (runs_on(scheduler, id, type) && has_grown(scheduler, id))
            reclaimable += gpus_of(scheduler, id) - scheduler->jobs[id].request->gpus;
    if (reclaimable < scheduler->jobs[job].request->gpus)
        return false;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        if (!runs_on(scheduler, id, type) || !has_grown(scheduler, id))
            continue;
        shrink(gandiva, scheduler, id);
        if (erg_asked_fit(scheduler, job, type, ERG_LEAST_FREE))
            return true;
    }
    return false;
}

/* Returns true if a job ends earlier on another shape, including the restart. */
static bool pays(const struct erg_scheduler *scheduler, int id, int shape)
{
    const struct erg_speed *there = erg_scheduler_speed(scheduler, id, shape);
    const struct erg_speed *here = erg_scheduler_speed(scheduler, id, scheduler->jobs[id].shape);
    if (!erg_speed_feasible(there))
        return false;
    double saved_s =
        erg_scheduler_remaining(scheduler, id) * (here->iteration_s - there->iteration_s);
    int gpus = erg_shape_gpus(&scheduler->speeds->shapes[shape]);
    return saved_s > erg_scheduler_cost(scheduler, id, scheduler->speeds->shapes[shape].type, gpus);
}

/* Moves a job to as few nodes as possible. */
static void migrate(struct erg_scheduler *scheduler, int id)
{
    const struct erg_gpu_shape *now = &scheduler->speeds->shapes[scheduler->jobs[id].shape];
    int best = erg_speeds_best(scheduler->speeds, now->type, erg_shape_gpus(now));
    if (best != scheduler->jobs[id].shape && pays(scheduler, id, best))
        erg_scheduler_fit(scheduler, id, best, ERG_LEAST_FREE, 0);
}

/* Doubles the GPUs of a job within its node, once; false if that is impossible or useless. */
static bool grow(struct gandiva *gandiva, struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    if (job->placement.count != 1)
        return false;
    const struct erg_slice *slice = &job->placement.slices[0];
    int gpus = gpus_of(scheduler, id), type = scheduler->speeds->shapes[job->shape].type;
    int shape = erg_speeds_shape(scheduler->speeds, type, 1, 2 * gpus);
    if (shape < 0 || erg_occupancy_free_of(scheduler->occupancy, slice->node) < gpus ||
        !pays(scheduler, id, shape))
        return false;
    gandiva->placement.count = 0;
    erg_placement_add(&gandiva->placement, slice->node,
                      slice->gpus | erg_gpus_lowest(scheduler->occupancy->free[slice->node], gpus));
    erg_scheduler_place(scheduler, id, &gandiva->placement, 0);
    return true;
}

static int decide_gandiva(void *state, struct erg_scheduler *scheduler,
                          const struct erg_occasion *occasion, struct erg_error *err)
{
    struct gandiva *gandiva = state;
    (void)err;
    erg_queues_serve(&gandiva->queues, scheduler, occasion, fit_or_reclaim, gandiva);
    if (!(occasion->events & (ERG_EVENT_END | ERG_EVENT_REPAIR)))
        return 0;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        migrate(scheduler, id);
        int type = scheduler->speeds->shapes[scheduler->jobs[id].shape].type;
        while (!erg_queues_wait_for(&gandiva->queues, type) && grow(gandiva, scheduler, id))
            continue;
    }
    return 0;
}

const struct erg_policy erg_policy_gandiva = {
    .name = "gandiva",
    .summary = "first come, first served; jobs migrate together and grow into idle GPUs",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_gandiva,
    .decide = decide_gandiva,
    .close = close_gandiva,
};
