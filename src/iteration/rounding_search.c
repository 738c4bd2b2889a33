#include "iteration/rounding_internal.h"

#include <stdbool.h>
#include <string.h>

/* Slices in places: small ones try fast, large ones can move slack further. */
enum { SMALLEST = 4, LARGEST = 64 };

/* Places [from, to): all paths between two of them stay inside. */
struct range {
    int32_t from, to;
};

static double cost_of(const struct rounding *rounding, struct range range)
{
    double sum = 0;
    for (int32_t p = range.from; p < range.to; p++)
        sum += rounding->places[p].options[rounding->choice[p]].cost_j;
    return sum;
}

static void update_starts(struct rounding *rounding, struct range range)
{
    for (int32_t p = range.from; p < range.to; p++)
        rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
}

static void update_latest(struct rounding *rounding, struct range range, double deadline_s)
{
    for (int32_t p = range.to; p-- > range.from;)
        rounding->latest[p] = rounding_limit(rounding, &rounding->places[p], deadline_s);
}

/* Early ones first: they see their true start and what the later ones have left them. */
static void fill_forward(struct rounding *rounding, struct range range, double share)
{
    for (int32_t p = range.from; p < range.to; p++) {
        rounding->start[p] = rounding_ready(rounding, &rounding->places[p]);
        rounding_slow_down(rounding, p, share);
    }
}

/* Late ones first. */
static void fill_backward(struct rounding *rounding, struct range range, double deadline_s,
                          double share)
{
    for (int32_t p = range.to; p-- > range.from;) {
        rounding->latest[p] = rounding_limit(rounding, &rounding->places[p], deadline_s);
        rounding_slow_down(rounding, p, share);
    }
}

/* Starts after the range and latest finishes before it, as far as they change. */
static void spread(struct rounding *rounding, struct range range, double deadline_s)
{
    int32_t unchanged = 0;
    for (int32_t p = range.to; p < (int32_t)rounding->count && unchanged <= rounding->reach; p++) {
        double start = rounding_ready(rounding, &rounding->places[p]);
        unchanged = start == rounding->start[p] ? unchanged + 1 : 0;
        rounding->start[p] = start;
    }
    unchanged = 0;
    for (int32_t p = range.from; p-- > 0 && unchanged <= rounding->reach;) {
        double latest = rounding_limit(rounding, &rounding->places[p], deadline_s);
        unchanged = latest == rounding->latest[p] ? unchanged + 1 : 0;
        rounding->latest[p] = latest;
    }
}

static void try_range(struct rounding *rounding, struct range range, double deadline_s,
                      struct erg_rng *rng)
{
    size_t count = (size_t)(range.to - range.from);
    uint16_t *choice = rounding->choice + range.from;
    double before = cost_of(rounding, range);
    memcpy(rounding->kept, choice, count * sizeof *choice);
    size_t sped_up = 2 + erg_rng_below(rng, 6); /* one in so many */
    for (size_t k = 0; k < count; k++)
        if (choice[k] && erg_rng_below(rng, sped_up) == 0)
            choice[k]--;
    update_starts(rounding, range);
    update_latest(rounding, range, deadline_s);
    /* First those worth their time's price, in one direction or the other, then anybody. */
    double share = 1.05 - 0.3 * erg_rng_uniform(rng);
    if (erg_rng_below(rng, 2)) {
        fill_forward(rounding, range, share);
        fill_backward(rounding, range, deadline_s, 0);
    } else {
        fill_backward(rounding, range, deadline_s, share);
        fill_forward(rounding, range, 0);
    }
    bool keep = cost_of(rounding, range) <= before; /* ties too: they move the slack about */
    if (!keep)
        memcpy(choice, rounding->kept, count * sizeof *choice);
    update_starts(rounding, range);
    update_latest(rounding, range, deadline_s);
    if (keep)
        spread(rounding, range, deadline_s);
}

void rounding_search(struct rounding *rounding, double deadline_s, size_t effort,
                     struct erg_rng *rng)
{
    deadline_s *= 1 - ROUNDING_MARGIN;
    int32_t count = (int32_t)rounding->count;
    update_starts(rounding, (struct range){0, count});
    update_latest(rounding, (struct range){0, count}, deadline_s);
    for (size_t looked_at = 0; looked_at < effort * rounding->count;) {
        int32_t size = SMALLEST + (int32_t)erg_rng_below(rng, LARGEST - SMALLEST);
        size = size < count ? size : count;
        struct range range = {.from = (int32_t)erg_rng_below(rng, (size_t)(count - size) + 1)};
        range.to = range.from + size;
        try_range(rounding, range, deadline_s, rng);
        looked_at += (size_t)size;
    }
}
