/* The fastest split of the layers of stages on several kinds of GPUs. */
#include "layout/search/mixed_internal.h"

#include <math.h>

void erg_mixed_room_init(struct erg_mixed_room *room, const struct erg_mixed_search *search)
{
    room->search = search;
    erg_layout_splitter_init(&room->splitter, search->model->layers);
    erg_layout_stages_init(&room->stages, search->model->layers);
}

void erg_mixed_room_release(struct erg_mixed_room *room)
{
    erg_layout_stages_release(&room->stages);
    erg_layout_splitter_release(&room->splitter);
}

/* Whether stages of equal layers are timed by the closed form, as on GPUs of one kind. */
static bool may_be_equal(const struct erg_mixed_room *room, const struct erg_layout *layout,
                         const struct erg_layout_places *places)
{
    return room->search->model->layers % (layout->pipeline * layout->virtual_stages) == 0 &&
           erg_time_places_are_alike(places->time, places->count);
}

/* Memory and time of the layers at hand. */
static bool settle(struct erg_mixed_room *room, struct erg_layout_candidate *candidate,
                   const struct erg_layout_places *places)
{
    const struct erg_mixed_search *search = room->search;
    double excess;
    enum erg_layout_verdict verdict =
        search->per_stage ? erg_layout_settle_stages(candidate, &room->stages, places,
                                                     search->recomputes, &excess)
                          : erg_layout_settle_memory(candidate, places, &excess);
    if (verdict == ERG_LAYOUT_FITS && candidate->layout.chunk_layers)
        erg_layout_follow_split(candidate, &room->splitter, &room->stages, places);
    else if (verdict == ERG_LAYOUT_FITS)
        erg_layout_settle_time(candidate, places);
    return verdict == ERG_LAYOUT_FITS;
}

/* The best becomes a layout with the chunks at hand if that fits and is faster. */
static void take_faster(struct erg_mixed_room *room, struct erg_layout_candidate *best,
                        const struct erg_layout *layout, const struct erg_layout_places *places)
{
    struct erg_layout_candidate candidate = *best;
    candidate.layout = *layout;
    if (!settle(room, &candidate, places) ||
        (best->time.total > 0 && best->time.total <= candidate.time.total))
        return;
    erg_layout_candidate_release(best);
    *best = candidate;
    erg_layout_own_lists(best);
}

/* The fastest split that fits with one recomputation and ratio for all stages, and where each does
 * what is best for it, what that makes of it. */
static void take_split(struct erg_mixed_room *room, struct erg_layout_candidate *best,
                       const struct erg_layout *layout, const struct erg_layout_places *places,
                       enum erg_recompute recompute, double limit)
{
    struct erg_layout own = *layout;
    own.recompute = recompute;
    if (!erg_layout_may_fit(places, &own, 1u << recompute) ||
        erg_layout_split_fastest(&room->splitter, places, &own, limit) == INFINITY)
        return;
    own.chunk_layers = room->splitter.chunk_layers;
    take_faster(room, best, &own, places);
}

double erg_mixed_split_bound(struct erg_mixed_room *room, const struct erg_layout *layout,
                             const struct erg_layout_places *places, double limit)
{
    struct erg_layout least = *layout;
    if (room->search->per_stage)
        erg_layout_take_least_recomputes(&least, &room->stages, places);
    return erg_layout_split_bound(&room->splitter, places, &least, limit);
}

void erg_mixed_split_fastest(struct erg_layout_candidate *best, struct erg_mixed_room *room,
                             const struct erg_layout *layout,
                             const struct erg_layout_places *places, double limit)
{
    const struct erg_mixed_search *search = room->search;
    if (may_be_equal(room, layout, places))
        take_faster(room, best, layout, places);
    if (!search->per_stage)
        take_split(room, best, layout, places, layout->recompute, limit);
    for (int recompute = ERG_RECOMPUTE_NONE; search->per_stage && recompute < ERG_RECOMPUTES;
         recompute++)
        if (search->recomputes & 1u << recompute)
            take_split(room, best, layout, places, (enum erg_recompute)recompute, INFINITY);
}
