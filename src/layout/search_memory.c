/* What a candidate needs of memory, and the least offloading with which it fits. */
#include "layout/search_internal.h"

#include <math.h>

/* A budget counts as kept where it is missed by a rounding error. */
static const double rounding = 1e-9;

static double stage_peak(const struct erg_layout_search *search,
                         const struct erg_layout_pieces *pieces, const struct erg_layout *layout,
                         long stage, double offload, double *host_bytes)
{
    struct erg_layout own = *layout;
    own.offload = offload;
    const struct erg_memory_request request = {
        .model = search->time.model, .layout = &own, .accounting = ERG_MEMORY_ARENA};
    struct erg_memory_stage memory;
    erg_memory_closed(&memory, &request, &pieces->sizes, stage);
    *host_bytes = (double)memory.groups * memory.offload_bytes;
    return memory.peak_bytes;
}

/* With all offloaded, what is missing may be the model's own error. */
static double budget_of(const struct erg_layout_search *search, double offload)
{
    return search->memory_bytes * (1 + (offload < 1 ? rounding : ERG_MEMORY_ERROR));
}

/* What a node has too little of for what each of its GPUs offloads. */
static double host_excess(const struct erg_layout_search *search, double host_bytes)
{
    double needed = host_bytes * (double)search->time.machine->node_gpus;
    return search->host_bytes > 0 ? needed - search->host_bytes : 0;
}

bool erg_layout_stage_fits(const struct erg_layout_search *search,
                           const struct erg_layout_pieces *pieces, const struct erg_layout *layout,
                           long stage, double offload)
{
    double host, peak = stage_peak(search, pieces, layout, stage, offload, &host);
    return peak <= budget_of(search, offload) && host_excess(search, host) <= 0;
}

/*
 * The peak is the largest of a few functions that are linear in the ratio: convex, so Newton's
 * method from below ends after as many steps as they have kinks.
 */
bool erg_layout_stage_offload(const struct erg_layout_search *search,
                              const struct erg_layout_pieces *pieces,
                              const struct erg_layout *layout, long stage, double *offload,
                              double *excess)
{
    const double step = 1e-4, budget = search->memory_bytes;
    double host, ratio = *offload;
    double peak = stage_peak(search, pieces, layout, stage, ratio, &host);
    if (peak <= budget)
        return true;
    *excess = peak - budget;
    if (!search->offload || layout->pipeline < 3)
        return false;
    double least = stage_peak(search, pieces, layout, stage, 1, &host);
    *excess = fmin(least, peak) - budget;
    if (least > budget) {
        *offload = 1;
        return least <= budget_of(search, 1);
    }
    while (peak > budget * (1 + rounding) && ratio + step < 1) {
        double slope =
            (stage_peak(search, pieces, layout, stage, ratio + step, &host) - peak) / step;
        if (!(slope < 0))
            break;
        ratio = fmin(1, ratio + fmax((budget - peak) / slope, 1e-9));
        peak = stage_peak(search, pieces, layout, stage, ratio, &host);
    }
    *offload = peak <= budget * (1 + rounding) ? ratio : 1;
    return true;
}

/*
 * The next stage after `stage` whose memory must be looked at, `pipeline` after the last. With
 * equal chunks the first has most microbatches in flight and the last the head.
 */
static long next_stage(const struct erg_layout *layout, long stage)
{
    long last = layout->pipeline - 1;
    return layout->chunk_layers || stage >= last ? stage + 1 : last;
}

enum erg_layout_verdict erg_layout_settle_memory(struct erg_layout_candidate *candidate,
                                                 const struct erg_layout_search *search,
                                                 const struct erg_layout_pieces *pieces,
                                                 double *excess)
{
    struct erg_layout *layout = &candidate->layout;
    double offload = layout->offload, host, most_host = 0;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(layout, stage))
        if (!erg_layout_stage_offload(search, pieces, layout, stage, &offload, excess))
            return ERG_LAYOUT_TOO_LARGE;
    layout->offload = offload;
    candidate->peak_bytes = 0;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(layout, stage)) {
        double peak = stage_peak(search, pieces, layout, stage, offload, &host);
        candidate->peak_bytes = fmax(candidate->peak_bytes, peak);
        most_host = fmax(most_host, host);
    }
    /* What a stage that needs more offloading receives may be too much for one that needs none. */
    *excess = candidate->peak_bytes - search->memory_bytes;
    if (candidate->peak_bytes > budget_of(search, offload))
        return ERG_LAYOUT_TOO_LARGE;
    *excess = host_excess(search, most_host);
    return *excess > 0 ? ERG_LAYOUT_HOST_TOO_SMALL : ERG_LAYOUT_FITS;
}
