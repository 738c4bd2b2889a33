/* Reads recordings (telemetry/recording.h). Uses only whole chunks with a valid checksum. */
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "telemetry/recording_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { METRICS_MAX = 64, GPUS_MAX = 1024 };

struct erg_recording {
    FILE *file;
    char *path;
    json_t *header;
    const char *node;
    bool is_virtual;
    struct erg_gpu_info *gpus;
    size_t gpu_count;
    int metric_of[METRICS_MAX]; /* our number of each metric in the recording; -1: unknown */
    size_t metric_count;

    unsigned char *chunk; /* the current chunk of samples */
    size_t chunk_bytes, at;
    int64_t chunk_mono_ns, chunk_unix_ns;
    struct recording_last *last;
    size_t damaged_bytes;
    bool ended, closed; /* closed: its writer ended it properly */
};

static int64_t load_i64(const unsigned char *from)
{
    return (int64_t)((uint64_t)recording_load_u32(from) | (uint64_t)recording_load_u32(from + 4)
                                                              << 32);
}

/* ---- chunks ---- */

/*
 * The next whole chunk into *payload (freed by the caller). Returns false at the end, and stores
 * how many bytes are left unread.
 */
static bool next_chunk(struct erg_recording *recording, uint32_t *kind, unsigned char **payload,
                       size_t *count)
{
    unsigned char head[RECORDING_CHUNK_HEAD_BYTES];
    long start = ftell(recording->file);
    bool good = fread(head, 1, sizeof head, recording->file) == sizeof head;
    *kind = recording_load_u32(head);
    *count = good ? recording_load_u32(head + 4) : 0;
    *payload = NULL;
    if (good && *count <= RECORDING_CHUNK_BYTES_MAX) {
        *payload = erg_xmalloc(*count + 1);
        good = fread(*payload, 1, *count, recording->file) == *count;
        uLong sum = crc32(0, head, RECORDING_CHECKED_HEAD_BYTES);
        good = good && crc32(sum, *payload, (uInt)*count) == recording_load_u32(head + 8);
    } else {
        good = false;
    }
    if (good) {
        (*payload)[*count] = '\0';
        return true;
    }
    free(*payload);
    *payload = NULL;
    fseek(recording->file, 0, SEEK_END);
    recording->damaged_bytes = (size_t)(ftell(recording->file) - start);
    return false;
}

/* ---- header ---- */

static void copy_text(char *to, size_t capacity, const struct erg_json_place *place,
                      const char *key)
{
    const char *text;
    if (erg_json_has(place, key) && erg_json_string(place, key, &text, NULL) == 0)
        snprintf(to, capacity, "%s", text);
    erg_utf8_repair(to, capacity); /* cut at a whole character */
}

static int read_gpus(struct erg_recording *recording, const struct erg_json_place *root,
                     struct erg_error *err)
{
    const json_t *list;
    if (erg_json_array(root, "gpus", &list, err) != 0)
        return -1;
    recording->gpu_count = json_array_size(list);
    if (recording->gpu_count < 1 || recording->gpu_count > GPUS_MAX)
        return erg_json_fail(root, "gpus", err, "expected 1 to %d GPUs, got %zu", GPUS_MAX,
                             recording->gpu_count);
    recording->gpus = erg_xcalloc(recording->gpu_count, sizeof *recording->gpus);
    recording->last = erg_xcalloc(recording->gpu_count, sizeof *recording->last);
    for (size_t i = 0; i < recording->gpu_count; i++) {
        struct erg_json_place place;
        struct erg_gpu_info *info = &recording->gpus[i];
        long index = 0;
        if (erg_json_enter_item(&place, root, "gpus", i, err) != 0 ||
            erg_json_long(&place, "index", 0, 1 << 20, &index, err) != 0)
            return -1;
        info->index = (int)index;
        copy_text(info->vendor, sizeof info->vendor, &place, "vendor");
        copy_text(info->name, sizeof info->name, &place, "name");
        copy_text(info->uuid, sizeof info->uuid, &place, "uuid");
        copy_text(info->pci, sizeof info->pci, &place, "pci");
        copy_text(info->driver, sizeof info->driver, &place, "driver");
    }
    return 0;
}

