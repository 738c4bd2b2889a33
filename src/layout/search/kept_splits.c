/* The fastest splits of the layers of all that a search has kept. */
#include "base/interrupt.h"
#include "base/memory.h"
#include "layout/search/walk_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether the same degrees are there with equal stages, or a split, that is as fast. */
static bool is_beaten(const struct erg_layout_found *found, size_t index)
{
    const struct erg_layout_candidate *item = &found->items[index];
    struct erg_layout layout = item->layout;
    if (!item->chunk_layers)
        return false;
    for (size_t i = 0; i < found->count; i++) {
        const struct erg_layout_candidate *other = &found->items[i];
        layout.chunk_layers = other->chunk_layers;
        if (i != index && erg_layout_compare_degrees(&other->layout, &layout) == 0 &&
            (other->chunk_layers ? i < index : other->time.total <= item->time.total))
            return true;
    }
    return false;
}

/* Whether of these degrees a split is among what was found. */
static bool has_split(const struct erg_layout_found *found, const struct erg_layout *layout)
{
    for (size_t i = 0; i < found->count; i++) {
        struct erg_layout other = found->items[i].layout;
        other.chunk_layers = NULL;
        if (found->items[i].chunk_layers && erg_layout_compare_degrees(&other, layout) == 0)
            return true;
    }
    return false;
}

/* One layout with the fastest split of its layers, of those that may be among the wanted. Of equal
 * chunks, if some of the same stages' layers are not found yet. */
static void refine_one(struct erg_layout_walk *walk, struct erg_layout_found *refined, size_t index)
{
    const struct erg_layout_search *search = walk->search;
    struct erg_layout_candidate item = walk->kept.found->items[index];
    const struct erg_layout *layout = &item.layout;
    double limit_s = INFINITY;
    if (refined->count >= search->top)
        limit_s =
            (double)(item.batch * layout->sequence) / refined->items[search->top - 1].tokens_per_s;
    const bool equal = !item.chunk_layers;
    if (equal &&
        (!search->unequal || layout->virtual_stages == 1 || has_split(walk->kept.found, layout))) {
        erg_layout_found_insert(refined, &item);
        return;
    }
    erg_layout_pieces_init(&walk->pieces, search, layout);
    erg_layout_places_init(&walk->places, search, &walk->pieces, layout,
                           erg_time_group_bandwidth(&search->time, layout->tensor,
                                                    layout->context * layout->data, search->gpus));
    struct erg_layout_candidate chunks = item; /* equal ones stay as they are */
    if (equal)
        erg_layout_own_lists(&item);
    erg_layout_refine_split(&item, &walk->splitter, &walk->own, &walk->places, limit_s);
    if (equal) {
        chunks.bound_s = item.bound_s;
        erg_layout_found_insert(refined, &chunks);
    }
    if (!item.chunk_layers) {
        erg_layout_candidate_release(&item);
        return;
    }
    erg_layout_found_insert(refined, &item);
    refined->evaluated += equal; /* a layout more */
    refined->feasible += equal;
}

/* The fastest of what was refined; nothing else does more than `others`. */
static void take_fastest(struct erg_layout_walk *walk)
{
    struct erg_layout_found *found = walk->kept.found;
    size_t kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        erg_layout_let_go(&walk->kept, &found->items[i]);
        if (kept < walk->search->top && !is_beaten(found, i))
            found->items[kept++] = found->items[i];
        else
            erg_layout_candidate_release(&found->items[i]);
    }
    found->count = kept;
    erg_layout_keeping_end(&walk->kept, kept);
}

int erg_layout_walk_refine(struct erg_layout_walk *walk, struct erg_error *err)
{
    struct erg_layout_found *found = walk->kept.found, refined = *found;
    int status = 0;
    if (found->slower > 0) /* than the last that is kept */
        walk->kept.others = fmax(walk->kept.others, found->items[found->count - 1].tokens_per_s);
    refined.items = erg_xcalloc(2 * found->count, sizeof *refined.items);
    refined.count = 0;
    for (size_t i = 0; i < found->count; i++) {
        if (status == 0)
            status = erg_interrupt_check(err);
        if (status == 0)
            refine_one(walk, &refined, i);
        else
            erg_layout_found_insert(&refined, &found->items[i]);
    }
    free(found->items);
    *found = refined;
    take_fastest(walk);
    return status;
}
