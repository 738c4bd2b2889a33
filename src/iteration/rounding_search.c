/* Rounding by local search: trades options between pairs of instructions. */
#include "iteration/rounding_internal.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Slices in places: small ones try fast, large ones can move slack further. */
enum { SMALLEST = 16, LARGEST = 128 };

/* The options on either side that pairs consider; considering all finds hardly more. */
enum { TRADED = 4 };

/* The rounds after which the first trades of all pairs end. */
enum { ROUNDS = 20 };

/* The most microbatches over which options are copied. */
enum { FARTHEST = 32 };

/* Places [from, to): all paths between two of them stay inside. */
struct place_range {
    int32_t from, to;
};

static double cost_of(const struct rounding *rounding, struct place_range range)
{
    double sum = 0;
    for (int32_t p = range.from; p < range.to; p++)
        sum += rounding->places[p].options[rounding->choice[p]].cost_j;
    return sum;
}

static void update_starts(struct rounding *rounding, struct place_range range)
{
    for (int32_t p = range.from; p < range.to; p++)
        rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
}

static void update_latest(struct rounding *rounding, struct place_range range, double deadline_s)
{
    for (int32_t p = range.to; p-- > range.from;)
        rounding->latest[p] = rounding_limit(rounding, &rounding->places[p], deadline_s);
}

/* Early ones first: they see their true start and the slack that later ones leave. */
static void fill_forward(struct rounding *rounding, struct place_range range, double share)
{
    for (int32_t p = range.from; p < range.to; p++) {
        rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
        rounding_slow_down(rounding, p, share);
    }
}

/* Late ones first. */
static void fill_backward(struct rounding *rounding, struct place_range range, double deadline_s,
                          double share)
{
    for (int32_t p = range.to; p-- > range.from;) {
        rounding->latest[p] = rounding_limit(rounding, &rounding->places[p], deadline_s);
        rounding_slow_down(rounding, p, share);
    }
}

/* Starts after the range and latest finishes before it, as far as they change, in `bounds`. */
static void spread(struct rounding *rounding, struct place_range range, struct place_range bounds,
                   double deadline_s)
{
    int32_t unchanged = 0;
    for (int32_t p = range.to; p < bounds.to && unchanged <= rounding->reach; p++) {
        double start = rounding_ready(rounding, &rounding->places[p]);
        unchanged = start == rounding->start[p] ? unchanged + 1 : 0;
        rounding->start[p] = start;
    }
    unchanged = 0;
    for (int32_t p = range.from; p-- > bounds.from && unchanged <= rounding->reach;) {
        double latest = rounding_limit(rounding, &rounding->places[p], deadline_s);
        unchanged = latest == rounding->latest[p] ? unchanged + 1 : 0;
        rounding->latest[p] = latest;
    }
}

/* --- pairs --- */

static bool on_time(const struct rounding *rounding, struct place_range range)
{
    for (int32_t p = range.from; p < range.to; p++)
        if (rounding->start[p] + rounding_time(rounding, p) > rounding->latest[p])
            return false;
    return true;
}

/*
 * The cheapest two options for p and its successor q in the time that all others leave them.
 * Returns whether they are cheaper. One of the two gets a slower option then: most pairs have no
 * time for that, which the next option of each tells.
 */
