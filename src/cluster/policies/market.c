/* The market: prices, the assignment at these prices, and the sale of the rest. */
#include "cluster/policies/market.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* A step of the assignment: a bidder could take an offer. */
struct erg_market_step {
    double urgency;
    size_t bidder, offer;
};

/* How a price moves. */
struct erg_market_pace {
    double step;   /* of its logarithm */
    int direction; /* of the last step; 0: none yet */
};

void erg_market_init(struct erg_market *market, int types)
{
    *market = (struct erg_market){
        .types = types,
        .supply = erg_xcalloc((size_t)types, sizeof *market->supply),
        .left = erg_xcalloc((size_t)types, sizeof *market->left),
        .prices = erg_xcalloc((size_t)types, sizeof *market->prices),
        .paces = erg_xcalloc((size_t)types, sizeof *market->paces),
    };
}

void erg_market_release(struct erg_market *market)
{
    free(market->supply);
    free(market->left);
    free(market->prices);
    free(market->paces);
    free(market->offers.items);
    free(market->bidders.items);
    free(market->steps);
}

void erg_market_reset(struct erg_market *market)
{
    market->offers.count = market->bidders.count = 0;
}

void erg_market_bid(struct erg_market *market)
{
    size_t at = market->offers.count;
    ERG_PUSH(&market->bidders, items, (struct erg_bidder){at, at, -1});
}

void erg_market_offer(struct erg_market *market, const struct erg_offer *offer)
{
    ERG_PUSH(&market->offers, items, *offer);
    market->bidders.items[market->bidders.count - 1].end = market->offers.count;
}

static double surplus_of(const struct erg_market *market, const struct erg_offer *offer)
{
    return offer->value - market->prices[offer->type] * offer->gpus;
}

/* The bidder's offer with the largest positive surplus at the present prices, or -1. */
static long best_offer(const struct erg_market *market, const struct erg_bidder *bidder)
{
    double best = 0;
    long chosen = -1;
    for (size_t i = bidder->first; i < bidder->end; i++) {
        double surplus = surplus_of(market, &market->offers.items[i]);
        if (surplus > best) {
            best = surplus;
            chosen = (long)i;
        }
    }
    return chosen;
}

/* ---- prices ---- */

#define FIRST_STEP 0.05 /* of a price's logarithm; */
#define LAST_STEP 1e-3
#define GROWTH 1.5    /* while the direction stays the same, */
#define SHRINKAGE 0.4 /* and when it changes */

/* The mean over bidders and types of the best worth of a GPU. */
static double mean_rate(const struct erg_market *market, double *best)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < market->bidders.count; i++) {
        const struct erg_bidder *bidder = &market->bidders.items[i];
        for (int type = 0; type < market->types; type++)
            best[type] = 0;
        for (size_t o = bidder->first; o < bidder->end; o++) {
            const struct erg_offer *offer = &market->offers.items[o];
            best[offer->type] = fmax(best[offer->type], offer->value / offer->gpus);
        }
        for (int type = 0; type < market->types; type++) {
            sum += best[type];
            count += best[type] > 0;
        }
    }
    return count > 0 ? sum / (double)count : 0;
}

/* Fills `left` with the GPUs that are not sold at the present prices: negative where demand exceeds
 * supply. */
static void demand(struct erg_market *market)
{
    for (int type = 0; type < market->types; type++)
        market->left[type] = market->supply[type];
    for (size_t i = 0; i < market->bidders.count; i++) {
        long chosen = best_offer(market, &market->bidders.items[i]);
        if (chosen >= 0)
            market->left[market->offers.items[chosen].type] -= market->offers.items[chosen].gpus;
    }
}

/* Moves a price towards more or less demand of its type; false if it stays. */
static bool move_price(struct erg_market *market, int type, double least)
{
    struct erg_market_pace *pace = &market->paces[type];
    double before = market->prices[type];
    int direction = (market->left[type] < 0) - (market->left[type] > 0);
    if (direction == 0)
        return false;
    if (pace->direction)
        pace->step =
            direction == pace->direction ? fmin(1, GROWTH * pace->step) : SHRINKAGE * pace->step;
    pace->direction = direction;
    if (pace->step < LAST_STEP)
        return false;
    market->prices[type] = fmax(least, before * exp(direction * pace->step));
    return market->prices[type] != before;
}

/*
 * Prices move in proportion to themselves: values span orders of magnitude. Each has its own step,
 * which grows while demand stays on one side of supply and shrinks when it changes sides
 * (Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning: the RPROP
 * algorithm", 1993), since the response of demand to a price is unknown. A price that no bidder has
 * paid yet starts at the mean value of a GPU.
 */
static void find_prices(struct erg_market *market)
{
    enum { STEPS = 40 };
    double *best = erg_xcalloc((size_t)market->types, sizeof *best);
    double start = mean_rate(market, best), least = 1e-6 * start;
    free(best);
    if (start == 0)
        return;
    for (int type = 0; type < market->types; type++) {
        market->paces[type] = (struct erg_market_pace){.step = FIRST_STEP};
        if (market->prices[type] < least)
            market->prices[type] = start;
    }
    bool moved = true;
    for (int step = 0; step < STEPS && moved; step++) {
        moved = false;
        demand(market);
        for (int type = 0; type < market->types; type++)
            moved |= move_price(market, type, least);
    }
}

/* ---- assignment ---- */

