/* Reads Kineto traces. */
#include "trace/kineto_read.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/json_stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Times are within 73 years of 1970, and no event takes longer than 11 days. */
#define MOST_NS ((int64_t)1 << 61)
#define LONGEST_NS 1000000000000000

struct kineto_reader {
    struct erg_json_stream *stream;
    struct erg_kineto_about *about;
    erg_kineto_each *each;
    void *context;
    size_t kernels;
    /* The event that is being read. */
    struct erg_kernel_record record;
    struct erg_text name, category, phase, collective, dtype, group, ranks;
    struct erg_json_spot spot;
    bool has_start, has_duration, has_device, has_stream;
    int64_t pid, tid, duration_ns;
    int told, told_sub; /* its categories; -1: absent */
};

static int next(struct kineto_reader *reader, enum erg_json_token *token, struct erg_error *err)
{
    return erg_json_stream_next(reader->stream, token, err);
}

static int fail_value(const struct kineto_reader *reader, const char *key, const char *expected,
                      struct erg_error *err)
{
    return erg_json_stream_fail(reader->stream, erg_json_stream_spot(reader->stream), err,
                                "key '%s': expected %s", key, expected);
}

/* ---- numbers ---- */

/*
 * A decimal number with up to `places` digits after the point, as a whole number of the last place;
 * finer digits are rounded. False for numbers that do not fit.
 */
static bool parse_decimal(const char *text, int places, int64_t *value)
{
    bool negative = *text == '-';
    const char *at = text + negative;
    uint64_t sum = 0;
    int shifted = -1; /* digits after the point so far; -1: before it */
    for (; (*at >= '0' && *at <= '9') || *at == '.'; at++) {
        if (*at == '.') {
            shifted = 0;
            continue;
        }
        if (shifted >= places) {
            sum += shifted == places && *at >= '5';
            shifted = places + 1;
            continue;
        }
        if (sum > (uint64_t)MOST_NS / 10)
            return false;
        sum = sum * 10 + (uint64_t)(*at - '0');
        shifted += shifted >= 0;
    }
    if (*at) { /* with an exponent, a double is as precise as the writer's number */
        double number;
        if (!erg_parse_double(text, &number) || !(fabs(number) < 1e18))
            return false;
        number = round(number * pow(10, places));
        if (!(fabs(number) <= (double)MOST_NS))
            return false;
        *value = (int64_t)number;
        return true;
    }
    for (int i = shifted < 0 ? 0 : shifted; i < places; i++) {
        if (sum > (uint64_t)MOST_NS / 10)
            return false;
        sum *= 10;
    }
    if (sum > (uint64_t)MOST_NS)
        return false;
    *value = negative ? -(int64_t)sum : (int64_t)sum;
    return true;
}

/* Microseconds, as a number or in quotes. */
static int read_time(struct kineto_reader *reader, const char *key, enum erg_json_token token,
                     int64_t *time_ns, struct erg_error *err)
{
    if ((token != ERG_JSON_NUMBER && token != ERG_JSON_TEXT) ||
        !parse_decimal(erg_json_stream_text(reader->stream), 3, time_ns))
        return fail_value(reader, key, "microseconds", err);
    return 0;
}

/* A whole number; a missing, non-numeric or too large one stays unknown. */
static bool whole(const struct kineto_reader *reader, enum erg_json_token token, int64_t *value)
{
    return (token == ERG_JSON_NUMBER || token == ERG_JSON_TEXT) &&
           parse_decimal(erg_json_stream_text(reader->stream), 0, value);
}

