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
    bool layers;                         /* layers may move between stages */
    bool no_offload;                     /* no offloading: the host's memory is the GPUs' own */
    bool degrees;   /* degrees may grow: further stages have the first stage's memory */
    long most_gpus; /* the most GPUs that can work together; 0: no bound */
};

/*
 * The smallest change with which a layout would fit. It tries, in this order: layers moved to other
 * stages, if no stage gets more than a stage with the same memory had before, which costs no time;
 * recomputation without matrix products, the least first; another ratio of offloading, alone and
 * with such recomputation, the nearest to the layout's: the least that GPUs need if that is higher,
 * otherwise the most that hosts have room for; layers moved to any stage; full recomputation. If
 * none of these is enough, it tries the same after one degree has doubled, quadrupled, ..., with
 * fewer data ranks if there are enough, otherwise with more GPUs.
 */
struct erg_memory_change {
    bool found;
    /*
     * With the change: recomputation, offloading, layers of chunks, degrees and GPUs may differ
     * from the requested layout. If no change was found: the requested degrees with the least
     * memory.
     */
    struct erg_layout layout;
    /*
     * If no change was found: the bytes that the GPUs lack in the stage that is furthest from
     * fitting, and the bytes that this stage needs; 0: a change was found.
     */
    double excess_bytes, least_bytes;
    long *chunk_layers; /* private: of `layout`, if layers were moved */
};

/* The layout must not have ratios or recomputation of single stages. Fails only when interrupted.
 * The caller releases the result. */
int erg_memory_smallest_change(struct erg_memory_change *change,
                               const struct erg_memory_request *request,
                               const struct erg_memory_bounds *bounds, struct erg_error *err);
void erg_memory_change_release(struct erg_memory_change *change);

/*
 * Moves the fewest layers from stages that are too large to others, one at a time to the stage with
 * the most free memory; `free_moves`: only to stages that then have no more layers than a stage
 * with the same memory had before. Sets *fits and, if the layout fits, chunk_layers[pipeline x
 * virtual_stages]. Fails only when interrupted.
 */
int erg_memory_move_layers(long *chunk_layers, bool *fits, const struct erg_memory_request *request,
                           const struct erg_memory_room *rooms, bool free_moves,
                           struct erg_error *err);

#endif
