/* ergon measure -- CMD...: time and energy of a command, on all its GPUs and the CPU. */
#include "cli/cli.h"

#include "io/file.h"
#include "io/json.h"
#include "observe/measure_command.h"

#include <stdio.h>
#include <stdlib.h>

struct measure_values {
    long repeats, warmups;
    const char *gpus, *output, *carbon, *price;
};

#define AT(member) offsetof(struct measure_values, member)
static const struct erg_option options[] = {
    {"repeat", 'r', ERG_OPTION_LONG, "N", AT(repeats), 1, 100000, .default_text = "1",
     .help = "run the command N times and report the spread"},
    {"warmup", 'w', ERG_OPTION_LONG, "N", AT(warmups), 0, 100000, .default_text = "0",
     .help = "run it N times before, unmeasured"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs with commas (default: CUDA_VISIBLE_DEVICES)"},
    {"output", 'o', ERG_OPTION_FILE, "FILE", AT(output),
     .help = "write the table, or with --json the document, to this file"},
    {"carbon", 'c', ERG_OPTION_FILE, "TABLE.csv", AT(carbon),
     .help = "what the energy emits, by a table with the columns utc_hour,g_per_kwh"},
    {"price", 'p', ERG_OPTION_FILE, "TABLE.csv", AT(price),
     .help = "what it costs, by a table with the columns utc_hour,usd_per_kwh"},
    {0},
};

static int report(const struct erg_invocation *call, const struct erg_runs *runs,
                  struct erg_error *err)
{
    const struct measure_values *values = call->values;
    struct erg_text text = {0};
    int result = 0;
    if (call->common.json) {
        json_t *document = erg_runs_json(runs);
        char *lines = erg_json_text(document);
        erg_text_printf(&text, "%s\n", lines);
        free(lines);
        json_decref(document);
    } else {
        erg_runs_table(&text, runs);
    }
    if (values->output)
        result = erg_file_write(values->output, text.data, text.count, err);
    if (!values->output || result != 0) /* a measurement is not lost with its file */
        erg_terminal_print(call->common.json ? stdout : stderr, text.data);
    erg_text_release(&text);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct measure_values *values = call->values;
    const struct erg_measure_wish wish = {.command = call->arguments,
                                          .gpus = values->gpus,
                                          .repeats = values->repeats,
                                          .warmups = values->warmups,
                                          .carbon = values->carbon,
                                          .price = values->price};
    struct erg_runs runs;
    struct erg_child_end end;
    int result = erg_measure(&runs, &wish, &end, err);
    if (runs.count && report(call, &runs, result ? NULL : err) != 0)
        result = -1;
    erg_runs_release(&runs);
    return result ? -1 : erg_child_check(&end, call->arguments, err);
}

const struct erg_command erg_cmd_measure = {
    .name = "measure",
    .summary = "time and energy of a command, with their uncertainty",
    .arguments = "-- CMD [ARGUMENT]...",
    .least_arguments = 1,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct measure_values),
    .options = options,
    .details =
        "Runs the command and reports its time, the energy of each GPU from two sources, CPU "
        "and DRAM\nenergy where they can be read, power, heat, and how long the clock was held "
        "down. The table\ngoes to standard error; the command's output is left alone and its exit "
        "status is passed on.\nThe energy is that of whole GPUs, whoever uses them. Repeats end "
        "at the first that fails.\nThe hours of tables are 2026-11-27T18, in UTC, or 0 to 23 for "
        "every day; what no row says is not known.",
    .examples = "  ergon measure -- python train.py\n"
                "  ergon measure -r 5 --warmup 1 --gpus 0,1 -- ./bench --size 4096\n"
                "  ergon measure --json -o energy.json -- make -j8\n",
    .run = run,
};
