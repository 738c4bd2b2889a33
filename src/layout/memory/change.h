/* What would help a layout that does not fit into its GPUs, or a node's host memory. */
#ifndef ERG_LAYOUT_MEMORY_CHANGE_H
#define ERG_LAYOUT_MEMORY_CHANGE_H

#include "layout/memory/memory.h"

/* What there is. */
struct erg_memory_room {
    double gpu_bytes;  /* of a GPU */
    double host_bytes; /* of a node, for what is offloaded; 0: no bound */
    long node_gpus;
    long most_gpus; /* that can work together; 0: no bound */
};

/*
 * The smallest change with which a layout would fit: recomputation that costs no matrix product,
 * the least of it first; then another ratio of offloading, alone and with such recomputation, the
 * one nearest to the layout's: the least that GPUs need where that is more, else the most that
 * hosts take; then full recomputation. Where none of these is enough, the same after one degree has
 * grown to twice, four times, ... what it was, at the cost of data ranks if there are so many, else
 * with more GPUs.
 */
struct erg_memory_change {
    bool found;
    /* With the change: recomputation, offloading, degrees and GPUs may differ from those of the
     * layout that was asked about. None found: with its degrees, so that it needs the least. */
    struct erg_layout layout;
    double least_bytes; /* of a GPU, which are enough for that; 0: one was found */
};

/* The layout has no ratios or recomputation of single stages. Fails only when interrupted. */
int erg_memory_smallest_change(struct erg_memory_change *change,
                               const struct erg_memory_request *request,
                               const struct erg_memory_room *room, struct erg_error *err);

#endif
