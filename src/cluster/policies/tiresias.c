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
 * that it asked for; one that names no type lines up where it is fastest, and takes GPUs of another
 * type when those would idle. Thresholds are to be set for a cluster; here they are decades of
 * GPU-hours. Instead of guessing from a model's tensors whether it must be consolidated, its known
 * speeds say on how many nodes it can run. A job is preempted only if a job of a higher queue gets
 * its GPUs.
 */
#include "cluster/policies/policies.h"
#include "cluster/schedule/asked.h"
#include "cluster/schedule/event_heap_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_S 3600.0
static const double thresholds_gpu_s[] = {1 * HOUR_S, 10 * HOUR_S, 100 * HOUR_S};
enum { THRESHOLDS = sizeof thresholds_gpu_s / sizeof *thresholds_gpu_s };

/* Events this close count as now, so that rounding alone does not call the policy again. */
#define ROUNDING_S 1e-6

/* The jobs of a type that have not ended, by priority. */
struct type_line {
    int *items;
    size_t count, capacity;
    size_t waiting; /* of them */
    int busy_gpus;  /* of the others */
    bool changed;   /* since its jobs were last served */
};

struct tiresias {
    struct type_line *lines; /* by type */
    int types;
    int *type_of;                  /* by job: the type of its line */
    unsigned char *levels;         /* by job: its queue */
    bool *chosen;                  /* by job, while its line is served */
    struct erg_event_heap sinking; /* running jobs by when they will pass a threshold */
};

static void close_tiresias(void *state)
{
    struct tiresias *tiresias = state;
    for (int type = 0; type < tiresias->types; type++)
        free(tiresias->lines[type].items);
    free(tiresias->lines);
    free(tiresias->type_of);
    free(tiresias->levels);
    free(tiresias->chosen);
    erg_event_heap_release(&tiresias->sinking);
    free(tiresias);
}

/* Returns true if job a precedes job b. */
static bool before(const struct tiresias *tiresias, const struct erg_scheduler *scheduler, int a,
                   int b)
{
    if (tiresias->levels[a] != tiresias->levels[b])
        return tiresias->levels[a] < tiresias->levels[b];
    return erg_scheduler_before(scheduler, a, b);
}

/* The place of a job in its line, or its place if it were added. */
static size_t position(const struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                       const struct type_line *line, int job)
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
                        struct type_line *line, int job)
{
    size_t at = position(tiresias, scheduler, line, job);
    ERG_RESERVE(line, items, 1);
    memmove(line->items + at + 1, line->items + at, (line->count++ - at) * sizeof *line->items);
    line->items[at] = job;
    line->changed = true;
}

static void line_remove(const struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                        struct type_line *line, int job)
{
    size_t at = position(tiresias, scheduler, line, job);
    memmove(line->items + at, line->items + at + 1, (--line->count - at) * sizeof *line->items);
    line->changed = true;
}

/* Computes when a job with GPUs will sink to the next queue. */
static void expect_sinking(struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                           int job)
{
    int level = tiresias->levels[job];
    double at_s = INFINITY;
    if (level < THRESHOLDS)
        at_s =
            scheduler->now_s + (thresholds_gpu_s[level] - erg_scheduler_attained(scheduler, job)) /
                                   scheduler->jobs[job].request->gpus;
    erg_event_heap_set(&tiresias->sinking, job, at_s);
}

/* The queue for a job's service so far. */
static int sunk(const struct erg_scheduler *scheduler, int job, int level)
{
    double attained = erg_scheduler_attained(scheduler, job) +
                      2 * ROUNDING_S * scheduler->jobs[job].request->gpus;
    while (level < THRESHOLDS && attained >= thresholds_gpu_s[level])
        level++;
    return level;
}

/* Moves running jobs whose service has passed a threshold. */
static void demote(struct tiresias *tiresias, const struct erg_scheduler *scheduler)
{
    while (erg_event_heap_next(&tiresias->sinking) <= scheduler->now_s + ROUNDING_S) {
        int job = erg_event_heap_pop(&tiresias->sinking), level = tiresias->levels[job];
        struct type_line *line = &tiresias->lines[tiresias->type_of[job]];
        line_remove(tiresias, scheduler, line, job);
        level = sunk(scheduler, job, level);
        tiresias->levels[job] = (unsigned char)level;
        line_insert(tiresias, scheduler, line, job);
        expect_sinking(tiresias, scheduler, job);
    }
}

/* A job of the line got its GPUs, or lost them. */
static void note_run(struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                     struct type_line *line, int job)
{
    line->waiting--;
    line->busy_gpus += scheduler->jobs[job].request->gpus;
    expect_sinking(tiresias, scheduler, job);
}

static void note_stop(struct tiresias *tiresias, const struct erg_scheduler *scheduler,
                      struct type_line *line, int job)
{
    line->waiting++;
    line->busy_gpus -= scheduler->jobs[job].request->gpus;
    erg_event_heap_set(&tiresias->sinking, job, INFINITY);
}

