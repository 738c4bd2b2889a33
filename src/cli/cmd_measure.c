/* ergon measure -- CMD...: time and energy of a command, on all its GPUs and the CPU. */
#include "cli/cli.h"

#include "ergon/ask.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

struct measure_values {
    long repeats, warmups;
    const char *gpus, *output, *carbon, *price;
};

#define AT(member) offsetof(struct measure_values, member)
static const struct erg_option options[] = {
    {"repeat", 'r', ERG_OPTION_LONG, "N", AT(repeats), 1, 100000, .default_text = "1",
     .help = "run the command N times and report the spread"},
    {"warmup", 'w', ERG_OPTION_LONG, "N", AT(warmups), 0, 100000, .default_text = "0",
     .help = "run it N times first, without measuring"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs separated by commas (default: CUDA_VISIBLE_DEVICES)"},
    {"output", 'o', ERG_OPTION_FILE, "FILE", AT(output),
     .help = "write the table, or with --json the document, to this file"},
    {"carbon", 'c', ERG_OPTION_FILE, "TABLE.csv", AT(carbon),
     .help = "report emissions; the table has the columns utc_hour,g_per_kwh"},
    {"price", 'p', ERG_OPTION_FILE, "TABLE.csv", AT(price),
     .help = "report the cost; the table has the columns utc_hour,usd_per_kwh"},
    {0},
};

static int report(const struct erg_invocation *call, const char *text, struct erg_error *err)
{
    const struct measure_values *values = call->values;
    const int result = values->output ? erg_file_write(values->output, text, strlen(text), err) : 0;
    if (!values->output || result != 0) /* if the file cannot be written, print the measurement */
        erg_terminal_print(call->common.json ? stdout : stderr, text);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct measure_values *values = call->values;
    const struct erg_ask_measure question = {.size = sizeof question,
                                             .command = call->arguments,
                                             .gpus = values->gpus,
                                             .repeats = values->repeats,
                                             .warmups = values->warmups,
                                             .carbon = values->carbon,
                                             .price = values->price};
    struct erg_answer *answer;
    if (erg_ask_measure(&answer, &question, err) != 0)
        return -1;
    const char *text = call->common.json ? erg_answer_json(answer) : erg_answer_text(answer);
    int result = erg_answer_check(answer, err);
    if (*text && report(call, text, result ? NULL : err) != 0)
        result = -1;
    erg_answer_free(answer);
    return result;
}

const struct erg_command erg_cmd_measure = {
    .name = "measure",
    .summary = "measure the time and energy of a command, with their uncertainty",
    .arguments = "-- CMD [ARGUMENT]...",
    .least_arguments = 1,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct measure_values),
    .options = options,
    .details = "Runs the command and reports its time, the energy of each GPU from two sources, "
               "CPU and DRAM\n"
               "energy where they can be read, power, heat, and how long the clock was throttled. "
               "The table goes to\n"
               "standard error. The command's output and exit status are passed on. Energies are "
               "those of whole\n"
               "GPUs, including other programs on them. Repetitions stop at the first failure. "
               "Hours in tables are\n"
               "2026-11-27T18, in UTC, or 0 to 23 for every day; an hour without a row has no "
               "emissions or cost.",
    .examples = "  ergon measure -- python train.py\n"
                "  ergon measure -r 5 --warmup 1 --gpus 0,1 -- ./bench --size 4096\n"
                "  ergon measure --json -o energy.json -- make -j8\n",
    .run = run,
};
