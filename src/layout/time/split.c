/*
 * The fastest split of layers over stages, exactly: searches the possible times of the longest
 * stage, the levels.
 */
#include "layout/time/split.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

/* The relative limit of differences between sums of the same seconds in different orders. */
static const double tie = 1e-12;

/* Calls of fmax() and fmin() would take a fifth of a search's time. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* ---- levels: the most layers of every stage if none takes longer ---- */

/* Seconds of a group's stages with `layers`, per microbatch or once per iteration. */
static double seconds(const struct erg_split_group *group, bool once, long layers)
{
    return once ? group->layer_once_s * (double)layers + group->fixed_once_s
                : group->layer_s * (double)layers + group->fixed_s;
}

/* The bounds on a level's number of layers, and the number. */
static long most_of(const struct erg_split_group *group, bool once)
{
    return once ? group->pace : group->most;
}

static long *cap_of(struct erg_split_group *group, bool once)
{
    return once ? &group->cap : &group->pace;
}

/* The longest stage if all have the most layers. */
static double longest(struct erg_split *split, bool once)
{
    double most = 0;
    for (size_t i = 0; i < split->count; i++) {
        struct erg_split_group *group = &split->groups[i];
        most = larger(most, seconds(group, once, *cap_of(group, once)));
    }
    return most;
}

/* Gives every stage the most layers with which it takes at most `level`. */
static void raise_to(struct erg_split *split, bool once, double level)
{
    for (size_t i = 0; i < split->count; i++) {
        struct erg_split_group *group = &split->groups[i];
        long *cap = cap_of(group, once);
        while (*cap < most_of(group, once) && seconds(group, once, *cap + 1) <= level * (1 + tie))
            ++*cap;
    }
}

/* Moves to the next level; false: all stages have the most layers. */
static bool raise(struct erg_split *split, bool once)
{
    double level = INFINITY;
    for (size_t i = 0; i < split->count; i++) {
        struct erg_split_group *group = &split->groups[i];
        long cap = *cap_of(group, once);
        if (cap < most_of(group, once))
            level = smaller(level, seconds(group, once, cap + 1));
    }
    if (level == INFINITY)
        return false;
    raise_to(split, once, level);
    return true;
}

static long capacity(struct erg_split *split, bool once)
{
    long sum = 0;
    for (size_t i = 0; i < split->count; i++)
        sum += split->groups[i].count * *cap_of(&split->groups[i], once);
    return sum;
}

/*
 * A lower bound of the level: with fractional layers and stages of any size, all would end at once.
 * (A stage whose layers take no time holds all of them.)
 */
static double level_bound(const struct erg_split *split, bool once)
{
    double held = (double)split->layers, rate = 0;
    for (size_t i = 0; i < split->count; i++) {
        const struct erg_split_group *group = &split->groups[i];
        double layer = once ? group->layer_once_s : group->layer_s;
        if (!(layer > 0))
            return 0;
        held += (double)group->count * seconds(group, once, 0) / layer;
        rate += (double)group->count / layer;
    }
    return held / rate;
}

/* The lowest level at which the stages hold all layers; false: none does. */
static bool lowest_level(struct erg_split *split, bool once)
{
    double level = level_bound(split, once) * (1 - tie);
    for (size_t i = 0; i < split->count; i++) {
        struct erg_split_group *group = &split->groups[i];
        double room = floor((level - seconds(group, once, 0)) /
                            (once ? group->layer_once_s : group->layer_s));
        long most = most_of(group, once), *cap = cap_of(group, once);
        *cap = room < (double)most ? (long)larger(room, (double)group->least) : most;
    }
    while (capacity(split, once) < split->layers)
        if (!raise(split, once))
            return false;
    raise_to(split, once, longest(split, once)); /* layers that do not exceed the level are free */
    return true;
}

/* ---- the sum ---- */

/* The largest of the groups' seconds per layer below a value, and the smallest above it. */
static double dearest(const struct erg_split *split, double below)
{
    double found = -1;
    for (size_t i = 0; i < split->count; i++) {
        double layer = split->groups[i].layer_s;
        if (layer < below && layer > found)
            found = layer;
    }
    return found;
}

static double cheapest(const struct erg_split *split, double above)
{
    double found = INFINITY;
    for (size_t i = 0; i < split->count; i++) {
        double layer = split->groups[i].layer_s;
        if (layer > above && layer < found)
            found = layer;
    }
    return found;
}

