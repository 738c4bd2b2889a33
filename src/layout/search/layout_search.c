/* The walk over all layouts of a job. */
#include "layout/search/layout_search.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/text.h"
#include "layout/search/layout_search_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct walk {
    const struct erg_layout_search *search;
    struct erg_layout_shortlist list;
    bool any; /* any layout will do; layouts that do not fit are ignored */
    struct erg_layout_site site;
    struct erg_layout_places places; /* of the current stages and blocks */
    const struct erg_layout_block *blocks;
    struct erg_layout_splitter splitter;
    struct erg_layout_stages own; /* of search->per_stage */
    /* The layout nearest to fitting, while none fits; without its pointers. */
    struct erg_layout_candidate nearest;
    double nearest_excess, nearest_host_excess;
};

/* Whether the search is complete. */
static bool is_done(const struct walk *walk)
{
    return walk->any && walk->list.found->count > 0;
}

/* Seconds above which a layout with this batch is of no interest, or slower than all kept ones. */
static double slowest_wanted(const struct walk *walk, long batch)
{
    const struct erg_layout_search *search = walk->search;
    if (search->each)
        return search->limit_s > 0 ? search->limit_s * (1 + 1e-9) : INFINITY;
    const double rate = erg_layout_shortlist_least_rate(&walk->list);
    return rate > 0 ? (double)(batch * search->sequence) / rate : INFINITY;
}

/* A layout on the current blocks. */
static struct erg_layout_candidate candidate_of(const struct walk *walk,
                                                const struct erg_layout *layout, long batch)
{
    struct erg_layout_candidate candidate = {
        .layout = *layout, .batch = batch, .block_count = walk->places.count};
    memcpy(candidate.blocks, walk->blocks, walk->places.count * sizeof *walk->blocks);
    return candidate;
}

static void note_unfit(struct walk *walk, const struct erg_layout_candidate *candidate,
                       enum erg_layout_verdict verdict, double excess)
{
    walk->list.found->memory += verdict == ERG_LAYOUT_TOO_LARGE;
    walk->list.found->host_memory += verdict == ERG_LAYOUT_HOST_TOO_SMALL;
    if (walk->list.found->count > 0 || walk->any)
        return;
    if (verdict == ERG_LAYOUT_HOST_TOO_SMALL)
        walk->nearest_host_excess = fmin(walk->nearest_host_excess, excess);
    if (verdict == ERG_LAYOUT_TOO_LARGE && excess < walk->nearest_excess &&
        !walk->search->per_stage)
        excess = erg_layout_memory_excess(&candidate->layout, &walk->places);
    if (verdict == ERG_LAYOUT_TOO_LARGE && excess < walk->nearest_excess) {
        walk->nearest_excess = excess;
        walk->nearest = *candidate;
    }
}

/*
 * Records a layout that fits with no split, if it may be the nearest to fitting. With several
 * kinds, which have many such layouts, only one that lacks little qualifies.
 */
static bool is_far(struct walk *walk, const struct erg_layout *layout)
{
    const struct erg_layout_search *search = walk->search;
    if (search->kind_count == 1 ||
        (walk->list.found->count == 0 && !walk->any && layout->virtual_stages == 1 &&
         search->recomputes >> layout->recompute == 1 &&
         erg_layout_may_miss(&walk->places, layout, walk->nearest_excess)))
        return false;
    walk->list.found->memory++;
    return true;
}

/* Whether a layout may be among the fastest, by the closed form, which is enough for the others. */
static bool may_be_kept(const struct walk *walk, const struct erg_layout_candidate *candidate)
{
    return candidate->tokens_per_s >= erg_layout_shortlist_least_rate(&walk->list);
}

static void note_fit(struct walk *walk, struct erg_layout_candidate *candidate)
{
    erg_layout_fill_peaks(candidate, &walk->places);
    walk->list.found->feasible++;
    erg_layout_shortlist_add(&walk->list, candidate);
}

