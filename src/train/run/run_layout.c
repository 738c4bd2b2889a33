/* Chooses the layout of a run whose job leaves it open. */
#include "train/run/run_layout.h"

#include "base/memory.h"
#include "layout/search/layout_search.h"
#include "train/engine/trainer.h"
#include "train/run/run_memory.h"

#include <math.h>
#include <stdlib.h>

const char erg_run_layout_head[] =
    "# The job with the layout that ergon train --auto has chosen.\n";

enum { KEPT = 64 }; /* fastest layouts of each search, whose exact memory is then computed */

/*
 * The relative difference up to which the model does not distinguish layouts. Among these, larger
 * microbatches are better: kernels are larger, and two halves can be nanobatches.
 */
static const double alike = 0.01;

struct choosing {
    const struct erg_run_layout_request *request;
    const struct erg_job *job;
    struct erg_engine *engine; /* ergon's own, if the job names another one or none */
    struct erg_layout_search search;
    struct erg_layout_candidate *items; /* of all searches, fastest first */
    size_t count, capacity;
    uint64_t tried;
    long batch;
};

/* ---- a layout and the job ---- */

static bool keeps(bool open, long own, long other)
{
    return open || own == other;
}

/* Whether a layout has the job's settings. */
static bool is_of_job(const struct erg_job *job, const struct erg_layout *layout, int world)
{
    const struct erg_layout *own = &job->layout;
    const struct erg_job_open *open = &job->open;
    return erg_layout_gpus(layout) == world && erg_layout_batch(layout) == erg_layout_batch(own) &&
           layout->sequence == own->sequence && keeps(open->tensor, own->tensor, layout->tensor) &&
           keeps(open->context, own->context, layout->context) &&
           keeps(open->pipeline, own->pipeline, layout->pipeline) &&
           keeps(open->data, own->data, layout->data) &&
           keeps(open->virtual_stages, own->virtual_stages, layout->virtual_stages) &&
           keeps(open->microbatch, own->microbatch, layout->microbatch) &&
           keeps(open->microbatches, own->microbatches, layout->microbatches) &&
           keeps(open->recompute, own->recompute, layout->recompute) &&
           (open->offload || own->offload == layout->offload);
}

/* Whether a job describes each stage or chunk, and so leaves nothing open. */
static bool says_all(const struct erg_job *job)
{
    const struct erg_job_open *open = &job->open;
    return !open->stages || !(open->tensor || open->context || open->pipeline || open->data ||
                              open->virtual_stages || open->microbatch || open->microbatches ||
                              open->recompute || open->offload);
}

static int check(const struct erg_job *job, struct erg_error *err)
{
    const struct erg_job_open *open = &job->open;
    if (erg_job_check_whole(job, "ergon train", err) != 0)
        return -1;
    if (job->kind_count > 1)
        return erg_fail(err, ERG_USAGE,
                        "the cluster has GPUs of %zu kinds; expected one kind to choose for",
                        job->kind_count);
    if (!open->stages && (open->microbatch || open->microbatches))
        return erg_fail(err, ERG_USAGE,
                        "the job lists stages but no microbatches; expected the keys "
                        "'microbatch_size' and 'microbatches', or no list of stages");
    return 0;
}

/* Whether the engine can train the layout in the available memory. */
static bool may_run(const struct choosing *choosing, const struct erg_layout *layout)
{
    const struct erg_run_layout_request *request = choosing->request;
    struct erg_job job = *choosing->job;
    struct erg_model model = *job.model;
    struct erg_error ignored;
    const size_t bytes = erg_run_memory_of(&job, request->backend, layout);
    model.words = erg_model_words(job.model);
    model.vocab = erg_layout_vocabulary(job.model, layout->tensor);
    model.vocab_is_padded = true;
    job.model = &model;
    job.layout = *layout;
    const struct erg_trainer_options options = {.backend = request->backend,
                                                .job = &job,
                                                .init = request->init,
                                                .changed = true,
                                                .rank = 1, /* any rank */
                                                .world = request->world};
    return bytes > 0 && (double)bytes <= request->room_bytes &&
           erg_trainer_check(&options, &ignored) == 0;
}

/* ---- search ---- */

