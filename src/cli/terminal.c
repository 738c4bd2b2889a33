/* Messages, progress and escaped bytes on the terminal. */
#define _GNU_SOURCE /* fopencookie */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TASKS = 16 };

/* Global, since there is only one terminal. Guarded by its lock. */
static struct {
    pthread_mutex_t lock;
    int verbosity;
    bool bar, colour;
    bool bar_shown;
    /* Tasks that run at the same time; the bar shows the one that moved last. */
    struct task {
        char name[64]; /* "" = free */
        int64_t start_ns;
        size_t first_done;
    } tasks[MAX_TASKS];
    int64_t last_drawn_ns;
} terminal = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Names, paths and messages may contain any bytes, and a terminal interprets some: control
 * characters are shown as "\x1b". UTF-8 writes some of them as two bytes. A byte from 0x80 to 0x9f
 * is a control character, except where it continues a character of UTF-8. */
struct escape_state {
    bool one_line;       /* line breaks are escaped, too */
    int continuation;    /* bytes that are missing from a UTF-8 character */
    unsigned char least; /* the lowest value of the first of them */
    bool held;           /* the first byte, 0xc2, waits for the second */
};

static void begin_character(struct escape_state *state, unsigned char byte)
{
    state->held = byte == 0xc2;
    state->least = byte == 0xe0   ? 0xa0
                   : byte == 0xf0 ? 0x90
                                  : 0x80; /* else a shorter encoding exists */
    state->continuation = byte < 0xc2 || byte > 0xf4 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
}

/* `out` has room for 4 bytes per byte of `count`, and one character more. */
static size_t escape(struct escape_state *state, const char *bytes, size_t count, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        const bool continues =
            state->continuation > 0 && (byte & 0xc0) == 0x80 && byte >= state->least;
        const bool control = (byte < 0x20 && byte != '\t' && (byte != '\n' || state->one_line)) ||
                             byte == 0x7f ||
                             (byte >= 0x80 && byte < 0xa0 && (!continues || state->held));
        if (state->held && !control)
            out[length++] = (char)0xc2;
        if (continues)
            *state = (struct escape_state){state->one_line, state->continuation - 1, 0x80, false};
        else
            begin_character(state, byte);
        if (control)
            length += (size_t)sprintf(out + length, "\\x%02x", byte);
        else if (!state->held)
            out[length++] = (char)byte;
    }
    return length;
}

/* Writes an incomplete character at the end of a text. */
static size_t escape_end(struct escape_state *state, char *out)
{
    const bool held = state->held;
    *state = (struct escape_state){.one_line = state->one_line};
    *out = (char)0xc2;
    return held;
}

static void print(FILE *out, struct escape_state state, const char *text)
{
    size_t count = strlen(text);
    char *escaped = erg_xmalloc(4 * count + 4);
    size_t length = escape(&state, text, count, escaped);
    length += escape_end(&state, escaped + length);
    fwrite(escaped, 1, length, out);
    free(escaped);
}

void erg_terminal_print(FILE *out, const char *text)
{
    print(out, (struct escape_state){0}, text);
}

void erg_terminal_message(const char *text)
{
    print(stderr, (struct escape_state){.one_line = true}, text);
    putc('\n', stderr);
}

static int put_bytes(const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t put = write(STDOUT_FILENO, bytes, count);
        if (put < 0 && errno != EINTR)
            return -1;
        bytes += put < 0 ? 0 : put;
        count -= put < 0 ? 0 : (size_t)put;
    }
    return 0;
}

static ssize_t write_escaped(void *cookie, const char *bytes, size_t count)
{
    char out[4 * 1024 + 4];
    for (size_t at = 0; at < count; at += 1024) {
        const size_t part = count - at < 1024 ? count - at : 1024;
        if (put_bytes(out, escape(cookie, bytes + at, part, out)) != 0)
            return 0; /* in the form that fopencookie() expects */
    }
    return (ssize_t)count;
}

static int close_escaped(void *cookie)
{
    char last;
    return put_bytes(&last, escape_end(cookie, &last));
}

