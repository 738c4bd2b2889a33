/*
 * Finds chunks of one stage into which a number of layers fits.
 *
 * The time of a stage depends only on its layers, except for waits between stages, which are
 * shortest if all its chunks have the same number of layers. Its memory grows with the layers in
 * flight, with those of its largest chunk, which need buffers, and, if all forward passes come
 * first, with those of the head's chunk, which is never offloaded. A later chunk's forward passes
 * come after those of an earlier one, and its backward passes before them, so fewer of its
 * microbatches wait at any moment. So for a given largest chunk, memory is least if the last chunks
 * are full or, if the head's chunk waits, the first ones. Trial finds the largest chunk itself,
 * from equal chunks on.
 */
#include "layout/search/layout_search_internal.h"

#include <math.h>

/* Whether the last chunk of a stage should have few layers. */
static bool waits_in_head(const struct erg_layout *layout, long stage)
{
    return stage + 1 == layout->pipeline && layout->microbatches == layout->pipeline;
}

void erg_layout_set_even(long *chunk_layers, const struct erg_layout *layout, long stage,
                         long layers)
{
    const long chunks = layout->virtual_stages, few = layers / chunks, more = layers % chunks;
    const bool first = waits_in_head(layout, stage);
    for (long chunk = 0; chunk < chunks; chunk++)
        chunk_layers[chunk * layout->pipeline + stage] =
            few + (first ? chunk < more : chunk >= chunks - more);
}

/* The limit on layers per chunk. */
static void set_full(long *chunk_layers, const struct erg_layout *layout, long stage, long layers,
                     long most)
{
    const long chunks = layout->virtual_stages;
    const bool first = waits_in_head(layout, stage);
    for (long i = 0; i < chunks; i++) {
        const long chunk = first ? i : chunks - 1 - i, others = chunks - 1 - i;
        const long own = layers - others < most ? layers - others : most;
        chunk_layers[chunk * layout->pipeline + stage] = own;
        layers -= own;
    }
}

/* The memory lines of a stage with the current chunks. */
static void lines_of(struct erg_memory_lines *lines, const struct erg_layout_on *on,
                     const struct erg_layout *layout, const long *chunk_layers, long stage)
{
    struct erg_layout own = *layout;
    own.chunk_layers = chunk_layers;
    erg_layout_stage_lines(lines, on, &own, stage);
}

static bool fits(const long *chunk_layers, const struct erg_layout_on *on,
                 const struct erg_layout *layout, long stage, double offload)
{
    struct erg_memory_lines lines;
    lines_of(&lines, on, layout, chunk_layers, stage);
    return erg_layout_stage_fits(on, &lines, offload);
}

static double ratio_of(const long *chunk_layers, const struct erg_layout_on *on,
                       const struct erg_layout *layout, long stage, double offload)
{
    struct erg_memory_lines lines;
    double excess;
    lines_of(&lines, on, layout, chunk_layers, stage);
    return erg_layout_stage_offload(on, &lines, &offload, &excess) &&
                   erg_layout_stage_fits(on, &lines, offload)
               ? offload
               : INFINITY;
}

bool erg_layout_stage_holds(long *chunk_layers, const struct erg_layout_places *places,
                            const struct erg_layout *layout, long stage, long layers,
                            double offload)
{
    const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
    const long chunks = layout->virtual_stages, most = layers - chunks + 1;
    const double own = on->offload ? offload : 0;
    erg_layout_set_even(chunk_layers, layout, stage, layers);
    if (fits(chunk_layers, on, layout, stage, own))
        return true;
    if (chunks == 1 || !erg_layout_stage_may_hold(on, layout, stage, (double)layers, own))
        return false;
    if (own == 0) { /* without buffers only memory in flight counts */
        set_full(chunk_layers, layout, stage, layers, most);
        if (!fits(chunk_layers, on, layout, stage, own))
            return false;
    }
    for (long full = (layers + chunks - 1) / chunks; full <= most; full++) {
        set_full(chunk_layers, layout, stage, layers, full);
        if (fits(chunk_layers, on, layout, stage, own))
            return true;
    }
    return false;
}

double erg_layout_stage_ratio(long *chunk_layers, const struct erg_layout_places *places,
                              const struct erg_layout *layout, long stage, long layers,
                              double offload)
{
    const struct erg_layout_on *on = &places->on[erg_layout_place_of(places, stage)];
    const long chunks = layout->virtual_stages, most = layers - chunks + 1;
    if (!on->offload)
        return erg_layout_stage_holds(chunk_layers, places, layout, stage, layers, 0) ? offload
                                                                                      : INFINITY;
    erg_layout_set_even(chunk_layers, layout, stage, layers);
    double least = ratio_of(chunk_layers, on, layout, stage, offload);
    if (chunks == 1 || least <= offload ||
        !erg_layout_stage_may_hold(on, layout, stage, (double)layers, 1))
        return least;
    for (long full = (layers + chunks - 1) / chunks; full <= most && least > offload; full++) {
        set_full(chunk_layers, layout, stage, layers, full);
        least = fmin(least, ratio_of(chunk_layers, on, layout, stage, offload));
    }
    return least;
}
