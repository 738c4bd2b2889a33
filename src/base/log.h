/*
 * Log and progress: messages of a long computation to the person who waits.
 *
 * Rooms below the command line never print; they call these, and the command line chooses the
 * destination (stderr, a bar on a terminal, nowhere with -q). Messages of a call with a watch of
 * its own (base/call.h) go there instead. Safe to call from any thread once the sink is set.
 */
#ifndef ERG_BASE_LOG_H
#define ERG_BASE_LOG_H

#include <stddef.h>

/* As enum erg_watch_level numbers them. */
enum erg_log_level { ERG_LOG_ERROR, ERG_LOG_WARNING, ERG_LOG_INFO, ERG_LOG_DEBUG };

struct erg_log_sink {
    void (*message)(void *context, enum erg_log_level level, const char *text);
    /* `done` of `total` steps of `task`; total 0 = unknown. */
    void (*progress)(void *context, const char *task, size_t done, size_t total);
    void *context;
};

/* Called once at start, before any thread; NULL silences everything (the default). */
void erg_log_set_sink(const struct erg_log_sink *sink);

void erg_log(enum erg_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void erg_progress(const char *task, size_t done, size_t total);

#endif
