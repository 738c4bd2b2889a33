/*
 * CUDA device: device/device.h on real NVIDIA GPUs, one process per GPU.
 *
 * The GPUs are the tensor group of one pipeline stage on this machine. Rank 0 holds the device and
 * decides; every call of it is passed on to the other ranks, which follow: so the profiler above
 * sees one device, as it does when the GPUs are emulated. Rank 0 reads the sensors of all of them.
 *
 * Steps are run on a layer of the model with weights and data of the usual size, since GPUs draw
 * less power for zeros. Clocks are not ours: set_clock refuses, unless a user asked for locks.
 */
#ifndef ERG_CUDA_DEVICE_H
#define ERG_CUDA_DEVICE_H

#include "device/cuda/worker.h"

/*
 * On rank 0. A world call with erg_cuda_device_follow() on all others; `options` outlive it.
 * With lock_clocks, set_clock locks them (device/clock_group.h) until the device is closed.
 */
int erg_cuda_device_open(struct erg_device **device, const struct erg_worker_options *options,
                         bool lock_clocks, struct erg_error *err);

/* On the other ranks: does what rank 0's device is asked to do, until that is closed. */
int erg_cuda_device_follow(const struct erg_worker_options *options, struct erg_error *err);

#endif
