/* GPU uses: which job had which GPUs at which times, derived from the events of a simulation. */
#ifndef ERG_CLUSTER_SIMULATE_GPU_USES_H
#define ERG_CLUSTER_SIMULATE_GPU_USES_H

#include "cluster/simulate/simulation.h"

/* GPUs of one node used by one job at one operating point, including restarts. */
struct erg_gpu_use {
    int job, point;
    struct erg_slice gpus;
    double from_s, to_s;
};

struct erg_gpu_uses {
    struct erg_gpu_use *items; /* by their end times */
    size_t count, capacity;
};

/* For a simulation that kept its events. Uses that continue at the end of the simulation end
 * there. */
void erg_gpu_uses_read(struct erg_gpu_uses *uses, const struct erg_simulated *result);
void erg_gpu_uses_release(struct erg_gpu_uses *uses);

/* The GPUs of a slice, which need not be contiguous, as zeros and ones up to the job's last GPU. */
void erg_slice_bits(char bits[ERG_NODE_GPUS_MOST + 1], const struct erg_slice *slice);

#endif
