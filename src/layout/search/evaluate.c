/* One layout of a search: its cost, or the reason why it does not fit. */
#include "base/memory.h"
#include "layout/search/layout_search_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void settle_rate(struct erg_layout_candidate *candidate)
{
    candidate->tokens_per_s =
        (double)(candidate->batch * candidate->layout.sequence) / candidate->time.total;
}

void erg_layout_settle_time(struct erg_layout_candidate *candidate,
                            const struct erg_layout_places *places)
{
    erg_time_compose_places(&candidate->time, places->time, places->count, &candidate->layout);
    settle_rate(candidate);
}

void erg_layout_follow(struct erg_layout_candidate *candidate, struct erg_time_follower *follower,
                       const struct erg_layout_places *places)
{
    erg_time_follow_places(&candidate->time, follower, places->time, places->count,
                           &candidate->layout);
    settle_rate(candidate);
}

long erg_layout_choose_batch(const struct erg_layout_search *search,
                             const struct erg_layout *layout)
{
    long step = layout->data * layout->microbatch;
    if (layout->virtual_stages > 1)
        step *= layout->pipeline;
    long batch = search->batch_most / step * step;
    return batch >= search->batch_least ? batch : 0;
}

double erg_layout_most_rate(const struct erg_layout_candidate *candidate)
{
    double seconds = candidate->bound_s > 0 ? candidate->bound_s : candidate->time.total;
    return (double)(candidate->batch * candidate->layout.sequence) / seconds;
}

static void *own(const void *array, size_t bytes)
{
    return array ? memcpy(erg_xmalloc(bytes), array, bytes) : NULL;
}

void erg_layout_own_lists(struct erg_layout_candidate *candidate)
{
    struct erg_layout *layout = &candidate->layout;
    size_t stages = (size_t)layout->pipeline, chunks = stages * (size_t)layout->virtual_stages;
    candidate->chunk_layers = own(layout->chunk_layers, chunks * sizeof(long));
    candidate->stage_recompute = own(layout->stage_recompute, stages * sizeof(enum erg_recompute));
    candidate->stage_offload = own(layout->stage_offload, stages * sizeof(double));
    layout->chunk_layers = candidate->chunk_layers;
    layout->stage_recompute = candidate->stage_recompute;
    layout->stage_offload = candidate->stage_offload;
}

void erg_layout_candidate_release(struct erg_layout_candidate *candidate)
{
    free(candidate->chunk_layers);
    free(candidate->stage_recompute);
    free(candidate->stage_offload);
}

/* Unequal stages for a layout whose layers cannot be divided equally: the fastest that fit. */
static void split_one(struct erg_layout_splitter *splitter, const struct erg_layout_places *places,
                      struct erg_layout *layout)
{
    if (erg_layout_split_fastest(splitter, places, layout, INFINITY) == INFINITY)
        erg_layout_split_of_any_memory(splitter, places, layout);
    layout->chunk_layers = splitter->chunk_layers;
}

/*
 * For a layout that fits its GPUs with no split: the split that needs the least memory, to half a
 * thousandth, so that the reported shortage is sufficient. False: a split fits.
 */
static bool split_nearest(struct erg_layout_splitter *splitter,
                          const struct erg_layout_places *places, struct erg_layout *layout)
{
    const struct erg_layout_search *search = places->on[0].search;
    struct erg_layout_kind larger = *places->on[0].kind;
    struct erg_layout_places there = *places;
    struct erg_layout tried = *layout;
    double low = 0, high = larger.memory_bytes;
    there.on[0].kind = &larger;
    larger.host_bytes = 0;
    if (search->per_stage)
        while (!(search->recomputes & 1u << tried.recompute) ||
               (search->recomputes >> tried.recompute) > 1)
            tried.recompute = (tried.recompute + 1) % ERG_RECOMPUTES;
    while (high < 0x1p60 &&
           erg_layout_split_fastest(splitter, &there, &tried, INFINITY) == INFINITY) {
        low = high;
        larger.memory_bytes = high = 2 * low;
    }
    if (low == 0 || high >= 0x1p60)
        return false;
    while (high > 1.0005 * low) {
        const double middle = larger.memory_bytes = (low + high) / 2;
        const bool fits = erg_layout_split_fastest(splitter, &there, &tried, INFINITY) < INFINITY;
        *(fits ? &high : &low) = middle;
    }
    larger.memory_bytes = high;
    erg_layout_split_fastest(splitter, &there, &tried, INFINITY);
    layout->chunk_layers = splitter->chunk_layers;
    return true;
}

/* Adds the stage of a too large layout that needs the most, and its largest item. */
static void say_binding(struct erg_error *err, const struct erg_layout *layout,
                        const struct erg_layout_places *places)
{
    const struct erg_error said = *err;
    struct erg_memory_stage worst = {0};
    long worst_stage = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
        const struct erg_memory_request request =
            erg_memory_request_of(on->search->model, layout, on->kind->engine);
        struct erg_memory_stage closed;
        erg_memory_closed(&closed, &request, &on->pieces->sizes, stage);
        if (closed.peak_bytes > worst.peak_bytes) {
            worst = closed;
            worst_stage = stage;
        }
    }
    const enum erg_memory_item item = erg_memory_largest(&worst);
    erg_fail(err, ERG_INFEASIBLE, "%s; most of stage %ld is %s (%.1f GiB)%s", said.message,
             worst_stage, erg_memory_item_name(item), worst.items[item] / 0x1p30,
             erg_memory_unsharded(item));
}

