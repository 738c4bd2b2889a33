#include "layout/search.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "layout/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is the same for all layouts of one tensor and context degree and one microbatch. */
struct pieces {
    struct erg_time_parts parts;
    struct erg_memory_sizes sizes;
};

struct walk {
    const struct erg_layout_search *search;
    struct erg_layout_found *found;
    struct pieces pieces;
    double *gradient_bandwidths; /* by stages, of the tensor degree at hand; 0: not known yet */
    long *chunks;                /* of the layout at hand, where they are unequal */
    long *stages;                /* numbers of them that the GPUs allow, for the group at hand */
    size_t stage_count;
    struct erg_layout_candidate nearest; /* that does not fit, without its pointers */
    double nearest_excess;
};

static void fill_pieces(struct pieces *pieces, const struct erg_layout_search *search,
                        const struct erg_layout *layout)
{
    erg_time_parts_init(&pieces->parts, &search->time, layout->tensor, layout->context,
                        layout->microbatch, layout->sequence, search->gpus);
    erg_memory_sizes_init(&pieces->sizes, search->time.model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
}

/* ---- memory ---- */

static double stage_peak(const struct erg_layout_search *search, const struct pieces *pieces,
                         const struct erg_layout *layout, long stage, double offload,
                         double *host_bytes)
{
    struct erg_layout own = *layout;
    own.offload = offload;
    const struct erg_memory_request request = {
        .model = search->time.model, .layout = &own, .accounting = ERG_MEMORY_ARENA};
    struct erg_memory_stage memory;
    erg_memory_closed(&memory, &request, &pieces->sizes, stage);
    *host_bytes = (double)memory.groups * memory.offload_bytes;
    return memory.peak_bytes;
}

/*
 * The smallest ratio with which a stage fits. Its peak is the largest of a few functions that are
 * linear in the ratio: convex, so Newton's method from below ends after as many steps as they have
 * kinks. False: even all is not enough, and *excess is what is missing then.
 */
static bool smallest_offload(const struct erg_layout_search *search, const struct pieces *pieces,
                             const struct erg_layout *layout, long stage, double *offload,
                             double *excess)
{
    const double step = 1e-4, budget = search->memory_bytes;
    double host, ratio = *offload;
    double peak = stage_peak(search, pieces, layout, stage, ratio, &host);
    if (peak <= budget)
        return true;
    *excess = peak - budget;
    if (!search->offload || layout->pipeline < 3)
        return false;
    double least = stage_peak(search, pieces, layout, stage, 1, &host);
    *excess = fmin(least, peak) - budget;
    if (least > budget) {
        *offload = 1; /* what is missing may be the model's own error */
        return least <= budget * (1 + ERG_MEMORY_ERROR);
    }
    while (peak > budget * (1 + 1e-9) && ratio + step < 1) {
        double slope =
            (stage_peak(search, pieces, layout, stage, ratio + step, &host) - peak) / step;
        if (!(slope < 0))
            break;
        ratio = fmin(1, ratio + fmax((budget - peak) / slope, 1e-9));
        peak = stage_peak(search, pieces, layout, stage, ratio, &host);
    }
    *offload = peak <= budget * (1 + 1e-9) ? ratio : 1;
    return true;
}

enum verdict { FITS, TOO_LARGE, HOST_TOO_SMALL };

/*
 * The next stage after `stage` whose memory must be looked at, `pipeline` after the last. With
 * equal chunks the first has most microbatches in flight and the last the head; where stages
 * differ, the first of those that have more layers than the stage before counts, too.
 */
static long next_stage(const struct erg_layout *layout, long stage)
{
    long last = layout->pipeline - 1;
    if (layout->chunk_layers)
        for (long next = stage + 1; next < last; next++)
            if (layout->chunk_layers[next] > layout->chunk_layers[next - 1])
                return next;
    return stage < last ? last : layout->pipeline;
}

/* Sets the layout's offloading and the candidate's peak. */
static enum verdict settle_memory(struct erg_layout_candidate *candidate,
                                  const struct erg_layout_search *search,
                                  const struct pieces *pieces, double *excess)
{
    struct erg_layout *layout = &candidate->layout;
    double offload = layout->offload, host, most_host = 0;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(layout, stage))
        if (!smallest_offload(search, pieces, layout, stage, &offload, excess))
            return TOO_LARGE;
    layout->offload = offload;
    candidate->peak_bytes = 0;
    for (long stage = 0; stage < layout->pipeline; stage = next_stage(layout, stage)) {
        double peak = stage_peak(search, pieces, layout, stage, offload, &host);
        candidate->peak_bytes = fmax(candidate->peak_bytes, peak);
        most_host = fmax(most_host, host);
    }
    *excess = most_host * (double)search->time.machine->node_gpus - search->host_bytes;
    return search->host_bytes > 0 && *excess > 0 ? HOST_TOO_SMALL : FITS;
}

