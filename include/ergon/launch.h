/*
 * Launch: a command as several ranks, one process per GPU of this machine: ergon-run(1).
 *
 *     const char *const command[] = {"./train", "--steps", "100", NULL};
 *     struct erg_launch_options options = {
 *         .size = sizeof options, .ranks = 4, .command = command, .line = print};
 *     if (erg_launch_ranks(&options, &err) != 0) return err.status;
 *
 * Each process finds its rank and the address of rank 0 in its environment: in the variables of
 * torchrun, and in ERGON_RANK, ERGON_WORLD_SIZE and ERGON_LOCAL_RANK.
 */
#ifndef ERGON_LAUNCH_H
#define ERGON_LAUNCH_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

enum { ERG_LAUNCH_MOST_RANKS = 4096 };

struct erg_launch_options {
    size_t size;
    int64_t ranks;              /* from 1 to ERG_LAUNCH_MOST_RANKS */
    const char *const *command; /* ends with NULL; looked up in PATH */
    double timeout_s;           /* then ends the ranks that still run; 0: never */
    /* Gets every line that a rank prints, without its end; very long lines come in pieces. NULL:
     * nobody reads them. */
    void (*line)(void *context, int rank, int is_error, const char *text, size_t count);
    void *context;
};

/*
 * Returns when all ranks have ended. The first rank that fails ends the others: SIGTERM to the
 * process group of each, SIGKILL two seconds later. The error then names the rank, and its status
 * is as in a shell: the exit status, or 128 and the number of a signal; 126 for a command that
 * cannot be run, 127 for one that does not exist, 124 after a timeout. Ranks that a signal asked to
 * stop give ERG_RESUMABLE, ERG_INTERRUPTED or ERG_SUPERSEDED.
 *
 * Standard input of the ranks is empty. Signals to this process are passed on to all ranks. The
 * calling thread blocks them while it waits, so call it before starting others.
 */
int erg_launch_ranks(const struct erg_launch_options *options, struct erg_error *err);

/*
 * The work of the batch script of a job that erg_ask_submit() gave to Slurm: ergon-run-job(1). It
 * starts the trainer in the job's folder by srun, one task for each GPU, and forwards requests to
 * stop. `program` is the command ergon, which trains; NULL: from PATH. ERG_RESUMABLE if the trainer
 * stopped with a checkpoint, ERG_SUPERSEDED if a later start has begun, otherwise the trainer's own
 * exit status. Threads: as erg_launch_ranks().
 */
int erg_launch_managed(const char *folder, const char *program, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
