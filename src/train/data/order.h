/*
 * The order of data: the sample and the set for each place of a run. It is a function of the number
 * of earlier samples, so one integer resumes a run on any layout.
 *
 * A set of n tokens has (n - 1) / S samples of S tokens; sample k has the inputs [k S, k S + S) and
 * targets one position later. In epoch e its samples come in the order of a permutation of (seed,
 * e): a Feistel network of six rounds, iterated until the result is a sample (Black and Rogaway
 * 2002).
 *
 * With several weighted sets the next sample comes from the set that is furthest behind its share.
 */
#ifndef ERG_TRAIN_DATA_ORDER_H
#define ERG_TRAIN_DATA_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sample at place `index` of [0, count), in an epoch. */
uint64_t erg_order_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

struct erg_order_set {
    double weight;    /* the sum over all sets is 1 */
    uint64_t samples; /* at least 1 */
    uint64_t dealt;   /* samples dealt so far */
};

struct erg_data_order {
    uint64_t seed;
    bool shuffle;
    struct erg_order_set *sets; /* borrowed */
    size_t count;
    uint64_t next; /* samples dealt so far, from all sets */
};

struct erg_order_place {
    size_t set;
    uint64_t sample, epoch;
};

/* The next sample; counts it. */
struct erg_order_place erg_order_deal(struct erg_data_order *order);

/*
 * Sets the state as if `samples` had been dealt. Takes time in proportion to `samples` for several
 * sets, constant time for one.
 */
void erg_order_seek(struct erg_data_order *order, uint64_t samples);

#endif