static int prepare(struct choosing *choosing, struct erg_error *err)
{
    const struct erg_job *job = choosing->job;
    const struct erg_job_open *open = &job->open;
    const struct erg_layout *own = &job->layout;
    struct erg_layout_search *search = &choosing->search;
    const struct erg_engine *engine = job->engine;
    if (!engine || !engine->static_memory) {
        if (erg_engine_load(&choosing->engine, "ergon", err) != 0)
            return -1;
        erg_job_apply_training(job, choosing->engine);
        /*
         * For any GPU: the engine's shares were measured on another one, which is good enough to
         * compare layouts.
         */
        choosing->engine->peak_flops = erg_gpu_peak_flops(job->gpu);
        engine = choosing->engine;
    }
    *search = (struct erg_layout_search){
        .model = job->model,
        .kind_count = 1,
        .gpus = choosing->request->world,
        .sequence = own->sequence,
        .batch_least = choosing->batch,
        .batch_most = choosing->batch,
        .recomputes = open->recompute ? (unsigned)ERG_RECOMPUTE_ALL : 1u << own->recompute,
        .offload = open->offload,
        .top = KEPT,
        .only = {.tensor = open->tensor ? 0 : own->tensor,
                 .context = open->context ? 0 : own->context,
                 .pipeline = open->pipeline ? 0 : own->pipeline,
                 .virtual_stages = open->virtual_stages ? 0 : own->virtual_stages,
                 .microbatch = open->microbatch ? 0 : own->microbatch,
                 .data = open->data ? 0 : own->data},
    };
    struct erg_layout_kind *kind = &search->kinds[0];
    if (erg_layout_kind_init(kind, job->kinds[0].nodes, job->gpu, engine, err) != 0)
        return -1;
    kind->gpus = choosing->request->world;
    kind->memory_bytes = choosing->request->room_bytes;
    return erg_time_machine_check(&kind->machine, kind->gpus, err);
}

static int compare_candidates(const void *left, const void *right)
{
    const struct erg_layout_candidate *a = left, *b = right;
    return (a->time.total > b->time.total) - (a->time.total < b->time.total);
}

/* Adds the results of one search; a search without results is not a failure. */
static int search_once(struct choosing *choosing, struct erg_error *err)
{
    struct erg_layout_results found = {0};
    int result = erg_layout_search(&found, &choosing->search, err);
    choosing->tried += result == 0 ? found.evaluated : 0;
    for (size_t i = 0; result == 0 && i < found.count; i++) {
        struct erg_layout_candidate one = found.items[i];
        found.items[i] = (struct erg_layout_candidate){0}; /* the copy owns its lists */
        if (!choosing->job->open.offload)
            one.layout.offload = choosing->job->layout.offload;
        ERG_PUSH(choosing, items, one);
    }
    erg_layout_results_release(&found);
    return result;
}

/* If the number of microbatches is fixed, each data degree has one microbatch size. */
static int search_degrees(struct choosing *choosing, struct erg_error *err)
{
    const struct erg_job *job = choosing->job;
    const long microbatches = job->layout.microbatches, world = choosing->request->world;
    struct erg_error failure = {0};
    if (job->open.microbatches)
        return search_once(choosing, err);
    for (long data = 1; data <= world; data++) {
        const long microbatch = choosing->batch / microbatches / data;
        if (world % data || microbatch * microbatches * data != choosing->batch ||
            !keeps(job->open.data, job->layout.data, data) ||
            !keeps(job->open.microbatch, job->layout.microbatch, microbatch))
            continue;
        choosing->search.only.data = data;
        choosing->search.only.microbatch = microbatch;
        if (search_once(choosing, &failure) != 0 && failure.status != ERG_INFEASIBLE) {
            *err = failure;
            return -1;
        }
    }
    if (choosing->count > 0)
        return 0;
    if (failure.message[0]) {
        *err = failure;
        return -1;
    }
    return erg_fail(
        err, ERG_INFEASIBLE,
        "no data degree of %ld ranks gives %ld microbatches of a batch of %ld sequences", world,
        microbatches, choosing->batch);
}

/* A search computes the memory of a GPU. For other devices it ignores memory, and the exact memory
 * of the fastest layouts with each recomputation is computed afterwards. */