/* ---- time ---- */

static void settle_time(struct erg_layout_candidate *candidate,
                        const struct erg_layout_search *search, const struct pieces *pieces,
                        double gradient_bandwidth)
{
    erg_time_compose(&candidate->time, &search->time, &pieces->parts, &candidate->layout,
                     gradient_bandwidth);
    candidate->tokens_per_s =
        (double)(candidate->batch * candidate->layout.sequence) / candidate->time.total;
}

/* The largest batch within the bounds; 0: none. */
static long choose_batch(const struct erg_layout_search *search, const struct erg_layout *layout)
{
    long step = layout->data * layout->microbatch;
    if (layout->virtual_stages > 1)
        step *= layout->pipeline;
    long batch = search->batch_most / step * step;
    return batch >= search->batch_least ? batch : 0;
}

/* ---- what is kept ---- */

static long compare_layouts(const struct erg_layout *a, const struct erg_layout *b)
{
    const long differences[] = {
        a->tensor - b->tensor,
        a->context - b->context,
        a->pipeline - b->pipeline,
        a->virtual_stages - b->virtual_stages,
        a->microbatch - b->microbatch,
        (long)a->remat - (long)b->remat,
        (a->chunk_layers != NULL) - (b->chunk_layers != NULL),
    };
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        if (differences[i])
            return differences[i];
    return 0;
}

static bool is_better(const struct erg_layout_candidate *a, const struct erg_layout_candidate *b)
{
    if (a->tokens_per_s != b->tokens_per_s)
        return a->tokens_per_s > b->tokens_per_s;
    return compare_layouts(&a->layout, &b->layout) < 0;
}

static void own_chunks(struct erg_layout_candidate *candidate)
{
    struct erg_layout *layout = &candidate->layout;
    if (!layout->chunk_layers)
        return;
    size_t count = (size_t)(layout->pipeline * layout->virtual_stages);
    candidate->chunk_layers = erg_xcalloc(count, sizeof(long));
    memcpy(candidate->chunk_layers, layout->chunk_layers, count * sizeof(long));
    layout->chunk_layers = candidate->chunk_layers;
}

void erg_layout_candidate_release(struct erg_layout_candidate *candidate)
{
    free(candidate->chunk_layers);
}

static void keep(struct walk *walk, const struct erg_layout_candidate *candidate)
{
    struct erg_layout_found *found = walk->found;
    size_t place = found->count;
    while (place > 0 && is_better(candidate, &found->items[place - 1]))
        place--;
    if (place == walk->search->top)
        return;
    if (found->count == walk->search->top)
        erg_layout_candidate_release(&found->items[--found->count]);
    memmove(&found->items[place + 1], &found->items[place],
            (found->count - place) * sizeof *found->items);
    found->items[place] = *candidate;
    own_chunks(&found->items[place]);
    found->count++;
}

/* ---- the walk ---- */

static void consider(struct walk *walk, const struct erg_layout *layout, long batch)
{
    const struct erg_layout_search *search = walk->search;
    struct erg_layout_found *found = walk->found;
    struct erg_layout_candidate candidate = {.layout = *layout, .batch = batch};
    double *bandwidth = &walk->gradient_bandwidths[layout->pipeline], excess = 0;
    if (*bandwidth == 0)
        *bandwidth = erg_time_group_bandwidth(&search->time, layout->tensor,
                                              layout->context * layout->data, search->gpus);
    found->evaluated++;
    settle_time(&candidate, search, &walk->pieces, *bandwidth);
    if (!search->each && found->count == search->top &&
        candidate.tokens_per_s < found->items[found->count - 1].tokens_per_s) {
        found->slower++;
        return;
    }
    enum verdict verdict = settle_memory(&candidate, search, &walk->pieces, &excess);
    if (verdict != FITS) {
        found->memory += verdict == TOO_LARGE;
        found->host_memory += verdict == HOST_TOO_SMALL;
        if (verdict == TOO_LARGE && excess < walk->nearest_excess) {
            walk->nearest_excess = excess;
            walk->nearest = candidate;
        }
        return;
    }
    found->feasible++;
    if (candidate.layout.offload > 0)
        settle_time(&candidate, search, &walk->pieces, *bandwidth);
    if (search->each)
        search->each(search->context, &candidate);
    keep(walk, &candidate);
}

static void consider_remats(struct walk *walk, struct erg_layout *layout)
{
    long batch = choose_batch(walk->search, layout);
    if (!batch) {
        walk->found->batch++;
        return;
    }
    layout->microbatches = batch / (layout->data * layout->microbatch);
    for (int remat = ERG_REMAT_NONE; remat <= ERG_REMAT_FULL; remat++) {
        layout->remat = (enum erg_remat)remat;
        if (walk->search->remats & 1u << remat)
            consider(walk, layout, batch);
    }
}

