/* The state of one running stage: shared by the schedule and the copies only. */
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
    long copying_layer;                /* layer of this group; 0 if groups are copied as a whole */
    long received;                     /* started copies in */
    struct {
        uint32_t block;
        int64_t bytes;
    } receive[2];
    uint32_t input, output, gradient,
        sent; /* waiting for a step, or for the end of their transfer */
    struct erg_memory_moment worst;
    const char *worst_moment;
    struct erg_memory_course *course; /* NULL: not requested */
    struct erg_memory_copies *copies; /* NULL: not requested */
    size_t open_out, open_in;         /* running copies; SIZE_MAX: none */
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

/* ---- FSDP (fsdp.c): does nothing unless weights are sharded ---- */

/*
 * The states of a unit: it is gathered before it runs, and the next one while it runs; its gradient
 * is allocated; it has run.
 */
void erg_memory_fsdp_first(struct erg_memory_stage_run *run, enum erg_memory_unit unit);
void erg_memory_fsdp_next(struct erg_memory_stage_run *run, enum erg_memory_unit unit);
void erg_memory_fsdp_gradient(struct erg_memory_stage_run *run, enum erg_memory_unit unit);
void erg_memory_fsdp_done(struct erg_memory_stage_run *run);

/* Allocates weights, gradients and moments of this rank's share of a stage's parameters. */
void erg_memory_fsdp_take_shards(struct erg_memory_stage_run *run, double parameters,
                                 double trained);

/* ---- offloading (transfer.c) ---- */

/* Copies all of a group out, or its layer `layer`; the end applies to the latest copy. */
void erg_memory_begin_copy_out(struct erg_memory_stage_run *run, long k, long layer);
void erg_memory_end_copy_out(struct erg_memory_stage_run *run);

/* For backward step k, or for one of its layers, which needs the tensors of earlier copies now. */
void erg_memory_begin_copy_in(struct erg_memory_stage_run *run, long k, long layer);
/*
 * While a layer of backward step k runs: for the layer below it, or the highest of the next step.
 */
void erg_memory_begin_copy_in_below(struct erg_memory_stage_run *run, long k, long layer);

/* Reassembles split tensors before their layer runs. */
void erg_memory_join_split(struct erg_memory_stage_run *run, struct erg_memory_group *group,
                           long layer);

#endif
