/* What is asked of all layouts, and which may be the answers: those with the best bounds. */
#include "layout/energy/choice_internal.h"

#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Takes the entry's reference. */
static void insert(struct erg_layout_target *target, const struct erg_layout_entry *entry)
{
    size_t place = target->count;
    while (place > 0 && entry->bound < target->entries[place - 1].bound)
        place--;
    memmove(&target->entries[place + 1], &target->entries[place],
            (target->count - place) * sizeof *target->entries);
    target->entries[place] = *entry;
    if (++target->count > ERG_LAYOUT_KEPT) {
        struct erg_layout_entry *last = &target->entries[--target->count];
        target->dropped = fmin(target->dropped, last->bound);
        erg_layout_contender_drop(last->contender);
    }
}

static bool has_place(const struct erg_layout_target *target, double bound)
{
    return target->count < ERG_LAYOUT_KEPT || bound < target->entries[ERG_LAYOUT_KEPT - 1].bound;
}

/* Without a deadline only exact bounds say how slow, and so how weak, plans can be. */
static double least_of(const struct erg_layout_target *target, const struct erg_layout_bound *bound)
{
    struct erg_goal query = target->query;
    if (query.objective != ERG_LEAST_POWER || query.deadline_s > 0)
        return erg_layout_bound_objective(bound, &query);
    query.objective = ERG_FASTEST;
    return isfinite(erg_layout_bound_objective(bound, &query)) ? erg_layout_bound_least_power(bound)
                                                               : INFINITY;
}

bool erg_layout_choosing_wants(void *context, const struct erg_layout_bound *bound)
{
    struct erg_layout_choosing *at = context;
    for (size_t i = 0; i < at->targets.count; i++) {
        const struct erg_layout_target *target = &at->targets.items[i];
        double least = least_of(target, bound);
        if (isfinite(least) && has_place(target, least))
            return true;
    }
    for (size_t i = 0; i < at->targets.count; i++) {
        struct erg_layout_target *target = &at->targets.items[i];
        target->dropped = fmin(target->dropped, least_of(target, bound));
    }
    return false;
}

/* By the bound that costs a hundredth of an exact one. */
static bool may_be_wanted(struct erg_layout_choosing *at,
                          const struct erg_layout_candidate *candidate)
{
    struct erg_layout_bound bound;
    erg_layout_choosing_bound(&bound, at, candidate, false);
    bool wanted = erg_layout_choosing_wants(at, &bound);
    erg_layout_bound_release(&bound);
    return wanted;
}

void erg_layout_choosing_consider(void *context, const struct erg_layout_candidate *candidate)
{
    struct erg_layout_choosing *at = context;
    bool exact = at->request->query.power_w > 0; /* only that says how slow plans can be */
    struct erg_layout_contender *contender = NULL;
    struct erg_layout_bound bound;
    at->choice->fitting++;
    if (exact && !may_be_wanted(at, candidate))
        return;
    erg_layout_choosing_bound(&bound, at, candidate, exact);
    for (size_t i = 0; i < at->targets.count; i++) {
        struct erg_layout_target *target = &at->targets.items[i];
        struct erg_layout_entry entry = {.bound =
                                             erg_layout_bound_objective(&bound, &target->query)};
        if (isinf(entry.bound))
            continue;
        if (!has_place(target, entry.bound)) {
            target->dropped = fmin(target->dropped, entry.bound);
            continue;
        }
        if (contender)
            contender->references++;
        else
            contender = erg_layout_contender_new(candidate);
        entry.contender = contender;
        insert(target, &entry);
    }
    erg_layout_bound_release(&bound);
}

double erg_layout_choosing_limit(const struct erg_layout_choosing *at)
{
    double limit_s = 0;
    for (size_t i = 0; i < at->targets.count; i++) {
        if (!(at->targets.items[i].query.deadline_s > 0))
            return 0;
        limit_s = fmax(limit_s, at->targets.items[i].query.deadline_s);
    }
    return limit_s;
}

void erg_layout_choosing_add(struct erg_layout_choosing *at, struct erg_goal query, bool shows)
{
    const struct erg_layout_target target = {.query = query,
                                             .shows = shows,
                                             .tolerance = at->request->tolerance,
                                             .dropped = INFINITY,
                                             .best = INFINITY};
    ERG_PUSH(&at->targets, items, target);
}

void erg_layout_choosing_release_targets(struct erg_layout_choosing *at)
{
    for (size_t i = 0; i < at->targets.count; i++)
        for (size_t k = 0; k < at->targets.items[i].count; k++)
            erg_layout_contender_drop(at->targets.items[i].entries[k].contender);
    free(at->targets.items);
    at->targets.items = NULL;
    at->targets.count = at->targets.capacity = 0;
}

struct erg_layout_contender *erg_layout_target_take_first(struct erg_layout_target *target)
{
    struct erg_layout_contender *first = target->entries[0].contender;
    target->count--;
    memmove(&target->entries[0], &target->entries[1], target->count * sizeof *target->entries);
    return first;
}

/* ---- bounds raised where that decides something ---- */

/* Those that are raised at the same time, on as many cores as there are: always so many, so that
 * the answer is the same everywhere. */
enum { TOGETHER = 4 };

