/* Log and progress: hands messages to the watch of the call at hand, else to the sink that the
 * command line has set. */
#include "base/log.h"

#include "base/call.h"

#include <stdarg.h>
#include <stdio.h>

/* The one process-wide setting: set once by the command line before any thread starts. */
static struct erg_log_sink sink;

void erg_log_set_sink(const struct erg_log_sink *new_sink)
{
    sink = new_sink ? *new_sink : (struct erg_log_sink){0};
}

void erg_log(enum erg_log_level level, const char *format, ...)
{
    if (!sink.message && !erg_call_current())
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!erg_call_log((int)level, text) && sink.message)
        sink.message(sink.context, level, text);
}

void erg_progress(const char *task, size_t done, size_t total)
{
    if (!erg_call_progress(task, done, total) && sink.progress)
        sink.progress(sink.context, task, done, total);
}