/*
 * Considers equal stages, or the layout's own chunks. Returns its seconds; INFINITY: it does not
 * fit or is slower than all kept layouts.
 */
static double consider(struct walk *walk, const struct erg_layout *layout, long batch)
{
    struct erg_layout_candidate candidate = candidate_of(walk, layout, batch);
    double excess = 0;
    walk->list.found->evaluated++;
    erg_layout_settle_time(&candidate, &walk->places);
    if (candidate.time.total > slowest_wanted(walk, batch)) {
        walk->list.found->slower++;
        return INFINITY;
    }
    enum erg_layout_verdict verdict = erg_layout_settle_memory(&candidate, &walk->places, &excess);
    if (verdict != ERG_LAYOUT_FITS) {
        note_unfit(walk, &candidate, verdict, excess);
        return INFINITY;
    }
    if (candidate.layout.offload > 0)
        erg_layout_settle_time(&candidate, &walk->places);
    if (may_be_kept(walk, &candidate))
        erg_layout_follow(&candidate, walk->splitter.follower, &walk->places);
    note_fit(walk, &candidate);
    return candidate.time.total;
}

/*
 * Considers the fastest split into unequal stages, if it is faster than `equal_s`, the time of
 * equal stages.
 */
static void consider_splits(struct walk *walk, const struct erg_layout *layout, long batch,
                            double equal_s)
{
    struct erg_layout_splitter *splitter = &walk->splitter;
    double wanted = slowest_wanted(walk, batch), excess = 0;
    equal_s *= 1 - 1e-12;
    double limit = fmin(equal_s, nextafter(wanted, INFINITY));
    if (limit < INFINITY) {
        double bound = erg_layout_split_bound(splitter, &walk->places, layout, limit);
        if (bound >= equal_s)
            return;
        if (bound > wanted) {
            walk->list.found->evaluated++;
            walk->list.found->slower++;
            return;
        }
    }
    walk->list.found->evaluated++;
    double seconds = erg_layout_may_fit(&walk->places, layout, 1u << layout->recompute)
                         ? erg_layout_split_fastest(splitter, &walk->places, layout, limit)
                         : INFINITY;
    if (seconds == INFINITY && limit < INFINITY) {
        if (wanted < INFINITY)
            walk->list.found->slower++;
        else
            walk->list.found->evaluated--; /* equal stages are the fastest split */
        return;
    }
    if (seconds == INFINITY && is_far(walk, layout))
        return;
    if (seconds == INFINITY)
        erg_layout_split_of_any_memory(splitter, &walk->places, layout);
    struct erg_layout_candidate candidate = candidate_of(walk, layout, batch);
    candidate.layout.chunk_layers = splitter->chunk_layers;
    enum erg_layout_verdict verdict = erg_layout_settle_memory(&candidate, &walk->places, &excess);
    if (verdict != ERG_LAYOUT_FITS) {
        note_unfit(walk, &candidate, verdict, excess);
        return;
    }
    erg_layout_settle_time(&candidate, &walk->places);
    candidate.bound_s = fmin(seconds, candidate.time.total);
    if (may_be_kept(walk, &candidate))
        erg_layout_follow_split(&candidate, splitter, NULL, &walk->places);
    note_fit(walk, &candidate);
}

/*
 * The least seconds of any split regardless of memory: everything except messages is divided so
 * that all stages end at once. For stages in several places is_too_slow() checks this.
 */
