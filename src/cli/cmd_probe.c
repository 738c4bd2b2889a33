/* ergon probe: what the GPUs of this machine can do, and the emulated GPU that does the same. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct probe_values {
    const char *calibrate, *rows, *from, *base;
    int device;
    long gpus;
    bool thermal;
    double turn_s, until_s;
};

static const char *const devices[] = {"cuda", "emulated", NULL};

#define AT(member) offsetof(struct probe_values, member)
static const struct erg_option options[] = {
    {"calibrate", 'c', ERG_OPTION_FILE, "FILE.yaml", AT(calibrate),
     .help = "write the constants that explain the measurements, as a GPU that jobs can name"},
    {"rows", 'o', ERG_OPTION_FILE, "ROWS.csv", AT(rows),
     .help = "keep the measurements here (with --calibrate: next to FILE); existing ones are "
             "not made again"},
    {"from", 'f', ERG_OPTION_FILE, "ROWS.csv", AT(from),
     .help = "measure nothing; take these measurements"},
    {"base", 'b', ERG_OPTION_TEXT, "GPU", AT(base),
     .help = "name or file of the GPU whose constants are the start, like the one that is measured "
             "or of "
             "its architecture (default: the catalogue's entry for what is measured)"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "cuda", .help = "device to measure"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 8,
     .help = "GPUs of the emulated group, or of the rows that are taken (default: 2)"},
    {"thermal", 't', ERG_OPTION_FLAG, NULL, AT(thermal),
     .help = "measure how the GPUs warm themselves and each other; files are recordings and "
             "chassis then"},
    {"turn", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(turn_s), 1, 3600,
     .help = "with --thermal: how long each GPU works, and then rests (default: 120)"},
    {"until", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(until_s), 60, 1e6,
     .help = "with --thermal: fit to so much of the recording and hold out the rest (default: hold "
             "out each fifth half minute)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct probe_values *values = call->values;
    const uint64_t seed = (uint64_t)call->common.seed;
    const struct erg_ask_probe question = {
        .size = sizeof question,
        .device = devices[values->device],
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
    .summary = "measure what the GPUs of this machine can do",
    .arguments = "[-- CMD [ARGUMENT]...]",
    .most_arguments = SIZE_MAX,
    .values_bytes = sizeof(struct probe_values),
    .options = options,
    .details =
        "Runs single operations, collectives, partitions and layers of two shapes that "
        "belong to no\nmodel, in about three minutes, and prints rates, powers and energies. "
        "With --calibrate, fits the\nconstants of the emulated GPU to them: a job that names "
        "FILE as its gpu is then planned without\nGPUs. Clocks are left alone. Start it once "
        "for each GPU: ergon run -n 2 -- ergon probe.\n"
        "With --thermal, records all GPUs while each works in turn, by CMD or by ergon probe, or "
        "takes a\nrecording of ergon record, and fits resistances, time constants and who warms "
        "whom; FILE is a\nchassis then, which a cluster can name. With --from and --base, says how "
        "a chassis explains it.",
    .examples = "  ergon run -n 2 -- ergon probe --calibrate my-h200.yaml\n"
                "  ergon probe --from my-h200.csv --calibrate again.yaml\n"
                "  ergon probe --device emulated --base A100-SXM4-40GB --json\n"
                "  ergon probe --thermal --calibrate my-node.yaml\n"
                "  ergon probe --thermal --from day.rec --base ./my-node.yaml\n",
    .run = run,
};
