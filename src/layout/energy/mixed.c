#include "layout/energy/mixed.h"

#include "base/memory.h"
#include "layout/energy/mixed_rows.h"
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

/* Who asks a search for all layouts. */
struct asking {
    const struct erg_layout_sink *sink;
    struct erg_mixed_rows rows;
};

static void pass_on(void *context, const struct erg_layout_candidate *candidate)
{
    const struct asking *asking = context;
    asking->sink->each(asking->sink->context, candidate);
}

static bool is_wanted(struct asking *asking, const struct erg_layout *degrees,
                      const struct erg_layout_block *blocks, size_t count, unsigned recomputes)
{
    struct erg_layout_bound bound;
    erg_mixed_rows_bound(&bound, &asking->rows, degrees, blocks, count, recomputes);
    bool wanted = asking->sink->wants(asking->sink->context, &bound);
    erg_layout_bound_release(&bound);
    return wanted;
}

static unsigned wanted_recomputes(void *context, const struct erg_layout *degrees,
                                  const struct erg_layout_block *blocks, size_t count)
{
    struct asking *asking = context;
    const struct erg_mixed_search *search = asking->rows.search;
    unsigned wanted = 0;
    if (search->per_stage)
        return is_wanted(asking, degrees, blocks, count, search->recomputes) ? search->recomputes
                                                                             : 0;
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++)
        if (search->recomputes & 1u << recompute &&
            is_wanted(asking, degrees, blocks, count, 1u << recompute))
            wanted |= 1u << recompute;
    return wanted;
}

/* Where none is wanted, the fastest says whether any fits. */
static int search_for(struct erg_layout_found *found, const void *context, size_t index,
                      const struct erg_layout_sink *sink, struct erg_error *err)
{
    struct erg_mixed_search search = ((const struct erg_mixed_search *)context)[index];
    struct asking asking = {.sink = sink};
    struct erg_error own = {0};
    search.top = 1;
    search.each = NULL;
    search.wanted = NULL;
    if (!sink)
        return erg_mixed_search(found, &search, err);
    const struct erg_mixed_search any = search;
    erg_mixed_rows_init(&asking.rows, &search);
    search.each = pass_on;
    search.wanted = wanted_recomputes;
    search.context = &asking;
    search.limit_s = sink->limit_s;
    if (erg_mixed_search(found, &search, &own) == 0)
        return 0;
    return own.status == ERG_INFEASIBLE ? erg_mixed_search(found, &any, err)
                                        : erg_fail(err, own.status, "%s", own.message);
}

static bool holds(const void *context, size_t index, const struct erg_layout_candidate *candidate)
{
    const struct erg_mixed_search *search = &((const struct erg_mixed_search *)context)[index];
    unsigned used = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        used |= 1u << candidate->blocks[i].kind;
    return (!search->gpus || search->gpus == erg_layout_gpus(&candidate->layout)) &&
           (!search->used || search->used == used);
}

struct erg_layout_source erg_mixed_source(const struct erg_mixed_search *searches)
{
    return (struct erg_layout_source){search_for, holds, locate, searches};
}
