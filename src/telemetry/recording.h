/*
 * Recording: samples in a file that survives a crash. Append-only; made of chunks, each with its
 * length and CRC-32, so that a killed writer loses at most the chunk it was filling, and a reader
 * takes everything before the damage. The last chunk marks the end of the data, so that a file that
 * ends at a whole chunk by chance is not mistaken for a complete one.
 *
 * Format, little-endian: 8 bytes "ERGONREC", u32 version of the format (a reader refuses any
 * version other than its own); then chunks of u32 kind, u32 payload bytes, u32 CRC-32 (zlib's) of
 * these two and the payload, payload. The first is the header: JSON with node, GPUs, names of the
 * metrics and start time. A chunk of samples holds a pair of monotonic and Unix time and then, per
 * sample, differences to the previous sample of the same GPU as zigzag LEB128 numbers, restarting
 * in each chunk: every chunk can be read alone. The layout is in telemetry/recording_internal.h.
 */
#ifndef ERG_TELEMETRY_RECORDING_H
#define ERG_TELEMETRY_RECORDING_H

#include "telemetry/sampler.h"

/* ---- writing ---- */

struct erg_recorder;

/*
 * Creates the file and refuses an existing one. A chunk ends when it is full or `chunk_ns` old (0:
 * 2 s), and is then written and synced.
 */
int erg_recorder_open(struct erg_recorder **recorder, const char *path, const struct erg_gpus *gpus,
                      int64_t chunk_ns, struct erg_error *err);

/*
 * The same for GPUs in virtual time. All times come from the samples, so that equal samples give
 * equal bytes: Unix time 0 is virtual time 0, and chunks end by virtual time. Synced once, at the
 * end.
 */
int erg_recorder_open_virtual(struct erg_recorder **recorder, const char *path, const char *node,
                              const struct erg_gpu_info *gpus, size_t count, struct erg_error *err);

/* Fails when a chunk could not be written (a full disk); later calls fail the same way. */
int erg_recorder_add(struct erg_recorder *recorder, const struct erg_sampler_item *item,
                     struct erg_error *err);

/* Ends a chunk that is old enough even if no sample came; for erg_sampler_sink.idle. */
int erg_recorder_tick(struct erg_recorder *recorder, struct erg_error *err);

/* Ends the chunk now, so that everything so far is in the file. */
int erg_recorder_flush(struct erg_recorder *recorder, struct erg_error *err);

/* Writes the last chunks and closes; the recorder is freed in any case. */
int erg_recorder_close(struct erg_recorder *recorder, struct erg_error *err);

/* ---- reading ---- */

struct erg_recording;

/* Reads the header and finds the metrics by name, so that older and newer recordings open. */
int erg_recording_open(struct erg_recording **recording, const char *path, struct erg_error *err);
void erg_recording_close(struct erg_recording *recording);

const char *erg_recording_node(const struct erg_recording *recording);
bool erg_recording_is_virtual(const struct erg_recording *recording);
size_t erg_recording_gpus(const struct erg_recording *recording);
const struct erg_gpu_info *erg_recording_gpu(const struct erg_recording *recording, size_t gpu);

/*
 * The next sample, and its start in Unix time. Returns 1, 0 at the end, -1 for an unreadable file.
 * A chunk that is cut short or damaged ends the recording like an end of file.
 */
int erg_recording_next(struct erg_recording *recording, struct erg_sampler_item *item,
                       int64_t *unix_ns, struct erg_error *err);

/* Bytes after the last whole chunk, left by a crash. 0 for a clean end; after the last next(). */
size_t erg_recording_damaged_bytes(const struct erg_recording *recording);

/*
 * Whether the writer closed it; after the last next(). False: the writer was killed or is still
 * writing.
 */
bool erg_recording_was_closed(const struct erg_recording *recording);

/* ---- export ---- */

enum erg_recording_format {
    ERG_EXPORT_CSV,    /* one row per sample, a header, units in the names, empty where missing */
    ERG_EXPORT_JSONL,  /* one object per sample, without missing values */
    ERG_EXPORT_CHROME, /* counters in Chrome's trace format, rates for byte counters */
};

/* Reads a recording from its start and writes all of it. `to` "-" is standard output. */
int erg_recording_export(const char *path, enum erg_recording_format format, const char *to,
                         struct erg_error *err);

#endif
