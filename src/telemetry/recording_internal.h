/*
 * The bytes of a recording (telemetry/recording.h). Private to the room.
 *
 * A chunk of samples:
 *   i64 monotonic ns, i64 Unix ns        of one moment when the chunk was begun
 *   per sample, LEB128 numbers (z: zigzag of the difference to the same GPU's previous sample in
 *   the chunk, or to 0 for its first):
 *     GPU, flags (bit 0: lost)
 *     z scheduled, z start - scheduled, end - start                    ns
 *     valid                                                            bit mask
 *     per valid metric: z value, z (time - start)
 */
#ifndef ERG_TELEMETRY_RECORDING_INTERNAL_H
#define ERG_TELEMETRY_RECORDING_INTERNAL_H

#include "telemetry/recording.h"

#include <stdint.h>

#define RECORDING_MAGIC "ERGONREC"

enum {
    RECORDING_MAGIC_BYTES = 8,
    RECORDING_START_BYTES = 12, /* magic, version */
    RECORDING_VERSION = 2, /* version 1 had no number: its header's kind, 1, is at this place */
    RECORDING_CHUNK_HEAD_BYTES = 12,  /* kind, payload bytes, CRC-32 */
    RECORDING_CHECKED_HEAD_BYTES = 8, /* kind and payload bytes, which the CRC-32 covers, too */
    RECORDING_CHUNK_BYTES_MAX = 16 << 20,
};

enum recording_chunk {
    RECORDING_HEADER = 1,
    RECORDING_SAMPLES = 2,
    RECORDING_END = 3, /* empty */
};

static inline void recording_store_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static inline uint32_t recording_load_u32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

/* The previous sample of a GPU in this chunk, in the recording's own numbering of metrics. */
struct recording_last {
    int64_t scheduled_ns, late_ns;
    int64_t value[64], offset_ns[64];
};

#endif
