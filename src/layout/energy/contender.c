/* Layouts that may be an answer, and how good they can be at best. */
#include "layout/energy/choice_internal.h"

#include "base/memory.h"
#include "layout/energy/candidate.h"
#include "layout/search/search_internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- where a layout's bounds come from ---- */

/* The ladders of one layout's stages. */
struct footing {
    struct erg_layout_ladder ladders[ERG_LAYOUT_MOST_KINDS];
    struct erg_time_place place;
    struct erg_layout_climb climb;
    size_t own; /* ladders that are its own */
    void *held;
};

/* Of a layout that a search found. */
static void stand_on(struct footing *footing, const struct erg_layout_ladder *ladder,
                     const struct erg_layout_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->layout;
    footing->place = erg_layout_ladder_place(ladder, layout);
    footing->climb = (struct erg_layout_climb){
        ladder, &footing->place, 1,
        erg_layout_ladder_time(ladder, layout, candidate->time.items[ERG_TIME_UNEVEN])};
}

/* Of any, with ladders of its own. To be released, and not moved. */
static void footing_init(struct footing *footing, const struct erg_layout_choice_request *request,
                         const struct erg_layout_candidate *candidate)
{
    *footing = (struct footing){.own = 1};
    if (request->searches->kind_count == 1) {
        erg_layout_ladder_init(&footing->ladders[0], request->energy, &candidate->layout,
                               ERG_LAYOUT_CHOICE_CLOCKS);
        stand_on(footing, &footing->ladders[0], candidate);
        return;
    }
    struct erg_layout_frontier_request lies = {0};
    footing->held = erg_layout_locate(&lies, request->searches, candidate);
    footing->own = lies.place_count;
    footing->climb =
        (struct erg_layout_climb){footing->ladders, lies.places, lies.place_count, lies.closed_s};
    for (size_t i = 0; i < footing->own; i++)
        erg_layout_ladder_init(&footing->ladders[i], &lies.energy[i], &candidate->layout,
                               ERG_LAYOUT_CHOICE_CLOCKS);
}

static void footing_release(struct footing *footing)
{
    for (size_t i = 0; i < footing->own; i++)
        erg_layout_ladder_release(&footing->ladders[i]);
    free(footing->held);
}

/* Searches come by with many layouts of the same degrees, one after the other. */
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

void erg_layout_choosing_bound(struct erg_layout_bound *bound, struct erg_layout_choosing *at,
                               const struct erg_layout_candidate *candidate, bool exact)
{
    struct footing footing = {0};
    if (at->request->searches->kind_count > 1)
        footing_init(&footing, at->request, candidate);
    else
        stand_on(&footing, ladder_for(at, &candidate->layout), candidate);
    erg_layout_bound_init(bound, &footing.climb, &candidate->layout, exact);
    footing_release(&footing);
}

/* ---- contenders ---- */

struct erg_layout_contender *erg_layout_contender_new(const struct erg_layout_candidate *candidate)
{
    struct erg_layout_contender *contender = erg_xcalloc(1, sizeof *contender);
    contender->candidate = *candidate;
    contender->references = 1;
    erg_layout_own_lists(&contender->candidate);
    return contender;
}

void erg_layout_contender_drop(struct erg_layout_contender *contender)
{
    if (--contender->references)
        return;
    if (!contender->solved)
        erg_layout_candidate_release(&contender->candidate);
    erg_layout_bound_release(&contender->bound);
    free(contender->deadlines.items);
    free(contender->times.items);
    free(contender);
}

/* Whether the continuous problem says more than the chains do of how good the answer is. To sweep
 * longer pipelines takes longer than to solve what stands for them. */
static bool has_optimum(const struct erg_layout *layout, const struct erg_goal *query)
{
    bool fastest = query->objective == ERG_FASTEST && query->energy_j == 0 && query->power_w == 0;
    return !fastest && erg_layout_instructions(layout) <= (long)ERG_LAYOUT_MOST_INSTRUCTIONS;
}

static bool suit(const struct erg_prices *prices, const struct erg_layout *layout)
{
    const struct erg_pipeline pipeline = {.stages = (size_t)layout->pipeline,
                                          .microbatches = (size_t)layout->microbatches,
                                          .chunks = (size_t)layout->virtual_stages};
    return erg_prices_suit(prices, &pipeline);
}

/* Those that suit of the prices that the contender has not seen; returns how many. */
static size_t find_fresh(const struct erg_prices **fresh, const struct erg_layout_choosing *at,
                         const struct erg_layout_contender *contender)
{
    size_t unseen = at->prices.made - contender->priced, count = 0;
    for (size_t i = unseen < at->prices.count ? unseen : at->prices.count; i > 0; i--) {
        size_t place = (at->prices.made - i) % ERG_LAYOUT_PRICES;
        if (suit(&at->prices.items[place], &contender->candidate.layout))
            fresh[count++] = &at->prices.items[place];
    }
    return count;
}

void erg_layout_entry_price(struct erg_layout_entry *entry, const struct erg_layout_choosing *at,
                            const struct erg_goal *query)
{
    struct erg_layout_contender *contender = entry->contender;
    struct erg_layout_bound *bound = &contender->bound;
    const struct erg_layout *layout = &contender->candidate.layout;
    const struct erg_prices *fresh[ERG_LAYOUT_PRICES];
    size_t count = find_fresh(fresh, at, contender);
    if (!bound->bends || count) {
        struct footing footing;
        footing_init(&footing, at->request, &contender->candidate);
        if (!bound->bends)
            erg_layout_bound_init(bound, &footing.climb, layout, true);
        for (size_t i = 0; i < count; i++)
            erg_layout_bound_price(bound, &footing.climb, layout, fresh[i]);
        footing_release(&footing);
    }
    contender->priced = at->prices.made;
    entry->evaluated = at->prices.made + 1;
    entry->bound = fmax(entry->bound, erg_layout_bound_objective(bound, query));
    entry->settled = !has_optimum(layout, query) || erg_layout_bound_is_optimum(bound, query);
}

int erg_layout_entry_raise(struct erg_layout_entry *entry, const struct erg_layout_choosing *at,
                           const struct erg_goal *query, double enough, struct erg_prices *prices,
                           struct erg_error *err)
{
    struct erg_layout_contender *contender = entry->contender;
    struct erg_layout_bound *bound = &contender->bound;
    struct footing footing;
    footing_init(&footing, at->request, &contender->candidate);
    int status = erg_layout_bound_raise(bound, &footing.climb, &contender->candidate.layout, query,
                                        enough, prices, err);
    entry->settled = erg_layout_bound_is_optimum(bound, query);
    entry->bound = fmax(entry->bound, erg_layout_bound_objective(bound, query));
    footing_release(&footing);
    return status;
}