/* Queues follow from the GPU time of jobs. */
static void take_over(struct tiresias *tiresias, const struct erg_scheduler *scheduler)
{
    int *jobs;
    size_t count = erg_scheduler_told(scheduler, &jobs);
    for (size_t i = 0; i < count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[jobs[i]];
        bool runs = job->state == ERG_JOB_RUNNING;
        int type =
            runs ? scheduler->speeds->shapes[job->shape].type : erg_asked_type(scheduler, job->id);
        if (type < 0)
            continue;
        tiresias->type_of[job->id] = type;
        tiresias->levels[job->id] = (unsigned char)sunk(scheduler, job->id, 0);
        tiresias->lines[type].waiting++;
        line_insert(tiresias, scheduler, &tiresias->lines[type], job->id);
        if (runs)
            note_run(tiresias, scheduler, &tiresias->lines[type], job->id);
    }
    free(jobs);
}

/* Jobs that wait for another type than requested. */
static json_t *save_tiresias(const void *state, const struct erg_scheduler *scheduler)
{
    const struct tiresias *tiresias = state;
    json_t *types = json_object();
    for (int type = 0; type < tiresias->types; type++)
        for (size_t i = 0; i < tiresias->lines[type].count; i++) {
            int job = tiresias->lines[type].items[i];
            if (scheduler->jobs[job].state == ERG_JOB_WAITING)
                json_object_set_new(types, scheduler->jobs[job].request->id, json_integer(type));
        }
    return types;
}

static void load_tiresias(void *state, const struct erg_scheduler *scheduler, const json_t *saved)
{
    struct tiresias *tiresias = state;
    int *jobs;
    size_t count = erg_scheduler_told(scheduler, &jobs);
    for (size_t i = 0; i < count; i++) {
        int job = jobs[i], from = tiresias->type_of[job];
        const json_t *type = json_object_get(saved, scheduler->jobs[job].request->id);
        long to = json_is_integer(type) ? (long)json_integer_value(type) : from;
        if (scheduler->jobs[job].state != ERG_JOB_WAITING || to == from || to < 0 ||
            to >= tiresias->types || erg_asked_shape(scheduler, job, (int)to) < 0 ||
            erg_asked_type(scheduler, job) < 0)
            continue;
        line_remove(tiresias, scheduler, &tiresias->lines[from], job);
        tiresias->lines[from].waiting--;
        tiresias->type_of[job] = (int)to;
        tiresias->lines[to].waiting++;
        line_insert(tiresias, scheduler, &tiresias->lines[to], job);
    }
    free(jobs);
}

static void *open_tiresias(const struct erg_scheduler *scheduler, const void *rules)
{
    (void)rules;
    struct tiresias *tiresias = erg_xcalloc(1, sizeof *tiresias);
    size_t jobs = scheduler->jobs_room;
    tiresias->types = (int)scheduler->fleet->types_count;
    tiresias->lines = erg_xcalloc((size_t)tiresias->types, sizeof *tiresias->lines);
    tiresias->type_of = erg_xcalloc(jobs, sizeof *tiresias->type_of);
    tiresias->levels = erg_xcalloc(jobs, sizeof *tiresias->levels);
    tiresias->chosen = erg_xcalloc(jobs, sizeof *tiresias->chosen);
    erg_event_heap_init(&tiresias->sinking, jobs);
    take_over(tiresias, scheduler);
    return tiresias;
}

static bool fit(struct tiresias *tiresias, struct erg_scheduler *scheduler, int type, int job)
{
    if (!erg_asked_fit(scheduler, job, type, ERG_LEAST_FREE))
        return false;
    note_run(tiresias, scheduler, &tiresias->lines[type], job);
    return true;
}

/* Places a job, if necessary on the GPUs of the last jobs of the line, which should have none. */
static bool fit_or_preempt(struct tiresias *tiresias, struct erg_scheduler *scheduler, int type,
                           int job, size_t *preempted_from)
{
    struct type_line *line = &tiresias->lines[type];
    while (!fit(tiresias, scheduler, type, job)) {
        int last = -1;
        while (last < 0 && *preempted_from > 0) {
            int candidate = line->items[--*preempted_from];
            if (!tiresias->chosen[candidate] && scheduler->jobs[candidate].state == ERG_JOB_RUNNING)
                last = candidate;
        }
        if (last < 0)
            return false;
        erg_scheduler_suspend(scheduler, last);
        note_stop(tiresias, scheduler, line, last);
    }
    return true;
}

