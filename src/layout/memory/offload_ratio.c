/* The least offloading with which a layout fits. */
#include "base/memory.h"
#include "base/thread.h"
#include "layout/memory/copies.h"
#include "layout/memory/memory_simulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The ratio at which a stage needs the least. */
struct least {
    double offload, bytes;
};

struct ratio_search {
    const struct erg_memory_request *request;
    const struct erg_memory_sizes *sizes;
    double *budgets; /* [stages] */
    struct found {
        enum erg_recompute recompute;
        double offload, own_offload; /* with the layout's recomputation, and with `recompute` */
        struct least least;          /* with the layout's */
    } * found;                       /* [stages] */
};

/* The peak; if it exceeds `enough`, possibly any value between the two. */
static double stage_peak_to(const struct ratio_search *work, long stage,
                            enum erg_recompute recompute, double offload, double enough)
{
    struct erg_layout layout = *work->request->layout;
    struct erg_memory_request request = *work->request;
    layout.recompute = recompute;
    layout.offload = offload;
    layout.stage_recompute = NULL;
    layout.stage_offload = NULL;
    request.layout = &layout;
    return erg_memory_stage_peak(&request, work->sizes, stage, enough);
}

static double stage_peak(const struct ratio_search *work, long stage, enum erg_recompute recompute,
                         double offload)
{
    return stage_peak_to(work, stage, recompute, offload, INFINITY);
}

/* Resolution of ratios, finer than rows. */
static const double RESOLUTION = 1e-5;

/*
 * Finds the ratio from `from` on at which the stage needs the least: in the arena its peak is
 * convex. More offloading may need more memory if the receive buffers of few groups in flight are
 * larger than the offloaded bytes. Stops at the first ratio that fits. A golden-section search:
 * each step needs one new peak.
 */
static struct least least_from(const struct ratio_search *work, long stage,
                               enum erg_recompute recompute, double from)
{
    const double golden = 0.6180339887498949, budget = work->budgets[stage];
    double low = from, high = 1;
    struct least left = {.offload = high - golden * (high - low)};
    struct least right = {.offload = low + golden * (high - low)};
    left.bytes = stage_peak(work, stage, recompute, left.offload);
    right.bytes = stage_peak(work, stage, recompute, right.offload);
    while (high - low > RESOLUTION && left.bytes > budget && right.bytes > budget) {
        if (left.bytes <= right.bytes) {
            high = right.offload;
            right = left;
            left.offload = high - golden * (high - low);
            left.bytes = stage_peak(work, stage, recompute, left.offload);
        } else {
            low = left.offload;
            left = right;
            right.offload = low + golden * (high - low);
            right.bytes = stage_peak(work, stage, recompute, right.offload);
        }
    }
    return left.bytes <= right.bytes ? left : right;
}

/*
 * The smallest ratio from `from` on with which the stage fits in the arena; above 1: none, and
 * *least is the ratio with the least memory.
 */
static double arena_ratio(const struct ratio_search *work, long stage, enum erg_recompute recompute,
                          double from, struct least *least)
{
    const double budget = work->budgets[stage];
    *least = (struct least){from, stage_peak(work, stage, recompute, from)};
    if (least->bytes <= budget)
        return from;
    if (work->request->layout->pipeline < 3)
        return 2;
    struct least all = {1, stage_peak(work, stage, recompute, 1)};
    if (all.bytes > budget) {
        struct least within = least_from(work, stage, recompute, from);
        if (within.bytes < all.bytes)
            all = within;
    }
    if (all.bytes < least->bytes)
        *least = all;
    if (least->bytes > budget)
        return 2;
    double unfit = from, fit = least->offload;
    while (fit - unfit > RESOLUTION) {
        double middle = (unfit + fit) / 2;
        *(stage_peak(work, stage, recompute, middle) <= budget ? &fit : &unfit) = middle;
    }
    return fit;
}

/* The first fitting ratio among those at which a tensor moves. */
static double static_ratio(const struct ratio_search *work, long stage,
                           enum erg_recompute recompute, double from, struct least *least)
{
    struct erg_layout layout = *work->request->layout;
    struct erg_memory_request request = *work->request;
    struct erg_memory_lines lines;
    layout.recompute = recompute;
    layout.stage_recompute = NULL;
    request.layout = &layout;
    erg_memory_lines_init(&lines, &request, work->sizes, stage);
    *least = (struct least){from, INFINITY};
    for (size_t i = 0; i < lines.ratio_count; i++) {
        const struct erg_memory_ratio *ratio = &lines.ratios[i];
        if (i + 1 < lines.ratio_count && lines.ratios[i + 1].offload <= from)
            continue;
        if (ratio->bytes < least->bytes)
            *least = (struct least){fmax(ratio->offload, from), ratio->bytes};
        if (ratio->bytes <= work->budgets[stage])
            return fmax(ratio->offload, from);
    }
    return 2;
}