static double floor_s(const struct walk *walk, const struct erg_layout *layout)
{
    const struct erg_time_place *place = &walk->places.time[0];
    const struct erg_time_parts *parts = place->parts;
    double stages = (double)layout->pipeline, chunks = (double)layout->virtual_stages;
    double layers = (double)walk->search->model->layers;
    if (walk->places.count > 1)
        return 0;
    const double dense = (double)walk->search->model->experts.dense_layers;
    double layer_s = parts->forward_s + parts->backward_s + parts->recompute_s[layout->recompute];
    double dense_s = parts->dense.forward_s + parts->dense.backward_s +
                     parts->dense.recompute_s[layout->recompute];
    double stage_s = ((layers - dense) * layer_s + dense * dense_s + parts->head_s +
                      erg_time_messages(place, layout)) /
                     stages;
    double parameters =
        (layers - dense) * parts->layer_parameters + dense * parts->dense.parameters;
    double once_s = parameters / stages * (place->gradient_s + place->optimizer_s) +
                    (layers - dense) * parts->expert_parameters / stages *
                        (place->expert_gradient_s + place->expert_optimizer_s);
    double passes = (double)layout->microbatches + (stages - 1) / chunks;
    return (passes * stage_s + once_s + erg_time_passage(place, 1, layout)) * (1 - 1e-12);
}

/* Considers some recomputations of a layout: with equal and with unequal stages. */
static void consider_recomputes(struct walk *walk, struct erg_layout *layout, unsigned recomputes,
                                bool equal, bool unequal, long batch)
{
    for (int recompute = ERG_RECOMPUTE_NONE; recompute < ERG_RECOMPUTES && !is_done(walk);
         recompute++) {
        if (!(recomputes & 1u << recompute))
            continue;
        layout->recompute = (enum erg_recompute)recompute;
        if (floor_s(walk, layout) > slowest_wanted(walk, batch)) {
            walk->list.found->evaluated += equal + unequal;
            walk->list.found->slower += equal + unequal;
            continue;
        }
        if (walk->any && !erg_layout_may_fit(&walk->places, layout, 1u << recompute))
            continue;
        double equal_s = equal ? consider(walk, layout, batch) : INFINITY;
        if (unequal && !is_done(walk))
            consider_splits(walk, layout, batch, equal_s);
    }
}

/* ---- settings per stage ---- */

/* Takes the candidate if it is faster than the best of its degrees. */
static void keep_faster(struct erg_layout_candidate *best, const struct erg_layout_candidate *one)
{
    if (best->time.total > 0 && best->time.total <= one->time.total)
        return;
    erg_layout_candidate_release(best);
    *best = *one;
    erg_layout_own_lists(best);
}

/* Settles the current chunks. */
static void settle_stages(struct walk *walk, struct erg_layout_candidate *best,
                          struct erg_layout_candidate *candidate, enum erg_layout_verdict *verdict,
                          double *excess)
{
    double missing = INFINITY;
    enum erg_layout_verdict own = erg_layout_settle_stages(candidate, &walk->own, &walk->places,
                                                           walk->search->recomputes, &missing);
    if (own != ERG_LAYOUT_TOO_LARGE)
        *verdict = own;
    else
        *excess = fmin(*excess, missing);
    if (own != ERG_LAYOUT_FITS)
        return;
    if (candidate->layout.chunk_layers && may_be_kept(walk, candidate))
        erg_layout_follow_split(candidate, &walk->splitter, &walk->own, &walk->places);
    else if (may_be_kept(walk, candidate))
        erg_layout_follow(candidate, walk->splitter.follower, &walk->places);
    keep_faster(best, candidate);
}

/*
 * Considers the same degrees once, with equal stages or with the fastest splits for one common
 * recomputation and ratio. The time without offloading and with the fastest recomputation is their
 * lower bound.
 */
