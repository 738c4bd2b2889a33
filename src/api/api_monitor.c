/* ergon/telemetry.h: the state of all GPUs as a picture; ergon/ask.h: the same once, as a whole. */
#include "api/answer.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sized.h"
#include "ergon/telemetry.h"
#include "io/print.h"
#include "observe/screen.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Sensors move every 20 to 100 ms; reading them more often than every 50 ms would show nothing. */
enum { READ_MS = 50, LEAST_ONCE_MS = 700, MOST_ONCE_MS = 3000, POLL_MS = 100 };
enum { USUAL_MS = 500, LEAST_MS = 50, MOST_MS = 60000, MOST_CELLS = 2000 };

/* Samplers fill the state; others look. */
struct monitor_watching {
    struct erg_gpus *gpus;
    struct erg_live *live;
    struct erg_sampler *sampler;
    struct erg_live_view view;
};

struct picture_run {
    int row, column;
    enum erg_style style;
    size_t text; /* where it begins in `texts` */
};

struct erg_monitor {
    struct monitor_watching watching;
    char host[256];
    struct erg_screen screen;
    struct erg_text texts; /* of all runs, each with its NUL */
    struct {
        struct picture_run *items;
        size_t count, capacity;
    } runs;
};

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void end_watching(struct monitor_watching *at)
{
    if (at->sampler)
        erg_sampler_stop(at->sampler);
    if (at->live)
        erg_live_free(at->live);
    if (at->gpus)
        erg_gpus_close(at->gpus);
    erg_live_view_release(&at->view);
}

/* To be ended in any case. */
static int begin_watching(struct monitor_watching *at, const char *gpus, int64_t interval_ms,
                          struct erg_error *err)
{
    const int64_t step_ms = interval_ms ? interval_ms : USUAL_MS;
    if (step_ms < LEAST_MS || step_ms > MOST_MS)
        return erg_fail(err, ERG_USAGE, "interval_ms got %lld, expected %d to %d, or 0 for %d",
                        (long long)interval_ms, LEAST_MS, MOST_MS, USUAL_MS);
    const struct erg_sampler_options pace = erg_live_pace(step_ms < READ_MS ? step_ms : READ_MS);
    if (erg_gpus_open(&at->gpus, gpus, err) != 0)
        return -1;
    at->live = erg_live_new(at->gpus, &pace, step_ms * 1000000, erg_now_ns());
    const struct erg_sampler_sink sink = {.put = erg_live_put, .context = at->live};
    return erg_sampler_start(&at->sampler, at->gpus, &pace, &sink, err);
}

/* ---- once ---- */

/* Whether every GPU has reported even what is read least often: its power limit. */
static bool complete(const struct erg_live_view *view)
{
    for (size_t g = 0; g < view->count; g++)
        if (!view->gpus[g].lost && !erg_live_has(&view->gpus[g], ERG_METRIC_POWER_LIMIT))
            return false;
    return true;
}

static int look_once(struct monitor_watching *at, struct erg_error *err)
{
    struct erg_live_view *view = &at->view;
    do {
        pause_ms(POLL_MS);
        erg_live_look(at->live, erg_now_ns(), view);
    } while (!erg_interrupted() && 1e3 * view->seconds < MOST_ONCE_MS &&
             (1e3 * view->seconds < LEAST_ONCE_MS || !complete(view)));
    return erg_interrupt_check(err);
}

static int ask_monitor(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_monitor *question = at->question;
    struct monitor_watching watching = {0};
    int result = begin_watching(&watching, question->gpus, question->interval_ms, err) != 0 ||
                         look_once(&watching, err) != 0 || !erg_answer_pens(at->answer, err)
                     ? -1
                     : 0;
    if (result == 0) {
        struct erg_text table = {0};
        erg_live_table(&table, &watching.view);
        fputs(table.data, at->answer->files[ERG_ANSWER_TEXT]);
        erg_text_release(&table);
        erg_print_json(at->answer->files[ERG_ANSWER_JSON], erg_live_json(&watching.view));
    }
    end_watching(&watching);
    return result;
}

