/* Energy of a candidate of a search, and where its stages lie for a frontier. */
#include "layout/energy/candidate.h"

#include "base/memory.h"
#include "layout/search/search_internal.h"

#include <stdlib.h>

/* Where the stages of one layout lie. */
struct lying {
    struct erg_layout_site site;
    struct erg_layout_places places;
    struct erg_layout_energy_request requests[ERG_LAYOUT_MOST_KINDS]; /* of every place */
};

static void lie(struct lying *lies, const struct erg_layout_search *search,
                const struct erg_layout_candidate *candidate)
{
    erg_layout_site_init(&lies->site, search);
    erg_layout_places_init(&lies->places, &lies->site, &candidate->layout, candidate->blocks,
                           candidate->block_count);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_layout_on *on = &lies->places.on[i];
        lies->requests[i] =
            (struct erg_layout_energy_request){.time = on->pieces->time, .gpu = on->kind->gpu};
    }
}

void erg_layout_candidate_energy(struct erg_layout_energy *energy,
                                 const struct erg_layout_search *search,
                                 const struct erg_layout_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->layout;
    struct lying lies;
    struct erg_layout_costs costs[ERG_LAYOUT_MOST_KINDS];
    struct erg_layout_energy_place on[ERG_LAYOUT_MOST_KINDS];
    lie(&lies, search, candidate);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_time_place *time = &lies.places.time[i];
        struct erg_layout_work work;
        erg_layout_work_init(&work, &lies.requests[i], time->parts, layout->tensor, layout->context,
                             layout->microbatch, layout->sequence, lies.places.on[i].pieces->gpus);
        erg_layout_costs_at(&costs[i], &lies.requests[i], &work, 0);
        on[i] = (struct erg_layout_energy_place){&lies.requests[i], time, &costs[i]};
    }
    erg_layout_energy_compose(energy, on, candidate->block_count, layout,
                              candidate->time.items[ERG_TIME_UNEVEN]);
}

void *erg_layout_locate(struct erg_layout_frontier_request *request,
                        const struct erg_layout_search *search,
                        const struct erg_layout_candidate *candidate)
{
    struct lying *lies = erg_xcalloc(1, sizeof *lies);
    lie(lies, search, candidate);
    request->energy = lies->requests;
    request->layout = &candidate->layout;
    request->places = lies->places.time;
    request->place_count = lies->places.count;
    request->closed_s = candidate->time.total;
    return lies;
}