static void consider_stages(struct walk *walk, struct erg_layout *layout, bool equal, bool unequal,
                            long batch)
{
    const struct erg_layout_search *search = walk->search;
    double wanted = slowest_wanted(walk, batch), excess = INFINITY;
    struct erg_layout_candidate best = {0};
    enum erg_layout_verdict verdict = ERG_LAYOUT_TOO_LARGE;
    struct erg_layout_candidate candidate = candidate_of(walk, layout, batch);
    erg_layout_take_least_recomputes(layout, &walk->own, &walk->places);
    walk->list.found->evaluated++;
    double bound = floor_s(walk, layout);
    if (bound <= wanted && unequal)
        bound = erg_layout_split_bound(&walk->splitter, &walk->places, layout, wanted);
    layout->stage_recompute = NULL;
    if (bound > wanted) {
        walk->list.found->slower++;
        return;
    }
    if (equal)
        settle_stages(walk, &best, &candidate, &verdict, &excess);
    for (int recompute = ERG_RECOMPUTE_NONE; unequal && recompute < ERG_RECOMPUTES; recompute++) {
        layout->recompute = (enum erg_recompute)recompute;
        if (!(search->recomputes & 1u << recompute) ||
            !erg_layout_may_fit(&walk->places, layout, 1u << recompute) ||
            erg_layout_split_fastest(&walk->splitter, &walk->places, layout, INFINITY) == INFINITY)
            continue;
        candidate = candidate_of(walk, layout, batch);
        candidate.layout.chunk_layers = walk->splitter.chunk_layers;
        settle_stages(walk, &best, &candidate, &verdict, &excess);
    }
    if (best.time.total == 0 && verdict == ERG_LAYOUT_TOO_LARGE && isinf(excess)) {
        while (!(search->recomputes & 1u << layout->recompute))
            layout->recompute--; /* the one with the least memory represents all */
        if (is_far(walk, layout))
            return;
        erg_layout_split_of_any_memory(&walk->splitter, &walk->places, layout);
        candidate.layout.chunk_layers = walk->splitter.chunk_layers;
        settle_stages(walk, &best, &candidate, &verdict, &excess);
    }
    best.bound_s = fmin(bound, best.time.total);
    if (best.time.total > wanted) {
        walk->list.found->slower++;
        walk->list.others = fmax(walk->list.others, erg_layout_most_rate(&best));
    } else if (best.time.total > 0) {
        note_fit(walk, &best);
    } else {
        note_unfit(walk, &candidate, verdict, excess);
    }
    erg_layout_candidate_release(&best);
}

/* ---- the walk ---- */

static long least_of(long a, long b)
{
    return a < b ? a : b;
}

static long most_of(long a, long b)
{
    return a > b ? a : b;
}

static bool is_asked(long degree, long only)
{
    return only == 0 || degree == only;
}

/* All chunks and some recomputations of stages on these blocks. */
static void walk_chunks(struct walk *walk, struct erg_layout *layout,
                        const struct erg_layout_block *blocks, size_t count, unsigned recomputes)
{
    const struct erg_layout_search *search = walk->search;
    const long layers = search->model->layers, stages = layout->pipeline;
    const long most = stages > 1 && !search->model->experts.count ? layers / stages : 1;
    if (!erg_layout_holds_dense(layout, search->model))
        return;
    erg_layout_places_init(&walk->places, &walk->site, layout, blocks, count);
    walk->blocks = blocks;
    const bool alike = count == 1 || erg_time_places_are_alike(walk->places.time, count);
    long batch = 0;
    for (long chunks = 1; chunks <= most && !is_done(walk); chunks++) {
        const bool equal = (alike || search->equal_stages) && layers % (stages * chunks) == 0;
        const bool unequal = !search->equal_stages && stages > 1 &&
                             (stages * chunks < layers || (!alike && stages * chunks == layers));
        layout->virtual_stages = chunks;
        if (chunks <= 2) { /* all interleaved schedules need the same batch */
            batch = erg_layout_choose_batch(search, layout);
            layout->microbatches = batch / (layout->data * layout->microbatch);
        }
        if (!batch || !(equal || unequal) || !is_asked(chunks, search->only.virtual_stages) ||
            (walk->any && !erg_layout_may_fit(&walk->places, layout, search->recomputes)))
            continue;
        if (search->per_stage)
            consider_stages(walk, layout, equal, unequal, batch);
        else
            consider_recomputes(walk, layout, recomputes, equal, unequal, batch);
    }
}

