/* Writes recordings (telemetry/recording.h). */
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/json.h"
#include "telemetry/recording_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { FULL_BYTES = 1 << 20 };

struct erg_recorder {
    int file;
    char *path;
    struct erg_text chunk; /* of samples, growing */
    struct recording_last *last;
    size_t gpus;
    bool is_virtual;
    int64_t now_ns; /* in virtual time, of the latest sample */
    int64_t begun_ns, chunk_ns;
    struct erg_error broken; /* status set once a chunk could not be written */
};

static int64_t unix_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void add_i64(struct erg_text *out, int64_t value)
{
    char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)value >> 8 * i);
    erg_text_add_bytes(out, bytes, sizeof bytes);
}

/* The difference modulo 2^64, so that any value may follow any other. */
static void add_difference(struct erg_text *out, int64_t value, int64_t *last)
{
    int64_t difference = (int64_t)((uint64_t)value - (uint64_t)*last);
    *last = value;
    erg_text_add_varint(out, (uint64_t)difference << 1 ^ (uint64_t) - (difference < 0));
}

static int write_all(int file, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t put = write(file, at, count);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        at += put;
        assert((size_t)put <= count);
        count -= (size_t)put;
    }
    return 0;
}

/* One write for the whole chunk, then a sync: a crash leaves whole chunks and one torn end. */
static int write_chunk(struct erg_recorder *recorder, enum recording_chunk kind,
                       const char *payload, size_t count, struct erg_error *err)
{
    unsigned char *bytes = erg_xmalloc(RECORDING_CHUNK_HEAD_BYTES + count);
    recording_store_u32(bytes, (uint32_t)kind);
    recording_store_u32(bytes + 4, (uint32_t)count);
    memcpy(bytes + RECORDING_CHUNK_HEAD_BYTES, payload, count);
    uLong sum = crc32(0, bytes, RECORDING_CHECKED_HEAD_BYTES);
    recording_store_u32(bytes + 8,
                        (uint32_t)crc32(sum, bytes + RECORDING_CHUNK_HEAD_BYTES, (uInt)count));
    int result = write_all(recorder->file, bytes, RECORDING_CHUNK_HEAD_BYTES + count);
    int reason = errno;
    free(bytes);
    if (result != 0)
        return erg_fail(err, ERG_FAILED, "writing the recording '%s': %s", recorder->path,
                        strerror(reason));
    if (!recorder->is_virtual || kind == RECORDING_END)
        fsync(recorder->file); /* fails on pipes, which is fine */
    return 0;
}

static json_t *gpu_json(const struct erg_gpu_info *info)
{
    return erg_json_pack("{s:s, s:s, s:s, s:s, s:s, s:i}", "vendor", info->vendor, "name",
                         info->name, "uuid", info->uuid, "pci", info->pci, "driver", info->driver,
                         "index", info->index);
}

/* The content of the header other than the metrics. */
struct recorded {
    const char *node, *begun;
    const struct erg_gpu_info *const *gpus;
};

static int write_header(struct erg_recorder *recorder, const struct recorded *of,
                        struct erg_error *err)
{
    json_t *gpu_list = json_array(), *metrics = json_array();
    for (size_t i = 0; i < recorder->gpus; i++)
        json_array_append_new(gpu_list, gpu_json(of->gpus[i]));
    for (int m = 0; m < ERG_METRICS; m++)
        json_array_append_new(metrics,
                              erg_json_new_string(erg_metric_info((enum erg_metric)m)->name));
    json_t *header = erg_json_pack("{s:s, s:s, s:o, s:o}", "node", of->node, "begun", of->begun,
                                   "gpus", gpu_list, "metrics", metrics);
    if (recorder->is_virtual)
        json_object_set_new(header, "virtual", json_true());
    char *text = erg_json_text(header);
    unsigned char start[RECORDING_START_BYTES] = RECORDING_MAGIC;
    recording_store_u32(start + RECORDING_MAGIC_BYTES, RECORDING_VERSION);
    int result = write_all(recorder->file, start, sizeof start);
    if (result != 0)
        erg_fail(err, ERG_FAILED, "writing the recording '%s': %s", recorder->path,
                 strerror(errno));
    else
        result = write_chunk(recorder, RECORDING_HEADER, text, strlen(text), err);
    free(text);
    json_decref(header);
    return result;
}

static int open_recorder(struct erg_recorder **out, const char *path, const struct recorded *of,
                         size_t gpus, bool is_virtual, struct erg_error *err)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
        return erg_fail(err, ERG_FAILED, "creating the recording '%s': %s%s", path, strerror(errno),
                        errno == EEXIST ? "; expected a new name, nothing is overwritten" : "");
    struct erg_recorder *recorder = erg_xcalloc(1, sizeof *recorder);
    recorder->file = file;
    recorder->path = erg_xstrdup(path);
    recorder->gpus = gpus;
    recorder->is_virtual = is_virtual;
    recorder->last = erg_xcalloc(recorder->gpus, sizeof *recorder->last);
    recorder->chunk_ns = 2000000000;
    if (write_header(recorder, of, &recorder->broken) != 0)
        return erg_recorder_close(recorder, err);
    *out = recorder;
    return 0;
}

