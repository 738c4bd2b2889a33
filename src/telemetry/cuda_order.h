/*
 * Which GPUs CUDA shows to programs, in CUDA's order. CUDA_VISIBLE_DEVICES counts in that order,
 * which puts the fastest GPU first where kinds differ, unless CUDA_DEVICE_ORDER is PCI_BUS_ID.
 */
#ifndef ERG_TELEMETRY_CUDA_ORDER_H
#define ERG_TELEMETRY_CUDA_ORDER_H

#include <stdbool.h>
#include <stddef.h>

enum { ERG_CUDA_UUID_BYTES = 44 };

/*
 * Asks the driver's CUDA library (libcuda.so.1, or what $ERGON_LIBCUDA names), with this process's
 * environment, for the UUIDs of up to `capacity` GPUs. A child process does it, for seconds at
 * most: a program that initialised CUDA could not use it in children of its own any more. Returns
 * false where there is no answer.
 */
bool erg_cuda_order(char (*uuids)[ERG_CUDA_UUID_BYTES], size_t capacity, size_t *count);

#endif
