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
    assert(list->count > 0);
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

void erg_scheduler_set_state(struct erg_scheduler *scheduler, int id,
                             enum erg_cluster_job_state state)
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

void erg_scheduler_reserve(struct erg_scheduler *scheduler, size_t jobs)
{
    struct erg_change_log *changes = scheduler->changes;
    if (jobs <= scheduler->jobs_room)
        return;
    size_t room = erg_grow_capacity(scheduler->jobs_room, jobs);
    scheduler->jobs = erg_xrealloc(scheduler->jobs, room, sizeof *scheduler->jobs);
    scheduler->works = erg_xrealloc(scheduler->works, room, sizeof *scheduler->works);
    changes->entry_of = erg_xrealloc(changes->entry_of, room, sizeof *changes->entry_of);
    changes->used_s = erg_xrealloc(changes->used_s, room, sizeof *changes->used_s);
    scheduler->restarts->of_jobs =
        erg_xrealloc(scheduler->restarts->of_jobs, room, sizeof *scheduler->restarts->of_jobs);
    assert(room >= jobs);
    scheduler->jobs_room = room;
    scheduler->course->stale = true;
}

void erg_scheduler_init_job(struct erg_scheduler *scheduler, int id)
{
    const struct erg_trace_job *request = &scheduler->trace->jobs[id];
    scheduler->changes->entry_of[id] = -1;
    scheduler->changes->used_s[id] = 0;
    scheduler->works[id] = (struct erg_work){0};
    scheduler->restarts->of_jobs[id] = (struct erg_time_sum){0};
    scheduler->jobs[id] = (struct erg_cluster_job){
        .id = id,
        .request = request,
        .iterations = request->iterations,
        .shape = -1,
        .started_s = NAN,
        .next = -1,
        .previous = -1,
    };
}

struct erg_scheduler *erg_scheduler_new(const struct erg_fleet *fleet,
                                        const struct erg_job_trace *trace,
                                        const struct erg_speeds *speeds,
                                        const struct erg_policy *policy,
                                        const struct erg_accounting *accounting)
{
    struct erg_scheduler *scheduler = erg_xcalloc(1, sizeof *scheduler);
    size_t jobs = trace->count, types = fleet->types_count;
    *scheduler = (struct erg_scheduler){
        .fleet = fleet,
        .trace = trace,
        .speeds = speeds,
        .jobs = erg_xcalloc(jobs, sizeof *scheduler->jobs),
        .jobs_count = jobs,
        .jobs_room = jobs,
        .workloads_room = trace->workloads_count,
        .tenants_room = trace->tenants_count,
        .waiting = {-1, -1, 0},
        .running = {-1, -1, 0},
        .occupancy = erg_occupancy_new(fleet),
        .ready_s = erg_xcalloc((size_t)fleet->nodes, sizeof *scheduler->ready_s),
        .power_cap_w = INFINITY,
        .throttle = 1,
        .accounting = accounting ? accounting : &erg_accounting_fair,
        .policy = policy,
        .works = erg_xcalloc(jobs, sizeof *scheduler->works),
        .changes = erg_xcalloc(1, sizeof *scheduler->changes),
        .course = erg_xcalloc(1, sizeof *scheduler->course),
        .restarts = erg_xcalloc(1, sizeof *scheduler->restarts),
    };
    scheduler->changes->entry_of = erg_xcalloc(jobs, sizeof *scheduler->changes->entry_of);
    scheduler->changes->used_s = erg_xcalloc(jobs, sizeof *scheduler->changes->used_s);
    scheduler->changes->wake_s = INFINITY;
    scheduler->course->stale = true;
    *scheduler->restarts = (struct erg_restart_times){
        .of_jobs = erg_xcalloc(jobs, sizeof *scheduler->restarts->of_jobs),
        .starts = erg_xcalloc(types, sizeof *scheduler->restarts->starts),
        .again = erg_xcalloc(types, sizeof *scheduler->restarts->again),
    };
    for (size_t i = 0; i < jobs; i++)
        erg_scheduler_init_job(scheduler, (int)i);
    return scheduler;
}

static void free_live(struct erg_live_tables *live)
{
    if (!live)
        return;
    for (size_t i = 0; i < live->trace.workloads_count; i++) {
        free(live->trace.workloads[i].family);
        free(live->trace.workloads[i].size);
    }
    free(live->trace.workloads);
    free(live->trace.jobs); /* the tables own their names and tenants */
    erg_name_table_release(&live->names);
    erg_name_table_release(&live->tenants);
    erg_name_table_release(&live->workloads);
    free(live);
}

