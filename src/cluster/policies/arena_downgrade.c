/*
 * Arena's search for room at the expense of others: breadth-first over plans in which running jobs
 * were shrunk or moved to another type. Two rules were derived from the golden rounds: a target
 * with a type to move to precedes all others, and gains of moved jobs count twice. How the
 * published program treats jobs that change more than once in a plan is unknown.
 */
#include "cluster/policies/arena_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* A changed table in which the target does not have GPUs yet. */
struct plan {
    struct erg_trial table;
    double gain; /* of all changes so far, the target's own among them */
    int budget;  /* compactions */
};

struct downgrade_search {
    const struct erg_scheduler *scheduler;
    int target; /* seat */
    struct {
        struct plan **items;
        size_t count, capacity;
    } plans;           /* from which the next level starts */
    struct plan *best; /* in which the target has GPUs */
    double best_gain;
};

static struct plan *copy_plan(const struct plan *from)
{
    struct plan *plan = erg_xcalloc(1, sizeof *plan);
    erg_trial_init(&plan->table, from->table.scheduler, from->table.rules);
    erg_trial_copy(&plan->table, &from->table);
    plan->gain = from->gain;
    plan->budget = from->budget;
    return plan;
}

static void free_plan(struct plan *plan)
{
    if (!plan)
        return;
    erg_trial_release(&plan->table);
    free(plan);
}

/* Every job can run with its present GPUs. */
static bool counts(const struct downgrade_search *search, const struct plan *plan)
{
    for (int seat = 0; seat < plan->table.seats_count; seat++)
        if (seat != search->target && plan->table.seats[seat].speed < 0)
            return false;
    return true;
}

static void keep_if_best(struct downgrade_search *search, struct plan *plan, double gain)
{
    if (gain <= search->best_gain) {
        free_plan(plan);
        return;
    }
    free_plan(search->best);
    search->best = plan;
    search->best_gain = gain;
}

/* Takes over a plan and lets the target look for room in it. A plan without room, or with room only
 * on more nodes than need be, is changed further on the next level. */
static void try_plan(struct downgrade_search *search, struct plan *plan, bool look)
{
    struct erg_trial_room room = {.relaxed = true};
    if (look) {
        struct plan *tried = copy_plan(plan);
        if (erg_trial_search(&tried->table, search->target, &tried->budget, &room) &&
            counts(search, tried)) {
            keep_if_best(search, tried, tried->gain + room.gain);
        } else {
            room.relaxed = true;
            free_plan(tried);
        }
    }
    if (room.relaxed)
        ERG_PUSH(&search->plans, items, plan);
    else
        free_plan(plan);
}

/* The speed of a seat, and the target's best possible speed. */
static double speed_now(const struct downgrade_search *search, const struct erg_trial *table,
                        int seat)
{
    const struct erg_trial_seat *what = &table->seats[seat];
    if (seat != search->target)
        return what->speed;
    return erg_trial_best_speed(table, what->job, what->type, what->gpus);
}

/* The same with half of the nodes, or half of the GPUs of the only one. */
static double half_speed(const struct downgrade_search *search, const struct erg_trial *table,
                         int seat)
{
    const struct erg_trial_seat *what = &table->seats[seat];
    if (seat == search->target)
        return erg_trial_best_speed(table, what->job, what->type, what->gpus / 2);
    if (what->nodes == 1)
        return erg_trial_speed(table, what->job, what->type, 1, what->gpus / 2);
    return erg_trial_speed(table, what->job, what->type, what->nodes / 2, what->gpus / what->nodes);
}

static void halve(const struct downgrade_search *search, struct plan *plan, int seat)
{
    struct erg_trial *table = &plan->table;
    struct erg_trial_seat *what = &table->seats[seat];
    int nodes[ARENA_GPUS_MOST];
    double after = half_speed(search, table, seat);
    plan->gain += after - speed_now(search, table, seat);
    if (seat != search->target) {
        int count = erg_trial_nodes(table, seat, nodes);
        if (count == 1) {
            uint64_t held = erg_trial_held(table, seat, nodes[0]);
            erg_trial_give(table, seat, nodes[0], held & ~erg_gpus_lowest(held, what->gpus / 2));
        }
        for (int i = count / 2; i < count && count > 1; i++)
            erg_trial_give(table, seat, nodes[i], erg_trial_held(table, seat, nodes[i]));
        what->speed = after;
    }
    what->gpus /= 2;
}

/* Among the larger jobs of a type, the one that loses least by shrinking. */
static int whom_to_halve(const struct downgrade_search *search, const struct erg_trial *table,
                         int type)
{
    int most = 0, best = -1;
    double best_change = -INFINITY;
    for (int seat = 0; seat < table->seats_count; seat++)
        if (table->seats[seat].type == type && table->seats[seat].gpus > most)
            most = table->seats[seat].gpus;
    for (int seat = 0; seat < table->seats_count; seat++) {
        const struct erg_trial_seat *what = &table->seats[seat];
        if (what->type != type || what->gpus <= 1 || what->gpus < most / 2)
            continue;
        double change = half_speed(search, table, seat) - speed_now(search, table, seat);
        if (change > best_change) {
            best_change = change;
            best = seat;
        }
    }
    return best;
}