static int read_metrics(struct erg_recording *recording, const struct erg_json_place *root,
                        struct erg_error *err)
{
    const json_t *list, *item;
    size_t i;
    if (erg_json_array(root, "metrics", &list, err) != 0)
        return -1;
    recording->metric_count = json_array_size(list);
    if (recording->metric_count > METRICS_MAX)
        return erg_json_fail(root, "metrics", err, "expected at most %d metrics, got %zu",
                             METRICS_MAX, recording->metric_count);
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);
        recording->metric_of[i] = -1;
        for (int m = 0; name && m < ERG_METRICS; m++)
            if (strcmp(name, erg_metric_info((enum erg_metric)m)->name) == 0)
                recording->metric_of[i] = m;
    }
    return 0;
}

static int read_header(struct erg_recording *recording, struct erg_error *err)
{
    unsigned char start[RECORDING_START_BYTES];
    uint32_t kind;
    unsigned char *payload;
    size_t count;
    bool whole = fread(start, 1, sizeof start, recording->file) == sizeof start;
    if (ferror(recording->file))
        return erg_fail(err, ERG_FAILED, "reading the recording '%s': %s", recording->path,
                        strerror(errno));
    if (!whole || memcmp(start, RECORDING_MAGIC, RECORDING_MAGIC_BYTES) != 0)
        return erg_fail(err, ERG_FAILED,
                        "reading the recording '%s': it does not begin like one, expected a file "
                        "written by ergon record",
                        recording->path);
    uint32_t version = recording_load_u32(start + RECORDING_MAGIC_BYTES);
    if (version != RECORDING_VERSION)
        return erg_fail(err, ERG_FAILED,
                        "reading the recording '%s': it has version %u of the format, but this "
                        "ergon reads version %d; expected it to be read by the ergon that wrote it",
                        recording->path, (unsigned)version, RECORDING_VERSION);
    bool found = next_chunk(recording, &kind, &payload, &count);
    if (!found || kind != RECORDING_HEADER) {
        free(payload);
        return erg_fail(err, ERG_FAILED,
                        "reading the recording '%s': its header is missing or damaged",
                        recording->path);
    }
    struct erg_json_place root;
    int result =
        erg_json_parse(&recording->header, recording->path, (const char *)payload, count, err);
    free(payload);
    if (result != 0 || erg_json_root(&root, recording->header, recording->path, err) != 0 ||
        erg_json_string(&root, "node", &recording->node, err) != 0 ||
        read_gpus(recording, &root, err) != 0 || read_metrics(recording, &root, err) != 0)
        return -1;
    recording->is_virtual = json_is_true(json_object_get(recording->header, "virtual"));
    return 0;
}

int erg_recording_open(struct erg_recording **out, const char *path, struct erg_error *err)
{
    if (erg_file_refuse_fifo(path, err) != 0)
        return -1;
    FILE *file = fopen(path, "rb");
    if (!file)
        return erg_fail(err, ERG_FAILED, "reading the recording '%s': %s", path, strerror(errno));
    struct erg_recording *recording = erg_xcalloc(1, sizeof *recording);
    recording->file = file;
    recording->path = erg_xstrdup(path);
    if (read_header(recording, err) != 0) {
        erg_recording_close(recording);
        return -1;
    }
    *out = recording;
    return 0;
}

void erg_recording_close(struct erg_recording *recording)
{
    if (!recording)
        return;
    fclose(recording->file);
    json_decref(recording->header);
    free(recording->path);
    free(recording->gpus);
    free(recording->last);
    free(recording->chunk);
    free(recording);
}

bool erg_recording_is_virtual(const struct erg_recording *recording)
{
    return recording->is_virtual;
}

const char *erg_recording_node(const struct erg_recording *recording)
{
    return recording->node;
}

size_t erg_recording_gpus(const struct erg_recording *recording)
{
    return recording->gpu_count;
}

const struct erg_gpu_info *erg_recording_gpu(const struct erg_recording *recording, size_t gpu)
{
    assert(gpu < recording->gpu_count);
    return &recording->gpus[gpu];
}

