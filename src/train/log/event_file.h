/*
 * Event file: scalars over steps in the format that TensorBoard reads. A file is records of
 *
 *     u64 length | u32 masked crc32c of these 8 bytes | data | u32 masked crc32c of data
 *
 * little-endian, with masked(x) = ((x >> 15 | x << 17) + 0xa282ead8) mod 2^32. The data is a
 * protocol buffer: tensorflow's Event. The first one holds a version, each other one a Summary. In
 * the file of a continued run, the second one is a SessionLog with the step from which events of
 * older files are no longer valid. Source: tensorflow, core/lib/io/record_writer.cc,
 * core/util/event.proto, core/framework/summary.proto.
 */
#ifndef ERG_TRAIN_LOG_EVENT_FILE_H
#define ERG_TRAIN_LOG_EVENT_FILE_H

#include "base/text.h"
#include "ergon/error.h"

#include <stdint.h>

struct erg_event_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* NaN and infinity are skipped */
};

/* Adds the first record of a file, and a record of scalars. Times are Unix seconds. */
void erg_event_add_version(struct erg_text *out, double time_s);
void erg_event_add_scalars(struct erg_text *out, double time_s, uint64_t step,
                           const struct erg_event_scalar *scalars, size_t count);
/* Adds a record that invalidates events of earlier files from `step` on. */
void erg_event_add_start(struct erg_text *out, double time_s, uint64_t step);

struct erg_event_file {
    int file; /* -1: not open */
    char *path;
    struct erg_text unwritten; /* pending while the disk is full */
};

/*
 * Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID.N, with the first free N from 0 on, for a run
 * that continues after `step`.
 */
int erg_event_file_open(struct erg_event_file *events, const char *folder, double time_s,
                        uint64_t step, struct erg_error *err);
/* Data that cannot be written is kept, and written with later data. */
int erg_event_file_write(struct erg_event_file *events, double time_s, uint64_t step,
                         const struct erg_event_scalar *scalars, size_t count,
                         struct erg_error *err);
int erg_event_file_close(struct erg_event_file *events, struct erg_error *err);

#endif
