/*
 * Control: the interface of a scheduler's driver, which is the simulator or a live controller.
 *
 * The driver of a scheduler
 *   1. makes it: erg_scheduler_new() for a trace that is known, erg_scheduler_new_live() for jobs
 *      that arrive;
 *   2. sets its clock, erg_scheduler_advance(), to at least erg_scheduler_due() if nothing happens
 *      until then;
 *   3. reports events: jobs that arrived, ended or lost their GPUs, nodes, foreign GPUs, reports of
 *      progress, completed restarts;
 *   4. calls the policy, erg_scheduler_decide(), if that is due;
 *   5. reads the changed jobs and the new state, placement, shape and point of each: struct
 *      erg_cluster_job, erg_scheduler_point() below a power cap, erg_scheduler_reason().
 *
 * Placements are intentions. A job that will move has its new GPUs here from the moment of the
 * decision, although it still saves its work on the old ones. So no GPU is promised twice. GPUs
 * that Slurm still counts as the job's are free here; the driver places no job on them before they
 * are free in Slurm.
 *
 * All times are seconds on one clock of the driver's that never goes back.
 */
#ifndef ERG_CLUSTER_SCHEDULE_CONTROL_H
#define ERG_CLUSTER_SCHEDULE_CONTROL_H

#include "cluster/schedule/accounting.h"
#include "cluster/schedule/policy.h"
#include "cluster/schedule/scheduler.h"

/* The source of speeds for workloads that were unknown at the start. */
struct erg_speed_source {
    /* Fills a new row of the table, in which nothing can run yet. Leaves it unchanged if the
     * workload is unknown. */
    int (*fill)(void *context, struct erg_speeds *speeds, int workload,
                const struct erg_trace_workload *what, struct erg_error *err);
    void *context;
};

/* ---- start ---- */

/* For a trace that is completely known. Borrows all arguments. `accounting` NULL: the fair one. */
struct erg_scheduler *erg_scheduler_new(const struct erg_fleet *fleet,
                                        const struct erg_job_trace *trace,
                                        const struct erg_speeds *speeds,
                                        const struct erg_policy *policy,
                                        const struct erg_accounting *accounting);

/* For jobs that arrive. Borrows all arguments; measurements change the speeds. */
struct erg_live_setup {
    const struct erg_fleet *fleet;
    struct erg_speeds *speeds;      /* a table without workloads (erg_speeds_new()) */
    struct erg_speed_source source; /* of the table's rows */
    const struct erg_policy *policy;
    const struct erg_tariff *tariff; /* NULL: none */
    double power_cap_w;              /* INFINITY: none; else above the idle power of all GPUs */
};
struct erg_scheduler *erg_scheduler_new_live(const struct erg_live_setup *setup);

void erg_scheduler_free(struct erg_scheduler *scheduler);

/* ---- jobs ---- */

/* A job as its user submitted it. Texts are copied. */
struct erg_new_job {
    const char *name;          /* unique; policies store the state of jobs under it */
    const char *family, *size; /* of the model, as profiles have them */
    long batch;
    const char *tenant;
    double submitted_s; /* not in the future; a restarted driver gives the time of its first
                         * start */
    double deadline_s;  /* INFINITY: none */
    double iterations;  /* total */
    int type, gpus;     /* requested; type -1: any */
};

/*
 * Registers a job of a live scheduler under its number. The job has not arrived yet: call
 * erg_scheduler_arrive() next. Fails if the name is taken, a number is invalid, or the source of
 * speeds fails; then nothing has changed.
 */
int erg_scheduler_add_job(struct erg_scheduler *scheduler, const struct erg_new_job *what, int *job,
                          struct erg_error *err);

/* The number of a live scheduler's job; -1: no job has this name. */
int erg_scheduler_find_job(const struct erg_scheduler *scheduler, const char *name);

/* The job's GPU-seconds and starts before this scheduler existed. Call it before the job arrives;
 * the job's next report contains its remaining work. */
void erg_scheduler_recall(struct erg_scheduler *scheduler, int job, double attained_gpu_s,
                          int starts);

/*
 * The job waits from now on. A job that was withdrawn keeps its account. Returns false if it can
 * run on no GPUs of the cluster; it is then rejected.
 */
bool erg_scheduler_arrive(struct erg_scheduler *scheduler, int job);

/* The same for a job that already has these GPUs, for a driver that finds running jobs. The GPUs
 * must be free or foreign; foreign ones become the job's. Returns false, and changes nothing, if
 * the speed of the job on such GPUs, with these numbers per node, or at that operating point is
 * unknown. */
bool erg_scheduler_adopt(struct erg_scheduler *scheduler, int job,
                         const struct erg_placement *placement, int point);

/* It has other GPUs than decided, in the same numbers on as many nodes of the type: no restart.
 * They must be its own, free or foreign, or on a node that it keeps, another job's; that job then
 * gets the ones that this job leaves there. */
void erg_scheduler_correct(struct erg_scheduler *scheduler, int job,
                           const struct erg_placement *placement);

/* It has finished, or was cancelled or given up, while waiting or running. */
void erg_scheduler_end(struct erg_scheduler *scheduler, int job);

