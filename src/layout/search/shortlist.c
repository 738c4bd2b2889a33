/* The layouts that a search keeps, and the fastest splits of their layers. */
#include "base/interrupt.h"
#include "base/memory.h"
#include "layout/search/layout_search_internal.h"

#include <math.h>
#include <stdlib.h>

/* Compares degrees, recomputation and places of stages; 0: equal. */
static long compare_degrees(const struct erg_layout_candidate *one,
                            const struct erg_layout_candidate *other)
{
    const struct erg_layout *a = &one->layout, *b = &other->layout;
    const long differences[] = {
        a->tensor - b->tensor,
        a->context - b->context,
        a->pipeline - b->pipeline,
        a->virtual_stages - b->virtual_stages,
        a->microbatch - b->microbatch,
        erg_layout_experts(a) - erg_layout_experts(b),
        (long)a->recompute - (long)b->recompute,
        a->data - b->data,
        erg_layout_shards(a) - erg_layout_shards(b),
        (long)one->block_count - (long)other->block_count,
    };
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        if (differences[i])
            return differences[i];
    for (size_t i = 0; i < one->block_count; i++) {
        const struct erg_layout_block *own = &one->blocks[i], *its = &other->blocks[i];
        if (own->kind != its->kind || own->stages != its->stages)
            return own->kind != its->kind ? (long)own->kind - (long)its->kind
                                          : own->stages - its->stages;
    }
    return 0;
}

static bool is_better(const struct erg_layout_candidate *a, const struct erg_layout_candidate *b)
{
    if (a->tokens_per_s != b->tokens_per_s)
        return a->tokens_per_s > b->tokens_per_s;
    const long difference = compare_degrees(a, b);
    return difference ? difference < 0 : !a->chunk_layers && b->chunk_layers;
}

/* Inserts a candidate in order, for which there must be room; does not copy its lists. */
static void insert(struct erg_layout_results *found, const struct erg_layout_candidate *item)
{
    size_t place = found->count++;
    for (; place > 0 && is_better(item, &found->items[place - 1]); place--)
        found->items[place] = found->items[place - 1];
    found->items[place] = *item;
}

void erg_layout_results_shorten(struct erg_layout_results *found, size_t count)
{
    while (found->count > count)
        erg_layout_candidate_release(&found->items[--found->count]);
}

void erg_layout_results_release(struct erg_layout_results *found)
{
    erg_layout_results_shorten(found, 0);
    free(found->items);
    found->items = NULL;
}

/* ---- during a search ---- */

void erg_layout_shortlist_init(struct erg_layout_shortlist *list, struct erg_layout_results *found,
                               const struct erg_layout_search *search)
{
    const size_t most =
        search->top > ERG_LAYOUT_SHORTLIST_LEAST ? search->top : (size_t)ERG_LAYOUT_SHORTLIST_LEAST;
    *list = (struct erg_layout_shortlist){.found = found, .most = most, .search = search};
    found->items = erg_xcalloc(most, sizeof *found->items);
}

double erg_layout_shortlist_least_rate(const struct erg_layout_shortlist *list)
{
    const struct erg_layout_results *found = list->found;
    return found->count < list->most ? 0 : found->items[found->count - 1].tokens_per_s;
}

/* Drops a layout, but another split of its layers may be faster. */
static void let_go(struct erg_layout_shortlist *list, const struct erg_layout_candidate *candidate)
{
    list->others = fmax(list->others, erg_layout_most_rate(candidate));
    if (list->search->each)
        list->search->each(list->search->context, candidate);
}

void erg_layout_shortlist_add(struct erg_layout_shortlist *list,
                              const struct erg_layout_candidate *candidate)
{
    struct erg_layout_results *found = list->found;
    if (found->count == list->most) {
        struct erg_layout_candidate *last = &found->items[found->count - 1];
        if (!is_better(candidate, last)) {
            let_go(list, candidate);
            return;
        }
        let_go(list, last);
        erg_layout_results_shorten(found, found->count - 1);
    }
    struct erg_layout_candidate own = *candidate;
    erg_layout_own_lists(&own);
    insert(found, &own);
}

