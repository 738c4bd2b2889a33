/* Chrome traces: events as JSON text (io/trace.h). */
#include "io/trace.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>

struct erg_trace {
    struct erg_text events; /* JSON objects with commas between them */
};

struct erg_trace *erg_trace_new(void)
{
    return erg_xcalloc(1, sizeof(struct erg_trace));
}

void erg_trace_free(struct erg_trace *trace)
{
    if (!trace)
        return;
    erg_text_release(&trace->events);
    free(trace);
}

static void add_args(struct erg_text *out, const struct erg_trace_arg *args, size_t count)
{
    erg_text_add(out, ",\"args\":{");
    for (size_t i = 0; i < count; i++) {
        if (i)
            erg_text_add(out, ",");
        erg_json_add_string(out, args[i].key);
        erg_text_add(out, ":");
        if (args[i].text)
            erg_json_add_string(out, args[i].text);
        else if (isfinite(args[i].number))
            erg_text_printf(out, "%.10g", args[i].number);
        else
            erg_text_add(out, "null"); /* JSON has no NaN */
    }
    erg_text_add(out, "}}");
}

/* Viewers take thread 0 for the idle one and join equal threads of different processes. */
static int thread_id(int process, int thread)
{
    return process * 100000 + thread + 1;
}

/* Opens an event up to its name; the caller goes on with a comma. */
static void begin(struct erg_trace *trace, char phase, int process, const char *name)
{
    struct erg_text *out = &trace->events;
    erg_text_printf(out, "%s{\"ph\":\"%c\",\"pid\":%d,\"name\":", out->count ? ",\n" : "", phase,
                    process);
    erg_json_add_string(out, name);
}

void erg_trace_name_process(struct erg_trace *trace, int process, const char *name)
{
    begin(trace, 'M', process, "process_name");
    add_args(&trace->events, &(struct erg_trace_arg){"name", name, 0}, 1);
    begin(trace, 'M', process, "process_sort_index");
    add_args(&trace->events, &(struct erg_trace_arg){"sort_index", NULL, process}, 1);
}

void erg_trace_name_thread(struct erg_trace *trace, int process, int thread, const char *name)
{
    begin(trace, 'M', process, "thread_name");
    erg_text_printf(&trace->events, ",\"tid\":%d", thread_id(process, thread));
    add_args(&trace->events, &(struct erg_trace_arg){"name", name, 0}, 1);
    begin(trace, 'M', process, "thread_sort_index");
    erg_text_printf(&trace->events, ",\"tid\":%d", thread_id(process, thread));
    add_args(&trace->events, &(struct erg_trace_arg){"sort_index", NULL, thread}, 1);
}

void erg_trace_span(struct erg_trace *trace, int process, int thread, const char *name,
                    const char *category, double start_s, double duration_s,
                    const struct erg_trace_arg *args, size_t arg_count)
{
    begin(trace, 'X', process, name);
    erg_text_add(&trace->events, ",\"cat\":");
    erg_json_add_string(&trace->events, category);
    /* Viewers drop a span that overlaps its neighbour, and they read microseconds as doubles and
     * truncate them to nanoseconds. So both ends are rounded, and the last nanosecond is left
     * free. */
    double start_ns = round(start_s * 1e9), end_ns = round((start_s + duration_s) * 1e9);
    erg_text_printf(&trace->events, ",\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
                    thread_id(process, thread), start_ns / 1e3,
                    fmax(end_ns - start_ns - 1, 0) / 1e3);
    add_args(&trace->events, args, arg_count);
}

void erg_trace_counter(struct erg_trace *trace, int process, const char *name, double time_s,
                       const struct erg_trace_arg *series, size_t series_count)
{
    begin(trace, 'C', process, name);
    erg_text_printf(&trace->events, ",\"ts\":%.3f", time_s * 1e6);
    add_args(&trace->events, series, series_count);
}

void erg_trace_text(const struct erg_trace *trace, struct erg_text *out)
{
    erg_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    if (trace->events.count)
        erg_text_add_bytes(out, trace->events.data, trace->events.count);
    erg_text_add(out, "\n]}\n");
}

int erg_trace_write(const struct erg_trace *trace, const char *path, struct erg_error *err)
{
    struct erg_text out = {0};
    erg_trace_text(trace, &out);
    int result = erg_file_write(path, out.data, out.count, err);
    erg_text_release(&out);
    return result;
}
