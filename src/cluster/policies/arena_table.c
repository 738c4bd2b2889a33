/* Arena's tables: who has which GPUs in a plan that is only tried. */
#include "cluster/policies/arena_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void erg_trial_init(struct erg_trial *table, const struct erg_scheduler *scheduler,
                    const struct erg_arena_rules *rules)
{
    *table = (struct erg_trial){
        .scheduler = scheduler,
        .rules = rules,
        .owners = erg_xmalloc((size_t)scheduler->fleet->gpus * sizeof *table->owners),
        .free = erg_xmalloc((size_t)scheduler->fleet->nodes * sizeof *table->free),
        .free_gpus = erg_xmalloc(scheduler->fleet->types_count * sizeof *table->free_gpus),
    };
}

void erg_trial_release(struct erg_trial *table)
{
    free(table->seats);
    free(table->owners);
    free(table->free);
    free(table->free_gpus);
}

static void reserve(struct erg_trial *table, int seats)
{
    if (seats <= table->seats_capacity)
        return;
    table->seats_capacity = seats + 64;
    table->seats = erg_xrealloc(table->seats, (size_t)table->seats_capacity, sizeof *table->seats);
}

void erg_trial_copy(struct erg_trial *to, const struct erg_trial *from)
{
    const struct erg_fleet *fleet = from->scheduler->fleet;
    reserve(to, from->seats_count);
    to->seats_count = from->seats_count;
    if (from->seats_count > 0)
        memcpy(to->seats, from->seats, (size_t)from->seats_count * sizeof *to->seats);
    memcpy(to->owners, from->owners, (size_t)fleet->gpus * sizeof *to->owners);
    memcpy(to->free, from->free, (size_t)fleet->nodes * sizeof *to->free);
    memcpy(to->free_gpus, from->free_gpus, fleet->types_count * sizeof *to->free_gpus);
}

int erg_trial_add(struct erg_trial *table, int job, int type, int gpus)
{
    reserve(table, table->seats_count + 1);
    table->seats[table->seats_count] =
        (struct erg_trial_seat){.job = job, .type = type, .gpus = gpus};
    return table->seats_count++;
}

void erg_trial_load(struct erg_trial *table)
{
    const struct erg_scheduler *scheduler = table->scheduler;
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    const struct erg_fleet *fleet = scheduler->fleet;
    memcpy(table->free, occupancy->free, (size_t)fleet->nodes * sizeof *table->free);
    memcpy(table->free_gpus, occupancy->free_gpus, fleet->types_count * sizeof *table->free_gpus);
    for (int gpu = 0; gpu < fleet->gpus; gpu++)
        table->owners[gpu] = -1;
    table->seats_count = 0;
    for (int id = scheduler->running.first; id >= 0; id = scheduler->jobs[id].next) {
        const struct erg_cluster_job *job = &scheduler->jobs[id];
        const struct erg_gpu_shape *shape = &scheduler->speeds->shapes[job->shape];
        int seat = erg_trial_add(table, id, shape->type, erg_shape_gpus(shape));
        table->seats[seat].speed = erg_scheduler_speed(scheduler, id, job->shape)->samples_per_s;
        table->seats[seat].nodes = job->placement.count;
        for (int i = 0; i < job->placement.count; i++) {
            const struct erg_slice *slice = &job->placement.slices[i];
            for (uint64_t rest = slice->gpus; rest; rest &= rest - 1)
                table->owners[occupancy->first_owner[slice->node] + __builtin_ctzll(rest)] = seat;
        }
    }
}

int erg_trial_free_of(const struct erg_trial *table, int node)
{
    return __builtin_popcountll(table->free[node]);
}

uint64_t erg_trial_held(const struct erg_trial *table, int seat, int node)
{
    const struct erg_occupancy *occupancy = table->scheduler->occupancy;
    const int *owners = table->owners + occupancy->first_owner[node];
    int gpus = table->scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
    uint64_t held = 0;
    for (int i = 0; i < gpus; i++)
        held |= (uint64_t)(owners[i] == seat) << i;
    return held;
}

