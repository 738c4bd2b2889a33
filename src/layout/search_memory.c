/* What a candidate needs of memory, and the least offloading with which it fits. */
#include "layout/search_internal.h"

#include <math.h>

/* A budget counts as kept where it is missed by a rounding error. */
static const double rounding = 1e-9;

double erg_layout_stage_peak(const struct erg_layout_on *on, const struct erg_layout *layout,
                             long stage, double offload, double *host_bytes)
{
    struct erg_layout own = *layout;
    own.offload = offload;
    const struct erg_memory_request request = {
        .model = on->search->time.model, .layout = &own, .accounting = ERG_MEMORY_ARENA};
    struct erg_memory_stage memory;
    erg_memory_closed(&memory, &request, &on->pieces->sizes, stage);
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

bool erg_layout_stage_fits(const struct erg_layout_on *on, const struct erg_layout *layout,
                           long stage, double offload)
{
    double host, peak = erg_layout_stage_peak(on, layout, stage, offload, &host);
    return peak <= budget_of(on->search, offload) && host_excess(on->search, host) <= 0;
}

/*
 * The peak is the largest of a few functions that are linear in the ratio: convex, so Newton's
 * method from below ends after as many steps as they have kinks.
 */
bool erg_layout_stage_offload(const struct erg_layout_on *on, const struct erg_layout *layout,
                              long stage, double *offload, double *excess)
{
    const struct erg_layout_search *search = on->search;
    const double step = 1e-4, budget = search->memory_bytes;
    double host, ratio = *offload;
    double peak = erg_layout_stage_peak(on, layout, stage, ratio, &host);
    if (peak <= budget)
        return true;
    *excess = peak - budget;
    if (!search->offload || layout->pipeline < 3)
        return false;
    double least = erg_layout_stage_peak(on, layout, stage, 1, &host);
    *excess = fmin(least, peak) - budget;
    if (least > budget) {
        *offload = 1;
        return least <= budget_of(search, 1);
    }
    while (peak > budget * (1 + rounding) && ratio + step < 1) {
        double slope =
            (erg_layout_stage_peak(on, layout, stage, ratio + step, &host) - peak) / step;
        if (!(slope < 0))
            break;
        ratio = fmin(1, ratio + fmax((budget - peak) / slope, 1e-9));
        peak = erg_layout_stage_peak(on, layout, stage, ratio, &host);
    }
    *offload = peak <= budget * (1 + rounding) ? ratio : 1;
    return true;
}

/*
 * The next stage after `stage` whose memory must be looked at, `pipeline` after the last. In a
 * place with equal chunks the first has most microbatches in flight; the last stage has the head.
 */
static long next_stage(const struct erg_layout_places *places, const struct erg_layout *layout,
                       long stage)
{
    long last = layout->pipeline - 1, end = places->time[erg_layout_place_of(places, stage)].end;
    if (layout->chunk_layers || stage >= last)
        return stage + 1;
    return end < last ? end : last;
}

enum erg_layout_verdict erg_layout_settle_memory(struct erg_layout_candidate *candidate,
                                                 const struct erg_layout_places *places,
                                                 double *excess)
{
    struct erg_layout *layout = &candidate->layout;
    double offload = layout->offload, host;
    bool host_fits = true;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(places, layout, stage))
        if (!erg_layout_stage_offload(&places->on[erg_layout_place_of(places, stage)], layout,
                                      stage, &offload, excess))
            return ERG_LAYOUT_TOO_LARGE;
    layout->offload = offload;
    candidate->peak_bytes = 0;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(places, layout, stage)) {
        const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
        double peak = erg_layout_stage_peak(on, layout, stage, offload, &host);
        candidate->peak_bytes = fmax(candidate->peak_bytes, peak);
        if (peak > budget_of(on->search, offload)) {
            /* What another stage needs to offload is more than this one can receive. */
            *excess = peak - on->search->memory_bytes;
            return ERG_LAYOUT_TOO_LARGE;
        }
        if (host_excess(on->search, host) > 0) {
            *excess = host_fits ? host_excess(on->search, host)
                                : fmax(*excess, host_excess(on->search, host));
            host_fits = false;
        }
    }
    return host_fits ? ERG_LAYOUT_FITS : ERG_LAYOUT_HOST_TOO_SMALL;
}
