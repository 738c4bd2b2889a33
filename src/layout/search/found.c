/* What a search over layouts finds: the fastest, with the fastest splits of their layers. */
#include "base/interrupt.h"
#include "base/memory.h"
#include "layout/search/walk_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is kept ---- */

static long compare_layouts(const struct erg_layout *a, const struct erg_layout *b)
{
    const long differences[] = {
        a->tensor - b->tensor,
        a->context - b->context,
        a->pipeline - b->pipeline,
        a->virtual_stages - b->virtual_stages,
        a->microbatch - b->microbatch,
        (long)a->remat - (long)b->remat,
        (a->chunk_layers != NULL) - (b->chunk_layers != NULL),
    };
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        if (differences[i])
            return differences[i];
    return 0;
}

static bool is_better(const struct erg_layout_candidate *a, const struct erg_layout_candidate *b)
{
    if (a->tokens_per_s != b->tokens_per_s)
        return a->tokens_per_s > b->tokens_per_s;
    return compare_layouts(&a->layout, &b->layout) < 0;
}

static void offer(const struct erg_layout_walk *walk, const struct erg_layout_candidate *candidate)
{
    if (walk->search->each)
        walk->search->each(walk->search->context, candidate);
}

/* A layout that is not kept: another split of its layers may be faster. */
static void let_go(struct erg_layout_walk *walk, const struct erg_layout_candidate *candidate)
{
    walk->others = fmax(walk->others, erg_layout_most_rate(candidate));
    offer(walk, candidate);
}

void erg_layout_walk_keep(struct erg_layout_walk *walk,
                          const struct erg_layout_candidate *candidate)
{
    struct erg_layout_found *found = walk->found;
    size_t place = found->count;
    while (place > 0 && is_better(candidate, &found->items[place - 1]))
        place--;
    if (place == walk->kept) {
        let_go(walk, candidate);
        return;
    }
    if (found->count == walk->kept) {
        let_go(walk, &found->items[--found->count]);
        erg_layout_candidate_release(&found->items[found->count]);
    }
    memmove(&found->items[place + 1], &found->items[place],
            (found->count - place) * sizeof *found->items);
    found->items[place] = *candidate;
    erg_layout_own_lists(&found->items[place]);
    found->count++;
}

/* ---- refined ---- */

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
        if (i != index && compare_layouts(&other->layout, &layout) == 0 &&
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
        if (found->items[i].chunk_layers && compare_layouts(&other, layout) == 0)
            return true;
    }
    return false;
}

static void insert(struct erg_layout_found *found, const struct erg_layout_candidate *item)
{
    size_t place = found->count++;
    for (; place > 0 && is_better(item, &found->items[place - 1]); place--)
        found->items[place] = found->items[place - 1];
    found->items[place] = *item;
}

/* One layout with the fastest split of its layers, of those that may be among the wanted. Of equal
 * chunks, if some of the same stages' layers are not found yet. */
static void refine_one(struct erg_layout_walk *walk, struct erg_layout_found *refined, size_t index)
{
    const struct erg_layout_search *search = walk->search;
    struct erg_layout_candidate item = walk->found->items[index];
    const struct erg_layout *layout = &item.layout;
    double limit_s = INFINITY;
    if (refined->count >= search->top)
        limit_s =
            (double)(item.batch * layout->sequence) / refined->items[search->top - 1].tokens_per_s;
    const bool equal = !item.chunk_layers;
    if (equal &&
        (!search->unequal || layout->virtual_stages == 1 || has_split(walk->found, layout))) {
        insert(refined, &item);
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
        insert(refined, &chunks);
    }
    if (!item.chunk_layers) {
        erg_layout_candidate_release(&item);
        return;
    }
    insert(refined, &item);
    refined->evaluated += equal; /* a layout more */
    refined->feasible += equal;
}

/* The fastest of what was refined; nothing else does more than `others`. */
static void take_fastest(struct erg_layout_walk *walk)
{
    struct erg_layout_found *found = walk->found;
    size_t kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        let_go(walk, &found->items[i]);
        if (kept < walk->search->top && !is_beaten(found, i))
            found->items[kept++] = found->items[i];
        else
            erg_layout_candidate_release(&found->items[i]);
    }
    found->count = kept;
    found->gap = fmax(0, walk->others / found->items[0].tokens_per_s - 1);
}

int erg_layout_walk_refine(struct erg_layout_walk *walk, struct erg_error *err)
{
    struct erg_layout_found *found = walk->found, refined = *found;
    int status = 0;
    if (found->slower > 0) /* than the last that is kept */
        walk->others = fmax(walk->others, found->items[found->count - 1].tokens_per_s);
    refined.items = erg_xcalloc(2 * found->count + 1, sizeof *refined.items);
    refined.count = 0;
    for (size_t i = 0; i < found->count; i++) {
        if (status == 0)
            status = erg_interrupt_check(err);
        if (status == 0)
            refine_one(walk, &refined, i);
        else
            insert(&refined, &found->items[i]);
    }
    free(found->items);
    *found = refined;
    take_fastest(walk);
    return status;
}

void erg_layout_found_shorten(struct erg_layout_found *found, size_t count)
{
    while (found->count > count)
        erg_layout_candidate_release(&found->items[--found->count]);
}

void erg_layout_found_release(struct erg_layout_found *found)
{
    erg_layout_found_shorten(found, 0);
    free(found->items);
    found->items = NULL;
}
