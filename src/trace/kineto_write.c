/* Writes traces in Kineto's format. */
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "trace/trace_write.h"

#include <inttypes.h>
#include <math.h>

/* Text goes to the file in pieces of this size. */
enum { PIECE = 1 << 16 };

struct kineto_writing {
    struct erg_file_writer file;
    struct erg_text text;
    bool first; /* no event yet */
};

static int flush(struct kineto_writing *writing, size_t least, struct erg_error *err)
{
    if (writing->text.count < least || writing->text.count == 0)
        return 0;
    int result = erg_file_append(&writing->file, writing->text.data, writing->text.count, err);
    writing->text.count = 0;
    return result;
}

/* Microseconds with three decimals. */
static void add_time(struct erg_text *out, const char *key, int64_t time_ns)
{
    const uint64_t size = time_ns < 0 ? -(uint64_t)time_ns : (uint64_t)time_ns;
    erg_text_printf(out, "\"%s\":%s%" PRIu64 ".%03d", key, time_ns < 0 ? "-" : "", size / 1000,
                    (int)(size % 1000));
}

static void add_member(struct erg_text *out, const char *key, const char *value)
{
    erg_text_printf(out, ",\"%s\":", key);
    erg_json_add_string(out, value);
}

/* An event up to its name and place; the caller continues with a comma. */
static struct erg_text *begin(struct kineto_writing *writing, char phase, const char *category,
                              const char *name, int32_t device, int32_t stream)
{
    struct erg_text *out = &writing->text;
    erg_text_printf(out, "%s{\"ph\":\"%c\"", writing->first ? "" : ",\n", phase);
    writing->first = false;
    if (category)
        add_member(out, "cat", category);
    add_member(out, "name", name);
    erg_text_printf(out, ",\"pid\":%d,\"tid\":%d", device, stream);
    return out;
}

static void add_collective(struct erg_text *out, const struct erg_kernel_collective *collective)
{
    if (!collective->name)
        return;
    add_member(out, "Collective name", collective->name);
    erg_text_printf(out, ",\"In msg nelems\":%" PRId64 ",\"Out msg nelems\":%" PRId64,
                    collective->in_elements, collective->out_elements);
    if (collective->group_size)
        erg_text_printf(out, ",\"Group size\":%d", collective->group_size);
    if (collective->dtype)
        add_member(out, "dtype", collective->dtype);
    if (collective->group)
        add_member(out, "Process Group Name", collective->group);
    if (collective->ranks)
        add_member(out, "Process Group Ranks", collective->ranks);
}

static void add_dimensions(struct erg_text *out, const char *key, const int32_t *sizes)
{
    if (sizes[0])
        erg_text_printf(out, ",\"%s\":[%d,%d,%d]", key, sizes[0], sizes[1], sizes[2]);
}

static void add_record(struct kineto_writing *writing, const struct erg_kernel_record *record)
{
    static const char *const categories[] = {"kernel", "gpu_memcpy", "gpu_memset"};
    struct erg_text *out = begin(writing, 'X', categories[record->source], record->name,
                                 record->device, record->stream);
    erg_text_add(out, ",");
    add_time(out, "ts", record->start_ns);
    erg_text_add(out, ",");
    add_time(out, "dur", record->end_ns - record->start_ns);
    erg_text_printf(out, ",\"args\":{\"device\":%d,\"stream\":%d,\"correlation\":%u",
                    record->device, record->stream, record->correlation);
    add_dimensions(out, "grid", record->grid);
    add_dimensions(out, "block", record->block);
    if (record->bytes)
        erg_text_printf(out, ",\"bytes\":%" PRIu64, record->bytes);
    add_member(out, "category", erg_kernel_category_names[record->category]);
    if (record->sub)
        add_member(out, "sub-category", erg_kernel_sub_names[record->sub]);
    add_collective(out, &record->collective);
    if (record->wait_ns >= 0) {
        erg_text_add(out, ",");
        add_time(out, "wait (us)", record->wait_ns);
    }
    erg_text_add(out, "}}");
}