static bool best_pair(struct rounding *rounding, int32_t p, int k, double deadline_s)
{
    const struct rounding_place *first = &rounding->places[p];
    const int32_t q = first->after[k];
    const struct rounding_place *second = &rounding->places[q];
    const uint32_t a = rounding->choice[p], b = rounding->choice[q];
    const uint32_t fastest = a > TRADED ? a - TRADED : 0;
    const double start = rounding->start[p], latency_s = first->after_s[k];
    const double latest = rounding->latest[q]; /* of q's finish */
    const double soonest = start + first->options[fastest].time_s + latency_s;
    bool slower_p = a + 1 < first->option_count;
    bool slower_q =
        b + 1 < second->option_count && !(soonest + second->options[b + 1].time_s > latest);
    if (!slower_p && !slower_q)
        return false;
    const double limit = rounding_limit_without(rounding, first, deadline_s, q); /* of p's finish */
    slower_p = slower_p && !(start + first->options[a + 1].time_s > limit);
    if (!slower_p && !slower_q)
        return false;
    const double ready = rounding_ready_without(rounding, second, p); /* for q's start */
    slower_q = slower_q && !(ready + second->options[b + 1].time_s > latest);
    if (!slower_p && !slower_q)
        return false;
    double before = first->options[a].cost_j + second->options[b].cost_j;
    double least = before - 1e-12 * fabs(before); /* not for an error of addition */
    uint32_t slowest = b;
    if (slower_q)
        slowest = b + TRADED < second->option_count ? b + TRADED : second->option_count - 1;
    bool cheaper = false;
    for (uint32_t o = slower_q ? fastest : a + 1; o <= a + TRADED && o < first->option_count; o++) {
        double finish = start + first->options[o].time_s;
        double from = finish + latency_s > ready ? finish + latency_s : ready;
        while (slowest > 0 && from + second->options[slowest].time_s > latest)
            slowest--;
        if (finish > limit || from + second->options[slowest].time_s > latest)
            break;
        double sum = first->options[o].cost_j + second->options[slowest].cost_j;
        if (sum < least) {
            least = sum;
            rounding->choice[p] = (uint16_t)o;
            rounding->choice[q] = (uint16_t)slowest;
            cheaper = true;
        }
    }
    return cheaper;
}

/*
 * Lets place `p` and its successor trade time. Where another path leads from one to the other the
 * new options may come too late; then nothing changes.
 */
static bool trade(struct rounding *rounding, int32_t p, int k, struct place_range bounds,
                  double deadline_s)
{
    int32_t q = rounding->places[p].after[k];
    uint16_t old_p = rounding->choice[p], old_q = rounding->choice[q];
    if (!best_pair(rounding, p, k, deadline_s))
        return false;
    struct place_range range = {p, q + 1};
    update_starts(rounding, range);
    update_latest(rounding, range, deadline_s);
    bool kept = on_time(rounding, range);
    if (kept) {
        spread(rounding, range, bounds, deadline_s);
    } else {
        rounding->choice[p] = old_p;
        rounding->choice[q] = old_q;
        update_starts(rounding, range);
        update_latest(rounding, range, deadline_s);
    }
    return kept;
}

/* All pairs of a range once; starts and latest finishes in it must be right and stay so. */
static bool trade_within(struct rounding *rounding, struct place_range range, double deadline_s)
{
    bool changed = false;
    for (int32_t p = range.from; p < range.to; p++)
        for (int k = 0; k < 2; k++) {
            int32_t q = rounding->places[p].after[k];
            if (q >= 0 && q < range.to && trade(rounding, p, k, range, deadline_s))
                changed = true;
        }
    return changed;
}

static void trade_all(struct rounding *rounding, double deadline_s)
{
    struct place_range all = {0, (int32_t)rounding->count};
    for (int round = 0; round < ROUNDS && trade_within(rounding, all, deadline_s); round++)
        ;
}

/* --- slices --- */

static void speed_up_some(struct rounding *rounding, struct place_range range, struct erg_rng *rng)
{
    size_t sped_up = 2 + erg_rng_below(rng, 6); /* one in this many */
    for (int32_t p = range.from; p < range.to; p++)
        if (rounding->choice[p] && erg_rng_below(rng, sped_up) == 0)
            rounding->choice[p]--;
}

/*
 * The options of another microbatch some way before or after, as far as they are on time: a
 * pipeline repeats itself, and good options of one part suit others.
 */
