/* One stage while it runs: shared by the schedule and the copies only. */
#ifndef ERG_LAYOUT_MEMORY_STAGE_RUN_H
#define ERG_LAYOUT_MEMORY_STAGE_RUN_H

#include "iteration/pass_order.h"
#include "layout/memory/copies.h"
#include "layout/memory/memory_simulation.h"

struct erg_memory_stage_run {
    struct erg_memory_simulation s;
    struct erg_pass_order order;
    long chunks, steps, warmup;        /* steps: forwards of an iteration */
    struct erg_memory_choice *choices; /* [chunks]: of a group, or of one layer of it */
    struct erg_memory_group *groups;   /* [steps]: in order of their forward pass */
    long copying_out;                  /* group, or -1 */
    long copying_layer;                /* of it; 0 where groups are copied as a whole */
    long received;                     /* copies in that were begun */
    struct {
        uint32_t block;
        int64_t bytes;
    } receive[2];
    uint32_t input, output, gradient, sent; /* that wait for a step, or for their transfer's end */
    struct erg_memory_moment worst;
    const char *worst_moment;
    struct erg_memory_course *course; /* NULL: not wanted */
    struct erg_memory_copies *copies; /* NULL: not wanted */
    size_t open_out, open_in;         /* of them, not ended; else SIZE_MAX */
    /* With FSDP: weights of the running unit and the next one, and the gradient of the running
     * unit. */
    uint32_t unit, next_unit, unit_gradient;
};

/* The group that backward step k consumes. */
static inline struct erg_memory_group *erg_memory_group_back(const struct erg_memory_stage_run *run,
                                                             long k)
{
    const struct erg_pass pass = erg_pass_order_nth(&run->order, true, (size_t)k);
    return &run->groups[erg_pass_order_forward(&run->order, pass)];
}

/* ---- FSDP (fsdp.c): nothing happens where weights are not sharded ---- */

/* The states of a unit: gathered before it runs, and the next one while it runs; its gradient
 * grows; it has run. */
void erg_memory_fsdp_first(struct erg_memory_stage_run *run, enum erg_memory_unit unit);
void erg_memory_fsdp_next(struct erg_memory_stage_run *run, enum erg_memory_unit unit);
void erg_memory_fsdp_gradient(struct erg_memory_stage_run *run, enum erg_memory_unit unit);
void erg_memory_fsdp_done(struct erg_memory_stage_run *run);

/* Weights, gradients and moments of a stage's parameters, this rank's share. */
void erg_memory_fsdp_take_shards(struct erg_memory_stage_run *run, double parameters,
                                 double trained);

/* ---- offloading (transfer.c) ---- */

/* Copies all of a group out, or its layer `layer`; the end is that of the copy begun last. */
void erg_memory_begin_copy_out(struct erg_memory_stage_run *run, long k, long layer);
void erg_memory_end_copy_out(struct erg_memory_stage_run *run);

/* For backward step k, or for one of its layers. Tensors that were copied in before are needed
 * now. */
void erg_memory_begin_copy_in(struct erg_memory_stage_run *run, long k, long layer);
/* While a layer of backward step k runs: for the layer below it, or the next step's highest. */
void erg_memory_begin_copy_in_below(struct erg_memory_stage_run *run, long k, long layer);

/* A split tensor is put together when its layer's turn comes. */
void erg_memory_join_split(struct erg_memory_stage_run *run, struct erg_memory_group *group,
                           long layer);

#endif
