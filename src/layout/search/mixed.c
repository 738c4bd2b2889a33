#include "layout/search/mixed.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "layout/search/mixed_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    const struct erg_mixed_search *search;
    struct erg_mixed_found *found;
    size_t kept;                                          /* at most, while it goes on */
    struct erg_layout_search kinds[ERG_MIXED_MOST_KINDS]; /* a search as each kind would see it */
    struct erg_layout_pieces pieces[ERG_MIXED_MOST_KINDS];
    struct erg_layout_splitter splitter;
    struct erg_layout nearest; /* while nothing fits; without its layers */
    double nearest_excess;
    double others; /* tokens per second that nothing else does more than */
};

static void walk_init(struct walk *walk, const struct erg_mixed_search *search)
{
    *walk = (struct walk){.search = search, .nearest_excess = INFINITY};
    for (size_t k = 0; k < search->kind_count; k++) {
        const struct erg_mixed_kind *kind = &search->kinds[k];
        walk->kinds[k] = (struct erg_layout_search){
            .time = {search->model, kind->engine, &kind->machine},
            .gpus = kind->gpus,
            .sequence = search->sequence,
            .batch_least = search->batch_least,
            .batch_most = search->batch_most,
            .memory_bytes = kind->memory_bytes,
            .host_bytes = kind->host_bytes,
        };
    }
    erg_layout_splitter_init(&walk->splitter, search->model->layers);
}

static void fill_pieces(struct walk *walk, const struct erg_layout *layout)
{
    for (size_t k = 0; k < walk->search->kind_count; k++)
        erg_layout_pieces_init(&walk->pieces[k], &walk->kinds[k], layout);
}

/* ---- places ---- */

/* What a message from one kind to another takes longer than one between stages of the first. */
static double crossing_s(const struct walk *walk, size_t from, size_t to)
{
    const struct erg_layout_pieces *pieces = &walk->pieces[from];
    if (from == to)
        return 0;
    double message_s =
        (double)pieces->sizes.hidden / fmin(erg_time_message_rate(&walk->kinds[from].time, true),
                                            erg_time_message_rate(&walk->kinds[to].time, true));
    return message_s - pieces->parts.message_s;
}

/* Where the stages of a layout lie. */
static void fill_places(struct erg_layout_places *places, struct walk *walk,
                        const struct erg_layout *layout, const struct erg_mixed_block *blocks,
                        size_t count)
{
    bool offload = walk->search->offload;
    long first = 0;
    places->count = count;
    for (size_t i = 0; i < count; i++)
        offload &= walk->search->kinds[blocks[i].kind].engine->host_link_bandwidth > 0;
    for (size_t i = 0; i < count; i++) {
        size_t kind = blocks[i].kind;
        long ranks = layout->tensor * layout->context * layout->data * blocks[i].stages;
        walk->kinds[kind].offload = offload;
        places->on[i] = (struct erg_layout_on){&walk->kinds[kind], &walk->pieces[kind]};
        struct erg_time_place *place = &places->time[i];
        const struct erg_time_request *time = &walk->kinds[kind].time;
        erg_time_place_init(
            place, time, &walk->pieces[kind].parts, layout,
            erg_time_group_bandwidth(time, layout->tensor, layout->context * layout->data, ranks));
        place->first = first;
        place->end = first + blocks[i].stages;
        place->before_s = crossing_s(walk, kind, blocks[(i + count - 1) % count].kind);
        place->after_s = crossing_s(walk, kind, blocks[(i + 1) % count].kind);
        first += blocks[i].stages;
    }
}

/* ---- what is kept ---- */

static void fill_peaks(struct erg_mixed_candidate *candidate,
                       const struct erg_layout_places *places)
{
    const struct erg_layout *layout = &candidate->at.layout;
    for (size_t i = 0; i < candidate->block_count; i++)
        candidate->blocks[i].peak_bytes = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        size_t place = erg_layout_place_of(places, stage);
        double *peak = &candidate->blocks[place].peak_bytes;
        struct erg_memory_lines lines;
        erg_layout_stage_lines(&lines, &places->on[place], layout, stage);
        *peak = fmax(*peak, erg_layout_stage_peak(&lines, layout->offload));
    }
}

