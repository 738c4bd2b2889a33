/*
 * Lists of GPUs that people write, as bits.
 */
#ifndef ERG_TELEMETRY_GPU_BITS_H
#define ERG_TELEMETRY_GPU_BITS_H

#include "telemetry/gpu.h"

/*
 * "all", or indices below `count` with commas or spaces; where `gpus` is given, which are `count`,
 * also UUIDs or beginnings of UUIDs that fit one GPU. At most 64 GPUs.
 */
int erg_gpu_bits(const char *list, size_t count, const struct erg_gpus *gpus, uint64_t *bits,
                 struct erg_error *err);

#endif