int erg_ask_monitor(struct erg_answer **answer, const struct erg_ask_monitor *question,
                    struct erg_error *err)
{
    struct erg_ask_monitor own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_monitor", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_monitor, &own, own.watch, err);
}

/* ---- again and again ---- */

int erg_monitor_open(struct erg_monitor **monitor, const struct erg_monitor_options *options,
                     struct erg_error *err)
{
    struct erg_monitor_options own = {0};
    if (erg_sized_take(&own, sizeof own, options, "erg_monitor_options", err) != 0)
        return -1;
    struct erg_monitor *at = erg_xcalloc(1, sizeof *at);
    if (begin_watching(&at->watching, own.gpus, own.interval_ms, err) != 0) {
        erg_monitor_close(at);
        return -1;
    }
    gethostname(at->host, sizeof at->host - 1);
    erg_utf8_repair(at->host, sizeof at->host);
    pause_ms(4 * READ_MS); /* the first samples */
    *monitor = at;
    return 0;
}

void erg_monitor_close(struct erg_monitor *monitor)
{
    if (!monitor)
        return;
    end_watching(&monitor->watching);
    erg_screen_release(&monitor->screen);
    erg_text_release(&monitor->texts);
    free(monitor->runs.items);
    free(monitor);
}

size_t erg_monitor_gpus(const struct erg_monitor *monitor)
{
    return erg_gpus_count(monitor->watching.gpus);
}

size_t erg_monitor_page(const struct erg_monitor *monitor, int rows)
{
    return erg_screen_page(rows, erg_monitor_gpus(monitor));
}

/* Cuts the screen into runs of one style. */
static void cut(struct erg_monitor *monitor)
{
    const struct erg_screen *screen = &monitor->screen;
    monitor->texts.count = monitor->runs.count = 0;
    for (int row = 0; row < screen->rows; row++) {
        const struct erg_cell *cells = screen->cells + (size_t)row * (size_t)screen->columns;
        for (int column = 0; column < screen->columns;) {
            const struct picture_run run = {row, column, cells[column].style, monitor->texts.count};
            for (; column < screen->columns && cells[column].style == run.style; column++)
                erg_screen_cell_text(&monitor->texts, &cells[column]);
            erg_text_add_bytes(&monitor->texts, "", 1);
            ERG_PUSH(&monitor->runs, items, run);
        }
    }
}

int erg_monitor_draw(struct erg_monitor *monitor, const struct erg_monitor_picture *picture,
                     struct erg_error *err)
{
    struct erg_monitor_picture own = {0};
    if (erg_sized_take(&own, sizeof own, picture, "erg_monitor_picture", err) != 0)
        return -1;
    if (own.rows < 0 || own.rows > MOST_CELLS || own.columns < 0 || own.columns > MOST_CELLS)
        return erg_fail(err, ERG_USAGE,
                        "a picture of %d rows and %d columns: expected 0 to %d of each", own.rows,
                        own.columns, MOST_CELLS);
    const struct erg_screen_options options = {
        .host = monitor->host, .first = own.first, .ascii = own.ascii != 0};
    struct monitor_watching *watching = &monitor->watching;
    erg_live_look(watching->live, erg_now_ns(), &watching->view);
    erg_screen_draw(&monitor->screen, own.rows, own.columns, &watching->view, &options);
    cut(monitor);
    return 0;
}

size_t erg_monitor_runs(const struct erg_monitor *monitor)
{
    return monitor->runs.count;
}

int erg_monitor_run(const struct erg_monitor *monitor, size_t index, struct erg_monitor_run *run,
                    struct erg_error *err)
{
    if (index >= monitor->runs.count)
        return erg_fail(err, ERG_USAGE, "run %zu of a picture: expected one below %zu", index,
                        monitor->runs.count);
    const struct picture_run *at = &monitor->runs.items[index];
    const struct erg_monitor_run own = {.row = at->row,
                                        .column = at->column,
                                        .style = (int32_t)at->style,
                                        .text = monitor->texts.data + at->text};
    return erg_sized_give(run, &own, sizeof own, "erg_monitor_run", err);
}