static void keep(struct walk *walk, const struct erg_mixed_candidate *candidate)
{
    struct erg_mixed_found *found = walk->found;
    size_t place = found->count;
    while (place > 0 && candidate->at.tokens_per_s > found->items[place - 1].at.tokens_per_s)
        place--;
    if (found->count == walk->kept) {
        const struct erg_layout_candidate *last = &found->items[walk->kept - 1].at;
        const struct erg_layout_candidate *other = place == walk->kept ? &candidate->at : last;
        walk->others = fmax(walk->others, erg_layout_most_rate(other));
    }
    if (place == walk->kept)
        return;
    if (found->count == walk->kept)
        erg_layout_candidate_release(&found->items[--found->count].at);
    memmove(&found->items[place + 1], &found->items[place],
            (found->count - place) * sizeof *found->items);
    found->items[place] = *candidate;
    erg_layout_own_lists(&found->items[place].at);
    found->count++;
}

/* ---- the walk ---- */

static bool is_wanted(long degree, long only)
{
    return only == 0 || degree == only;
}

/* The fastest split of a layout of which none fits: how far it is from that. Asked only of those
 * that need little: whole layers recomputed if that is allowed, and stages of one chunk. */
static void note_unfit(struct walk *walk, const struct erg_layout *layout,
                       const struct erg_layout_places *places)
{
    struct erg_layout_candidate candidate = {.layout = *layout};
    double excess = 0;
    walk->found->unfit++;
    bool most = walk->search->remats >> layout->remat == 1;
    if (walk->found->count > 0 || !most || layout->virtual_stages > 1 ||
        !erg_layout_may_miss(places, layout, walk->nearest_excess))
        return;
    erg_layout_split_of_any_memory(&walk->splitter, places, layout);
    candidate.layout.chunk_layers = walk->splitter.chunk_layers;
    if (erg_layout_settle_memory(&candidate, places, &excess) != ERG_LAYOUT_TOO_LARGE ||
        excess >= walk->nearest_excess)
        return;
    excess = erg_layout_memory_excess(&candidate.layout, places);
    if (excess >= walk->nearest_excess)
        return;
    walk->nearest_excess = excess;
    walk->nearest = *layout;
}

/* The fastest split of a layout, if it is among the fastest. */
static void consider(struct walk *walk, const struct erg_layout *layout,
                     const struct erg_layout_places *places, const struct erg_mixed_block *blocks)
{
    const struct erg_mixed_search *search = walk->search;
    struct erg_mixed_found *found = walk->found;
    long batch = layout->data * layout->microbatch * layout->microbatches;
    double wanted = INFINITY, excess;
    if (found->count == walk->kept)
        wanted =
            (double)(batch * search->sequence) / found->items[found->count - 1].at.tokens_per_s;
    found->evaluated++;
    if (wanted < INFINITY &&
        erg_layout_split_bound(&walk->splitter, places, layout, wanted) >= wanted) {
        found->slower++;
        return;
    }
    if (!erg_layout_may_fit(places, layout, 1u << layout->remat) ||
        erg_layout_split_fastest(&walk->splitter, places, layout, wanted) == INFINITY) {
        if (wanted < INFINITY)
            found->slower++;
        else
            note_unfit(walk, layout, places);
        return;
    }
    struct erg_mixed_candidate candidate = {
        .at = {.layout = *layout, .batch = batch},
        .block_count = places->count,
    };
    memcpy(candidate.blocks, blocks, places->count * sizeof *blocks);
    candidate.at.layout.chunk_layers = walk->splitter.chunk_layers;
    if (erg_layout_settle_memory(&candidate.at, places, &excess) != ERG_LAYOUT_FITS) {
        found->unfit++; /* by a rounding error */
        return;
    }
    candidate.at.bound_s = erg_layout_split_bound(&walk->splitter, places, layout, INFINITY);
    erg_layout_follow_split(&candidate.at, &walk->splitter, NULL, places);
    fill_peaks(&candidate, places);
    found->feasible++;
    keep(walk, &candidate);
}

/* All chunks and recomputations of stages on these blocks. */
static void walk_chunks(struct walk *walk, struct erg_layout *layout,
                        const struct erg_mixed_block *blocks, size_t count)
{
    const struct erg_mixed_search *search = walk->search;
    struct erg_layout_places places;
    long most = layout->pipeline > 1 ? search->model->layers / layout->pipeline : 1;
    for (long chunks = 1; chunks <= most; chunks++) {
        if (!is_wanted(chunks, search->only.virtual_stages))
            continue;
        layout->virtual_stages = chunks;
        long batch = erg_layout_choose_batch(&walk->kinds[0], layout);
        if (!batch)
            continue;
        layout->microbatches = batch / (layout->data * layout->microbatch);
        fill_places(&places, walk, layout, blocks, count);
        for (int remat = ERG_REMAT_NONE; remat < ERG_REMATS; remat++) {
            layout->remat = (enum erg_remat)remat;
            if (search->remats & 1u << remat)
                consider(walk, layout, &places, blocks);
        }
    }
}

