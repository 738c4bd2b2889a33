/*
 * Tiresias: least attained service in two dimensions, with discretized queues.
 *
 * Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019,
 * sections 3.2 and 3.3 (2D-LAS). Nothing is assumed of how long a job will run. Its priority falls
 * with the GPU-seconds that it has had, in steps: a job sinks to the next queue each time that they
 * pass a threshold. Within a queue the job that was submitted first goes first. Jobs of the first
 * queues have their GPUs at once; others are preempted for them.
 *
 * Departures: every type of GPU has queues of its own, since a job gets the type and number of GPUs
 * that it asked for. Thresholds are to be set for a cluster; here they are decades of GPU-hours.
 * Instead of guessing from a model's tensors whether it must be consolidated, its known speeds say
 * on how many nodes it can run. Nobody is preempted unless somebody above gets the room.
 */
#include "cluster/asked.h"
#include "cluster/policies.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_S 3600.0
static const double thresholds_gpu_s[] = {1 * HOUR_S, 10 * HOUR_S, 100 * HOUR_S};
enum { THRESHOLDS = sizeof thresholds_gpu_s / sizeof *thresholds_gpu_s };

/* The jobs of a type that have not ended, by priority. */
struct line {
    int *items;
    size_t count, capacity;
    bool changed; /* since it was last served */
};

struct tiresias {
    struct line *lines; /* by type */
    int types;
    int *type_of;          /* by job: where it lines up */
    unsigned char *levels; /* by job: its queue */
    bool *chosen;          /* by job, while its line is served */
};

static int open_tiresias(void **state, const struct erg_scheduler *scheduler, struct erg_error *err)
{
    (void)err;
    struct tiresias *tiresias = erg_xcalloc(1, sizeof *tiresias);
    size_t jobs = scheduler->jobs_count;
    tiresias->types = (int)scheduler->fleet->types_count;
    tiresias->lines = erg_xcalloc((size_t)tiresias->types, sizeof *tiresias->lines);
    tiresias->type_of = erg_xcalloc(jobs, sizeof *tiresias->type_of);
    tiresias->levels = erg_xcalloc(jobs, sizeof *tiresias->levels);
    tiresias->chosen = erg_xcalloc(jobs, sizeof *tiresias->chosen);
    *state = tiresias;
    return 0;
}

static void close_tiresias(void *state)
{
    struct tiresias *tiresias = state;
    for (int type = 0; type < tiresias->types; type++)
        free(tiresias->lines[type].items);
    free(tiresias->lines);
    free(tiresias->type_of);
    free(tiresias->levels);
    free(tiresias->chosen);
    free(tiresias);
}

/* Whether job a goes before job b; ids are in the order of the trace. */
static bool before(const struct tiresias *tiresias, const struct erg_scheduler *scheduler, int a,
                   int b)
{
    if (tiresias->levels[a] != tiresias->levels[b])
        return tiresias->levels[a] < tiresias->levels[b];
    if (scheduler->jobs[a].submitted_s != scheduler->jobs[b].submitted_s)
        return scheduler->jobs[a].submitted_s < scheduler->jobs[b].submitted_s;
    return a < b;
}

