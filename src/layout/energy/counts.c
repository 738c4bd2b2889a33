/* Compares numbers of GPUs. */
#include "layout/energy/choice.h"

#include <stdlib.h>

static int search_fastest(struct erg_layout_results *found,
                          const struct erg_layout_choice_request *request, size_t index,
                          struct erg_error *err)
{
    struct erg_layout_search one = request->searches[index];
    one.top = 1;
    one.each = NULL;
    return erg_layout_search(found, &one, err);
}

static int find_fastest(struct erg_layout_count *count,
                        const struct erg_layout_choice_request *request, size_t index,
                        struct erg_error *err)
{
    struct erg_layout_results found;
    struct erg_error own = {0};
    if (search_fastest(&found, request, index, &own) != 0)
        return own.status == ERG_INFEASIBLE ? 0 : erg_fail(err, own.status, "%s", own.message);
    count->fits = true;
    count->fastest = found.items[0];
    found.count = 0; /* its only item now has another owner */
    erg_layout_results_release(&found);
    return 0;
}

/* Whether a layout belongs to a search; no two searches share a layout. */
static bool holds(const struct erg_layout_search *search,
                  const struct erg_layout_candidate *candidate)
{
    unsigned used = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        used |= 1u << candidate->blocks[i].kind;
    return (!search->gpus || search->gpus == erg_layout_gpus(&candidate->layout)) &&
           (!search->used || search->used == used);
}

int erg_layout_counts_init(struct erg_layout_count *counts,
                           const struct erg_layout_choice_request *request,
                           const struct erg_layout_choice *choice, struct erg_error *err)
{
    for (size_t i = 0; i < request->search_count; i++)
        counts[i] = (struct erg_layout_count){0};
    for (size_t i = 0; i < request->search_count; i++)
        if (find_fastest(&counts[i], request, i, err) != 0) {
            erg_layout_counts_release(counts, i);
            return -1;
        }
    struct erg_frontier all = {0};
    erg_layout_union(&all, choice->options, choice->count);
    for (size_t k = 0; k < all.count; k++) {
        const struct erg_layout_planned *planned = &choice->layouts[all.points[k].recipe >> 32];
        for (size_t i = 0; i < request->search_count; i++)
            counts[i].on_frontier |= holds(&request->searches[i], &planned->candidate);
    }
    erg_frontier_release(&all);
    return 0;
}

void erg_layout_counts_release(struct erg_layout_count *counts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_layout_candidate_release(&counts[i].fastest);
}
