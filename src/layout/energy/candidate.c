/* Energy of a candidate of a search, and the places of its stages for a frontier. */
#include "layout/energy/candidate.h"

#include "base/memory.h"
#include "layout/search/layout_search_internal.h"

#include <stdlib.h>

/* The places of one layout's stages. */
struct candidate_site {
    struct erg_layout_site site;
    struct erg_layout_places places;
    struct erg_layout_energy_request requests[ERG_LAYOUT_MOST_KINDS]; /* of every place */
};

static void find_site(struct candidate_site *on_site, const struct erg_layout_search *search,
                      const struct erg_layout_candidate *candidate)
{
    erg_layout_site_init(&on_site->site, search);
    erg_layout_places_init(&on_site->places, &on_site->site, &candidate->layout, candidate->blocks,
                           candidate->block_count);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_layout_on *on = &on_site->places.on[i];
        on_site->requests[i] =
            (struct erg_layout_energy_request){.time = on->pieces->time, .gpu = on->kind->gpu};
    }
}

void erg_layout_candidate_energy(struct erg_layout_energy *energy,
                                 const struct erg_layout_search *search,
                                 const struct erg_layout_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->layout;
    struct candidate_site on_site;
    struct erg_layout_costs costs[ERG_LAYOUT_MOST_KINDS];
    struct erg_layout_energy_place on[ERG_LAYOUT_MOST_KINDS];
    find_site(&on_site, search, candidate);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_time_place *time = &on_site.places.time[i];
        struct erg_layout_work work;
        erg_layout_work_of(&work, &on_site.requests[i], time->parts, layout,
                           on_site.places.on[i].pieces->gpus);
        erg_layout_costs_at(&costs[i], &on_site.requests[i], &work, 0);
        on[i] = (struct erg_layout_energy_place){&on_site.requests[i], time, &costs[i]};
    }
    erg_layout_energy_compose(energy, on, candidate->block_count, layout,
                              candidate->time.items[ERG_TIME_UNEVEN]);
}

void *erg_layout_locate(struct erg_layout_frontier_request *request,
                        const struct erg_layout_search *search,
                        const struct erg_layout_candidate *candidate)
{
    struct candidate_site *on_site = erg_xcalloc(1, sizeof *on_site);
    find_site(on_site, search, candidate);
    request->energy = on_site->requests;
    request->layout = &candidate->layout;
    request->places = on_site->places.time;
    request->place_count = on_site->places.count;
    request->closed_s = candidate->time.total;
    return on_site;
}
