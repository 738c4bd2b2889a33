/* Places the market's assignments: the largest jobs first. */
#include "cluster/policies/ergon_internal.h"

#include "base/memory.h"

#include <stdlib.h>

bool erg_order_fit(struct erg_scheduler *scheduler, const struct erg_order *order)
{
    const int *shapes = order->menu->localities.items + order->choice->first_locality;
    for (int i = 0; i < order->choice->localities; i++) {
        /* Frontiers differ in length. The next decision picks a point for the actual shape. */
        const struct erg_speed *speed = erg_scheduler_speed(scheduler, order->job, shapes[i]);
        int slowest = speed->points_count - 1;
        if (erg_scheduler_fit(scheduler, order->job, shapes[i], ERG_LEAST_FREE,
                              order->point < slowest ? order->point : slowest))
            return true;
    }
    return false;
}

long erg_order_next_offer(const struct erg_scheduler *scheduler, const struct erg_market *market,
                          size_t bidder, long tried)
{
    const struct erg_offer *all = market->offers.items;
    long end = (long)market->bidders.items[bidder].end, best = -1;
    for (long o = (long)market->bidders.items[bidder].first; o < end; o++) {
        bool comes_later = tried < 0 || all[o].value < all[tried].value ||
                           (all[o].value == all[tried].value && o > tried);
        if (comes_later && all[o].value > (best < 0 ? 0 : all[best].value) &&
            all[o].gpus <= scheduler->occupancy->free_gpus[all[o].type])
            best = o;
    }
    return best;
}

/* The number of GPUs of a node that would be free without the jobs that have fewer than `gpus`
 * each. */
static int yielding(const struct erg_scheduler *scheduler, int node, int gpus)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    if (occupancy->down[node] || occupancy->drains[node])
        return 0;
    int size = scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node, count = 0;
    for (int gpu = 0; gpu < size; gpu++) {
        int owner = erg_occupancy_owner(occupancy, node, gpu);
        count += owner == -1 ||
                 (owner >= 0 && erg_placement_gpus(&scheduler->jobs[owner].placement) < gpus);
    }
    return count;
}

/* Lifts the jobs of a node that have fewer than `gpus`, until `needed` of the node are free. */
static void clear_node(struct erg_scheduler *scheduler, int node, int gpus, int needed)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    int size = scheduler->fleet->types[occupancy->type_of[node]].gpus_per_node;
    for (int gpu = 0; gpu < size && erg_occupancy_free_of(occupancy, node) < needed; gpu++) {
        int owner = erg_occupancy_owner(occupancy, node, gpu);
        if (owner >= 0 && erg_placement_gpus(&scheduler->jobs[owner].placement) < gpus)
            erg_scheduler_lift(scheduler, owner);
    }
}

/*
 * Frees scattered GPUs together for a job: on the nodes with the most free GPUs, smaller jobs give
 * way. They are placed later, since larger numbers come first. Returns false if that is not
 * enough.
 */
static bool make_room(struct erg_scheduler *scheduler, const struct erg_order *order)
{
    const struct erg_occupancy *occupancy = scheduler->occupancy;
    const struct erg_gpu_shape *shape =
        &scheduler->speeds->shapes[order->menu->localities.items[order->choice->first_locality]];
    const struct erg_gpu_type *type = &scheduler->fleet->types[shape->type];
    int gpus = erg_shape_gpus(shape);
    if (occupancy->free_gpus[shape->type] < gpus)
        return false;
    while (!erg_order_fit(scheduler, order)) {
        int best = -1, most = -1;
        for (int node = type->first_node; node < type->first_node + type->nodes; node++) {
            int free = erg_occupancy_free_of(occupancy, node);
            if (free < shape->gpus_per_node && free > most &&
                yielding(scheduler, node, gpus) >= shape->gpus_per_node) {
                most = free;
                best = node;
            }
        }
        if (best < 0)
            return false;
        clear_node(scheduler, best, gpus, shape->gpus_per_node);
    }
    return true;
}

static int order_gpus(const struct erg_scheduler *scheduler, const struct erg_order *order)
{
    return order->choice ? order->choice->gpus
                         : erg_placement_gpus(&scheduler->jobs[order->job].placement);
}

/* A job that was to stay has lost its GPUs to a larger one: finds the same number of that type for
 * it. */
static void find_again(struct erg_scheduler *scheduler, const struct erg_order *order, int type,
                       int gpus)
{
    for (size_t i = 0; i < order->menu->choices.count; i++) {
        const struct erg_menu_choice *choice = &order->menu->choices.items[i];
        struct erg_order again = {order->job, order->menu, choice, order->point};
        if (choice->type == type && choice->gpus == gpus && erg_order_fit(scheduler, &again))
            return;
    }
}

void erg_orders_place(struct erg_scheduler *scheduler, const struct erg_order *orders, size_t count)
{
    struct stay {
        int type, gpus;
    } *stays = erg_xcalloc(count, sizeof *stays);
    int *heads = erg_xmalloc((size_t)(scheduler->speeds->gpus_most + 1) * sizeof *heads);
    int *next = erg_xmalloc((count + 1) * sizeof *next);
    for (int gpus = 0; gpus <= scheduler->speeds->gpus_most; gpus++)
        heads[gpus] = -1;
    for (size_t i = count; i-- > 0;) {
        const struct erg_cluster_job *job = &scheduler->jobs[orders[i].job];
        int gpus = order_gpus(scheduler, &orders[i]);
        next[i] = heads[gpus];
        heads[gpus] = (int)i;
        if (!orders[i].choice) {
            stays[i] = (struct stay){scheduler->speeds->shapes[job->shape].type, gpus};
            if (job->point != orders[i].point)
                erg_scheduler_place(scheduler, job->id, &job->placement, orders[i].point);
        } else if (job->placement.count > 0) {
            erg_scheduler_lift(scheduler, job->id);
        }
    }
    for (int gpus = scheduler->speeds->gpus_most; gpus > 0; gpus--)
        for (int i = heads[gpus]; i >= 0; i = next[i]) {
            if (scheduler->jobs[orders[i].job].placement.count > 0)
                continue;
            if (!orders[i].choice)
                find_again(scheduler, &orders[i], stays[i].type, stays[i].gpus);
            else if (!erg_order_fit(scheduler, &orders[i]))
                make_room(scheduler, &orders[i]);
        }
    free(stays);
    free(heads);
    free(next);
}