static int search_all(struct choosing *choosing, struct erg_error *err)
{
    struct erg_layout_search *search = &choosing->search;
    const unsigned recomputes = search->recomputes;
    if (!choosing->request->backend->shares_memory)
        return search_degrees(choosing, err);
    search->kinds[0].memory_bytes = INFINITY;
    search->offload = false;
    for (int mode = 0; mode < ERG_RECOMPUTES; mode++) {
        search->recomputes = recomputes & 1u << mode;
        if (search->recomputes && search_degrees(choosing, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- the answer ---- */

static void add_layout(struct erg_text *out, const struct erg_layout *layout)
{
    erg_text_printf(out, "tensor %ld x context %ld x pipeline %ld x data %ld", layout->tensor,
                    layout->context, layout->pipeline, layout->data);
    if (layout->virtual_stages > 1)
        erg_text_printf(out, ", %ld virtual stages", layout->virtual_stages);
    erg_text_printf(out, ", %ld microbatch%s of %ld, recompute %s", layout->microbatches,
                    layout->microbatches == 1 ? "" : "es", layout->microbatch,
                    erg_layout_recompute_name(layout));
    if (layout->offload > 0)
        erg_text_printf(out, ", offload %.3g", layout->offload);
}

static void add_room(struct erg_text *out, const struct choosing *choosing)
{
    const double bytes = choosing->request->room_bytes;
    erg_text_printf(out, "%.3g %s", bytes / (bytes < 0x1p30 ? 0x1p20 : 0x1p30),
                    bytes < 0x1p30 ? "MiB" : "GiB");
}

static void say_fastest(struct erg_text *out, const struct choosing *choosing, size_t best)
{
    const struct erg_layout_candidate *first = &choosing->items[best];
    erg_text_printf(out, ": of %llu layouts the fastest that fits into ",
                    (unsigned long long)choosing->tried);
    add_room(out, choosing);
    erg_text_printf(out, " of each rank, %.3g s a step by the engine %s on %s", first->time.total,
                    choosing->search.kinds[0].engine->name, choosing->job->gpu->name);
    for (size_t i = 0; i < choosing->count; i++) {
        const struct erg_layout_candidate *next = &choosing->items[i];
        if (next->time.total <= (1 + alike) * first->time.total ||
            !may_run(choosing, &next->layout))
            continue;
        erg_text_printf(out, "; the next, %.1f %% slower, is ",
                        100 * (next->time.total / first->time.total - 1));
        add_layout(out, &next->layout);
        return;
    }
}

/*
 * The fastest layout that the engine runs; among similar ones the one with the largest microbatch.
 * Returns the count if there is none.
 */
static size_t find_first(const struct choosing *choosing)
{
    size_t found = choosing->count;
    double first_s = INFINITY;
    for (size_t i = 0; i < choosing->count; i++) {
        const struct erg_layout_candidate *one = &choosing->items[i];
        const bool larger = found == choosing->count ||
                            one->layout.microbatch > choosing->items[found].layout.microbatch;
        if (one->time.total > (1 + alike) * first_s)
            break;
        if (!larger || !may_run(choosing, &one->layout))
            continue;
        found = i;
        first_s = fmin(first_s, one->time.total);
    }
    return found;
}

static void write_job(struct erg_run_layout *chosen, const struct erg_job *job,
                      const struct erg_layout *layout)
{
    size_t *kinds = erg_xcalloc((size_t)layout->pipeline, sizeof *kinds);
    const struct erg_job_change change = {.layout = layout,
                                          .vocabulary =
                                              erg_layout_vocabulary(job->model, layout->tensor),
                                          .stage_kind = kinds};
    erg_text_add(&chosen->job, erg_run_layout_head);
    erg_job_write(&chosen->job, job, &change);
    free(kinds);
}

static int search_layout(struct erg_run_layout *chosen, struct choosing *choosing,
                         struct erg_error *err)
{
    if (prepare(choosing, err) != 0 || search_all(choosing, err) != 0)
        return -1;
    qsort(choosing->items, choosing->count, sizeof *choosing->items, compare_candidates);
    const size_t best = find_first(choosing);
    if (best == choosing->count) {
        struct erg_text room = {0};
        add_room(&room, choosing);
        erg_fail(
            err, ERG_INFEASIBLE,
            "none of the %zu fastest layouts on %d rank%s fits into %s of each by the engine's "
            "own count; expected more ranks, or a smaller batch",
            choosing->count, choosing->request->world, erg_plural((size_t)choosing->request->world),
            room.data);
        erg_text_release(&room);
        return -1;
    }
    const struct erg_layout *layout = &choosing->items[best].layout;
    add_layout(&chosen->why, layout);
    say_fastest(&chosen->why, choosing, best);
    write_job(chosen, choosing->job, layout);
    return 0;
}

int erg_run_layout_choose(struct erg_run_layout *chosen,
                          const struct erg_run_layout_request *request, struct erg_error *err)
{
    const struct erg_job *job = request->job;
    struct choosing choosing = {
        .request = request, .job = job, .batch = erg_layout_batch(&job->layout)};
    *chosen = (struct erg_run_layout){0};
    int result = check(job, err);
    if (result == 0 && says_all(job)) {
        add_layout(&chosen->why, &job->layout);
        erg_text_add(&chosen->why, ": as in the job");
        write_job(chosen, job, &job->layout);
    } else if (result == 0 && request->before &&
               is_of_job(job, &request->before->layout, request->world)) {
        add_layout(&chosen->why, &request->before->layout);
        erg_text_printf(&chosen->why, ": as the run began, in %s", request->before->path);
        write_job(chosen, job, &request->before->layout);
    } else if (result == 0) {
        result = search_layout(chosen, &choosing, err);
    }
    for (size_t i = 0; i < choosing.count; i++)
        erg_layout_candidate_release(&choosing.items[i]);
    free(choosing.items);
    erg_engine_free(choosing.engine);
    return result ? erg_fail_context(err, "%s: the layout", job->path) : 0;
}

void erg_run_layout_release(struct erg_run_layout *chosen)
{
    erg_text_release(&chosen->job);
    erg_text_release(&chosen->why);
}
