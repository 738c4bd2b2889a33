/*
 * Arena (once Crius): GPU type and number of every job are changed as the cluster fills and
 * empties.
 *
 * Source: "Arena", EuroSys 2026 (arXiv 2403.16125), following its published program. A new job gets
 * its requested type and number; where these are not free, running jobs are compacted, shrunk or
 * moved to other types (arena_internal.h). Jobs that do not fit wait in a queue that is tried in
 * order when jobs end. A job placed while older ones wait is opportunistic: its GPUs count as free
 * for them, and it waits again when they are taken. Remaining GPUs go, step by step, to the job
 * that gains most by another type or twice the GPUs.
 *
 * Under the published comparison's own accounting (research/) this agrees with its golden rounds
 * exactly as long as the cluster is not full, then for 510 rounds except for the choice of equal
 * jobs that restart, and within 1 % in the totals of all rounds. Among equal jobs the published
 * program seems to take the one on the first nodes, and to change no other job's type once it has
 * shrunk the new one: with both rules, rounds agree until the 1,159th, and totals less well (3 %),
 * since they diverge after the first different decision. Departures: jobs of nodes that failed go
 * to the head of the queue; a job that names no type begins with the fastest.
 */
#include "cluster/policies/arena_internal.h"
#include "cluster/policies/policies.h"
#include "cluster/policies/remembered.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { RESTARTS_MOST = 100, UPGRADES_MOST = 10, MANY_RUNNING = 150, DEPTH = 3, DEPTH_OF_MANY = 2 };

struct arena {
    struct erg_scheduler *scheduler;
    struct erg_trial table, trial, best, before;
    struct { /* waiting and opportunistic jobs, as they came */
        int *items;
        size_t count, capacity;
    } queue;
    bool *opportunistic; /* by job */
    bool *hopeless;      /* by workload: found no room in this walk through the queue */
    struct erg_placement placement;
};

/* Waiting jobs are queued in the order of arrival. load() marks the opportunistic ones among
 * running jobs. */
static void take_over(struct arena *arena, const struct erg_scheduler *scheduler)
{
    int *jobs;
    size_t count = erg_scheduler_told(scheduler, &jobs);
    for (size_t i = 0; i < count; i++)
        if (scheduler->jobs[jobs[i]].state == ERG_JOB_WAITING)
            ERG_PUSH(&arena->queue, items, jobs[i]);
    free(jobs);
}

void *erg_arena_open(const struct erg_scheduler *scheduler, const void *rules)
{
    struct arena *arena = erg_xcalloc(1, sizeof *arena);
    struct erg_trial *tables[] = {&arena->table, &arena->trial, &arena->best, &arena->before};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        erg_trial_init(tables[i], scheduler, rules);
    arena->opportunistic = erg_xcalloc(scheduler->jobs_room, sizeof *arena->opportunistic);
    arena->hopeless = erg_xcalloc(scheduler->workloads_room, sizeof *arena->hopeless);
    take_over(arena, scheduler);
    return arena;
}

void erg_arena_close(void *state)
{
    struct arena *arena = state;
    erg_trial_release(&arena->table);
    erg_trial_release(&arena->trial);
    erg_trial_release(&arena->best);
    erg_trial_release(&arena->before);
    free(arena->queue.items);
    free(arena->opportunistic);
    free(arena->hopeless);
    erg_placement_release(&arena->placement);
    free(arena);
}

/* The queue: names, each followed by whether the job is opportunistic. */
static json_t *save_state(const void *state, const struct erg_scheduler *scheduler)
{
    const struct arena *arena = state;
    json_t *queue = json_array();
    for (size_t i = 0; i < arena->queue.count; i++) {
        int job = arena->queue.items[i];
        json_array_append_new(queue, erg_json_new_string(scheduler->jobs[job].request->id));
        json_array_append_new(queue, json_boolean(arena->opportunistic[job]));
    }
    return queue;
}

/* Jobs that had GPUs and wait again go to the head, as after a failure. */
static void load_state(void *state, const struct erg_scheduler *scheduler, const json_t *saved)
{
    struct arena *arena = state;
    struct erg_remembered jobs;
    size_t kept = 0, known = 0, count = json_array_size(saved) / 2;
    int *queue = erg_xcalloc(count + 1, sizeof *queue);
    bool *waited = erg_xcalloc(scheduler->jobs_room + 1, sizeof *waited);
    erg_remembered_init(&jobs, scheduler);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(saved, 2 * i));
        bool opportunistic = json_is_true(json_array_get(saved, 2 * i + 1));
        int job = name ? erg_remembered_find(&jobs, name) : -1;
        if (job < 0 || waited[job] ||
            (scheduler->jobs[job].state == ERG_JOB_RUNNING) != opportunistic)
            continue;
        arena->opportunistic[job] = opportunistic;
        waited[job] = true;
        queue[known++] = job;
    }
    for (size_t i = 0; i < arena->queue.count; i++)
        if (!waited[arena->queue.items[i]])
            arena->queue.items[kept++] = arena->queue.items[i];
    arena->queue.count = kept;
    for (size_t i = 0; i < known; i++)
        ERG_PUSH(&arena->queue, items, queue[i]);
    erg_remembered_release(&jobs);
    free(queue);
    free(waited);
}

