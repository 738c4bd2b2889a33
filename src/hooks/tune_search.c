/* The golden section of the tuner. */
#include "hooks/tune_search.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    MOST_PAIRS = 6,  /* of a comparison */
    FIRST_PAIRS = 3, /* of the first one, which measures the noise */
    TOP_BLOCKS = 2,  /* at the highest value, the reference of SLOWDOWN */
};

static const double small = 0.01; /* a negligible difference */

void erg_tune_search_begin(struct erg_tune_search *search, size_t count,
                           const struct erg_tune_goal *goal)
{
    assert(count > 0);
    *search = (struct erg_tune_search){.goal = *goal, .count = count, .low = -1, .length = 2};
    search->time = erg_xcalloc(count, sizeof *search->time);
    search->energy = erg_xcalloc(count, sizeof *search->energy);
    for (long before = 1; (size_t)search->length < count + 1;) {
        const long sum = before + search->length;
        before = search->length;
        search->length = sum;
    }
    search->done = count == 1;
}

void erg_tune_search_release(struct erg_tune_search *search)
{
    free(search->time);
    free(search->energy);
    *search = (struct erg_tune_search){0};
}

/* ---- the section ---- */

/* The Fibonacci number before `number`, which is at least 2. */
static long number_before(long number)
{
    long before = 1, now = 2;
    while (now < number) {
        const long sum = before + now;
        before = now;
        now = sum;
    }
    return before;
}

/* The two values to compare; the higher one may be beyond the last. */
static void find_pair(const struct erg_tune_search *search, size_t pair[2])
{
    const long higher = number_before(search->length);
    pair[0] = (size_t)(search->low + search->length - higher);
    pair[1] = (size_t)(search->low + higher);
}

static bool needs_top(const struct erg_tune_search *search)
{
    return search->goal.selector == ERG_TUNE_SLOWDOWN &&
           search->time[search->count - 1].count < TOP_BLOCKS;
}

size_t erg_tune_search_value(const struct erg_tune_search *search)
{
    size_t pair[2];
    if (search->done)
        return (size_t)search->low + 1;
    if (needs_top(search))
        return search->count - 1;
    find_pair(search, pair);
    /* In turn: a b, b a, a b, … */
    return pair[(search->differences.count + search->in_pair) % 2];
}

/* Drops the part without the better value. */
static void narrow(struct erg_tune_search *search, bool lower_is_better)
{
    size_t pair[2];
    find_pair(search, pair);
    if (!lower_is_better)
        search->low = (long)pair[0];
    search->length = number_before(search->length);
    search->differences = (struct erg_spread){0};
    search->in_pair = 0;
    search->done = search->length == 2;
}

static void skip_missing(struct erg_tune_search *search)
{
    size_t pair[2];
    for (; !search->done; narrow(search, true)) {
        find_pair(search, pair);
        if (pair[1] < search->count)
            return;
    }
}

/* ---- comparing ---- */

bool erg_tune_search_meets(const struct erg_tune_search *search, size_t value)
{
    const struct erg_tune_goal *goal = &search->goal;
    if (goal->selector == ERG_TUNE_BUDGET)
        return search->energy[value].mean <= goal->budget_j;
    if (goal->selector == ERG_TUNE_SLOWDOWN)
        return search->time[value].mean <= goal->slowdown * search->time[search->count - 1].mean;
    return true;
}

/* The value to minimise if both candidates meet the bound, or neither does. */
static double judge(const struct erg_tune_goal *goal, bool meets, double time_s, double energy_j)
{
    switch (goal->selector) {
    case ERG_TUNE_ENERGY:
        return energy_j;
    case ERG_TUNE_COST:
        return goal->weight * energy_j + (1 - goal->weight) * goal->full_w * time_s;
    case ERG_TUNE_BUDGET:
        return meets ? time_s : energy_j;
    default:
        return time_s;
    }
}

/* +1: value a is better, -1: b is, 0: 0: judge() decides. */
static int judge_bounds(const struct erg_tune_search *search, size_t a, size_t b)
{
    const bool meets_a = erg_tune_search_meets(search, a);
    const bool meets_b = erg_tune_search_meets(search, b);
    if (meets_a != meets_b)
        return meets_a ? 1 : -1;
    /* If both values are fast enough, the lower one wins. */
    return search->goal.selector == ERG_TUNE_SLOWDOWN && meets_a ? (a < b ? 1 : -1) : 0;
}

/* Adds the relative difference of a pair; below 0: the lower value is better. */
static void add_pair(struct erg_tune_search *search, const size_t pair[2])
{
    const bool meets = erg_tune_search_meets(search, pair[0]);
    const size_t first = search->differences.count % 2; /* index of the one measured first */
    const struct erg_tune_block *a = &search->last[first], *b = &search->last[!first];
    const double low = judge(&search->goal, meets, a->time_s, a->energy_j);
    const double high = judge(&search->goal, meets, b->time_s, b->energy_j);
    const double before = search->differences.squares;
    erg_spread_add(&search->differences, 2 * (low - high) / (low + high));
    search->squares += search->differences.squares - before;
    search->degrees += search->differences.count > 1;
}

/* The 95 % interval of the mean difference. */
static double half_width(const struct erg_tune_search *search)
{
    if (!search->degrees)
        return INFINITY;
    const double variance = search->squares / (double)search->degrees;
    return erg_student_critical(search->degrees, 0.95) *
           sqrt(variance / (double)search->differences.count);
}

static void decide(struct erg_tune_search *search, const size_t pair[2])
{
    const double mean = search->differences.mean, half = half_width(search);
    const size_t pairs = search->differences.count;
    const int bounds = judge_bounds(search, pair[0], pair[1]);
    const bool first = search->degrees < FIRST_PAIRS - 1;
    if (pairs < MOST_PAIRS && (first || (!bounds && fabs(mean) <= half && half > small)))
        return;
    narrow(search, bounds ? bounds > 0 : mean < 0);
    skip_missing(search);
}

void erg_tune_search_put(struct erg_tune_search *search, const struct erg_tune_block *block)
{
    const size_t value = erg_tune_search_value(search);
    size_t pair[2];
    const bool top = needs_top(search);
    erg_spread_add(&search->time[value], block->time_s);
    erg_spread_add(&search->energy[value], block->energy_j);
    if (search->done || top)
        return;
    search->last[search->in_pair++] = *block;
    if (search->in_pair < 2)
        return;
    search->in_pair = 0;
    find_pair(search, pair);
    add_pair(search, pair);
    decide(search, pair);
}

size_t erg_tune_search_pick(const struct erg_tune_search *search)
{
    size_t best = search->count;
    for (size_t i = 0; i < search->count; i++) {
        if (!search->time[i].count)
            continue;
        const int bounds = best < search->count ? judge_bounds(search, i, best) : 1;
        const bool meets = erg_tune_search_meets(search, i);
        if (bounds > 0 ||
            (!bounds &&
             judge(&search->goal, meets, search->time[i].mean, search->energy[i].mean) <
                 judge(&search->goal, meets, search->time[best].mean, search->energy[best].mean)))
            best = i;
    }
    return best;
}
