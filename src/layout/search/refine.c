/*
 * The fastest split of the layers of one layout with virtual stages, by branch and bound.
 *
 * A schedule that is followed is a longest path: convex in the layers of the chunks, and any path
 * through it is a bound from below, whatever the layers. So are the closed form, stage by stage,
 * and what the stages do at the iteration's end. The path at a split of real numbers is a cut
 * (layout/search/cuts.h); cuts are added where the linear program has its least value until that is
 * the time there. Then a number that is no whole one is cut off, and of the boxes that are left
 * that with the lowest bound is next (Land and Doig 1960).
 *
 * Memory: what a stage needs, with any ratio of offloading, grows with the layers of each of its
 * chunks. So no split in a box offloads less than its smallest split, and where that does not fit
 * none does. Whole splits that do not fit, or offload more than that, are cut off at a chunk of the
 * stage that needs most.
 */
#include "base/memory.h"
#include "layout/search/refine_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two iterations that are no further apart, relatively, take equally long. */
static const double tie = 1e-9;

/* What one layout may cost, in passes followed, a few nanoseconds each: where there are few chunks
 * and a proof is likely up to a tenth of a second. Boxes that are kept. */
enum { FEW_CHUNKS = 16, WORK_OF_FEW = 16000000, WORK_OF_MANY = 4000000, MOST_BOXES = 1 << 13 };

/* A linear program takes as long as so many passes a chunk. */
enum { PASSES_OF_PROGRAM = 1500 };

/* Cuts in the first box and in others before it is divided. */
enum { FIRST_CUTS = 400, MORE_CUTS = 12 };

static double wanted_s(const struct erg_refining *at)
{
    return fmin(at->best->time.total, at->limit_s) * (1 - tie);
}

static uint64_t work_of(const struct erg_refining *at)
{
    const uint64_t programs = at->cuts.programs + at->offloading.programs;
    return PASSES_OF_PROGRAM * programs * (uint64_t)at->chunks +
           erg_time_followed_passes(at->splitter->follower) - at->passes_before;
}

/* ---- boxes ---- */

static struct erg_refining_box box_new(const struct erg_refining *at, const long *least,
                                       const long *most, double bound_s)
{
    size_t bytes = (size_t)at->chunks * sizeof(long);
    struct erg_refining_box box = {bound_s, erg_xmalloc(bytes), erg_xmalloc(bytes)};
    memcpy(box.least, least, bytes);
    memcpy(box.most, most, bytes);
    return box;
}

static void box_release(struct erg_refining_box *box)
{
    free(box->least);
    free(box->most);
}

static void push(struct erg_refining *at, struct erg_refining_box box)
{
    if (at->box_count == at->box_room) {
        at->box_room = at->box_room ? 2 * at->box_room : 64;
        at->boxes = erg_xrealloc(at->boxes, at->box_room, sizeof *at->boxes);
    }
    size_t place = at->box_count++;
    for (; place > 0 && at->boxes[(place - 1) / 2].bound_s > box.bound_s; place = (place - 1) / 2)
        at->boxes[place] = at->boxes[(place - 1) / 2];
    at->boxes[place] = box;
}

static struct erg_refining_box pop(struct erg_refining *at)
{
    struct erg_refining_box first = at->boxes[0], last = at->boxes[--at->box_count];
    size_t place = 0;
    for (size_t next = 1; next < at->box_count; next = 2 * place + 1) {
        next += next + 1 < at->box_count && at->boxes[next + 1].bound_s < at->boxes[next].bound_s;
        if (at->boxes[next].bound_s >= last.bound_s)
            break;
        at->boxes[place] = at->boxes[next];
        place = next;
    }
    at->boxes[place] = last;
    return first;
}

/* ---- memory ---- */

