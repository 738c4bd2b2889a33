/* The smallest change that makes a layout fit into its GPUs' memory and a node's host memory. */
#ifndef ERG_LAYOUT_MEMORY_SMALLEST_CHANGE_H
#define ERG_LAYOUT_MEMORY_SMALLEST_CHANGE_H

#include "layout/memory/stage_memory.h"

/* The memory of a stage. */
struct erg_memory_room {
    double gpu_bytes;  /* of a GPU */
    double host_bytes; /* of a node, for offloading; 0: no bound */
    long node_gpus;
};

/* The permitted changes, and the memory into which the layout must fit. */
struct erg_memory_bounds {
    const struct erg_memory_room *rooms; /* [pipeline] */
    bool layers;                         /* they may move between stages */
    bool no_offload;                     /* none helps: the host's memory is the GPUs' own */
    bool degrees;   /* they may grow: further stages would have the first stage's memory, too */
    long most_gpus; /* that can work together; 0: no bound */
};

/*
 * The smallest change with which a layout would fit. It tries, in this order: layers moved to other
 * stages, as long as no stage gets more than a stage with as much memory had before, which costs no
 * time; recomputation without matrix products, the least of it first; another ratio of offloading,
 * alone and with such recomputation, the one nearest to the layout's: the least that GPUs need
 * where that is higher, else the most that hosts have room for; layers moved to any stage; full
 * recomputation. Where none of these is enough, it tries the same after one degree has doubled,
 * quadrupled, ..., at the cost of data ranks where there are enough, else with more GPUs.
 */
struct erg_memory_change {
    bool found;
    /* With the change: recomputation, offloading, layers of chunks, degrees and GPUs may differ
     * from those of the layout that was asked about. None found: with its degrees, so that it needs
     * the least. */
    struct erg_layout layout;
    /* The bytes that the GPUs then lack in the stage that is furthest from fitting, and the bytes
     * that this stage needs; 0: a change was found. */
    double excess_bytes, least_bytes;
    long *chunk_layers; /* private: of `layout`, where layers were moved */
};

/* The layout must not have ratios or recomputation of single stages. Fails only when interrupted.
 * The caller releases the result. */
int erg_memory_smallest_change(struct erg_memory_change *change,
                               const struct erg_memory_request *request,
                               const struct erg_memory_bounds *bounds, struct erg_error *err);
void erg_memory_change_release(struct erg_memory_change *change);

/*
 * Moves as few layers as are enough for the GPUs from stages that are too large to others, one at a
 * time to the stage with the most free memory; `free_moves`: only to stages that then have no more
 * layers than a stage with as much memory had before. Sets *fits, and chunk_layers[pipeline x
 * virtual_stages] where that is enough. Fails only when interrupted.
 */
int erg_memory_move_layers(long *chunk_layers, bool *fits, const struct erg_memory_request *request,
                           const struct erg_memory_room *rooms, bool free_moves,
                           struct erg_error *err);

#endif
