/* The scheduler: states and GPUs of jobs, and the log of what a policy changes. */
#include "cluster/schedule/scheduler_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static void list_append(struct erg_scheduler *scheduler, struct erg_job_list *list, int id)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    job->next = -1;
    job->previous = list->last;
    if (list->last >= 0)
        scheduler->jobs[list->last].next = id;
    else
        list->first = id;
    list->last = id;
    list->count++;
}

static void list_remove(struct erg_scheduler *scheduler, struct erg_job_list *list, int id)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    if (job->previous >= 0)
        scheduler->jobs[job->previous].next = job->next;
    else
        list->first = job->next;
    if (job->next >= 0)
        scheduler->jobs[job->next].previous = job->previous;
    else
        list->last = job->previous;
    list->count--;
}

static void set_state(struct erg_scheduler *scheduler, int id, enum erg_cluster_job_state state)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    if (job->state == ERG_JOB_WAITING)
        list_remove(scheduler, &scheduler->waiting, id);
    else if (job->state == ERG_JOB_RUNNING)
        list_remove(scheduler, &scheduler->running, id);
    job->state = state;
    job->next = job->previous = -1;
    if (state == ERG_JOB_WAITING)
        list_append(scheduler, &scheduler->waiting, id);
    else if (state == ERG_JOB_RUNNING)
        list_append(scheduler, &scheduler->running, id);
}

struct erg_scheduler *erg_scheduler_new(const struct erg_fleet *fleet,
                                        const struct erg_job_trace *trace,
                                        const struct erg_speeds *speeds,
                                        const struct erg_policy *policy,
                                        const struct erg_accounting *accounting)
{
    struct erg_scheduler *scheduler = erg_xcalloc(1, sizeof *scheduler);
    struct erg_change_log *changes = erg_xcalloc(1, sizeof *changes);
    *scheduler = (struct erg_scheduler){
        .fleet = fleet,
        .trace = trace,
        .speeds = speeds,
        .jobs = erg_xcalloc(trace->count, sizeof *scheduler->jobs),
        .jobs_count = trace->count,
        .waiting = {-1, -1, 0},
        .running = {-1, -1, 0},
        .occupancy = erg_occupancy_new(fleet),
        .ready_s = erg_xcalloc((size_t)fleet->nodes, sizeof *scheduler->ready_s),
        .power_cap_w = INFINITY,
        .accounting = accounting ? accounting : &erg_accounting_fair,
        .policy = policy,
        .works = erg_xcalloc(trace->count, sizeof *scheduler->works),
        .changes = changes,
    };
    changes->entry_of = erg_xmalloc(trace->count * sizeof *changes->entry_of);
    changes->used_s = erg_xcalloc(trace->count, sizeof *changes->used_s);
    changes->wake_s = INFINITY;
    for (size_t i = 0; i < trace->count; i++) {
        changes->entry_of[i] = -1;
        scheduler->jobs[i] = (struct erg_cluster_job){
            .id = (int)i,
            .request = &trace->jobs[i],
            .iterations = trace->jobs[i].iterations,
            .shape = -1,
            .started_s = NAN,
            .next = -1,
            .previous = -1,
        };
    }
    return scheduler;
}

void erg_scheduler_free(struct erg_scheduler *scheduler)
{
    if (!scheduler)
        return;
    for (size_t i = 0; i < scheduler->jobs_count; i++)
        erg_placement_release(&scheduler->jobs[i].placement);
    for (size_t i = 0; i < scheduler->changes->capacity; i++)
        erg_placement_release(&scheduler->changes->items[i].placement);
    free(scheduler->changes->items);
    free(scheduler->changes->entry_of);
    free(scheduler->changes->used_s);
    free(scheduler->changes);
    free(scheduler->jobs);
    free(scheduler->works);
    free(scheduler->ready_s);
    erg_occupancy_free(scheduler->occupancy);
    free(scheduler);
}

void erg_scheduler_submit(struct erg_scheduler *scheduler, int id)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    job->submitted_s = scheduler->now_s;
    set_state(scheduler, id, ERG_JOB_WAITING);
}

/* Notes what a job was before it is changed for the first time. */
static struct erg_cluster_job *touch(struct erg_scheduler *scheduler, int id)
{
    struct erg_change_log *changes = scheduler->changes;
    struct erg_cluster_job *job = &scheduler->jobs[id];
    if (changes->entry_of[id] >= 0)
        return job;
    if (changes->count == changes->capacity) {
        size_t old = changes->capacity;
        ERG_RESERVE(changes, items, 1);
        for (size_t i = old; i < changes->capacity; i++)
            changes->items[i].placement = (struct erg_placement){0};
    }
    struct change *change = &changes->items[changes->count];
    change->job = id;
    change->state = job->state;
    change->point = job->point;
    erg_placement_assign(&change->placement, &job->placement);
    changes->entry_of[id] = (int)changes->count++;
    return job;
}

void erg_scheduler_settle(struct erg_scheduler *scheduler)
{
    struct erg_change_log *changes = scheduler->changes;
    for (size_t i = 0; i < changes->count; i++)
        changes->entry_of[changes->items[i].job] = -1;
    changes->count = 0;
}

