/* The bids of jobs for GPUs, and the clearing of the market with and without a power cap. */
#include "cluster/policies/ergon_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* A move is priced as this many restarts: the job's, its way back, and that of the job that it
 * displaces. */
#define STAYING 3
/* Share of a job's worth for which it does not change its clock: worths and prices vary by as much
 * with each arrival. */
#define STAYING_CLOCK 0.02

/* A shape on which a job bids. */
struct lot {
    const struct ergon_bidder *bidder;
    const struct erg_menu *menu;
    const struct ergon_worth *worths; /* of its points, if they are known; else NULL */
    const struct erg_speed *speed;
    int gpus;
    double base_w; /* of each */
};

/* Computes the worth of all operating points of a menu's choices; repeats it only if the clocking
 * changed. */
static void find_worths(const struct ergon *ergon, const struct erg_scheduler *scheduler,
                        int workload)
{
    struct erg_menu *menu = &ergon->menus[workload];
    const struct ergon_clocking *by = &ergon->clocking;
    size_t count = 0;
    if (menu->worths && menu->worths_by.thrift == by->thrift &&
        menu->worths_by.rest_w == by->rest_w)
        return;
    for (size_t i = 0; i < menu->choices.count; i++) {
        struct erg_menu_choice *choice = &menu->choices.items[i];
        const struct erg_speed *speed = erg_speed_at(scheduler->speeds, workload, choice->shape);
        choice->first_worth = count;
        count += (size_t)speed->points_count;
        menu->worths = erg_xrealloc(menu->worths, count, sizeof *menu->worths);
        for (int p = 0; p < speed->points_count; p++)
            menu->worths[choice->first_worth + (size_t)p] =
                (struct ergon_worth){erg_menu_merit(menu, choice->samples_per_s, choice->gpus,
                                                    &speed->points[p], by->rest_w, by->thrift),
                                     erg_menu_merit(menu, choice->samples_per_s, choice->gpus,
                                                    &speed->points[p], 0, ERGON_THRIFT)};
    }
    menu->worths_by = *by;
}

static struct ergon_worth worth_of(const struct ergon *ergon, const struct lot *lot, int point)
{
    double rest_w = lot->bidder->rest_w;
    if (lot->worths && rest_w == 0)
        return lot->worths[point];
    const struct erg_operating_point *at = &lot->speed->points[point];
    double speed = lot->speed->samples_per_s;
    return (struct ergon_worth){erg_menu_merit(lot->menu, speed, lot->gpus, at,
                                               ergon->clocking.rest_w + rest_w,
                                               ergon->clocking.thrift),
                                erg_menu_merit(lot->menu, speed, lot->gpus, at, 0, ERGON_THRIFT)};
}

/* Picks the operating point by its worth minus the cost of its energy; `now` (-1: none) is kept
 * unless another point is clearly better. Returns the value for the assignment of GPUs: its worth
 * minus the cost of its power under a cap. */
static double pick_point(const struct ergon *ergon, const struct lot *lot, double keep, int now,
                         int *point)
{
    double best = -INFINITY, best_w = 0, best_shared = 0, weight = lot->bidder->weight * keep;
    bool is_long = lot->bidder->needed_s >= ergon->long_s;
    double price = is_long ? ergon->power_price : fmax(ergon->power_price, ergon->energy_price);
    for (int p = 0; p < lot->speed->points_count; p++) {
        double extra_w = lot->gpus * (lot->speed->points[p].power_w - lot->base_w);
        struct ergon_worth worth = worth_of(ergon, lot, p);
        double value =
            weight * worth.clocked * (p == now ? 1 + STAYING_CLOCK : 1) - price * extra_w;
        if (value > best) {
            best = value;
            best_w = extra_w;
            best_shared = worth.shared;
            *point = p;
        }
    }
    return weight * best_shared - ergon->power_price * best_w;
}

/* Returns true if each job picks its own operating point. */
static bool picks_itself(const struct ergon *ergon, const struct ergon_bidder *bidder)
{
    return ergon->power_price > 0 || ergon->energy_price > 0 || bidder->critical > 0;
}

/* Offers a shape at the operating point that the job picks itself: as a choice of the menu, or to
 * stay on it. */