struct raising {
    const struct erg_layout_choosing *at;
    const struct erg_goal *query;
    struct erg_layout_entry *entries[ERG_LAYOUT_KEPT];
    size_t count;
    double enough;
    struct erg_prices prices[TOGETHER];
};

/* Takes the prices, instead of the oldest where there are many. */
static void remember(struct erg_layout_choosing *at, struct erg_prices prices)
{
    size_t place = at->prices.made++ % ERG_LAYOUT_PRICES;
    if (at->prices.count < ERG_LAYOUT_PRICES) {
        ERG_PUSH(&at->prices, items, prices);
    } else {
        erg_prices_release(&at->prices.items[place]);
        at->prices.items[place] = prices;
    }
}

/* Whoever has a bound of this or more is not the best: so does one that was solved, but for the
 * tolerance, or one whose bound cannot be raised. */
static double enough_for(const struct erg_layout_target *target)
{
    double enough = target->best / (1 + target->tolerance);
    for (size_t i = 0; i < target->count; i++)
        if (target->entries[i].settled)
            enough = fmin(enough, target->entries[i].bound);
    return enough;
}

/* Sorts again, and drops those that are within the query's bounds no more. */
static void sort(struct erg_layout_target *target)
{
    size_t count = target->count;
    target->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_entry entry = target->entries[i];
        if (isfinite(entry.bound))
            insert(target, &entry);
        else
            erg_layout_contender_drop(entry.contender);
    }
}

static bool may_be_best(const struct erg_layout_entry *entry, double enough)
{
    return !entry->settled && entry->bound < enough;
}

static int price_one(void *context, size_t i, struct erg_error *err)
{
    const struct raising *raising = context;
    (void)err;
    erg_layout_entry_price(raising->entries[i], raising->at, raising->query);
    return 0;
}

/* Prices those that may be the best, until they know all prices. */
static void price(struct raising *raising, struct erg_layout_target *target)
{
    for (;;) {
        raising->enough = enough_for(target);
        raising->count = 0;
        for (size_t i = 0; i < target->count; i++) {
            struct erg_layout_entry *entry = &target->entries[i];
            if (may_be_best(entry, raising->enough) &&
                entry->evaluated != raising->at->prices.made + 1)
                raising->entries[raising->count++] = entry;
        }
        if (raising->count == 0)
            return;
        erg_parallel_for(raising->count, 0, price_one, raising, NULL);
        sort(target);
    }
}

/*
 * How good a layout seems to be. Bounds are too low most where times are close to the fastest, so
 * that the bound at a somewhat shorter time says more: it is infinite where that is too short.
 */
static double guess(const struct erg_layout_entry *entry, const struct erg_goal *query)
{
    static const double shorter = 0.97;
    struct erg_goal within = *query;
    within.deadline_s *= shorter;
    double guess = erg_layout_bound_objective(&entry->contender->bound, &within);
    return fmax(guess, entry->bound);
}

static bool same_schedule(const struct erg_layout *a, const struct erg_layout *b)
{
    return a->pipeline == b->pipeline && a->virtual_stages == b->virtual_stages &&
           a->microbatches == b->microbatches;
}

/* The next one to raise is the one that seems best: how good it is spares raising others far. Not
 * with others of the same schedule, which will learn from it. NULL: none is left. */
static struct erg_layout_entry *next_to_raise(const struct raising *raising,
                                              struct erg_layout_target *target)
{
    struct erg_layout_entry *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < target->count; i++) {
        struct erg_layout_entry *entry = &target->entries[i];
        const struct erg_layout *layout = &entry->contender->candidate.layout;
        bool wanted = may_be_best(entry, raising->enough);
        for (size_t k = 0; k < raising->count && wanted; k++)
            wanted = !same_schedule(layout, &raising->entries[k]->contender->candidate.layout);
        double value = wanted ? guess(entry, raising->query) : INFINITY;
        if (wanted && (!best || value < least)) {
            best = entry;
            least = value;
        }
    }
    return best;
}

static int raise_one(void *context, size_t i, struct erg_error *err)
{
    struct raising *raising = context;
    return erg_layout_entry_raise(raising->entries[i], raising->at, raising->query, raising->enough,
                                  &raising->prices[i], err);
}

int erg_layout_target_settle(struct erg_layout_choosing *at, struct erg_layout_target *target,
                             struct erg_error *err)
{
    for (;;) {
        struct raising raising = {.at = at, .query = &target->query};
        struct erg_layout_entry *next;
        price(&raising, target);
        while (raising.count < TOGETHER && (next = next_to_raise(&raising, target)))
            raising.entries[raising.count++] = next;
        if (raising.count == 0)
            return 0;
        int status = erg_parallel_for(raising.count, 0, raise_one, &raising, err);
        for (size_t i = 0; i < raising.count; i++)
            remember(at, raising.prices[i]);
        sort(target);
        if (status != 0)
            return -1;
    }
}

double erg_layout_target_gap(const struct erg_layout_target *target)
{
    double bound = fmin(target->dropped, target->count ? target->entries[0].bound : INFINITY);
    return bound < target->best ? target->best / bound - 1 : 0;
}

bool erg_layout_target_is_open(const struct erg_layout_target *target)
{
    return target->count && erg_layout_target_gap(target) > target->tolerance;
}
