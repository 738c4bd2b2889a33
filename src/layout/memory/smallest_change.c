/* The smallest change with which a layout would fit. */
#include "layout/memory/smallest_change.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

struct change_search {
    struct erg_memory_change *change;
    const struct erg_memory_request *request;
    const struct erg_memory_bounds *bounds;
};

static const struct erg_memory_room *room_of(const struct change_search *search, long stage)
{
    const struct erg_memory_bounds *bounds = search->bounds;
    return &bounds->rooms[bounds->degrees ? 0 : stage];
}

/* Whether a stage's node has host_bytes for each of its GPUs. */
static bool takes(const struct erg_memory_room *room, double host_bytes)
{
    return room->host_bytes == 0 || host_bytes * (double)room->node_gpus <= room->host_bytes;
}

static bool can_offload(const struct change_search *search, const struct erg_layout *layout)
{
    struct erg_memory_request request = *search->request;
    request.layout = layout;
    return !search->bounds->no_offload && erg_memory_can_offload(&request);
}

/* Whether a simulated layout fits. */
static bool has_room(const struct change_search *search, const struct erg_memory_result *result)
{
    bool fits = true;
    for (long s = 0; s < result->count; s++) {
        const struct erg_memory_stage *stage = &result->stages[s];
        const struct erg_memory_room *room = room_of(search, s);
        fits &= stage->peak_bytes <= room->gpu_bytes && takes(room, stage->host_bytes);
    }
    return fits;
}

/* Takes a layout as the change if it fits; *fits: the result. */
static int try_layout(struct change_search *search, const struct erg_layout *layout, bool *fits,
                      struct erg_error *err)
{
    struct erg_memory_request request = *search->request;
    struct erg_memory_result result;
    request.layout = layout;
    if (erg_memory_simulate(&result, &request, err) != 0)
        return -1;
    *fits = has_room(search, &result);
    if (*fits)
        search->change->layout = *layout;
    search->change->found |= *fits;
    erg_memory_result_release(&result);
    return 0;
}

/* Tries the layout with layers moved. */
static int try_moves(struct change_search *search, const struct erg_layout *layout, bool free_moves,
                     struct erg_error *err)
{
    struct erg_layout tried = *layout;
    bool fits = false;
    if (!search->bounds->layers)
        return 0;
    long *layers = erg_xcalloc((size_t)(layout->pipeline * layout->virtual_stages), sizeof *layers);
    int status = erg_memory_move_layers(layers, &fits, search->request, search->bounds->rooms,
                                        free_moves, err);
    tried.chunk_layers = layers;
    if (!status && fits)
        status = try_layout(search, &tried, &fits, err);
    if (!status && fits)
        search->change->chunk_layers = layers;
    else
        free(layers);
    return status;
}

/*
 * Tries the fitting ratio of offloading nearest to the layout's own: the least that its GPUs need
 * if that is higher, otherwise the most that the host has room for. In thousandths, as printed.
 */
static int try_ratios(struct change_search *search, const struct erg_layout *layout,
                      struct erg_error *err)
{
    enum { STEPS = 1000 };
    struct erg_memory_request request = *search->request;
    struct erg_layout tried = *layout;
    bool fits;
    request.layout = &tried;
    double *budgets = erg_xcalloc((size_t)layout->pipeline, sizeof *budgets);
    for (long s = 0; s < layout->pipeline; s++)
        budgets[s] = room_of(search, s)->gpu_bytes;
    double least;
    const int status = erg_memory_least_ratio(&least, &request, budgets, err);
    free(budgets);
    if (status != 0 || isnan(least))
        return status;
    /* The found ratio is near the least one and may be on the other side of a thousandth. */
    long low = (long)floor(STEPS * least) - 1;
    for (fits = false; !fits && low < STEPS;) {
        tried.offload = (double)++low / STEPS;
        if (try_layout(search, &tried, &fits, err) != 0)
            return -1;
    }
    long above = (long)floor(STEPS * layout->offload + 1e-6) + 1;
    while (search->change->found && above - low > 1) {
        long middle = (low + above) / 2;
        tried.offload = (double)middle / STEPS;
        if (try_layout(search, &tried, &fits, err) != 0)
            return -1;
        *(fits ? &low : &above) = middle;
    }
    return 0;
}

