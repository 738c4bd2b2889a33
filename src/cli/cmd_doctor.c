/* ergon doctor: what this machine can and cannot do, and why. */
#include "cli/cli.h"

#include "observe/doctor.h"
#include "observe/doctor_print.h"

#include <stdio.h>

struct doctor_values {
    const char *gpus;
};

#define AT(member) offsetof(struct doctor_values, member)
static const struct erg_option options[] = {
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs with commas (default: CUDA_VISIBLE_DEVICES)"},
    {0},
};

static const double watch_s = 1.5;

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    (void)err;
    const struct doctor_values *values = call->values;
    struct erg_doctor doctor;
    erg_doctor_examine(&doctor, values->gpus, watch_s);
    if (call->common.json)
        erg_doctor_print_json(stdout, &doctor);
    else
        erg_doctor_print(stdout, &doctor);
    erg_doctor_release(&doctor);
    return 0;
}

const struct erg_command erg_cmd_doctor = {
    .name = "doctor",
    .summary = "what this machine can and cannot do for ergon, and why",
    .arguments = "",
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct doctor_values),
    .options = options,
    .details =
        "Looks at every GPU with every metric and at how its sensors move, at CPU energy,\n"
        "permissions, CUDA's libraries, Slurm's configuration where it is installed, and disk. "
        "Each\nline says ok, limited or missing, and what to do about it. Changes nothing. "
        "Takes about\ntwo seconds.",
    .examples = "  ergon doctor\n"
                "  ergon doctor --json | jq '.findings[] | select(.state != \"ok\")'\n",
    .run = run,
};
