/* Writes scalars in TensorBoard's format. */
#define _DEFAULT_SOURCE /* gethostname */

#include "train/log/event_file.h"

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- records ---- */

static uint32_t crc32c(const char *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* Adds the lowest `count` bytes, lowest first. */
static void add_number(struct erg_text *out, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_text_add_bytes(out, (char[]){(char)(value >> 8 * i)}, 1);
}

static void add_masked(struct erg_text *out, const char *bytes, size_t count)
{
    uint32_t crc = crc32c(bytes, count);
    add_number(out, (crc >> 15 | crc << 17) + 0xa282ead8, 4);
}

static void add_record(struct erg_text *out, const struct erg_text *data)
{
    struct erg_text length = {0};
    add_number(&length, data->count, 8);
    erg_text_add_bytes(out, length.data, length.count);
    add_masked(out, length.data, length.count);
    erg_text_add_bytes(out, data->data, data->count);
    add_masked(out, data->data, data->count);
    erg_text_release(&length);
}

/* ---- protocol buffers: a key is field << 3 | kind ---- */

enum { KIND_VARINT, KIND_8_BYTES, KIND_BYTES, KIND_4_BYTES = 5 };

static void add_varint(struct erg_text *out, uint64_t value)
{
    for (; value > 127; value >>= 7)
        add_number(out, (value & 127) | 128, 1);
    add_number(out, value, 1);
}

static void add_bytes(struct erg_text *out, unsigned field, const char *bytes, size_t count)
{
    add_varint(out, field << 3 | KIND_BYTES);
    add_varint(out, count);
    erg_text_add_bytes(out, bytes, count);
}

enum { EVENT_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_FLOAT };

static void add_time(struct erg_text *out, double time_s)
{
    uint64_t bits;
    memcpy(&bits, &time_s, sizeof bits);
    add_varint(out, EVENT_TIME << 3 | KIND_8_BYTES);
    add_number(out, bits, 8);
}

void erg_event_add_version(struct erg_text *out, double time_s)
{
    static const char version[] = "brain.Event:2";
    struct erg_text data = {0};
    add_time(&data, time_s);
    add_bytes(&data, EVENT_VERSION, version, strlen(version));
    add_record(out, &data);
    erg_text_release(&data);
}

static void add_scalar(struct erg_text *summary, const struct erg_event_scalar *scalar)
{
    struct erg_text value = {0};
    float number = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    add_bytes(&value, VALUE_TAG, scalar->tag, strlen(scalar->tag));
    add_varint(&value, VALUE_FLOAT << 3 | KIND_4_BYTES);
    add_number(&value, bits, 4);
    add_bytes(summary, SUMMARY_VALUE, value.data, value.count);
    erg_text_release(&value);
}

void erg_event_add_scalars(struct erg_text *out, double time_s, uint64_t step,
                           const struct erg_event_scalar *scalars, size_t count)
{
    struct erg_text data = {0}, summary = {0};
    for (size_t i = 0; i < count; i++)
        if (isfinite(scalars[i].value))
            add_scalar(&summary, &scalars[i]);
    add_time(&data, time_s);
    if (step) {
        add_varint(&data, EVENT_STEP << 3 | KIND_VARINT);
        add_varint(&data, step);
    }
    add_bytes(&data, EVENT_SUMMARY, summary.count ? summary.data : "", summary.count);
    add_record(out, &data);
    erg_text_release(&summary);
    erg_text_release(&data);
}

void erg_event_add_start(struct erg_text *out, double time_s, uint64_t step)
{
    static const char start[] = {SESSION_STATUS << 3 | KIND_VARINT, SESSION_START};
    struct erg_text data = {0};
    add_time(&data, time_s);
    add_varint(&data, EVENT_STEP << 3 | KIND_VARINT);
    add_varint(&data, step);
    add_bytes(&data, EVENT_SESSION, start, sizeof start);
    add_record(out, &data);
    erg_text_release(&data);
}

/* ---- files ---- */

static int fail(const struct erg_event_file *events, struct erg_error *err)
{
    return erg_fail(err, ERG_FAILED, "writing '%s': %s", events->path, strerror(errno));
}

/* Writes the pending data; keeps the rest if it cannot be written. */
static int put(struct erg_event_file *events, struct erg_error *err)
{
    return erg_file_write_some(events->file, &events->unwritten) == 0 ? 0 : fail(events, err);
}

int erg_event_file_open(struct erg_event_file *events, const char *folder, double time_s,
                        uint64_t step, struct erg_error *err)
{
    char host[256] = "localhost"; /* if the machine has no name */
    struct erg_text path = {0};
    gethostname(host, sizeof host - 1);
    *events = (struct erg_event_file){.file = -1};
    for (unsigned n = 0; events->file < 0; n++) {
        path.count = 0;
        erg_text_printf(&path, "%s/events.out.tfevents.%.0f.%s.%ld.%u", folder, floor(time_s), host,
                        (long)getpid(), n);
        events->path = path.data;
        events->file = open(path.data, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (events->file < 0 && errno != EEXIST)
            return fail(events, err);
    }
    erg_event_add_version(&events->unwritten, time_s);
    if (step)
        erg_event_add_start(&events->unwritten, time_s, step + 1);
    return put(events, err);
}

int erg_event_file_write(struct erg_event_file *events, double time_s, uint64_t step,
                         const struct erg_event_scalar *scalars, size_t count,
                         struct erg_error *err)
{
    erg_event_add_scalars(&events->unwritten, time_s, step, scalars, count);
    return put(events, err);
}

int erg_event_file_close(struct erg_event_file *events, struct erg_error *err)
{
    bool open = events->path && events->file >= 0;
    int result = open ? put(events, err) : 0;
    if (open)
        close(events->file);
    erg_text_release(&events->unwritten);
    free(events->path);
    *events = (struct erg_event_file){.file = -1};
    return result;
}