/*
 * Tries more and smaller microbatches with the same number of sequences, for ergon's own training.
 */
static int try_microbatches(struct change_search *search, const struct erg_layout *layout,
                            struct erg_error *err)
{
    const long sequences = layout->microbatches * layout->microbatch;
    bool fits;
    for (long microbatch = layout->microbatch - 1; microbatch > 0 && !search->change->found;
         microbatch--) {
        struct erg_layout tried = *layout;
        tried.microbatch = microbatch;
        tried.microbatches = sequences / microbatch;
        if (search->request->accounting == ERG_MEMORY_STATIC && sequences % microbatch == 0 &&
            erg_layout_check(&tried, search->request->model, NULL) == 0 &&
            try_layout(search, &tried, &fits, err) != 0)
            return -1;
    }
    return 0;
}

/*
 * Tries all changes of recomputation and offloading, and of the layers of the requested layout,
 * smallest first.
 */
static int try_changes(struct change_search *search, const struct erg_layout *layout, bool as_it_is,
                       struct erg_error *err)
{
    static const struct {
        enum erg_recompute recompute;
        bool solve;
    } tries[] = {
        {ERG_RECOMPUTE_NORMS, false},    {ERG_RECOMPUTE_ACTIVATION, false},
        {ERG_RECOMPUTE_BALANCED, false}, {ERG_RECOMPUTE_NONE, true},
        {ERG_RECOMPUTE_NORMS, true},     {ERG_RECOMPUTE_ACTIVATION, true},
        {ERG_RECOMPUTE_BALANCED, true},  {ERG_RECOMPUTE_FULL, false},
        {ERG_RECOMPUTE_FULL, true},
    };
    enum { COPIES = 3, FULL = 7 }; /* the first with copies, and with matrix products */
    enum erg_recompute now = layout->recompute;
    bool fits;
    if (as_it_is ? try_layout(search, layout, &fits, err) : try_moves(search, layout, true, err))
        return -1;
    for (size_t i = 0; i < sizeof tries / sizeof *tries && !search->change->found; i++) {
        struct erg_layout tried = *layout;
        bool more = tries[i].solve || tries[i].recompute != now;
        tried.recompute = tries[i].recompute;
        if ((i == COPIES && try_microbatches(search, layout, err)) ||
            (i == FULL && !as_it_is && try_moves(search, layout, false, err)))
            return -1;
        if (search->change->found || !more || !erg_recompute_is_within(now, tried.recompute) ||
            (tries[i].solve && !can_offload(search, layout)))
            continue;
        if ((tries[i].solve ? try_ratios(search, &tried, err)
                            : try_layout(search, &tried, &fits, err)) != 0)
            return -1;
    }
    return 0;
}

/*
 * The bytes that GPUs lack with all possible recomputation and offloading, in closed form: the
 * least of all recomputation that includes the layout's and of no offloading and all, into *best.
 */
static double least_excess(const struct change_search *search, const struct erg_layout *layout,
                           struct erg_layout *best)
{
    struct erg_layout least = *layout;
    struct erg_memory_request request = *search->request;
    struct erg_memory_sizes sizes;
    double found = INFINITY;
    const bool fixed = request.accounting == ERG_MEMORY_STATIC;
    request.layout = &least;
    request.accounting = fixed ? ERG_MEMORY_STATIC : ERG_MEMORY_ARENA;
    erg_memory_sizes_of(&sizes, request.model, layout);
    for (int recompute = (int)layout->recompute; recompute < ERG_RECOMPUTES; recompute++)
        for (int offload = 0; offload < (can_offload(search, layout) ? 2 : 1); offload++) {
            double excess = -INFINITY;
            bool hosts = true;
            least.recompute = (enum erg_recompute)recompute;
            least.offload = offload;
            if (!erg_recompute_is_within(layout->recompute, least.recompute))
                continue;
            for (long s = 0; s < layout->pipeline; s++) {
                const struct erg_memory_room *room = room_of(search, s);
                struct erg_memory_stage stage;
                erg_memory_closed(&stage, &request, &sizes, s);
                excess = fmax(excess, stage.peak_bytes - room->gpu_bytes);
                hosts &= takes(room, stage.host_bytes);
            }
            if (excess < found && hosts) {
                found = excess;
                *best = least;
            }
        }
    return found;
}

