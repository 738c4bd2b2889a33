/* Slurm's job of a process, by its control group. */
#ifndef ERG_LAUNCH_SLURM_CGROUP_H
#define ERG_LAUNCH_SLURM_CGROUP_H

#include <stdint.h>

/*
 * The job in the text of /proc/PID/cgroup, 0 for none: job_N right below a *slurmstepd.scope
 * (version 2), or /slurm.../uid_U/job_N (version 1). Control groups below a user's slice or a
 * service say nothing, since users can make those.
 */
uint32_t erg_slurm_job_of(const char *cgroup);

#endif
