/*
 * The number of layers of each stage of a pipeline: the fastest of all splits, exactly.
 *
 * An iteration takes
 *
 *   pace_weight x max over stages of X + sum_weight x sum of X + max over stages of Y,
 *
 * where a stage with n layers takes X = layer_s n + fixed_s seconds per microbatch and Y =
 * layer_once_s n + fixed_once_s seconds once per iteration (gradients, optimizer). Stages may use
 * different GPUs; equal stages form a group.
 *
 * The longest X is that of some stage with some number of layers, so it has few possible values.
 * Each of them limits the layers of every stage, and so does each value of the longest Y. Among
 * splits within both limits, the one that takes layers from the stages with the most expensive
 * layers has the least sum. The search tries values in rising order and ends when even fractional
 * layers and the least Y could not be faster, so no split is faster than the result.
 */
#ifndef ERG_LAYOUT_TIME_SPLIT_H
#define ERG_LAYOUT_TIME_SPLIT_H

#include <stddef.h>

struct erg_split_group {
    long count; /* of stages */
    double layer_s, fixed_s;
    double layer_once_s, fixed_once_s;
    long least, most; /* bounds of the layers of each, at least 0 */
    long layers;      /* found: the most layers of each stage */
    long pace, cap;   /* private */
};

struct erg_split {
    struct erg_split_group *groups;
    size_t count;
    long layers;                    /* of all stages together */
    double pace_weight, sum_weight; /* at least 0 */
};

/*
 * Seconds of the fastest split; INFINITY: too many or too few layers for the stages. Splits slower
 * than `limit` may be skipped: a result above it is a lower bound.
 */
double erg_split_solve(struct erg_split *split, double limit);

/*
 * Call it after erg_split_solve() with groups of one stage each: the layers of every stage. If
 * stages could have more layers than there are, those with the most expensive layers get fewer;
 * among these, the ones with most layers, then the first ones.
 */
void erg_split_layers(long *layers, const struct erg_split *split);

#endif
