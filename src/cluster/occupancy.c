/* Which GPUs are free, and where there is room for a shape. */
#include "cluster/occupancy.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int bits(uint64_t gpus)
{
    return __builtin_popcountll(gpus);
}

uint64_t erg_gpus_lowest(uint64_t gpus, int count)
{
    uint64_t chosen = 0;
    for (int i = 0; i < count; i++) {
        assert(gpus); /* as many as requested are free */
        uint64_t lowest = gpus & -gpus;
        chosen |= lowest;
        gpus ^= lowest;
    }
    return chosen;
}

static uint64_t all_gpus(const struct erg_gpu_type *type)
{
    return type->gpus_per_node == 64 ? ~(uint64_t)0 : ((uint64_t)1 << type->gpus_per_node) - 1;
}

/* The GPUs of a node that can be assigned: the free ones, if the node is up and does not drain. */
static uint64_t givable(const struct erg_occupancy *occupancy, int node)
{
    const int *owners = occupancy->owners + occupancy->first_owner[node];
    int gpus = occupancy->fleet->types[occupancy->type_of[node]].gpus_per_node;
    uint64_t free = 0;
    if (occupancy->down[node] || occupancy->drains[node])
        return 0;
    for (int gpu = 0; gpu < gpus; gpu++)
        free |= (uint64_t)(owners[gpu] == -1) << gpu;
    return free;
}

/* The level of a node: its number of free GPUs; for a node that is off, one more than its number of
 * GPUs. */
static int level_at(const struct erg_occupancy *occupancy, int node)
{
    int free = bits(occupancy->free[node]);
    int all = occupancy->fleet->types[occupancy->type_of[node]].gpus_per_node;
    return occupancy->off[node] && free == all ? all + 1 : free;
}

/* The number of nodes of a type on a level. */
static int *level_nodes(const struct erg_occupancy *occupancy, int type, int level)
{
    return &occupancy->levels[type * (ERG_NODE_GPUS_MOST + 2) + level];
}

static void count_node(struct erg_occupancy *occupancy, int node, int by)
{
    *level_nodes(occupancy, occupancy->type_of[node], level_at(occupancy, node)) += by;
}

static void set_free(struct erg_occupancy *occupancy, int node, uint64_t gpus)
{
    int index = occupancy->type_of[node];
    const struct erg_gpu_type *type = &occupancy->fleet->types[index];
    int before = bits(occupancy->free[node]), after = bits(gpus);
    count_node(occupancy, node, -1);
    occupancy->free_gpus[index] += after - before;
    occupancy->idle_nodes[index] +=
        (after == type->gpus_per_node) - (before == type->gpus_per_node);
    occupancy->free[node] = gpus;
    assert(occupancy->free_gpus[index] >= 0 && occupancy->idle_nodes[index] >= 0);
    count_node(occupancy, node, 1);
}

struct erg_occupancy *erg_occupancy_new(const struct erg_fleet *fleet)
{
    struct erg_occupancy *occupancy = erg_xcalloc(1, sizeof *occupancy);
    size_t types = fleet->types_count, nodes = (size_t)fleet->nodes;
    occupancy->fleet = fleet;
    occupancy->free = erg_xcalloc(nodes, sizeof *occupancy->free);
    occupancy->down = erg_xcalloc(nodes, sizeof *occupancy->down);
    occupancy->drains = erg_xcalloc(nodes, sizeof *occupancy->drains);
    occupancy->off = erg_xcalloc(nodes, sizeof *occupancy->off);
    occupancy->type_of = erg_xcalloc(nodes, sizeof *occupancy->type_of);
    occupancy->first_owner = erg_xcalloc(nodes, sizeof *occupancy->first_owner);
    occupancy->owners = erg_xcalloc((size_t)fleet->gpus, sizeof *occupancy->owners);
    occupancy->levels = erg_xcalloc(types * (ERG_NODE_GPUS_MOST + 2), sizeof *occupancy->levels);
    occupancy->free_gpus = erg_xcalloc(types, sizeof *occupancy->free_gpus);
    occupancy->off_nodes = erg_xcalloc(types, sizeof *occupancy->off_nodes);
    occupancy->idle_nodes = erg_xcalloc(types, sizeof *occupancy->idle_nodes);
    for (int i = 0; i < fleet->gpus; i++)
        occupancy->owners[i] = -1;
    int owners = 0;
    for (size_t t = 0; t < types; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        for (int node = type->first_node; node < type->first_node + type->nodes; node++) {
            occupancy->type_of[node] = (int)t;
            occupancy->first_owner[node] = owners;
            owners += type->gpus_per_node;
            assert(owners <= fleet->gpus);
            set_free(occupancy, node, all_gpus(type));
        }
    }
    return occupancy;
}

