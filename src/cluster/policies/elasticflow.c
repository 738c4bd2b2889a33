/*
 * ElasticFlow: shares that grow and shrink, with and without deadlines.
 *
 * Source: Gu et al., ElasticFlow, ASPLOS 2023, and its form in Arena's published comparison. A job
 * keeps its type (a job without a type gets the fastest type that admits it); its share is a power
 * of two. The minimum share is the smallest that meets the job's deadline (elasticflow) or runs at
 * all (elasticflow-ls, "loose": no job has a deadline). A job is admitted when the minimum shares
 * of all jobs of its type fit; the remaining GPUs go, doubling by doubling, to the job that gains
 * the most samples per second. Jobs that are not admitted wait, and the first of them blocks later
 * jobs of its type, unless no share meets its deadline; a job whose deadline has passed waits for
 * ever.
 *
 * Departures: shares are also assigned when jobs end, and jobs with an unchanged share keep their
 * GPUs as long as the others find room (the published rules: elasticflow.h); an admitted job that
 * cannot meet its deadline any more keeps the smallest share that runs; a share that does not fit
 * into whole nodes is halved until it fits.
 */
#include "cluster/policies/elasticflow.h"
#include "cluster/policies/policies.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A job of the type whose GPUs are dealt out. */
struct member {
    int job;
    int gpus;    /* its share */
    double gain; /* samples/s that twice the share would add; -INFINITY: it may not double */
};

struct elastic {
    struct erg_elastic_rules rules;
    struct {
        struct member *items;
        size_t count, capacity;
    } members;
    struct { /* not admitted, in the order of their arrival */
        int *items;
        size_t count, capacity;
    } pending;
    bool *blocked; /* by type */
    int *types;    /* [job][..]: that it may join, the fastest first; ends with -1 if not full */
};

static const struct erg_speed *speed_of(const struct elastic *elastic,
                                        const struct erg_scheduler *scheduler, int job, int type,
                                        int gpus)
{
    static const struct erg_speed none = {.samples_per_s = ERG_SPEED_NONE};
    int shape = erg_speeds_best(scheduler->speeds, type, gpus);
    if (shape < 0)
        return &none;
    return erg_speed_at(elastic->rules.speeds, scheduler->jobs[job].request->workload, shape);
}

/* The speed on a type by which a job without GPUs chooses: the best of its requested share and
 * smaller ones; 0: there is none, or the job requested another type. */
static double speed_on(const struct elastic *elastic, const struct erg_scheduler *scheduler,
                       int job, int type)
{
    const struct erg_trace_job *request = scheduler->jobs[job].request;
    double best = 0;
    if (request->type >= 0)
        return request->type == type;
    for (int gpus = 1; gpus <= request->gpus; gpus *= 2)
        best = fmax(best, speed_of(elastic, scheduler, job, type, gpus)->samples_per_s);
    return best;
}

static int smallest_share(const struct elastic *elastic, const struct erg_scheduler *scheduler,
                          int job, int type)
{
    int gpus = 1;
    while (gpus <= scheduler->speeds->gpus_most &&
           !erg_speed_feasible(speed_of(elastic, scheduler, job, type, gpus)))
        gpus *= 2;
    return gpus;
}

/* Lists the types that such a job may join, the fastest first; how many they are. */
static int list_types(const struct elastic *elastic, const struct erg_scheduler *scheduler, int job)
{
    int types = (int)scheduler->fleet->types_count, count = 0;
    int *list = elastic->types + (size_t)job * (size_t)types;
    for (int type = 0; type < types; type++) {
        double speed = speed_on(elastic, scheduler, job, type);
        int at = count;
        if (speed <= 0 ||
            (!elastic->rules.as_published &&
             smallest_share(elastic, scheduler, job, type) > scheduler->speeds->gpus_most))
            continue;
        for (; at > 0 && speed_on(elastic, scheduler, job, list[at - 1]) < speed; at--)
            list[at] = list[at - 1];
        list[at] = type;
        count++;
    }
    if (count < types)
        list[count] = -1;
    return count;
}

