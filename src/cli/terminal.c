#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The one thing that is global by nature: the terminal. Guarded by its lock. */
static struct {
    pthread_mutex_t lock;
    int verbosity;
    bool bar, colour;
    bool bar_shown;
    char task[128];
    int64_t task_start_ns, last_drawn_ns;
    size_t first_done;
} terminal = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void wipe_bar(void)
{
    if (terminal.bar_shown)
        fputs("\r\033[K", stderr);
    terminal.bar_shown = false;
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
        if (level == ERG_LOG_INFO)
            fprintf(stderr, "%s\n", text);
        else
            fprintf(stderr, "%s%s:%s %s\n", terminal.colour ? colours[level] : "", names[level],
                    terminal.colour ? "\033[0m" : "", text);
    }
    pthread_mutex_unlock(&terminal.lock);
}

static void draw_bar(const char *task, size_t done, size_t total, double elapsed_s)
{
    enum { WIDTH = 24 };
    wipe_bar();
    if (!total) {
        fprintf(stderr, "%s: %zu", task, done);
    } else {
        size_t filled = (size_t)((double)WIDTH * (double)done / (double)total);
        fprintf(stderr, "%s [%.*s%*s] %zu/%zu", task, (int)filled,
                "========================", (int)(WIDTH - filled), "", done, total);
        size_t steps = done - terminal.first_done;
        if (steps && done < total)
            fprintf(stderr, ", %.0f s left", elapsed_s / (double)steps * (double)(total - done));
    }
    fflush(stderr);
    terminal.bar_shown = true;
}

static void show_progress(void *context, const char *task, size_t done, size_t total)
{
    (void)context;
    int64_t now = erg_now_ns();
    pthread_mutex_lock(&terminal.lock);
    if (strncmp(task, terminal.task, sizeof terminal.task - 1) != 0) {
        snprintf(terminal.task, sizeof terminal.task, "%s", task);
        terminal.task_start_ns = now;
        terminal.last_drawn_ns = 0;
        terminal.first_done = done;
    }
    if (total && done >= total) {
        wipe_bar();
        terminal.task[0] = 0;
    } else if (now - terminal.last_drawn_ns > 100000000) { /* ten times a second is enough */
        draw_bar(terminal.task, done, total, (double)(now - terminal.task_start_ns) * 1e-9);
        terminal.last_drawn_ns = now;
    }
    pthread_mutex_unlock(&terminal.lock);
}

void erg_terminal_start(int verbosity)
{
    bool is_terminal = isatty(STDERR_FILENO);
    const char *no_colour = getenv("NO_COLOR");
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
