/* ergon probe: measures the GPUs of this machine, and fits an emulated GPU to them. */
#include "cli/cli.h"
#include "launch/launch.h"
#include "probe/probe_run.h"
#include "probe/probe_thermal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct probe_values {
    const char *calibrate, *rows, *from, *base;
    int device;
    long gpus;
    bool thermal;
    double turn_s, until_s;
};

static const char *const devices[] = {"cuda", "emulated", NULL};
enum { DEVICE_CUDA };

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
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
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

static int check_values(const struct probe_values *values, struct erg_error *err)
{
    if (values->from && values->rows)
        return erg_fail(err, ERG_USAGE,
                        "--from and --rows were both given; expected one of them, since --from "
                        "measures nothing");
    size_t length = values->calibrate ? strlen(values->calibrate) : 0;
    if (values->calibrate && (length < 6 || strcmp(values->calibrate + length - 5, ".yaml") != 0))
        return erg_fail(err, ERG_USAGE,
                        "--calibrate got '%s', expected a file name that ends in .yaml, so that a "
                        "job can name it",
                        values->calibrate);
    if (values->gpus != ERG_NOT_GIVEN && values->device == DEVICE_CUDA && !values->from)
        return erg_fail(err, ERG_USAGE,
                        "--gpus is for emulated groups; expected one process per GPU: ergon run -n "
                        "%ld -- ergon probe",
                        values->gpus);
    return 0;
}

static int run_thermal(const struct erg_invocation *call, struct erg_error *err)
{
    const struct probe_values *values = call->values;
    const struct erg_probe_thermal request = {
        .from = values->from,
        .keep = values->rows,
        .calibrate = values->calibrate,
        .base = values->base,
        .emulated = values->device != DEVICE_CUDA,
        .turn_s = values->turn_s,
        .until_s = values->until_s,
        .seed = call->common.seed == ERG_NOT_GIVEN ? 1 : (uint64_t)call->common.seed,
        .command = call->arguments,
        .json = call->common.json,
    };
    if (request.from && request.base && request.calibrate)
        return erg_fail(
            err, ERG_USAGE,
            "--calibrate and --base were both given with --thermal --from; expected --base, a "
            "chassis to compare with the recording, or --calibrate, a chassis to fit");
    if (request.from && (call->argument_count || !isnan(request.turn_s) || request.emulated))
        return erg_fail(err, ERG_USAGE,
                        "--from was given with options of a new recording; expected it without a "
                        "command, --turn and --device");
    if (request.emulated && call->argument_count)
        return erg_fail(err, ERG_USAGE,
                        "a command was given with --device emulated; expected a command only for "
                        "the GPUs of this machine");
    return erg_probe_thermal(stdout, &request, err);
}

static int probe(const struct erg_probe_wish *wish, bool json, struct erg_error *err)
{
    struct erg_probe_run *run;
    int status = erg_probe_run(&run, wish, err);
    erg_terminal_finish();
    if (!status && wish->leads)
        status = erg_probe_conclude(stdout, run, json, err);
    erg_probe_run_free(run);
    return status;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct probe_values *values = call->values;
    if (values->thermal)
        return check_values(values, err) || run_thermal(call, err) ? -1 : 0;
    if (call->argument_count || !isnan(values->turn_s) || !isnan(values->until_s))
        return erg_fail(
            err, ERG_USAGE,
            "a command, --turn or --until was given; expected them only with --thermal");
    const bool real = values->device == DEVICE_CUDA && !values->from;
    struct erg_launch_environment env = {0};
    if (check_values(values, err) || (real && erg_launch_environment_read(&env, err)))
        return -1;
    const struct erg_probe_wish wish = {
        .calibrate = values->calibrate,
        .rows = values->rows,
        .from = values->from,
        .base = values->base,
        .real = real,
        .leads = erg_launch_leads(real),
        .gpus = real                            ? env.world
                : values->gpus == ERG_NOT_GIVEN ? 2
                                                : (int)values->gpus,
        .seed = call->common.seed == ERG_NOT_GIVEN ? 1 : (uint64_t)call->common.seed,
    };
    return real || wish.leads ? probe(&wish, call->common.json, err)
                              : 0; /* other ranks have no part in this */
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
