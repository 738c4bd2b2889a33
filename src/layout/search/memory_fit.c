/* The memory that a candidate needs, and the least offloading with which it fits. */
#include "base/memory.h"
#include "layout/search/layout_search_internal.h"

#include <math.h>
#include <stdlib.h>

/* A budget counts as met if it is missed by a rounding error. */
static const double rounding = 1e-9;

void erg_layout_stage_lines(struct erg_memory_lines *lines, const struct erg_layout_on *on,
                            const struct erg_layout *layout, long stage)
{
    const struct erg_memory_request request =
        erg_memory_request_of(on->search->model, layout, on->kind->engine);
    erg_memory_lines_init(lines, &request, &on->pieces->sizes, stage);
}

static double at(const struct erg_memory_lines *lines, int moment, double offload)
{
    return lines->least[moment] + offload * lines->slope[moment];
}

/* As many whole tensors as the ratio allows. */
static const struct erg_memory_ratio *ratio_at(const struct erg_memory_lines *lines, double offload)
{
    size_t i = 0;
    while (i + 1 < lines->ratio_count && lines->ratios[i + 1].offload <= offload)
        i++;
    return &lines->ratios[i];
}

bool erg_layout_can_offload(const struct erg_layout_on *on, const struct erg_layout *layout)
{
    const struct erg_memory_request request =
        erg_memory_request_of(on->search->model, layout, on->kind->engine);
    return on->offload && erg_memory_can_offload(&request);
}

double erg_layout_stage_peak(const struct erg_memory_lines *lines, double offload)
{
    if (lines->ratio_count)
        return ratio_at(lines, offload)->bytes;
    double peak = at(lines, 0, offload);
    for (int i = 1; i < ERG_MEMORY_MOMENTS; i++)
        peak = at(lines, i, offload) > peak ? at(lines, i, offload) : peak;
    return peak;
}

/* The share by which a layout with this ratio may exceed the budget. */
static double slack_at(const struct erg_layout_search *search, double offload)
{
    return offload < 1 ? rounding : fmax(rounding, search->memory_slack);
}

static double budget_of(const struct erg_layout_on *on, double offload)
{
    return on->kind->memory_bytes * (1 + slack_at(on->search, offload));
}

/* The host memory that a node lacks for the offloading of its GPUs. */
static double host_excess(const struct erg_layout_kind *kind, double host_bytes)
{
    double needed = host_bytes * (double)kind->machine.node_gpus;
    return kind->host_bytes > 0 ? needed - kind->host_bytes : 0;
}

static double host_bytes_at(const struct erg_memory_lines *lines, double offload)
{
    return lines->ratio_count ? ratio_at(lines, offload)->host_bytes : offload * lines->host_bytes;
}

bool erg_layout_stage_fits(const struct erg_layout_on *on, const struct erg_memory_lines *lines,
                           double offload)
{
    return erg_layout_stage_peak(lines, offload) <= budget_of(on, offload) &&
           host_excess(on->kind, host_bytes_at(lines, offload)) <= 0;
}

/*
 * The smallest ratio from `offload` on with which no falling line is above the budget. If a rising
 * one is above it there, no ratio fits. INFINITY: none.
 */
static double least_ratio(const struct erg_memory_lines *lines, double offload, double budget)
{
    double ratio = offload;
    for (size_t i = 0; i < lines->ratio_count; i++)
        if (lines->ratios[i].offload >= offload && lines->ratios[i].bytes <= budget)
            return lines->ratios[i].offload;
    for (int i = 0; i < ERG_MEMORY_MOMENTS && !lines->ratio_count; i++)
        if (at(lines, i, offload) > budget && lines->slope[i] < 0)
            ratio = fmax(ratio, (budget - lines->least[i]) / lines->slope[i]);
    return ratio <= 1 && erg_layout_stage_peak(lines, ratio) <= budget * (1 + rounding) ? ratio
                                                                                        : INFINITY;
}

bool erg_layout_stage_offload(const struct erg_layout_on *on, const struct erg_memory_lines *lines,
                              double *offload, double *excess)
{
    double budget = on->kind->memory_bytes, peak = erg_layout_stage_peak(lines, *offload);
    if (peak <= budget)
        return true;
    *excess = peak - budget;
    if (!on->offload || lines->host_bytes == 0)
        return false;
    double ratio = least_ratio(lines, *offload, budget), least = erg_layout_stage_peak(lines, 1);
    *excess = fmin(least, peak) - budget;
    *offload = fmin(ratio, 1);
    return ratio <= 1 || least <= budget_of(on, 1);
}

/*
 * The next stage after `stage` whose memory must be checked; `pipeline` after the last. In a place
 * with equal chunks the first has the most microbatches in flight; the first of the pipeline has
 * more weights but, without virtual stages, fewer messages; the last stage has the head.
 */
static long next_stage(const struct erg_layout_places *places, const struct erg_layout *layout,
                       long stage)
{
    long last = layout->pipeline - 1, end = places->time[erg_layout_place_of(places, stage)].end;
    bool more_messages = stage == 0 && layout->virtual_stages == 1;
    if (layout->chunk_layers || stage >= last || more_messages || erg_layout_is_short(layout))
        return stage + 1;
    return end < last ? end : last;
}

/* The verdict at the layout's ratio; raises *offload to the ratio that its stages need. */
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
        host = fmax(host, host_excess(on->kind, host_bytes_at(&lines, layout->offload)));
    }
    if (host <= 0)
        return ERG_LAYOUT_FITS;
    *excess = host;
    return ERG_LAYOUT_HOST_TOO_SMALL;
}

