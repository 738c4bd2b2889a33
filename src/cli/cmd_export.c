/* ergon export FILE: a recording as CSV, JSON lines or a trace. */
#include "cli/cli.h"

#include "ergon/telemetry.h"

struct export_values {
    const char *format, *output;
};

#define AT(member) offsetof(struct export_values, member)
static const struct erg_option options[] = {
    {"format", 'f', ERG_OPTION_WORD, "KIND", AT(format), .words = ERG_WORDS_FORMAT,
     .required = true,
     .help = "csv: rows; jsonl: one object per line; chrome: counters for Perfetto and "
             "chrome://tracing"},
    {"output", 'o', ERG_OPTION_FILE, "OUT", AT(output), .default_text = "-",
     .help = "output file; - is standard output"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct export_values *values = call->values;
    return erg_record_export(call->arguments[0], values->format, values->output, err);
}

const struct erg_command erg_cmd_export = {
    .name = "export",
    .summary = "convert a recording to CSV, JSON lines or a trace",
    .arguments = "FILE",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_FEW,
    .values_bytes = sizeof(struct export_values),
    .options = options,
    .details = "Reads a recording of \"ergon record\". If the recorder was killed, all complete "
               "samples are exported.",
    .examples = "  ergon export train.rec --format csv -o train.csv\n"
                "  ergon export train.rec --format jsonl | jq .power_inst_mw\n"
                "  ergon export train.rec --format chrome -o train.json\n",
    .run = run,
};