/*
 * The framework's allocator never needs less than its tensors, but rounds the rest of a split
 * tensor, so a search in small steps finds the first ratio that fits.
 */
static double smallest_ratio(const struct ratio_search *work, long stage,
                             enum erg_recompute recompute, double from, struct least *least)
{
    if (work->request->accounting == ERG_MEMORY_STATIC)
        return static_ratio(work, stage, recompute, from, least);
    if (work->request->accounting == ERG_MEMORY_ARENA)
        return arena_ratio(work, stage, recompute, from, least);
    struct erg_memory_request request = *work->request;
    struct ratio_search arena = *work;
    request.accounting = ERG_MEMORY_ARENA;
    arena.request = &request;
    *least = (struct least){from, stage_peak(work, stage, recompute, from)};
    if (least->bytes <= work->budgets[stage] || work->request->layout->pipeline < 3)
        return least->bytes <= work->budgets[stage] ? from : 2;
    struct least ignored;
    const double first = fmin(1, arena_ratio(&arena, stage, recompute, from, &ignored));
    const double budget = work->budgets[stage];
    const struct least without = *least;
    for (double ratio = first; ratio < 1.002; ratio += 0.002) {
        *least = (struct least){.offload = fmin(ratio, 1)};
        least->bytes = stage_peak_to(work, stage, recompute, least->offload, budget);
        if (least->bytes <= budget)
            return least->offload;
    }
    *least = without; /* nothing fits: exactly, then */
    for (double ratio = first; ratio < 1.002; ratio += 0.002) {
        struct least tried = {fmin(ratio, 1), stage_peak(work, stage, recompute, fmin(ratio, 1))};
        if (tried.bytes < least->bytes)
            *least = tried;
    }
    return 2;
}

static double static_moved_bytes(const struct erg_memory_request *request,
                                 const struct erg_layout *layout, long stage,
                                 enum erg_recompute recompute)
{
    struct erg_layout own = *layout;
    struct erg_memory_request asked = *request;
    struct erg_memory_copies copies;
    double sum = 0;
    own.recompute = recompute;
    own.stage_recompute = NULL;
    asked.layout = &own;
    erg_memory_copies_init(&copies, &asked, stage);
    for (size_t i = 0; i < copies.count; i++)
        sum += copies.items[i].in ? 0 : (double)copies.items[i].bytes;
    erg_memory_copies_release(&copies);
    return sum;
}

/* Bytes that one GPU of the stage copies out in an iteration. */
static double moved_bytes(const struct ratio_search *work, long stage, enum erg_recompute recompute,
                          double offload)
{
    const struct erg_memory_request *request = work->request;
    const struct erg_layout *layout = request->layout;
    struct erg_layout own = *layout;
    double sum = 0;
    own.offload = offload;
    own.stage_offload = NULL;
    if (request->accounting == ERG_MEMORY_STATIC)
        return static_moved_bytes(request, &own, stage, recompute);
    if (!erg_memory_offloads(&own, stage))
        return 0;
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++) {
        struct erg_memory_choice choice;
        long layers = erg_layout_chunk_layers(layout, request->model->layers, stage, chunk);
        if (stage == layout->pipeline - 1 && chunk == layout->virtual_stages - 1)
            continue; /* the head's */
        erg_memory_choose(&choice, work->sizes, recompute, request->layer_copies ? 1 : layers,
                          offload, request->accounting);
        sum += (double)choice.moved * (double)(request->layer_copies ? layers : 1);
        erg_memory_choice_release(&choice);
    }
    return sum * (double)layout->microbatches;
}

/* Tries less recomputation first, so that it wins among those that move equally few bytes. */
static int solve_stage(void *context, size_t index, struct erg_error *err)
{
    (void)err;
    const struct ratio_search *work = context;
    long stage = (long)index;
    enum erg_recompute asked = erg_layout_recompute(work->request->layout, stage);
    struct found *found = &work->found[stage];
    double best = -1;
    for (int recompute = ERG_RECOMPUTE_NONE; recompute <= (int)asked; recompute++) {
        if (!erg_recompute_is_within((enum erg_recompute)recompute, asked))
            continue;
        struct least least;
        double offload = smallest_ratio(work, stage, (enum erg_recompute)recompute, 0, &least);
        bool fits = offload <= 1;
        offload = fits ? offload : least.offload;
        double bytes = moved_bytes(work, stage, (enum erg_recompute)recompute, offload);
        if ((fits || recompute == (int)asked) && (best < 0 || bytes < best)) {
            best = bytes;
            found->recompute = (enum erg_recompute)recompute;
            found->own_offload = offload;
        }
        found->offload = offload;
        found->least = least;
    }
    return 0;
}