/* The least sum of all stages' seconds under the caps. */
static double least_sum(struct erg_split *split, bool once)
{
    double sum = 0, layer = INFINITY;
    long surplus = -split->layers;
    for (size_t i = 0; i < split->count; i++) {
        struct erg_split_group *group = &split->groups[i];
        long cap = *cap_of(group, once);
        sum += (double)group->count * seconds(group, false, cap);
        surplus += group->count * cap;
    }
    while (surplus > 0 && (layer = dearest(split, layer)) >= 0)
        for (size_t i = 0; i < split->count && surplus > 0; i++) {
            struct erg_split_group *group = &split->groups[i];
            long spare =
                group->layer_s == layer ? group->count * (*cap_of(group, once) - group->least) : 0;
            long taken = spare < surplus ? spare : surplus;
            sum -= (double)taken * layer;
            surplus -= taken;
        }
    return surplus > 0 ? INFINITY : sum;
}

/* The most fractional layers of a stage that takes at most `level`. */
static double cut_cap(const struct erg_split_group *group, double level)
{
    double cap = (level - group->fixed_s) / group->layer_s, most = (double)group->most;
    return larger(cap < most ? cap : most, (double)group->least);
}

/*
 * No split whose longest stage takes `level` or longer has a smaller pace_weight x longest +
 * sum_weight x sum. With fractional layers, stages are filled up to the level, those with the
 * cheapest layers first, and the sum falls with the level, ever more slowly: once it falls by less
 * than the level costs, no higher level is better. Otherwise the only bound is that the sum is at
 * least `least`.
 */
static double bound_above(const struct erg_split *split, double level, double least)
{
    double layer = -1, sum = 0, rate = 0, spent = 0, left = (double)split->layers;
    for (size_t i = 0; i < split->count; i++) {
        const struct erg_split_group *group = &split->groups[i];
        sum += (double)group->count * seconds(group, false, group->least);
        left -= (double)(group->count * group->least);
    }
    while (left > 0 && (layer = cheapest(split, layer)) < INFINITY) {
        double room = 0, own_rate = 0;
        for (size_t i = 0; i < split->count; i++) {
            const struct erg_split_group *group = &split->groups[i];
            if (group->layer_s != layer)
                continue;
            double count = (double)group->count, cap = cut_cap(group, level);
            if (cap < (double)group->most)
                own_rate += count / layer;
            room += count * (cap - (double)group->least);
        }
        double taken = room < left ? room : left;
        sum += taken * layer;
        left -= taken;
        rate += left > 0 ? own_rate : 0;
        spent += left > 0 ? own_rate * layer : 0;
    }
    bool falls = left > 0 || split->sum_weight * (rate * layer - spent) > split->pace_weight;
    return split->pace_weight * level + split->sum_weight * (falls ? least : sum);
}

/* A lower bound of the sum: every layer at the cheapest stage. */
static double bound_of_sum(const struct erg_split *split)
{
    double sum = cheapest(split, -1) * (double)split->layers;
    for (size_t i = 0; i < split->count; i++)
        sum += (double)split->groups[i].count * split->groups[i].fixed_s;
    return sum;
}

/* ---- search ---- */

static void keep(struct erg_split *split)
{
    for (size_t i = 0; i < split->count; i++)
        split->groups[i].layers = split->groups[i].cap;
}

double erg_split_solve(struct erg_split *split, double limit)
{
    double best = INFINITY;
    for (size_t i = 0; i < split->count; i++) {
        struct erg_split_group *group = &split->groups[i];
        if (group->most < group->least)
            return INFINITY;
        group->pace = group->most;
    }
    if (!lowest_level(split, true))
        return INFINITY;
    double once_bound = longest(split, true), sum_bound = bound_of_sum(split);
    bool more = lowest_level(split, false);
    for (; more; more = raise(split, false)) {
        double pace = longest(split, false);
        double bound = bound_above(split, pace, sum_bound) + once_bound;
        if (bound >= best * (1 - tie))
            break;
        if (bound > limit)
            return fmin(best, bound);
        double rest = split->pace_weight * pace;
        double least = rest + split->sum_weight * least_sum(split, false);
        bool lower = lowest_level(split, true);
        for (; lower; lower = raise(split, true)) {
            double once = longest(split, true);
            if (least + once >= best * (1 - tie))
                break;
            double total = rest + split->sum_weight * least_sum(split, true) + once;
            if (total < best) {
                best = total;
                keep(split);
            }
        }
    }
    return best;
}

void erg_split_layers(long *layers, const struct erg_split *split)
{
    double layer = INFINITY;
    long surplus = -split->layers;
    for (size_t i = 0; i < split->count; i++) {
        layers[i] = split->groups[i].layers;
        surplus += layers[i];
    }
    assert(surplus >= 0); /* the caps hold all layers */
    while (surplus > 0 && (layer = dearest(split, layer)) >= 0)
        for (; surplus > 0; surplus--) {
            size_t most = split->count;
            for (size_t i = 0; i < split->count; i++)
                if (split->groups[i].layer_s == layer && layers[i] > split->groups[i].least &&
                    (most == split->count || layers[i] > layers[most]))
                    most = i;
            if (most == split->count)
                break;
            layers[most]--;
            assert(layers[most] >= split->groups[most].least);
        }
}
