/* ergon/launch.h: ranks and the trainers of managed jobs, started for a program. */
#include "ergon/launch.h"

#include "api/job_run.h"
#include "base/sized.h"
#include "launch/launch.h"

#include <math.h>

/* The caller's, with its type for "is an error". */
static void pass_line(void *context, int rank, bool is_error, const char *text, size_t count)
{
    const struct erg_launch_options *options = context;
    if (options->line)
        options->line(options->context, rank, is_error, text, count);
}

/* On the caller's own thread, whose signals are to reach the ranks. */
int erg_launch_ranks(const struct erg_launch_options *options, struct erg_error *err)
{
    struct erg_launch_options own = {0};
    if (erg_sized_take(&own, sizeof own, options, "erg_launch_options", err) != 0)
        return -1;
    if (!own.command || !*own.command || own.ranks < 1 || own.ranks > ERG_LAUNCH_MOST_RANKS ||
        !(own.timeout_s >= 0 && isfinite(own.timeout_s)))
        return erg_fail(err, ERG_USAGE,
                        "a launch: expected a command, 1 to %d ranks, and no timeout below 0",
                        ERG_LAUNCH_MOST_RANKS);
    const struct erg_launch_job job = {.ranks = (int)own.ranks,
                                       .command = own.command,
                                       .timeout_s = own.timeout_s,
                                       .line = pass_line,
                                       .context = &own};
    return erg_launch_run(&job, err);
}

int erg_launch_managed(const char *folder, const char *program, struct erg_error *err)
{
    if (!folder)
        return erg_fail(err, ERG_USAGE, "a managed job: expected its folder");
    return erg_job_run(folder, program ? program : "ergon", err);
}
