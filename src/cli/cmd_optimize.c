/* ergon optimize JOB.yaml: the frontier of a training iteration, the plan and the report. */
#define ERGON_EXPERIMENTAL /* --lock-clocks */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct optimize_values {
    const char *folder, *methods, *search, *device;
    long microbatches, microbatch_size, sequence;
    double deadline_s, budget_j;
    bool lock_clocks;
};

#define AT(member) offsetof(struct optimize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(folder), .default_text = "ergon-out",
     .help = "folder for plan.json, report.html, trace.json, profile.csv, measurements.csv and "
             "profile.db"},
    {"method", 'm', ERG_OPTION_TEXT, "NAME,...", AT(methods),
     .help = "report only these methods: sequential, sequential+clocks, nanobatching, "
             "nanobatching+clocks, ergon"},
    {"search", 's', ERG_OPTION_WORD, "HOW", AT(search), .words = ERG_WORDS_SEARCH,
     .help = "how to choose the configurations to measure (default: the job's)"},
    {"device", 'd', ERG_OPTION_WORD, "KIND", AT(device), .words = ERG_WORDS_DEVICE,
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

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct optimize_values *values = call->values;
    const uint64_t seed = (uint64_t)call->common.seed;
    const struct erg_optimize_options input = {
        .size = sizeof input,
        .folder = values->folder,
        .device = values->device,
        .methods = values->methods,
        .deadline_s = erg_given_amount(values->deadline_s),
        .energy_j = erg_given_amount(values->budget_j),
        .lock_clocks = values->lock_clocks,
    };
    const struct erg_ask_optimize question = {
        .size = sizeof question,
        .job = call->arguments[0],
        .options = &input,
        .microbatches = erg_given_number(values->microbatches),
        .microbatch_size = erg_given_number(values->microbatch_size),
        .sequence = erg_given_number(values->sequence),
        .search = values->search,
        .seed = call->common.seed == ERG_NOT_GIVEN ? NULL : &seed,
    };
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_optimize(&answer, &question, err), &answer, call->common.json,
                           err);
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
