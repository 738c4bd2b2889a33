/*
 * The copies between a GPU and host memory in one iteration of a stage: what a training engine
 * executes, and whether compute hides it. Copies out and copies in each have a stream of their own
 * and run one after the other in the order of the list.
 *
 * Time is counted in layers: position i is the moment before the i-th layer that the stage runs,
 * forward or backward. A copy may begin at its `begin`; compute does not go on at its `end` before
 * it has ended.
 *
 * Source: Megatron-Kwai's schedule of offloading (see memory.h), which copies whole groups.
 */
#ifndef ERG_LAYOUT_MEMORY_COPIES_H
#define ERG_LAYOUT_MEMORY_COPIES_H

#include "layout/memory.h"
#include "layout/time.h"

struct erg_memory_copy {
    bool in;                       /* to the GPU */
    long chunk, microbatch, layer; /* layer of the chunk; -1: all of them */
    int64_t bytes;
    size_t begin, end;
};

struct erg_memory_copies {
    struct erg_memory_copy *items; /* by begin */
    size_t count, capacity;
    struct { /* in the order in which the stage runs them */
        bool *backward;
        size_t count, capacity;
    } layers;
};

/* Of all microbatches, with the layout's ratios. */
void erg_memory_copies_init(struct erg_memory_copies *copies,
                            const struct erg_memory_request *request, long stage);
void erg_memory_copies_release(struct erg_memory_copies *copies);

/*
 * Seconds that compute waits for copies, when a layer takes forward_s or backward_s, nothing else
 * makes it wait, and each direction has `bytes_per_s` of the GPU's link to the host.
 */
double erg_memory_copies_wait(const struct erg_memory_copies *copies, double forward_s,
                              double backward_s, double bytes_per_s);

/*
 * The same of each stage in one iteration on an engine and its machine, into wait_s[pipeline].
 */
void erg_memory_copies_waits(double *wait_s, const struct erg_memory_request *request,
                             const struct erg_time_request *time);

#endif
