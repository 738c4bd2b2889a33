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

void erg_layout_choosing_consider(void *context, const struct erg_layout_candidate *candidate)
{
    struct erg_layout_choosing *at = context;
    bool exact = at->request->query.power_w > 0; /* only that says how slow plans can be */
    struct erg_layout_contender *contender = NULL;
    struct erg_layout_bound bound;
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
    at->choice->fitting++;
}

bool erg_layout_choosing_wants(void *context, const struct erg_layout_bound *bound)
{
    struct erg_layout_choosing *at = context;
    for (size_t i = 0; i < at->targets.count; i++) {
        const struct erg_layout_target *target = &at->targets.items[i];
        if (target->query.goal == ERG_LAYOUT_LEAST_POWER) /* asked of exact bounds only */
            return true;
        double objective = erg_layout_bound_objective(bound, &target->query);
        if (isfinite(objective) && has_place(target, objective))
            return true;
    }
    for (size_t i = 0; i < at->targets.count; i++) {
        struct erg_layout_target *target = &at->targets.items[i];
        target->dropped = fmin(target->dropped, erg_layout_bound_objective(bound, &target->query));
    }
    return false;
}

double erg_layout_choosing_limit(const struct erg_layout_choosing *at)
{
    double limit_s = 0;
    for (size_t i = 0; i < at->targets.count; i++) {
        if (!(at->targets.items[i].query.time_s > 0))
            return 0;
        limit_s = fmax(limit_s, at->targets.items[i].query.time_s);
    }
    return limit_s;
}

void erg_layout_choosing_add(struct erg_layout_choosing *at, struct erg_layout_query query,
                             bool shows)
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
    const struct erg_layout_target *target;
    struct erg_layout_entry entries[TOGETHER];
    double enough;
};

static int raise_one(void *context, size_t i, struct erg_error *err)
{
    struct raising *raising = context;
    return erg_layout_entry_raise(&raising->entries[i], raising->at->request,
                                  &raising->target->query, raising->enough, err);
}

/* With a bound of this or more nothing needs to be solved. */
static double closing_bound(const struct erg_layout_target *target)
{
    return target->best / (1 + target->tolerance);
}

int erg_layout_target_settle(struct erg_layout_choosing *at, struct erg_layout_target *target,
                             struct erg_error *err)
{
    for (;;) {
        struct raising raising = {.at = at, .target = target, .enough = closing_bound(target)};
        size_t count = 0;
        /* Up to the first that is settled: who is not below it is not the best. */
        while (count < target->count && count < TOGETHER &&
               target->entries[count].bound < raising.enough) {
            if (target->entries[count].settled)
                raising.enough = target->entries[count].bound;
            else
                raising.entries[count] = target->entries[count];
            count += !target->entries[count].settled;
        }
        if (count == 0)
            return 0;
        int status = erg_parallel_for(count, 0, raise_one, &raising, err);
        for (size_t i = 0; i < count; i++)
            erg_layout_target_take_first(target);
        for (size_t i = 0; i < count; i++) {
            if (isfinite(raising.entries[i].bound))
                insert(target, &raising.entries[i]);
            else
                erg_layout_contender_drop(raising.entries[i].contender);
        }
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