static void add_span(struct kineto_writing *writing, const struct erg_kernel_span *span)
{
    struct erg_text *out =
        begin(writing, 'X', "gpu_user_annotation", span->name, span->device, span->stream);
    erg_text_add(out, ",");
    add_time(out, "ts", span->start_ns);
    erg_text_add(out, ",");
    add_time(out, "dur", span->end_ns - span->start_ns);
    erg_text_add(out, "}");
}

static void add_counter(struct kineto_writing *writing, const struct erg_kernel_counter *counter)
{
    if (!isfinite(counter->value))
        return;
    struct erg_text *out = begin(writing, 'C', NULL, counter->name, counter->device, 0);
    erg_text_add(out, ",");
    add_time(out, "ts", counter->time_ns);
    erg_text_printf(out, ",\"args\":{\"value\":%.10g}}", counter->value);
}

static void add_head(struct erg_text *out, const struct erg_kernel_trace *trace)
{
    erg_text_add(out, "{\"schemaVersion\":1,\n\"deviceProperties\":[");
    for (size_t i = 0; i < trace->device_count; i++) {
        const struct erg_kernel_device *device = &trace->devices[i];
        erg_text_printf(out, "%s{\"id\":%d", i ? "," : "", device->id);
        if (device->name)
            add_member(out, "name", device->name);
        if (device->uuid)
            add_member(out, "uuid", device->uuid);
        if (device->memory_bytes)
            erg_text_printf(out, ",\"totalGlobalMem\":%" PRIu64, device->memory_bytes);
        erg_text_add(out, "}");
    }
    erg_text_printf(out, "],\n\"distributedInfo\":{\"rank\":%d,\"world_size\":%d", trace->rank,
                    trace->world);
    if (trace->backend)
        add_member(out, "backend", trace->backend);
    erg_text_printf(out,
                    "},\n\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":%" PRId64
                    ",\n\"traceEvents\":[\n",
                    trace->unix_ns);
}

static void add_names(struct kineto_writing *writing, const struct erg_kernel_trace *trace)
{
    for (size_t i = 0; i < trace->device_count; i++) {
        const struct erg_kernel_device *device = &trace->devices[i];
        struct erg_text name = {0};
        erg_text_printf(&name, "rank %d GPU %d", trace->rank, device->id);
        struct erg_text *out = begin(writing, 'M', NULL, "process_name", device->id, 0);
        erg_text_add(out, ",\"ts\":0,\"args\":{\"name\":");
        erg_json_add_string(out, name.data);
        erg_text_add(out, "}}");
        erg_text_release(&name);
    }
}

int erg_trace_write_kineto(const struct erg_kernel_trace *trace, const char *path,
                           struct erg_error *err)
{
    struct kineto_writing writing = {.first = true};
    int result = 0;
    if (erg_file_begin(&writing.file, path, err) != 0)
        return -1;
    add_head(&writing.text, trace);
    add_names(&writing, trace);
    for (size_t i = 0; i < trace->span_count && result == 0; i++) {
        add_span(&writing, &trace->spans[i]);
        result = flush(&writing, PIECE, err);
    }
    for (size_t i = 0; i < trace->record_count && result == 0; i++) {
        add_record(&writing, &trace->records[i]);
        result = flush(&writing, PIECE, err);
    }
    for (size_t i = 0; i < trace->counter_count && result == 0; i++) {
        add_counter(&writing, &trace->counters[i]);
        result = flush(&writing, PIECE, err);
    }
    erg_text_add(&writing.text, "\n]}\n");
    result = result == 0 ? flush(&writing, 1, err) : result;
    erg_text_release(&writing.text);
    if (result != 0) {
        erg_file_abandon(&writing.file);
        return -1;
    }
    return erg_file_commit(&writing.file, err);
}
