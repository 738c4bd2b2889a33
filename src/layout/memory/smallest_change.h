/* What would help a layout that does not fit into its GPUs, or a node's host memory. */
#ifndef ERG_LAYOUT_MEMORY_SMALLEST_CHANGE_H
#define ERG_LAYOUT_MEMORY_SMALLEST_CHANGE_H

#include "layout/memory/stage_memory.h"

/* What a stage has. */
struct erg_memory_room {
    double gpu_bytes;  /* of a GPU */
    double host_bytes; /* of a node, for what is offloaded; 0: no bound */
    long node_gpus;
};

/* What may be changed, and where it must fit. */
struct erg_memory_bounds {
    const struct erg_memory_room *rooms; /* [pipeline] */
    bool layers;                         /* they may move between stages */
    bool degrees;   /* they may grow: what the first stage has, more stages would have, too */
    long most_gpus; /* that can work together; 0: no bound */
};

/*
 * The smallest change with which a layout would fit: layers moved to other stages as long as none
 * gets more than another that has as much room had before, which takes no longer; recomputation
 * that costs no matrix product, the least of it first; then another ratio of offloading, alone and
 * with such recomputation, the one nearest to the layout's: the least that GPUs need where that is
 * more, else the most that hosts take; layers moved to any stage; then full recomputation. Where
 * none of these is enough, the same after one degree has grown to twice, four times, ... what it
 * was, at the cost of data ranks if there are so many, else with more GPUs.
 */
struct erg_memory_change {
    bool found;
    /* With the change: recomputation, offloading, layers of chunks, degrees and GPUs may differ
     * from those of the layout that was asked about. None found: with its degrees, so that it needs
     * the least. */
    struct erg_layout layout;
    /* What GPUs are then short of, those of the stage that is furthest from fitting, and what that
     * stage needs; 0: one was found. */
    double excess_bytes, least_bytes;
    long *chunk_layers; /* private: of `layout`, where layers were moved */
};

/* The layout has no ratios or recomputation of single stages. Fails only when interrupted. To be
 * released. */
int erg_memory_smallest_change(struct erg_memory_change *change,
                               const struct erg_memory_request *request,
                               const struct erg_memory_bounds *bounds, struct erg_error *err);
void erg_memory_change_release(struct erg_memory_change *change);

/*
 * Moves as few layers as are enough for the GPUs from stages that are too large to others, one at a
 * time to the stage that has most room left; `free_moves`: only to stages that then have no more
 * layers than one with as much room had before. chunk_layers[pipeline x virtual_stages] is set
 * where that is enough, as *fits says. Fails only when interrupted.
 */
int erg_memory_move_layers(long *chunk_layers, bool *fits, const struct erg_memory_request *request,
                           const struct erg_memory_room *rooms, bool free_moves,
                           struct erg_error *err);

#endif