void erg_scheduler_free(struct erg_scheduler *scheduler)
{
    if (!scheduler)
        return;
    erg_course_release(scheduler);
    for (size_t i = 0; i < scheduler->jobs_count; i++)
        erg_placement_release(&scheduler->jobs[i].placement);
    for (size_t i = 0; i < scheduler->changes->capacity; i++)
        erg_placement_release(&scheduler->changes->items[i].placement);
    free(scheduler->changes->items);
    free(scheduler->changes->entry_of);
    free(scheduler->changes->used_s);
    free(scheduler->changes);
    free(scheduler->restarts->of_jobs);
    free(scheduler->restarts->starts);
    free(scheduler->restarts->again);
    free(scheduler->restarts);
    free(scheduler->jobs);
    free(scheduler->works);
    free(scheduler->ready_s);
    erg_occupancy_free(scheduler->occupancy);
    free_live(scheduler->live);
    free(scheduler);
}

/* Records a job's state before its first change. */
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
    assert(changes->count < changes->capacity);
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

void erg_scheduler_strip(struct erg_scheduler *scheduler, struct erg_cluster_job *job)
{
    erg_occupancy_give(scheduler->occupancy, job->id, &job->placement);
    job->placement.count = 0;
    job->shape = -1;
    job->point = 0;
}

struct told_job {
    double submitted_s;
    int id;
};

static int compare_told(const void *a, const void *b)
{
    const struct told_job *x = a, *y = b;
    if (x->submitted_s != y->submitted_s)
        return x->submitted_s < y->submitted_s ? -1 : 1;
    return x->id - y->id;
}

size_t erg_scheduler_told(const struct erg_scheduler *scheduler, int **jobs)
{
    const int firsts[] = {scheduler->waiting.first, scheduler->running.first};
    size_t most = (size_t)scheduler->waiting.count + (size_t)scheduler->running.count, count = 0;
    struct told_job *told = erg_xcalloc(most + 1, sizeof *told);
    *jobs = erg_xcalloc(most + 1, sizeof **jobs);
    for (int list = 0; list < 2; list++)
        for (int id = firsts[list]; id >= 0; id = scheduler->jobs[id].next)
            if (scheduler->jobs[id].told)
                told[count++] = (struct told_job){scheduler->jobs[id].submitted_s, id};
    assert(count <= most);
    qsort(told, count, sizeof *told, compare_told);
    for (size_t i = 0; i < count; i++)
        (*jobs)[i] = told[i].id;
    free(told);
    return count;
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

double erg_scheduler_cost(const struct erg_scheduler *scheduler, int job, int type, int gpus)
{
    return scheduler->accounting->cost(scheduler, job, type, gpus);
}

bool erg_scheduler_meets_deadline(const struct erg_scheduler *scheduler, int job, int type,
                                  int gpus, const struct erg_speed *speed)
{
    double start_s = scheduler->now_s + scheduler->accounting->round_s +
                     erg_scheduler_cost(scheduler, job, type, gpus);
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

int erg_scheduler_shape(const struct erg_scheduler *scheduler,
                        const struct erg_placement *placement)
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
        erg_scheduler_strip(scheduler, job);
    if (placement != &job->placement) {
        erg_placement_assign(&job->placement, placement);
        erg_occupancy_take(scheduler->occupancy, id, placement);
    }
    job->shape = erg_scheduler_shape(scheduler, placement);
    job->point = point;
    assert(job->shape >= 0);
    if (job->state == ERG_JOB_WAITING)
        erg_scheduler_set_state(scheduler, id, ERG_JOB_RUNNING);
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
    erg_scheduler_strip(scheduler, job);
}

void erg_scheduler_suspend(struct erg_scheduler *scheduler, int id)
{
    erg_scheduler_lift(scheduler, id);
    erg_scheduler_set_state(scheduler, id, ERG_JOB_WAITING);
}

void erg_scheduler_reject(struct erg_scheduler *scheduler, int id)
{
    const struct erg_cluster_job *job = touch(scheduler, id);
    assert(job->state == ERG_JOB_WAITING);
    (void)job;
    erg_scheduler_set_state(scheduler, id, ERG_JOB_REJECTED);
}

void erg_scheduler_wake(struct erg_scheduler *scheduler, double at_s)
{
    scheduler->changes->wake_s = fmin(scheduler->changes->wake_s, at_s);
}