/* All orders of the kinds that have stages, from place `at` on. */
static void walk_orders(struct walk *walk, struct erg_layout *layout,
                        struct erg_mixed_block *blocks, size_t count, size_t at)
{
    if (at == count)
        walk_chunks(walk, layout, blocks, count);
    for (size_t i = at; i < count; i++) {
        struct erg_mixed_block own = blocks[at];
        blocks[at] = blocks[i];
        blocks[i] = own;
        walk_orders(walk, layout, blocks, count, at + 1);
        own = blocks[at];
        blocks[at] = blocks[i];
        blocks[i] = own;
    }
}

/*
 * Whether stages on these blocks are slower than all that are kept, whatever their order, chunks
 * and recomputation: a microbatch takes no less than if all GPUs only ran layers, and layers could
 * be cut so that all stages end at once.
 */
static bool is_too_slow(const struct walk *walk, const struct erg_layout *layout,
                        const struct erg_mixed_block *blocks, size_t count)
{
    const struct erg_mixed_search *search = walk->search;
    const struct erg_mixed_found *found = walk->found;
    double layers_per_s = 0;
    if (found->count < walk->kept)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_parts *parts = &walk->pieces[blocks[i].kind].parts;
        layers_per_s += (double)blocks[i].stages / (parts->forward_s + parts->backward_s);
    }
    double microbatch_s = (double)search->model->layers / layers_per_s;
    double tokens = (double)(layout->data * layout->microbatch * search->sequence);
    return tokens / microbatch_s < found->items[found->count - 1].at.tokens_per_s;
}

/* All numbers of stages on the kinds from `kind` on, most first, since they may be the fastest; the
 * blocks have those before it. */
static void walk_stages(struct walk *walk, struct erg_layout *layout,
                        struct erg_mixed_block *blocks, size_t count, size_t kind)
{
    const struct erg_mixed_search *search = walk->search;
    if (kind == search->kind_count) {
        if (!is_wanted(layout->pipeline, search->only.pipeline))
            return;
        if (count > 0 && is_too_slow(walk, layout, blocks, count))
            walk->found->bounded++;
        else if (count > 0)
            walk_orders(walk, layout, blocks, count, 0);
        return;
    }
    long group = layout->tensor * layout->context, stages = layout->pipeline;
    long most = search->kinds[kind].gpus / (group * layout->data);
    if (group > search->kinds[kind].machine.node_gpus)
        most = 0;
    if (most > search->model->layers - stages)
        most = search->model->layers - stages;
    for (long own = most; own > 0; own--) {
        blocks[count] = (struct erg_mixed_block){.kind = kind, .stages = own};
        layout->pipeline = stages + own;
        walk_stages(walk, layout, blocks, count + 1, kind + 1);
    }
    layout->pipeline = stages;
    walk_stages(walk, layout, blocks, count, kind + 1);
}

/* The most groups of t c GPUs that one stage can have. */
static long most_data(const struct walk *walk, const struct erg_layout *layout)
{
    const struct erg_mixed_search *search = walk->search;
    long group = layout->tensor * layout->context, most = 0;
    for (size_t k = 0; k < search->kind_count; k++)
        if (search->kinds[k].gpus / group > most)
            most = search->kinds[k].gpus / group;
    long bound = search->batch_most / layout->microbatch;
    return most < bound ? most : bound;
}

static void walk_microbatches(struct walk *walk, long tensor, long context)
{
    const struct erg_mixed_search *search = walk->search;
    bool exact = search->batch_least == search->batch_most;
    long most = search->batch_most;
    if (search->microbatch_most > 0 && search->microbatch_most < most)
        most = search->microbatch_most;
    for (long microbatch = 1; microbatch <= most; microbatch++) {
        struct erg_layout layout = {
            .tensor = tensor,
            .context = context,
            .microbatch = microbatch,
            .sequence = search->sequence,
        };
        struct erg_mixed_block blocks[ERG_MIXED_MOST_KINDS];
        if (!is_wanted(microbatch, search->only.microbatch) ||
            (exact && search->batch_most % microbatch != 0))
            continue;
        fill_pieces(walk, &layout);
        long data = most_data(walk, &layout);
        for (layout.data = 1; layout.data <= data; layout.data++)
            if (is_wanted(layout.data, search->only.data) &&
                (!exact || search->batch_most % (microbatch * layout.data) == 0))
                walk_stages(walk, &layout, blocks, 0, 0);
    }
}