void erg_occupancy_free(struct erg_occupancy *occupancy)
{
    if (!occupancy)
        return;
    free(occupancy->free);
    free(occupancy->down);
    free(occupancy->drains);
    free(occupancy->off);
    free(occupancy->type_of);
    free(occupancy->owners);
    free(occupancy->first_owner);
    free(occupancy->levels);
    free(occupancy->free_gpus);
    free(occupancy->idle_nodes);
    free(occupancy->off_nodes);
    free(occupancy);
}

bool erg_occupancy_idle(const struct erg_occupancy *occupancy, int node)
{
    return occupancy->free[node] == all_gpus(&occupancy->fleet->types[occupancy->type_of[node]]);
}

int erg_occupancy_free_of(const struct erg_occupancy *occupancy, int node)
{
    return bits(occupancy->free[node]);
}

int erg_occupancy_up(const struct erg_occupancy *occupancy, int type)
{
    const struct erg_gpu_type *gpus = &occupancy->fleet->types[type];
    int up = 0;
    for (int node = gpus->first_node; node < gpus->first_node + gpus->nodes; node++)
        up += erg_occupancy_usable(occupancy, node);
    return up;
}

int erg_occupancy_usable(const struct erg_occupancy *occupancy, int node)
{
    const int *owners = occupancy->owners + occupancy->first_owner[node];
    int gpus = occupancy->fleet->types[occupancy->type_of[node]].gpus_per_node, usable = 0;
    if (occupancy->down[node])
        return 0;
    if (!occupancy->foreign && !occupancy->drains[node])
        return gpus;
    for (int gpu = 0; gpu < gpus; gpu++)
        usable += owners[gpu] >= 0 || (owners[gpu] == -1 && !occupancy->drains[node]);
    return usable;
}

int erg_occupancy_owner(const struct erg_occupancy *occupancy, int node, int gpu)
{
    return occupancy->owners[occupancy->first_owner[node] + gpu];
}

/* Adds the lowest free GPUs of the nodes on levels from `least` to `most`, in the order of nodes,
 * until the placement has as many nodes as the shape. */
static void choose(const struct erg_occupancy *occupancy, const struct erg_gpu_shape *shape,
                   int least, int most, struct erg_placement *placement)
{
    const struct erg_gpu_type *type = &occupancy->fleet->types[shape->type];
    if (least == most && *level_nodes(occupancy, shape->type, least) == 0)
        return;
    for (int node = type->first_node;
         node < type->first_node + type->nodes && placement->count < shape->nodes; node++) {
        int level = level_at(occupancy, node);
        if (level >= least && level <= most)
            erg_placement_add(placement, node,
                              erg_gpus_lowest(occupancy->free[node], shape->gpus_per_node));
    }
}

bool erg_occupancy_find(const struct erg_occupancy *occupancy, const struct erg_gpu_shape *shape,
                        enum erg_node_order order, struct erg_placement *placement)
{
    int type = shape->type, gpus = shape->gpus_per_node, enough = 0;
    int capacity = occupancy->fleet->types[type].gpus_per_node;
    for (int level = gpus; level <= capacity + 1; level++)
        enough += *level_nodes(occupancy, type, level);
    if (enough < shape->nodes)
        return false;
    placement->count = 0;
    if (order == ERG_FIRST_NODES)
        choose(occupancy, shape, gpus, capacity, placement);
    else if (order == ERG_MOST_FREE)
        for (int level = capacity; level >= gpus; level--)
            choose(occupancy, shape, level, level, placement);
    else
        for (int level = gpus; level <= capacity; level++)
            choose(occupancy, shape, level, level, placement);
    choose(occupancy, shape, capacity + 1, capacity + 1, placement); /* nodes that are off */
    assert(placement->count == shape->nodes);
    return true;
}