static bool as_placed(const struct erg_trial *table, int seat,
                      const struct erg_placement *placement)
{
    if (table->seats[seat].nodes != placement->count)
        return false;
    for (int i = 0; i < placement->count; i++)
        if (erg_trial_held(table, seat, placement->slices[i].node) != placement->slices[i].gpus)
            return false;
    return true;
}

/* Makes the schedule equal to the table. */
static void commit(struct arena *arena)
{
    struct erg_scheduler *scheduler = arena->scheduler;
    const struct erg_trial *table = &arena->table;
    for (int seat = 0; seat < table->seats_count; seat++) {
        int id = table->seats[seat].job;
        if (scheduler->jobs[id].state != ERG_JOB_RUNNING ||
            as_placed(table, seat, &scheduler->jobs[id].placement))
            continue;
        if (table->seats[seat].nodes == 0)
            erg_scheduler_suspend(scheduler, id);
        else
            erg_scheduler_lift(scheduler, id);
    }
    for (int seat = 0; seat < table->seats_count; seat++) {
        const struct erg_cluster_job *job = &scheduler->jobs[table->seats[seat].job];
        int nodes[ARENA_GPUS_MOST];
        if (table->seats[seat].nodes == 0 || job->placement.count > 0)
            continue;
        int count = erg_trial_nodes(table, seat, nodes);
        arena->placement.count = 0;
        for (int i = 0; i < count; i++)
            erg_placement_add(&arena->placement, nodes[i], erg_trial_held(table, seat, nodes[i]));
        erg_scheduler_place(scheduler, job->id, &arena->placement, 0);
    }
}

static int first_type(const struct arena *arena, int job)
{
    const struct erg_trace_job *request = arena->scheduler->jobs[job].request;
    int best = 0;
    if (request->type >= 0)
        return request->type;
    for (int type = 1; type < (int)arena->scheduler->fleet->types_count; type++)
        if (erg_trial_best_speed(&arena->table, job, type, request->gpus) >
            erg_trial_best_speed(&arena->table, job, best, request->gpus))
            best = type;
    return best;
}

/* Finds room in the table for a job that waits; the table is of no use if there is none. */
static bool fit(struct arena *arena, int job)
{
    struct erg_trial_room room;
    int budget = ARENA_BUDGET;
    int seat = erg_trial_add(&arena->table, job, first_type(arena, job),
                             arena->scheduler->jobs[job].request->gpus);
    erg_trial_copy(&arena->trial, &arena->table);
    if (erg_trial_search(&arena->trial, seat, &budget, &room) && !room.relaxed) {
        erg_trial_copy(&arena->table, &arena->trial);
        return true;
    }
    return erg_trial_downgrade(&arena->table, seat,
                               arena->scheduler->running.count <= MANY_RUNNING ? DEPTH
                                                                               : DEPTH_OF_MANY);
}

static void dequeue(struct arena *arena, int job)
{
    size_t at = 0;
    while (at < arena->queue.count && arena->queue.items[at] != job)
        at++;
    arena->opportunistic[job] = false;
    if (at < arena->queue.count)
        memmove(arena->queue.items + at, arena->queue.items + at + 1,
                (--arena->queue.count - at) * sizeof *arena->queue.items);
}

/* A job of the queue got GPUs. The jobs at its head no longer wait for others. */
static void settle_queue(struct arena *arena, int placed)
{
    if (placed >= 0)
        arena->opportunistic[placed] = true;
    while (arena->queue.count > 0 && arena->opportunistic[arena->queue.items[0]])
        dequeue(arena, arena->queue.items[0]);
}

/* Returns true if a job has GPUs of a draining node, which other jobs cannot use. */
static bool drains(const struct erg_scheduler *scheduler, int job)
{
    const struct erg_placement *placement = &scheduler->jobs[job].placement;
    for (int i = 0; i < placement->count; i++)
        if (scheduler->occupancy->drains[placement->slices[i].node])
            return true;
    return false;
}

/* Takes the GPUs of opportunistic jobs behind a place of the queue off them, in the table. */
static void lend(struct arena *arena, size_t at)
{
    for (int seat = 0; seat < arena->table.seats_count; seat++) {
        int job = arena->table.seats[seat].job;
        size_t behind = at + 1;
        if (!arena->opportunistic[job] || drains(arena->scheduler, job))
            continue;
        while (behind < arena->queue.count && arena->queue.items[behind] != job)
            behind++;
        if (behind == arena->queue.count)
            continue;
        erg_trial_give_all(&arena->table, seat);
        arena->table.seats[seat].type = ARENA_NO_TYPE;
    }
}