static bool runs_on(const struct erg_scheduler *scheduler, int job, int type)
{
    return scheduler->speeds->shapes[scheduler->jobs[job].shape].type == type;
}

/* 0: there is none. */
static int minimum_share(const struct elastic *elastic, const struct erg_scheduler *scheduler,
                         int job, int type)
{
    for (int gpus = 1; gpus <= scheduler->speeds->gpus_most; gpus *= 2) {
        const struct erg_speed *speed = speed_of(elastic, scheduler, job, type, gpus);
        if (erg_speed_feasible(speed) &&
            (!elastic->rules.deadlines ||
             erg_scheduler_meets_deadline(scheduler, job, type, scheduler->jobs[job].request->gpus,
                                          speed)))
            return gpus;
    }
    return 0;
}

static void set_share(const struct elastic *elastic, const struct erg_scheduler *scheduler,
                      struct member *member, int type, int gpus)
{
    const struct erg_speed *now = speed_of(elastic, scheduler, member->job, type, gpus);
    const struct erg_speed *twice = speed_of(elastic, scheduler, member->job, type, 2 * gpus);
    member->gpus = gpus;
    member->gain =
        erg_speed_feasible(twice) ? twice->samples_per_s - now->samples_per_s : -INFINITY;
}

/* Minimum shares of all running jobs of the type and of `newest` (-1: none); the rest after them,
 * negative where they do not fit. */
static int begin_shares(struct elastic *elastic, struct erg_scheduler *scheduler, int type,
                        int newest)
{
    int left = erg_occupancy_up(scheduler->occupancy, type);
    elastic->members.count = 0;
    if (newest >= 0) {
        int share = minimum_share(elastic, scheduler, newest, type);
        if (share == 0)
            return -1;
        ERG_PUSH(&elastic->members, items, (struct member){.job = newest, .gpus = share});
    }
    for (int job = scheduler->running.first; job >= 0; job = scheduler->jobs[job].next) {
        if (!runs_on(scheduler, job, type))
            continue;
        int share = minimum_share(elastic, scheduler, job, type);
        if (share == 0)
            share = smallest_share(elastic, scheduler, job, type);
        ERG_PUSH(&elastic->members, items, (struct member){.job = job, .gpus = share});
    }
    for (size_t i = 0; i < elastic->members.count; i++) {
        struct member *member = &elastic->members.items[i];
        left -= member->gpus;
        set_share(elastic, scheduler, member, type, member->gpus);
    }
    return left;
}

static void double_shares(struct elastic *elastic, const struct erg_scheduler *scheduler, int type,
                          int left)
{
    for (;;) {
        struct member *best = NULL;
        for (size_t i = 0; i < elastic->members.count; i++) {
            struct member *member = &elastic->members.items[i];
            if (member->gpus <= left && (!best || member->gain > best->gain))
                best = member;
        }
        if (!best || isinf(best->gain) || (best->gain <= 0 && !elastic->rules.as_published))
            return;
        left -= best->gpus;
        set_share(elastic, scheduler, best, type, 2 * best->gpus);
    }
}

/* The largest first, equals in their order. */
static void sort_members(struct elastic *elastic)
{
    struct member *items = elastic->members.items;
    for (size_t i = 1; i < elastic->members.count; i++) {
        struct member member = items[i];
        size_t at = i;
        for (; at > 0 && items[at - 1].gpus < member.gpus; at--)
            items[at] = items[at - 1];
        items[at] = member;
    }
}

/* Places a member with its share, or with as much of it as there is room for. */
static bool place(const struct elastic *elastic, struct erg_scheduler *scheduler,
                  const struct member *member, int type, enum erg_node_order order)
{
    for (int gpus = member->gpus; gpus >= 1; gpus /= 2) {
        if (!erg_speed_feasible(speed_of(elastic, scheduler, member->job, type, gpus)))
            return false;
        if (erg_scheduler_fit(scheduler, member->job,
                              erg_speeds_best(scheduler->speeds, type, gpus), order, 0))
            return true;
        if (order == ERG_LEAST_FREE)
            return false;
    }
    return false;
}

