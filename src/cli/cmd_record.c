/* ergon record -o FILE: records samples of all GPUs in a file that survives a crash. */
#include "cli/cli.h"

#include "ergon/telemetry.h"

#include <math.h>

struct record_values {
    const char *output, *gpus;
    long interval_ms;
    double duration_s;
};

#define AT(member) offsetof(struct record_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "FILE", AT(output), .required = true,
     .help = "recording to write; an existing file is an error"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs separated by commas (default: CUDA_VISIBLE_DEVICES)"},
    {"interval", 'i', ERG_OPTION_LONG, "MS", AT(interval_ms), 5, 60000, .default_text = "50",
     .help = "time between two samples of energy and power; other metrics are read less often"},
    {"duration", 'd', ERG_OPTION_DOUBLE, "SECONDS", AT(duration_s), 0.01, 1e9,
     .help = "stop after this time (default: at the end of the command, or at Ctrl-C)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct record_values *values = call->values;
    const struct erg_record_options input = {
        .size = sizeof input,
        .output = values->output,
        .gpus = values->gpus,
        .interval_ms = values->interval_ms,
        .duration_s = erg_given_amount(values->duration_s),
        .command = call->argument_count ? call->arguments : NULL,
    };
    if (input.command && !isnan(values->duration_s))
        return erg_fail(err, ERG_USAGE,
                        "--duration and a command were both given; expected one of them, since a "
                        "recording ends with its command");
    return erg_record_gpus(&input, err);
}

const struct erg_command erg_cmd_record = {
    .name = "record",
    .summary = "record power, energy, heat and clocks of GPUs into a file",
    .arguments = "[-- CMD [ARGUMENT]...]",
    .least_arguments = 0,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_FEW,
    .values_bytes = sizeof(struct record_values),
    .options = options,
    .details = "Records until the command ends, for --duration, or until Ctrl-C, and passes on the "
               "command's exit\n"
               "status. The file grows in chunks of two seconds; a crash loses at most the last "
               "one. \"ergon export\"\n"
               "converts it to CSV, JSON lines or a trace.",
    .examples = "  ergon record -o train.rec -- python train.py\n"
                "  ergon record -o idle.rec --interval 20 --duration 60 --gpus 0,1\n",
    .run = run,
};