/* Gives them back to those that lost none; the others have to wait. */
static void take_back(struct arena *arena)
{
    struct erg_trial *table = &arena->table;
    for (int seat = 0; seat < table->seats_count; seat++) {
        int id = table->seats[seat].job;
        const struct erg_cluster_job *job = &arena->scheduler->jobs[id];
        if (table->seats[seat].type != ARENA_NO_TYPE)
            continue;
        bool intact = true;
        for (int i = 0; i < job->placement.count; i++) {
            const struct erg_slice *slice = &job->placement.slices[i];
            intact &= (slice->gpus & ~table->free[slice->node]) == 0;
        }
        table->seats[seat].type = arena->scheduler->speeds->shapes[job->shape].type;
        arena->opportunistic[id] = intact;
        for (int i = 0; i < job->placement.count && intact; i++)
            erg_trial_take(table, seat, job->placement.slices[i].node,
                           job->placement.slices[i].gpus);
    }
}

/* Tries waiting jobs in order, from the first again after each that got GPUs. */
static void restart_waiting(struct arena *arena)
{
    struct erg_scheduler *scheduler = arena->scheduler;
    size_t at = 0;
    int restarts = 0;
    memset(arena->hopeless, 0, scheduler->trace->workloads_count * sizeof *arena->hopeless);
    while (restarts < RESTARTS_MOST && at < arena->queue.count) {
        int job = arena->queue.items[at], workload = scheduler->jobs[job].request->workload;
        bool tried = !arena->opportunistic[job] && !arena->hopeless[workload];
        if (tried) {
            erg_trial_load(&arena->table);
            lend(arena, at);
            if (fit(arena, job)) {
                take_back(arena);
                commit(arena);
                settle_queue(arena, job);
                restarts++;
                at = 0;
                continue;
            }
            arena->hopeless[workload] = true;
        }
        if (arena->table.rules->no_opportunism)
            return;
        at++;
    }
}

/* Compares one way of growing with the best one so far. */
static double try_upgrade(struct arena *arena, int seat, int type, int gpus, double best_gain)
{
    const struct erg_trial_seat *what = &arena->table.seats[seat];
    struct erg_trial_room room;
    int budget = ARENA_BUDGET;
    /* No room is better than the best locality, so most ways need no search. */
    if (gpus > arena->scheduler->speeds->gpus_most ||
        erg_trial_best_speed(&arena->table, what->job, type, gpus) - what->speed <= best_gain)
        return best_gain;
    if (type != what->type && arena->table.free_gpus[type] < gpus)
        return best_gain;
    erg_trial_copy(&arena->trial, &arena->table);
    erg_trial_give_all(&arena->trial, seat);
    arena->trial.seats[seat].type = type;
    arena->trial.seats[seat].gpus = gpus;
    if (!erg_trial_search(&arena->trial, seat, &budget, &room) || room.gain <= best_gain)
        return best_gain;
    erg_trial_copy(&arena->best, &arena->trial);
    return room.gain;
}

static void upgrade(struct arena *arena)
{
    const struct erg_arena_rules *rules = arena->table.rules;
    for (int step = 0; step < UPGRADES_MOST; step++) {
        double best_gain = 0;
        erg_trial_load(&arena->table);
        for (int seat = 0; seat < arena->table.seats_count; seat++) {
            struct erg_trial_seat what = arena->table.seats[seat];
            for (int type = 0; type < (int)arena->scheduler->fleet->types_count; type++)
                if (type != what.type && !rules->no_types)
                    best_gain = try_upgrade(arena, seat, type, what.gpus, best_gain);
            if (!rules->no_scaling)
                best_gain = try_upgrade(arena, seat, what.type, 2 * what.gpus, best_gain);
        }
        if (best_gain <= 0)
            return;
        erg_trial_copy(&arena->table, &arena->best);
        commit(arena);
    }
}

/* Jobs that are spread over partly used nodes move together. */
static void migrate(struct arena *arena)
{
    const struct erg_fleet *fleet = arena->scheduler->fleet;
    for (;;) {
        double best_gain = 0;
        erg_trial_load(&arena->table);
        for (int seat = 0; seat < arena->table.seats_count; seat++) {
            const struct erg_trial_seat *what = &arena->table.seats[seat];
            int budget = ARENA_BUDGET;
            struct erg_trial_room room;
            if (what->nodes == 1 ||
                what->gpus == what->nodes * fleet->types[what->type].gpus_per_node)
                continue;
            erg_trial_copy(&arena->trial, &arena->table);
            erg_trial_give_all(&arena->trial, seat);
            if (!erg_trial_search(&arena->trial, seat, &budget, &room) || room.gain <= best_gain)
                continue;
            best_gain = room.gain;
            erg_trial_copy(&arena->best, &arena->trial);
        }
        if (best_gain <= 0)
            return;
        erg_trial_copy(&arena->table, &arena->best);
        commit(arena);
    }
}