/*
 * Then raises every budget that is exceeded by at most the share `slack` to its stage's least
 * memory.
 */
static int check_budgets(struct erg_memory_solution *solution, const struct ratio_search *work,
                         double slack, struct erg_error *err)
{
    for (long i = 0; i < solution->count; i++) {
        const double least = work->found[i].least.bytes, excess = least - work->budgets[i];
        if (excess > slack * work->budgets[i])
            return erg_fail(err, ERG_INFEASIBLE,
                            "stage %ld needs %.2f GiB with any offloading, %.2f GiB more than "
                            "the budget",
                            i, least / 0x1p30, excess / 0x1p30);
        solution->excess_bytes = fmax(solution->excess_bytes, excess);
        work->budgets[i] = fmax(work->budgets[i], least);
    }
    return 0;
}

/* The smallest ratio with which all stages fit; NAN: none, since the ratio that one stage needs is
 * too large for another. */
static double ratio_of_all(const struct ratio_search *work)
{
    const struct erg_layout *layout = work->request->layout;
    double ratio = 0;
    for (long stage = 0; stage < layout->pipeline; stage++)
        ratio = fmax(ratio, work->found[stage].offload);
    for (long fitting = 0, stage = 0; fitting < layout->pipeline;
         stage = (stage + 1) % layout->pipeline) {
        struct least least;
        double next =
            smallest_ratio(work, stage, erg_layout_recompute(layout, stage), ratio, &least);
        if (next > 1)
            return NAN;
        fitting = next > ratio ? 1 : fitting + 1;
        ratio = next;
    }
    return ratio;
}

/* With the requested recomputation; a stage that never fits ends the search. */
static int ratio_of_stage(void *context, size_t index, struct erg_error *err)
{
    const struct ratio_search *work = context;
    const long stage = (long)index;
    struct found *found = &work->found[stage];
    found->offload = smallest_ratio(work, stage, erg_layout_recompute(work->request->layout, stage),
                                    0, &found->least);
    return found->offload <= 1
               ? 0
               : erg_fail(err, ERG_INFEASIBLE, "stage %ld fits with no ratio of offloading", stage);
}

int erg_memory_least_ratio(double *ratio, const struct erg_memory_request *request,
                           const double *budgets, struct erg_error *err)
{
    const size_t count = (size_t)request->layout->pipeline;
    struct erg_memory_sizes sizes;
    struct erg_error inner = {0};
    erg_memory_sizes_of(&sizes, request->model, request->layout);
    struct ratio_search work = {request, &sizes, erg_xcalloc(count, sizeof *work.budgets),
                                erg_xcalloc(count, sizeof *work.found)};
    memcpy(work.budgets, budgets, count * sizeof *budgets);
    int status = erg_parallel_for(count, 0, ratio_of_stage, &work, &inner);
    *ratio = status == 0 ? ratio_of_all(&work) : NAN;
    if (status != 0 && inner.status == ERG_INFEASIBLE)
        status = 0;
    if (status != 0)
        *err = inner;
    free(work.budgets);
    free(work.found);
    return status;
}

int erg_memory_solve(struct erg_memory_solution *solution, const struct erg_memory_request *request,
                     const double *budgets, double slack, struct erg_error *err)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    *solution = (struct erg_memory_solution){0};
    erg_memory_sizes_of(&sizes, request->model, layout);
    size_t count = (size_t)layout->pipeline;
    struct ratio_search work = {request, &sizes, erg_xcalloc(count, sizeof *work.budgets),
                                erg_xcalloc(count, sizeof *work.found)};
    *solution = (struct erg_memory_solution){.count = layout->pipeline};
    memcpy(work.budgets, budgets, count * sizeof *budgets);
    int status = erg_parallel_for(count, 0, solve_stage, &work, err);
    if (status == 0)
        status = check_budgets(solution, &work, slack, err);
    if (status == 0) {
        solution->offload = ratio_of_all(&work);
        solution->stage_offload = erg_xcalloc(count, sizeof *solution->stage_offload);
        solution->stage_recompute = erg_xcalloc(count, sizeof *solution->stage_recompute);
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        enum erg_recompute asked = erg_layout_recompute(layout, (long)i);
        solution->stage_offload[i] = work.found[i].own_offload;
        solution->stage_recompute[i] = work.found[i].recompute;
        solution->offload_bytes +=
            isnan(solution->offload) ? NAN : moved_bytes(&work, (long)i, asked, solution->offload);
        solution->stage_offload_bytes +=
            moved_bytes(&work, (long)i, work.found[i].recompute, work.found[i].own_offload);
    }
    free(work.budgets);
    free(work.found);
    return status;
}

void erg_memory_solution_release(struct erg_memory_solution *solution)
{
    free(solution->stage_offload);
    free(solution->stage_recompute);
    *solution = (struct erg_memory_solution){0};
}