/* The same, with the recomputation whose split is the best start for settings per stage. */
static void split_stages(struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                         const struct erg_layout_places *places, struct erg_layout *layout)
{
    const struct erg_layout_search *search = places->on[0].search;
    const enum erg_recompute asked = layout->recompute;
    enum erg_recompute best = asked;
    double best_s = INFINITY, excess;
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        struct erg_layout_candidate candidate = {.layout = *layout};
        if (!(search->recomputes & 1u << recompute))
            continue;
        candidate.layout.recompute = (enum erg_recompute)recompute;
        split_one(splitter, places, &candidate.layout);
        if (erg_layout_settle_stages(&candidate, stages, places, search->recomputes, &excess) !=
            ERG_LAYOUT_FITS)
            continue;
        erg_layout_follow_split(&candidate, splitter, stages, places);
        if (candidate.time.total < best_s) {
            best_s = candidate.time.total;
            best = (enum erg_recompute)recompute;
        }
    }
    layout->recompute = best;
    split_one(splitter, places, layout);
    layout->recompute = asked;
}

/* Memory and time; the error names the shortage. */
static int settle_one(struct erg_layout_candidate *candidate, struct erg_layout_stages *stages,
                      const struct erg_layout_places *places, struct erg_error *err)
{
    const struct erg_layout *layout = &candidate->layout;
    const struct erg_layout_search *search = places->on[0].search;
    const struct erg_layout_kind *kind = places->on[0].kind;
    double excess = 0;
    enum erg_layout_verdict verdict = erg_layout_settle(candidate, stages, places, &excess);
    if (verdict == ERG_LAYOUT_TOO_LARGE && places->count > 1)
        return erg_fail(err, ERG_INFEASIBLE, "needs %.1f GiB more than available",
                        erg_layout_gib_up(excess));
    if (verdict == ERG_LAYOUT_TOO_LARGE) {
        bool offloads = erg_layout_can_offload(&places->on[0], layout);
        erg_fail(err, ERG_INFEASIBLE, "needs %.1f GiB more than the %.1f GiB of a GPU%s",
                 erg_layout_gib_up(search->per_stage ? excess
                                                     : erg_layout_memory_excess(layout, places)),
                 kind->memory_bytes / 0x1p30, offloads ? " with any offloading" : "");
        if (err) {
            candidate->layout.offload = offloads ? 1 : layout->offload;
            say_binding(err, layout, places);
        }
        return -1;
    }
    if (verdict == ERG_LAYOUT_HOST_TOO_SMALL)
        return erg_fail(err, ERG_INFEASIBLE,
                        "offloads %.1f GiB more to a node's host memory than its %.1f GiB",
                        erg_layout_gib_up(excess), kind->host_bytes / 0x1p30);
    return 0;
}

void erg_layout_describe_batch(char *text, size_t size, long least, long most)
{
    if (least == most)
        snprintf(text, size, "%ld", most);
    else
        snprintf(text, size, "%ld to %ld", least, most);
}

static int fail_batch(const struct erg_layout_search *search, const struct erg_layout *layout,
                      struct erg_error *err)
{
    const bool exact = search->batch_least == search->batch_most;
    char batch[64], stages[64] = "";
    erg_layout_describe_batch(batch, sizeof batch, search->batch_least, search->batch_most);
    if (layout->virtual_stages > 1)
        snprintf(stages, sizeof stages, " x pipeline %ld, as interleaving needs", layout->pipeline);
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s batch of %s sequences is %s multiple of data %ld x "
                    "microbatch %ld%s",
                    exact ? "a" : "no", batch, exact ? "not a" : "a", layout->data,
                    layout->microbatch, stages);
}

/* The data degree and the block of a layout on one kind. */
static int fill_data(struct erg_layout_candidate *candidate, const struct erg_layout_search *search,
                     struct erg_error *err)
{
    struct erg_layout *own = &candidate->layout;
    const long node_gpus = search->kinds[0].machine.node_gpus;
    const long most = search->group_most > 0 ? search->group_most : node_gpus;
    const long pipeline = own->tensor * own->context * own->pipeline;
    if (erg_layout_check_group(own, search->gpus, most, err) != 0) {
        if (err)
            err->status = ERG_INFEASIBLE;
        return -1;
    }
    if (pipeline < 1 || search->gpus % pipeline != 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "tensor %ld x context %ld x pipeline %ld are %ld GPUs, and %ld is not a "
                        "multiple of that",
                        own->tensor, own->context, own->pipeline, pipeline, search->gpus);
    own->data = search->gpus / pipeline;
    candidate->blocks[0] = (struct erg_layout_block){.stages = own->pipeline};
    candidate->block_count = 1;
    return 0;
}

