/* Finds the smallest change with which a layout, or a job, would fit, by trial. */
#include "layout/search/nearest.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

enum field { TENSOR, CONTEXT, PIPELINE, CHUNKS, MICROBATCH, EXPERT, RECOMPUTE, FIELDS };

/*
 * False: impossible. Chunks with given numbers of layers keep them if the stages change; if the
 * virtual stages change, the numbers may change.
 */
static bool set(struct erg_layout *layout, enum field field, long value, long layers)
{
    const long own = layout->pipeline * layout->virtual_stages;
    long *const places[] = {[TENSOR] = &layout->tensor,         [CONTEXT] = &layout->context,
                            [PIPELINE] = &layout->pipeline,     [CHUNKS] = &layout->virtual_stages,
                            [MICROBATCH] = &layout->microbatch, [EXPERT] = &layout->expert};
    if (field == RECOMPUTE)
        layout->recompute = (enum erg_recompute)value;
    else
        *places[field] = value;
    if (layout->cut == ERG_CUT_EQUALLY && field == PIPELINE) {
        layout->virtual_stages = own / value;
        return own % value == 0;
    }
    if (layout->cut == ERG_CUT_EQUALLY && field == CHUNKS)
        return layers % (layout->pipeline * value) == 0;
    if (field == CHUNKS)
        layout->cut = ERG_CUT_ANY;
    return true;
}

static bool is_allowed(const struct erg_layout_search *search, enum field field, long value)
{
    switch (field) {
    case TENSOR:
    case CONTEXT:
    case PIPELINE:
        return search->gpus % value == 0;
    case MICROBATCH:
        return search->batch_least < search->batch_most || search->batch_most % value == 0;
    case EXPERT:
        return search->model->experts.count && search->model->experts.count % value == 0;
    case RECOMPUTE:
        return search->recomputes & 1u << value;
    default:
        return true;
    }
}

static long largest(const struct erg_layout_search *search, enum field field)
{
    long node = search->group_most > 0 ? search->group_most : search->kinds[0].machine.node_gpus;
    long layers = search->model->layers;
    const long most[FIELDS] = {node,
                               node,
                               layers,
                               layers,
                               search->batch_most,
                               search->model->experts.count,
                               ERG_RECOMPUTE_FULL};
    return most[field];
}

static void try_layout(struct erg_layout_change *change, const struct erg_layout_search *search,
                       const struct erg_layout *layout, int changed)
{
    struct erg_layout_candidate candidate;
    if (erg_layout_evaluate(&candidate, search, layout, NULL, 0, NULL) != 0)
        return;
    if (change->changed && candidate.tokens_per_s <= change->candidate.tokens_per_s) {
        erg_layout_candidate_release(&candidate);
        return;
    }
    erg_layout_candidate_release(&change->candidate);
    change->candidate = candidate;
    change->changed = changed;
}

/* Changes `left` more fields, from `first` on. */
static void try_fields(struct erg_layout_change *change, const struct erg_layout_search *search,
                       const struct erg_layout *layout, int first, int left, int changed)
{
    for (enum field field = (enum field)first; field < FIELDS; field++)
        for (long value = field == RECOMPUTE ? 0 : 1; value <= largest(search, field); value++) {
            struct erg_layout tried = *layout;
            if (!is_allowed(search, field, value) ||
                !set(&tried, field, value, search->model->layers) ||
                tried.pipeline * tried.virtual_stages > search->model->layers)
                continue;
            if (left > 1)
                try_fields(change, search, &tried, (int)field + 1, left - 1, changed);
            else
                try_layout(change, search, &tried, changed);
        }
}

/* The least memory with which the unchanged layout fits, to a thousandth. */
static double needed_memory(const struct erg_layout_search *search, const struct erg_layout *layout)
{
    struct erg_layout_search larger = *search;
    struct erg_layout_candidate candidate;
    double low = search->kinds[0].memory_bytes, high = 1e6 * low;
    larger.kinds[0].memory_bytes = high;
    larger.kinds[0].host_bytes = 0;
    if (erg_layout_evaluate(&candidate, &larger, layout, NULL, 0, NULL) != 0)
        return 0;
    erg_layout_candidate_release(&candidate);
    while (high > 1.001 * low) {
        larger.kinds[0].memory_bytes = sqrt(low * high);
        bool fits = erg_layout_evaluate(&candidate, &larger, layout, NULL, 0, NULL) == 0;
        if (fits)
            erg_layout_candidate_release(&candidate);
        *(fits ? &high : &low) = larger.kinds[0].memory_bytes;
    }
    return high;
}

void erg_layout_find_change(struct erg_layout_change *change,
                            const struct erg_layout_search *search, const struct erg_layout *layout)
{
    struct erg_layout_search plain = *search;
    *change = (struct erg_layout_change){.memory_bytes = needed_memory(search, layout)};
    try_fields(change, search, layout, 0, 1, 1);
    plain.equal_stages = true; /* splits of all these layouts would take too long */
    if (!change->changed)
        try_fields(change, &plain, layout, 0, 2, 2);
}

/* ---- a whole search ---- */

long erg_layout_fewest_gpus(const struct erg_layout_search *search, long most)
{
    struct erg_layout_search other = *search;
    long node = search->kinds[0].machine.node_gpus;
    other.kinds[0].gpus = most;
    for (other.gpus = 1; other.gpus <= most; other.gpus += other.gpus < node ? 1 : node)
        if ((other.gpus >= node || node % other.gpus == 0) && erg_layout_any_fits(&other))
            return other.gpus;
    return 0;
}

long erg_layout_nearest_batch(const struct erg_layout_search *search, long most)
{
    struct erg_layout_search other = *search;
    for (long step = 1; step <= most; step++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            long batch = sign > 0 ? search->batch_most + step : search->batch_least - step;
            other.batch_least = other.batch_most = batch;
            if (batch > 0 && erg_layout_any_fits(&other))
                return batch;
        }
    return 0;
}

double erg_layout_least_memory(const struct erg_layout_search *search)
{
    enum { DOUBLINGS = 12 };
    struct erg_layout_search other = *search;
    double low = search->kinds[0].memory_bytes, high = low;
    bool fits = false;
    for (int i = 0; i < DOUBLINGS && !fits; i++) {
        low = high;
        other.kinds[0].memory_bytes = high = 2 * low;
        fits = erg_layout_any_fits(&other);
    }
    while (fits && high - low > 0.02 * 0x1p30 && high > 1.0005 * low) {
        other.kinds[0].memory_bytes = (low + high) / 2;
        *(erg_layout_any_fits(&other) ? &high : &low) = other.kinds[0].memory_bytes;
    }
    return fits ? high : 0;
}