/*
 * The same with weights sharded over some of the ranks of its stage, which a bound by degrees alone
 * does not include.
 */
static void walk_shards(struct walk *walk, struct erg_layout *layout,
                        const struct erg_layout_block *blocks, size_t count)
{
    const struct erg_layout_search *search = walk->search;
    const long ranks = layout->data * layout->context, only = search->only.fsdp;
    if (!search->fsdp || layout->pipeline > 1 || count > 1 ||
        search->kinds[blocks[0].kind].engine->static_memory)
        return;
    for (long shards = 2; shards <= ranks && !is_done(walk); shards++) {
        if (ranks % shards != 0 || shards % layout->context != 0 || !is_asked(shards, only))
            continue;
        layout->fsdp = shards;
        walk_chunks(walk, layout, blocks, count, search->recomputes);
    }
    layout->fsdp = 0;
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
 * Whether stages on several kinds are slower than all kept layouts for any order, chunks and
 * recomputation: a microbatch takes at least the time in which all GPUs only run layers, divided so
 * that all stages end at once. On one kind floor_s() is the tighter bound.
 */
static bool is_too_slow(struct walk *walk, const struct erg_layout *layout,
                        const struct erg_layout_block *blocks, size_t count)
{
    const struct erg_layout_search *search = walk->search;
    const long replicas = layout->data * layout->microbatch; /* sequences of a microbatch */
    const long microbatches = replicas < search->batch_least ? search->batch_least / replicas : 1;
    double layers_per_s = 0;
    if (search->kind_count == 1)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_parts *parts =
            &erg_layout_site_pieces(&walk->site, blocks[i].kind, true, layout)->parts;
        double layer_s = parts->forward_s + parts->backward_s;
        if (search->model->experts.dense_layers > 0)
            layer_s = fmin(layer_s, parts->dense.forward_s + parts->dense.backward_s);
        layers_per_s += (double)blocks[i].stages / layer_s;
    }
    double microbatch_s = (double)search->model->layers / layers_per_s;
    return microbatch_s * (double)microbatches > slowest_wanted(walk, microbatches * replicas);
}

/* The recomputations with which stages on these blocks may be among the requested layouts. */
static unsigned wanted_recomputes(struct walk *walk, const struct erg_layout *layout,
                                  const struct erg_layout_block *blocks, size_t count)
{
    const struct erg_layout_search *search = walk->search;
    if (is_too_slow(walk, layout, blocks, count))
        return 0;
    return search->wanted ? search->wanted(search->context, layout, blocks, count)
                          : search->recomputes;
}

/* Whether the groups of the given number of stages are within nodes. */
static bool hold_groups(const struct erg_layout_kind *kind, const struct erg_layout *layout,
                        long stages)
{
    const long group = layout->tensor * layout->context;
    return erg_nodes_hold_groups(kind->machine.node_gpus, group, stages * group * layout->data);
}

