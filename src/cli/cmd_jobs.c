/* ergon jobs: the GPUs and the progress of managed jobs. */
#include "cli/answer_show.h"
#include "cli/cli.h"
#include "cli/live_option.h"

struct jobs_values {
    const char *live;
    bool all;
};

#define AT(member) offsetof(struct jobs_values, member)
static const struct erg_option options[] = {
    {"live", 'l', ERG_OPTION_FILE, "LIVE.yaml", AT(live), .help = ERG_LIVE_OPTION_HELP},
    {"all", 'a', ERG_OPTION_FLAG, NULL, AT(all),
     .help = "include jobs of other users, and ended jobs that Slurm still lists"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct jobs_values *values = call->values;
    const struct erg_ask_jobs question = {
        .size = sizeof question, .live = erg_live_option(values->live, err), .all = values->all};
    struct erg_answer *answer = NULL;
    return question.live ? erg_answer_show(erg_ask_jobs(&answer, &question, err), &answer,
                                           call->common.json, err)
                         : -1;
}

const struct erg_command erg_cmd_jobs = {
    .name = "jobs",
    .summary = "list the jobs that the cluster's scheduler manages",
    .arguments = "",
    .least_arguments = 0,
    .most_arguments = 0,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct jobs_values),
    .options = options,
    .details = "Prints for each of your jobs its GPUs, how long it has run, its progress and its "
               "expected end at\n"
               "the present speed, from Slurm and from the reports of its trainer.",
    .examples = "  ergon jobs --live live.yaml\n"
                "  ergon jobs --all --json\n",
    .run = run,
};
