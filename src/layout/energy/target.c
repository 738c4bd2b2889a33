/* What is asked of all layouts, and which may be the answers: those with the best bounds. */
#include "layout/energy/choice_internal.h"

#include "layout/search/search_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- bounds ---- */

static const struct erg_layout_ladder *ladder_for(struct erg_layout_choosing *at,
                                                  const struct erg_layout *layout)
{
    const struct erg_layout *old = &at->climber;
    if (old->tensor != layout->tensor || old->context != layout->context ||
        old->microbatch != layout->microbatch || old->sequence != layout->sequence ||
        erg_layout_gpus(old) != erg_layout_gpus(layout)) {
        erg_layout_ladder_release(&at->ladder);
        erg_layout_ladder_init(&at->ladder, at->request->energy, layout, ERG_LAYOUT_CHOICE_CLOCKS);
        at->climber = *layout;
    }
    return &at->ladder;
}

/* Of a layout that a search found. */
static void bound_found(struct erg_layout_bound *bound, struct erg_layout_choosing *at,
                        const struct erg_layout_candidate *candidate, bool exact)
{
    const struct erg_layout *layout = &candidate->layout;
    const struct erg_layout_ladder *ladder = ladder_for(at, layout);
    const struct erg_time_place place = erg_layout_ladder_place(ladder, layout);
    const double closed_s =
        erg_layout_ladder_time(ladder, layout, candidate->time.items[ERG_TIME_UNEVEN]);
    const struct erg_layout_climb climb = {ladder, &place, 1, closed_s};
    erg_layout_bound_init(bound, &climb, layout, exact);
}

/* Of one on several kinds of GPUs. */
static void bound_located(struct erg_layout_bound *bound, const struct erg_layout_source *source,
                          const struct erg_layout_candidate *candidate, bool exact)
{
    struct erg_layout_frontier_request lies = {0};
    struct erg_layout_ladder ladders[ERG_LAYOUT_MOST_KINDS];
    void *held = source->locate(&lies, source->context, candidate);
    const struct erg_layout_climb climb = {ladders, lies.places, lies.place_count, lies.closed_s};
    for (size_t i = 0; i < climb.count; i++)
        erg_layout_ladder_init(&ladders[i], &lies.energy[i], &candidate->layout,
                               ERG_LAYOUT_CHOICE_CLOCKS);
    erg_layout_bound_init(bound, &climb, &candidate->layout, exact);
    for (size_t i = 0; i < climb.count; i++)
        erg_layout_ladder_release(&ladders[i]);
    free(held);
}

void erg_layout_choosing_bound(struct erg_layout_bound *bound, struct erg_layout_choosing *at,
                               const struct erg_layout_candidate *candidate, bool exact)
{
    if (at->request->source)
        bound_located(bound, at->request->source, candidate, exact);
    else
        bound_found(bound, at, candidate, exact);
}

/* Takes the candidate's lists. */
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
        erg_layout_candidate_release(&last->candidate);
    }
}

void erg_layout_target_remove_first(struct erg_layout_target *target)
{
    target->count--;
    memmove(&target->entries[0], &target->entries[1], target->count * sizeof *target->entries);
}

void erg_layout_choosing_consider(void *context, const struct erg_layout_candidate *candidate)
{
    struct erg_layout_choosing *at = context;
    bool exact = at->request->query.power_w > 0; /* only that says how slow plans can be */
    struct erg_layout_bound bound;
    erg_layout_choosing_bound(&bound, at, candidate, exact);
    for (size_t i = 0; i < at->target_count; i++) {
        struct erg_layout_target *target = &at->targets[i];
        struct erg_layout_entry entry = {
            .exact = exact, .number = at->choice->fitting, .candidate = *candidate};
        entry.bound = erg_layout_bound_objective(&bound, &target->query);
        if (isinf(entry.bound))
            continue;
        if (target->count == ERG_LAYOUT_KEPT &&
            entry.bound >= target->entries[ERG_LAYOUT_KEPT - 1].bound) {
            target->dropped = fmin(target->dropped, entry.bound);
            continue;
        }
        erg_layout_own_lists(&entry.candidate);
        insert(target, &entry);
    }
    erg_layout_bound_release(&bound);
    at->choice->fitting++;
}

bool erg_layout_choosing_wants(void *context, const struct erg_layout_bound *bound)
{
    struct erg_layout_choosing *at = context;
    double bounds[ERG_LAYOUT_TARGETS];
    for (size_t i = 0; i < at->target_count; i++) {
        const struct erg_layout_target *target = &at->targets[i];
        if (target->query.goal == ERG_LAYOUT_LEAST_POWER) /* asked of exact bounds only */
            return true;
        bounds[i] = erg_layout_bound_objective(bound, &target->query);
        if (isfinite(bounds[i]) && (target->count < ERG_LAYOUT_KEPT ||
                                    bounds[i] < target->entries[ERG_LAYOUT_KEPT - 1].bound))
            return true;
    }
    for (size_t i = 0; i < at->target_count; i++)
        at->targets[i].dropped = fmin(at->targets[i].dropped, bounds[i]);
    return false;
}

double erg_layout_choosing_limit(const struct erg_layout_choosing *at)
{
    double limit_s = 0;
    for (size_t i = 0; i < at->target_count; i++) {
        if (!(at->targets[i].query.time_s > 0))
            return 0;
        limit_s = fmax(limit_s, at->targets[i].query.time_s);
    }
    return limit_s;
}

/* ---- targets ---- */

void erg_layout_choosing_add(struct erg_layout_choosing *at, struct erg_layout_query query,
                             double tolerance)
{
    assert(at->target_count < ERG_LAYOUT_TARGETS);
    at->targets[at->target_count++] = (struct erg_layout_target){
        .query = query, .tolerance = tolerance, .dropped = INFINITY, .best = INFINITY};
}

void erg_layout_choosing_release_targets(struct erg_layout_choosing *at)
{
    for (size_t i = 0; i < at->target_count; i++)
        for (size_t k = 0; k < at->targets[i].count; k++)
            erg_layout_candidate_release(&at->targets[i].entries[k].candidate);
    at->target_count = 0;
}

static bool is_solved(const struct erg_layout_choosing *at, uint64_t number)
{
    for (size_t i = 0; i < at->choice->count; i++)
        if (at->numbers[i] == number)
            return true;
    return false;
}

void erg_layout_target_settle_first(struct erg_layout_choosing *at,
                                    struct erg_layout_target *target)
{
    while (target->count) {
        struct erg_layout_entry first = target->entries[0];
        bool solved = is_solved(at, first.number);
        if (first.exact && !solved)
            return;
        erg_layout_target_remove_first(target);
        if (solved) {
            erg_layout_candidate_release(&first.candidate);
            continue;
        }
        struct erg_layout_bound bound;
        erg_layout_choosing_bound(&bound, at, &first.candidate, true);
        first.bound = fmax(first.bound, erg_layout_bound_objective(&bound, &target->query));
        first.exact = true;
        erg_layout_bound_release(&bound);
        if (isfinite(first.bound))
            insert(target, &first);
        else
            erg_layout_candidate_release(&first.candidate);
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
