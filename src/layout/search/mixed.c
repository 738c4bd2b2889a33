#include "layout/search/mixed.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "layout/search/mixed_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    const struct erg_mixed_search *search;
    struct erg_layout_keeping kept;
    struct erg_mixed_views views;
    struct erg_mixed_room room;
    struct erg_layout nearest; /* while nothing fits; without its layers */
    double nearest_excess;
};

/* ---- what is kept ---- */

/* Seconds from which on a layout with this batch is not wanted, or slower than all that are kept.
 */
static double slowest_wanted(const struct walk *walk, long batch)
{
    const struct erg_mixed_search *search = walk->search;
    if (search->each)
        return search->limit_s > 0 ? search->limit_s * (1 + 1e-9) : INFINITY;
    const double rate = erg_layout_keeping_least_rate(&walk->kept);
    return rate > 0 ? (double)(batch * search->sequence) / rate : INFINITY;
}

/* ---- the walk ---- */

static long least_of(long a, long b)
{
    return a < b ? a : b;
}

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
    walk->kept.found->memory++;
    bool most = walk->search->recomputes >> layout->recompute == 1;
    if (walk->kept.found->count > 0 || !most || layout->virtual_stages > 1 ||
        !erg_layout_may_miss(places, layout, walk->nearest_excess))
        return;
    erg_layout_split_of_any_memory(&walk->room.splitter, places, layout);
    candidate.layout.chunk_layers = walk->room.splitter.chunk_layers;
    if (erg_layout_settle_memory(&candidate, places, &excess) != ERG_LAYOUT_TOO_LARGE ||
        excess >= walk->nearest_excess)
        return;
    excess = erg_layout_memory_excess(&candidate.layout, places);
    if (excess >= walk->nearest_excess)
        return;
    walk->nearest_excess = excess;
    walk->nearest = *layout;
}

/* The fastest split of a layout's layers, if it is among the fastest, with its own recomputation
 * or, where each stage does what is best for it, with any of those that are tried. */
static void consider(struct walk *walk, const struct erg_layout *layout,
                     const struct erg_layout_places *places, const struct erg_layout_block *blocks)
{
    struct erg_layout_found *found = walk->kept.found;
    const long batch = layout->data * layout->microbatch * layout->microbatches;
    const double wanted = slowest_wanted(walk, batch);
    struct erg_layout_candidate best = {.batch = batch, .block_count = places->count};
    memcpy(best.blocks, blocks, places->count * sizeof *blocks);
    best.bound_s = erg_mixed_split_bound(&walk->room, layout, places, wanted);
    found->evaluated++;
    if (best.bound_s >= wanted) {
        found->slower++;
        return;
    }
    erg_mixed_split_fastest(&best, &walk->room, layout, places, wanted);
    if (best.time.total > 0) {
        erg_mixed_fill_peaks(&best, places);
        found->feasible++;
        erg_layout_keep(&walk->kept, &best);
        erg_layout_candidate_release(&best);
    } else if (wanted < INFINITY) {
        found->slower++;
    } else {
        note_unfit(walk, layout, places);
    }
}

/* All chunks and recomputations of stages on these blocks; where stages choose, that which needs
 * the least memory stands for all. */
static void walk_chunks(struct walk *walk, struct erg_layout *layout,
                        const struct erg_layout_block *blocks, size_t count, unsigned recomputes)
{
    const struct erg_mixed_search *search = walk->search;
    struct erg_layout_places places;
    long most = layout->pipeline > 1 ? search->model->layers / layout->pipeline : 1;
    for (long chunks = 1; chunks <= most; chunks++) {
        if (!is_wanted(chunks, search->only.virtual_stages))
            continue;
        layout->virtual_stages = chunks;
        long batch = erg_layout_choose_batch(&walk->views.kinds[0], layout);
        if (!batch)
            continue;
        layout->microbatches = batch / (layout->data * layout->microbatch);
        erg_mixed_places_init(&places, &walk->views, layout, blocks, count);
        for (int recompute = ERG_RECOMPUTE_NONE; recompute < ERG_RECOMPUTES; recompute++) {
            bool alone = !search->per_stage || search->recomputes >> recompute == 1;
            layout->recompute = (enum erg_recompute)recompute;
            if (recomputes & 1u << recompute && alone)
                consider(walk, layout, &places, blocks);
        }
    }
}

