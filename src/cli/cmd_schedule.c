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
     .help = "who gets which GPUs (default: the live file's, else ergon)"},
    {"journal", 'j', ERG_OPTION_FILE, "FILE", AT(journal),
     .help = "journal of decisions and actions (default: LIVE.yaml.journal)"},
    {"tariff", 't', ERG_OPTION_FILE, "FILE", AT(tariff),
     .help = "cost and emissions of electricity: at_s, usd_per_kwh, g_co2_per_kwh"},
    {"page", 'g', ERG_OPTION_TEXT, "ADDRESS:PORT", AT(page),
     .help = "show the cluster, its jobs and decisions there, and metrics at /metrics"},
    {"dry-run", 'n', ERG_OPTION_FLAG, NULL, AT(dry_run),
     .help = "decide and say so, change nothing; also against a cluster in use"},
    {"once", '1', ERG_OPTION_FLAG, NULL, AT(once), .help = "one pass: look, decide, act, end"},
    {"until-empty", 'E', ERG_OPTION_FLAG, NULL, AT(until_empty),
     .help = "end when all managed jobs have"},
    {"status", 'S', ERG_OPTION_FLAG, NULL, AT(status),
     .help = "print what the running controller last said, and end"},
    {"hand-back", 0, ERG_OPTION_FLAG, NULL, AT(hand_back),
     .help = "turn all waiting jobs into ordinary ones of Slurm, and end"},
    {"compress", 0, ERG_OPTION_DOUBLE, "C", AT(compress), 1, 1000, .default_text = "1",
     .help = "for tests: deadlines, speeds and rounds are of seconds that pass C times as fast"},
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
    const struct erg_schedule_wish wish = {
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
    return values->status ? erg_schedule_status(stdout, &wish, call->common.json, err)
                          : erg_schedule_run(stdout, &wish, err);
}

const struct erg_command erg_cmd_schedule = {
    .name = "schedule",
    .summary = "drive the training jobs of a Slurm cluster by a policy",
    .arguments = "LIVE.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct schedule_values),
    .options = options,
    .details =
        "Decides which managed job, one of \"ergon submit\", has which GPUs, and has Slurm start, "
        "stop and\nmove them; all other jobs are left alone. A job is moved by a checkpoint. When "
        "the controller ends,\nrunning jobs run on, waiting ones wait for the next one. It runs "
        "until a signal ends it.",
    .examples = "  ergon schedule live.yaml --dry-run --once\n"
                "  ergon schedule live.yaml --page 127.0.0.1:9474\n"
                "  ergon schedule live.yaml --status\n",
    .run = run,
};