static void offer_point(struct ergon *ergon, const struct erg_scheduler *scheduler,
                        const struct ergon_bidder *bidder, const struct erg_menu *menu, int index,
                        int shape, double keep)
{
    bool stays = shape == scheduler->jobs[bidder->job].shape;
    const struct erg_menu_choice *choice = index >= 0 ? &menu->choices.items[index] : NULL;
    int type = scheduler->speeds->shapes[shape].type, point = 0;
    const struct lot lot = {
        .bidder = bidder,
        .menu = menu,
        .worths = choice && choice->shape == shape ? menu->worths + choice->first_worth : NULL,
        .speed = erg_scheduler_speed(scheduler, bidder->job, shape),
        .gpus = erg_shape_gpus(&scheduler->speeds->shapes[shape]),
        .base_w = erg_fleet_base_power(scheduler->fleet, type),
    };
    int now = stays && picks_itself(ergon, bidder) ? scheduler->jobs[bidder->job].point : -1;
    double value = pick_point(ergon, &lot, keep, now, &point);
    double extra_w = lot.gpus * (lot.speed->points[point].power_w - lot.base_w);
    ERG_PUSH(&ergon->bids, items, (struct ergon_bid){index, stays, point, extra_w});
    erg_market_offer(&ergon->market, &(struct erg_offer){type, lot.gpus, value});
}

/* The share of an hour, or of the job's remaining time if that is less, that remains after a
 * restart. It stays above 0, so GPUs always have some worth for a job. */
static double keep_of(double left_s, double cost_s)
{
    double keep_s = fmax(1, fmin(ERGON_HORIZON_S, left_s));
    return keep_s / (keep_s + cost_s);
}

/* Offers to stay on the job's GPUs; `index` is the choice with the same number of GPUs of that
 * type, or -1. */
static void offer_stay(struct ergon *ergon, const struct erg_scheduler *scheduler,
                       const struct ergon_bidder *bidder, const struct erg_menu *menu, int index)
{
    int shape = scheduler->jobs[bidder->job].shape;
    int gpus = erg_shape_gpus(&scheduler->speeds->shapes[shape]);
    double cost_s =
        erg_scheduler_cost(scheduler, bidder->job, scheduler->speeds->shapes[shape].type, gpus);
    double left_s =
        bidder->remaining * erg_scheduler_speed(scheduler, bidder->job, shape)->iteration_s;
    double keep = 1 + STAYING * cost_s / fmin(ERGON_HORIZON_S, fmax(cost_s, left_s));
    offer_point(ergon, scheduler, bidder, menu, index, shape, keep);
}

static double cost_of(const struct erg_scheduler *scheduler, const struct ergon_bidder *bidder,
                      const struct erg_menu_choice *choice)
{
    return erg_scheduler_cost(scheduler, bidder->job, choice->type, choice->gpus);
}

/* The cost of getting GPUs, for the cheapest choice. */
static double least_cost(const struct erg_scheduler *scheduler, const struct ergon_bidder *bidder,
                         const struct erg_menu *menu)
{
    double least_s = INFINITY;
    for (size_t i = 0; i < menu->choices.count; i++)
        least_s = fmin(least_s, cost_of(scheduler, bidder, &menu->choices.items[i]));
    return least_s;
}

/* All offers of a job, in the order of types and GPUs. */
static void bid(struct ergon *ergon, const struct erg_scheduler *scheduler,
                const struct ergon_bidder *bidder)
{
    int shape = scheduler->jobs[bidder->job].shape;
    const struct erg_menu *menu = erg_menu_of(ergon->menus, scheduler, bidder->job);
    const struct erg_gpu_shape *now = shape >= 0 ? &scheduler->speeds->shapes[shape] : NULL;
    int type = now ? now->type : -1, gpus = now ? erg_shape_gpus(now) : 0;
    bool may_stay = now != NULL;
    double start_s = now ? 0 : least_cost(scheduler, bidder, menu); /* it needs that in any case */
    erg_market_bid(&ergon->market);
    find_worths(ergon, scheduler, scheduler->jobs[bidder->job].request->workload);
    for (int i = 0; i < (int)menu->choices.count; i++) {
        const struct erg_menu_choice *choice = &menu->choices.items[i];
        if (may_stay && (choice->type > type || (choice->type == type && choice->gpus >= gpus))) {
            bool same = choice->type == type && choice->gpus == gpus;
            offer_stay(ergon, scheduler, bidder, menu, same ? i : -1);
            may_stay = false;
        }
        if (choice->shape == shape)
            continue;
        double left_s = bidder->remaining * choice->iteration_s + start_s;
        offer_point(ergon, scheduler, bidder, menu, i, choice->shape,
                    keep_of(left_s, cost_of(scheduler, bidder, choice)));
    }
    if (may_stay)
        offer_stay(ergon, scheduler, bidder, menu, -1);
}

