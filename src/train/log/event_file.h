/*
 * Event file: scalars over steps in the format that TensorBoard reads. A file is records of
 *
 *     u64 length | u32 masked crc32c of these 8 bytes | data | u32 masked crc32c of data
 *
 * little-endian, with masked(x) = ((x >> 15 | x << 17) + 0xa282ead8) mod 2^32. The data is a
 * protocol buffer: tensorflow's Event. The first one holds a version, each other one a Summary,
 * except that the second one in the file of a continued run is a SessionLog: it holds the step from
 * which events of older files are no longer valid. Source: tensorflow,
 * core/lib/io/record_writer.cc, core/util/event.proto, core/framework/summary.proto.
 */
#ifndef ERG_TRAIN_LOG_EVENT_FILE_H
#define ERG_TRAIN_LOG_EVENT_FILE_H

#include "base/text.h"
#include "ergon/error.h"

#include <stdint.h>

struct erg_event_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* NaN and infinity are left out */
};

/* Adds the record that begins a file, and one of scalars. Times are Unix seconds. */
void erg_event_add_version(struct erg_text *out, double time_s);
void erg_event_add_scalars(struct erg_text *out, double time_s, uint64_t step,
                           const struct erg_event_scalar *scalars, size_t count);
/* And one that takes back what earlier files say of `step` and those behind it. */
void erg_event_add_start(struct erg_text *out, double time_s, uint64_t step);

struct erg_event_file {
    int file; /* -1: not open */
    char *path;
    struct erg_text unwritten; /* while the disk is full */
};

/* Makes FOLDER/events.out.tfevents.SECONDS.HOST.PID.N, N the first from 0 that is not there, of a
 * run that goes on behind `step`. */
int erg_event_file_open(struct erg_event_file *events, const char *folder, double time_s,
                        uint64_t step, struct erg_error *err);
/* Data that cannot be written is kept, and written with later data. */
int erg_event_file_write(struct erg_event_file *events, double time_s, uint64_t step,
                         const struct erg_event_scalar *scalars, size_t count,
                         struct erg_error *err);
int erg_event_file_close(struct erg_event_file *events, struct erg_error *err);

#endif
