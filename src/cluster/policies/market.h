/*
 * A market for GPUs. Each bidder has several offers and gets at most one of them; each type has a
 * number of GPUs. Finds an assignment whose total value is nearly the largest possible, and the
 * price of a GPU of each type.
 *
 * This is a multiple-choice knapsack problem with one dimension per type. Its Lagrangian relaxation
 * is a market: at given prices every bidder takes the offer with the largest surplus, value minus
 * price, and prices rise where demand exceeds supply. With many bidders the gap between that bound
 * and the best assignment is small: at most one bidder per type is divided (Sinha and Zoltners
 * 1979). The assignment serves the largest surplus per GPU first, then sells the remaining GPUs to
 * bidders without GPUs and to those who gain most per GPU from more. Prices are kept from one
 * clearing to the next, so that most clearings need few steps.
 */
#ifndef ERG_CLUSTER_POLICIES_MARKET_H
#define ERG_CLUSTER_POLICIES_MARKET_H

#include <stddef.h>

struct erg_offer {
    int type;     /* of GPUs */
    int gpus;     /* at least 1 */
    double value; /* offers not above 0 are never given */
};

struct erg_market {
    int types;
    int *supply;    /* by type: GPUs */
    int *left;      /* by type: not sold, after clearing */
    double *prices; /* by type: of one GPU, in units of value; at least 0 */
    struct {
        struct erg_offer *items;
        size_t count, capacity;
    } offers; /* those of a bidder are contiguous */
    struct {
        struct erg_bidder {
            size_t first, end; /* its offers */
            long given;        /* the offer that it got; -1: none */
        } * items;
        size_t count, capacity;
    } bidders;
    struct erg_market_pace *paces; /* by type: how prices move; scratch, as are steps */
    struct erg_market_step *steps;
    size_t steps_capacity;
};

void erg_market_init(struct erg_market *market, int types);
void erg_market_release(struct erg_market *market);

/* Clears bidders and offers, but keeps prices. */
void erg_market_reset(struct erg_market *market);

/* Adds a bidder; the offers that follow belong to it, in any order. */
void erg_market_bid(struct erg_market *market);
void erg_market_offer(struct erg_market *market, const struct erg_offer *offer);

/* Call it with `supply` set. */
void erg_market_clear(struct erg_market *market);

/* The total value of the assignment, and an upper bound of the total value of any assignment. */
double erg_market_value(const struct erg_market *market);
double erg_market_bound(const struct erg_market *market);

#endif
