/* Recomputation and offloading of each stage, each with its own best setting. */
#include "base/memory.h"
#include "layout/search/layout_search_internal.h"

#include <math.h>
#include <stdlib.h>

void erg_layout_stages_init(struct erg_layout_stages *stages, long layers)
{
    size_t count = (size_t)layers;
    *stages = (struct erg_layout_stages){
        .recompute = erg_xcalloc(count, sizeof *stages->recompute),
        .least = erg_xcalloc(count, sizeof *stages->least),
        .offload = erg_xcalloc(count, sizeof *stages->offload),
        .options = erg_xcalloc(count * ERG_RECOMPUTES, sizeof *stages->options),
    };
}

void erg_layout_stages_release(struct erg_layout_stages *stages)
{
    free(stages->recompute);
    free(stages->least);
    free(stages->offload);
    free(stages->options);
}

/* One setting of a stage, with the least offloading that fits. */
static enum erg_layout_verdict fill_option(struct erg_layout_stage_option *option,
                                           const struct erg_layout *layout,
                                           const struct erg_layout_places *places, long stage,
                                           double *excess)
{
    size_t place = erg_layout_place_of(places, stage);
    const struct erg_layout_on *on = &places->on[place];
    const struct erg_time_place *time = &places->time[place];
    struct erg_layout own = *layout;
    struct erg_memory_lines lines;
    struct erg_time_stage cost;
    *option = (struct erg_layout_stage_option){.time_s = INFINITY, .wait_s = INFINITY};
    own.offload = 0;
    erg_layout_stage_lines(&lines, on, &own, stage);
    if (!erg_layout_stage_offload(on, &lines, &own.offload, excess))
        return ERG_LAYOUT_TOO_LARGE;
    if (!erg_layout_stage_fits(on, &lines, own.offload))
        return ERG_LAYOUT_HOST_TOO_SMALL;
    erg_time_stage_init(&cost, time, &own, stage);
    option->offload = own.offload;
    option->peak_bytes = erg_layout_stage_peak(&lines, own.offload);
    option->moved_s = own.offload * time->parts->copy_s[own.recompute];
    option->time_s =
        (double)erg_layout_stage_layers(layout, on->search->model->layers, stage) * cost.layer_s +
        cost.fixed_s;
    option->wait_s = erg_time_stalls(time, &own, stage, own.recompute, own.offload);
    return ERG_LAYOUT_FITS;
}

/* All settings of a stage; *missing: the shortage of the one nearest to fitting. */
static enum erg_layout_verdict fill_stage(struct erg_layout_stage_option *options,
                                          const struct erg_layout *layout,
                                          const struct erg_layout_places *places, long stage,
                                          unsigned recomputes, double *missing)
{
    enum erg_layout_verdict best = ERG_LAYOUT_TOO_LARGE;
    *missing = INFINITY;
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        struct erg_layout own = *layout;
        double excess = 0;
        own.recompute = (enum erg_recompute)recompute;
        options[recompute] = (struct erg_layout_stage_option){.time_s = INFINITY};
        if (!(recomputes & 1u << recompute))
            continue;
        enum erg_layout_verdict verdict =
            fill_option(&options[recompute], &own, places, stage, &excess);
        if (best != ERG_LAYOUT_FITS && verdict != ERG_LAYOUT_TOO_LARGE)
            best = verdict;
        *missing = fmin(*missing, excess);
    }
    return best;
}

/*
 * The fastest setting of a stage whose wait is at most `wait_s`; among equal ones the one that
 * copies least.
 */
static int best_way(const struct erg_layout_stages *stages, long stage, double wait_s)
{
    const struct erg_layout_stage_option *options = &stages->options[stage * ERG_RECOMPUTES];
    int best = -1;
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        const struct erg_layout_stage_option *own = &options[recompute];
        if (isinf(own->time_s) || own->wait_s > wait_s)
            continue;
        if (best < 0 || own->time_s < options[best].time_s ||
            (own->time_s == options[best].time_s && own->moved_s < options[best].moved_s))
            best = recompute;
    }
    return best;
}

/*
 * The part of the iteration that depends on the settings, with a limit on waits; *longest_s is the
 * longest wait. INFINITY: a stage has no setting within the limit.
 */
