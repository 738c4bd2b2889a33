#include "layout/energy/mixed.h"

#include "base/memory.h"
#include "layout/search/mixed_internal.h"

#include <stdlib.h>

_Static_assert((int)ERG_MIXED_MOST_KINDS <= (int)ERG_LAYOUT_MOST_KINDS, "a frontier has places");

/* Where the stages of one layout lie. */
struct lying {
    struct erg_mixed_views views;
    struct erg_layout_places places;
    struct erg_layout_energy_request requests[ERG_MIXED_MOST_KINDS]; /* of every place */
};

static void lie(struct lying *lies, const struct erg_mixed_search *search,
                const struct erg_layout_candidate *candidate)
{
    erg_mixed_views_init(&lies->views, search);
    erg_mixed_views_fill(&lies->views, &candidate->layout);
    erg_mixed_places_init(&lies->places, &lies->views, &candidate->layout, candidate->blocks,
                          candidate->block_count);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const size_t kind = candidate->blocks[i].kind;
        lies->requests[i] = (struct erg_layout_energy_request){.time = lies->views.kinds[kind].time,
                                                               .gpu = search->kinds[kind].gpu};
    }
}

void erg_mixed_energy(struct erg_layout_energy *energy, const struct erg_mixed_search *search,
                      const struct erg_layout_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->layout;
    struct lying lies;
    struct erg_layout_costs costs[ERG_MIXED_MOST_KINDS];
    struct erg_layout_energy_place on[ERG_MIXED_MOST_KINDS];
    lie(&lies, search, candidate);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_time_place *time = &lies.places.time[i];
        struct erg_layout_work work;
        erg_layout_work_init(&work, &lies.requests[i], time->parts, layout->tensor, layout->context,
                             layout->microbatch, layout->sequence, lies.places.on[i].search->gpus);
        erg_layout_costs_at(&costs[i], &lies.requests[i], &work, 0);
        on[i] = (struct erg_layout_energy_place){&lies.requests[i], time, &costs[i]};
    }
    erg_layout_energy_compose(energy, on, candidate->block_count, layout,
                              candidate->time.items[ERG_TIME_UNEVEN]);
}

/* ---- over clocks ---- */

static void *locate(struct erg_layout_frontier_request *request, const void *context,
                    const struct erg_layout_candidate *candidate)
{
    struct lying *lies = erg_xcalloc(1, sizeof *lies);
    lie(lies, context, candidate);
    request->energy = lies->requests;
    request->layout = &candidate->layout;
    request->places = lies->places.time;
    request->place_count = lies->places.count;
    request->closed_s = candidate->time.total;
    return lies;
}

int erg_mixed_choose(struct erg_layout_choice *choice, const struct erg_mixed_search *search,
                     const struct erg_layout_found *found,
                     const struct erg_layout_choice_request *asked, struct erg_error *err)
{
    const struct erg_layout_list list = {found->items, found->count, locate, search};
    struct erg_layout_choice_request request = *asked;
    request.list = &list;
    return erg_layout_choose(choice, &request, err);
}