/* The smallest ratio from `offload` on with which a stage of these chunks fits; INFINITY: none. */
static double ratio_for(const struct erg_refining *at, const long *chunks, long stage,
                        double offload)
{
    const struct erg_layout_on *on = &at->places->on[erg_layout_place_of(at->places, stage)];
    struct erg_layout layout = at->layout;
    struct erg_memory_lines lines;
    double excess;
    layout.chunk_layers = chunks;
    erg_layout_stage_lines(&lines, on, &layout, stage);
    return erg_layout_stage_offload(on, &lines, &offload, &excess) &&
                   erg_layout_stage_fits(on, &lines, offload)
               ? offload
               : INFINITY;
}

/* Below this ratio no split with at least these layers fits. */
static double least_ratio(const struct erg_refining *at, const long *chunks)
{
    double offload = at->layout.offload;
    if (at->places->on[0].search->per_stage)
        return 0;
    for (long stage = 0; stage < at->layout.pipeline && offload <= 1; stage++)
        offload = ratio_for(at, chunks, stage, offload);
    return offload;
}

/* ---- splits ---- */

/* What all splits take beside the pipeline and the end. */
static double waits_s(const struct erg_refining *at, double offload)
{
    return erg_layout_split_waits(at->places, &at->layout, offload);
}

/* The point in whole numbers of the box: those with the largest fractions are rounded up. */
static void round_point(struct erg_refining *at, const struct erg_refining_box *box)
{
    long left = at->layers;
    for (long j = 0; j < at->chunks; j++) {
        double whole = floor(at->point[j] + 1e-6);
        at->rounded[j] = (long)fmin(fmax(whole, (double)box->least[j]), (double)box->most[j]);
        at->fractions[j] = at->point[j] - (double)at->rounded[j];
        left -= at->rounded[j];
    }
    while (left != 0) {
        long best = -1, step = left > 0 ? 1 : -1;
        for (long j = 0; j < at->chunks; j++) {
            bool may = step > 0 ? at->rounded[j] < box->most[j] : at->rounded[j] > box->least[j];
            if (may &&
                (best < 0 || (double)step * at->fractions[j] > (double)step * at->fractions[best]))
                best = j;
        }
        at->rounded[best] += step;
        at->fractions[best] -= (double)step;
        left -= step;
    }
}

/* Tries the point in whole numbers, unless it was the last that was. */
static void try_rounded(struct erg_refining *at)
{
    size_t bytes = (size_t)at->chunks * sizeof *at->rounded;
    if (memcmp(at->rounded, at->last, bytes) == 0)
        return;
    memcpy(at->last, at->rounded, bytes);
    at->improved |=
        erg_layout_try_split(at->best, at->rounded, at->splitter, at->stages, at->places);
}

/* ---- branch and bound ---- */

/* Divides a box at a chunk: at most `layers` of it, or more. */
static void divide(struct erg_refining *at, struct erg_refining_box *box, long chunk, long layers)
{
    struct erg_refining_box more = box_new(at, box->least, box->most, box->bound_s);
    more.least[chunk] = layers + 1;
    box->most[chunk] = layers;
    push(at, *box);
    push(at, more);
}

/* Where a box is cut whose best point is a whole split: that is at the chunk's upper part. */
static long chunk_of_memory(const struct erg_refining *at, const struct erg_refining_box *box)
{
    double worst = -1;
    long chunk = -1;
    for (long stage = 0; stage < at->layout.pipeline; stage++) {
        double need = at->places->on[0].search->per_stage
                          ? 0
                          : ratio_for(at, at->rounded, stage, at->layout.offload);
        for (long j = stage; need > worst && j < at->chunks; j += at->layout.pipeline)
            if (box->least[j] < at->rounded[j]) {
                worst = need;
                chunk = j;
                break;
            }
    }
    return chunk;
}