/*
 * Sets batch and microbatches, and checks that the layers can be divided; `chunks_differ`: not
 * necessarily equally.
 */
static int fill_batch(struct erg_layout_candidate *candidate,
                      const struct erg_layout_search *search, bool chunks_differ,
                      struct erg_error *err)
{
    struct erg_layout *own = &candidate->layout;
    own->sequence = search->sequence;
    own->offload = search->offload ? 0 : own->offload;
    candidate->batch = erg_layout_choose_batch(search, own);
    if (!candidate->batch)
        return fail_batch(search, own, err);
    own->microbatches = candidate->batch / (own->data * own->microbatch);
    if (!own->chunk_layers && !erg_layout_holds_dense(own, search->model))
        return erg_fail(err, ERG_INFEASIBLE,
                        "the first of %ld stages has fewer layers than the %ld of %s without "
                        "experts; expected at most %ld stages",
                        own->pipeline, search->model->experts.dense_layers, search->model->name,
                        search->model->layers / search->model->experts.dense_layers);
    struct erg_layout checked = *own;
    if (chunks_differ)
        checked.pipeline = checked.virtual_stages = 1;
    const struct erg_memory_request memory =
        erg_memory_request_of(search->model, own, search->kinds[0].engine);
    if (erg_layout_check(&checked, search->model, err) || erg_memory_check(&memory, err)) {
        if (err)
            err->status = ERG_INFEASIBLE;
        return -1;
    }
    return 0;
}

/* Settles offloading, memory and time for the layout's own chunks or, if `split`, the fastest. */
static int settle_chunks(struct erg_layout_candidate *candidate, bool split,
                         const struct erg_layout_places *places, struct erg_error *err)
{
    const struct erg_layout_search *search = places->on[0].search;
    struct erg_layout_splitter splitter;
    struct erg_layout_stages stages;
    erg_layout_splitter_init(&splitter, search->model->layers);
    erg_layout_stages_init(&stages, search->model->layers);
    if (split && search->per_stage)
        split_stages(&splitter, &stages, places, &candidate->layout);
    else if (split)
        split_one(&splitter, places, &candidate->layout);
    const double offload = candidate->layout.offload;
    int status = settle_one(candidate, &stages, places, err);
    if (status && split && err && places->count == 1 &&
        split_nearest(&splitter, places, &candidate->layout)) {
        candidate->layout.offload = offload;
        settle_one(candidate, &stages, places, err);
    }
    if (!status && split)
        erg_layout_follow_split(candidate, &splitter, &stages, places);
    else if (!status)
        erg_layout_follow(candidate, splitter.follower, places);
    if (!status)
        erg_layout_own_lists(candidate);
    if (!status && split)
        erg_layout_refine_split(candidate, &splitter, &stages, places, INFINITY);
    if (!status)
        erg_layout_fill_peaks(candidate, places);
    erg_layout_stages_release(&stages);
    erg_layout_splitter_release(&splitter);
    return status;
}

/* A candidate with given degrees and blocks. */
static int evaluate(struct erg_layout_candidate *candidate, const struct erg_layout_search *search,
                    struct erg_error *err)
{
    const struct erg_layout *layout = &candidate->layout;
    const long chunks = layout->pipeline * layout->virtual_stages, layers = search->model->layers;
    const bool divides = chunks > 0 && layers % chunks == 0;
    const bool split = !search->equal_stages && !layout->chunk_layers && layout->pipeline > 1 &&
                       !erg_layout_is_sharded(layout) && chunks < layers &&
                       (layout->cut == ERG_CUT_ANY || (layout->cut == ERG_CUT_EVENLY && !divides));
    struct erg_layout_site site;
    struct erg_layout_places places;
    if (fill_batch(candidate, search, split, err) != 0)
        return -1;
    erg_layout_site_init(&site, search);
    erg_layout_places_init(&places, &site, layout, candidate->blocks, candidate->block_count);
    if (!split || !divides)
        return settle_chunks(candidate, split, &places, err);
    struct erg_layout_candidate differing = *candidate;
    const int equal_status = settle_chunks(candidate, false, &places, NULL);
    const double equal_s = equal_status ? INFINITY : candidate->time.total;
    if (settle_chunks(&differing, true, &places, equal_status ? err : NULL) != 0)
        return equal_status;
    if (differing.time.total < equal_s) {
        if (!equal_status)
            erg_layout_candidate_release(candidate);
        *candidate = differing;
    } else {
        candidate->bound_s = fmin(differing.bound_s, equal_s);
        erg_layout_candidate_release(&differing);
    }
    return 0;
}

int erg_layout_evaluate(struct erg_layout_candidate *candidate,
                        const struct erg_layout_search *search, const struct erg_layout *layout,
                        const struct erg_layout_block *blocks, size_t count, struct erg_error *err)
{
    *candidate = (struct erg_layout_candidate){.block_count = count};
    for (size_t i = 0; i < count; i++)
        candidate->blocks[i] = blocks[i];
    candidate->layout = *layout;
    if (erg_layout_check_search(search, err) != 0 ||
        (count == 0 && fill_data(candidate, search, err) != 0))
        return -1;
    return evaluate(candidate, search, err);
}
