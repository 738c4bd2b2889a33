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
#include "cluster/asked.h"
#include "cluster/replay_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EQUAL 1e-7 /* samples per second; sums with -1e9 among them are exact to that */

/* A job that could be on another type. */
struct move {
    int row, from, to, gpus;
    double gain;
};

struct replay_gavel {
    int types;
    struct {
        struct row {
            int job, type;
        } * items;
        size_t count, capacity;
    } table; /* of admitted jobs, in the order of admission */
    struct {
        int *items;
        size_t count, capacity;
    } pending;
    struct {
        struct move *items;
        size_t count, capacity;
    } moves;       /* the largest gain first */
    int *left;     /* by type: GPUs that the table leaves */
    bool *blocked; /* by type */
};

struct replay_gavel *replay_gavel_new(const struct erg_scheduler *scheduler)
{
    struct replay_gavel *replay = erg_xcalloc(1, sizeof *replay);
    replay->types = (int)scheduler->fleet->types_count;
    replay->left = erg_xcalloc((size_t)replay->types, sizeof *replay->left);
    replay->blocked = erg_xcalloc((size_t)replay->types, sizeof *replay->blocked);
    return replay;
}

void replay_gavel_free(struct replay_gavel *replay)
{
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

/* Samples per second of a job on the GPUs that it asked for, of a type. */
static double value_on(const struct erg_scheduler *scheduler, int job, int type)
{
    int shape = erg_asked_shape(scheduler, job, type, ERG_PLANS_DATA_PARALLEL);
    return shape < 0
               ? ERG_SPEED_NONE
               : erg_scheduler_speed(scheduler, job, ERG_PLANS_DATA_PARALLEL, shape)->samples_per_s;
}

/* ---- the program ---- */

static int compare_moves(const void *a, const void *b)
{
    const struct move *x = a, *y = b;
    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    return x->row != y->row ? x->row - y->row : x->to - y->to;
}

/* All changes of one job; of those alike in types and GPUs no more than three are ever wanted. */
static void list_moves(struct replay_gavel *replay, const struct erg_scheduler *scheduler)
{
    replay->moves.count = 0;
    for (size_t i = 0; i < replay->table.count; i++) {
        const struct row *row = &replay->table.items[i];
        double now = value_on(scheduler, row->job, row->type);
        for (int type = 0; type < replay->types; type++)
            if (type != row->type)
                ERG_PUSH(&replay->moves, items,
                         (struct move){(int)i, row->type, type, gpus_of(scheduler, row->job),
                                       value_on(scheduler, row->job, type) - now});
    }
    if (replay->moves.count > 0)
        qsort(replay->moves.items, replay->moves.count, sizeof *replay->moves.items, compare_moves);
    size_t kept = 0;
    for (size_t i = 0; i < replay->moves.count; i++) {
        const struct move *move = &replay->moves.items[i];
        int alike = 0;
        for (size_t k = 0; k < kept; k++) {
            const struct move *other = &replay->moves.items[k];
            alike +=
                other->from == move->from && other->to == move->to && other->gpus == move->gpus;
        }
        if (alike < REPLAY_CHANGES_MOST)
            replay->moves.items[kept++] = *move;
    }
    replay->moves.count = kept;
}

/* A choice of moves while it is searched, and the best one. */
struct search {
    const struct replay_gavel *replay;
    int *left;
    int chosen[REPLAY_CHANGES_MOST], best[REPLAY_CHANGES_MOST];
    int count, best_count, best_type;
    int type; /* of the new job */
    double best_value;
};

static bool fits(const struct search *search)
{
    for (int type = 0; type < search->replay->types; type++)
        if (search->left[type] < 0)
            return false;
    return true;
}

static bool moved(const struct search *search, int row)
{
    for (int i = 0; i < search->count; i++)
        if (search->replay->moves.items[search->chosen[i]].row == row)
            return true;
    return false;
}

static int type_after(const struct search *search, const int *moves, int count, int row)
{
    for (int i = 0; i < count; i++)
        if (search->replay->moves.items[moves[i]].row == row)
            return search->replay->moves.items[moves[i]].to;
    return search->replay->table.items[row].type;
}

/* Whether the oldest job of which the choice and the best one differ has an earlier type. */
static bool precedes(const struct search *search)
{
    for (int row = 0; row < (int)search->replay->table.count; row++) {
        int chosen = type_after(search, search->chosen, search->count, row);
        int best = type_after(search, search->best, search->best_count, row);
        if (chosen != best)
            return chosen < best;
    }
    return search->type < search->best_type;
}

static bool is_better(const struct search *search, double value)
{
    if (fabs(value - search->best_value) > EQUAL)
        return value > search->best_value;
    return precedes(search);
}

/* Tries all sets of moves that go on with those from `first` on. */
static void descend(struct search *search, size_t first, double value)
{
    const struct move *moves = search->replay->moves.items;
    if (is_better(search, value) && fits(search)) {
        search->best_value = value;
        search->best_type = search->type;
        search->best_count = search->count;
        memcpy(search->best, search->chosen, sizeof search->best);
    }
    int open = REPLAY_CHANGES_MOST - search->count;
    for (size_t i = first; i < search->replay->moves.count && open > 0; i++) {
        /* Of those that are left none gains more than this one. */
        if (value + (moves[i].gain > 0 ? open : 1) * moves[i].gain < search->best_value - EQUAL)
            return;
        if (moved(search, moves[i].row))
            continue;
        search->chosen[search->count++] = (int)i;
        search->left[moves[i].from] += moves[i].gpus;
        search->left[moves[i].to] -= moves[i].gpus;
        descend(search, i + 1, value + moves[i].gain);
        search->left[moves[i].to] += moves[i].gpus;
        search->left[moves[i].from] -= moves[i].gpus;
        search->count--;
    }
}

/* The best table with the new job; false where there is none. */
static bool solve(struct replay_gavel *replay, const struct erg_scheduler *scheduler, int job,
                  struct search *search)
{
    for (int type = 0; type < replay->types; type++)
        replay->left[type] =
            scheduler->fleet->types[type].nodes * scheduler->fleet->types[type].gpus_per_node;
    for (size_t i = 0; i < replay->table.count; i++)
        replay->left[replay->table.items[i].type] -= gpus_of(scheduler, replay->table.items[i].job);
    list_moves(replay, scheduler);
    *search = (struct search){.replay = replay, .left = replay->left, .best_value = -INFINITY};
    for (int type = 0; type < replay->types; type++) {
        int gpus = gpus_of(scheduler, job);
        search->type = type;
        search->left[type] -= gpus;
        descend(search, 0, value_on(scheduler, job, type));
        search->left[type] += gpus;
    }
    return isfinite(search->best_value);
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static bool admit(struct replay_gavel *replay, struct erg_scheduler *scheduler, int job)
{
    struct search search;
    int rows[REPLAY_CHANGES_MOST];
    struct replay_change changes[REPLAY_CHANGES_MOST];
    if (!solve(replay, scheduler, job, &search))
        return false;
    for (int i = 0; i < search.best_count; i++) {
        const struct move *move = &replay->moves.items[search.best[i]];
        replay->table.items[move->row].type = move->to;
        rows[i] = move->row;
    }
    qsort(rows, (size_t)search.best_count, sizeof *rows, compare_ints);
    for (int i = 0; i < search.best_count; i++) {
        const struct row *row = &replay->table.items[rows[i]];
        changes[i].job = row->job;
        changes[i].shape = erg_asked_shape(scheduler, row->job, row->type, ERG_PLANS_DATA_PARALLEL);
    }
    const struct replay_change admitted = {
        job, erg_asked_shape(scheduler, job, search.best_type, ERG_PLANS_DATA_PARALLEL)};
    if (!replay_apply(scheduler, changes, search.best_count, &admitted, ERG_PLANS_DATA_PARALLEL))
        return false;
    ERG_PUSH(&replay->table, items, (struct row){job, search.best_type});
    return true;
}

/* ---- rounds ---- */

static void forget_ended(struct replay_gavel *replay, const struct erg_scheduler *scheduler)
{
    size_t kept = 0;
    for (size_t i = 0; i < replay->table.count; i++)
        if (scheduler->jobs[replay->table.items[i].job].state == ERG_JOB_RUNNING)
            replay->table.items[kept++] = replay->table.items[i];
    replay->table.count = kept;
}

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

void replay_gavel_decide(struct replay_gavel *replay, struct erg_scheduler *scheduler,
                         const struct erg_occasion *occasion)
{
    forget_ended(replay, scheduler);
    if (occasion->events & ERG_EVENT_END)
        admit_pending(replay, scheduler);
    for (size_t i = 0; i < occasion->arrived_count; i++)
        if (!admit(replay, scheduler, occasion->arrived[i]))
            ERG_PUSH(&replay->pending, items, occasion->arrived[i]);
}