/* Gives a type's GPUs to the first jobs of its line. */
static void serve(struct tiresias *tiresias, struct erg_scheduler *scheduler, int type)
{
    struct type_line *line = &tiresias->lines[type];
    size_t end = 0, preempted_from = line->count;
    int left = line->busy_gpus + scheduler->occupancy->free_gpus[type];
    line->changed = false;
    if (line->waiting == 0)
        return;
    for (; end < line->count && left > 0; end++) {
        int asked = scheduler->jobs[line->items[end]].request->gpus;
        tiresias->chosen[line->items[end]] = asked <= left;
        left -= asked <= left ? asked : 0;
    }
    for (size_t i = 0; i < end; i++)
        if (tiresias->chosen[line->items[i]] &&
            scheduler->jobs[line->items[i]].state == ERG_JOB_WAITING)
            fit_or_preempt(tiresias, scheduler, type, line->items[i], &preempted_from);
    for (size_t i = 0; i < line->count && scheduler->occupancy->free_gpus[type] > 0; i++)
        if (scheduler->jobs[line->items[i]].state == ERG_JOB_WAITING &&
            scheduler->jobs[line->items[i]].request->gpus <= scheduler->occupancy->free_gpus[type])
            fit(tiresias, scheduler, type, line->items[i]);
    for (size_t i = 0; i < end; i++)
        tiresias->chosen[line->items[i]] = false;
}

/* A waiting job without a type goes to a type with free GPUs that no job there can use. */
static bool change_line(struct tiresias *tiresias, struct erg_scheduler *scheduler, int job)
{
    struct type_line *from = &tiresias->lines[tiresias->type_of[job]];
    int type = erg_asked_fit_anywhere(scheduler, job, ERG_LEAST_FREE);
    if (type < 0)
        return false;
    line_remove(tiresias, scheduler, from, job);
    from->waiting--;
    tiresias->type_of[job] = type;
    tiresias->lines[type].waiting++;
    line_insert(tiresias, scheduler, &tiresias->lines[type], job);
    note_run(tiresias, scheduler, &tiresias->lines[type], job);
    return true;
}

/* The largest number of free GPUs of one type. */
static int most_free(const struct tiresias *tiresias, const struct erg_scheduler *scheduler)
{
    int most = 0;
    for (int type = 0; type < tiresias->types; type++)
        if (scheduler->occupancy->free_gpus[type] > most)
            most = scheduler->occupancy->free_gpus[type];
    return most;
}

static void use_other_types(struct tiresias *tiresias, struct erg_scheduler *scheduler)
{
    int most = most_free(tiresias, scheduler);
    for (int type = 0; type < tiresias->types; type++) {
        struct type_line *line = &tiresias->lines[type];
        for (size_t i = 0; i < line->count && line->waiting > 0;) {
            const struct erg_cluster_job *job = &scheduler->jobs[line->items[i]];
            bool tries = job->state == ERG_JOB_WAITING && job->request->type < 0 &&
                         job->request->gpus <= most;
            if (tries && change_line(tiresias, scheduler, job->id))
                most = most_free(tiresias, scheduler);
            else
                i++;
        }
    }
}

static int decide_tiresias(void *state, struct erg_scheduler *scheduler,
                           const struct erg_occasion *occasion, struct erg_error *err)
{
    (void)err;
    struct tiresias *tiresias = state;
    for (size_t i = 0; i < occasion->ended_count; i++) {
        int job = occasion->ended[i];
        struct type_line *line = &tiresias->lines[tiresias->type_of[job]];
        note_stop(tiresias, scheduler, line, job);
        line_remove(tiresias, scheduler, line, job);
        line->waiting--;
    }
    for (size_t i = 0; i < occasion->evicted_count; i++) {
        int job = occasion->evicted[i];
        note_stop(tiresias, scheduler, &tiresias->lines[tiresias->type_of[job]], job);
    }
    for (size_t i = 0; i < occasion->arrived_count; i++) {
        int job = occasion->arrived[i], type = erg_asked_type(scheduler, job);
        if (type < 0) {
            erg_scheduler_reject(scheduler, job);
            continue;
        }
        tiresias->type_of[job] = type;
        tiresias->levels[job] = (unsigned char)sunk(scheduler, job, 0);
        tiresias->lines[type].waiting++;
        line_insert(tiresias, scheduler, &tiresias->lines[type], job);
    }
    demote(tiresias, scheduler);
    bool nodes_changed = occasion->events & (ERG_EVENT_FAILURE | ERG_EVENT_REPAIR);
    for (int type = 0; type < tiresias->types; type++)
        if (tiresias->lines[type].changed || nodes_changed)
            serve(tiresias, scheduler, type);
    use_other_types(tiresias, scheduler);
    if (erg_event_heap_next(&tiresias->sinking) < INFINITY)
        erg_scheduler_wake(scheduler, erg_event_heap_next(&tiresias->sinking));
    return 0;
}

const struct erg_policy erg_policy_tiresias = {
    .name = "tiresias",
    .summary = "least attained service first, in GPU-hours, with preemption",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_tiresias,
    .decide = decide_tiresias,
    .close = close_tiresias,
    .save = save_tiresias,
    .load = load_tiresias,
};
