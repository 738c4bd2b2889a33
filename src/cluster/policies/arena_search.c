/* The search for room (Arena, section "bubble migration"): idle nodes, compaction, more nodes. */
#include "cluster/policies/arena_internal.h"

#include "base/memory.h"

#include <stdlib.h>

/* Nodes of a type that are partly used, those with most free GPUs first. */
struct partial_nodes {
    int *nodes;
    int count;
};

/* `enough`: the list ends once it has this many free GPUs; 0: it has all nodes. */
static void list_partial(const struct erg_trial *table, int type, int enough,
                         struct partial_nodes *partial)
{
    const struct erg_gpu_type *gpus = &table->scheduler->fleet->types[type];
    int sum = 0;
    partial->count = 0;
    for (int free = gpus->gpus_per_node - 1; free > 0; free--)
        for (int node = gpus->first_node; node < gpus->first_node + gpus->nodes; node++) {
            if (erg_trial_free_of(table, node) != free)
                continue;
            partial->nodes[partial->count++] = node;
            sum += free;
            if (enough > 0 && sum >= enough)
                return;
        }
}

/* Lists idle nodes, those that are switched off or those that are not, behind `count` others, until
 * there are `enough`; returns how many there are. */
static int list_idle(const struct erg_trial *table, int type, bool off, int *nodes, int count,
                     int enough)
{
    const struct erg_gpu_type *gpus = &table->scheduler->fleet->types[type];
    for (int node = gpus->first_node; node < gpus->first_node + gpus->nodes && count < enough;
         node++)
        if (erg_trial_free_of(table, node) == gpus->gpus_per_node &&
            table->scheduler->occupancy->off[node] == off)
            nodes[count++] = node;
    return count;
}

static bool take_idle(struct erg_trial *table, int seat, int nodes, int gpus_per_node, bool wakes)
{
    int found[ARENA_GPUS_MOST], type = table->seats[seat].type;
    int count = list_idle(table, type, false, found, 0, nodes);
    if (wakes)
        count = list_idle(table, type, true, found, count, nodes);
    if (count < nodes)
        return false;
    for (int i = 0; i < count; i++)
        erg_trial_take(table, seat, found[i],
                       erg_gpus_lowest(table->free[found[i]], gpus_per_node));
    return true;
}

static bool take_partial(struct erg_trial *table, int seat, const struct partial_nodes *partial)
{
    int gpus = table->seats[seat].gpus;
    for (int i = 0; i < partial->count; i++)
        if (erg_trial_free_of(table, partial->nodes[i]) >= gpus) {
            erg_trial_take(table, seat, partial->nodes[i],
                           erg_gpus_lowest(table->free[partial->nodes[i]], gpus));
            return true;
        }
    return false;
}

/* The GPUs of one job on a pair of nodes. */
struct node_piece {
    int seat, gpus;
    int nodes[2]; /* GPUs on each */
};

static int list_pieces(const struct erg_trial *table, const int *pair, struct node_piece *pieces)
{
    const struct erg_occupancy *occupancy = table->scheduler->occupancy;
    int gpus = table->scheduler->fleet->types[occupancy->type_of[pair[0]]].gpus_per_node;
    int count = 0;
    for (int side = 0; side < 2; side++)
        for (int gpu = 0; gpu < gpus; gpu++) {
            int seat = table->owners[occupancy->first_owner[pair[side]] + gpu], at = 0;
            if (seat < 0)
                continue;
            while (at < count && pieces[at].seat != seat)
                at++;
            if (at == count)
                pieces[count++] = (struct node_piece){.seat = seat};
            pieces[at].gpus++;
            pieces[at].nodes[side]++;
        }
    return count;
}

static void move_piece(struct erg_trial *table, const struct node_piece *piece, const int *pair,
                       int to)
{
    for (int side = 0; side < 2; side++)
        if (piece->nodes[side] > 0)
            erg_trial_give(table, piece->seat, pair[side],
                           erg_trial_held(table, piece->seat, pair[side]));
    erg_trial_take(table, piece->seat, pair[to],
                   erg_gpus_lowest(table->free[pair[to]], piece->gpus));
}

/* Everything on the node with less on it moves to the other. */
static void merge_pair(struct erg_trial *table, const int *pair)
{
    struct node_piece pieces[2 * ERG_NODE_GPUS_MOST];
    int count = list_pieces(table, pair, pieces);
    int to = erg_trial_free_of(table, pair[0]) >= erg_trial_free_of(table, pair[1]) ? 1 : 0;
    for (int i = 0; i < count; i++)
        if (pieces[i].nodes[0] > 0 && pieces[i].nodes[1] > 0)
            return;
    for (int i = 0; i < count; i++)
        if (pieces[i].nodes[1 - to] > 0)
            move_piece(table, &pieces[i], pair, to);
}

