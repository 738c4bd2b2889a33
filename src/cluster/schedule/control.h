/*
 * Control: what drives a scheduler, the simulator or a controller of a live cluster.
 *
 * The driver of a scheduler
 *   1. makes it: erg_scheduler_new() for a trace that is known, erg_scheduler_new_live() for jobs
 *      that come;
 *   2. sets its clock to a time, erg_scheduler_advance(), which is at least erg_scheduler_due() if
 *      nothing happens until then;
 *   3. reports events: jobs that came, ended or lost their GPUs, nodes, foreign GPUs, reports of
 *      progress, restarts that are over;
 *   4. has the policy called, erg_scheduler_decide(), if that is due;
 *   5. reads the changed jobs and the new state, placement, shape and point of each: struct
 *      erg_cluster_job, erg_scheduler_point() below a power cap, erg_scheduler_reason().
 *
 * Placements are intentions. A job that was decided to move has its new GPUs here from that moment
 * on, though it still saves its work on the old ones: nothing is promised twice. GPUs that Slurm
 * still counts as its own meanwhile are free here; the driver places no job on them before they are
 * free.
 *
 * All times are seconds of one clock that never goes back, of the driver's choice.
 */
#ifndef ERG_CLUSTER_SCHEDULE_CONTROL_H
#define ERG_CLUSTER_SCHEDULE_CONTROL_H

#include "cluster/schedule/accounting.h"
#include "cluster/schedule/policy.h"
#include "cluster/schedule/scheduler.h"

/* The source of speeds for workloads that were not known at the start. */
struct erg_speed_source {
    /* A new row of the table, in which nothing can run yet, is to be filled. Where nothing is known
     * of the workload, it stays so. */
    int (*fill)(void *context, struct erg_speeds *speeds, int workload,
                const struct erg_trace_workload *what, struct erg_error *err);
    void *context;
};

/* ---- making one ---- */

/* For a trace that is known as a whole. All is borrowed. `accounting` NULL: the fair one. */
struct erg_scheduler *erg_scheduler_new(const struct erg_fleet *fleet,
                                        const struct erg_job_trace *trace,
                                        const struct erg_speeds *speeds,
                                        const struct erg_policy *policy,
                                        const struct erg_accounting *accounting);

/* For jobs that come. All is borrowed and must stay; measurements change speeds. */
struct erg_live_setup {
    const struct erg_fleet *fleet;
    struct erg_speeds *speeds;      /* a table of no workload yet (erg_speeds_new()) */
    struct erg_speed_source source; /* of its rows */
    const struct erg_policy *policy;
    const struct erg_tariff *tariff; /* NULL: none */
    double power_cap_w;              /* INFINITY: none; else above the idle power of all GPUs */
};
struct erg_scheduler *erg_scheduler_new_live(const struct erg_live_setup *setup);

void erg_scheduler_free(struct erg_scheduler *scheduler);

/* ---- jobs ---- */

/* A job as its user submitted it. Texts are copied. */
struct erg_new_job {
    const char *name;          /* no other job has it; policies save the state of jobs under it */
    const char *family, *size; /* of the model, as profiles have them */
    long batch;
    const char *tenant;
    double submitted_s; /* not after now; a restarted driver gives the time of its first start */
    double deadline_s;  /* INFINITY: none */
    double iterations;  /* in all */
    int type, gpus;     /* asked for; type -1: any */
};

/*
 * Registers a job of a live scheduler under its number. The job has not arrived yet: call
 * erg_scheduler_arrive() next. Fails where the name is taken, a number is invalid, or the source of
 * speeds fails; then nothing has changed.
 */
int erg_scheduler_add_job(struct erg_scheduler *scheduler, const struct erg_new_job *what, int *job,
                          struct erg_error *err);

/* The number of a live scheduler's job; -1: none has this name. */
int erg_scheduler_find_job(const struct erg_scheduler *scheduler, const char *name);

/* The job's GPU-seconds and starts before this scheduler existed. Call it before the job arrives;
 * the job's next report gives its remaining work. */
void erg_scheduler_recall(struct erg_scheduler *scheduler, int job, double attained_gpu_s,
                          int starts);

/*
 * The job waits from now on. Also that of a job that was withdrawn, which keeps its account. False:
 * it can run on no GPUs of the cluster, and is rejected.
 */
bool erg_scheduler_arrive(struct erg_scheduler *scheduler, int job);

/* The same of a job that has these GPUs already, for a driver that finds running ones. The GPUs
 * must be free or foreign; foreign ones become the job's. False, and nothing has changed: of a job
 * on such GPUs, as many on each node, or of that operating point, nothing is known. */
bool erg_scheduler_adopt(struct erg_scheduler *scheduler, int job,
                         const struct erg_placement *placement, int point);

/* It has other GPUs than was decided, as many on each of as many nodes of the type: no restart.
 * They must be its own, free or foreign; or on a node that it keeps, another job's, which then has
 * those that this one leaves there. */
void erg_scheduler_correct(struct erg_scheduler *scheduler, int job,
                           const struct erg_placement *placement);

/* It did all that it had to, or was cancelled or given up, waiting or running. */
void erg_scheduler_end(struct erg_scheduler *scheduler, int job);

