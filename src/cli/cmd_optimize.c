/* ergon optimize JOB.yaml: the frontier of a training iteration, the plan and the report. */
#include "api/optimizing.h"
#include "cli/cli.h"
#include "io/print.h"

#include "base/interrupt.h"
#include "io/json.h"
#include "job/job.h"
#include "launch/launch.h"
#include "optimize/optimize.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct optimize_values {
    const char *folder, *methods;
    int search, device;
    long microbatches, microbatch_size, sequence;
    double deadline_s, budget_j;
    bool lock_clocks;
};

static const char *const searches[] = {"gp", "trees", "random", "exhaustive", NULL};
static const char *const devices[] = {"emulated", "cuda", NULL};
enum { DEVICE_CUDA = 1 };

#define AT(member) offsetof(struct optimize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(folder), .default_text = "ergon-out",
     .help = "folder for plan.json, report.html, trace.json, profile.csv, measurements.csv and "
             "profile.db"},
    {"method", 'm', ERG_OPTION_TEXT, "NAME,...", AT(methods),
     .help = "report only these methods: sequential, sequential+clocks, nanobatching, "
             "nanobatching+clocks, ergon"},
    {"search", 's', ERG_OPTION_CHOICE, "HOW", AT(search), .choices = searches,
     .help = "how to choose the configurations to measure (default: the job's)"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "emulated", .help = "device to measure on"},
    {"lock-clocks", 0, ERG_OPTION_FLAG, NULL, AT(lock_clocks),
     .help = "with --device cuda: search the GPUs' clocks as well; locks them, and unlocks them at "
             "the end"},
    {"microbatches", 'M', ERG_OPTION_LONG, "N", AT(microbatches), 1, ERG_JOB_MOST_MICROBATCHES,
     .help = "microbatches per iteration (default: the job's)"},
    {"microbatch-size", 'b', ERG_OPTION_LONG, "N", AT(microbatch_size), 1, 10000,
     .help = "sequences per microbatch (default: the job's)"},
    {"sequence", 'S', ERG_OPTION_LONG, "TOKENS", AT(sequence), 1, 100000000,
     .help = "tokens per sequence (default: the job's)"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-6, 1e6,
     .help = "select the plan of least energy within this time"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(budget_j), 1e-6, 1e15,
     .help = "select the fastest plan within this energy of all GPUs of a pipeline"},
    {0},
};

static int load_job(const struct erg_invocation *call, struct erg_job **job, struct erg_error *err)
{
    const struct optimize_values *values = call->values;
    struct erg_job_overrides overrides = {0};
    uint64_t seed = (uint64_t)call->common.seed;
    if (values->microbatches != ERG_NOT_GIVEN)
        overrides.microbatches = values->microbatches;
    if (values->microbatch_size != ERG_NOT_GIVEN)
        overrides.microbatch_size = values->microbatch_size;
    if (values->sequence != ERG_NOT_GIVEN)
        overrides.sequence = values->sequence;
    if (values->search >= 0)
        overrides.search = searches[values->search];
    if (call->common.seed != ERG_NOT_GIVEN)
        overrides.seed = &seed;
    if (!isnan(values->deadline_s) && !isnan(values->budget_j))
        return erg_fail(err, ERG_USAGE,
                        "--deadline and --energy-budget were both given; expected one of them");
    if (erg_job_load(job, call->arguments[0], &overrides, err))
        return -1;
    if (!isnan(values->deadline_s))
        (*job)->goal = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = values->deadline_s};
    if (!isnan(values->budget_j))
        (*job)->goal = (struct erg_goal){ERG_FASTEST, .energy_j = values->budget_j};
    return 0;
}

static int print_result(const struct erg_invocation *call, const char *folder, json_t *plan,
                        struct erg_error *err)
{
    if (call->common.json) {
        erg_print_json(stdout, json_incref(plan));
        return 0;
    }
    struct erg_text table = {0};
    int status = erg_report_table(&table, plan, err);
    if (!status)
        printf("%s\nplan %s/plan.json, report %s/report.html, trace %s/trace.json\n", table.data,
               folder, folder, folder);
    erg_text_release(&table);
    return status;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct optimize_values *values = call->values;
    struct erg_optimizing at = {.folder = values->folder,
                                .hint = call->arguments[0],
                                .cuda = values->device == DEVICE_CUDA,
                                .lock_clocks = values->lock_clocks};
    struct erg_job *job = NULL;
    int status = erg_optimizing_methods(&at, values->methods, err) || load_job(call, &job, err);
    at.job = job;
    if (!status && values->lock_clocks && !at.cuda)
        status =
            erg_fail(err, ERG_USAGE,
                     "--lock-clocks: emulated GPUs have no clocks to lock; expected --device cuda");
    status = status || erg_optimizing_open(&at, err);
    bool leads = !status && erg_launch_leads(at.real != NULL);
    if (leads)
        status = erg_optimizing_run(&at, err);
    erg_terminal_finish();
    if (!status && leads)
        status = print_result(call, values->folder, at.document, err);
    erg_optimizing_release(&at);
    erg_job_free(job);
    if (status)
        erg_interrupt_explain(err);
    return status ? -1 : 0;
}

const struct erg_command erg_cmd_optimize = {
    .name = "optimize",
    .summary = "find the time-energy frontier of a training iteration, and its plan",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .values_bytes = sizeof(struct optimize_values),
    .options = options,
    .details = "Measures the job's partitions and layers on the device, composes them into the "
               "frontier of its\n"
               "training iteration, compares it with the baselines and writes the plan. "
               "DIR/profile.db stores the\n"
               "measurements: after an interruption, the same command continues.",
    .examples = "  ergon optimize examples/quickstart.yaml\n"
                "  ergon optimize job.yaml -o out --microbatches 32 --deadline 5.2\n"
                "  ergon optimize job.yaml --method sequential+clocks,ergon --json\n",
    .run = run,
};