int erg_recorder_open(struct erg_recorder **recorder, const char *path, const struct erg_gpus *gpus,
                      int64_t chunk_ns, struct erg_error *err)
{
    char node[256] = "", begun[32];
    const size_t count = erg_gpus_count(gpus);
    const struct erg_gpu_info **infos = erg_xcalloc(count, sizeof(const struct erg_gpu_info *));
    gethostname(node, sizeof node - 1);
    erg_utf8_repair(node, sizeof node);
    erg_utc_now(begun, sizeof begun);
    for (size_t i = 0; i < count; i++)
        infos[i] = erg_gpus_info(gpus, i);
    int status =
        open_recorder(recorder, path, &(struct recorded){node, begun, infos}, count, false, err);
    free(infos);
    if (status == 0 && chunk_ns > 0)
        (*recorder)->chunk_ns = chunk_ns;
    return status;
}

int erg_recorder_open_virtual(struct erg_recorder **recorder, const char *path, const char *node,
                              const struct erg_gpu_info *gpus, size_t count, struct erg_error *err)
{
    const struct erg_gpu_info **infos = erg_xcalloc(count, sizeof(const struct erg_gpu_info *));
    for (size_t i = 0; i < count; i++)
        infos[i] = &gpus[i];
    int status = open_recorder(
        recorder, path, &(struct recorded){node, "1970-01-01T00:00:00Z", infos}, count, true, err);
    free(infos);
    return status;
}

int erg_recorder_flush(struct erg_recorder *recorder, struct erg_error *err)
{
    if (recorder->broken.status == ERG_OK && recorder->chunk.count)
        write_chunk(recorder, RECORDING_SAMPLES, recorder->chunk.data, recorder->chunk.count,
                    &recorder->broken);
    recorder->chunk.count = 0;
    if (recorder->broken.status != ERG_OK)
        return erg_fail(err, recorder->broken.status, "%s", recorder->broken.message);
    return 0;
}

static int64_t now_ns(const struct erg_recorder *recorder)
{
    return recorder->is_virtual ? recorder->now_ns : erg_now_ns();
}

static void begin_chunk(struct erg_recorder *recorder)
{
    memset(recorder->last, 0, recorder->gpus * sizeof *recorder->last);
    recorder->begun_ns = now_ns(recorder);
    add_i64(&recorder->chunk, recorder->begun_ns);
    add_i64(&recorder->chunk, recorder->is_virtual ? recorder->begun_ns : unix_ns());
}

int erg_recorder_add(struct erg_recorder *recorder, const struct erg_sampler_item *item,
                     struct erg_error *err)
{
    const struct erg_gpu_sample *sample = &item->sample;
    struct erg_text *out = &recorder->chunk;
    assert(item->gpu < recorder->gpus && sample->end_ns >= sample->start_ns);
    struct recording_last *last = &recorder->last[item->gpu];
    recorder->now_ns = sample->start_ns;
    if (out->count == 0)
        begin_chunk(recorder);
    erg_text_add_varint(out, item->gpu);
    erg_text_add_varint(out, sample->lost);
    add_difference(out, item->scheduled_ns, &last->scheduled_ns);
    add_difference(out, sample->start_ns - item->scheduled_ns, &last->late_ns);
    erg_text_add_varint(out, (uint64_t)(sample->end_ns - sample->start_ns));
    erg_text_add_varint(out, sample->valid);
    for (int m = 0; m < ERG_METRICS; m++)
        if (erg_gpu_has(sample, (enum erg_metric)m)) {
            add_difference(out, sample->readings[m].value, &last->value[m]);
            add_difference(out, sample->readings[m].time_ns - sample->start_ns,
                           &last->offset_ns[m]);
        }
    if (out->count >= FULL_BYTES)
        return erg_recorder_flush(recorder, err);
    return erg_recorder_tick(recorder, err);
}

int erg_recorder_tick(struct erg_recorder *recorder, struct erg_error *err)
{
    bool old = recorder->chunk.count && now_ns(recorder) - recorder->begun_ns >= recorder->chunk_ns;
    if (old || recorder->broken.status != ERG_OK)
        return erg_recorder_flush(recorder, err);
    return 0;
}

int erg_recorder_close(struct erg_recorder *recorder, struct erg_error *err)
{
    int result = erg_recorder_flush(recorder, err);
    if (result == 0)
        result = write_chunk(recorder, RECORDING_END, "", 0, err);
    if (close(recorder->file) != 0 && result == 0)
        result = erg_fail(err, ERG_FAILED, "closing the recording '%s': %s", recorder->path,
                          strerror(errno));
    erg_text_release(&recorder->chunk);
    free(recorder->path);
    free(recorder->last);
    free(recorder);
    return result;
}