/* Whether the model can be split so over a group. */
static bool is_group(const struct erg_mixed_search *search, long tensor, long context)
{
    struct erg_model padded = *search->model;
    padded.vocab = erg_layout_vocabulary(search->model, tensor);
    return erg_model_check_tensor(&padded, tensor, NULL) == 0 &&
           erg_model_check_sequence(search->model, context, search->sequence, NULL) == 0 &&
           search->sequence / context % tensor == 0;
}

/* ---- the search ---- */

static int check_search(const struct erg_mixed_search *search, struct erg_error *err)
{
    if (search->kind_count < 1 || search->kind_count > ERG_MIXED_MOST_KINDS)
        return erg_fail(err, ERG_FAILED, "expected 1 to %d kinds of GPUs, got %zu",
                        ERG_MIXED_MOST_KINDS, search->kind_count);
    for (size_t k = 0; k < search->kind_count && search->kind_count > 1; k++)
        if (!(search->kinds[k].machine.network_bandwidth > 0))
            return erg_fail(err, ERG_FAILED,
                            "stages on GPUs of several kinds send over the network, and that of "
                            "the nodes with %s is not known",
                            search->kinds[k].name);
    if (search->batch_least < 1 || search->batch_most < search->batch_least)
        return erg_fail(err, ERG_FAILED, "expected a batch of at least 1 sequence, got %ld to %ld",
                        search->batch_least, search->batch_most);
    return erg_model_check_sequence(search->model, 1, search->sequence, err);
}

static int none_fits(const struct walk *walk, struct erg_error *err)
{
    const struct erg_mixed_search *search = walk->search;
    const struct erg_mixed_found *found = walk->found;
    const struct erg_layout *layout = &walk->nearest;
    char batch[64];
    if (search->batch_least == search->batch_most)
        snprintf(batch, sizeof batch, "%ld", search->batch_most);
    else
        snprintf(batch, sizeof batch, "%ld to %ld", search->batch_least, search->batch_most);
    if (found->evaluated == 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "no layout of %s that was asked for spreads a batch of %s sequences over "
                        "these GPUs",
                        search->model->name, batch);
    if (isfinite(walk->nearest_excess))
        return erg_fail(err, ERG_INFEASIBLE,
                        "no layout of %s with a batch of %s sequences fits on these GPUs; nearest "
                        "is tensor %ld, context %ld, data %ld, pipeline %ld, %ld chunks a stage, "
                        "microbatch %ld, recompute %s, which fits with %.1f GiB more a GPU",
                        search->model->name, batch, layout->tensor, layout->context, layout->data,
                        layout->pipeline, layout->virtual_stages, layout->microbatch,
                        erg_remat_name(layout->remat), erg_layout_gib_up(walk->nearest_excess));
    return erg_fail(err, ERG_INFEASIBLE,
                    "no layout of %s with a batch of %s sequences fits on these GPUs: %llu were "
                    "tried, wherever stages may lie",
                    search->model->name, batch, (unsigned long long)found->evaluated);
}

/* The splits of what was found refined: of what may be among those that are wanted. */
static int refine(struct walk *walk, struct erg_error *err)
{
    struct erg_mixed_found *found = walk->found;
    if (found->slower + found->bounded > 0) /* than the last that is kept */
        walk->others = fmax(walk->others, found->items[found->count - 1].at.tokens_per_s);
    for (size_t i = 0; i < found->count; i++) {
        struct erg_mixed_candidate item = found->items[i];
        struct erg_layout_places places;
        size_t place = i, top = walk->search->top;
        double limit_s = INFINITY;
        if (i >= top)
            limit_s = (double)(item.at.batch * walk->search->sequence) /
                      found->items[top - 1].at.tokens_per_s;
        if (erg_interrupt_check(err) != 0)
            return -1;
        fill_pieces(walk, &item.at.layout);
        fill_places(&places, walk, &item.at.layout, item.blocks, item.block_count);
        if (erg_layout_refine_split(&item.at, &walk->splitter, NULL, &places, limit_s))
            fill_peaks(&item, &places);
        for (; place > 0 && item.at.tokens_per_s > found->items[place - 1].at.tokens_per_s; place--)
            found->items[place] = found->items[place - 1];
        found->items[place] = item;
    }
    for (size_t i = 0; i < found->count; i++)
        walk->others = fmax(walk->others, erg_layout_most_rate(&found->items[i].at));
    found->gap = fmax(0, walk->others / found->items[0].at.tokens_per_s - 1);
    while (found->count > walk->search->top)
        erg_layout_candidate_release(&found->items[--found->count].at);
    return 0;
}

