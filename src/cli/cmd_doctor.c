/* ergon doctor: what this machine can and cannot do, and the reasons. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct doctor_values {
    const char *gpus;
};

#define AT(member) offsetof(struct doctor_values, member)
static const struct erg_option options[] = {
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs separated by commas (default: CUDA_VISIBLE_DEVICES)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct doctor_values *values = call->values;
    const struct erg_ask_doctor question = {.size = sizeof question, .gpus = values->gpus};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_doctor(&answer, &question, err), &answer, call->common.json,
                           err);
}

const struct erg_command erg_cmd_doctor = {
    .name = "doctor",
    .summary = "check GPUs, sensors, permissions and libraries of this machine",
    .arguments = "",
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct doctor_values),
    .options = options,
    .details = "Checks every metric of every GPU and the update interval of its sensors, CPU "
               "energy, permissions,\n"
               "CUDA's libraries, free disk space and, where it is installed, Slurm's "
               "configuration. Each line is\n"
               "ok, limited or missing, with a remedy. Changes nothing. Takes about two seconds.",
    .examples = "  ergon doctor\n"
                "  ergon doctor --json | jq '.findings[] | select(.state != \"ok\")'\n",
    .run = run,
};
