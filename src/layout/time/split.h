/*
 * How many layers each stage of a pipeline gets: the fastest of all splits, exactly.
 *
 * An iteration takes
 *
 *   pace_weight x max over stages of X + sum_weight x sum of X + max over stages of Y,
 *
 * where a stage with n layers takes X = layer_s n + fixed_s seconds of every microbatch and
 * Y = layer_once_s n + fixed_once_s seconds once an iteration (gradients, optimizer). Stages may be
 * of different GPUs; those that are alike form a group.
 *
 * The longest X is that of some stage with some number of layers, so there are few values that it
 * can have; each of them limits the layers of every stage, and so does each value of the longest Y.
 * Among splits under both, the one that takes layers from the stages whose layers are dearest has
 * the least sum. Values are tried from below and end where even stages of cut layers and the least
 * Y could not be faster: so no split is faster than the one that is found.
 */
#ifndef ERG_LAYOUT_TIME_SPLIT_H
#define ERG_LAYOUT_TIME_SPLIT_H

#include <stddef.h>

struct erg_split_group {
    long count; /* of stages */
    double layer_s, fixed_s;
    double layer_once_s, fixed_once_s;
    long least, most; /* layers of each, at least 0 */
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
 * Seconds of the fastest split, INFINITY where the layers are too many or too few for the stages.
 * Splits slower than `limit` may be skipped: an answer above it is a lower bound.
 */
double erg_split_solve(struct erg_split *split, double limit);

/*
 * After erg_split_solve(), of groups of one stage each: the layers of every stage. Where stages
 * could have more than there are, those of the dearest layers have fewer, and of them the ones with
 * most layers, the first ones first.
 */
void erg_split_layers(long *layers, const struct erg_split *split);

#endif
