/*
 * One command of Slurm: run without a shell, for at most so long, and what its answer means.
 *
 * Its environment is this process's without the variables of Slurm's commands and of a job (all of
 * SLURM_* but SLURM_CONF, SBATCH_*, SCANCEL_*, SCONTROL_*), in the locale C and in UTC.
 */
#ifndef ERG_CLUSTER_LIVE_SLURM_COMMAND_H
#define ERG_CLUSTER_LIVE_SLURM_COMMAND_H

#include "base/text.h"
#include "cluster/live/live_engine.h"

/* Of a command that is not installed; a shell's exit status. */
enum { ERG_SLURM_MISSING = 127 };

/*
 * Runs `words` (ends with NULL; the first is looked up in PATH). DONE: `out` has all that it
 * printed, in place of what it had, and is to be released in any case; it may be NULL. All other
 * answers have their sentence in `err`; BROKEN with the status ERG_SLURM_MISSING where there is no
 * such command.
 */
enum erg_engine_answer erg_slurm_command(const char *const *words, double limit_s,
                                         struct erg_text *out, struct erg_error *err);

/* What a command that failed with this on its standard error says. */
enum erg_engine_answer erg_slurm_classify(const char *text);

#endif