/* Nodes of a that are not in b. */
static int nodes_without(const int *a, const int *b, int count, int *without)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < count && b[at] != a[i])
            at++;
        if (at == count)
            without[found++] = a[i];
    }
    return found;
}

/* Returns true if all GPUs of a node can be given to jobs. */
static bool is_ours(const struct erg_scheduler *scheduler, int node)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    return !occupancy->drains[node] &&
           erg_occupancy_usable(occupancy, node) ==
               scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
}

/* A job that now has other whole nodes, as many as it started with, gets its first ones back; jobs
 * on those move to the nodes that it leaves. */
static void undo_needless_moves(struct arena *arena)
{
    const struct erg_trial *before = &arena->before;
    struct erg_trial *table = &arena->table;
    int old[ARENA_GPUS_MOST], now[ARENA_GPUS_MOST], from[ARENA_GPUS_MOST], to[ARENA_GPUS_MOST];
    erg_trial_load(table);
    for (int i = 0, k = 0; i < table->seats_count; i++) {
        const struct erg_trial_seat *is = &table->seats[i];
        /* The jobs that ran before come first, in the same order, without those that ended. */
        while (k < before->seats_count && before->seats[k].job != is->job)
            k++;
        if (k == before->seats_count)
            break;
        const struct erg_trial_seat *was = &before->seats[k];
        int node_gpus = arena->scheduler->fleet->types[is->type].gpus_per_node;
        if (was->type != is->type || was->gpus != is->gpus || is->gpus != is->nodes * node_gpus ||
            was->nodes != is->nodes)
            continue;
        int count = erg_trial_nodes(table, i, now);
        erg_trial_nodes(before, k, old);
        int moves = nodes_without(now, old, count, from);
        nodes_without(old, now, count, to);
        for (int m = 0; m < moves; m++)
            if (is_ours(arena->scheduler, from[m]) && is_ours(arena->scheduler, to[m]))
                erg_trial_swap_nodes(table, from[m], to[m]);
    }
    commit(arena);
}

static void arrive(struct arena *arena, int job)
{
    if (arena->scheduler->jobs[job].request->gpus > ARENA_GPUS_MOST) {
        erg_scheduler_reject(arena->scheduler, job);
        return;
    }
    ERG_PUSH(&arena->queue, items, job);
    if (arena->table.rules->no_opportunism && arena->queue.count > 1)
        return;
    erg_trial_load(&arena->table);
    if (fit(arena, job)) {
        commit(arena);
        settle_queue(arena, job);
    }
}

static void requeue(struct arena *arena, int job)
{
    dequeue(arena, job);
    ERG_RESERVE(&arena->queue, items, 1);
    memmove(arena->queue.items + 1, arena->queue.items,
            arena->queue.count++ * sizeof *arena->queue.items);
    arena->queue.items[0] = job;
}

int erg_arena_decide(void *state, struct erg_scheduler *scheduler,
                     const struct erg_occasion *occasion, struct erg_error *err)
{
    struct arena *arena = state;
    (void)err;
    arena->scheduler = scheduler;
    erg_trial_load(&arena->before);
    for (size_t i = 0; i < occasion->ended_count; i++)
        dequeue(arena, occasion->ended[i]);
    for (size_t i = occasion->evicted_count; i-- > 0;)
        requeue(arena, occasion->evicted[i]);
    settle_queue(arena, -1);
    if (occasion->events & (ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR)) {
        migrate(arena);
        restart_waiting(arena);
    }
    for (size_t i = 0; i < occasion->arrived_count; i++)
        arrive(arena, occasion->arrived[i]);
    upgrade(arena);
    undo_needless_moves(arena);
    return 0;
}

const struct erg_policy erg_policy_arena = {
    .name = "arena",
    .summary = "Arena: changes types and numbers of GPUs as the cluster fills",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = &(const struct erg_arena_rules){0},
    .open = erg_arena_open,
    .decide = erg_arena_decide,
    .close = erg_arena_close,
    .save = save_state,
    .load = load_state,
};

const struct erg_policy erg_policy_arena_ddl = {
    .name = "arena-ddl",
    .summary = "Arena with deadlines",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = &(const struct erg_arena_rules){.deadlines = true},
    .open = erg_arena_open,
    .decide = erg_arena_decide,
    .close = erg_arena_close,
    .save = save_state,
    .load = load_state,
};
