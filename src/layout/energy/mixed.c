#include "layout/energy/mixed.h"

#include "base/memory.h"
#include "layout/search/mixed_internal.h"

#include <stdlib.h>

_Static_assert((int)ERG_MIXED_MOST_KINDS <= (int)ERG_LAYOUT_MOST_KINDS, "a frontier has places");

/* Of every place of a layout. */
static void fill_requests(struct erg_layout_energy_request *requests,
                          const struct erg_mixed_search *search,
                          const struct erg_mixed_candidate *candidate,
                          const struct erg_mixed_places *places)
{
    for (size_t i = 0; i < candidate->block_count; i++) {
        size_t kind = candidate->blocks[i].kind;
        requests[i] = (struct erg_layout_energy_request){.time = places->kinds[kind].time,
                                                         .gpu = search->kinds[kind].gpu};
    }
}

void erg_mixed_energy(struct erg_layout_energy *energy, const struct erg_mixed_search *search,
                      const struct erg_mixed_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->at.layout;
    struct erg_mixed_places places;
    struct erg_layout_energy_request requests[ERG_MIXED_MOST_KINDS];
    struct erg_layout_costs costs[ERG_MIXED_MOST_KINDS];
    struct erg_layout_energy_place on[ERG_MIXED_MOST_KINDS];
    erg_mixed_places_init(&places, search, candidate);
    fill_requests(requests, search, candidate, &places);
    for (size_t i = 0; i < candidate->block_count; i++) {
        struct erg_layout_work work;
        erg_layout_work_init(&work, &requests[i], places.at.time[i].parts, layout->tensor,
                             layout->context, layout->microbatch, layout->sequence,
                             places.at.on[i].search->gpus);
        erg_layout_costs_at(&costs[i], &requests[i], &work, 0);
        on[i] = (struct erg_layout_energy_place){&requests[i], &places.at.time[i], &costs[i]};
    }
    erg_layout_energy_compose(energy, on, candidate->block_count, layout,
                              candidate->at.time.items[ERG_TIME_UNEVEN]);
}

/* ---- over clocks ---- */

/* Where the stages of one layout lie. */
struct lying {
    struct erg_mixed_places places;
    struct erg_layout_energy_request requests[ERG_MIXED_MOST_KINDS];
};

static void *locate(struct erg_layout_frontier_request *request, const void *context,
                    const struct erg_layout_candidate *candidate)
{
    struct lying *lies = erg_xcalloc(1, sizeof *lies);
    erg_mixed_places_init(&lies->places, context, candidate->mixed);
    fill_requests(lies->requests, context, candidate->mixed, &lies->places);
    request->energy = lies->requests;
    request->layout = &candidate->layout;
    request->places = lies->places.at.time;
    request->place_count = lies->places.at.count;
    request->closed_s = candidate->time.total;
    return lies;
}

int erg_mixed_choose(struct erg_layout_choice *choice, const struct erg_mixed_search *search,
                     const struct erg_mixed_found *found,
                     const struct erg_layout_choice_request *asked, struct erg_error *err)
{
    struct erg_layout_candidate *items = erg_xcalloc(found->count, sizeof *items);
    for (size_t i = 0; i < found->count; i++)
        items[i] = found->items[i].at; /* borrowed */
    const struct erg_layout_list list = {items, found->count, locate, search};
    struct erg_layout_choice_request request = *asked;
    request.list = &list;
    int status = erg_layout_choose(choice, &request, err);
    free(items);
    return status;
}