/* Both nodes are emptied and filled again, one of them to the brim where that is possible. */
static void refill_pair(struct erg_trial *table, const int *pair)
{
    struct node_piece pieces[2 * ERG_NODE_GPUS_MOST];
    int count = list_pieces(table, pair, pieces), rest = 0;
    const struct erg_occupancy *occupancy = table->scheduler->occupancy;
    for (int i = 0; i < count; i++) {
        bool both = pieces[i].nodes[0] > 0 && pieces[i].nodes[1] > 0;
        if (both && table->seats[pieces[i].seat].nodes > 2)
            return;
        rest += pieces[i].gpus;
    }
    for (int i = 1; i < count; i++) { /* the largest first, equals in their order */
        struct node_piece piece = pieces[i];
        int at = i;
        for (; at > 0 && pieces[at - 1].gpus < piece.gpus; at--)
            pieces[at] = pieces[at - 1];
        pieces[at] = piece;
    }
    if (count == 0)
        return;
    int first = pieces[0].nodes[0] > 0 ? 0 : 1;
    if (pieces[0].nodes[0] > 0 && pieces[0].nodes[1] > 0)
        first = erg_trial_free_of(table, pair[0]) <= erg_trial_free_of(table, pair[1]) ? 0 : 1;
    int sides[2 * ERG_NODE_GPUS_MOST], room[2] = {erg_occupancy_usable(occupancy, pair[0]),
                                                  erg_occupancy_usable(occupancy, pair[1])};
    for (int i = 0; i < count; i++) {
        rest -= pieces[i].gpus;
        int side = rest >= room[first] ? 1 - first : first;
        if (room[side] < pieces[i].gpus)
            side = 1 - side;
        if (room[side] < pieces[i].gpus)
            return;
        room[side] -= pieces[i].gpus;
        sides[i] = side;
    }
    for (int i = 0; i < count; i++)
        for (int side = 0; side < 2; side++)
            if (pieces[i].nodes[side] > 0)
                erg_trial_give(table, pieces[i].seat, pair[side],
                               erg_trial_held(table, pieces[i].seat, pair[side]));
    for (int i = 0; i < count; i++)
        erg_trial_take(table, pieces[i].seat, pair[sides[i]],
                       erg_gpus_lowest(table->free[pair[sides[i]]], pieces[i].gpus));
}

static void compact(struct erg_trial *table, const struct partial_nodes *partial, int capacity)
{
    for (int i = 0; i < partial->count / 2; i++) {
        int pair[2] = {partial->nodes[i], partial->nodes[partial->count - 1 - i]};
        if (erg_trial_free_of(table, pair[0]) + erg_trial_free_of(table, pair[1]) > capacity)
            merge_pair(table, pair);
        else
            refill_pair(table, pair);
    }
}

/* On more nodes: the number on each is halved until there is room. */
static bool take_relaxed(struct erg_trial *table, int seat, struct partial_nodes *partial)
{
    struct erg_trial_seat *what = &table->seats[seat];
    const struct erg_gpu_type *type = &table->scheduler->fleet->types[what->type];
    list_partial(table, what->type, 0, partial);
    for (int quota = what->gpus; quota > 1;) {
        quota /= 2;
        int nodes = what->gpus / quota, found[ARENA_GPUS_MOST], count = 0;
        if (quota > type->gpus_per_node)
            continue;
        if (erg_trial_speed(table, what->job, what->type, nodes, quota) <= 0)
            return false;
        count = list_idle(table, what->type, false, found, count, nodes);
        for (int i = 0; i < partial->count && count < nodes; i++)
            if (erg_trial_free_of(table, partial->nodes[i]) >= quota)
                found[count++] = partial->nodes[i];
        count = list_idle(table, what->type, true, found, count, nodes);
        if (count < nodes)
            continue;
        for (int i = 0; i < count; i++)
            erg_trial_take(table, seat, found[i], erg_gpus_lowest(table->free[found[i]], quota));
        return true;
    }
    return false;
}

static bool take_compacted(struct erg_trial *table, int seat, struct partial_nodes *partial,
                           int idle_nodes, int gpus_per_node, int *budget)
{
    const struct erg_trial_seat *what = &table->seats[seat];
    int capacity = table->scheduler->fleet->types[what->type].gpus_per_node;
    for (int step = 0; step<ARENA_SEARCH_BUDGET && * budget> 0; step++) {
        compact(table, partial, capacity);
        --*budget;
        if (take_idle(table, seat, idle_nodes, gpus_per_node, true))
            return true;
        list_partial(table, what->type, what->gpus, partial);
        if (take_partial(table, seat, partial))
            return true;
    }
    return false;
}

bool erg_trial_search(struct erg_trial *table, int seat, int *budget, struct erg_trial_room *room)
{
    struct erg_trial_seat *what = &table->seats[seat];
    const struct erg_scheduler *scheduler = table->scheduler;
    int best = erg_speeds_best(scheduler->speeds, what->type, what->gpus);
    double speed = erg_trial_best_speed(table, what->job, what->type, what->gpus);
    *room = (struct erg_trial_room){0};
    if (speed <= 0 || table->free_gpus[what->type] < what->gpus)
        return false;
    const struct erg_gpu_shape *shape = &scheduler->speeds->shapes[best];
    struct partial_nodes partial = {
        .nodes = erg_xmalloc((size_t)scheduler->fleet->types[what->type].nodes * sizeof(int))};
    list_partial(table, what->type, what->gpus, &partial);
    bool found = take_idle(table, seat, shape->nodes, shape->gpus_per_node, false) ||
                 take_partial(table, seat, &partial) ||
                 take_idle(table, seat, shape->nodes, shape->gpus_per_node, true) ||
                 take_compacted(table, seat, &partial, shape->nodes, shape->gpus_per_node, budget);
    if (!found && take_relaxed(table, seat, &partial)) {
        int count = what->nodes;
        speed = erg_trial_speed(table, what->job, what->type, count, what->gpus / count);
        found = room->relaxed = true;
    }
    free(partial.nodes);
    room->gain = speed - what->speed;
    if (found)
        what->speed = speed;
    return found;
}
