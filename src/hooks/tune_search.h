/*
 * Which value of a knob is best, from blocks of steps that were measured at values of this module's
 * choice: a golden section whose comparisons are paired.
 *
 * Values lie on a grid, so the section is that of Fibonacci: of k intervals it needs about
 * log(k) / log(1.6) + 1 values. It takes the goal for one that falls and then rises over the
 * values, where a value that breaks a bound is worse than one that does not. Two values are
 * measured in turn, one block each, and their relative differences pooled over all comparisons say
 * how noisy blocks are; so once that is known one pair is often enough.
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

/* A block, as the means of its steps. */
struct erg_tune_block {
    double time_s, energy_j;
};

struct erg_tune_search {
    struct erg_tune_goal goal;
    size_t count;                     /* of values, which rise */
    struct erg_spread *time, *energy; /* [count]: of the blocks at each */
    long low, length;                 /* the best one lies in (low, low + length), Fibonacci */
    struct erg_tune_block last[2];    /* of the pair under way */
    size_t in_pair;                   /* blocks of it */
    struct erg_spread differences;    /* of the pairs of this comparison, relative */
    double squares;                   /* of differences from their comparison's mean, of all */
    size_t degrees;                   /* of freedom in them */
    bool done;
};

void erg_tune_search_begin(struct erg_tune_search *search, size_t count,
                           const struct erg_tune_goal *goal);
void erg_tune_search_release(struct erg_tune_search *search);

/* At which value to measure next; when done, the one that is best. */
size_t erg_tune_search_value(const struct erg_tune_search *search);

/* A block that was measured there. */
void erg_tune_search_put(struct erg_tune_search *search, const struct erg_tune_block *block);

/* Whether a value keeps to the bound of its selector, by the means of its blocks. */
bool erg_tune_search_meets(const struct erg_tune_search *search, size_t value);

/* The best of the values that were measured, by their means alone. */
size_t erg_tune_search_pick(const struct erg_tune_search *search);

#endif
