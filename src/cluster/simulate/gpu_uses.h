/*
 * GPU uses: which job had which GPUs from when to when, read off the events of a simulation.
 */
#ifndef ERG_CLUSTER_SIMULATE_GPU_USES_H
#define ERG_CLUSTER_SIMULATE_GPU_USES_H

#include "cluster/simulate/simulation.h"

/* GPUs of one node in the hands of one job, at one operating point. Restarts are part of it. */
struct erg_gpu_use {
    int job, point;
    struct erg_slice gpus;
    double from_s, to_s;
};

struct erg_gpu_uses {
    struct erg_gpu_use *items; /* by the time at which they end */
    size_t count, capacity;
};

/* For a simulation that kept its events. Uses that go on at the end of the simulation end there. */
void erg_gpu_uses_read(struct erg_gpu_uses *uses, const struct erg_simulated *result);
void erg_gpu_uses_release(struct erg_gpu_uses *uses);

/* GPUs of a slice, which need not lie side by side, as a text of zeros and ones, up to the last one
 * that is the job's. */
void erg_slice_bits(char bits[ERG_NODE_GPUS_MOST + 1], const struct erg_slice *slice);

#endif
