/*
 * Launch: one process per GPU.
 *
 * erg_launch_run() starts the ranks of a job on this machine and watches over them; inside a rank,
 * erg_launch_environment_read() returns its number, whether ergon, torchrun or Slurm started it.
 * How the ranks then talk is launch/rendezvous.h.
 */
#ifndef ERG_LAUNCH_H
#define ERG_LAUNCH_H

#include "ergon/launch.h"

#include <stdbool.h>
#include <stddef.h>

enum { ERG_LAUNCH_STOP_S = 30 };

/* Which rank this process is and where it finds the others. */
struct erg_launch_environment {
    int rank, world; /* rank in [0, world) */
    int local_rank;  /* among the ranks of this machine: the GPU it uses */
    char host[256];  /* where rank 0 listens: a name or an address */
    int port;
    char job[64]; /* ranks of different jobs that meet at one port tell each other apart by it */
    char secret[129]; /* what ranks prove to each other that they know; "" = none, the job's name */
    int listener;     /* rank 0: the socket that the launcher listens with, 0 = none */
};

/*
 * Read from, in this order:
 * - ERGON_RANK, ERGON_WORLD_SIZE, ERGON_LOCAL_RANK, ERGON_HOST, ERGON_PORT, ERGON_JOB and at rank 0
 *   ERGON_LISTENER, as erg_launch_run() sets them in addition to those of torchrun;
 * - RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, as torchrun sets them. Where its agent
 *   listens at that port itself (TORCHELASTIC_USE_AGENT_STORE), the next port is taken. Without
 *   LOCAL_RANK (Kubeflow) there is one rank on each machine;
 * - a Slurm step: SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID, the first host
 *   of SLURM_STEP_NODELIST, and a port in [20000, 32000) that follows from job and step;
 * - none of them: rank 0 of a world of one.
 * Where all ranks are on one machine (LOCAL_WORLD_SIZE, a list of one node) they meet at its
 * loopback address. ERGON_PORT and ERGON_HOST alone replace the port and the host of
 * torchrun's and Slurm's sets; ERGON_JOB_SECRET is the secret of all. A variable that is missing
 * from its set or makes no sense is an error; a world of one needs neither host nor port.
 */
int erg_launch_environment_read(struct erg_launch_environment *env, struct erg_error *err);

/*
 * The rank that erg_launch_run() gave to this process; 0 where it did not start it. For work that
 * needs no ranks, which other launchers' variables do not stop.
 */
int erg_launch_own_rank(void);

/* Whether this process does what one rank does alone; the others say that they leave it to rank 0.
 * `any`: its rank is that of any launcher, else the one that erg_launch_run() gave: other
 * launchers' variables do not matter then. */
bool erg_launch_leads(bool any);

/*
 * The folder of the job as its scheduler sees it, $ERGON_JOB where that is an absolute path; else
 * NULL. Ranks that erg_launch_run() starts get it handed down, as the job's name.
 */
const char *erg_launch_job_folder(void);

/*
 * Names this boot of this machine: processes with equal names share its memory and its GPUs.
 */
enum { ERG_LAUNCH_MACHINE_BYTES = 40 };
void erg_launch_machine(char name[ERG_LAUNCH_MACHINE_BYTES]);

struct erg_launch_job {
    int ranks;
    const char *const *command; /* ends with NULL; looked up in PATH */
    double timeout_s;           /* ranks that still run then are ended; 0 = never */
    double stop_s; /* how long ranks may run after the first stop; 0 = ERG_LAUNCH_STOP_S */
    /* Called with every line the ranks print, without its end; very long lines come in pieces. */
    void (*line)(void *context, int rank, bool is_error, const char *text, size_t count);
    void *context;
};

/*
 * Runs the command as `ranks` processes and returns when all have ended. Standard input is empty.
 *
 * The first rank that fails (exits other than 0, or dies of a signal) ends the others: SIGTERM to
 * the process group of each, SIGKILL two seconds later. A death by signal outranks exits that are
 * seen before it, since survivors may notice it sooner than the kernel reports it. The error then
 * names the rank, and its status is as in a shell: the exit status, or 128 + signal; 126 for a
 * command that cannot be run and 127 for one that is not there; 124 after a timeout. A rank that
 * exits with ERG_RESUMABLE, ERG_INTERRUPTED or ERG_SUPERSEDED has not failed: it stopped because a
 * signal asked for it, and the others are about to do the same. They are not signalled, and are
 * ended only if they still run `stop_s` after the first stop. If nothing fails, that status is what
 * comes back. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to all ranks; a
 * second one of the first four kills them. In the first second of a rank a signal waits until the
 * rank handles it. If this process dies, they and their children are killed.
 *
 * These signals are blocked in the calling thread while it runs, so call it before starting others.
 */
int erg_launch_run(const struct erg_launch_job *job, struct erg_error *err);

/*
 * What `code`, the errno of running a command that was looked up in PATH, means: where a folder of
 * PATH cannot be searched the kernel returns EACCES even for a missing command.
 */
int erg_launch_command_error(const char *command, int code);

#endif