/* Moves GPUs from the owner `from` (-1: free) to `to`. */
static void hand_over(struct erg_occupancy *occupancy, const struct erg_slice *slice, int from,
                      int to)
{
    int *owners = occupancy->owners + occupancy->first_owner[slice->node];
    for (uint64_t rest = slice->gpus; rest; rest &= rest - 1) {
        int *owner = &owners[__builtin_ctzll(rest)];
        assert(*owner == from);
        *owner = to;
        occupancy->foreign += (to == ERG_OWNER_FOREIGN) - (from == ERG_OWNER_FOREIGN);
    }
}

static bool takes_new(const struct erg_occupancy *occupancy, int node)
{
    return !occupancy->down[node] && !occupancy->drains[node];
}

void erg_occupancy_take(struct erg_occupancy *occupancy, int job,
                        const struct erg_placement *placement)
{
    for (int i = 0; i < placement->count; i++) {
        const struct erg_slice *slice = &placement->slices[i];
        hand_over(occupancy, slice, -1, job);
        set_free(occupancy, slice->node, occupancy->free[slice->node] & ~slice->gpus);
    }
}

void erg_occupancy_give(struct erg_occupancy *occupancy, int job,
                        const struct erg_placement *placement)
{
    for (int i = 0; i < placement->count; i++) {
        const struct erg_slice *slice = &placement->slices[i];
        hand_over(occupancy, slice, job, -1);
        if (takes_new(occupancy, slice->node))
            set_free(occupancy, slice->node, occupancy->free[slice->node] | slice->gpus);
    }
}

void erg_occupancy_switch(struct erg_occupancy *occupancy, int node, bool off)
{
    assert(occupancy->off[node] != off && !occupancy->down[node]);
    assert(!off || erg_occupancy_idle(occupancy, node));
    count_node(occupancy, node, -1);
    occupancy->off[node] = off;
    occupancy->off_nodes[occupancy->type_of[node]] += off ? 1 : -1;
    count_node(occupancy, node, 1);
}

void erg_occupancy_fail(struct erg_occupancy *occupancy, int node)
{
    assert(!occupancy->off[node]);
    assert(erg_occupancy_usable(occupancy, node) == erg_occupancy_free_of(occupancy, node));
    occupancy->down[node] = true;
    set_free(occupancy, node, 0);
}

void erg_occupancy_repair(struct erg_occupancy *occupancy, int node)
{
    assert(occupancy->down[node]);
    occupancy->down[node] = false;
    set_free(occupancy, node, givable(occupancy, node));
}

void erg_occupancy_drain(struct erg_occupancy *occupancy, int node, bool drains)
{
    occupancy->drains[node] = drains;
    set_free(occupancy, node, givable(occupancy, node));
}

void erg_placement_add(struct erg_placement *placement, int node, uint64_t gpus)
{
    if (placement->count == placement->capacity) {
        placement->capacity = placement->capacity ? 2 * placement->capacity : 4;
        placement->slices =
            erg_xrealloc(placement->slices, (size_t)placement->capacity, sizeof *placement->slices);
    }
    placement->slices[placement->count++] = (struct erg_slice){node, gpus};
}

void erg_placement_assign(struct erg_placement *to, const struct erg_placement *from)
{
    if (to == from)
        return;
    if (to->capacity < from->count) {
        to->capacity = from->count;
        to->slices = erg_xrealloc(to->slices, (size_t)to->capacity, sizeof *to->slices);
    }
    to->count = from->count;
    if (from->count > 0)
        memcpy(to->slices, from->slices, (size_t)from->count * sizeof *to->slices);
}

bool erg_placement_within(const struct erg_placement *a, const struct erg_placement *b)
{
    for (int i = 0; i < a->count; i++) {
        const struct erg_slice *slice = &a->slices[i];
        int at = 0;
        while (at < b->count && b->slices[at].node != slice->node)
            at++;
        if (at == b->count || (slice->gpus & ~b->slices[at].gpus))
            return false;
    }
    return true;
}

bool erg_placement_equal(const struct erg_placement *a, const struct erg_placement *b)
{
    return a->count == b->count && erg_placement_gpus(a) == erg_placement_gpus(b) &&
           erg_placement_within(a, b);
}

int erg_placement_gpus(const struct erg_placement *placement)
{
    return placement->count ? placement->count * bits(placement->slices[0].gpus) : 0;
}

void erg_placement_release(struct erg_placement *placement)
{
    free(placement->slices);
    *placement = (struct erg_placement){0};
}
