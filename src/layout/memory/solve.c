/* The least offloading with which a layout fits. */
#include "base/memory.h"
#include "base/thread.h"
#include "layout/memory/simulate.h"

#include <stdlib.h>

struct work {
    const struct erg_memory_request *request;
    const struct erg_memory_sizes *sizes;
    const double *budgets; /* [stages] */
    struct found {
        enum erg_remat remat;
        double offload, own_offload; /* with the layout's recomputation, and with `remat` */
        double least_bytes;          /* with all offloaded that can be */
        double excess;
    } * found; /* [stages] */
};

static double stage_peak(const struct work *work, long stage, enum erg_remat remat, double offload)
{
    struct erg_layout layout = *work->request->layout;
    struct erg_memory_request request = *work->request;
    layout.remat = remat;
    layout.offload = offload;
    layout.stage_remat = NULL;
    layout.stage_offload = NULL;
    request.layout = &layout;
    return erg_memory_stage_peak(&request, work->sizes, stage);
}

/*
 * The smallest ratio with which the stage fits, 1 where even that does not; *least is what it then
 * needs. In the arena more offloading never needs more; the framework's allocator rounds what is
 * left of a split tensor, so there the first that fits is looked for, in small steps.
 */
static double smallest_ratio(const struct work *work, long stage, enum erg_remat remat,
                             double *least)
{
    const double budget = work->budgets[stage];
    double low = 0, high = 1;
    if ((*least = stage_peak(work, stage, remat, 0)) <= budget)
        return 0;
    if (work->request->layout->pipeline < 3 ||
        (*least = stage_peak(work, stage, remat, 1)) > budget)
        return 1;
    if (work->request->accounting == ERG_MEMORY_FRAMEWORK) {
        struct erg_memory_request request = *work->request;
        struct work arena = *work;
        double ignored;
        request.accounting = ERG_MEMORY_ARENA;
        arena.request = &request;
        low = smallest_ratio(&arena, stage, remat, &ignored);
        while (low < 1 && stage_peak(work, stage, remat, low) > budget)
            low += 0.002;
        return low < 1 ? low : 1;
    }
    while (high - low > 1e-5) {
        double middle = (low + high) / 2;
        if (stage_peak(work, stage, remat, middle) <= budget)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Copied out by one GPU of the stage in an iteration. */
static double moved_bytes(const struct work *work, long stage, enum erg_remat remat, double offload)
{
    const struct erg_memory_request *request = work->request;
    const struct erg_layout *layout = request->layout;
    struct erg_layout own = *layout;
    double sum = 0;
    own.offload = offload;
    own.stage_offload = NULL;
    if (!erg_memory_offloads(&own, stage))
        return 0;
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++) {
        struct erg_memory_choice choice;
        long layers = erg_layout_chunk_layers(layout, request->model->layers, stage, chunk);
        if (stage == layout->pipeline - 1 && chunk == layout->virtual_stages - 1)
            continue; /* the head's */
        erg_memory_choose(&choice, work->sizes, remat, request->layer_copies ? 1 : layers, offload,
                          request->accounting);
        sum += (double)choice.moved * (double)(request->layer_copies ? layers : 1);
        erg_memory_choice_release(&choice);
    }
    return sum * (double)layout->microbatches;
}

/* Less recomputation first: none that moves as few bytes is passed over. */
static int solve_stage(void *context, size_t index, struct erg_error *err)
{
    (void)err;
    const struct work *work = context;
    long stage = (long)index;
    enum erg_remat asked = erg_layout_remat(work->request->layout, stage);
    struct found *found = &work->found[stage];
    const double budget = work->budgets[stage];
    double best = -1;
    for (int remat = ERG_REMAT_NONE; remat <= (int)asked; remat++) {
        if (!erg_remat_is_within((enum erg_remat)remat, asked))
            continue;
        double least, offload = smallest_ratio(work, stage, (enum erg_remat)remat, &least);
        double bytes = moved_bytes(work, stage, (enum erg_remat)remat, offload);
        bool fits = least <= budget || remat == (int)asked;
        if (fits && (best < 0 || bytes < best)) {
            best = bytes;
            found->remat = (enum erg_remat)remat;
            found->own_offload = offload;
        }
        found->offload = offload;
        found->least_bytes = least;
    }
    if (found->least_bytes > budget)
        found->excess = found->least_bytes - budget;
    return 0;
}

int erg_memory_solve(struct erg_memory_solution *solution, const struct erg_memory_request *request,
                     const double *budgets, double slack, struct erg_error *err)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    size_t count = (size_t)layout->pipeline;
    struct work work = {request, &sizes, budgets, erg_xcalloc(count, sizeof *work.found)};
    *solution = (struct erg_memory_solution){.count = layout->pipeline};
    int status = erg_parallel_for(count, 0, solve_stage, &work, err);
    for (size_t i = 0; status == 0 && i < count; i++) {
        solution->offload =
            work.found[i].offload > solution->offload ? work.found[i].offload : solution->offload;
        if (work.found[i].excess > solution->excess_bytes)
            solution->excess_bytes = work.found[i].excess;
        if (work.found[i].excess > slack * budgets[i])
            status = erg_fail(err, ERG_INFEASIBLE,
                              "stage %zu needs %.2f GiB even with all activations offloaded that "
                              "can be, %.2f GiB more than the budget",
                              i, work.found[i].least_bytes / 0x1p30, work.found[i].excess / 0x1p30);
    }
    if (status == 0) {
        solution->stage_offload = erg_xcalloc(count, sizeof *solution->stage_offload);
        solution->stage_remat = erg_xcalloc(count, sizeof *solution->stage_remat);
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        enum erg_remat asked = erg_layout_remat(layout, (long)i);
        solution->stage_offload[i] = work.found[i].own_offload;
        solution->stage_remat[i] = work.found[i].remat;
        solution->offload_bytes += moved_bytes(&work, (long)i, asked, solution->offload);
        solution->stage_offload_bytes +=
            moved_bytes(&work, (long)i, work.found[i].remat, work.found[i].own_offload);
    }
    free(work.found);
    return status;
}

void erg_memory_solution_release(struct erg_memory_solution *solution)
{
    free(solution->stage_offload);
    free(solution->stage_remat);
    *solution = (struct erg_memory_solution){0};
}
