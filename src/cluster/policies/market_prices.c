/*
 * The prices of a market. Finding them asks for demand many times. So the offers of a bidder for a
 * type are first made a ladder, on which its choice moves up and down with the price.
 */
#include "cluster/policies/market_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>

/* ---- ladders ---- */

static bool comes_before(const struct erg_offer *a, const struct erg_offer *b)
{
    return a->type != b->type ? a->type < b->type : a->gpus < b->gpus;
}

/* The bidder's offers in the order of types and GPUs, in which they mostly are already. */
static const struct erg_offer *sort_offers(struct erg_market *market,
                                           const struct erg_bidder *bidder)
{
    const struct erg_offer *offers = market->offers.items + bidder->first;
    size_t count = bidder->end - bidder->first, i = 1;
    while (i < count && !comes_before(&offers[i], &offers[i - 1]))
        i++;
    if (i >= count)
        return offers;
    for (i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && comes_before(&offers[i], &market->sorted[at - 1]); at--)
            market->sorted[at] = market->sorted[at - 1];
        market->sorted[at] = offers[i];
    }
    return market->sorted;
}

/* Adds an offer with at least as many GPUs as each of the `count` rungs, if it is the best at some
 * price. Rungs that are no longer the best at any price fall off. Returns how many remain. */
static int add_rung(struct erg_market_rung *rungs, int count, const struct erg_offer *offer)
{
    for (; count > 0; count--) {
        const struct erg_market_rung *below = &rungs[count - 1];
        double value = offer->value - below->value;
        int gpus = offer->gpus - below->gpus;
        if (value <= 0)
            return count;
        if (value < gpus * below->rate) {
            rungs[count] = (struct erg_market_rung){value / gpus, offer->value, offer->gpus};
            return count + 1;
        }
    }
    if (offer->value <= 0)
        return 0;
    rungs[0] = (struct erg_market_rung){offer->value / offer->gpus, offer->value, offer->gpus};
    return 1;
}

static void make_room(struct erg_market *market)
{
    size_t ladders = market->bidders.count * (size_t)market->types;
    if (market->rungs_capacity < market->offers.count) {
        market->rungs_capacity = market->offers.capacity;
        market->rungs = erg_xrealloc(market->rungs, market->rungs_capacity, sizeof *market->rungs);
        market->sorted =
            erg_xrealloc(market->sorted, market->rungs_capacity, sizeof *market->sorted);
    }
    if (market->ladders_capacity < ladders) {
        market->ladders_capacity = market->bidders.capacity * (size_t)market->types;
        market->ladders =
            erg_xrealloc(market->ladders, market->ladders_capacity, sizeof *market->ladders);
    }
}

/* Nobody stands on them yet. */
static void make_ladders(struct erg_market *market)
{
    struct erg_market_ladder *ladder = market->ladders;
    size_t first = 0;
    for (size_t i = 0; i < market->bidders.count; i++) {
        const struct erg_bidder *bidder = &market->bidders.items[i];
        const struct erg_offer *offer = sort_offers(market, bidder);
        const struct erg_offer *end = offer + (bidder->end - bidder->first);
        for (int type = 0; type < market->types; type++, ladder++) {
            int count = 0;
            for (; offer < end && offer->type == type; offer++)
                count = add_rung(market->rungs + first, count, offer);
            *ladder = (struct erg_market_ladder){.low = INFINITY, .rungs = count, .first = first};
            first += (size_t)count;
        }
    }
}

/* Finds the rung that is best at a price. */
static void climb(struct erg_market_ladder *ladder, const struct erg_market_rung *rungs,
                  double price)
{
    int at = 0;
    rungs += ladder->first;
    while (at < ladder->rungs && rungs[at].rate > price)
        at++;
    ladder->low = at < ladder->rungs ? rungs[at].rate : -INFINITY;
    ladder->high = at > 0 ? rungs[at - 1].rate : INFINITY;
    ladder->value = at > 0 ? rungs[at - 1].value : 0;
    ladder->gpus = at > 0 ? rungs[at - 1].gpus : 0;
}

/* Fills `left` with what is not taken at the present prices: negative where too much is. */
static void demand(struct erg_market *market)
{
    struct erg_market_ladder *ladder = market->ladders;
    int types = market->types;
    for (int type = 0; type < types; type++)
        market->left[type] = market->supply[type];
    for (size_t i = 0; i < market->bidders.count; i++) {
        double best = 0;
        int wanted = 0, gpus = 0;
        for (int type = 0; type < types; type++, ladder++) {
            double price = market->prices[type];
            if (price < ladder->low || price >= ladder->high)
                climb(ladder, market->rungs, price);
            double surplus = ladder->value - price * ladder->gpus;
            if (surplus > best) {
                best = surplus;
                wanted = type;
                gpus = ladder->gpus;
            }
        }
        market->left[wanted] -= gpus;
    }
}

/* ---- prices ---- */

#define FIRST_STEP 0.05 /* of a price's logarithm; */
#define LAST_STEP 1e-3
#define GROWTH 1.5    /* while it goes on in one direction, */
#define SHRINKAGE 0.4 /* and when it turns */

/* The mean over bidders and types of what a GPU is worth at best. */
static double mean_rate(const struct erg_market *market)
{
    double sum = 0;
    size_t count = 0, ladders = market->bidders.count * (size_t)market->types;
    for (size_t i = 0; i < ladders; i++) {
        const struct erg_market_ladder *ladder = &market->ladders[i];
        sum += ladder->rungs > 0 ? market->rungs[ladder->first].rate : 0;
        count += ladder->rungs > 0;
    }
    return count > 0 ? sum / (double)count : 0;
}

/* Moves a price to where more or less is wanted of its type; false where it stays. */
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
 * Prices move in proportion to themselves: values span orders of magnitude. Each has a step of its
 * own, which grows while demand stays on one side of supply and shrinks when it changes sides
 * (Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning: the RPROP
 * algorithm", 1993), since how much demand follows a price is not known. A price that nobody has
 * paid yet begins at the mean value of a GPU.
 */
void market_find_prices(struct erg_market *market)
{
    enum { STEPS = 40 };
    make_room(market);
    make_ladders(market);
    double start = mean_rate(market), least = 1e-6 * start;
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