/*
 * Layers of each stage where they differ: as many on the last stage as make its time with the head
 * and that of the longest other as short as can be; the others share evenly, those with one more
 * late in the pipeline, where fewer microbatches are in flight. False: all are equal.
 */
static bool split_layers(struct walk *walk, const struct erg_layout *layout)
{
    const struct erg_time_parts *parts = &walk->pieces.parts;
    long layers = walk->search->time.model->layers, others = layout->pipeline - 1, last = 0;
    double head = parts->head_s / (parts->forward_s + parts->backward_s), best = INFINITY;
    if (others < 1)
        return false;
    for (long n = (layers + others) / (others + 1); n >= 1; n--) {
        double longest = fmax((double)((layers - n + others - 1) / others), (double)n + head);
        if (longest > best)
            break; /* it falls, then rises */
        if (longest < best) {
            best = longest;
            last = n;
        }
    }
    long rest = layers - last, few = rest / others, more = rest % others;
    for (long stage = 0; stage < others; stage++)
        walk->chunks[stage] = few + (stage >= others - more);
    walk->chunks[others] = last;
    return more > 0 || last != few;
}

static void walk_stages(struct walk *walk, struct erg_layout *layout)
{
    const struct erg_layout_search *search = walk->search;
    long layers = search->time.model->layers, rest = search->gpus;
    rest /= layout->tensor * layout->context;
    for (size_t i = 0; i < walk->stage_count; i++) {
        long stages = walk->stages[i];
        if (rest / stages * layout->microbatch > search->batch_most)
            continue;
        layout->pipeline = stages;
        layout->data = rest / stages;
        for (long chunks = 1; chunks <= (stages > 1 ? layers / stages : 1); chunks++) {
            layout->virtual_stages = chunks;
            if (layers % (stages * chunks) == 0)
                consider_remats(walk, layout);
        }
        layout->virtual_stages = 1;
        if (search->unequal && split_layers(walk, layout)) {
            layout->chunk_layers = walk->chunks;
            consider_remats(walk, layout);
            layout->chunk_layers = NULL;
        }
    }
}

/* Whether the model can be split so over a group; a microbatch of 1. */
static bool is_group(const struct erg_layout_search *search, long tensor, long context)
{
    struct erg_model padded = *search->time.model;
    padded.vocab = erg_layout_vocabulary(search->time.model, tensor);
    return search->gpus % (tensor * context) == 0 &&
           erg_model_check_tensor(&padded, tensor, NULL) == 0 &&
           erg_model_check_sequence(search->time.model, context, search->sequence, NULL) == 0;
}

