/* ergon probe: measures the GPUs of this machine, and fits an emulated GPU to them. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct probe_values {
    const char *calibrate, *rows, *from, *base, *device;
    long gpus;
    bool thermal;
    double turn_s, until_s;
};

#define AT(member) offsetof(struct probe_values, member)
static const struct erg_option options[] = {
    {"calibrate", 'c', ERG_OPTION_FILE, "FILE.yaml", AT(calibrate),
     .help = "write the fitted constants as a GPU file for jobs"},
    {"rows", 'o', ERG_OPTION_FILE, "ROWS.csv", AT(rows),
     .help = "file for the measurements (default with --calibrate: next to FILE); those in it are "
             "not repeated"},
    {"from", 'f', ERG_OPTION_FILE, "ROWS.csv", AT(from),
     .help = "use these measurements, measure nothing"},
    {"base", 'b', ERG_OPTION_TEXT, "GPU", AT(base),
     .help = "GPU with the initial constants, of the same architecture: a name or a file (default: "
             "the catalogue's entry for the measured GPU)"},
    {"device", 'd', ERG_OPTION_WORD, "KIND", AT(device), .words = ERG_WORDS_DEVICE,
     .default_text = "cuda", .help = "device to measure"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 8,
     .help = "GPUs of the emulated group, or of the rows of --from (default: 2)"},
    {"thermal", 't', ERG_OPTION_FLAG, NULL, AT(thermal),
     .help = "measure how the GPUs heat themselves and each other; files are then recordings and "
             "chassis"},
    {"turn", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(turn_s), 1, 3600,
     .help = "with --thermal: how long each GPU works and then rests (default: 120)"},
    {"until", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(until_s), 60, 1e6,
     .help = "with --thermal: fit to the recording up to this time and hold out the rest (default: "
             "hold out every fifth half minute)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct probe_values *values = call->values;
    const uint64_t seed = (uint64_t)call->common.seed;
    const struct erg_ask_probe question = {
        .size = sizeof question,
        .device = values->device,
        .calibrate = values->calibrate,
        .rows = values->rows,
        .from = values->from,
        .base = values->base,
        .gpus = erg_given_number(values->gpus),
        .seed = call->common.seed == ERG_NOT_GIVEN ? NULL : &seed,
        .thermal = values->thermal,
        .turn_s = erg_given_amount(values->turn_s),
        .until_s = erg_given_amount(values->until_s),
        .command = call->argument_count ? call->arguments : NULL,
        .program = "/proc/self/exe",
    };
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_probe(&answer, &question, err), &answer, call->common.json, err);
}

const struct erg_command erg_cmd_probe = {
    .name = "probe",
    .summary = "measure the GPUs of this machine, and fit an emulated GPU to them",
    .arguments = "[-- CMD [ARGUMENT]...]",
    .most_arguments = SIZE_MAX,
    .values_bytes = sizeof(struct probe_values),
    .options = options,
    .details =
        "Measures single operations, collectives, partitions and layers of two shapes that belong "
        "to no\n"
        "model, in about three minutes, and prints rates, powers and energies. --calibrate fits "
        "the\n"
        "constants of the emulated GPU to them; a job that names FILE as its gpu can then be "
        "planned without\n"
        "GPUs. Clocks stay unchanged. Start one process per GPU: ergon run -n 2 -- ergon probe.\n"
        "With --thermal, records all GPUs while each works in turn, by CMD or by ergon probe, or "
        "reads a\n"
        "recording of ergon record, and fits resistances, time constants and which GPUs heat which "
        "others.\n"
        "FILE is then a chassis for a cluster. --from with --base compares a chassis with the "
        "recording.",
    .examples = "  ergon run -n 2 -- ergon probe --calibrate my-h200.yaml\n"
                "  ergon probe --from my-h200.csv --calibrate again.yaml\n"
                "  ergon probe --device emulated --base A100-SXM4-40GB --json\n"
                "  ergon probe --thermal --calibrate my-node.yaml\n"
                "  ergon probe --thermal --from day.rec --base ./my-node.yaml\n",
    .run = run,
};
