/* ergon monitor: a live view of every GPU. */
#include "cli/answer_show.h"
#include "cli/cli.h"
#include "cli/curses.h"

#include "base/interrupt.h"

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

static int draw(struct erg_monitor *monitor, struct erg_monitor_picture *picture, enum erg_key key,
                struct erg_error *err)
{
    erg_curses_size(&picture->rows, &picture->columns);
    picture->first = scroll(picture->first, key, erg_monitor_page(monitor, picture->rows),
                            erg_monitor_gpus(monitor));
    if (erg_monitor_draw(monitor, picture, err) != 0)
        return -1;
    erg_curses_show(monitor);
    return 0;
}

static int show(struct erg_monitor *monitor, int interval_ms, struct erg_error *err)
{
    struct erg_monitor_picture picture = {.size = sizeof picture};
    bool ascii;
    if (erg_curses_open(&ascii, err) != 0)
        return -1;
    picture.ascii = ascii;
    enum erg_key key = ERG_KEY_NONE;
    int status = 0;
    while (status == 0 && key != ERG_KEY_QUIT && !erg_interrupted()) {
        status = draw(monitor, &picture, key, err);
        key = erg_curses_key(interval_ms);
    }
    erg_curses_close();
    return status;
}

static int print_once(const struct erg_invocation *call, struct erg_error *err)
{
    const struct monitor_values *values = call->values;
    const struct erg_ask_monitor question = {
        .size = sizeof question, .gpus = values->gpus, .interval_ms = values->interval_ms};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_monitor(&answer, &question, err), &answer, call->common.json,
                           err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct monitor_values *values = call->values;
    const struct erg_monitor_options input = {
        .size = sizeof input, .gpus = values->gpus, .interval_ms = values->interval_ms};
    struct erg_monitor *monitor;
    if (values->once || call->common.json)
        return print_once(call, err);
    if (erg_monitor_open(&monitor, &input, err) != 0)
        return -1;
    const int status = show(monitor, (int)values->interval_ms, err);
    erg_monitor_close(monitor);
    return status;
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