static double try_wait(const struct erg_layout_stages *stages, const struct erg_layout *layout,
                       double wait_s, double *longest_s)
{
    double share = 1 / (double)layout->virtual_stages, most = 0, sum = 0;
    *longest_s = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        int way = best_way(stages, stage, wait_s);
        if (way < 0)
            return INFINITY;
        const struct erg_layout_stage_option *own = &stages->options[stage * ERG_RECOMPUTES + way];
        most = fmax(most, own->time_s);
        sum += own->time_s;
        *longest_s = fmax(*longest_s, own->wait_s);
    }
    return ((double)layout->microbatches - share) * most + share * sum + *longest_s;
}

/* Stages are independent except for the longest wait, so this tries ever shorter limits on it. */
static double best_wait(const struct erg_layout_stages *stages, const struct erg_layout *layout)
{
    double wait_s = INFINITY, longest_s, best = INFINITY, best_s = INFINITY;
    for (;;) {
        double seconds = try_wait(stages, layout, wait_s, &longest_s);
        if (seconds < best) {
            best = seconds;
            best_s = longest_s;
        }
        if (isinf(seconds) || longest_s <= 0)
            return best_s;
        wait_s = nextafter(longest_s, 0);
    }
}

enum erg_layout_verdict erg_layout_settle_stages(struct erg_layout_candidate *candidate,
                                                 struct erg_layout_stages *stages,
                                                 const struct erg_layout_places *places,
                                                 unsigned recomputes, double *excess)
{
    struct erg_layout *layout = &candidate->layout;
    layout->stage_recompute = NULL;
    layout->stage_offload = NULL;
    enum erg_layout_verdict worst = ERG_LAYOUT_FITS;
    *excess = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        double missing;
        enum erg_layout_verdict verdict = fill_stage(&stages->options[stage * ERG_RECOMPUTES],
                                                     layout, places, stage, recomputes, &missing);
        if (verdict != ERG_LAYOUT_FITS && worst != ERG_LAYOUT_TOO_LARGE)
            worst = verdict;
        if (verdict == ERG_LAYOUT_TOO_LARGE)
            *excess = fmax(*excess, missing);
    }
    if (worst != ERG_LAYOUT_FITS)
        return worst;
    double wait_s = best_wait(stages, layout);
    candidate->peak_bytes = 0;
    layout->offload = 0;
    layout->recompute = ERG_RECOMPUTE_NONE;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        int way = best_way(stages, stage, wait_s);
        const struct erg_layout_stage_option *own = &stages->options[stage * ERG_RECOMPUTES + way];
        stages->recompute[stage] = (enum erg_recompute)way;
        stages->offload[stage] = own->offload;
        layout->offload = fmax(layout->offload, own->offload);
        layout->recompute = stage == 0 ? (enum erg_recompute)way : layout->recompute;
        candidate->peak_bytes = fmax(candidate->peak_bytes, own->peak_bytes);
    }
    layout->stage_recompute = stages->recompute;
    layout->stage_offload = stages->offload;
    erg_layout_settle_time(candidate, places);
    return ERG_LAYOUT_FITS;
}

enum erg_layout_verdict erg_layout_settle(struct erg_layout_candidate *candidate,
                                          struct erg_layout_stages *stages,
                                          const struct erg_layout_places *places, double *excess)
{
    const struct erg_layout_search *search = places->on[0].search;
    return search->per_stage
               ? erg_layout_settle_stages(candidate, stages, places, search->recomputes, excess)
               : erg_layout_settle_memory(candidate, places, excess);
}

/* On one kind of GPUs. */
static enum erg_recompute least_recompute(const struct erg_layout_on *on)
{
    const double *recompute_s = on->pieces->parts.recompute_s;
    const unsigned recomputes = on->search->recomputes;
    enum erg_recompute least = ERG_RECOMPUTE_FULL;
    for (int recompute = ERG_RECOMPUTE_FULL; recompute >= ERG_RECOMPUTE_NONE; recompute--)
        if (recomputes & 1u << recompute &&
            (!(recomputes & 1u << least) || recompute_s[recompute] <= recompute_s[least]))
            least = (enum erg_recompute)recompute;
    return least;
}

void erg_layout_take_least_recomputes(struct erg_layout *layout, struct erg_layout_stages *stages,
                                      const struct erg_layout_places *places)
{
    for (size_t i = 0; i < places->count; i++)
        for (long stage = places->time[i].first; stage < places->time[i].end; stage++)
            stages->least[stage] = least_recompute(&places->on[i]);
    layout->recompute = stages->least[0];
    layout->stage_recompute = stages->least;
}
