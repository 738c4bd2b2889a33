/* What is kept while a search goes on. */
#include "base/memory.h"
#include "layout/search/search_internal.h"

#include <math.h>
#include <stdlib.h>

long erg_layout_compare_degrees(const struct erg_layout *a, const struct erg_layout *b)
{
    const long differences[] = {
        a->tensor - b->tensor,
        a->context - b->context,
        a->pipeline - b->pipeline,
        a->virtual_stages - b->virtual_stages,
        a->microbatch - b->microbatch,
        (long)a->recompute - (long)b->recompute,
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
    return erg_layout_compare_degrees(&a->layout, &b->layout) < 0;
}

void erg_layout_found_insert(struct erg_layout_found *found,
                             const struct erg_layout_candidate *item)
{
    size_t place = found->count++;
    for (; place > 0 && is_better(item, &found->items[place - 1]); place--)
        found->items[place] = found->items[place - 1];
    found->items[place] = *item;
}

void erg_layout_keeping_init(struct erg_layout_keeping *keeping, struct erg_layout_found *found,
                             size_t top)
{
    const size_t most = top > ERG_LAYOUT_LEAST_KEPT ? top : ERG_LAYOUT_LEAST_KEPT;
    *keeping = (struct erg_layout_keeping){.found = found, .most = most};
    found->items = erg_xcalloc(most, sizeof *found->items);
}

double erg_layout_keeping_least_rate(const struct erg_layout_keeping *keeping)
{
    const struct erg_layout_found *found = keeping->found;
    return found->count < keeping->most ? 0 : found->items[found->count - 1].tokens_per_s;
}

void erg_layout_let_go(struct erg_layout_keeping *keeping,
                       const struct erg_layout_candidate *candidate)
{
    keeping->others = fmax(keeping->others, erg_layout_most_rate(candidate));
    if (keeping->each)
        keeping->each(keeping->context, candidate);
}

void erg_layout_keep(struct erg_layout_keeping *keeping,
                     const struct erg_layout_candidate *candidate)
{
    struct erg_layout_found *found = keeping->found;
    if (found->count == keeping->most) {
        struct erg_layout_candidate *last = &found->items[found->count - 1];
        if (!is_better(candidate, last)) {
            erg_layout_let_go(keeping, candidate);
            return;
        }
        erg_layout_let_go(keeping, last);
        erg_layout_found_shorten(found, found->count - 1);
    }
    struct erg_layout_candidate own = *candidate;
    erg_layout_own_lists(&own);
    erg_layout_found_insert(found, &own);
}

void erg_layout_keeping_end(struct erg_layout_keeping *keeping, size_t count)
{
    struct erg_layout_found *found = keeping->found;
    found->gap = fmax(0, keeping->others / found->items[0].tokens_per_s - 1);
    erg_layout_found_shorten(found, count);
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