/* All orders of the kinds that have stages, from place `at` on. */
static void walk_orders(struct walk *walk, struct erg_layout *layout,
                        struct erg_layout_block *blocks, size_t count, size_t at,
                        unsigned recomputes)
{
    if (at == count)
        walk_chunks(walk, layout, blocks, count, recomputes);
    for (size_t i = at; i < count; i++) {
        struct erg_layout_block own = blocks[at];
        blocks[at] = blocks[i];
        blocks[i] = own;
        walk_orders(walk, layout, blocks, count, at + 1, recomputes);
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
                        const struct erg_layout_block *blocks, size_t count)
{
    const struct erg_mixed_search *search = walk->search;
    const long replicas = layout->data * layout->microbatch; /* sequences of a microbatch */
    const long microbatches = replicas < search->batch_least ? search->batch_least / replicas : 1;
    double layers_per_s = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_parts *parts = &walk->views.pieces[blocks[i].kind][1].parts;
        layers_per_s += (double)blocks[i].stages / (parts->forward_s + parts->backward_s);
    }
    double microbatch_s = (double)search->model->layers / layers_per_s;
    return microbatch_s * (double)microbatches > slowest_wanted(walk, microbatches * replicas);
}

/* The recomputations with which stages on these blocks may be among what is wanted. */
static unsigned wanted_recomputes(const struct walk *walk, const struct erg_layout *layout,
                                  const struct erg_layout_block *blocks, size_t count)
{
    const struct erg_mixed_search *search = walk->search;
    if (is_too_slow(walk, layout, blocks, count))
        return 0;
    return search->wanted ? search->wanted(search->context, layout, blocks, count)
                          : search->recomputes;
}

/* Whether the groups of so many stages lie within nodes. */
static bool hold_groups(const struct erg_mixed_kind *kind, const struct erg_layout *layout,
                        long stages)
{
    const long group = layout->tensor * layout->context;
    return erg_nodes_hold_groups(kind->machine.node_gpus, group, stages * group * layout->data);
}

/* The fewest and the most stages that a kind may have behind so many others. */
static void find_range(long *least, long *most, const struct walk *walk,
                       const struct erg_layout *layout, size_t kind)
{
    const struct erg_mixed_search *search = walk->search;
    const long group = layout->tensor * layout->context * layout->data;
    const long left = search->gpus / group - layout->pipeline; /* of an exact number */
    const unsigned bit = 1u << kind;
    *least = search->used & bit ? 1 : 0;
    *most = search->kinds[kind].gpus / group;
    if (search->used && !(search->used & bit))
        *most = 0;
    *most = least_of(*most, search->model->layers - layout->pipeline);
    if (search->gpus && kind + 1 == search->kind_count && left > *least)
        *least = left;
    if (search->gpus)
        *most = least_of(*most, left);
}

/* All numbers of stages on the kinds from `kind` on, most first, since they may be the fastest; the
 * blocks have those before it. */