static void copy_microbatch(struct rounding *rounding, struct place_range range, double deadline_s,
                            struct erg_rng *rng)
{
    uint16_t wanted[LARGEST] = {0};
    size_t microbatches = rounding->microbatches;
    size_t farthest = microbatches > FARTHEST ? FARTHEST : microbatches - 1;
    int64_t shift = 1 + (int64_t)erg_rng_below(rng, farthest);
    if (erg_rng_below(rng, 2))
        shift = -shift;
    for (int32_t p = range.from; p < range.to; p++) {
        const struct rounding_place *place = &rounding->places[p];
        int64_t microbatch = (int64_t)place->microbatch + shift;
        int32_t from = p;
        if (microbatch >= 0 && microbatch < (int64_t)microbatches)
            from = rounding->place_of[place->table * microbatches + (size_t)microbatch];
        wanted[p - range.from] = rounding->choice[from];
    }
    for (int32_t p = range.from; p < range.to; p++)
        if (wanted[p - range.from] < rounding->choice[p])
            rounding->choice[p] = wanted[p - range.from];
    update_latest(rounding, range, deadline_s);
    for (int32_t p = range.from; p < range.to; p++) {
        const struct rounding_place *place = &rounding->places[p];
        double start = rounding->start[p] = rounding_ready(rounding, place);
        uint16_t option = wanted[p - range.from];
        while (option > rounding->choice[p] &&
               start + place->options[option].time_s > rounding->latest[p])
            option--;
        rounding->choice[p] = option;
    }
}

/* Starts and latest finishes of all places must be right and stay so. */
static void try_range(struct rounding *rounding, struct place_range range, double deadline_s,
                      struct erg_rng *rng)
{
    const size_t count = (size_t)(range.to - range.from);
    uint16_t *choice = rounding->choice + range.from;
    double *start = rounding->start + range.from, *latest = rounding->latest + range.from;
    double kept_start[LARGEST], kept_latest[LARGEST], before = cost_of(rounding, range);
    assert(count <= LARGEST);
    memcpy(rounding->kept, choice, count * sizeof *choice);
    memcpy(kept_start, start, count * sizeof *start);
    memcpy(kept_latest, latest, count * sizeof *latest);
    if (rounding->microbatches == 1 || erg_rng_below(rng, 2))
        speed_up_some(rounding, range, rng);
    else
        copy_microbatch(rounding, range, deadline_s, rng);
    /* First those worth their time's price, in one direction or the other, then all. */
    double share = 1.05 - 0.3 * erg_rng_uniform(rng);
    if (erg_rng_below(rng, 2)) {
        update_latest(rounding, range, deadline_s);
        fill_forward(rounding, range, share);
        fill_backward(rounding, range, deadline_s, 0);
        update_starts(rounding, range);
    } else {
        update_starts(rounding, range);
        fill_backward(rounding, range, deadline_s, share);
        fill_forward(rounding, range, 0);
        update_latest(rounding, range, deadline_s);
    }
    trade_within(rounding, range, deadline_s);
    if (cost_of(rounding, range) <= before) { /* ties too: they move the slack about */
        spread(rounding, range, (struct place_range){0, (int32_t)rounding->count}, deadline_s);
        return;
    }
    memcpy(choice, rounding->kept, count * sizeof *choice);
    memcpy(start, kept_start, count * sizeof *start);
    memcpy(latest, kept_latest, count * sizeof *latest);
}

void erg_rounding_search(struct rounding *rounding, double deadline_s, size_t effort,
                         struct erg_rng *rng)
{
    deadline_s *= 1 - ROUNDING_MARGIN;
    int32_t count = (int32_t)rounding->count;
    update_starts(rounding, (struct place_range){0, count});
    update_latest(rounding, (struct place_range){0, count}, deadline_s);
    trade_all(rounding, deadline_s);
    for (size_t looked_at = 0; looked_at < effort * rounding->count;) {
        int32_t size = SMALLEST + (int32_t)erg_rng_below(rng, LARGEST - SMALLEST);
        size = size < count ? size : count;
        struct place_range range = {.from =
                                        (int32_t)erg_rng_below(rng, (size_t)(count - size) + 1)};
        range.to = range.from + size;
        try_range(rounding, range, deadline_s, rng);
        looked_at += (size_t)size;
    }
    trade_all(rounding, deadline_s);
}