/* Where a job stands in its line, or would. */
static size_t position(const struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                       const struct line *line, int job)
{
    size_t low = 0, high = line->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (before(tiresias, scheduler, line->items[middle], job))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void line_insert(const struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                        struct line *line, int job)
{
    size_t at = position(tiresias, scheduler, line, job);
    ERG_RESERVE(line, items, 1);
    memmove(line->items + at + 1, line->items + at, (line->count++ - at) * sizeof *line->items);
    line->items[at] = job;
    line->changed = true;
}

static void line_remove(const struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                        struct line *line, int job)
{
    size_t at = position(tiresias, scheduler, line, job);
    memmove(line->items + at, line->items + at + 1, (--line->count - at) * sizeof *line->items);
    line->changed = true;
}

/* Moves running jobs whose service has passed a threshold. */
static void demote(struct tiresias *tiresias, const struct erg_scheduler *scheduler)
{
    for (int job = scheduler->running.first; job >= 0; job = scheduler->jobs[job].next) {
        struct line *line = &tiresias->lines[tiresias->type_of[job]];
        double attained = erg_scheduler_attained(scheduler, job);
        int level = tiresias->levels[job];
        /* A moment's worth of rounding does not matter, but waking for it again and again would. */
        while (level < THRESHOLDS && attained >= thresholds_gpu_s[level] * (1 - 1e-9))
            level++;
        if (level == tiresias->levels[job])
            continue;
        line_remove(tiresias, scheduler, line, job);
        tiresias->levels[job] = (unsigned char)level;
        line_insert(tiresias, scheduler, line, job);
    }
}

/* Has the policy called when the first of the running jobs will pass a threshold. */
static void wake(const struct tiresias *tiresias, struct erg_scheduler *scheduler)
{
    double next_s = INFINITY;
    for (int job = scheduler->running.first; job >= 0; job = scheduler->jobs[job].next)
        if (tiresias->levels[job] < THRESHOLDS)
            next_s = fmin(next_s, (thresholds_gpu_s[tiresias->levels[job]] -
                                   erg_scheduler_attained(scheduler, job)) /
                                      erg_placement_gpus(&scheduler->jobs[job].placement));
    if (!isinf(next_s))
        erg_scheduler_wake(scheduler, scheduler->now_s + next_s);
}

static bool fit(struct erg_scheduler *scheduler, int job, int type)
{
    int shape = erg_asked_shape(scheduler, job, type, ERG_PLANS_ANY);
    return erg_fit_relaxed(scheduler, job, shape, ERG_PLANS_ANY, ERG_LEAST_FREE);
}

/* Places a job, if need be on the GPUs of those at the end of the line that should not have any. */
static bool fit_or_preempt(const struct tiresias *tiresias, struct erg_scheduler *scheduler,
                           struct line *line, int job, int type, size_t *preempted_from)
{
    while (!fit(scheduler, job, type)) {
        int last = -1;
        while (last < 0 && *preempted_from > 0) {
            int candidate = line->items[--*preempted_from];
            if (!tiresias->chosen[candidate] && scheduler->jobs[candidate].state == ERG_JOB_RUNNING)
                last = candidate;
        }
        if (last < 0)
            return false;
        erg_scheduler_suspend(scheduler, last);
    }
    return true;
}

/* Gives a type's GPUs to the first of its line. */
static void serve(struct tiresias *tiresias, struct erg_scheduler *scheduler, int type)
{
    struct line *line = &tiresias->lines[type];
    size_t end = 0, preempted_from = line->count;
    int left = 0;
    for (size_t i = 0; i < line->count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[line->items[i]];
        if (job->state == ERG_JOB_RUNNING)
            left += job->request->gpus;
    }
    left += scheduler->occupancy->free_gpus[type];
    for (; end < line->count && left > 0; end++) {
        int asked = scheduler->jobs[line->items[end]].request->gpus;
        tiresias->chosen[line->items[end]] = asked <= left;
        left -= asked <= left ? asked : 0;
    }
    for (size_t i = 0; i < end; i++)
        if (tiresias->chosen[line->items[i]] &&
            scheduler->jobs[line->items[i]].state == ERG_JOB_WAITING)
            fit_or_preempt(tiresias, scheduler, line, line->items[i], type, &preempted_from);
    for (size_t i = 0; i < line->count && scheduler->occupancy->free_gpus[type] > 0; i++)
        if (scheduler->jobs[line->items[i]].state == ERG_JOB_WAITING &&
            scheduler->jobs[line->items[i]].request->gpus <= scheduler->occupancy->free_gpus[type])
            fit(scheduler, line->items[i], type);
    for (size_t i = 0; i < end; i++)
        tiresias->chosen[line->items[i]] = false;
    line->changed = false;
}

static int decide_tiresias(void *state, struct erg_scheduler *scheduler,
                           const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)err;
    struct tiresias *tiresias = state;
    for (size_t i = 0; i < occasion->ended_count; i++) {
        int job = occasion->ended[i];
        line_remove(tiresias, scheduler, &tiresias->lines[tiresias->type_of[job]], job);
    }
    for (size_t i = 0; i < occasion->arrived_count; i++) {
        int job = occasion->arrived[i], type = erg_asked_type(scheduler, job, ERG_PLANS_ANY);
        if (type < 0) {
            erg_scheduler_reject(scheduler, job);
            continue;
        }
        tiresias->type_of[job] = type;
        line_insert(tiresias, scheduler, &tiresias->lines[type], job);
    }
    demote(tiresias, scheduler);
    bool nodes_changed = occasion->events & (ERG_EVENT_FAILURE | ERG_EVENT_REPAIR);
    for (int type = 0; type < tiresias->types; type++)
        if (tiresias->lines[type].changed || nodes_changed)
            serve(tiresias, scheduler, type);
    wake(tiresias, scheduler);
    return 0;
}

const struct erg_policy erg_policy_tiresias = {
    .name = "tiresias",
    .summary = "least attained service first, in GPU-hours, with preemption",
    .events = ERG_EVENT_ARRIVAL | ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR,
    .open = open_tiresias,
    .decide = decide_tiresias,
    .close = close_tiresias,
};
