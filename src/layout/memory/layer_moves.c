/* Moves layers from stages that are too large to others. */
#include "base/interrupt.h"
#include "base/memory.h"
#include "layout/memory/memory_simulation.h"
#include "layout/memory/smallest_change.h"

#include <math.h>
#include <stdlib.h>

struct layer_moves {
    struct erg_memory_request request; /* of `layout` */
    struct erg_layout layout;          /* with `layers` */
    const struct erg_memory_room *rooms;
    struct erg_memory_sizes sizes;
    long *layers; /* of chunks */
    double *left; /* free bytes per GPU of each stage; negative: missing bytes */
    double *next; /* the same with one more layer; NAN: not computed yet */
};

/* The chunk of a stage with most layers, or with fewest. */
static long *chunk_of(const struct layer_moves *at, long stage, bool most)
{
    const long pipeline = at->layout.pipeline;
    long *found = &at->layers[stage];
    for (long chunk = 1; chunk < at->layout.virtual_stages; chunk++) {
        long *layers = &at->layers[chunk * pipeline + stage];
        if (most ? *layers > *found : *layers < *found)
            found = layers;
    }
    return found;
}

static double left_of(const struct layer_moves *at, long stage)
{
    return at->rooms[stage].gpu_bytes -
           erg_memory_stage_peak(&at->request, &at->sizes, stage, INFINITY);
}

/* The free memory with one more layer. */
static double left_with_more(struct layer_moves *at, long stage)
{
    long *chunk = chunk_of(at, stage, false);
    if (isnan(at->next[stage])) {
        ++*chunk;
        at->next[stage] = left_of(at, stage);
        --*chunk;
    }
    return at->next[stage];
}

static long layers_of(const struct layer_moves *at, long stage)
{
    return erg_layout_stage_layers(&at->layout, 0, stage);
}

/* Whether a stage with one more layer has at most as many as a stage with the same memory. */
static bool is_free(const struct layer_moves *at, const long *before, long stage)
{
    for (long other = 0; other < at->layout.pipeline; other++)
        if (at->rooms[other].gpu_bytes == at->rooms[stage].gpu_bytes &&
            before[other] > layers_of(at, stage))
            return true;
    return false;
}

/* The stage with the most free memory after one more layer; -1: none has enough. */
static long receiver_of(struct layer_moves *at, const long *before, bool free)
{
    long best = -1;
    for (long stage = 0; stage < at->layout.pipeline; stage++) {
        if (at->left[stage] < 0 || left_with_more(at, stage) < 0 ||
            (free && !is_free(at, before, stage)))
            continue;
        if (best < 0 || left_with_more(at, stage) > left_with_more(at, best))
            best = stage;
    }
    return best;
}

static void count_again(struct layer_moves *at, long stage)
{
    at->left[stage] = left_of(at, stage);
    at->next[stage] = NAN;
}

/* Moves layers until all stages fit, or no layer can move. */
static int move(struct layer_moves *at, const long *before, bool free, bool *fits,
                struct erg_error *err)
{
    for (;;) {
        long giver = 0;
        if (erg_interrupt_check(err) != 0)
            return -1;
        for (long stage = 1; stage < at->layout.pipeline; stage++)
            if (at->left[stage] < at->left[giver])
                giver = stage;
        *fits = at->left[giver] >= 0;
        long *chunk = chunk_of(at, giver, true);
        long receiver = *fits || *chunk == 1 ? -1 : receiver_of(at, before, free);
        if (receiver < 0)
            return 0;
        --*chunk;
        ++*chunk_of(at, receiver, false);
        count_again(at, giver);
        count_again(at, receiver);
    }
}

int erg_memory_move_layers(long *chunk_layers, bool *fits, const struct erg_memory_request *request,
                           const struct erg_memory_room *rooms, bool free_moves,
                           struct erg_error *err)
{
    const struct erg_layout *layout = request->layout;
    const long pipeline = layout->pipeline;
    struct layer_moves at = {
        .request = *request,
        .layout = *layout,
        .rooms = rooms,
        .layers = chunk_layers,
        .left = erg_xcalloc((size_t)pipeline, sizeof *at.left),
        .next = erg_xcalloc((size_t)pipeline, sizeof *at.next),
    };
    long *before = erg_xcalloc((size_t)pipeline, sizeof *before);
    erg_memory_sizes_of(&at.sizes, request->model, layout);
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++)
        for (long stage = 0; stage < pipeline; stage++)
            chunk_layers[chunk * pipeline + stage] =
                erg_layout_chunk_layers(layout, request->model->layers, stage, chunk);
    at.layout.chunk_layers = chunk_layers;
    at.request.layout = &at.layout;
    for (long stage = 0; stage < pipeline; stage++) {
        before[stage] = layers_of(&at, stage);
        count_again(&at, stage);
    }
    int status = move(&at, before, free_moves, fits, err);
    free(before);
    free(at.left);
    free(at.next);
    return status;
}
