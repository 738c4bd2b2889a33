/* Whether the stages of a job fit into its GPUs, which ergon optimize says before it plans. */
#ifndef ERG_CLI_OPTIMIZE_MEMORY_H
#define ERG_CLI_OPTIMIZE_MEMORY_H

#include "job/job.h"

/* A warning with the stage that exceeds its GPU most, if one does; `path` is the job's file. */
void erg_optimize_warn_of_memory(const struct erg_job *job, const char *path);

#endif