/* One clearing at the present price of power. Returns the watts beyond the base power of GPUs. */
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

/* The power that jobs may draw beyond the base power of all GPUs, if they have these numbers of
 * GPUs (by type). Other GPUs of nodes that are on idle. */
static double allowed_power(const struct erg_scheduler *scheduler, const int *gpus)
{
    const struct erg_fleet *fleet = scheduler->fleet;
    double others_w = 0;
    for (int t = 0; t < (int)fleet->types_count; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        double base_w = erg_fleet_base_power(fleet, t);
        int on = (type->nodes - scheduler->occupancy->off_nodes[t]) * type->gpus_per_node;
        others_w += type->nodes * type->gpus_per_node * base_w;
        others_w += fmax(0, on - gpus[t]) * (type->idle_power_w - base_w);
    }
    return scheduler->power_cap_w - others_w;
}

/* Clears the market, and returns the demanded watts and the possible further ones; below 0: the cap
 * is not kept. */
static double clear_below_cap(struct ergon *ergon, const struct erg_scheduler *scheduler,
                              double *wanted_w)
{
    const struct erg_market *market = &ergon->market;
    int *gpus = erg_xcalloc((size_t)market->types, sizeof *gpus);
    *wanted_w = clear_market(ergon, scheduler);
    for (size_t i = 0; i < market->bidders.count; i++)
        if (market->bidders.items[i].given >= 0) {
            const struct erg_offer *offer = &market->offers.items[market->bidders.items[i].given];
            gpus[offer->type] += offer->gpus;
        }
    double left_w = allowed_power(scheduler, gpus) - *wanted_w;
    free(gpus);
    return left_w;
}

/* Clears the market at a price of power that uses the cap to within half a per cent, or that is the
 * lowest, to within a few per cent, that keeps it. Returns the power beyond the base power of
 * GPUs. */
static double find_power_price(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    enum { STEPS = 12 };
    double spare_w = 0.005 * scheduler->power_cap_w, low = 0, high = ergon->power_price, wanted_w;
    ergon->power_price = 0;
    double low_w = clear_below_cap(ergon, scheduler, &wanted_w), high_w;
    if (low_w >= 0)
        return wanted_w;
    if (high == 0) /* no price yet: the mean worth of a watt */
        high = erg_market_value(&ergon->market) / wanted_w;
    for (ergon->power_price = high; (high_w = clear_below_cap(ergon, scheduler, &wanted_w)) < 0;
         ergon->power_price *= 2) {
        low = ergon->power_price;
        low_w = high_w;
    }
    high = ergon->power_price;
    for (int step = 0; step < STEPS && high > 1.02 * low && high_w > spare_w; step++) {
        /* Power falls about as the logarithm of its price. */
        double part = fmax(0.1, fmin(0.9, low_w / (low_w - high_w)));
        ergon->power_price = low > 0 ? low * pow(high / low, part) : high / 4;
        double left_w = clear_below_cap(ergon, scheduler, &wanted_w);
        if (left_w < 0) {
            low = ergon->power_price;
            low_w = left_w;
        } else {
            high = ergon->power_price;
            high_w = left_w;
        }
    }
    if (ergon->power_price == high)
        return wanted_w;
    /* Prices of GPUs depend slightly on earlier ones. */
    for (ergon->power_price = high; clear_below_cap(ergon, scheduler, &wanted_w) < 0;)
        ergon->power_price *= 1.05;
    return wanted_w;
}

/* The worth of GPUs per watt beyond base power. */
static double rent_per_watt(const struct erg_market *market, double extra_w)
{
    double rent = 0;
    for (int type = 0; type < market->types; type++)
        rent += market->prices[type] * market->supply[type];
    return extra_w > 0 ? rent / extra_w : 0;
}

void erg_bids_clear(struct ergon *ergon, const struct erg_scheduler *scheduler)
{
    double extra_w;
    if (isinf(scheduler->power_cap_w))
        extra_w = clear_market(ergon, scheduler);
    else
        extra_w = find_power_price(ergon, scheduler);
    ergon->rent_per_w = rent_per_watt(&ergon->market, extra_w);
}
