/* ergon verify JOB.yaml PLAN.json: a plan's schedule on a stack of layers, beside its pieces. */
#include "cli/cli.h"

#include "device/real.h"
#include "job/job.h"
#include "optimize/verify.h"
#include "optimize/verify_print.h"

#include <stdio.h>

struct verify_values {
    long layers;
    int device;
    bool repeatable;
};

static const char *const devices[] = {"emulated", "cuda", NULL};
enum { DEVICE_CUDA = 1 };

#define AT(member) offsetof(struct verify_values, member)
static const struct erg_option options[] = {
    {"layers", 'l', ERG_OPTION_LONG, "N", AT(layers), 2, 1000, .default_text = "4",
     .help = "layers of the stack"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "emulated", .help = "what measures"},
    {"repeatable", 'r', ERG_OPTION_FLAG, NULL, AT(repeatable),
     .help = "with --device cuda: compare gradients by an attention that repeats bit by bit; needs "
             "memory for a layer's scores"},
    {0},
};

static int open_gpus(const struct erg_job *job, long layers, struct erg_real **real,
                     struct erg_error *err)
{
    struct erg_real_request request = {
        .model = job->model,
        .tensor = (int)job->layout.tensor,
        .context = (int)job->layout.context,
        .layers = (int)layers,
        .replay = job->layout.recompute == ERG_RECOMPUTE_FULL,
        .sequences = (int)job->layout.microbatch,
        .sequence = (int)job->layout.sequence,
        .seed = job->search.seed,
    };
    return erg_real_open(real, &request, err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct verify_values *values = call->values;
    struct erg_verify_request request = {.layers = (int)values->layers,
                                         .repeatable = values->repeatable};
    struct erg_verification verification;
    struct erg_job *job = NULL;
    struct erg_plan *plan = NULL;
    struct erg_real *real = NULL;
    if (values->repeatable && values->device != DEVICE_CUDA)
        return erg_fail(err, ERG_USAGE,
                        "--repeatable: emulated GPUs compute no gradients; expected --device cuda "
                        "beside it");
    int status =
        erg_job_load(&job, call->arguments[0], NULL, err) ||
                erg_plan_load(&plan, call->arguments[1], err) ||
                (values->device == DEVICE_CUDA && open_gpus(job, values->layers, &real, err))
            ? -1
            : 0;
    if (!status && erg_terminal_leads(real)) {
        request.job = job;
        request.plan = plan;
        request.device = real ? erg_real_device(real) : NULL;
        status = erg_verify(&request, &verification, err);
        erg_terminal_finish();
        if (!status) {
            erg_verify_print(stdout, &request, &verification, call->common.json);
            status = erg_verify_judge(&verification, err);
        }
    }
    erg_real_close(real);
    erg_plan_free(plan);
    erg_job_free(job);
    return status;
}

const struct erg_command erg_cmd_verify = {
    .name = "verify",
    .summary = "run a plan's schedule on a stack of layers, beside its pieces",
    .arguments = "JOB.yaml PLAN.json",
    .least_arguments = 2,
    .most_arguments = 2,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct verify_values),
    .options = options,
    .details =
        "Runs forward and backward of several layers in one go: sequentially, as plain nanobatches "
        "and\nunder the plan's schedule. Beside each it measures the pieces that the plan was "
        "composed of. Fails\nwhen a stack's time or energy is more than 3 % from the sum of its "
        "pieces, or, on GPUs, when\nthe output or a gradient differs by more than roundings.",
    .examples = "  ergon verify examples/quickstart.yaml ergon-out/plan.json\n"
                "  ergon run -n 2 -- ergon verify job.yaml ergon-out/plan.json --device cuda\n",
    .run = run,
};