/* Places members whose share changed on the GPUs that the others leave; false if one finds no
 * room. */
static bool place_changed(struct elastic *elastic, struct erg_scheduler *scheduler, int type)
{
    size_t count = elastic->members.count;
    bool *moves = erg_xcalloc(count, sizeof *moves), placed = true;
    for (size_t i = 0; i < count; i++) {
        const struct member *member = &elastic->members.items[i];
        const struct erg_cluster_job *job = &scheduler->jobs[member->job];
        moves[i] = erg_placement_gpus(&job->placement) != member->gpus;
        if (moves[i] && job->state == ERG_JOB_RUNNING)
            erg_scheduler_lift(scheduler, member->job);
    }
    for (size_t i = 0; i < count && placed; i++)
        placed = !moves[i] ||
                 place(elastic, scheduler, &elastic->members.items[i], type, ERG_LEAST_FREE);
    free(moves);
    return placed;
}

/* A job that is not admitted waits in the order of arrival. */
static void line_up(struct elastic *elastic, const struct erg_scheduler *scheduler, int job)
{
    ERG_PUSH(&elastic->pending, items, job);
    int *items = elastic->pending.items;
    for (size_t at = elastic->pending.count - 1;
         at > 0 && erg_scheduler_before(scheduler, job, items[at - 1]); at--) {
        items[at] = items[at - 1];
        items[at - 1] = job;
    }
}

static void place_all(struct elastic *elastic, struct erg_scheduler *scheduler, int type)
{
    for (size_t i = 0; i < elastic->members.count; i++)
        if (scheduler->jobs[elastic->members.items[i].job].state == ERG_JOB_RUNNING)
            erg_scheduler_lift(scheduler, elastic->members.items[i].job);
    for (size_t i = 0; i < elastic->members.count; i++) {
        const struct member *member = &elastic->members.items[i];
        if (!place(elastic, scheduler, member, type, ERG_FIRST_NODES) &&
            scheduler->jobs[member->job].state == ERG_JOB_RUNNING) {
            erg_scheduler_suspend(scheduler, member->job);
            line_up(elastic, scheduler, member->job);
        }
    }
}

/* Computes new shares of a type's GPUs; false, and nothing changed, if `newest` does not fit. */
static bool deal(struct elastic *elastic, struct erg_scheduler *scheduler, int type, int newest)
{
    int left = begin_shares(elastic, scheduler, type, newest);
    if (left < 0 && newest >= 0)
        return false;
    double_shares(elastic, scheduler, type, left);
    sort_members(elastic);
    if (elastic->rules.as_published || !place_changed(elastic, scheduler, type))
        place_all(elastic, scheduler, type);
    return newest < 0 || scheduler->jobs[newest].state == ERG_JOB_RUNNING;
}

static void unblock(struct elastic *elastic, const struct erg_scheduler *scheduler)
{
    memset(elastic->blocked, 0, scheduler->fleet->types_count * sizeof *elastic->blocked);
}

/* The type to which a job was admitted; -1: none. Types for which it has to wait are blocked for
 * those behind it. It does not wait if no share meets its deadline, since later none will. */
static int admit(struct elastic *elastic, struct erg_scheduler *scheduler, int job)
{
    int types = (int)scheduler->fleet->types_count;
    const int *list = elastic->types + (size_t)job * (size_t)types;
    for (int i = 0; i < types && list[i] >= 0; i++) {
        int type = list[i];
        if (elastic->blocked[type])
            continue;
        if (deal(elastic, scheduler, type, job))
            return type;
        elastic->blocked[type] =
            elastic->rules.as_published || minimum_share(elastic, scheduler, job, type) > 0;
    }
    return -1;
}