static void walk_microbatches(struct walk *walk, long tensor, long context)
{
    const struct erg_layout_search *search = walk->search;
    long most = search->microbatch_most > 0 && search->microbatch_most < search->batch_most
                    ? search->microbatch_most
                    : search->batch_most;
    long rest = search->gpus / (tensor * context);
    walk->stage_count = 0;
    for (long stages = 1; stages <= search->time.model->layers; stages++)
        if (rest % stages == 0)
            walk->stages[walk->stage_count++] = stages;
    for (long microbatch = 1; microbatch <= most; microbatch++) {
        struct erg_layout layout = {
            .tensor = tensor,
            .context = context,
            .microbatch = microbatch,
            .sequence = search->sequence,
        };
        bool exact = search->batch_least == search->batch_most;
        if ((exact && search->batch_most % microbatch != 0) ||
            microbatch * search->sequence / context % tensor != 0)
            continue;
        fill_pieces(&walk->pieces, search, &layout);
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

static int none_fits(const struct walk *walk, struct erg_error *err)
{
    const struct erg_layout *layout = &walk->nearest.layout;
    const struct erg_layout_found *found = walk->found;
    const struct erg_layout_search *search = walk->search;
    if (found->host_memory > 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "no layout of %s on %ld GPUs fits: all that fit their memory offload more "
                        "than the %.1f GiB of a node's host memory",
                        search->time.model->name, search->gpus, search->host_bytes / 0x1p30);
    if (found->memory == 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "no layout of %s spreads a batch of %ld to %ld sequences over %ld GPUs",
                        search->time.model->name, search->batch_least, search->batch_most,
                        search->gpus);
    return erg_fail(err, ERG_INFEASIBLE,
                    "no layout of %s on %ld GPUs fits into %.1f GiB; nearest is tensor %ld, "
                    "context %ld, pipeline %ld, %ld chunks a stage, microbatch %ld, recompute %s, "
                    "which needs %.1f GiB more",
                    search->time.model->name, search->gpus, search->memory_bytes / 0x1p30,
                    layout->tensor, layout->context, layout->pipeline, layout->virtual_stages,
                    layout->microbatch, erg_remat_name(layout->remat),
                    walk->nearest_excess / 0x1p30);
}

int erg_layout_search(struct erg_layout_found *found, const struct erg_layout_search *search,
                      struct erg_error *err)
{
    *found = (struct erg_layout_found){0};
    if (check_search(search, err) != 0)
        return -1;
    size_t layers = (size_t)search->time.model->layers;
    long most = search->group_most > 0 ? search->group_most : search->time.machine->node_gpus;
    found->items = erg_xcalloc(search->top + 1, sizeof *found->items);
    struct walk walk = {
        .search = search,
        .found = found,
        .gradient_bandwidths = erg_xcalloc(layers + 1, sizeof(double)),
        .chunks = erg_xcalloc(layers + 1, sizeof(long)),
        .stages = erg_xcalloc(layers + 1, sizeof(long)),
        .nearest_excess = INFINITY,
    };
    int status = 0;
    for (long tensor = 1; tensor <= most && !status; tensor++) {
        memset(walk.gradient_bandwidths, 0, (layers + 1) * sizeof(double));
        for (long context = 1; context <= most / tensor && !status; context++) {
            status = erg_interrupt_check(err);
            if (!status && is_group(search, tensor, context))
                walk_microbatches(&walk, tensor, context);
        }
        erg_progress("layouts", (size_t)tensor, (size_t)most);
    }
    if (!status && found->count == 0)
        status = none_fits(&walk, err);
    free(walk.gradient_bandwidths);
    free(walk.chunks);
    free(walk.stages);
    if (status)
        erg_layout_found_release(found);
    return status;
}

void erg_layout_found_release(struct erg_layout_found *found)
{
    for (size_t i = 0; i < found->count; i++)
        erg_layout_candidate_release(&found->items[i]);
    free(found->items);
    found->items = NULL;
    found->count = 0;
}

/* ---- one layout ---- */

int erg_layout_evaluate(struct erg_layout_candidate *candidate,
                        const struct erg_layout_search *search, const struct erg_layout *layout,
                        struct erg_error *err)
{
    const struct erg_time_machine *machine = search->time.machine;
    struct pieces pieces;
    double excess = 0;
    *candidate = (struct erg_layout_candidate){.layout = *layout};
    struct erg_layout *own = &candidate->layout;
    long most = search->group_most > 0 ? search->group_most : machine->node_gpus;
    long pipeline = own->tensor * own->context * own->pipeline;
    if (own->tensor * own->context > most)
        return erg_fail(err, ERG_FAILED,
                        "tensor %ld x context %ld are %ld GPUs, more than the %ld of a node",
                        own->tensor, own->context, own->tensor * own->context, most);
    if (pipeline < 1 || search->gpus % pipeline != 0)
        return erg_fail(err, ERG_FAILED,
                        "tensor %ld x context %ld x pipeline %ld are %ld GPUs, and %ld are no "
                        "multiple of that",
                        own->tensor, own->context, own->pipeline, pipeline, search->gpus);
    own->data = search->gpus / pipeline;
    own->sequence = search->sequence;
    own->offload = search->offload ? 0 : own->offload;
    candidate->batch = choose_batch(search, own);
    if (!candidate->batch)
        return erg_fail(err, ERG_FAILED,
                        "no batch of %ld to %ld sequences is a multiple of %ld replicas x %ld "
                        "sequences%s",
                        search->batch_least, search->batch_most, own->data, own->microbatch,
                        own->virtual_stages > 1 ? " x stages, as interleaving needs" : "");
    own->microbatches = candidate->batch / (own->data * own->microbatch);
    if (erg_layout_check(own, search->time.model, err) != 0)
        return -1;
    fill_pieces(&pieces, search, own);
    enum verdict verdict = settle_memory(candidate, search, &pieces, &excess);
    if (verdict == TOO_LARGE)
        return erg_fail(
            err, ERG_INFEASIBLE, "needs %.1f GiB more than the %.1f GiB of a GPU%s",
            excess / 0x1p30, search->memory_bytes / 0x1p30,
            search->offload && own->pipeline >= 3 ? ", even with all activations offloaded" : "");
    if (verdict == HOST_TOO_SMALL)
        return erg_fail(err, ERG_INFEASIBLE,
                        "offloads %.1f GiB more to a node's host memory than its %.1f GiB",
                        excess / 0x1p30, search->host_bytes / 0x1p30);
    settle_time(candidate, search, &pieces,
                erg_time_group_bandwidth(&search->time, own->tensor, own->context * own->data,
                                         search->gpus));
    own_chunks(candidate);
    return 0;
}
