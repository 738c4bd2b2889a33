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

#define RECORDING_MAGIC "ERGONREC"

enum {
    RECORDING_MAGIC_BYTES = 8,
    RECORDING_CHUNK_HEAD_BYTES = 12,  /* kind, payload bytes, CRC-32 */
    RECORDING_CHECKED_HEAD_BYTES = 8, /* of these, what the CRC-32 covers beside the payload */
    RECORDING_CHUNK_BYTES_MAX = 16 << 20,
    RECORDING_SCHEMA_VERSION = 1,
};

enum recording_chunk {
    RECORDING_HEADER = 1,
    RECORDING_SAMPLES = 2,
    RECORDING_END = 3, /* empty */
};

/* The previous sample of a GPU in this chunk, in the recording's own numbering of metrics. */
struct recording_last {
    int64_t scheduled_ns, late_ns;
    int64_t value[64], offset_ns[64];
};

#endif
