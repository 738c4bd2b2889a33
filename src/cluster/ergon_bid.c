/* What jobs bid for GPUs, and the market cleared, under a power cap or without. */
#include "cluster/ergon_internal.h"

#include <math.h>

/* Moves that one move leads to: the job's, its way back, and that of whoever gave way to it. */
#define STAYING 3

/* Picks the operating point by what it is worth less what its power costs; returns that, as GPUs
 * are shared out by it. */
static double pick_point(const struct ergon *ergon, const struct ergon_bidder *bidder,
                         const struct ergon_menu *menu, const struct erg_speed *speed, int gpus,
                         double idle_w, double keep, int *point)
{
    double best = -INFINITY, best_cost = 0, weight = bidder->weight * keep;
    for (int p = 0; p < speed->points_count; p++) {
        double cost = ergon->power_price * gpus * (speed->points[p].power_w - idle_w);
        double value = weight * ergon_merit(menu, speed->samples_per_s, gpus, &speed->points[p],
                                            ergon->clock_thrift) -
                       cost;
        if (value > best) {
            best = value;
            best_cost = cost;
            *point = p;
        }
    }
    return weight *
               ergon_merit(menu, speed->samples_per_s, gpus, &speed->points[*point], ERGON_THRIFT) -
           best_cost;
}

/* Offers a choice on a shape, or to stay on that which the job has. */
static void offer(struct ergon *ergon, const struct erg_scheduler *scheduler,
                  const struct ergon_bidder *bidder, const struct ergon_menu *menu, int index,
                  int shape, double keep)
{
    const struct erg_speed *speed =
        erg_scheduler_speed(scheduler, bidder->job, ERG_PLANS_ANY, shape);
    bool stays = shape == scheduler->jobs[bidder->job].shape;
    int type = scheduler->speeds->shapes[shape].type, point = 0;
    int gpus = erg_shape_gpus(&scheduler->speeds->shapes[shape]);
    double idle_w = scheduler->fleet->types[type].idle_power_w, value;
    if (!stays && ergon->power_price == 0) {
        point = menu->choices.items[index].point;
        value = bidder->weight * keep * menu->choices.items[index].merit;
    } else {
        value = pick_point(ergon, bidder, menu, speed, gpus, idle_w, keep, &point);
    }
    ERG_PUSH(
        &ergon->bids, items,
        (struct ergon_bid){index, stays, point, gpus * (speed->points[point].power_w - idle_w)});
    erg_market_offer(&ergon->market, &(struct erg_offer){type, gpus, value});
}

static void bid(struct ergon *ergon, const struct erg_scheduler *scheduler,
                const struct ergon_bidder *bidder)
{
    const struct erg_cluster_job *job = &scheduler->jobs[bidder->job];
    const struct ergon_menu *menu = ergon_menu_of(ergon, scheduler, bidder->job);
    const struct erg_gpu_shape *now =
        job->shape >= 0 ? &scheduler->speeds->shapes[job->shape] : NULL;
    int same = -1; /* the choice of as many GPUs of the same type as it has */
    erg_market_bid(&ergon->market);
    for (size_t i = 0; i < menu->choices.count; i++) {
        const struct ergon_choice *choice = &menu->choices.items[i];
        int shape = menu->localities.items[choice->first_locality];
        if (now && choice->type == now->type && choice->gpus == erg_shape_gpus(now))
            same = (int)i;
        if (shape == job->shape)
            continue;
        /* A job never has so little left that GPUs are worth nothing to it. */
        double keep_s = fmax(1, fmin(ERGON_HORIZON_S, bidder->remaining * choice->iteration_s));
        double cost_s = erg_scheduler_cost(scheduler, choice->gpus);
        offer(ergon, scheduler, bidder, menu, (int)i, shape, keep_s / (keep_s + cost_s));
    }
    if (now) {
        double cost_s = erg_scheduler_cost(scheduler, erg_shape_gpus(now));
        offer(ergon, scheduler, bidder, menu, same, job->shape,
              1 + STAYING * cost_s / ERGON_HORIZON_S);
    }
}

/* One clearing at the present price of power. Returns the watts beyond those of idle GPUs. */
static double clear_market(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    struct erg_market *market = &ergon->market;
    double extra_w = 0;
    erg_market_reset(market);
    ergon->bids.count = 0;
    for (size_t i = 0; i < ergon->bidders.count; i++)
        bid(ergon, scheduler, &ergon->bidders.items[i]);
    erg_market_clear(market);
    for (size_t i = 0; i < market->bidders.count; i++)
        if (market->bidders.items[i].given >= 0)
            extra_w += ergon->bids.items[market->bidders.items[i].given].extra_w;
    return extra_w;
}

double ergon_allowed_power(const struct erg_scheduler *scheduler)
{
    return scheduler->power_cap_w - erg_fleet_idle_power(scheduler->fleet);
}

/* The lowest price of power, to a few percent, at which the cap is kept. */
static void find_power_price(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    enum { STEPS = 12 };
    double allowed_w = ergon_allowed_power(scheduler), low = 0, high = ergon->power_price;
    ergon->power_price = 0;
    if (clear_market(ergon, scheduler) <= allowed_w)
        return;
    if (high == 0)
        high = 1e-6;
    for (ergon->power_price = high; clear_market(ergon, scheduler) > allowed_w;
         ergon->power_price *= 2)
        low = ergon->power_price;
    high = ergon->power_price;
    for (int step = 0; step < STEPS && high > 1.02 * low; step++) {
        ergon->power_price = low > 0 ? sqrt(low * high) : high / 4;
        if (clear_market(ergon, scheduler) > allowed_w)
            low = ergon->power_price;
        else
            high = ergon->power_price;
    }
    /* Prices of GPUs depend a little on those before. */
    for (ergon->power_price = high; clear_market(ergon, scheduler) > allowed_w;)
        ergon->power_price *= 1.05;
}

void ergon_clear(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    if (isinf(scheduler->power_cap_w))
        clear_market(ergon, scheduler);
    else
        find_power_price(ergon, scheduler);
}