static void set_owner(struct erg_trial *table, int seat, int node, uint64_t gpus)
{
    int *owners = table->owners + table->scheduler->occupancy->first_owner[node];
    for (uint64_t rest = gpus; rest; rest &= rest - 1)
        owners[__builtin_ctzll(rest)] = seat;
}

void erg_trial_take(struct erg_trial *table, int seat, int node, uint64_t gpus)
{
    assert((table->free[node] & gpus) == gpus);
    table->seats[seat].nodes += erg_trial_held(table, seat, node) == 0;
    set_owner(table, seat, node, gpus);
    table->free[node] &= ~gpus;
    table->free_gpus[table->scheduler->occupancy->type_of[node]] -= __builtin_popcountll(gpus);
}

void erg_trial_give(struct erg_trial *table, int seat, int node, uint64_t gpus)
{
    assert((erg_trial_held(table, seat, node) & gpus) == gpus);
    set_owner(table, -1, node, gpus);
    table->seats[seat].nodes -= erg_trial_held(table, seat, node) == 0;
    if (table->scheduler->occupancy->drains[node])
        return;
    table->free[node] |= gpus;
    table->free_gpus[table->scheduler->occupancy->type_of[node]] += __builtin_popcountll(gpus);
}

int erg_trial_nodes(const struct erg_trial *table, int seat, int *nodes)
{
    const struct erg_trial_seat *what = &table->seats[seat];
    const struct erg_occupancy *occupancy = table->scheduler->occupancy;
    if (what->nodes == 0)
        return 0;
    const struct erg_gpu_type *type = &table->scheduler->fleet->types[what->type];
    const int *owner = table->owners + occupancy->first_owner[type->first_node];
    int count = 0;
    for (int node = type->first_node; count < what->nodes; node++, owner += type->gpus_per_node) {
        int gpu = 0;
        while (gpu < type->gpus_per_node && owner[gpu] != seat)
            gpu++;
        if (gpu < type->gpus_per_node)
            nodes[count++] = node;
    }
    return count;
}

void erg_trial_give_all(struct erg_trial *table, int seat)
{
    int nodes[ARENA_GPUS_MOST];
    int count = erg_trial_nodes(table, seat, nodes);
    for (int i = 0; i < count; i++)
        erg_trial_give(table, seat, nodes[i], erg_trial_held(table, seat, nodes[i]));
}

void erg_trial_swap_nodes(struct erg_trial *table, int a, int b)
{
    const struct erg_occupancy *occupancy = table->scheduler->occupancy;
    int *x = table->owners + occupancy->first_owner[a];
    int *y = table->owners + occupancy->first_owner[b];
    int gpus = table->scheduler->fleet->types[occupancy->type_of[a]].gpus_per_node;
    for (int i = 0; i < gpus; i++) {
        int owner = x[i];
        x[i] = y[i];
        y[i] = owner;
    }
    uint64_t free = table->free[a];
    table->free[a] = table->free[b];
    table->free[b] = free;
}

static double shape_speed(const struct erg_trial *table, int job, int shape)
{
    const struct erg_scheduler *scheduler = table->scheduler;
    if (shape < 0)
        return ERG_SPEED_NONE;
    const struct erg_speed *speed = erg_scheduler_speed(scheduler, job, shape);
    if (table->rules->deadlines && erg_speed_feasible(speed) &&
        !erg_scheduler_meets_deadline(scheduler, job, scheduler->speeds->shapes[shape].type,
                                      erg_shape_gpus(&scheduler->speeds->shapes[shape]), speed))
        return ERG_SPEED_NONE;
    return speed->samples_per_s;
}

double erg_trial_speed(const struct erg_trial *table, int job, int type, int nodes,
                       int gpus_per_node)
{
    return shape_speed(table, job,
                       erg_speeds_shape(table->scheduler->speeds, type, nodes, gpus_per_node));
}

double erg_trial_best_speed(const struct erg_trial *table, int job, int type, int gpus)
{
    return shape_speed(table, job, erg_speeds_best(table->scheduler->speeds, type, gpus));
}
