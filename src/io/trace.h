/*
 * Trace: timelines in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing open. Rows are processes (a GPU, a stage) with threads (a stream); they contain
 * spans with arguments, and there are counters (power, temperature, memory).
 *
 * Times are seconds from the start of the timeline, kept to the nanosecond.
 */
#ifndef ERG_IO_TRACE_H
#define ERG_IO_TRACE_H

#include "base/text.h"
#include "ergon/error.h"

#include <stddef.h>

struct erg_trace;

/* An argument of a span or a series of a counter: a text, or a number when `text` is NULL. */
struct erg_trace_arg {
    const char *key;
    const char *text;
    double number;
};

struct erg_trace *erg_trace_new(void);
void erg_trace_free(struct erg_trace *trace);

/* Names; rows are shown in the order of their numbers. */
void erg_trace_name_process(struct erg_trace *trace, int process, const char *name);
void erg_trace_name_thread(struct erg_trace *trace, int process, int thread, const char *name);

void erg_trace_span(struct erg_trace *trace, int process, int thread, const char *name,
                    const char *category, double start_s, double duration_s,
                    const struct erg_trace_arg *args, size_t arg_count);

/* The value(s) of a counter from this time on; numbers only. */
void erg_trace_counter(struct erg_trace *trace, int process, const char *name, double time_s,
                       const struct erg_trace_arg *series, size_t series_count);

/* Appends all events so far, as a complete document. */
void erg_trace_text(const struct erg_trace *trace, struct erg_text *out);

/* Writes a temporary file and renames it. Events can be added later, and the trace written
 * again. */
int erg_trace_write(const struct erg_trace *trace, const char *path, struct erg_error *err);

#endif