static bool fits(const struct erg_market *market, const struct erg_bidder *bidder,
                 const struct erg_offer *offer)
{
    int left = market->left[offer->type];
    if (bidder->given >= 0) {
        const struct erg_offer *own = &market->offers.items[bidder->given];
        left += own->type == offer->type ? own->gpus : 0;
    }
    return offer->gpus <= left;
}

static void give(struct erg_market *market, struct erg_bidder *bidder, long chosen)
{
    if (bidder->given >= 0) {
        const struct erg_offer *own = &market->offers.items[bidder->given];
        market->left[own->type] += own->gpus;
    }
    market->left[market->offers.items[chosen].type] -= market->offers.items[chosen].gpus;
    bidder->given = chosen;
}

static int compare_steps(const void *a, const void *b)
{
    const struct erg_market_step *x = a, *y = b;
    if (x->urgency != y->urgency)
        return x->urgency > y->urgency ? -1 : 1;
    if (x->bidder != y->bidder)
        return x->bidder < y->bidder ? -1 : 1;
    return (x->offer > y->offer) - (x->offer < y->offer);
}

static void sort_steps(struct erg_market *market, size_t count)
{
    qsort(market->steps, count, sizeof *market->steps, compare_steps);
}

/* The best of the rest. */
static long best_that_fits(const struct erg_market *market, const struct erg_bidder *bidder)
{
    double best = 0;
    long chosen = -1;
    for (size_t o = bidder->first; o < bidder->end; o++) {
        const struct erg_offer *offer = &market->offers.items[o];
        double surplus = surplus_of(market, offer);
        if (surplus > best && fits(market, bidder, offer)) {
            best = surplus;
            chosen = (long)o;
        }
    }
    return chosen;
}

/* Gives all bidders their best offer at these prices, the largest surplus per GPU first. A bidder
 * that finds too few GPUs left takes the best of its offers that still fit. */
static void serve(struct erg_market *market)
{
    size_t count = 0;
    for (size_t i = 0; i < market->bidders.count; i++) {
        long chosen = best_offer(market, &market->bidders.items[i]);
        market->bidders.items[i].given = -1;
        if (chosen < 0)
            continue;
        const struct erg_offer *offer = &market->offers.items[chosen];
        market->steps[count++] = (struct erg_market_step){
            surplus_of(market, offer) / (market->prices[offer->type] * offer->gpus), i,
            (size_t)chosen};
    }
    sort_steps(market, count);
    for (int type = 0; type < market->types; type++)
        market->left[type] = market->supply[type];
    for (size_t i = 0; i < count; i++) {
        struct erg_bidder *bidder = &market->bidders.items[market->steps[i].bidder];
        long chosen = (long)market->steps[i].offer;
        if (!fits(market, bidder, &market->offers.items[chosen]))
            chosen = best_that_fits(market, bidder);
        if (chosen >= 0)
            give(market, bidder, chosen);
    }
}

/*
 * Sells the remaining GPUs at any price to the bidders to whom they add most value per GPU. One
 * pass considers every offer that fits once. Gains change during a pass, so a second pass may sell
 * more.
 */
static bool sell_rest(struct erg_market *market)
{
    size_t count = 0;
    bool sold = false, any_left = false;
    for (int type = 0; type < market->types; type++)
        any_left |= market->left[type] > 0;
    for (size_t i = 0; i < market->bidders.count; i++) {
        const struct erg_bidder *bidder = &market->bidders.items[i];
        if (!any_left && bidder->given < 0)
            continue;
        const struct erg_offer *own =
            bidder->given >= 0 ? &market->offers.items[bidder->given] : NULL;
        for (size_t o = bidder->first; o < bidder->end; o++) {
            const struct erg_offer *offer = &market->offers.items[o];
            double gain = offer->value - (own ? own->value : 0);
            if (gain <= 0 || !fits(market, bidder, offer))
                continue;
            double more = offer->gpus - (own && own->type == offer->type ? own->gpus : 0);
            market->steps[count++] = (struct erg_market_step){gain / fmax(more, 0.5), i, o};
        }
    }
    sort_steps(market, count);
    for (size_t i = 0; i < count; i++) {
        struct erg_bidder *bidder = &market->bidders.items[market->steps[i].bidder];
        const struct erg_offer *offer = &market->offers.items[market->steps[i].offer];
        double have = bidder->given >= 0 ? market->offers.items[bidder->given].value : 0;
        if (offer->value > have && fits(market, bidder, offer)) {
            give(market, bidder, (long)market->steps[i].offer);
            sold = true;
        }
    }
    return sold;
}

void erg_market_clear(struct erg_market *market)
{
    enum { PASSES = 8 };
    if (market->steps_capacity < market->offers.count) {
        market->steps_capacity = market->offers.capacity;
        market->steps = erg_xrealloc(market->steps, market->steps_capacity, sizeof *market->steps);
    }
    find_prices(market);
    serve(market);
    for (int pass = 0; pass < PASSES && sell_rest(market); pass++)
        continue;
}

double erg_market_value(const struct erg_market *market)
{
    double value = 0;
    for (size_t i = 0; i < market->bidders.count; i++)
        if (market->bidders.items[i].given >= 0)
            value += market->offers.items[market->bidders.items[i].given].value;
    return value;
}

double erg_market_bound(const struct erg_market *market)
{
    double bound = 0;
    for (int type = 0; type < market->types; type++)
        bound += market->prices[type] * market->supply[type];
    for (size_t i = 0; i < market->bidders.count; i++) {
        long chosen = best_offer(market, &market->bidders.items[i]);
        if (chosen >= 0)
            bound += surplus_of(market, &market->offers.items[chosen]);
    }
    return bound;
}
