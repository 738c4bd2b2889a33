/* What a candidate needs of memory, and the least offloading with which it fits. */
#include "layout/search_internal.h"

#include <math.h>

/* A budget counts as kept where it is missed by a rounding error. */
static const double rounding = 1e-9;

void erg_layout_stage_lines(struct erg_memory_lines *lines, const struct erg_layout_on *on,
                            const struct erg_layout *layout, long stage)
{
    const struct erg_memory_request request = {.model = on->search->time.model, .layout = layout};
    erg_memory_lines_init(lines, &request, &on->pieces->sizes, stage);
}

static double at(const struct erg_memory_lines *lines, int moment, double offload)
{
    return lines->least[moment] + offload * lines->slope[moment];
}

double erg_layout_stage_peak(const struct erg_memory_lines *lines, double offload)
{
    double peak = at(lines, 0, offload);
    for (int i = 1; i < ERG_MEMORY_MOMENTS; i++)
        peak = at(lines, i, offload) > peak ? at(lines, i, offload) : peak;
    return peak;
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

bool erg_layout_stage_fits(const struct erg_layout_on *on, const struct erg_memory_lines *lines,
                           double offload)
{
    return erg_layout_stage_peak(lines, offload) <= budget_of(on->search, offload) &&
           host_excess(on->search, offload * lines->host_bytes) <= 0;
}

/* The smallest ratio from `offload` on with which no line that falls is above the budget; where
 * one that rises is above it there, there is none. INFINITY: none. */
static double least_ratio(const struct erg_memory_lines *lines, double offload, double budget)
{
    double ratio = offload;
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++)
        if (at(lines, i, offload) > budget && lines->slope[i] < 0)
            ratio = fmax(ratio, (budget - lines->least[i]) / lines->slope[i]);
    return ratio <= 1 && erg_layout_stage_peak(lines, ratio) <= budget * (1 + rounding) ? ratio
                                                                                        : INFINITY;
}

bool erg_layout_stage_offload(const struct erg_layout_on *on, const struct erg_memory_lines *lines,
                              double *offload, double *excess)
{
    double budget = on->search->memory_bytes, peak = erg_layout_stage_peak(lines, *offload);
    if (peak <= budget)
        return true;
    *excess = peak - budget;
    if (!on->search->offload || lines->host_bytes == 0)
        return false;
    double ratio = least_ratio(lines, *offload, budget), least = erg_layout_stage_peak(lines, 1);
    *excess = fmin(least, peak) - budget;
    *offload = fmin(ratio, 1);
    return ratio <= 1 || least <= budget_of(on->search, 1);
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

/* The verdict at the layout's ratio; raises *offload to the one that its stages need. */
static enum erg_layout_verdict try_offload(struct erg_layout_candidate *candidate,
                                           const struct erg_layout_places *places, double *offload,
                                           double *excess)
{
    const struct erg_layout *layout = &candidate->layout;
    double host = 0;
    candidate->peak_bytes = 0;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(places, layout, stage)) {
        const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
        struct erg_memory_lines lines;
        erg_layout_stage_lines(&lines, on, layout, stage);
        if (!erg_layout_stage_offload(on, &lines, offload, excess))
            return ERG_LAYOUT_TOO_LARGE;
        candidate->peak_bytes =
            fmax(candidate->peak_bytes, erg_layout_stage_peak(&lines, layout->offload));
        host = fmax(host, host_excess(on->search, layout->offload * lines.host_bytes));
    }
    if (host <= 0)
        return ERG_LAYOUT_FITS;
    *excess = host;
    return ERG_LAYOUT_HOST_TOO_SMALL;
}

/* The stages share a ratio: what one needs may be more than another can receive. */
enum erg_layout_verdict erg_layout_settle_memory(struct erg_layout_candidate *candidate,
                                                 const struct erg_layout_places *places,
                                                 double *excess)
{
    double *own = &candidate->layout.offload, offload = *own;
    enum erg_layout_verdict verdict = try_offload(candidate, places, &offload, excess);
    while (verdict != ERG_LAYOUT_TOO_LARGE && offload > *own) {
        *own = offload;
        verdict = try_offload(candidate, places, &offload, excess);
    }
    return verdict;
}

/* ---- what is missing ---- */

/* What the stage that is furthest above its own budget is above it, with one ratio for all. */
static double excess_at(const struct erg_layout *layout, const struct erg_layout_places *places,
                        double offload)
{
    double excess = -INFINITY;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(places, layout, stage)) {
        const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
        struct erg_memory_lines lines;
        erg_layout_stage_lines(&lines, on, layout, stage);
        double slack = offload < 1 ? 1 : 1 + ERG_MEMORY_ERROR;
        excess =
            fmax(excess, erg_layout_stage_peak(&lines, offload) / slack - on->search->memory_bytes);
    }
    return excess;
}

double erg_layout_memory_excess(const struct erg_layout *layout,
                                const struct erg_layout_places *places)
{
    enum { STEPS = 50 };
    double low = 0, high = 1, none = excess_at(layout, places, 0);
    for (size_t i = 0; i < places->count; i++)
        if (!places->on[i].search->offload || layout->pipeline < 3)
            return none;
    /* The largest of straight lines: it falls, then rises. */
    for (int step = 0; step < STEPS; step++) {
        double third = (high - low) / 3;
        if (excess_at(layout, places, low + third) < excess_at(layout, places, high - third))
            high -= third;
        else
            low += third;
    }
    return fmin(fmin(none, excess_at(layout, places, (low + high) / 2)),
                excess_at(layout, places, 1));
}