/* Moves a seat to another type in a copy of the plan; NULL where it does not fit. A running job's
 * gain counts twice: as the type's best speed, and as the speed that the search then finds. */
static struct plan *change_type(const struct downgrade_search *search, const struct plan *from,
                                int seat, int type)
{
    struct plan *plan = copy_plan(from);
    struct erg_trial_seat *moved = &plan->table.seats[seat];
    struct erg_trial_room room;
    double before = speed_now(search, &from->table, seat);
    bool runs = seat != search->target;
    if (runs)
        erg_trial_give_all(&plan->table, seat);
    moved->type = type;
    if (runs && !erg_trial_search(&plan->table, seat, &plan->budget, &room)) {
        free_plan(plan);
        return NULL;
    }
    plan->gain += (runs ? 2 : 1) * (speed_now(search, &plan->table, seat) - before);
    return plan;
}

/* The type with room for the target on which it would be fastest, or -1. */
static int best_type_of_target(const struct downgrade_search *search, const struct erg_trial *table)
{
    const struct erg_trial_seat *what = &table->seats[search->target];
    int best = -1;
    double best_speed = 0;
    for (int type = 0; type < (int)search->scheduler->fleet->types_count; type++) {
        double speed = erg_trial_best_speed(table, what->job, type, what->gpus);
        if (type != what->type && table->free_gpus[type] >= what->gpus && speed > best_speed) {
            best = type;
            best_speed = speed;
        }
    }
    return best;
}

/* Moves the target to another type. Where none has room for it, moves the job on the target's type
 * that gains most by another type. */
static struct plan *change_best_type(const struct downgrade_search *search, const struct plan *from)
{
    const struct erg_trial *table = &from->table;
    int home = table->seats[search->target].type, type = best_type_of_target(search, table);
    struct plan *best = NULL;
    double best_gain = -INFINITY;
    if (type >= 0)
        return change_type(search, from, search->target, type);
    for (int seat = 0; seat < table->seats_count; seat++) {
        const struct erg_trial_seat *what = &table->seats[seat];
        if (what->type != home || seat == search->target)
            continue;
        for (type = 0; type < (int)search->scheduler->fleet->types_count; type++) {
            double there = erg_trial_best_speed(table, what->job, type, what->gpus);
            if (type == home || there <= 0 || 2 * (there - what->speed) <= best_gain ||
                table->free_gpus[type] < what->gpus)
                continue;
            struct plan *plan = change_type(search, from, seat, type);
            double gain = plan ? plan->gain - from->gain : -INFINITY;
            if (gain > best_gain) {
                free_plan(best);
                best = plan;
                best_gain = gain;
            } else {
                free_plan(plan);
            }
        }
    }
    return best;
}

static void expand(struct downgrade_search *search, const struct plan *from)
{
    const struct erg_arena_rules *rules = from->table.rules;
    int home = from->table.seats[search->target].type;
    int types = rules->no_scaling ? 0 : (int)search->scheduler->fleet->types_count;
    for (int type = 0; type < types; type++) {
        int seat = whom_to_halve(search, &from->table, type);
        if (seat < 0)
            continue;
        struct plan *plan = copy_plan(from);
        halve(search, plan, seat);
        try_plan(search, plan, type == home);
    }
    struct plan *plan = rules->no_types ? NULL : change_best_type(search, from);
    if (plan)
        try_plan(search, plan, true);
}

bool erg_trial_downgrade(struct erg_trial *table, int seat, int depth)
{
    struct downgrade_search search = {
        .scheduler = table->scheduler, .target = seat, .best_gain = -INFINITY};
    struct plan start = {.table = *table, .budget = ARENA_BUDGET};
    struct erg_trial_room room;
    struct plan *plan = copy_plan(&start);
    if (erg_trial_search(&plan->table, seat, &plan->budget, &room))
        keep_if_best(&search, plan, room.gain);
    else
        free_plan(plan);
    ERG_PUSH(&search.plans, items, copy_plan(&start));
    for (size_t level = 0, begin = 0; level < (size_t)depth; level++) {
        size_t end = search.plans.count;
        for (size_t i = end; i-- > begin;) /* the last one first */
            expand(&search, search.plans.items[i]);
        begin = end;
    }
    for (size_t i = 0; i < search.plans.count; i++)
        free_plan(search.plans.items[i]);
    free(search.plans.items);
    if (!search.best)
        return false;
    erg_trial_copy(table, &search.best->table);
    free_plan(search.best);
    return true;
}