void erg_terminal_guard_output(void)
{
    static struct escape_state state;
    const cookie_io_functions_t functions = {.write = write_escaped, .close = close_escaped};
    FILE *guarded = fopencookie(&state, "w", functions);
    if (!guarded)
        return;
    setvbuf(guarded, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
    stdout = guarded;
}

static void wipe_bar(void)
{
    if (terminal.bar_shown)
        fputs("\r\033[K", stderr);
    terminal.bar_shown = false;
}

void erg_terminal_line(const char *text)
{
    pthread_mutex_lock(&terminal.lock);
    wipe_bar();
    erg_terminal_message(text);
    pthread_mutex_unlock(&terminal.lock);
}

static void show_message(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    static const char *const names[] = {"error", "warning", "info", "debug"};
    static const char *const colours[] = {"\033[31m", "\033[33m", "", "\033[2m"};
    int threshold = level == ERG_LOG_ERROR     ? -1
                    : level == ERG_LOG_WARNING ? 0
                    : level == ERG_LOG_INFO    ? 1
                                               : 2;
    pthread_mutex_lock(&terminal.lock);
    if (terminal.verbosity >= threshold) {
        wipe_bar();
        if (level != ERG_LOG_INFO)
            fprintf(stderr, "%s%s:%s ", terminal.colour ? colours[level] : "", names[level],
                    terminal.colour ? "\033[0m" : "");
        erg_terminal_message(text);
    }
    pthread_mutex_unlock(&terminal.lock);
}

static void show_left(double seconds)
{
    long whole = lround(seconds);
    if (whole < 600)
        fprintf(stderr, ", %ld s left", whole);
    else
        fprintf(stderr, ", %ld:%02ld:%02ld left", whole / 3600, whole / 60 % 60, whole % 60);
}

static void draw_bar(const struct task *task, size_t done, size_t total, double elapsed_s)
{
    enum { WIDTH = 24 };
    wipe_bar();
    if (!total) {
        fprintf(stderr, "%s: %zu", task->name, done);
    } else {
        size_t filled = (size_t)((double)WIDTH * (double)done / (double)total);
        fprintf(stderr, "%s [%.*s%*s] %zu/%zu", task->name, (int)filled,
                "========================", (int)(WIDTH - filled), "", done, total);
        size_t steps = done - task->first_done;
        if (steps && done < total)
            show_left(elapsed_s / (double)steps * (double)(total - done));
    }
    fflush(stderr);
    terminal.bar_shown = true;
}

static struct task *find_task(const char *name, size_t done, int64_t now)
{
    struct task *unused = &terminal.tasks[0]; /* the first task gives way if there are too many */
    for (int i = 0; i < MAX_TASKS; i++) {
        struct task *task = &terminal.tasks[i];
        if (strncmp(task->name, name, sizeof task->name - 1) == 0)
            return task;
        if (!task->name[0])
            unused = task;
    }
    snprintf(unused->name, sizeof unused->name, "%s", name);
    unused->start_ns = now;
    unused->first_done = done;
    return unused;
}

static void show_progress(void *context, const char *name, size_t done, size_t total)
{
    (void)context;
    int64_t now = erg_now_ns();
    pthread_mutex_lock(&terminal.lock);
    struct task *task = find_task(name, done, now);
    if (total && done >= total) {
        wipe_bar();
        task->name[0] = 0;
    } else if (now - terminal.last_drawn_ns > 100000000) { /* at most ten updates a second */
        draw_bar(task, done, total, (double)(now - task->start_ns) * 1e-9);
        terminal.last_drawn_ns = now;
    }
    pthread_mutex_unlock(&terminal.lock);
}

void erg_terminal_start(int verbosity)
{
    const char *no_colour = getenv("NO_COLOR"), *type = getenv("TERM");
    /* A dumb terminal would show escapes as text. */
    bool is_terminal = isatty(STDERR_FILENO) && !(type && strcmp(type, "dumb") == 0);
    terminal.verbosity = verbosity;
    terminal.bar = is_terminal && verbosity >= 0;
    terminal.colour = is_terminal && !(no_colour && *no_colour);
    struct erg_log_sink sink = {.message = show_message,
                                .progress = terminal.bar ? show_progress : NULL};
    erg_log_set_sink(&sink);
}

void erg_terminal_finish(void)
{
    pthread_mutex_lock(&terminal.lock);
    wipe_bar();
    pthread_mutex_unlock(&terminal.lock);
}
