/*
 * The best value of a knob, from blocks of steps measured at values that this module chooses: a
 * golden-section search with paired comparisons.
 *
 * Values lie on a grid, so this is the Fibonacci search: for k intervals it needs about log(k) /
 * log(1.6) + 1 values. It assumes that the goal first falls and then rises over the values; a value
 * that breaks a bound is worse than one that does not. Two values are measured in turn, one block
 * each. Their relative differences, pooled over all comparisons, show how noisy blocks are; once
 * that is known, one pair is often enough.
 *
 * Source: J. Kiefer, "Sequential minimax search for a maximum", 1953.
 */
#ifndef ERG_HOOKS_TUNE_SEARCH_H
#define ERG_HOOKS_TUNE_SEARCH_H

#include "base/statistics.h"
#include "ergon/tune.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_tune_goal {
    int32_t selector; /* enum erg_tune_selector */
    double weight, slowdown, budget_j;
    double full_w; /* of all GPUs at the highest limit, for COST */
};

/* A block: the means of its steps. */
struct erg_tune_block {
    double time_s, energy_j;
};

struct erg_tune_search {
    struct erg_tune_goal goal;
    size_t count;                     /* of values, in rising order */
    struct erg_spread *time, *energy; /* [count]: of the blocks at each value */
    long low, length; /* the best value is in (low, low + length), a Fibonacci number */
    struct erg_tune_block last[2]; /* of the current pair */
    size_t in_pair;                /* blocks of the current pair */
    struct erg_spread differences; /* of the pairs of this comparison, relative */
    double squares; /* squared deviations from their comparison's mean, over all comparisons */
    size_t degrees; /* their degrees of freedom */
    bool done;
};

void erg_tune_search_begin(struct erg_tune_search *search, size_t count,
                           const struct erg_tune_goal *goal);
void erg_tune_search_release(struct erg_tune_search *search);

/* The value to measure next; when done, the best one. */
size_t erg_tune_search_value(const struct erg_tune_search *search);

/* Adds a block that was measured at that value. */
void erg_tune_search_put(struct erg_tune_search *search, const struct erg_tune_block *block);

/* Whether a value meets the bound of the selector, by the means of its blocks. */
bool erg_tune_search_meets(const struct erg_tune_search *search, size_t value);

/* The best of the measured values, by their means alone. */
size_t erg_tune_search_pick(const struct erg_tune_search *search);

#endif
