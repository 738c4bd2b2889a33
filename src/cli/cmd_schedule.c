/* ergon schedule LIVE.yaml: a policy drives the managed jobs of a Slurm cluster. */
#include "cli/cli.h"
#include "serve/schedule_run.h"

#include <stdio.h>

struct schedule_values {
    const char *policy, *journal, *page, *tariff;
    bool dry_run, once, status, hand_back, until_empty;
    double compress;
};

#define AT(member) offsetof(struct schedule_values, member)
static const struct erg_option options[] = {
    {"policy", 'p', ERG_OPTION_TEXT, "NAME", AT(policy),
     .help = "scheduling policy (default: the live file's, else ergon)"},
    {"journal", 'j', ERG_OPTION_FILE, "FILE", AT(journal),
     .help = "journal of decisions and actions (default: LIVE.yaml.journal)"},
    {"tariff", 't', ERG_OPTION_FILE, "FILE", AT(tariff),
     .help = "price and emissions of electricity; columns at_s, usd_per_kwh, g_co2_per_kwh"},
    {"page", 'g', ERG_OPTION_TEXT, "ADDRESS:PORT", AT(page),
     .help = "serve a page of the cluster, its jobs and decisions, and metrics at /metrics"},
    {"dry-run", 'n', ERG_OPTION_FLAG, NULL, AT(dry_run),
     .help = "print decisions, change nothing; also works on a cluster in use"},
    {"once", '1', ERG_OPTION_FLAG, NULL, AT(once), .help = "run one cycle and exit"},
    {"until-empty", 'E', ERG_OPTION_FLAG, NULL, AT(until_empty),
     .help = "exit when all managed jobs have ended"},
    {"status", 'S', ERG_OPTION_FLAG, NULL, AT(status),
     .help = "print the state of the running controller, and exit"},
    {"hand-back", 0, ERG_OPTION_FLAG, NULL, AT(hand_back),
     .help = "turn all waiting jobs into ordinary Slurm jobs, and exit"},
    {"compress", 0, ERG_OPTION_DOUBLE, "C", AT(compress), 1, 1000, .default_text = "1",
     .help = "for tests: make time pass C times as fast for deadlines, speeds and rounds"},
    {0},
};

static void say(void *context, const char *line)
{
    (void)context;
    erg_terminal_line(line);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct schedule_values *values = call->values;
    const struct erg_schedule_input input = {
        .live = call->arguments[0],
        .policy = values->policy,
        .journal = values->journal,
        .page = values->page,
        .tariff = values->tariff,
        .dry_run = values->dry_run,
        .once = values->once,
        .hand_back = values->hand_back,
        .until_empty = values->until_empty,
        .compress = values->compress,
        .say = say,
    };
    return values->status ? erg_schedule_status(stdout, &input, call->common.json, err)
                          : erg_schedule_run(stdout, &input, err);
}

const struct erg_command erg_cmd_schedule = {
    .name = "schedule",
    .summary = "schedule the training jobs of a Slurm cluster by a policy",
    .arguments = "LIVE.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct schedule_values),
    .options = options,
    .details = "Decides which GPUs each managed job (see \"ergon submit\") gets, and makes Slurm "
               "start, stop and move\n"
               "the jobs. Other jobs are not touched. A job moves by a checkpoint. The controller "
               "runs until a\n"
               "signal; then running jobs continue, and waiting jobs wait for the next controller.",
    .examples = "  ergon schedule live.yaml --dry-run --once\n"
                "  ergon schedule live.yaml --page 127.0.0.1:9474\n"
                "  ergon schedule live.yaml --status\n",
    .run = run,
};