/* Whether the layout is too large even with all possible changes. */
static bool is_hopeless(const struct change_search *search, const struct erg_layout *layout)
{
    struct erg_layout least;
    return least_excess(search, layout, &least) >
           0.02 * room_of(search, 0)->gpu_bytes; /* larger than its error */
}

/* One degree times `factor`; false: the model or the nodes do not allow it. */
static bool grow(struct erg_layout *grown, const struct change_search *search, int degree,
                 long factor, bool more_gpus)
{
    const struct erg_layout *layout = search->request->layout;
    const struct erg_memory_bounds *bounds = search->bounds;
    *grown = *layout;
    long *const degrees[] = {&grown->tensor, &grown->context, &grown->pipeline};
    *degrees[degree] *= factor;
    if (more_gpus == (layout->data % factor == 0) ||
        !erg_nodes_hold_groups(room_of(search, 0)->node_gpus, grown->tensor * grown->context,
                               erg_layout_gpus(grown)) ||
        (bounds->most_gpus && erg_layout_gpus(grown) > bounds->most_gpus && more_gpus))
        return false;
    if (!more_gpus) {
        grown->data /= factor;
        grown->microbatches *= factor;
    }
    /*
     * More stages with the same number of chunks, or with fewer chunks of the same number of
     * layers.
     */
    if (degree == 2 && !layout->chunk_layers && layout->virtual_stages % factor == 0)
        grown->virtual_stages /= factor;
    return !layout->chunk_layers && erg_layout_check(grown, search->request->model, NULL) == 0;
}

static int try_degrees(struct change_search *search, bool more_gpus, struct erg_error *err)
{
    enum { MOST = 64 };
    for (long factor = 2; factor <= MOST && !search->change->found; factor *= 2)
        for (int degree = 0; degree < 3 && !search->change->found; degree++) {
            struct erg_layout grown;
            if (grow(&grown, search, degree, factor, more_gpus) && !is_hopeless(search, &grown) &&
                try_changes(search, &grown, true, err) != 0)
                return -1;
        }
    return 0;
}

/* Finds the exact bytes that the layout needs in its smallest form. */
static int find_least(struct change_search *search, struct erg_error *err)
{
    struct erg_memory_change *change = search->change;
    struct erg_memory_request request = *search->request;
    struct erg_memory_result result;
    least_excess(search, search->request->layout, &change->layout);
    request.layout = &change->layout;
    if (erg_memory_simulate(&result, &request, err) != 0)
        return -1;
    change->excess_bytes = -INFINITY;
    for (long s = 0; s < result.count; s++) {
        double peak = result.stages[s].peak_bytes, excess = peak - room_of(search, s)->gpu_bytes;
        if (excess > change->excess_bytes) {
            change->excess_bytes = excess;
            change->least_bytes = peak;
        }
    }
    erg_memory_result_release(&result);
    return 0;
}

int erg_memory_smallest_change(struct erg_memory_change *change,
                               const struct erg_memory_request *request,
                               const struct erg_memory_bounds *bounds, struct erg_error *err)
{
    struct change_search search = {change, request, bounds};
    int status = 0;
    *change = (struct erg_memory_change){0};
    status = try_changes(&search, request->layout, false, err);
    for (int more = 0; more < 2 && bounds->degrees && !change->found && !status; more++)
        status = try_degrees(&search, more, err);
    if (!status && !change->found)
        status = find_least(&search, err);
    if (status)
        erg_memory_change_release(change);
    return status;
}

void erg_memory_change_release(struct erg_memory_change *change)
{
    free(change->chunk_layers);
    *change = (struct erg_memory_change){0};
}