/* ---- the fastest splits ---- */

/* Whether the list has the same degrees with equal stages, or a split, that is equally fast. */
static bool is_beaten(const struct erg_layout_results *found, size_t index)
{
    const struct erg_layout_candidate *item = &found->items[index];
    if (!item->chunk_layers)
        return false;
    for (size_t i = 0; i < found->count; i++) {
        const struct erg_layout_candidate *other = &found->items[i];
        if (i != index && compare_degrees(other, item) == 0 &&
            (other->chunk_layers ? i < index : other->time.total <= item->time.total))
            return true;
    }
    return false;
}

/* Whether the list has a split with these degrees. */
static bool has_split(const struct erg_layout_results *found,
                      const struct erg_layout_candidate *item)
{
    bool any = false;
    for (size_t i = 0; i < found->count && !any; i++)
        any = found->items[i].chunk_layers && compare_degrees(&found->items[i], item) == 0;
    return any;
}

/*
 * Adds one layout with the fastest split of its layers, if it may be among the requested ones; with
 * equal chunks while the splits of some of the same stages are missing.
 */
static void refine_one(struct erg_layout_results *refined, const struct erg_layout_shortlist *list,
                       size_t index, struct erg_layout_site *site,
                       struct erg_layout_splitter *splitter, struct erg_layout_stages *stages)
{
    const struct erg_layout_search *search = list->search;
    struct erg_layout_candidate item = list->found->items[index];
    struct erg_layout_places places;
    double limit_s = INFINITY;
    if (refined->count >= search->top)
        limit_s = (double)(item.batch * item.layout.sequence) /
                  refined->items[search->top - 1].tokens_per_s;
    const bool equal = !item.chunk_layers;
    if (equal && (search->equal_stages || has_split(list->found, &item))) {
        insert(refined, &item);
        return;
    }
    erg_layout_places_init(&places, site, &item.layout, item.blocks, item.block_count);
    struct erg_layout_candidate chunks = item; /* equal ones do not change */
    if (equal)
        erg_layout_own_lists(&item);
    if (erg_layout_refine_split(&item, splitter, stages, &places, limit_s))
        erg_layout_fill_peaks(&item, &places);
    if (equal) {
        chunks.bound_s = item.bound_s;
        insert(refined, &chunks);
    }
    if (!item.chunk_layers) {
        erg_layout_candidate_release(&item);
        return;
    }
    insert(refined, &item);
    refined->evaluated += equal; /* one more layout */
    refined->feasible += equal;
}

/* Keeps the fastest of the refined layouts; no other layout exceeds `others`. */
static void take_fastest(struct erg_layout_shortlist *list)
{
    struct erg_layout_results *found = list->found;
    size_t count = 0;
    for (size_t i = 0; i < found->count; i++) {
        let_go(list, &found->items[i]);
        if (count < list->search->top && !is_beaten(found, i))
            found->items[count++] = found->items[i];
        else
            erg_layout_candidate_release(&found->items[i]);
    }
    found->count = count;
    found->gap = fmax(0, list->others / found->items[0].tokens_per_s - 1);
}

int erg_layout_shortlist_refine(struct erg_layout_shortlist *list, struct erg_layout_site *site,
                                struct erg_layout_splitter *splitter,
                                struct erg_layout_stages *stages, struct erg_error *err)
{
    struct erg_layout_results *found = list->found, refined = *found;
    int status = 0;
    if (found->slower + found->bounded > 0) /* slower than the last kept one */
        list->others = fmax(list->others, found->items[found->count - 1].tokens_per_s);
    refined.items = erg_xcalloc(2 * found->count, sizeof *refined.items);
    refined.count = 0;
    for (size_t i = 0; i < found->count; i++) {
        if (status == 0)
            status = erg_interrupt_check(err);
        if (status == 0)
            refine_one(&refined, list, i, site, splitter, stages);
        else
            insert(&refined, &found->items[i]);
    }
    free(found->items);
    *found = refined;
    take_fastest(list);
    return status;
}