/* It lost its GPUs, which are free, and waits: preempted, killed with its node, or failed. Work
 * since its last checkpoint is lost. Returns how many iterations that are. */
double erg_scheduler_evict(struct erg_scheduler *scheduler, int job);

/* The job is absent until it arrives again: it waits after a failure, or its user holds it. A
 * running job loses its work since the last checkpoint. */
void erg_scheduler_withdraw(struct erg_scheduler *scheduler, int job);

/* ---- progress, for the accounting "live" ---- */

/* A report of a job's trainer. */
struct erg_progress_report {
    double at_s;        /* when it arrived; not after now */
    double iteration;   /* iterations done in all, since the job's first start */
    double checkpoint;  /* of those, saved */
    double iteration_s; /* measured, of the driver's seconds; NAN: not known yet */
    double due_s;       /* so long after at_s the next report is expected */
};
/* A report of a running job that has resumed; iteration_s corrects the speed of its workload. From
 * a report of a job that does not run, or one that is earlier than the last, only the remaining
 * work is used. */
void erg_scheduler_report(struct erg_scheduler *scheduler, int job,
                          const struct erg_progress_report *report);

/* A running job has begun to train, the given seconds after the decision to (re)start it, without
 * the time for waking nodes. */
void erg_scheduler_restarted(struct erg_scheduler *scheduler, int job, double took_s);

/* A measured iteration of a workload at an operating point of a shape, the mean of `count`, from a
 * journal. */
void erg_scheduler_measured(struct erg_scheduler *scheduler, int workload, int shape, int point,
                            double iteration_s, double count);

/* ---- nodes and GPUs of others ---- */

/* Its jobs are evicted. A node that is down already stays so. */
void erg_scheduler_fail_node(struct erg_scheduler *scheduler, int node);
void erg_scheduler_repair_node(struct erg_scheduler *scheduler, int node);

/* No new placements there, while its jobs stay; or again some. */
void erg_scheduler_drain_node(struct erg_scheduler *scheduler, int node, bool drains);

/* A node without jobs was switched off, or one that was off is up in the given seconds. The driver
 * wakes nodes that are off and get a job, and reports it here. */
void erg_scheduler_switch_node(struct erg_scheduler *scheduler, int node, bool off, double up_in_s);

/*
 * Others have exactly these GPUs of a node now. GPUs of a job of this scheduler do not become
 * foreign: they were assigned to it, and if it does not get them, the driver evicts it. Returns
 * whether something changed.
 */
bool erg_scheduler_set_foreign(struct erg_scheduler *scheduler, int node, uint64_t gpus);

/* ---- time and decisions ---- */

/* It is so late now. Report events afterwards. */
void erg_scheduler_advance(struct erg_scheduler *scheduler, double now_s);

/* The time for which the policy requested a call if nothing happens until then; not before now.
 * INFINITY: it does not. */
double erg_scheduler_due(const struct erg_scheduler *scheduler);

/* Whether an event requires an immediate call of the policy. */
bool erg_scheduler_urgent(const struct erg_scheduler *scheduler);

/*
 * Calls the policy, due or not, and records its decisions. `*changed` (may be NULL): jobs that have
 * other GPUs or another operating point than before, or were rejected, by number, and how many;
 * until the next call of anything here. Fails where the policy fails or has put a job where it
 * cannot run.
 */
int erg_scheduler_decide(struct erg_scheduler *scheduler, const int **changed, size_t *count,
                         struct erg_error *err);

/* The operating point at which a running job is to run: its own, or a slower one that keeps the
 * power cap, which the policy need not. */
int erg_scheduler_point(const struct erg_scheduler *scheduler, int job);

/* Watts of all GPUs that are up if all running jobs run at those points. */
double erg_scheduler_power(const struct erg_scheduler *scheduler);

/* The reason why a job does not have GPUs. */
enum erg_wait_reason {
    ERG_WAIT_NONE,      /* it has, or has ended */
    ERG_WAIT_ABSENT,    /* it has not arrived, or was withdrawn */
    ERG_WAIT_DECISION,  /* the policy was not called since it came */
    ERG_WAIT_NOWHERE,   /* it can run on no GPUs of the cluster, or the policy turned it away */
    ERG_WAIT_NODES,     /* of the GPUs that it could use, down, draining and foreign ones are too
                         * many */
    ERG_WAIT_GPUS,      /* too few are free */
    ERG_WAIT_SCATTERED, /* enough are free, but not on few enough nodes */
    ERG_WAIT_POLICY,    /* there is room that the policy keeps for others, or for later */
};
enum erg_wait_reason erg_scheduler_reason(const struct erg_scheduler *scheduler, int job);
const char *erg_wait_reason_text(enum erg_wait_reason reason);

/* ---- saved state of a policy ---- */

/* The state of the policy and the measured restarts, which would be lost with this process: a new
 * reference. */
json_t *erg_scheduler_save(const struct erg_scheduler *scheduler);

/* Restores the state of an earlier scheduler of the same fleet and policy. Call it when all jobs
 * have arrived or were adopted, before the first decision. State about other jobs is ignored. */
void erg_scheduler_load(struct erg_scheduler *scheduler, const json_t *saved);

#endif
