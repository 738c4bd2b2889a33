/*
 * Splits for pipelines with virtual stages, including the waits of stages for each other.
 *
 * Such a pipeline runs in rounds: all stages run one chunk, and a stage that ends early waits. So
 * the longest chunk of every round matters more than the time of each stage for all its chunks,
 * whose maximum stage_split.c minimises. Here each layer is assigned to the chunk with which the
 * iteration grows the least by
 *
 *   (m - 1 / v) x the sum over rounds of the longest turn + (1 / v) x the sum over stages,
 *
 * and the split with the faster simulated schedule wins. The layouts that a search keeps are
 * improved further: layers move from one chunk to another, or in several consecutive stages from
 * the same chunk to another, while the iteration gets shorter. For small models all splits are
 * tried instead. The least time by the closed form limits how much faster another split may be.
 */
#include "layout/search/layout_search_internal.h"

#include <math.h>

/* The relative difference up to which two iterations count as equal. */
static const double tie = 1e-9;

/* The time of a stage's chunk without layers; the last stage has the head in its last chunk. */
static double turn_s(const struct erg_time_stage *cost, const struct erg_layout *layout, long stage,
                     long chunk)
{
    bool head = stage + 1 == layout->pipeline && chunk + 1 == layout->virtual_stages;
    return cost->message_s / (double)layout->virtual_stages +
           (head ? cost->fixed_s - cost->message_s : 0);
}

static void stage_cost(struct erg_time_stage *cost, const struct erg_layout_places *places,
                       const struct erg_layout *layout, long stage)
{
    erg_time_stage_init(cost, &places->time[erg_layout_place_of(places, stage)], layout, stage);
}

/*
 * A split whose rounds are as even as layers allow, regardless of memory; stored in the splitter's
 * round_layers. Takes some microseconds.
 */
static void split_rounds(struct erg_layout_splitter *splitter,
                         const struct erg_layout_places *places, const struct erg_layout *layout)
{
    const long stages = layout->pipeline, chunks = layout->virtual_stages;
    const double share = 1 / (double)chunks;
    long *layers = splitter->round_layers, left = places->on[0].search->model->layers;
    double *turns_s = splitter->turns_s, *longest_s = splitter->longest_s;
    for (long stage = 0; stage < stages; stage++) {
        struct erg_time_stage cost;
        stage_cost(&cost, places, layout, stage);
        splitter->layer_s[stage] = cost.layer_s;
        for (long chunk = 0; chunk < chunks; chunk++) {
            long at = chunk * stages + stage;
            layers[at] = 1;
            turns_s[at] = cost.layer_s + turn_s(&cost, layout, stage, chunk);
            longest_s[chunk] = fmax(stage ? longest_s[chunk] : 0, turns_s[at]);
        }
    }
    for (left -= stages * chunks; left > 0; left--) {
        double least_s = INFINITY;
        long best = 0;
        for (long at = stages * chunks - 1; at >= 0; at--) { /* later ones need less memory */
            double layer_s = splitter->layer_s[at % stages];
            double longer_s = fmax(0, turns_s[at] + layer_s - longest_s[at / stages]);
            double own_s = ((double)layout->microbatches - share) * longer_s + share * layer_s;
            if (own_s < least_s) {
                least_s = own_s;
                best = at;
            }
        }
        layers[best]++;
        turns_s[best] += splitter->layer_s[best % stages];
        longest_s[best / stages] = fmax(longest_s[best / stages], turns_s[best]);
    }
}

/*
 * Evaluates the candidate with other chunks; if each stage has its own recomputation and
 * offloading, its lists belong to `stages`. False: it does not fit, or is not faster than `limit`.
 * Simulated passes are subtracted from *passes_left (NULL: no limit).
 */
static bool settle(struct erg_layout_candidate *other, const struct erg_layout_candidate *candidate,
                   const long *chunk_layers, double limit, struct erg_layout_splitter *splitter,
                   struct erg_layout_stages *stages, const struct erg_layout_places *places,
                   long *passes_left)
{
    const struct erg_layout_search *search = places->on[0].search;
    double excess;
    *other = *candidate;
    other->layout.chunk_layers = chunk_layers;
    if (search->offload)
        other->layout.offload = 0;
    if (erg_layout_settle(other, stages, places, &excess) != ERG_LAYOUT_FITS)
        return false;
    erg_layout_settle_time(other, places); /* which is not longer */
    if (other->time.total >= limit)
        return false;
    erg_layout_follow(other, splitter->follower, places);
    if (passes_left)
        *passes_left -=
            2 * other->layout.pipeline * other->layout.virtual_stages * other->layout.microbatches;
    return other->time.total < limit;
}

void erg_layout_follow_split(struct erg_layout_candidate *candidate,
                             struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                             const struct erg_layout_places *places)
{
    const struct erg_layout_candidate first = *candidate;
    struct erg_layout_candidate other;
    erg_layout_follow(candidate, splitter->follower, places);
    if (candidate->layout.virtual_stages == 1)
        return;
    split_rounds(splitter, places, &candidate->layout);
    if (settle(&other, candidate, splitter->round_layers, candidate->time.total, splitter, stages,
               places, NULL))
        *candidate = other;
    else if (places->on[0].search->per_stage) /* which had the lists */
        settle(candidate, &first, first.layout.chunk_layers, INFINITY, splitter, stages, places,
               NULL);
}

/* Replaces the candidate by a faster one, with its own lists. */
static void take(struct erg_layout_candidate *candidate, const struct erg_layout_candidate *other)
{
    struct erg_layout_candidate own = *candidate;
    *candidate = *other;
    erg_layout_own_lists(candidate);
    erg_layout_candidate_release(&own);
}

