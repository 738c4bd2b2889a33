/* What a split takes at the least: of what refine.c searches. */
#include "layout/search/refine_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* The stage that is the longest at the point, of every microbatch or at the end; adds the closed
 * form, or the end, to a cut. */
static double add_stages(struct erg_refining *at, double *slopes, double *copies, double offload,
                         bool once, double *constant)
{
    const struct erg_layout *layout = &at->layout;
    const double share = 1 / (double)layout->virtual_stages;
    double longest_s = -INFINITY, sum_s = 0;
    long longest = 0;
    struct erg_time_stage cost, slowest = {0};
    struct erg_layout own = *layout;
    own.offload = offload;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        double layers = 0;
        for (long j = stage; j < at->chunks; j += layout->pipeline)
            layers += at->point[j];
        erg_time_stage_init(&cost, &at->places->time[erg_layout_place_of(at->places, stage)], &own,
                            stage);
        double stage_s = once ? layers * cost.layer_once_s + cost.fixed_once_s
                              : layers * cost.layer_s + cost.fixed_s;
        sum_s += stage_s;
        if (stage_s > longest_s) {
            longest_s = stage_s;
            longest = stage;
            slowest = cost;
        }
        if (once)
            continue;
        *constant += share * cost.fixed_s;
        for (long j = stage; slopes && j < at->chunks; j += layout->pipeline) {
            double copy_s = 2 * at->costs[j].copy_s;
            slopes[j] += share * (cost.layer_s - offload * copy_s);
            copies[j] += share * copy_s;
        }
    }
    const double pace = once ? 1 : (double)layout->microbatches - share;
    *constant += pace * (once ? slowest.fixed_once_s : slowest.fixed_s);
    for (long j = longest; slopes && j < at->chunks; j += layout->pipeline) {
        double copy_s = once ? 0 : 2 * at->costs[j].copy_s;
        slopes[j] += pace * (once ? slowest.layer_once_s : slowest.layer_s - offload * copy_s);
        copies[j] += pace * copy_s;
    }
    return once ? longest_s : pace * longest_s + share * sum_s;
}

/* Layers of a chunk with a turn of so many seconds, at least one. */
static double layers_in(const struct erg_time_chunk *cost, double turn_s, double offload)
{
    const double layer_s = cost->layer_s[0] + cost->layer_s[1] + 2 * offload * cost->copy_s;
    return fmax(1, (turn_s - cost->fixed_s[0] - cost->fixed_s[1]) / layer_s);
}

void erg_refining_level(struct erg_refining *at, double offload)
{
    const double layers = (double)at->layers;
    double low_s = 0, high_s = 0;
    for (long j = 0; j < at->chunks; j++) {
        const struct erg_time_chunk *cost = &at->costs[j];
        high_s =
            fmax(high_s, cost->fixed_s[0] + cost->fixed_s[1] +
                             layers * (cost->layer_s[0] + cost->layer_s[1] + 2 * cost->copy_s));
    }
    for (int i = 0; i < 60; i++) {
        double turn_s = 0.5 * (low_s + high_s), sum = 0;
        for (long j = 0; j < at->chunks; j++) {
            at->point[j] = layers_in(&at->costs[j], turn_s, offload);
            sum += at->point[j];
        }
        *(sum > layers ? &high_s : &low_s) = turn_s;
    }
}

double erg_refining_add_cut(struct erg_refining *at, double offload)
{
    size_t width = (size_t)at->chunks;
    double constant = 0, none = 0;
    for (long j = 0; j < at->chunks; j++)
        for (int way = 0; way < 2; way++)
            at->times_s[2 * j + way] =
                at->point[j] * (at->costs[j].layer_s[way] + offload * at->costs[j].copy_s) +
                at->costs[j].fixed_s[way];
    double followed_s = erg_time_followed_times(at->splitter->follower, at->times_s, &at->layout);
    double closed_s = add_stages(at, NULL, NULL, offload, false, &none);
    if (at->cuts.count * width == at->copies_room) {
        at->copies_room = at->copies_room ? 2 * at->copies_room : 16 * width;
        at->copies = erg_xrealloc(at->copies, at->copies_room, sizeof *at->copies);
    }
    double *copies = &at->copies[at->cuts.count * width], *slopes = erg_cuts_add(&at->cuts, 0);
    memset(copies, 0, width * sizeof *copies);
    memset(slopes, 0, width * sizeof *slopes);
    if (closed_s > followed_s) {
        add_stages(at, slopes, copies, offload, false, &constant);
    } else {
        erg_time_followed_path(at->splitter->follower, at->path);
        for (size_t j = 0; j < width; j++)
            for (int way = 0; way < 2; way++) {
                double passes = (double)at->path[2 * j + (size_t)way];
                slopes[j] += passes * at->costs[j].layer_s[way];
                copies[j] += passes * at->costs[j].copy_s;
                constant += passes * at->costs[j].fixed_s[way];
            }
    }
    double end_s = add_stages(at, slopes, copies, offload, true, &constant);
    at->cuts.constants[at->cuts.count - 1] = constant;
    return fmax(closed_s, followed_s) + end_s;
}

struct erg_cuts *erg_refining_cuts_at(struct erg_refining *at, double offload)
{
    struct erg_cuts *own = &at->offloading;
    size_t width = own->width;
    if (offload == 0)
        return &at->cuts;
    if (offload != at->ratio)
        erg_cuts_clear(own);
    at->ratio = offload;
    while (own->count < at->cuts.count) {
        size_t first = own->count * width;
        double *slopes = erg_cuts_add(own, at->cuts.constants[own->count]);
        for (size_t j = 0; j < width; j++)
            slopes[j] = at->cuts.slopes[first + j] + offload * at->copies[first + j];
    }
    return own;
}

double erg_refining_last_cut_s(const struct erg_refining *at, double offload)
{
    size_t last = at->cuts.count - 1, first = last * at->cuts.width;
    double sum = at->cuts.constants[last];
    for (size_t j = 0; j < at->cuts.width; j++)
        sum += (at->cuts.slopes[first + j] + offload * at->copies[first + j]) * at->point[j];
    return sum;
}