int erg_mixed_search(struct erg_mixed_found *found, const struct erg_mixed_search *search,
                     struct erg_error *err)
{
    struct walk walk;
    long most = 0;
    *found = (struct erg_mixed_found){0};
    if (check_search(search, err) != 0)
        return -1;
    for (size_t k = 0; k < search->kind_count; k++)
        if (search->kinds[k].machine.node_gpus > most)
            most = search->kinds[k].machine.node_gpus;
    walk_init(&walk, search);
    walk.found = found;
    walk.kept = erg_layout_kept(search->top);
    found->items = erg_xcalloc(walk.kept + 1, sizeof *found->items);
    int status = 0;
    for (long tensor = 1; tensor <= most && !status; tensor++) {
        for (long context = 1; context <= most / tensor && !status; context++) {
            status = erg_interrupt_check(err);
            if (!status && is_group(search, tensor, context) &&
                is_wanted(tensor, search->only.tensor) && is_wanted(context, search->only.context))
                walk_microbatches(&walk, tensor, context);
        }
        erg_progress("layouts", (size_t)tensor, (size_t)most);
    }
    if (!status && found->count == 0)
        status = none_fits(&walk, err);
    if (!status)
        status = refine(&walk, err);
    for (size_t i = 0; i < found->count; i++)
        found->items[i].at.mixed = &found->items[i];
    erg_layout_splitter_release(&walk.splitter);
    if (status)
        erg_mixed_found_release(found);
    return status;
}

void erg_mixed_found_release(struct erg_mixed_found *found)
{
    for (size_t i = 0; i < found->count; i++)
        erg_layout_candidate_release(&found->items[i].at);
    free(found->items);
    found->items = NULL;
    found->count = 0;
}

/* ---- one layout ---- */

int erg_mixed_evaluate(struct erg_mixed_candidate *candidate, const struct erg_mixed_search *search,
                       const struct erg_layout *layout, struct erg_error *err)
{
    struct walk walk;
    struct erg_layout_places places;
    struct erg_layout *own = &candidate->at.layout;
    double excess = 0;
    if (check_search(search, err) != 0)
        return -1;
    walk_init(&walk, search);
    candidate->at = (struct erg_layout_candidate){.layout = *layout};
    own->sequence = search->sequence;
    own->offload = 0;
    candidate->at.batch = erg_layout_choose_batch(&walk.kinds[0], own);
    own->microbatches = candidate->at.batch / (own->data * own->microbatch);
    int status = erg_layout_check(own, search->model, err);
    if (!status) {
        fill_pieces(&walk, own);
        fill_places(&places, &walk, own, candidate->blocks, candidate->block_count);
        if (erg_layout_settle_memory(&candidate->at, &places, &excess) != ERG_LAYOUT_FITS)
            status = erg_fail(err, ERG_INFEASIBLE, "needs %.1f GiB more than there are",
                              excess / 0x1p30);
    }
    if (!status) {
        erg_layout_follow(&candidate->at, walk.splitter.follower, &places);
        fill_peaks(candidate, &places);
        erg_layout_own_lists(&candidate->at);
    }
    erg_layout_splitter_release(&walk.splitter);
    return status;
}

void erg_mixed_places_init(struct erg_mixed_places *places, const struct erg_mixed_search *search,
                           const struct erg_mixed_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->at.layout;
    struct walk walk;
    walk_init(&walk, search);
    fill_pieces(&walk, layout);
    fill_places(&places->at, &walk, layout, candidate->blocks, candidate->block_count);
    memcpy(places->kinds, walk.kinds, sizeof places->kinds);
    memcpy(places->pieces, walk.pieces, sizeof places->pieces);
    for (size_t i = 0; i < places->at.count; i++) {
        size_t kind = candidate->blocks[i].kind;
        places->at.on[i] = (struct erg_layout_on){&places->kinds[kind], &places->pieces[kind]};
        places->at.time[i].request = &places->kinds[kind].time;
        places->at.time[i].parts = &places->pieces[kind].parts;
    }
    erg_layout_splitter_release(&walk.splitter);
}

double erg_mixed_peak_flops(const struct erg_mixed_candidate *candidate,
                            const struct erg_mixed_search *search)
{
    const struct erg_layout *layout = &candidate->at.layout;
    double sum = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        sum +=
            search->kinds[candidate->blocks[i].kind].engine->peak_flops *
            (double)(candidate->blocks[i].stages * layout->tensor * layout->context * layout->data);
    return sum;
}