/* Of a box whose bound is below what is wanted. */
static void branch(struct erg_refining *at, struct erg_refining_box *box)
{
    long chunk = -1;
    double furthest = 1e-6;
    for (long j = 0; j < at->chunks; j++) {
        double part = at->point[j] - floor(at->point[j]);
        if (fmin(part, 1 - part) > furthest) {
            furthest = fmin(part, 1 - part);
            chunk = j;
        }
    }
    if (chunk >= 0) {
        divide(at, box, chunk, (long)floor(at->point[chunk]));
        return;
    }
    chunk = chunk_of_memory(at, box);
    if (chunk >= 0) {
        divide(at, box, chunk, at->rounded[chunk] - 1);
        return;
    }
    for (chunk = 0; chunk < at->chunks && box->most[chunk] <= at->rounded[chunk];)
        chunk++;
    if (chunk < at->chunks)
        divide(at, box, chunk, at->rounded[chunk]);
    else
        box_release(box); /* this split alone, which was tried */
}

/*
 * Raises the bound of a box until it is no longer wanted: false; or until it is known that cuts
 * cannot raise it so far. Cuts are made between the point where they are least and the best one
 * that is known (the in-out method of Ben-Ameur and Neto 2007), which takes fewer of them.
 */
static bool bound(struct erg_refining *at, struct erg_refining_box *box, int most_cuts)
{
    double offload = least_ratio(at, box->least), inside_s = INFINITY;
    const size_t bytes = (size_t)at->chunks * sizeof *at->point;
    if (offload > 1)
        return false;
    double waiting_s = waits_s(at, offload);
    bool far = false; /* the last cut was not beyond the point */
    for (int i = 0; i < most_cuts && work_of(at) < at->most_work; i++) {
        double bound_s = erg_cuts_bound(erg_refining_cuts_at(at, offload), box->least, box->most,
                                        at->layers, wanted_s(at) - waiting_s, at->point);
        box->bound_s = fmax(box->bound_s, (bound_s + waiting_s) * (1 - 1e-12));
        if (box->bound_s >= wanted_s(at))
            return false;
        round_point(at, box);
        try_rounded(at);
        if (inside_s <= bound_s * (1 + 1e-6) ||
            (i >= most_cuts / 4 && inside_s + waiting_s < wanted_s(at)))
            break;
        memcpy(at->outside, at->point, bytes);
        for (long j = 0; inside_s < INFINITY && !far && j < at->chunks; j++)
            at->point[j] = 0.5 * (at->point[j] + at->inside[j]);
        double own_s = erg_refining_add_cut(at, offload);
        if (own_s < inside_s) {
            inside_s = own_s;
            memcpy(at->inside, at->point, bytes);
        }
        memcpy(at->point, at->outside, bytes);
        far = !far && erg_refining_last_cut_s(at, offload) <= bound_s * (1 + tie);
    }
    return box->bound_s < wanted_s(at);
}

static void search(struct erg_refining *at)
{
    int cuts = FIRST_CUTS;
    while (at->box_count > 0 && at->boxes[0].bound_s < wanted_s(at) &&
           work_of(at) < at->most_work && at->box_count < MOST_BOXES) {
        struct erg_refining_box box = pop(at);
        if (bound(at, &box, cuts))
            branch(at, &box);
        else
            box_release(&box);
        cuts = MORE_CUTS;
    }
}

static void refining_init(struct erg_refining *at, const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_search *search = at->places->on[0].search;
    const size_t width = (size_t)at->chunks;
    struct erg_layout *layout = &at->layout;
    *layout = candidate->layout;
    layout->chunk_layers = NULL;
    layout->offload = search->offload ? 0 : layout->offload;
    if (search->per_stage) {
        layout->stage_offload = NULL;
        layout->offload = 0;
        erg_layout_take_least_remats(layout, at->stages, at->places);
    }
    at->layers = at->places->time[0].request->model->layers;
    at->costs = erg_xcalloc(width, sizeof *at->costs);
    at->point = erg_xcalloc(width, sizeof *at->point);
    at->inside = erg_xcalloc(width, sizeof *at->inside);
    at->outside = erg_xcalloc(width, sizeof *at->outside);
    at->fractions = erg_xcalloc(width, sizeof *at->fractions);
    at->times_s = erg_xcalloc(2 * width, sizeof *at->times_s);
    at->path = erg_xcalloc(2 * width, sizeof *at->path);
    at->rounded = erg_xcalloc(width, sizeof *at->rounded);
    at->last = erg_xcalloc(width, sizeof *at->last);
    erg_cuts_init(&at->cuts, width);
    erg_cuts_init(&at->offloading, width);
    erg_time_chunks(at->costs, at->places->time, layout);
    /* The first box: at least one layer each. */
    for (long j = 0; j < at->chunks; j++) {
        at->rounded[j] = 1;
        at->last[j] = at->layers - at->chunks + 1;
        at->point[j] = (double)erg_layout_chunk_layers(&candidate->layout, at->layers,
                                                       j % layout->pipeline, j / layout->pipeline);
    }
    push(at, box_new(at, at->rounded, at->last, 0));
    at->last[0] = 0;
}