static void walk_stages(struct walk *walk, struct erg_layout *layout,
                        struct erg_layout_block *blocks, size_t count, size_t kind)
{
    const struct erg_mixed_search *search = walk->search;
    const long stages = layout->pipeline;
    long least, most;
    if (kind == search->kind_count) {
        if (count == 0 || !is_wanted(layout->pipeline, search->only.pipeline))
            return;
        const unsigned recomputes = wanted_recomputes(walk, layout, blocks, count);
        if (recomputes)
            walk_orders(walk, layout, blocks, count, 0, recomputes);
        else
            walk->kept.found->bounded++;
        return;
    }
    find_range(&least, &most, walk, layout, kind);
    for (long own = most; own >= least; own--) {
        if (own > 0 && !hold_groups(&search->kinds[kind], layout, own))
            continue;
        blocks[count] = (struct erg_layout_block){.kind = kind, .stages = own};
        layout->pipeline = stages + own;
        walk_stages(walk, layout, blocks, count + (own > 0), kind + 1);
    }
    layout->pipeline = stages;
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
        struct erg_layout_block blocks[ERG_MIXED_MOST_KINDS];
        if (!is_wanted(microbatch, search->only.microbatch) ||
            (exact && search->batch_most % microbatch != 0))
            continue;
        erg_mixed_views_fill(&walk->views, &layout);
        long data = most_data(walk, &layout);
        for (layout.data = 1; layout.data <= data; layout.data++)
            if (is_wanted(layout.data, search->only.data) &&
                search->gpus % (tensor * context * layout.data) == 0 &&
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

static int none_fits(const struct walk *walk, struct erg_error *err)
{
    const struct erg_mixed_search *search = walk->search;
    const struct erg_layout_found *found = walk->kept.found;
    const struct erg_layout *layout = &walk->nearest;
    char batch[64];
    erg_layout_describe_batch(batch, sizeof batch, search->batch_least, search->batch_most);
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
                        erg_recompute_name(layout->recompute),
                        erg_layout_gib_up(walk->nearest_excess));
    return erg_fail(err, ERG_INFEASIBLE,
                    "no layout of %s with a batch of %s sequences fits on these GPUs: %llu were "
                    "tried, wherever stages may lie",
                    search->model->name, batch, (unsigned long long)found->evaluated);
}

/* The splits of what was found refined: of what may be among those that are wanted. */
static int refine(struct walk *walk, struct erg_error *err)
{
    struct erg_layout_found *found = walk->kept.found;
    if (found->slower + found->bounded > 0) /* than the last that is kept */
        walk->kept.others = fmax(walk->kept.others, found->items[found->count - 1].tokens_per_s);
    const size_t count = found->count, top = walk->search->top;
    int status = 0;
    for (size_t i = found->count = 0; i < count && status == 0; i++) {
        struct erg_layout_candidate item = found->items[i];
        struct erg_layout_places places;
        double limit_s = INFINITY;
        if (i >= top)
            limit_s =
                (double)(item.batch * walk->search->sequence) / found->items[top - 1].tokens_per_s;
        erg_mixed_views_fill(&walk->views, &item.layout);
        erg_mixed_places_init(&places, &walk->views, &item.layout, item.blocks, item.block_count);
        if (erg_layout_refine_split(&item, &walk->room.splitter, &walk->room.stages, &places,
                                    limit_s))
            erg_mixed_fill_peaks(&item, &places);
        erg_layout_found_insert(found, &item);
        status = erg_interrupt_check(err);
    }
    found->count = count; /* those that are left are where they were */
    for (size_t i = 0; i < count; i++)
        erg_layout_let_go(&walk->kept, &found->items[i]);
    erg_layout_keeping_end(&walk->kept, top);
    return status;
}

static int walk_groups(struct walk *walk, struct erg_error *err)
{
    const struct erg_mixed_search *search = walk->search;
    long most = 0;
    int status = 0;
    for (size_t k = 0; k < search->kind_count; k++)
        if (search->kinds[k].machine.node_gpus > most)
            most = search->kinds[k].machine.node_gpus;
    for (long tensor = 1; tensor <= most && !status; tensor++) {
        for (long context = 1; context <= most / tensor && !status; context++) {
            status = erg_interrupt_check(err);
            if (!status && is_group(search, tensor, context) &&
                is_wanted(tensor, search->only.tensor) && is_wanted(context, search->only.context))
                walk_microbatches(walk, tensor, context);
        }
        erg_progress("layouts", (size_t)tensor, (size_t)most);
    }
    return status;
}

int erg_mixed_search(struct erg_layout_found *found, const struct erg_mixed_search *search,
                     struct erg_error *err)
{
    *found = (struct erg_layout_found){0};
    if (erg_mixed_check(search, err) != 0)
        return -1;
    struct walk walk = {
        .search = search,
        .nearest_excess = INFINITY,
    };
    erg_mixed_views_init(&walk.views, search);
    erg_mixed_room_init(&walk.room, search);
    erg_layout_keeping_init(&walk.kept, found, search->top);
    walk.kept.each = search->each;
    walk.kept.context = search->context;
    int status = walk_groups(&walk, err);
    if (!status && found->count == 0)
        status = none_fits(&walk, err);
    if (!status)
        status = refine(&walk, err);
    erg_mixed_room_release(&walk.room);
    if (status)
        erg_layout_found_release(found);
    return status;
}
