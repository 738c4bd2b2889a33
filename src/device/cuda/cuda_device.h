/*
 * CUDA device: device/device.h on real NVIDIA GPUs, one process per GPU.
 *
 * The GPUs are the tensor group of one pipeline stage on this machine. Rank 0 holds the device and
 * decides; it passes every call on to the other ranks, which follow. So the profiler above sees one
 * device, as with emulated GPUs. Rank 0 reads the sensors of all of them.
 *
 * Steps run on a layer of the model with random weights and data of realistic magnitude, since GPUs
 * draw less power for zeros. set_clock refuses unless a user asked for locks.
 */
#ifndef ERG_CUDA_DEVICE_H
#define ERG_CUDA_DEVICE_H

#include "device/cuda/worker.h"

/*
 * On rank 0: a world call, with erg_cuda_device_follow() on all others; `options` outlive the
 * device. With lock_clocks, set_clock locks the clocks (device/clock_group.h) until the device is
 * closed.
 */
int erg_cuda_device_open(struct erg_device **device, const struct erg_worker_options *options,
                         bool lock_clocks, struct erg_error *err);

/* On the other ranks: executes the calls of rank 0's device until that is closed. */
int erg_cuda_device_follow(const struct erg_worker_options *options, struct erg_error *err);

#endif