static void refining_release(struct erg_refining *at)
{
    for (size_t i = 0; i < at->box_count; i++)
        box_release(&at->boxes[i]);
    free(at->boxes);
    free(at->costs);
    free(at->point);
    free(at->inside);
    free(at->outside);
    free(at->fractions);
    free(at->times_s);
    free(at->path);
    free(at->rounded);
    free(at->last);
    free(at->copies);
    erg_cuts_release(&at->cuts);
    erg_cuts_release(&at->offloading);
}

/* What a split by the closed form may take, at the least: whole layers, and where all stages
 * offload one ratio what fits, but no waiting for others. */
static double closed_s(struct erg_refining *at)
{
    const double total_s = at->best->time.total;
    if (at->places->on[0].search->per_stage)
        return erg_layout_split_bound(at->splitter, at->places, &at->layout, INFINITY);
    return fmin(erg_layout_split_fastest(at->splitter, at->places, &at->layout, total_s), total_s);
}

/* Tries the split of which all turns take equally long. False: programs of the first box say no
 * more than the closed form does, since they say no more than the time of that split in real
 * numbers. */
static bool try_level(struct erg_refining *at, double least_s)
{
    const double offload = least_ratio(at, at->boxes[0].least);
    if (offload > 1)
        return false; /* nothing fits */
    erg_refining_level(at, offload);
    const double level_s = erg_refining_add_cut(at, offload) + waits_s(at, offload);
    round_point(at, &at->boxes[0]);
    try_rounded(at);
    return level_s > least_s;
}

bool erg_layout_refine_split(struct erg_layout_candidate *candidate,
                             struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                             const struct erg_layout_places *places, double limit_s)
{
    struct erg_refining at = {
        .best = candidate,
        .splitter = splitter,
        .stages = stages,
        .places = places,
        .chunks = candidate->layout.pipeline * candidate->layout.virtual_stages,
        .limit_s = limit_s,
    };
    if (candidate->layout.virtual_stages == 1) {
        if (!places->on[0].search->per_stage) /* erg_layout_split_fastest() */
            candidate->bound_s = candidate->time.total;
        return false;
    }
    refining_init(&at, candidate);
    const double least_s = closed_s(&at);
    bool faster = least_s < wanted_s(&at) &&
                  erg_layout_climb_split(candidate, splitter, stages, places, least_s);
    at.passes_before = erg_time_followed_passes(splitter->follower);
    const bool few = at.chunks <= FEW_CHUNKS;
    if (least_s < wanted_s(&at) && (few || candidate->time.total <= limit_s)) {
        at.most_work = few ? WORK_OF_FEW : WORK_OF_MANY;
        erg_refining_add_cut(&at, at.layout.offload);
        if (few || try_level(&at, least_s))
            search(&at);
    }
    faster |= at.improved;
    /* Of what is left of the first box, if anything is. */
    double bound_s = at.box_count > 0 ? at.boxes[0].bound_s : INFINITY;
    bound_s = fmax(fmin(bound_s, wanted_s(&at)), least_s);
    if (at.improved && bound_s < wanted_s(&at))
        erg_layout_climb_split(candidate, splitter, stages, places, bound_s);
    bool proven = bound_s >= candidate->time.total * (1 - 2 * tie);
    candidate->bound_s = proven ? candidate->time.total : bound_s;
    refining_release(&at);
    return faster;
}
