#include "layout/search/search.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "layout/search/walk_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the walk ---- */

static double gradient_bandwidth(struct erg_layout_walk *walk, const struct erg_layout *layout)
{
    double *bandwidth = &walk->gradient_bandwidths[layout->pipeline];
    if (*bandwidth == 0)
        *bandwidth = erg_time_group_bandwidth(&walk->search->time, layout->tensor,
                                              layout->context * layout->data, walk->search->gpus);
    return *bandwidth;
}

/* Whether nothing more is wanted. */
static bool is_done(const struct erg_layout_walk *walk)
{
    return walk->any && walk->kept.found->count > 0;
}

/* Seconds above which a layout with this batch is slower than all that are kept. */
static double slowest_wanted(const struct erg_layout_walk *walk, const struct erg_layout *layout,
                             long batch)
{
    const double rate = walk->search->each ? 0 : erg_layout_keeping_least_rate(&walk->kept);
    return rate > 0 ? (double)(batch * layout->sequence) / rate : INFINITY;
}

static void note_unfit(struct erg_layout_walk *walk, const struct erg_layout_candidate *candidate,
                       enum erg_layout_verdict verdict, double excess)
{
    walk->kept.found->memory += verdict == ERG_LAYOUT_TOO_LARGE;
    walk->kept.found->host_memory += verdict == ERG_LAYOUT_HOST_TOO_SMALL;
    if (walk->kept.found->count > 0 || walk->any)
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

/* Whether a layout may be among the fastest, by the closed form: of the others that says enough. */
static bool may_be_kept(const struct erg_layout_walk *walk,
                        const struct erg_layout_candidate *candidate)
{
    return candidate->tokens_per_s >= erg_layout_keeping_least_rate(&walk->kept);
}

static void note_fit(struct erg_layout_walk *walk, const struct erg_layout_candidate *candidate)
{
    walk->kept.found->feasible++;
    erg_layout_keep(&walk->kept, candidate);
}

/* Equal stages, or the chunks that the layout has. Its seconds; INFINITY: it does not fit or is
 * slower than all that are kept. */
static double consider(struct erg_layout_walk *walk, const struct erg_layout *layout, long batch)
{
    struct erg_layout_candidate candidate = {.layout = *layout, .batch = batch};
    double excess = 0;
    walk->kept.found->evaluated++;
    erg_layout_settle_time(&candidate, &walk->places);
    if (candidate.time.total > slowest_wanted(walk, layout, batch)) {
        walk->kept.found->slower++;
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

/* The fastest split into stages that differ, if it is faster than `equal_s`, that into equal
 * stages. */
static void consider_splits(struct erg_layout_walk *walk, const struct erg_layout *layout,
                            long batch, double equal_s)
{
    struct erg_layout_splitter *splitter = &walk->splitter;
    struct erg_layout_candidate candidate = {.layout = *layout, .batch = batch};
    double wanted = slowest_wanted(walk, layout, batch), excess = 0;
    equal_s *= 1 - 1e-12;
    double limit = fmin(equal_s, nextafter(wanted, INFINITY));
    if (limit < INFINITY) {
        double bound = erg_layout_split_bound(splitter, &walk->places, layout, limit);
        if (bound >= equal_s)
            return;
        if (bound > wanted) {
            walk->kept.found->evaluated++;
            walk->kept.found->slower++;
            return;
        }
    }
    walk->kept.found->evaluated++;
    double seconds = erg_layout_may_fit(&walk->places, layout, 1u << layout->recompute)
                         ? erg_layout_split_fastest(splitter, &walk->places, layout, limit)
                         : INFINITY;
    if (seconds == INFINITY && limit < INFINITY) {
        if (wanted < INFINITY)
            walk->kept.found->slower++;
        else
            walk->kept.found->evaluated--; /* equal stages are the fastest split */
        return;
    }
    if (seconds == INFINITY)
        erg_layout_split_of_any_memory(splitter, &walk->places, layout);
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
 * Seconds that no split takes less than, whatever memory it needs: if everything but messages could
 * be cut so that all stages end at once.
 */
static double floor_s(const struct erg_layout_walk *walk, const struct erg_layout *layout)
{
    const struct erg_time_place *place = &walk->places.time[0];
    const struct erg_time_parts *parts = place->parts;
    double stages = (double)layout->pipeline, chunks = (double)layout->virtual_stages;
    double layers = (double)walk->search->time.model->layers;
    double layer_s = parts->forward_s + parts->backward_s + parts->recompute_s[layout->recompute];
    double stage_s = (layers * layer_s + parts->head_s + erg_time_messages(place, layout)) / stages;
    double once_s =
        layers * parts->layer_parameters / stages * (place->gradient_s + place->optimizer_s);
    double passes = (double)layout->microbatches + (stages - 1) / chunks;
    return (passes * stage_s + once_s + erg_time_passage(place, 1, layout)) * (1 - 1e-12);
}

/* All recomputations of a layout: with equal stages, and with others. */
static void consider_recomputes(struct erg_layout_walk *walk, struct erg_layout *layout, bool equal,
                                bool unequal, long batch)
{
    for (int recompute = ERG_RECOMPUTE_NONE; recompute < ERG_RECOMPUTES && !is_done(walk);
         recompute++) {
        if (!(walk->search->recomputes & 1u << recompute))
            continue;
        layout->recompute = (enum erg_recompute)recompute;
        if (floor_s(walk, layout) > slowest_wanted(walk, layout, batch)) {
            walk->kept.found->evaluated += equal + unequal;
            walk->kept.found->slower += equal + unequal;
            continue;
        }
        if (walk->any && !erg_layout_may_fit(&walk->places, layout, 1u << recompute))
            continue;
        double equal_s = equal ? consider(walk, layout, batch) : INFINITY;
        if (unequal && !is_done(walk))
            consider_splits(walk, layout, batch, equal_s);
    }
}

/* ---- stages that each do what is best for them ---- */

/* Takes the candidate if it is faster than the best of its degrees. */
static void keep_faster(struct erg_layout_candidate *best, const struct erg_layout_candidate *one)
{
    if (best->time.total > 0 && best->time.total <= one->time.total)
        return;
    erg_layout_candidate_release(best);
    *best = *one;
    erg_layout_own_lists(best);
}

/* The chunks at hand. */
static void settle_stages(struct erg_layout_walk *walk, struct erg_layout_candidate *best,
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
 * The same degrees once, with equal stages or with the fastest splits for one recomputation and
 * ratio of all. What nothing beats whatever stages do bounds them: without offloading, with the
 * recomputation that takes least.
 */
static void consider_stages(struct erg_layout_walk *walk, struct erg_layout *layout, bool equal,
                            bool unequal, long batch)
{
    const struct erg_layout_search *search = walk->search;
    double wanted = slowest_wanted(walk, layout, batch), excess = INFINITY;
    struct erg_layout_candidate best = {0};
    enum erg_layout_verdict verdict = ERG_LAYOUT_TOO_LARGE;
    struct erg_layout_candidate candidate = {.layout = *layout, .batch = batch};
    erg_layout_take_least_recomputes(layout, &walk->own, &walk->places);
    walk->kept.found->evaluated++;
    double bound = floor_s(walk, layout);
    if (bound <= wanted && unequal)
        bound = erg_layout_split_bound(&walk->splitter, &walk->places, layout, wanted);
    layout->stage_recompute = NULL;
    if (bound > wanted) {
        walk->kept.found->slower++;
        return;
    }
    if (equal)
        settle_stages(walk, &best, &candidate, &verdict, &excess);
    for (int recompute = ERG_RECOMPUTE_NONE; unequal && recompute < ERG_RECOMPUTES; recompute++) {
        layout->recompute = (enum erg_recompute)recompute;
        if (!(search->recomputes & 1u << recompute) ||
            erg_layout_split_fastest(&walk->splitter, &walk->places, layout, INFINITY) == INFINITY)
            continue;
        candidate = (struct erg_layout_candidate){.layout = *layout, .batch = batch};
        candidate.layout.chunk_layers = walk->splitter.chunk_layers;
        settle_stages(walk, &best, &candidate, &verdict, &excess);
    }
    if (best.time.total == 0 && verdict == ERG_LAYOUT_TOO_LARGE && isinf(excess)) {
        erg_layout_split_of_any_memory(&walk->splitter, &walk->places, layout);
        candidate.layout.chunk_layers = walk->splitter.chunk_layers;
        settle_stages(walk, &best, &candidate, &verdict, &excess);
    }
    best.bound_s = fmin(bound, best.time.total);
    if (best.time.total > wanted) {
        walk->kept.found->slower++;
        walk->kept.others = fmax(walk->kept.others, erg_layout_most_rate(&best));
    } else if (best.time.total > 0) {
        note_fit(walk, &best);
    } else {
        note_unfit(walk, &candidate, verdict, excess);
    }
    erg_layout_candidate_release(&best);
}

/* All chunks of so many stages. */
static void walk_chunks(struct erg_layout_walk *walk, struct erg_layout *layout)
{
    const struct erg_layout_search *search = walk->search;
    long layers = search->time.model->layers, stages = layout->pipeline, batch = 0;
    long most = stages > 1 ? layers / stages : 1;
    erg_layout_places_init(&walk->places, search, &walk->pieces, layout,
                           gradient_bandwidth(walk, layout));
    for (long chunks = 1; chunks <= most && !is_done(walk); chunks++) {
        bool equal = walk->divides[stages * chunks];
        bool unequal = search->unequal && stages > 1 && stages * chunks < layers;
        layout->virtual_stages = chunks;
        if (chunks <= 2) { /* all interleaved schedules ask the same of a batch */
            batch = erg_layout_choose_batch(search, layout);
            layout->microbatches = batch / (layout->data * layout->microbatch);
        }
        if (walk->any && !erg_layout_may_fit(&walk->places, layout, search->recomputes))
            continue;
        if (batch && (equal || unequal)) {
            (search->per_stage ? consider_stages : consider_recomputes)(walk, layout, equal,
                                                                        unequal, batch);
        }
        walk->kept.found->batch += !batch && (equal || unequal);
    }
}

static void walk_stages(struct erg_layout_walk *walk, struct erg_layout *layout)
{
    const struct erg_layout_search *search = walk->search;
    long rest = search->gpus / (layout->tensor * layout->context);
    for (size_t i = 0; i < walk->stage_count && !is_done(walk); i++) {
        layout->pipeline = walk->stages[i];
        layout->data = rest / layout->pipeline;
        if (layout->data * layout->microbatch <= search->batch_most)
            walk_chunks(walk, layout);
    }
}

/* Whether the model can be split so over a group. */
static bool is_group(const struct erg_layout_search *search, long tensor, long context)
{
    struct erg_model padded = *search->time.model;
    padded.vocab = erg_layout_vocabulary(search->time.model, tensor);
    return search->gpus % (tensor * context) == 0 &&
           erg_nodes_hold_groups(search->time.machine->node_gpus, tensor * context, search->gpus) &&
           erg_model_check_tensor(&padded, tensor, NULL) == 0 &&
           erg_model_check_sequence(search->time.model, context, search->sequence, NULL) == 0 &&
           search->sequence / context % tensor == 0;
}

static void walk_microbatches(struct erg_layout_walk *walk, long tensor, long context)
{
    const struct erg_layout_search *search = walk->search;
    bool exact = search->batch_least == search->batch_most;
    long rest = search->gpus / (tensor * context);
    walk->stage_count = 0;
    for (long stages = 1; stages <= search->time.model->layers; stages++)
        if (rest % stages == 0)
            walk->stages[walk->stage_count++] = stages;
    /* There are no fewer replicas than with the most stages. */
    long most = search->batch_most / (rest / walk->stages[walk->stage_count - 1]);
    if (search->microbatch_most > 0 && search->microbatch_most < most)
        most = search->microbatch_most;
    for (long microbatch = 1; microbatch <= most && !is_done(walk); microbatch++) {
        struct erg_layout layout = {
            .tensor = tensor,
            .context = context,
            .microbatch = microbatch,
            .sequence = search->sequence,
        };
        if (exact && search->batch_most % microbatch != 0)
            continue;
        erg_layout_pieces_init(&walk->pieces, search, &layout);
        walk_stages(walk, &layout);
    }
}

static int check_search(const struct erg_layout_search *search, struct erg_error *err)
{
    if (search->gpus < 1 || search->gpus > 1000000 || search->sequence < 1 || search->top < 1)
        return erg_fail(err, ERG_FAILED,
                        "expected 1 to a million GPUs, a sequence and at least one layout to keep");
    if (search->batch_least < 1 || search->batch_most < search->batch_least)
        return erg_fail(err, ERG_FAILED, "expected a batch of at least 1 sequence, got %ld to %ld",
                        search->batch_least, search->batch_most);
    return erg_model_check_sequence(search->time.model, 1, search->sequence, err);
}

static int none_fits(const struct erg_layout_walk *walk, struct erg_error *err)
{
    const struct erg_layout *layout = &walk->nearest.layout;
    const struct erg_layout_found *found = walk->kept.found;
    const struct erg_layout_search *search = walk->search;
    if (found->host_memory > 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "no layout of %s on %ld GPUs fits: all that fit their memory offload at "
                        "least %.1f GiB more than the %.1f GiB of a node's host memory",
                        search->time.model->name, search->gpus,
                        erg_layout_gib_up(walk->nearest_host_excess), search->host_bytes / 0x1p30);
    char batch[64];
    erg_layout_describe_batch(batch, sizeof batch, search->batch_least, search->batch_most);
    if (found->memory == 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "no layout of %s spreads a batch of %s sequences over %ld GPUs",
                        search->time.model->name, batch, search->gpus);
    return erg_fail(
        err, ERG_INFEASIBLE,
        "no layout of %s on %ld GPUs fits into %.1f GiB; nearest is tensor %ld, "
        "context %ld, pipeline %ld, %ld chunks a stage, microbatch %ld, recompute %s, "
        "which needs %.1f GiB more",
        search->time.model->name, search->gpus, search->memory_bytes / 0x1p30, layout->tensor,
        layout->context, layout->pipeline, layout->virtual_stages, layout->microbatch,
        search->per_stage ? "of each stage its own" : erg_recompute_name(layout->recompute),
        erg_layout_gib_up(walk->nearest_excess));
}

static int walk_all(struct erg_layout_found *found, const struct erg_layout_search *search,
                    bool any, struct erg_error *err)
{
    *found = (struct erg_layout_found){0};
    if (check_search(search, err) != 0)
        return -1;
    size_t layers = (size_t)search->time.model->layers;
    long most = search->group_most > 0 ? search->group_most : search->time.machine->node_gpus;
    struct erg_layout_walk walk = {
        .search = search,
        .any = any,
        .gradient_bandwidths = erg_xcalloc(layers + 1, sizeof(double)),
        .stages = erg_xcalloc(layers + 1, sizeof(long)),
        .divides = erg_xcalloc(layers + 1, sizeof(bool)),
        .nearest_excess = INFINITY,
        .nearest_host_excess = INFINITY,
    };
    erg_layout_keeping_init(&walk.kept, found, search->top);
    walk.kept.each = search->each;
    walk.kept.context = search->context;
    for (size_t chunks = 1; chunks <= layers; chunks++)
        walk.divides[chunks] = layers % chunks == 0;
    erg_layout_splitter_init(&walk.splitter, search->time.model->layers);
    erg_layout_stages_init(&walk.own, search->time.model->layers);
    int status = 0;
    for (long tensor = 1; tensor <= most && !status && !is_done(&walk); tensor++) {
        memset(walk.gradient_bandwidths, 0, (layers + 1) * sizeof(double));
        for (long context = 1; context <= most / tensor && !status; context++) {
            status = erg_interrupt_check(err);
            if (!status && is_group(search, tensor, context))
                walk_microbatches(&walk, tensor, context);
        }
        erg_progress("layouts", (size_t)tensor, (size_t)most);
    }
    if (!status && found->count == 0 && !any)
        status = none_fits(&walk, err);
    if (!status && !any)
        status = erg_layout_walk_refine(&walk, err);
    free(walk.gradient_bandwidths);
    erg_layout_splitter_release(&walk.splitter);
    erg_layout_stages_release(&walk.own);
    free(walk.stages);
    free(walk.divides);
    if (status)
        erg_layout_found_release(found);
    return status;
}

int erg_layout_search(struct erg_layout_found *found, const struct erg_layout_search *search,
                      struct erg_error *err)
{
    return walk_all(found, search, false, err);
}

bool erg_layout_any_fits(const struct erg_layout_search *search)
{
    struct erg_layout_search one = *search;
    struct erg_layout_found found;
    one.top = 1;
    one.each = NULL;
    if (walk_all(&found, &one, true, NULL) != 0)
        return false;
    bool any = found.count > 0;
    erg_layout_found_release(&found);
    return any;
}
