/* ergon verify JOB.yaml PLAN.json: compares a stack of layers under a plan's schedule with the sum
 * of its pieces. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct verify_values {
    long layers;
    const char *device;
    bool repeatable;
};

#define AT(member) offsetof(struct verify_values, member)
static const struct erg_option options[] = {
    {"layers", 'l', ERG_OPTION_LONG, "N", AT(layers), 2, 1000, .default_text = "4",
     .help = "number of layers"},
    {"device", 'd', ERG_OPTION_WORD, "KIND", AT(device), .words = ERG_WORDS_DEVICE,
     .default_text = "emulated", .help = "device to measure on"},
    {"repeatable", 'r', ERG_OPTION_FLAG, NULL, AT(repeatable),
     .help = "with --device cuda: compare gradients with a deterministic attention; needs memory "
             "for a layer's scores"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct verify_values *values = call->values;
    const struct erg_ask_verify question = {
        .size = sizeof question,
        .job = call->arguments[0],
        .plan = call->arguments[1],
        .device = values->device,
        .layers = values->layers,
        .repeatable = values->repeatable,
    };
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_verify(&answer, &question, err), &answer, call->common.json,
                           err);
}

const struct erg_command erg_cmd_verify = {
    .name = "verify",
    .summary = "compare a plan's schedule on a stack of layers with the sum of its pieces",
    .arguments = "JOB.yaml PLAN.json",
    .least_arguments = 2,
    .most_arguments = 2,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct verify_values),
    .options = options,
    .details = "Runs forward and backward of several layers in one go: sequentially, as plain "
               "nanobatches and\n"
               "under the plan's schedule. Measures the pieces from which the plan was composed as "
               "well. Fails\n"
               "if a stack's time or energy differs from the sum of its pieces by more than 3 %, "
               "or, on GPUs, if\n"
               "the output or a gradient differs by more than rounding.",
    .examples = "  ergon verify examples/quickstart.yaml ergon-out/plan.json\n"
                "  ergon run -n 2 -- ergon verify job.yaml ergon-out/plan.json --device cuda\n",
    .run = run,
};
