/*
 * Running a live job: the work of its batch script, on its assigned GPUs. It starts the trainer by
 * srun, one task for each GPU, passes on that it has to leave, and reports for trainers that do
 * not.
 *
 * The trainer's environment has ERGON_JOB, the folder; ERGON_INCARNATION, the number that is this
 * run's; ERGON_PLAN, the file that the controller leaves; ERGON_JOB_SECRET and, on several nodes,
 * ERGON_HOST. SIGUSR1 asks it to save and to exit with 85.
 */
#ifndef ERG_API_JOB_RUN_H
#define ERG_API_JOB_RUN_H

#include "ergon/error.h"

/*
 * In a batch job of Slurm's. `program`: that which trains. Fails with ERG_RESUMABLE where the
 * trainer has left with a checkpoint, ERG_SUPERSEDED where a later incarnation has begun, else with
 * the trainer's own exit status.
 */
int erg_job_run(const char *folder, const char *program, struct erg_error *err);

#endif
