/* Lists of GPUs in the user's notation, as bits. */
#ifndef ERG_TELEMETRY_GPU_BITS_H
#define ERG_TELEMETRY_GPU_BITS_H

#include "telemetry/gpu.h"

/*
 * "all", or indices below `count` separated by commas or spaces; with `gpus`, which has `count`
 * GPUs, also UUIDs or unique beginnings of UUIDs. At most 64 GPUs.
 */
int erg_gpu_bits(const char *list, size_t count, const struct erg_gpus *gpus, uint64_t *bits,
                 struct erg_error *err);

#endif
