/* Shared by market*.c only. */
#ifndef ERG_CLUSTER_POLICIES_MARKET_INTERNAL_H
#define ERG_CLUSTER_POLICIES_MARKET_INTERNAL_H

#include "cluster/policies/market.h"

/*
 * Offers of one bidder for one type that are best at some price of it, rising in GPUs: the upper
 * hull of their values over their GPUs. A rung is worth taking while a GPU costs less than `rate`,
 * what each GPU adds that it has more than the rung below.
 */
struct erg_market_rung {
    double rate, value;
    int gpus;
};

struct erg_market_ladder {
    /* The best rung at any price in [low, high) of a GPU; no GPUs where none is worth that. */
    double low, high, value;
    int gpus;
    int rungs;    /* all of them, */
    size_t first; /* from here on */
};

/* How a price moves. */
struct erg_market_pace {
    double step;   /* of its logarithm */
    int direction; /* of the last step; 0: none yet */
};

/* Finds prices at which demand is near supply. */
void market_find_prices(struct erg_market *market);

#endif
