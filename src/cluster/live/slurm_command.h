/*
 * One command of Slurm: run without a shell, with a time limit, and the meaning of its answer.
 *
 * Its environment is this process's without the variables of Slurm's commands and of a job (all of
 * SLURM_* but SLURM_CONF, SBATCH_*, SCANCEL_*, SCONTROL_*), in the locale C and in UTC.
 */
#ifndef ERG_CLUSTER_LIVE_SLURM_COMMAND_H
#define ERG_CLUSTER_LIVE_SLURM_COMMAND_H

#include "base/text.h"
#include "cluster/live/live_engine.h"

/* A shell's exit status for a command that is not installed. */
enum { ERG_SLURM_MISSING = 127 };

/*
 * Runs `words` (ends with NULL; the first is looked up in PATH). DONE: `out` contains its whole
 * output instead of the former content; it may be NULL, and the caller releases it in any case. All
 * other answers have their sentence in `err`; BROKEN with the status ERG_SLURM_MISSING for a
 * missing command.
 */
enum erg_engine_answer erg_slurm_command(const char *const *words, double limit_s,
                                         struct erg_text *out, struct erg_error *err);

/* The meaning of a failed command's standard error. */
enum erg_engine_answer erg_slurm_classify(const char *text);

#endif