/* It lost its GPUs, which are free, and waits: preempted, killed with its node, or failed. Work
 * since its last checkpoint is lost. Returns the number of lost iterations. */
double erg_scheduler_evict(struct erg_scheduler *scheduler, int job);

/* The job is absent until it arrives again: it waits after a failure, or its user holds it. A
 * running job loses its work since the last checkpoint. */
void erg_scheduler_withdraw(struct erg_scheduler *scheduler, int job);

/* ---- progress, for the accounting "live" ---- */

/* A report of a job's trainer. */
struct erg_progress_report {
    double at_s;        /* when it arrived; not in the future */
    double iteration;   /* total iterations since the job's first start */
    double checkpoint;  /* iterations in the last checkpoint */
    double iteration_s; /* measured, in the driver's seconds; NAN: unknown yet */
    double due_s;       /* time from at_s until the next report is expected */
};
/* A report of a running job that has resumed; iteration_s corrects the speed of its workload. For a
 * job that does not run, or a report that is older than the last, only the remaining work is
 * used. */
void erg_scheduler_report(struct erg_scheduler *scheduler, int job,
                          const struct erg_progress_report *report);

/* A running job has started to train, the given seconds after the decision to (re)start it, without
 * the time for waking nodes. */
void erg_scheduler_restarted(struct erg_scheduler *scheduler, int job, double took_s);

/* A measured iteration time of a workload at an operating point of a shape, the mean of `count`,
 * from a journal. */
void erg_scheduler_measured(struct erg_scheduler *scheduler, int workload, int shape, int point,
                            double iteration_s, double count);

/* ---- nodes and GPUs of others ---- */

/* Evicts the node's jobs. A node that is already down stays unchanged. */
void erg_scheduler_fail_node(struct erg_scheduler *scheduler, int node);
void erg_scheduler_repair_node(struct erg_scheduler *scheduler, int node);

/* No new placements there, while its jobs stay; or placements are possible again. */
void erg_scheduler_drain_node(struct erg_scheduler *scheduler, int node, bool drains);

/* A node without jobs was switched off, or one that was off will be up after the given seconds. The
 * driver wakes nodes that are off and get a job, and reports it here. */
void erg_scheduler_switch_node(struct erg_scheduler *scheduler, int node, bool off, double up_in_s);

/*
 * Others have exactly these GPUs of a node now. GPUs of a job of this scheduler do not become
 * foreign: they were assigned to it, and if it does not get them, the driver evicts it. Returns
 * true if something changed.
 */
bool erg_scheduler_set_foreign(struct erg_scheduler *scheduler, int node, uint64_t gpus);

/* ---- time and decisions ---- */

/* Sets the present time. Report events afterwards. */
void erg_scheduler_advance(struct erg_scheduler *scheduler, double now_s);

/* The time for which the policy requested a call if nothing happens until then; not in the past.
 * INFINITY: none. */
double erg_scheduler_due(const struct erg_scheduler *scheduler);

/* Returns true if an event requires an immediate call of the policy. */
bool erg_scheduler_urgent(const struct erg_scheduler *scheduler);

/*
 * Calls the policy, due or not, and records its decisions. `*changed` (may be NULL): the numbers of
 * jobs with other GPUs or another operating point than before, and of rejected jobs; valid until
 * the next call of anything here. Fails if the policy fails or places a job where it cannot run.
 */
int erg_scheduler_decide(struct erg_scheduler *scheduler, const int **changed, size_t *count,
                         struct erg_error *err);

/* The operating point for a running job: its own, or a slower one that keeps the power cap, since
 * policies may ignore the cap. */
int erg_scheduler_point(const struct erg_scheduler *scheduler, int job);

/* Power of all GPUs that are up if all running jobs run at those points. */
double erg_scheduler_power(const struct erg_scheduler *scheduler);

/* The reason why a job does not have GPUs. */
enum erg_wait_reason {
    ERG_WAIT_NONE,      /* it has GPUs, or has ended */
    ERG_WAIT_ABSENT,    /* it has not arrived, or was withdrawn */
    ERG_WAIT_DECISION,  /* the policy was not called since it arrived */
    ERG_WAIT_NOWHERE,   /* it can run on no GPUs of the cluster, or the policy rejected it */
    ERG_WAIT_NODES,     /* too many of its usable GPUs are down, draining or foreign */
    ERG_WAIT_GPUS,      /* too few are free */
    ERG_WAIT_SCATTERED, /* enough are free, but not on few enough nodes */
    ERG_WAIT_POLICY,    /* there is room, but the policy keeps it for others, or for later */
};
enum erg_wait_reason erg_scheduler_reason(const struct erg_scheduler *scheduler, int job);
const char *erg_wait_reason_text(enum erg_wait_reason reason);

/* ---- saved state of a policy ---- */

/* The state of the policy and the measured restarts, which this process would otherwise lose: a new
 * reference. */
json_t *erg_scheduler_save(const struct erg_scheduler *scheduler);

/* Restores the state of an earlier scheduler of the same fleet and policy. Call it after all jobs
 * have arrived or were adopted, and before the first decision. State about other jobs is
 * ignored. */
void erg_scheduler_load(struct erg_scheduler *scheduler, const json_t *saved);

#endif
