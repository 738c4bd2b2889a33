/* ergon run-job FOLDER: what the batch script of a managed job runs. */
#include "cli/cli.h"

#include "ergon/launch.h"

#include <stdlib.h>

static const struct erg_option options[] = {{0}};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    erg_terminal_start(1); /* what it says is the job's log */
    char *program = realpath("/proc/self/exe", NULL);
    int result = erg_launch_managed(call->arguments[0], program, err);
    free(program);
    return result;
}

const struct erg_command erg_cmd_run_job = {
    .name = "run-job",
    .summary = "run a managed job in its Slurm job (for ergon submit)",
    .arguments = "FOLDER",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_FEW,
    .passes_output = true,
    .listens = true,
    .options = options,
    .details =
        "The only command of the batch script that \"ergon submit\" makes: nobody else needs "
        "it. Starts the\ntrainer by srun on the GPUs that Slurm has given, passes on that it "
        "has to leave, and ends with\nits exit status: 0 done, 85 saved, to go on elsewhere.",
    .examples = "  ergon run-job /shared/ergon/0123456789abcdef\n",
    .run = run,
};