/* Gives a job's GPUs back. */
static void strip(struct erg_scheduler *scheduler, struct erg_cluster_job *job)
{
    erg_occupancy_give(scheduler->occupancy, job->id, &job->placement);
    job->placement.count = 0;
    job->shape = -1;
    job->point = 0;
}

void erg_scheduler_end(struct erg_scheduler *scheduler, int id)
{
    strip(scheduler, &scheduler->jobs[id]);
    set_state(scheduler, id, ERG_JOB_ENDED);
}

double erg_scheduler_remaining(const struct erg_scheduler *scheduler, int id)
{
    return fmax(0, scheduler->accounting->remaining(&scheduler->works[id], scheduler->now_s));
}

double erg_scheduler_attained(const struct erg_scheduler *scheduler, int id)
{
    const struct erg_change_log *changes = scheduler->changes;
    int entry = changes->entry_of[id];
    const struct erg_placement *ran_on =
        entry < 0 ? &scheduler->jobs[id].placement : &changes->items[entry].placement;
    return changes->used_s[id] +
           erg_placement_gpus(ran_on) * (scheduler->now_s - scheduler->works[id].since_s);
}

const struct erg_speed *erg_scheduler_speed(const struct erg_scheduler *scheduler, int job,
                                            int shape)
{
    return erg_speed_at(scheduler->speeds, scheduler->jobs[job].request->workload, shape);
}

double erg_scheduler_cost(const struct erg_scheduler *scheduler, int gpus)
{
    return scheduler->accounting->cost(scheduler->fleet, scheduler->policy, gpus);
}

bool erg_scheduler_meets_deadline(const struct erg_scheduler *scheduler, int job, int gpus,
                                  const struct erg_speed *speed)
{
    double start_s =
        scheduler->now_s + scheduler->accounting->round_s + erg_scheduler_cost(scheduler, gpus);
    double run_s = floor(erg_scheduler_remaining(scheduler, job) * speed->iteration_s);
    return start_s + run_s <= scheduler->jobs[job].deadline_s;
}

double erg_scheduler_wait(const struct erg_scheduler *scheduler,
                          const struct erg_placement *placement)
{
    double wait_s = 0;
    for (int i = 0; i < placement->count; i++) {
        int node = placement->slices[i].node;
        wait_s = fmax(wait_s, scheduler->occupancy->off[node]
                                  ? scheduler->fleet->power_saving.wake_s
                                  : scheduler->ready_s[node] - scheduler->now_s);
    }
    return wait_s;
}

static int shape_of(const struct erg_scheduler *scheduler, const struct erg_placement *placement)
{
    int gpus = __builtin_popcountll(placement->slices[0].gpus);
    for (int i = 1; i < placement->count; i++)
        assert(__builtin_popcountll(placement->slices[i].gpus) == gpus);
    return erg_speeds_shape(scheduler->speeds,
                            scheduler->occupancy->type_of[placement->slices[0].node],
                            placement->count, gpus);
}

void erg_scheduler_place(struct erg_scheduler *scheduler, int id,
                         const struct erg_placement *placement, int point)
{
    struct erg_cluster_job *job = touch(scheduler, id);
    assert(job->state == ERG_JOB_WAITING || job->state == ERG_JOB_RUNNING);
    assert(placement->count > 0);
    if (job->placement.count > 0 && placement != &job->placement)
        strip(scheduler, job);
    if (placement != &job->placement) {
        erg_placement_assign(&job->placement, placement);
        erg_occupancy_take(scheduler->occupancy, id, placement);
    }
    job->shape = shape_of(scheduler, placement);
    job->point = point;
    assert(job->shape >= 0);
    if (job->state == ERG_JOB_WAITING)
        set_state(scheduler, id, ERG_JOB_RUNNING);
}

bool erg_scheduler_fit(struct erg_scheduler *scheduler, int id, int shape,
                       enum erg_node_order order, int point)
{
    struct erg_cluster_job *job = &scheduler->jobs[id];
    struct erg_placement found = {0};
    erg_occupancy_give(scheduler->occupancy, id, &job->placement);
    bool fits =
        erg_occupancy_find(scheduler->occupancy, &scheduler->speeds->shapes[shape], order, &found);
    erg_occupancy_take(scheduler->occupancy, id, &job->placement);
    if (fits)
        erg_scheduler_place(scheduler, id, &found, point);
    erg_placement_release(&found);
    return fits;
}

void erg_scheduler_lift(struct erg_scheduler *scheduler, int id)
{
    struct erg_cluster_job *job = touch(scheduler, id);
    assert(job->state == ERG_JOB_RUNNING);
    strip(scheduler, job);
}

void erg_scheduler_suspend(struct erg_scheduler *scheduler, int id)
{
    erg_scheduler_lift(scheduler, id);
    set_state(scheduler, id, ERG_JOB_WAITING);
}

void erg_scheduler_reject(struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = touch(scheduler, id);
    assert(job->state == ERG_JOB_WAITING);
    (void)job;
    set_state(scheduler, id, ERG_JOB_REJECTED);
}

void erg_scheduler_wake(struct erg_scheduler *scheduler, double at_s)
{
    scheduler->changes->wake_s = fmin(scheduler->changes->wake_s, at_s);
}
