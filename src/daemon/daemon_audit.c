/* The audit log: the queue of lines, and the thread that writes them. */
#include "daemon/daemon_audit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 1024, WAITING = 512 * LINE }; /* bytes of a line and of the queue */

struct erg_daemon_audit {
    pthread_t thread;
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t news;
    char path[4096]; /* "": none */
    bool reopen, stop, told;
    int file; /* used by the thread only */
    unsigned long lost;
    struct erg_text lines;
};

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
}

/* Call with the lock held; it is released during writes to the file. */
static void write_lines(struct erg_daemon_audit *audit)
{
    struct erg_text lines = audit->lines;
    audit->lines = (struct erg_text){0};
    pthread_mutex_unlock(&audit->lock);
    bool failed = audit->file >= 0 && erg_file_write_some(audit->file, &lines) != 0;
    int code = errno;
    erg_text_release(&lines);
    pthread_mutex_lock(&audit->lock);
    if (failed && !audit->told) {
        audit->told = true;
        erg_log(ERG_LOG_WARNING, "writing the audit '%s' failed: %s", audit->path, strerror(code));
    }
}

/* Call with the lock held. */
static void open_again(struct erg_daemon_audit *audit)
{
    audit->reopen = audit->told = false;
    if (audit->file >= 0)
        close(audit->file);
    audit->file = audit->path[0] ? open_file(audit->path) : -1;
    if (audit->path[0] && audit->file < 0)
        erg_log(ERG_LOG_WARNING, "opening the audit '%s' failed: %s", audit->path, strerror(errno));
}

static void *run(void *context)
{
    struct erg_daemon_audit *audit = context;
    pthread_mutex_lock(&audit->lock);
    for (;;) {
        if (audit->reopen) /* first: these lines belong in the new file */
            open_again(audit);
        else if (audit->lines.count > 0)
            write_lines(audit);
        else if (audit->stop)
            break;
        else
            pthread_cond_wait(&audit->news, &audit->lock);
    }
    pthread_mutex_unlock(&audit->lock);
    return NULL;
}

int erg_daemon_audit_open(struct erg_daemon_audit **out, const char *path, struct erg_error *err)
{
    int file = path ? open_file(path) : -1;
    if (path && file < 0)
        return erg_fail(err, ERG_FAILED,
                        "opening the audit '%s': %s; expected a file that can be appended to", path,
                        strerror(errno));
    struct erg_daemon_audit *audit = erg_xcalloc(1, sizeof *audit);
    audit->file = file;
    snprintf(audit->path, sizeof audit->path, "%s", path ? path : "");
    pthread_mutex_init(&audit->lock, NULL);
    pthread_cond_init(&audit->news, NULL);
    int code = erg_thread_start(&audit->thread, run, audit);
    if (code) {
        if (file >= 0)
            close(file);
        free(audit);
        return erg_fail(err, ERG_FAILED, "starting the audit: no thread (%s)", strerror(code));
    }
    *out = audit;
    return 0;
}

void erg_daemon_audit_reopen(struct erg_daemon_audit *audit, const char *path)
{
    pthread_mutex_lock(&audit->lock);
    snprintf(audit->path, sizeof audit->path, "%s", path ? path : "");
    audit->reopen = true;
    pthread_cond_signal(&audit->news);
    pthread_mutex_unlock(&audit->lock);
}

bool erg_daemon_audit_may(struct erg_daemon_audit *audit, int64_t *pace_ns)
{
    int64_t now_ns = erg_now_ns();
    bool may = erg_pace_reserve(pace_ns, now_ns, 20, 20, 0) <= now_ns;
    pthread_mutex_lock(&audit->lock);
    audit->lost += !may;
    pthread_mutex_unlock(&audit->lock);
    return may;
}

void erg_daemon_audit_line(struct erg_daemon_audit *audit, const char *event, const char *format,
                           ...)
{
    struct timespec now;
    struct tm date;
    char stamp[32], rest[LINE - 100]; /* texts are short enough */
    va_list values;
    va_start(values, format);
    vsnprintf(rest, sizeof rest, format, values);
    va_end(values);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &date);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &date);
    pthread_mutex_lock(&audit->lock);
    if (audit->lines.count > WAITING - LINE) {
        audit->lost++;
    } else {
        erg_text_printf(&audit->lines, "{\"time\":\"%s.%03ldZ\",\"event\":\"%s\"", stamp,
                        now.tv_nsec / 1000000, event);
        if (audit->lost)
            erg_text_printf(&audit->lines, ",\"lost\":%lu", audit->lost);
        erg_text_printf(&audit->lines, "%s}\n", rest);
        audit->lost = 0;
    }
    pthread_cond_signal(&audit->news);
    pthread_mutex_unlock(&audit->lock);
}

void erg_daemon_audit_close(struct erg_daemon_audit *audit)
{
    if (!audit)
        return;
    pthread_mutex_lock(&audit->lock);
    audit->stop = true;
    pthread_cond_signal(&audit->news);
    pthread_mutex_unlock(&audit->lock);
    pthread_join(audit->thread, NULL);
    if (audit->file >= 0)
        close(audit->file);
    pthread_mutex_destroy(&audit->lock);
    pthread_cond_destroy(&audit->news);
    erg_text_release(&audit->lines);
    free(audit);
}
