/*
 * Gavel as in Arena's published comparison.
 *
 * A job has the number of GPUs that it asked for, on one type; a table says on which. For a new
 * job, and for each that waits whenever jobs ended, the table is solved for anew: the most samples
 * per second of all jobs in it and the new one, on data parallel plans at the best locality, with
 * no more GPUs of a type than there are, and at most three jobs on another type than before. Then
 * jobs whose type changed and the new one are placed, on the best locality or twice its nodes.
 * Where one finds no room all stay where they were and the new job waits, but the table is kept.
 *
 * What cannot run counts as -1e9 samples per second, and so is chosen where nothing else is left: a
 * job that fits nowhere as a data parallel one waits for ever, and other jobs' rows may change
 * meanwhile. The first job that still waits keeps those behind it waiting that asked for its type.
 *
 * The artifact leaves the program to a solver; three changes are few enough to try all. Of equally
 * good tables, of which a solver takes any, the one is taken in which the oldest jobs are on the
 * first types: golden rounds agree to the 431st, when the solver, led by sums of -1e9, accepts
 * tables that are not the best. Where the best locality has no room only half as many GPUs per node
 * are tried, not ever fewer.
 */
#include "artifact.h"
#include "policies.h"
#include "tables.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EQUAL 1e-7 /* samples per second; sums with -1e9 among them are exact to that */

struct replay_gavel {
    int types;
    struct replay_table table; /* a configuration is a type */
    struct {
        int *items;
        size_t count, capacity;
    } pending;
    struct replay_moves moves;
    int *left;     /* by type: GPUs that the table leaves */
    bool *blocked; /* by type */
};

static void *open_gavel(const struct erg_scheduler *scheduler, const void *rules)
{
    (void)rules;
    struct replay_gavel *replay = erg_xcalloc(1, sizeof *replay);
    replay->types = (int)scheduler->fleet->types_count;
    replay->left = erg_xcalloc((size_t)replay->types, sizeof *replay->left);
    replay->blocked = erg_xcalloc((size_t)replay->types, sizeof *replay->blocked);
    return replay;
}

static void close_gavel(void *state)
{
    struct replay_gavel *replay = state;
    free(replay->table.items);
    free(replay->pending.items);
    free(replay->moves.items);
    free(replay->left);
    free(replay->blocked);
    free(replay);
}

static int gpus_of(const struct erg_scheduler *scheduler, int job)
{
    return scheduler->jobs[job].request->gpus;
}

/* As many GPUs as a job asked for, at the best locality, if it runs on them; -1: it does not. */
static int asked_shape(const struct erg_scheduler *scheduler, int job, int type)
{
    const struct erg_speeds *speeds = artifact_of(scheduler)->data_parallel;
    int shape = erg_speeds_best(speeds, type, gpus_of(scheduler, job));
    int workload = scheduler->jobs[job].request->workload;
    return shape >= 0 && erg_speed_feasible(erg_speed_at(speeds, workload, shape)) ? shape : -1;
}

/* Samples per second of a job on the GPUs that it asked for, of a type. */
static double value_on(const struct erg_scheduler *scheduler, int job, int type)
{
    int shape = asked_shape(scheduler, job, type),
        workload = scheduler->jobs[job].request->workload;
    return shape < 0 ? ERG_SPEED_NONE
                     : erg_speed_at(artifact_of(scheduler)->data_parallel, workload, shape)
                           ->samples_per_s;
}

/* ---- the program ---- */

/* All changes of one job; of those alike in types and GPUs no more than three are ever wanted. */
static void list_moves(struct replay_gavel *replay, const struct erg_scheduler *scheduler)
{
    replay->moves.count = 0;
    for (size_t i = 0; i < replay->table.count; i++) {
        const struct replay_row *row = &replay->table.items[i];
        const int gpus = gpus_of(scheduler, row->job);
        const double now = value_on(scheduler, row->job, row->now);
        for (int type = 0; type < replay->types; type++)
            if (type != row->now) {
                double gain = value_on(scheduler, row->job, type) - now;
                ERG_PUSH(
                    &replay->moves, items,
                    (struct replay_move){(int)i, type, {row->now, gpus}, {type, gpus}, gain, gain});
            }
    }
    replay_moves_sort(&replay->moves);
    size_t kept = 0;
    for (size_t i = 0; i < replay->moves.count; i++) {
        const struct replay_move *move = &replay->moves.items[i];
        int alike = 0;
        for (size_t k = 0; k < kept; k++) {
            const struct replay_move *other = &replay->moves.items[k];
            alike += other->gives.type == move->gives.type && other->to == move->to &&
                     other->takes.count == move->takes.count;
        }
        if (alike < REPLAY_CHANGES_MOST)
            replay->moves.items[kept++] = *move;
    }
    replay->moves.count = kept;
}