/*
 * The stages share a ratio: the one that a stage needs may be too high for another's receive
 * buffers.
 */
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

/* ---- can any split fit ---- */

bool erg_layout_stage_may_hold(const struct erg_layout_on *on, const struct erg_layout *layout,
                               long stage, double layers, double offload)
{
    const struct erg_memory_request request =
        erg_memory_request_of(on->search->model, layout, on->kind->engine);
    struct erg_memory_floor needs;
    erg_memory_floor_init(&needs, &request, &on->pieces->sizes, stage);
    const double moved = erg_memory_can_offload(&request) ? offload * needs.movable_bytes : 0;
    const double flying = needs.flying * layers + needs.beyond;
    return needs.fixed_bytes + needs.layer_bytes * layers + flying * (needs.kept_bytes - moved) <=
           budget_of(on, offload) * (1 + rounding);
}

/* The most layers of a stage with the given memory of its GPUs and `host` bytes for the offloading
 * of each. */
static double most_layers(const struct erg_layout_on *on, const struct erg_layout *layout,
                          long stage, double budget, double host)
{
    const struct erg_memory_request request =
        erg_memory_request_of(on->search->model, layout, on->kind->engine);
    const bool offload = on->offload && erg_memory_can_offload(&request);
    struct erg_memory_floor needs;
    erg_memory_floor_init(&needs, &request, &on->pieces->sizes, stage);
    double left = budget * (1 + slack_at(on->search, offload ? 1 : 0)) - needs.fixed_bytes;
    double kept = needs.kept_bytes, least = kept - (offload ? needs.movable_bytes : 0);
    double layers = (left - needs.beyond * least) / (needs.layer_bytes + needs.flying * least);
    if (offload)
        layers = fmin(layers, (left + host - needs.beyond * kept) /
                                  (needs.layer_bytes + needs.flying * kept));
    return floor(layers * (1 + rounding));
}

/* Whether all layers may fit into the stages. `host`: checks host memory, too. */
static bool may_hold_all(const struct erg_layout_places *places, const struct erg_layout *layout,
                         unsigned recomputes, double more_bytes, bool host)
{
    double layers = (double)places->on[0].search->model->layers, sum = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
        const struct erg_layout_kind *kind = on->kind;
        double own_host = host && kind->host_bytes > 0
                              ? kind->host_bytes / (double)kind->machine.node_gpus
                              : INFINITY;
        double most = 0;
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
            struct erg_layout own = *layout;
            own.recompute = (enum erg_recompute)recompute;
            if (recomputes & 1u << recompute)
                most = fmax(
                    most, most_layers(on, &own, stage, kind->memory_bytes + more_bytes, own_host));
        }
        if (most < (double)layout->virtual_stages)
            return false;
        sum += most;
    }
    return sum >= layers;
}

bool erg_layout_may_fit(const struct erg_layout_places *places, const struct erg_layout *layout,
                        unsigned recomputes)
{
    return may_hold_all(places, layout, recomputes, 0, true);
}

bool erg_layout_may_miss(const struct erg_layout_places *places, const struct erg_layout *layout,
                         double excess)
{
    return may_hold_all(places, layout, 1u << layout->recompute, excess, false);
}

/* ---- the shortage ---- */

/* Stages whose memory must be checked. */
struct looked_at {
    struct erg_memory_lines *lines; /* [count] */
    double *budgets;                /* [count] */
    size_t count;
    double slack; /* relative excess allowed with everything offloaded */
};

/* The largest excess of a stage over its budget, with one ratio for all. */
static double excess_at(const struct looked_at *stages, double offload)
{
    double excess = -INFINITY, slack = offload < 1 ? 1 : 1 + stages->slack;
    for (size_t i = 0; i < stages->count; i++)
        excess = fmax(excess, erg_layout_stage_peak(&stages->lines[i], offload) / slack -
                                  stages->budgets[i]);
    return excess;
}

/* The least over all ratios: the maximum of lines falls, then rises. */
static double least_excess(const struct looked_at *stages)
{
    enum { STEPS = 50 };
    double low = 0, high = 1;
    for (int step = 0; step < STEPS; step++) {
        double third = (high - low) / 3;
        if (excess_at(stages, low + third) < excess_at(stages, high - third))
            high -= third;
        else
            low += third;
    }
    return fmin(excess_at(stages, (low + high) / 2), excess_at(stages, 1));
}

double erg_layout_memory_excess(const struct erg_layout *layout,
                                const struct erg_layout_places *places)
{
    size_t most = (size_t)layout->pipeline;
    struct looked_at stages = {.lines = erg_xcalloc(most, sizeof *stages.lines),
                               .budgets = erg_xcalloc(most, sizeof *stages.budgets),
                               .slack = places->on[0].search->memory_slack};
    bool offload = true;
    for (size_t i = 0; i < places->count; i++)
        offload &= erg_layout_can_offload(&places->on[i], layout);
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(places, layout, stage)) {
        const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
        erg_layout_stage_lines(&stages.lines[stages.count], on, layout, stage);
        stages.budgets[stages.count++] = on->kind->memory_bytes;
    }
    double excess = excess_at(&stages, 0);
    if (offload)
        excess = fmin(excess, least_excess(&stages));
    free(stages.lines);
    free(stages.budgets);
    return excess;
}
