/* ergon jobs: what managed jobs have and do. */
#include "cli/cli.h"

#include "cli/live_option.h"
#include "cluster/live/job_list.h"
#include "cluster/live/job_list_print.h"

#include <stdio.h>

struct jobs_values {
    const char *live;
    bool all;
};

#define AT(member) offsetof(struct jobs_values, member)
static const struct erg_option options[] = {
    {"live", 'l', ERG_OPTION_FILE, "LIVE.yaml", AT(live), .help = ERG_LIVE_OPTION_HELP},
    {"all", 'a', ERG_OPTION_FLAG, NULL, AT(all),
     .help = "also jobs of other users, and those that have ended and that Slurm still knows"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct jobs_values *values = call->values;
    struct erg_live_file *live;
    struct erg_live_list list = {0};
    if (erg_live_option_load(&live, values->live, err) != 0)
        return -1;
    int result =
        erg_live_list_read(&list, live->slurm.partition, live->slurm.spool, values->all, err);
    if (result == 0 && call->common.json)
        erg_live_list_print_json(stdout, &list);
    else if (result == 0)
        erg_live_list_print(stdout, &list);
    erg_live_list_release(&list);
    erg_live_file_free(live);
    return result;
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
    .details = "Of each of your jobs what it has, for how long, how far it is and when it should "
               "end as it runs\nnow: from Slurm, and from what its trainer reports.",
    .examples = "  ergon jobs --live live.yaml\n"
                "  ergon jobs --all --json\n",
    .run = run,
};