/* Serves waiting jobs in their order; types without a new job then get new shares. */
static void admit_pending(struct elastic *elastic, struct erg_scheduler *scheduler)
{
    int types = (int)scheduler->fleet->types_count;
    size_t count = elastic->pending.count, kept = 0;
    int *jobs = erg_xmalloc((count + 1) * sizeof *jobs);
    bool *dealt = erg_xcalloc((size_t)types, sizeof *dealt);
    unblock(elastic, scheduler);
    if (count > 0)
        memcpy(jobs, elastic->pending.items, count * sizeof *jobs);
    elastic->pending.count = 0;
    for (size_t i = 0; i < count; i++) {
        bool overdue =
            elastic->rules.deadlines && scheduler->now_s > scheduler->jobs[jobs[i]].deadline_s;
        int type = overdue ? -1 : admit(elastic, scheduler, jobs[i]);
        if (type >= 0)
            dealt[type] = true;
        else
            jobs[kept++] = jobs[i];
    }
    for (size_t i = 0; i < kept; i++)
        line_up(elastic, scheduler, jobs[i]);
    for (int type = 0; type < types && !elastic->rules.as_published; type++)
        if (!dealt[type])
            deal(elastic, scheduler, type, -1);
    free(dealt);
    free(jobs);
}

int erg_elastic_decide(void *state, struct erg_scheduler *scheduler,
                       const struct erg_occasion *occasion, struct erg_error *err)
{
    struct elastic *elastic = state;
    (void)err;
    for (size_t i = 0; i < occasion->evicted_count; i++)
        line_up(elastic, scheduler, occasion->evicted[i]);
    if (occasion->events & (ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR))
        admit_pending(elastic, scheduler);
    for (size_t i = 0; i < occasion->arrived_count; i++) {
        int job = occasion->arrived[i];
        unblock(elastic, scheduler);
        if (list_types(elastic, scheduler, job) == 0)
            erg_scheduler_reject(scheduler, job);
        else if (admit(elastic, scheduler, job) < 0)
            line_up(elastic, scheduler, job);
    }
    return 0;
}

void *erg_elastic_open(const struct erg_scheduler *scheduler, const void *rules)
{
    struct elastic *elastic = erg_xcalloc(1, sizeof *elastic);
    elastic->rules = *(const struct erg_elastic_rules *)rules;
    if (!elastic->rules.speeds)
        elastic->rules.speeds = scheduler->speeds;
    elastic->blocked = erg_xcalloc(scheduler->fleet->types_count, sizeof *elastic->blocked);
    elastic->types =
        erg_xcalloc(scheduler->jobs_room * scheduler->fleet->types_count, sizeof *elastic->types);
    int *jobs;
    size_t count = erg_scheduler_told(scheduler, &jobs);
    for (size_t i = 0; i < count; i++) {
        list_types(elastic, scheduler, jobs[i]);
        if (scheduler->jobs[jobs[i]].state == ERG_JOB_WAITING)
            line_up(elastic, scheduler, jobs[i]);
    }
    free(jobs);
    return elastic;
}

void erg_elastic_close(void *state)
{
    struct elastic *elastic = state;
    free(elastic->members.items);
    free(elastic->pending.items);
    free(elastic->blocked);
    free(elastic->types);
    free(elastic);
}

const struct erg_policy erg_policy_elasticflow = {
    .name = "elasticflow",
    .summary = "ElasticFlow: jobs that meet their deadlines, the rest of the GPUs to the fastest",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = &(const struct erg_elastic_rules){.deadlines = true},
    .open = erg_elastic_open,
    .decide = erg_elastic_decide,
    .close = erg_elastic_close,
};

const struct erg_policy erg_policy_elasticflow_ls = {
    .name = "elasticflow-ls",
    .summary = "ElasticFlow without deadlines",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = &(const struct erg_elastic_rules){0},
    .open = erg_elastic_open,
    .decide = erg_elastic_decide,
    .close = erg_elastic_close,
};