/* The best table with the new job; false where there is none. */
static bool solve(struct replay_gavel *replay, const struct erg_scheduler *scheduler, int job,
                  struct replay_search *search)
{
    for (int type = 0; type < replay->types; type++)
        replay->left[type] =
            scheduler->fleet->types[type].nodes * scheduler->fleet->types[type].gpus_per_node;
    for (size_t i = 0; i < replay->table.count; i++)
        replay->left[replay->table.items[i].now] -= gpus_of(scheduler, replay->table.items[i].job);
    list_moves(replay, scheduler);
    *search = (struct replay_search){
        .table = &replay->table,
        .moves = &replay->moves,
        .types = replay->types,
        .left = replay->left,
        .equal = EQUAL,
        .most_count = REPLAY_CHANGES_MOST,
        .best_value = -INFINITY,
    };
    for (int type = 0; type < replay->types; type++) {
        const int gpus = gpus_of(scheduler, job);
        const double value = value_on(scheduler, job, type);
        search->entry = type;
        search->left[type] -= gpus;
        replay_search_try(search, value, value);
        search->left[type] += gpus;
    }
    return isfinite(search->best_value);
}

static bool admit(struct replay_gavel *replay, struct erg_scheduler *scheduler, int job)
{
    struct replay_search search;
    struct replay_changed changed[REPLAY_CHANGES_MOST];
    struct replay_change changes[REPLAY_CHANGES_MOST];
    if (!solve(replay, scheduler, job, &search))
        return false;
    replay_table_change(&replay->table, &search, changed);
    for (int i = 0; i < search.best_count; i++) {
        const struct replay_row *row = &replay->table.items[changed[i].row];
        changes[i].job = row->job;
        changes[i].shape = asked_shape(scheduler, row->job, row->now);
    }
    const struct replay_change admitted = {job, asked_shape(scheduler, job, search.best_entry)};
    if (!replay_apply(scheduler, changes, search.best_count, &admitted,
                      artifact_of(scheduler)->data_parallel))
        return false;
    ERG_PUSH(&replay->table, items, (struct replay_row){job, search.best_entry});
    return true;
}

/* ---- rounds ---- */

static void admit_pending(struct replay_gavel *replay, struct erg_scheduler *scheduler)
{
    size_t kept = 0;
    memset(replay->blocked, 0, (size_t)replay->types * sizeof *replay->blocked);
    for (size_t i = 0; i < replay->pending.count; i++) {
        int job = replay->pending.items[i], type = scheduler->jobs[job].request->type;
        if ((type < 0 || !replay->blocked[type]) && admit(replay, scheduler, job))
            continue;
        if (type >= 0)
            replay->blocked[type] = true;
        replay->pending.items[kept++] = job;
    }
    replay->pending.count = kept;
}

static int decide(void *state, struct erg_scheduler *scheduler, const struct erg_occasion *occasion,
                  struct erg_error *err)
{
    struct replay_gavel *replay = state;
    (void)err;
    replay_table_forget_ended(&replay->table, scheduler);
    if (occasion->events & ERG_EVENT_END)
        admit_pending(replay, scheduler);
    for (size_t i = 0; i < occasion->arrived_count; i++)
        if (!admit(replay, scheduler, occasion->arrived[i]))
            ERG_PUSH(&replay->pending, items, occasion->arrived[i]);
    return 0;
}

const struct erg_policy artifact_gavel = {
    .name = "gavel",
    .summary = "Gavel, as Arena's comparison has it",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_gavel,
    .decide = decide,
    .close = close_gavel,
};