/*
 * Makes move `move` of 2 x count^2: a layer from one chunk to another or, in the second half, in
 * every stage of a range a layer from one of its chunks to another, so that the same chunk stays
 * equal in all. False: not a valid move.
 */
static bool move_some(long *chunk_layers, const struct erg_layout *layout, long move)
{
    const long stages = layout->pipeline, count = stages * layout->virtual_stages;
    const bool many = move >= count * count;
    const long from = move % (count * count) / count, to = move % count;
    const long first = many ? from % stages : 0, end = many ? to % stages : 0;
    bool any = false;
    if (from == to || (many && (from / stages == to / stages || first >= end)))
        return false;
    for (long stage = first; stage <= end; stage++) {
        const long own = many ? from / stages * stages + stage : from;
        if (chunk_layers[own] == 1)
            continue;
        chunk_layers[own]--;
        chunk_layers[many ? to / stages * stages + stage : to]++;
        any = true;
    }
    return any;
}

/*
 * Moves layers from chunk to chunk until no move makes the candidate faster, it reaches its bound,
 * or a tenth of a second has passed. Returns whether it became faster.
 */
static bool move_layers(struct erg_layout_candidate *candidate,
                        struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                        const struct erg_layout_places *places)
{
    enum { MOST_PASSES = 40000000 }; /* a tenth of a second */
    const struct erg_layout *layout = &candidate->layout;
    const long count = layout->pipeline * layout->virtual_stages, single = count * count;
    const long layers = places->on[0].search->model->layers;
    long *tried = splitter->round_layers, same = 0; /* same: moves since the last improvement */
    long passes_left = MOST_PASSES;
    bool any = false;
    for (long move = 0; move < 2 * single && passes_left > 0 &&
                        candidate->time.total * (1 - tie) > candidate->bound_s;
         move++) {
        struct erg_layout_candidate other;
        for (long i = 0; i < count; i++)
            tried[i] =
                erg_layout_chunk_layers(layout, layers, i % layout->pipeline, i / layout->pipeline);
        same++;
        if (move_some(tried, layout, move) &&
            settle(&other, candidate, tried, candidate->time.total * (1 - tie), splitter, stages,
                   places, &passes_left)) {
            take(candidate, &other);
            same = 0;
            any = true;
        }
        if ((same == 0 && move >= single) || (same < single && move + 1 == single))
            move = -1; /* single layers while one of them is faster */
    }
    return any;
}

/* ---- the split of a kept layout ---- */

/* Whether there are at most `most` splits into chunks. */
static bool are_few(long layers, long chunks, double most)
{
    double splits = 1; /* layers - 1 over chunks - 1 */
    for (long i = 1; i < chunks && splits <= most; i++)
        splits *= (double)(layers - i) / (double)i;
    return splits <= most;
}

/* Tries all splits that keep the layers of the first chunks. */
static bool try_all(struct erg_layout_candidate *candidate, long *chunk_layers, long chunk,
                    long left, struct erg_layout_splitter *splitter,
                    struct erg_layout_stages *stages, const struct erg_layout_places *places)
{
    const long others = candidate->layout.pipeline * candidate->layout.virtual_stages - 1 - chunk;
    struct erg_layout_candidate other;
    bool any = false;
    for (long own = others ? 1 : left; own <= left - others; own++) {
        chunk_layers[chunk] = own;
        if (others) {
            any |=
                try_all(candidate, chunk_layers, chunk + 1, left - own, splitter, stages, places);
        } else if (settle(&other, candidate, chunk_layers, candidate->time.total * (1 - tie),
                          splitter, stages, places, NULL)) {
            take(candidate, &other);
            any = true;
        }
    }
    return any;
}

/*
 * The least time of a split by the closed form: with whole layers and, if all stages offload one
 * ratio, only splits that fit, but without waits between stages.
 */
static double closed_s(const struct erg_layout_candidate *candidate,
                       struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                       const struct erg_layout_places *places)
{
    const struct erg_layout_search *search = places->on[0].search;
    struct erg_layout layout = candidate->layout;
    layout.chunk_layers = NULL;
    if (search->offload)
        layout.offload = 0;
    if (!search->per_stage)
        return fmin(erg_layout_split_fastest(splitter, places, &layout, candidate->time.total),
                    candidate->time.total);
    layout.stage_offload = NULL;
    layout.offload = 0;
    erg_layout_take_least_recomputes(&layout, stages, places);
    return fmin(erg_layout_split_bound(splitter, places, &layout, INFINITY), candidate->time.total);
}

bool erg_layout_refine_split(struct erg_layout_candidate *candidate,
                             struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                             const struct erg_layout_places *places, double limit_s)
{
    enum { FEW = 1000 };
    const long layers = places->on[0].search->model->layers;
    const long chunks = candidate->layout.pipeline * candidate->layout.virtual_stages;
    if (candidate->layout.virtual_stages == 1) {
        if (!places->on[0].search->per_stage) /* erg_layout_split_fastest() */
            candidate->bound_s = candidate->time.total;
        return false;
    }
    candidate->bound_s = closed_s(candidate, splitter, stages, places);
    if (candidate->bound_s >= candidate->time.total * (1 - 2 * tie))
        candidate->bound_s = candidate->time.total;
    if (candidate->bound_s >= fmin(candidate->time.total, limit_s) * (1 - tie))
        return false;
    if (!are_few(layers, chunks, FEW))
        return move_layers(candidate, splitter, stages, places);
    bool faster = try_all(candidate, splitter->round_layers, 0, layers, splitter, stages, places);
    candidate->bound_s = candidate->time.total;
    return faster;
}
