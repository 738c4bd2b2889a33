/* ergon monitor: a live view of every GPU. */
#include "cli/cli.h"
#include "io/print.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "cli/curses.h"
#include "io/json.h"
#include "observe/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct monitor_values {
    const char *gpus;
    long interval_ms;
    bool once;
};

#define AT(member) offsetof(struct monitor_values, member)
static const struct erg_option options[] = {
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs separated by commas (default: CUDA_VISIBLE_DEVICES)"},
    {"interval", 'i', ERG_OPTION_LONG, "MS", AT(interval_ms), 50, 60000, .default_text = "500",
     .help = "time between two updates, and one step of the power history"},
    {"once", '1', ERG_OPTION_FLAG, NULL, AT(once),
     .help = "print one table, or with --json one document, and exit"},
    {0},
};

/* Sensors update every 20 to 100 ms; a shorter interval than 50 ms would show nothing new. */
enum { READ_MS = 50, LEAST_ONCE_MS = 700, MOST_ONCE_MS = 3000, POLL_MS = 100 };

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* ---- once ---- */

/* Returns true if every GPU has reported all values, the rarest, its power limit, included. */
static bool complete(const struct erg_live_view *view)
{
    for (size_t g = 0; g < view->count; g++)
        if (!view->gpus[g].lost && !erg_live_has(&view->gpus[g], ERG_METRIC_POWER_LIMIT))
            return false;
    return true;
}

static int print_once(const struct erg_invocation *call, struct erg_live *live,
                      struct erg_error *err)
{
    struct erg_live_view view = {0};
    do {
        pause_ms(POLL_MS);
        erg_live_look(live, erg_now_ns(), &view);
    } while (!erg_interrupted() && 1e3 * view.seconds < MOST_ONCE_MS &&
             (1e3 * view.seconds < LEAST_ONCE_MS || !complete(&view)));
    int result = erg_interrupt_check(err);
    if (result == 0 && call->common.json) {
        erg_print_json(stdout, erg_live_json(&view));
    } else if (result == 0) {
        struct erg_text text = {0};
        erg_live_table(&text, &view);
        fputs(text.data, stdout);
        erg_text_release(&text);
    }
    erg_live_view_release(&view);
    return result;
}

/* ---- live ---- */

/* The first GPU on the screen after a key; the last page is full. */
static size_t scroll(size_t first, enum erg_key key, size_t page, size_t count)
{
    size_t last = count > page ? count - page : 0;
    size_t step = key == ERG_KEY_PAGE_UP || key == ERG_KEY_PAGE_DOWN ? page : 1;
    if (key == ERG_KEY_UP || key == ERG_KEY_PAGE_UP)
        first = first > step ? first - step : 0;
    else if (key == ERG_KEY_DOWN || key == ERG_KEY_PAGE_DOWN)
        first += step;
    return first < last ? first : last;
}

static int show(struct erg_live *live, int interval_ms, struct erg_error *err)
{
    char host[256] = "";
    struct erg_screen screen = {0};
    struct erg_screen_options picture = {.host = host};
    struct erg_live_view view = {0};
    gethostname(host, sizeof host - 1);
    erg_utf8_repair(host, sizeof host);
    pause_ms(4 * READ_MS); /* the first samples */
    if (erg_curses_open(&picture.ascii, err) != 0)
        return -1;
    enum erg_key key = ERG_KEY_NONE;
    while (key != ERG_KEY_QUIT && !erg_interrupted()) {
        int rows, columns;
        erg_curses_size(&rows, &columns);
        erg_live_look(live, erg_now_ns(), &view);
        picture.first = scroll(picture.first, key, erg_screen_page(rows, view.count), view.count);
        erg_screen_draw(&screen, rows, columns, &view, &picture);
        erg_curses_show(&screen);
        key = erg_curses_key(interval_ms);
    }
    erg_curses_close();
    erg_screen_release(&screen);
    erg_live_view_release(&view);
    return 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct monitor_values *values = call->values;
    bool once = values->once || call->common.json;
    struct erg_sampler_options pace =
        erg_live_pace(values->interval_ms < READ_MS ? values->interval_ms : READ_MS);
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    if (erg_gpus_open(&gpus, values->gpus, err) != 0)
        return -1;
    struct erg_live *live =
        erg_live_new(gpus, &pace, (int64_t)values->interval_ms * 1000000, erg_now_ns());
    struct erg_sampler_sink sink = {.put = erg_live_put, .context = live};
    int result = erg_sampler_start(&sampler, gpus, &pace, &sink, err);
    if (result == 0) {
        result = once ? print_once(call, live, err) : show(live, (int)values->interval_ms, err);
        erg_sampler_stop(sampler);
    }
    erg_live_free(live);
    erg_gpus_close(gpus);
    return result;
}

const struct erg_command erg_cmd_monitor = {
    .name = "monitor",
    .summary = "show power, energy, heat and clocks of every GPU live",
    .arguments = "",
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct monitor_values),
    .options = options,
    .details =
        "Shows for each GPU its power and power limit, clock, temperature, use, traffic, energy "
        "since the\n"
        "start, why the clock is throttled, and the history of its power. q quits, arrows scroll.",
    .examples = "  ergon monitor\n"
                "  ergon monitor --gpus 0,1 --interval 200\n"
                "  ergon monitor --once --json | jq '.gpus[].power_inst_mw'\n",
    .run = run,
};