/* The fewest and the most stages that a kind may have after the given number of other stages. */
static void find_range(long *least, long *most, const struct walk *walk,
                       const struct erg_layout *layout, size_t kind)
{
    const struct erg_layout_search *search = walk->search;
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

/*
 * All numbers of stages on the kinds from `kind` on, most first, since these may be the fastest;
 * the blocks contain the earlier kinds.
 */
static void walk_stages(struct walk *walk, struct erg_layout *layout,
                        struct erg_layout_block *blocks, size_t count, size_t kind)
{
    const struct erg_layout_search *search = walk->search;
    const long stages = layout->pipeline;
    long least, most;
    if (kind == search->kind_count) {
        if (count == 0 || !is_asked(layout->pipeline, search->only.pipeline))
            return;
        const unsigned recomputes = wanted_recomputes(walk, layout, blocks, count);
        if (!is_asked(1, search->only.fsdp))
            ;
        else if (recomputes)
            walk_orders(walk, layout, blocks, count, 0, recomputes);
        else
            walk->list.found->bounded++;
        walk_shards(walk, layout, blocks, count);
        return;
    }
    find_range(&least, &most, walk, layout, kind);
    for (long own = most; own >= least && !is_done(walk); own--) {
        if (own > 0 && !hold_groups(&search->kinds[kind], layout, own))
            continue;
        blocks[count] = (struct erg_layout_block){.kind = kind, .stages = own};
        layout->pipeline = stages + own;
        walk_stages(walk, layout, blocks, count + (own > 0), kind + 1);
    }
    layout->pipeline = stages;
}

/* The most groups of t c GPUs that one stage can have. */
static long most_data_of(const struct erg_layout_search *search, const struct erg_layout *layout)
{
    const long group = layout->tensor * layout->context;
    long most = 0;
    for (size_t k = 0; k < search->kind_count; k++)
        most = most_of(most, search->kinds[k].gpus / group);
    return least_of(most, search->batch_most / layout->microbatch);
}

/* All degrees over which the experts may be spread. */
static void walk_experts(struct walk *walk, struct erg_layout *layout,
                         struct erg_layout_block *blocks)
{
    const struct erg_layout_search *search = walk->search;
    const long count = search->model->experts.count;
    layout->expert = 0;
    layout->expert_capacity = search->expert_capacity;
    if (is_asked(1, search->only.expert))
        walk_stages(walk, layout, blocks, 0, 0);
    for (long expert = 2; expert <= count && expert <= layout->data && !is_done(walk); expert++) {
        if (count % expert != 0 || layout->data % expert != 0 ||
            !is_asked(expert, search->only.expert))
            continue;
        layout->expert = expert;
        walk_stages(walk, layout, blocks, 0, 0);
    }
    layout->expert = 0;
}

static void walk_microbatches(struct walk *walk, long tensor, long context)
{
    const struct erg_layout_search *search = walk->search;
    const bool exact = search->batch_least == search->batch_most;
    const long rest = search->gpus / (tensor * context); /* groups of an exact number */
    long most = search->batch_most;
    if (search->microbatch_most > 0)
        most = least_of(most, search->microbatch_most);
    for (long microbatch = 1; microbatch <= most && !is_done(walk); microbatch++) {
        if (!is_asked(microbatch, search->only.microbatch) ||
            (exact && search->batch_most % microbatch != 0))
            continue;
        struct erg_layout_block blocks[ERG_LAYOUT_MOST_KINDS];
        struct erg_layout layout = {
            .tensor = tensor,
            .context = context,
            .microbatch = microbatch,
            .sequence = search->sequence,
        };
        const long most_data = most_data_of(search, &layout);
        for (long i = 1; i <= (rest ? search->model->layers : most_data); i++) {
            layout.data = rest ? rest / i : most_data + 1 - i; /* of an exact number i stages */
            if ((rest && rest % i != 0) || layout.data > most_data ||
                !is_asked(layout.data, search->only.data) ||
                (exact && search->batch_most % (microbatch * layout.data) != 0))
                continue;
            walk_experts(walk, &layout, blocks);
        }
    }
}

/* Whether the model can be split over such a group. */
static bool is_group(const struct erg_layout_search *search, long tensor, long context)
{
    struct erg_model padded = *search->model;
    padded.vocab = erg_layout_vocabulary(search->model, tensor);
    if (context > 1 && (padded.experts.count || padded.latent.keys))
        return false;
    return search->gpus % (tensor * context) == 0 && is_asked(tensor, search->only.tensor) &&
           is_asked(context, search->only.context) &&
           erg_model_check_tensor(&padded, tensor, NULL) == 0 &&
           erg_model_check_sequence(search->model, context, search->sequence, NULL) == 0 &&
           search->sequence / context % tensor == 0;
}

/* Ergon's own training runs on all GPUs or none. */
static int check_accountings(const struct erg_layout_search *search, struct erg_error *err)
{
    const bool own = search->kinds[0].engine->static_memory;
    for (size_t k = 1; k < search->kind_count; k++)
        if (search->kinds[k].engine->static_memory != own)
            return erg_fail(
                err, ERG_FAILED,
                "the engine %s trains on %s and %s on %s, but ergon's own training "
                "cannot share a pipeline with another engine; expected one of them for all nodes",
                search->kinds[0].engine->name, search->kinds[0].name, search->kinds[k].engine->name,
                search->kinds[k].name);
    return 0;
}

/* Checks the conditions for which every layout would be refused. */
static int check_model(const struct erg_layout_search *search, struct erg_error *err)
{
    const struct erg_layout none = {.pipeline = 1};
    const struct erg_memory_request request =
        erg_memory_request_of(search->model, &none, search->kinds[0].engine);
    const struct erg_experts *experts = &search->model->experts;
    if (experts->dense_layers > 0 && !experts->dense_first)
        return erg_layout_check_experts(&none, search->model, err);
    return erg_memory_check(&request, err);
}

int erg_layout_check_search(const struct erg_layout_search *search, struct erg_error *err)
{
    if (search->kind_count < 1 || search->kind_count > ERG_LAYOUT_MOST_KINDS)
        return erg_fail(err, ERG_FAILED, "expected 1 to %d kinds of GPUs, got %zu",
                        ERG_LAYOUT_MOST_KINDS, search->kind_count);
    if (search->gpus < 0 || search->gpus > 1000000 || search->sequence < 1 || search->top < 1)
        return erg_fail(err, ERG_FAILED,
                        "expected up to a million GPUs, a sequence and at least one layout to "
                        "keep");
    for (size_t k = 0; k < search->kind_count && search->kind_count > 1; k++)
        if (!(search->kinds[k].machine.network_bandwidth > 0))
            return erg_fail(err, ERG_FAILED,
                            "stages on GPUs of several kinds send over the network, but that of "
                            "the nodes with %s is unknown",
                            search->kinds[k].name);
    if (check_accountings(search, err) != 0 || check_model(search, err) != 0)
        return -1;
    if (search->batch_least < 1 || search->batch_most < search->batch_least)
        return erg_fail(err, ERG_FAILED, "expected a batch of at least 1 sequence, got %ld to %ld",
                        search->batch_least, search->batch_most);
    return erg_model_check_sequence(search->model, 1, search->sequence, err);
}

/* The error if no layout fits, or none uses these GPUs, with the nearest one. */
static int fail_unfit(const struct walk *walk, struct erg_error *err)
{
    const struct erg_layout *layout = &walk->nearest.layout;
    const struct erg_layout_results *found = walk->list.found;
    const struct erg_layout_search *search = walk->search;
    const bool mixed = search->kind_count > 1;
    const char *model = search->model->name;
    struct erg_text text = {0};
    char batch[64], where[64] = "these GPUs";
    erg_layout_describe_batch(batch, sizeof batch, search->batch_least, search->batch_most);
    if (!mixed)
        snprintf(where, sizeof where, "%ld GPUs", search->gpus);
    if (found->memory + found->host_memory == 0)
        erg_text_printf(&text, "no layout of %s %sspreads a batch of %s sequences over %s", model,
                        mixed ? "that was requested " : "", batch, where);
    else if (found->host_memory > 0 && !mixed)
        erg_text_printf(
            &text,
            "no layout of %s on %s fits: all that fit into their memory offload at least "
            "%.1f GiB more than the %.1f GiB of a node's host memory",
            model, where, erg_layout_gib_up(walk->nearest_host_excess),
            search->kinds[0].host_bytes / 0x1p30);
    else if (mixed)
        erg_text_printf(&text, "no layout of %s with a batch of %s sequences fits on %s", model,
                        batch, where);
    else
        erg_text_printf(&text, "no layout of %s on %s fits into %.1f GiB", model, where,
                        search->kinds[0].memory_bytes / 0x1p30);
    if (isfinite(walk->nearest_excess) && (mixed || found->host_memory == 0)) {
        erg_text_printf(&text, "; nearest is tensor %ld, context %ld, ", layout->tensor,
                        layout->context);
        if (mixed)
            erg_text_printf(&text, "data %ld, ", layout->data);
        if (search->model->experts.count)
            erg_text_printf(&text, "expert %ld, ", erg_layout_experts(layout));
        erg_text_printf(&text, "pipeline %ld, %ld chunks a stage, microbatch %ld, recompute %s, ",
                        layout->pipeline, layout->virtual_stages, layout->microbatch,
                        search->per_stage ? "per stage" : erg_recompute_name(layout->recompute));
        if (erg_layout_is_sharded(layout))
            erg_text_printf(&text, "fsdp %ld, ", layout->fsdp);
        erg_text_printf(
            &text, mixed ? "which fits with %.1f GiB more per GPU" : "which needs %.1f GiB more",
            erg_layout_gib_up(walk->nearest_excess));
    } else if (mixed && found->evaluated > 0) {
        erg_text_printf(&text, ": %llu were tried, with all placements of stages",
                        (unsigned long long)found->evaluated);
    }
    erg_fail(err, ERG_INFEASIBLE, "%s", text.data);
    erg_text_release(&text);
    return -1;
}

static long most_group(const struct erg_layout_search *search)
{
    long most = search->group_most;
    for (size_t k = 0; k < search->kind_count && search->group_most == 0; k++)
        most = most_of(most, search->kinds[k].machine.node_gpus);
    return most;
}

static int walk_all(struct erg_layout_results *found, const struct erg_layout_search *search,
                    bool any, struct erg_error *err)
{
    struct walk walk = {
        .search = search,
        .any = any,
        .nearest_excess = INFINITY,
        .nearest_host_excess = INFINITY,
    };
    *found = (struct erg_layout_results){0};
    if (erg_layout_check_search(search, err) != 0)
        return -1;
    const long most = most_group(search);
    erg_layout_site_init(&walk.site, search);
    erg_layout_shortlist_init(&walk.list, found, search);
    erg_layout_splitter_init(&walk.splitter, search->model->layers);
    erg_layout_stages_init(&walk.own, search->model->layers);
    int status = 0;
    for (long tensor = 1; tensor <= most && !status && !is_done(&walk); tensor++) {
        for (long context = 1; context <= most / tensor && !status; context++) {
            status = erg_interrupt_check(err);
            if (!status && is_group(search, tensor, context))
                walk_microbatches(&walk, tensor, context);
        }
        erg_progress("layouts", (size_t)tensor, (size_t)most);
    }
    if (!status && found->count == 0 && !any)
        status = fail_unfit(&walk, err);
    if (!status && !any)
        status =
            erg_layout_shortlist_refine(&walk.list, &walk.site, &walk.splitter, &walk.own, err);
    erg_layout_splitter_release(&walk.splitter);
    erg_layout_stages_release(&walk.own);
    if (status)
        erg_layout_results_release(found);
    return status;
}

int erg_layout_search(struct erg_layout_results *found, const struct erg_layout_search *search,
                      struct erg_error *err)
{
    return walk_all(found, search, false, err);
}

bool erg_layout_any_fits(const struct erg_layout_search *search)
{
    struct erg_layout_search one = *search;
    struct erg_layout_results found;
    one.top = 1;
    one.each = NULL;
    if (walk_all(&found, &one, true, NULL) != 0)
        return false;
    bool any = found.count > 0;
    erg_layout_results_release(&found);
    return any;
}
