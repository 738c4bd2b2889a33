/*
 * Step ends: the cost of a training step after its iteration, stage by stage. The ranks that share
 * parameters (data x context, D of them) sum their gradients and gather the new weights, and the
 * optimizer reads and writes its state of each parameter. In ergon's own training
 * (data/engines/ergon.yaml) these need, in bytes per parameter on a GPU:
 *
 *   wires      4 of a sum (fp32) and 2 of a weight (bf16), times (D - 1) / D
 *   HBM        2 of a weight that is written
 *   HBM / D    4 read for the norm, and by AdamW 4 + 3 x 4 read (gradient, master, two moments) and
 *              3 x 4 written
 *
 * Time is bytes divided by the HBM and link bandwidths that the engine reaches. Energy, with the
 * constants of the GPU's file at its highest clock, is that of the bytes, of work while the
 * optimizer runs, and of waiting while gradients are summed. As in the models of time and energy
 * (layout/time/time.h, layout_energy.h), neither overlaps with passes.
 */
#ifndef ERG_LAYOUT_STEP_END_H
#define ERG_LAYOUT_STEP_END_H

#include "layout/time/time.h"

/* The cost of one GPU of a stage. */
struct erg_step_end {
    double gradients_s, gradients_j; /* sums, and gathered weights */
    double optimizer_s, optimizer_j; /* the norm, the update */
};

struct erg_step_end_kind {
    const struct erg_engine *engine;
    const struct erg_gpu *gpu;
    struct erg_time_machine machine;
};

/*
 * ends[pipeline] of a checked layout. Stage s is on GPUs of kind stage_kind[s]; NULL: all on the
 * first.
 */
void erg_step_ends_init(struct erg_step_end *ends, const struct erg_model *model,
                        const struct erg_layout *layout, const struct erg_step_end_kind *kinds,
                        const size_t *stage_kind);

#endif