static bool whole32(const struct kineto_reader *reader, enum erg_json_token token, int32_t *value)
{
    int64_t wide;
    if (!whole(reader, token, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *value = (int32_t)wide;
    return true;
}

static void keep_text(const struct kineto_reader *reader, enum erg_json_token token,
                      struct erg_text *to)
{
    to->count = 0;
    if (token == ERG_JSON_TEXT || token == ERG_JSON_NUMBER)
        erg_text_add(to, erg_json_stream_text(reader->stream));
    else
        erg_text_add(to, "");
}

/* ---- an event ---- */

static int read_dimensions(struct kineto_reader *reader, enum erg_json_token token,
                           int32_t *numbers, struct erg_error *err)
{
    size_t count = 0;
    if (token != ERG_JSON_ARRAY)
        return erg_json_stream_skip(reader->stream, token, err);
    for (;;) {
        if (next(reader, &token, err) != 0)
            return -1;
        if (token == ERG_JSON_ARRAY_END)
            return 0;
        int32_t value;
        if (count < 3 && whole32(reader, token, &value))
            numbers[count++] = value;
        if (erg_json_stream_skip(reader->stream, token, err) != 0)
            return -1;
    }
}

static int read_arg(struct kineto_reader *reader, const char *key, enum erg_json_token token,
                    struct erg_error *err)
{
    struct erg_kernel_record *record = &reader->record;
    struct erg_kernel_collective *collective = &record->collective;
    int64_t value;
    if (strcmp(key, "device") == 0)
        reader->has_device = whole32(reader, token, &record->device);
    else if (strcmp(key, "stream") == 0)
        reader->has_stream = whole32(reader, token, &record->stream);
    else if (strcmp(key, "correlation") == 0)
        record->correlation = whole(reader, token, &value) ? (uint32_t)value : 0;
    else if (strcmp(key, "bytes") == 0)
        record->bytes = whole(reader, token, &value) && value > 0 ? (uint64_t)value : 0;
    else if (strcmp(key, "category") == 0)
        reader->told = token == ERG_JSON_TEXT
                           ? erg_kernel_name_index(erg_json_stream_text(reader->stream),
                                                   erg_kernel_category_names)
                           : -1;
    else if (strcmp(key, "sub-category") == 0)
        reader->told_sub =
            token == ERG_JSON_TEXT
                ? erg_kernel_name_index(erg_json_stream_text(reader->stream), erg_kernel_sub_names)
                : -1;
    else if (strcmp(key, "grid") == 0)
        return read_dimensions(reader, token, record->grid, err);
    else if (strcmp(key, "block") == 0)
        return read_dimensions(reader, token, record->block, err);
    else if (strcmp(key, "wait (us)") == 0)
        return read_time(reader, key, token, &record->wait_ns, err);
    else if (strcmp(key, "Collective name") == 0)
        keep_text(reader, token, &reader->collective);
    else if (strcmp(key, "dtype") == 0)
        keep_text(reader, token, &reader->dtype);
    else if (strcmp(key, "Process Group Name") == 0)
        keep_text(reader, token, &reader->group);
    else if (strcmp(key, "Process Group Ranks") == 0)
        keep_text(reader, token, &reader->ranks);
    else if (strcmp(key, "In msg nelems") == 0)
        collective->in_elements = whole(reader, token, &value) ? value : 0;
    else if (strcmp(key, "Out msg nelems") == 0)
        collective->out_elements = whole(reader, token, &value) ? value : 0;
    else if (strcmp(key, "Group size") == 0)
        collective->group_size =
            whole32(reader, token, &collective->group_size) ? collective->group_size : 0;
    return erg_json_stream_skip(reader->stream, token, err);
}

/* Calls read(key) for every member of the object that has just begun. */
static int each_member(struct kineto_reader *reader,
                       int (*read)(struct kineto_reader *, const char *, enum erg_json_token,
                                   struct erg_error *),
                       struct erg_error *err)
{
    char key[64];
    enum erg_json_token token;
    for (;;) {
        if (next(reader, &token, err) != 0)
            return -1;
        if (token == ERG_JSON_OBJECT_END)
            return 0;
        const char *text = erg_json_stream_text(reader->stream);
        const size_t length = strnlen(text, sizeof key - 1);
        memcpy(key, text, length);
        key[length] = '\0';
        if (next(reader, &token, err) != 0 || read(reader, key, token, err) != 0)
            return -1;
    }
}

static int read_member(struct kineto_reader *reader, const char *key, enum erg_json_token token,
                       struct erg_error *err)
{
    if (strcmp(key, "args") == 0 && token == ERG_JSON_OBJECT)
        return each_member(reader, read_arg, err);
    if (strcmp(key, "name") == 0)
        keep_text(reader, token, &reader->name);
    else if (strcmp(key, "cat") == 0)
        keep_text(reader, token, &reader->category);
    else if (strcmp(key, "ph") == 0)
        keep_text(reader, token, &reader->phase);
    else if (strcmp(key, "pid") == 0)
        reader->pid = whole(reader, token, &reader->pid) ? reader->pid : -1;
    else if (strcmp(key, "tid") == 0)
        reader->tid = whole(reader, token, &reader->tid) ? reader->tid : -1;
    else if (strcmp(key, "ts") == 0) {
        reader->has_start = true;
        return read_time(reader, key, token, &reader->record.start_ns, err);
    } else if (strcmp(key, "dur") == 0) {
        reader->has_duration = true;
        return read_time(reader, key, token, &reader->duration_ns, err);
    }
    return erg_json_stream_skip(reader->stream, token, err);
}

static void clear(struct erg_text *text)
{
    text->count = 0;
    erg_text_add(text, "");
}

/* Whether the event ran on a GPU, and its kind; older profilers write "Kernel". */
static bool is_of_gpu(const char *category, enum erg_kernel_source *source)
{
    static const char *const names[][2] = {
        {"kernel", "Kernel"}, {"gpu_memcpy", "Memcpy"}, {"gpu_memset", "Memset"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(category, names[i][0]) || !strcmp(category, names[i][1])) {
            *source = (enum erg_kernel_source)i;
            return true;
        }
    return false;
}

static int hand_on(struct kineto_reader *reader, struct erg_error *err)
{
    struct erg_kernel_record *record = &reader->record;
    struct erg_kernel_collective *collective = &record->collective;
    if (strcmp(reader->phase.data, "X") != 0 || !is_of_gpu(reader->category.data, &record->source))
        return 0;
    if (!reader->has_start || !reader->has_duration)
        return erg_json_stream_fail(reader->stream, reader->spot, err,
                                    "this kernel has no '%s'; expected microseconds",
                                    reader->has_start ? "dur" : "ts");
    if (reader->duration_ns < 0 || reader->duration_ns > LONGEST_NS)
        return erg_json_stream_fail(reader->stream, reader->spot, err,
                                    "key 'dur' of this kernel: expected from 0 to 1e12 "
                                    "microseconds");
    if (!reader->has_device && (reader->pid < 0 || reader->pid > INT32_MAX))
        return erg_json_stream_fail(
            reader->stream, reader->spot, err,
            "this kernel lacks its GPU; expected a number at 'args.device' or 'pid'");
    if (!reader->has_device)
        record->device = (int32_t)reader->pid;
    if (!reader->has_stream)
        record->stream = reader->tid >= 0 && reader->tid <= INT32_MAX ? (int32_t)reader->tid : -1;
    record->end_ns = record->start_ns + reader->duration_ns;
    record->name = reader->name.data;
    collective->name = reader->collective.count ? reader->collective.data : NULL;
    collective->dtype = reader->dtype.count ? reader->dtype.data : NULL;
    collective->group = reader->group.count ? reader->group.data : NULL;
    collective->ranks = reader->ranks.count ? reader->ranks.data : NULL;
    if (record->wait_ns < -1 || record->wait_ns > reader->duration_ns)
        record->wait_ns = -1;
    record->told = reader->told >= 0;
    record->category = (enum erg_kernel_category)(reader->told >= 0 ? reader->told : 0);
    record->sub = (enum erg_kernel_sub)(reader->told_sub >= 0 ? reader->told_sub : 0);
    reader->kernels++;
    return reader->each(reader->context, record, err);
}

static int read_event(struct kineto_reader *reader, struct erg_error *err)
{
    struct erg_text *const texts[] = {&reader->name,      &reader->category, &reader->phase,
                                      &reader->dtype,     &reader->group,    &reader->ranks,
                                      &reader->collective};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        clear(texts[i]);
    reader->record = (struct erg_kernel_record){.wait_ns = -1};
    reader->spot = erg_json_stream_spot(reader->stream);
    reader->has_start = reader->has_duration = reader->has_device = reader->has_stream = false;
    reader->pid = reader->tid = -1;
    reader->told = reader->told_sub = -1;
    reader->about->events++;
    return each_member(reader, read_member, err) || hand_on(reader, err) ? -1 : 0;
}

static int read_events(struct kineto_reader *reader, struct erg_error *err)
{
    enum erg_json_token token;
    for (;;) {
        if (next(reader, &token, err) != 0)
            return -1;
        if (token == ERG_JSON_ARRAY_END)
            return 0;
        if (token != ERG_JSON_OBJECT)
            return erg_json_stream_fail(reader->stream, erg_json_stream_spot(reader->stream), err,
                                        "expected an event, an object");
        if (read_event(reader, err) != 0)
            return -1;
    }
}

/* ---- the document ---- */

static int read_distributed(struct kineto_reader *reader, const char *key,
                            enum erg_json_token token, struct erg_error *err)
{
    int32_t value;
    if (strcmp(key, "rank") == 0 && whole32(reader, token, &value) && value >= 0)
        reader->about->rank = value;
    else if (strcmp(key, "world_size") == 0 && whole32(reader, token, &value) && value > 0)
        reader->about->world = value;
    return erg_json_stream_skip(reader->stream, token, err);
}

static int read_device_member(struct kineto_reader *reader, const char *key,
                              enum erg_json_token token, struct erg_error *err)
{
    struct erg_kineto_about *about = reader->about;
    if (about->device_count < ERG_KINETO_DEVICES) {
        if (strcmp(key, "id") == 0)
            (void)whole32(reader, token, &about->devices[about->device_count].id);
        else if (strcmp(key, "uuid") == 0 && token == ERG_JSON_TEXT)
            snprintf(about->devices[about->device_count].uuid, ERG_KINETO_UUID_BYTES, "%s",
                     erg_json_stream_text(reader->stream));
    }
    return erg_json_stream_skip(reader->stream, token, err);
}

static int read_devices(struct kineto_reader *reader, struct erg_error *err)
{
    struct erg_kineto_about *about = reader->about;
    enum erg_json_token token;
    for (;;) {
        if (next(reader, &token, err) != 0)
            return -1;
        if (token == ERG_JSON_ARRAY_END)
            return 0;
        if (token != ERG_JSON_OBJECT) {
            if (erg_json_stream_skip(reader->stream, token, err) != 0)
                return -1;
            continue;
        }
        if (each_member(reader, read_device_member, err) != 0)
            return -1;
        about->device_count += about->device_count < ERG_KINETO_DEVICES;
    }
}

static int read_root_member(struct kineto_reader *reader, const char *key,
                            enum erg_json_token token, struct erg_error *err)
{
    if (strcmp(key, "traceEvents") == 0) {
        if (token != ERG_JSON_ARRAY)
            return fail_value(reader, key, "a list of events", err);
        return read_events(reader, err);
    }
    if (strcmp(key, "baseTimeNanoseconds") == 0) {
        reader->about->has_base = whole(reader, token, &reader->about->base_ns);
        if (!reader->about->has_base)
            return fail_value(reader, key, "nanoseconds since 1970", err);
    }
    if (strcmp(key, "distributedInfo") == 0 && token == ERG_JSON_OBJECT)
        return each_member(reader, read_distributed, err);
    if (strcmp(key, "deviceProperties") == 0 && token == ERG_JSON_ARRAY)
        return read_devices(reader, err);
    return erg_json_stream_skip(reader->stream, token, err);
}

static int read_document(struct kineto_reader *reader, struct erg_error *err)
{
    enum erg_json_token token;
    if (next(reader, &token, err) != 0)
        return -1;
    int result = token == ERG_JSON_OBJECT ? each_member(reader, read_root_member, err)
                 : token == ERG_JSON_ARRAY
                     ? read_events(reader, err)
                     : fail_value(reader, "traceEvents", "an object with a list of events", err);
    return result == 0 ? next(reader, &token, err) : -1;
}

int erg_kineto_read(struct erg_kineto_about *about, const char *path, erg_kineto_each *each,
                    void *context, struct erg_error *err)
{
    struct kineto_reader reader = {.about = about, .each = each, .context = context};
    *about = (struct erg_kineto_about){.rank = -1, .world = -1};
    if (erg_json_stream_open(&reader.stream, path, err) != 0)
        return -1;
    int result = read_document(&reader, err);
    if (result == 0 && reader.kernels == 0)
        result =
            erg_fail(err, ERG_FAILED,
                     "%s: none of its %zu events ran on a GPU; expected events of the category "
                     "kernel, as PyTorch's profiler writes them with ProfilerActivity.CUDA",
                     path, about->events);
    erg_json_stream_close(reader.stream);
    erg_text_release(&reader.name);
    erg_text_release(&reader.category);
    erg_text_release(&reader.phase);
    erg_text_release(&reader.collective);
    erg_text_release(&reader.dtype);
    erg_text_release(&reader.group);
    erg_text_release(&reader.ranks);
    return result;
}
