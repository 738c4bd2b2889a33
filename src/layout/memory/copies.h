/*
 * The passes of one stage in an iteration and the copies between its GPU and host memory, in the
 * order in which a training engine executes them. Their times: copies/traffic.h.
 *
 * Places are counted in layers: position i is the moment before the i-th layer that the stage runs,
 * forward or backward. A copy may begin at its `begin`; compute waits at its `end` until the copy
 * has ended. Copies out and copies in each have their own stream and run in the order of the list.
 *
 * Source: Megatron-Kwai's schedule of offloading (see stage_memory.h), which copies whole groups.
 */
#ifndef ERG_LAYOUT_MEMORY_COPIES_H
#define ERG_LAYOUT_MEMORY_COPIES_H

#include "layout/memory/stage_memory.h"

struct erg_memory_copy {
    bool in;                       /* to the GPU */
    long chunk, microbatch, layer; /* layer of the chunk; -1: all of them */
    int64_t bytes;
    size_t begin, end;
};

/* One microbatch through one chunk. */
struct erg_memory_pass {
    bool backward;
    long chunk, microbatch;
    size_t begin, end; /* positions of its first layer, and after its last */
};

struct erg_memory_copies {
    struct erg_memory_copy *items; /* by begin */
    size_t count, capacity;
    struct {
        struct erg_memory_pass *items; /* in the order in which the stage runs them */
        size_t count, capacity;
    } passes;
};

/*
 * The copies of all microbatches, with the layout's ratios. In the static accounting
 * erg_static_copies_init() makes them.
 */
void erg_memory_copies_init(struct erg_memory_copies *copies,
                            const struct erg_memory_request *request, long stage);
/*
 * The copies of ergon's own training on a stage of a checked layout, layer by layer; `bytes`: moved
 * per layer; 0: none.
 */
void erg_static_copies_init(struct erg_memory_copies *copies, const struct erg_layout *layout,
                            long layers, long stage, int64_t bytes);
void erg_memory_copies_release(struct erg_memory_copies *copies);

/* The position after the last layer. */
static inline size_t erg_memory_copies_end(const struct erg_memory_copies *copies)
{
    return copies->passes.count ? copies->passes.items[copies->passes.count - 1].end : 0;
}

#endif