size_t erg_recording_damaged_bytes(const struct erg_recording *recording)
{
    return recording->damaged_bytes;
}

bool erg_recording_was_closed(const struct erg_recording *recording)
{
    return recording->closed;
}

/* ---- samples ---- */

static bool take_unsigned(struct erg_recording *recording, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (recording->at == recording->chunk_bytes)
            return false;
        assert(recording->at < recording->chunk_bytes);
        unsigned char byte = recording->chunk[recording->at++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool take_difference(struct erg_recording *recording, int64_t *last)
{
    uint64_t zigzag;
    if (!take_unsigned(recording, &zigzag))
        return false;
    *last = (int64_t)((uint64_t)*last + (zigzag >> 1 ^ (0 - (zigzag & 1))));
    return true;
}

static bool take_item(struct erg_recording *recording, struct erg_sampler_item *item)
{
    uint64_t gpu, flags, took_ns, valid;
    *item = (struct erg_sampler_item){0};
    if (!take_unsigned(recording, &gpu) || gpu >= recording->gpu_count ||
        !take_unsigned(recording, &flags))
        return false;
    struct recording_last *last = &recording->last[gpu];
    struct erg_gpu_sample *sample = &item->sample;
    if (!take_difference(recording, &last->scheduled_ns) ||
        !take_difference(recording, &last->late_ns) || !take_unsigned(recording, &took_ns) ||
        !take_unsigned(recording, &valid))
        return false;
    if (recording->metric_count < METRICS_MAX && valid >> recording->metric_count)
        return false;
    item->gpu = (size_t)gpu;
    item->scheduled_ns = last->scheduled_ns;
    sample->lost = flags & 1;
    sample->start_ns = (int64_t)((uint64_t)last->scheduled_ns + (uint64_t)last->late_ns);
    sample->end_ns = (int64_t)((uint64_t)sample->start_ns + took_ns);
    for (size_t i = 0; i < recording->metric_count; i++) {
        if (!(valid >> i & 1))
            continue;
        if (!take_difference(recording, &last->value[i]) ||
            !take_difference(recording, &last->offset_ns[i]))
            return false;
        int metric = recording->metric_of[i];
        if (metric < 0)
            continue;
        assert(metric < ERG_METRICS);
        sample->valid |= UINT64_C(1) << metric;
        sample->readings[metric] = (struct erg_reading){
            last->value[i],
            (int64_t)((uint64_t)sample->start_ns + (uint64_t)last->offset_ns[i]),
        };
    }
    return true;
}

/* Moves to the next chunk of samples; chunks of other kinds are for newer readers. */
static bool enter_chunk(struct erg_recording *recording)
{
    uint32_t kind = 0;
    do {
        free(recording->chunk);
        recording->chunk = NULL;
        if (!next_chunk(recording, &kind, &recording->chunk, &recording->chunk_bytes))
            return false;
        recording->closed = kind == RECORDING_END;
    } while (kind != RECORDING_SAMPLES || recording->chunk_bytes < 16);
    recording->chunk_mono_ns = load_i64(recording->chunk);
    recording->chunk_unix_ns = load_i64(recording->chunk + 8);
    recording->at = 16;
    memset(recording->last, 0, recording->gpu_count * sizeof *recording->last);
    return true;
}

int erg_recording_next(struct erg_recording *recording, struct erg_sampler_item *item,
                       int64_t *unix_ns, struct erg_error *err)
{
    while (!recording->ended && (!recording->chunk || recording->at == recording->chunk_bytes))
        recording->ended = !enter_chunk(recording);
    if (ferror(recording->file))
        return erg_fail(err, ERG_FAILED, "reading the recording '%s': %s", recording->path,
                        strerror(errno));
    if (recording->ended)
        return 0;
    if (take_item(recording, item)) {
        *unix_ns = (int64_t)((uint64_t)item->sample.start_ns - (uint64_t)recording->chunk_mono_ns +
                             (uint64_t)recording->chunk_unix_ns);
        return 1;
    }
    return erg_fail(err, ERG_FAILED,
                    "reading the recording '%s': a chunk with a valid checksum does not contain "
                    "samples, expected a file written by ergon record",
                    recording->path);
}
