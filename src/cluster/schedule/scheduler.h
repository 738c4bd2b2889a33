/*
 * The scheduler: a policy's view of the cluster, and its decisions.
 *
 * A policy is called at times that it chose (policy.h), reads the present jobs and GPUs, and
 * changes the schedule in place. It sees every change of its own at once, and may undo it. When it
 * returns, jobs whose GPUs or operating point differ from before are reconfigured, and pay for it
 * once; a job that ends up where it was pays nothing.
 *
 * It has the information of a real scheduler: submitted requests, reported progress, known speeds,
 * past failures. The future is hidden from it.
 */
#ifndef ERG_CLUSTER_SCHEDULE_SCHEDULER_H
#define ERG_CLUSTER_SCHEDULE_SCHEDULER_H

#include "cluster/job_trace.h"
#include "cluster/occupancy.h"
#include "cluster/speed_table.h"
#include "cluster/tariff.h"

#include <stdbool.h>
#include <stddef.h>

struct erg_policy;
struct erg_accounting;
struct erg_work;
struct erg_change_log;
struct erg_course;
struct erg_restart_times;
struct erg_live_tables;

enum erg_cluster_job_state {
    ERG_JOB_FUTURE,   /* not submitted yet; policies never see one */
    ERG_JOB_WAITING,  /* without GPUs */
    ERG_JOB_RUNNING,  /* has GPUs, though it may still be restarting on them */
    ERG_JOB_ENDED,    /* did all its iterations */
    ERG_JOB_REJECTED, /* rejected by the policy for good */
};

struct erg_cluster_job {
    int id;                              /* index in the trace and here */
    const struct erg_trace_job *request; /* workload, tenant, requested GPUs and type */
    enum erg_cluster_job_state state;
    double submitted_s;
    double deadline_s; /* INFINITY: none */
    double iterations; /* requested; for the rest: erg_scheduler_remaining() */

    struct erg_placement placement; /* its GPUs; read only, see erg_scheduler_place() */
    int shape;                      /* of the placement, in the table of speeds; -1: none */
    int point;                      /* operating point, on that speed's frontier */

    double started_s; /* time of the first start; NAN: never */
    int reconfigurations;
    bool told; /* the policy was called since it arrived: open() takes it over if it waits or
                * runs */
    int next, previous; /* in the list of its state; -1: none */
};

/* A list of jobs in the order in which they reached that state. */
struct erg_job_list {
    int first, last;
    int count;
};

struct erg_scheduler {
    double now_s;
    const struct erg_fleet *fleet;
    const struct erg_job_trace *trace;
    const struct erg_speeds *speeds;
    struct erg_cluster_job *jobs; /* by id; `jobs_count` of them in the trace */
    size_t jobs_count;
    /* Jobs, workloads and tenants arrive during the life of a live scheduler. A policy sizes its
     * tables by these numbers, which are at least as large; when one of them grows, the policy is
     * opened again. */
    size_t jobs_room, workloads_room, tenants_room;
    struct erg_job_list waiting, running;
    struct erg_occupancy *occupancy;
    double *ready_s;                 /* by node: when it is up, if it was woken */
    const struct erg_tariff *tariff; /* of electricity, as announced; NULL: none */
    double power_cap_w;              /* of all GPUs together; INFINITY: none */

    double throttle; /* least slowdown of computation for the cap; 1: the policy's points */

    const struct erg_accounting *accounting;
    const struct erg_policy *policy;
    void *policy_state;
    /* Not for policies. */
    struct erg_work *works;         /* by id: the accounts */
    struct erg_change_log *changes; /* of the present decision */
    struct erg_course *course;      /* since the last decision */
    struct erg_restart_times *restarts;
    struct erg_live_tables *live; /* NULL: all jobs were known at the start */
};

/* Returns true if job a arrived before job b: by submission, equal ones in the order of the
 * trace. */
static inline bool erg_scheduler_before(const struct erg_scheduler *scheduler, int a, int b)
{
    double a_s = scheduler->jobs[a].submitted_s, b_s = scheduler->jobs[b].submitted_s;
    return a_s < b_s || (a_s == b_s && a < b);
}

/* All jobs that wait or run and were reported, in the order of submission, for open(). Returns
 * their number; the caller frees `jobs`. */
size_t erg_scheduler_told(const struct erg_scheduler *scheduler, int **jobs);

/* A job's remaining iterations, and its GPU-seconds so far. */
double erg_scheduler_remaining(const struct erg_scheduler *scheduler, int job);
double erg_scheduler_attained(const struct erg_scheduler *scheduler, int job);

/* The speed of a job on a shape. */
const struct erg_speed *erg_scheduler_speed(const struct erg_scheduler *scheduler, int job,
                                            int shape);

/* Seconds that a job would lose by a change to the given number of GPUs of a type, if their nodes
 * are up; job -1 or type -1: any. */
double erg_scheduler_cost(const struct erg_scheduler *scheduler, int job, int type, int gpus);

/* Returns true if a job that gets the given number of GPUs of a type now, at that speed, ends
 * before its deadline; the restart and the rest of a round pass before it progresses. */
bool erg_scheduler_meets_deadline(const struct erg_scheduler *scheduler, int job, int type,
                                  int gpus, const struct erg_speed *speed);

/* Seconds until all nodes of a placement are up; nodes that are off have to be woken. */
double erg_scheduler_wait(const struct erg_scheduler *scheduler,
                          const struct erg_placement *placement);

/*
 * Gives these GPUs to a waiting job, or to a running one instead of its own (which may be among
 * them). All except its own must be free, and their number per node equal. The placement is copied.
 * `point` 0 is the fastest.
 */
void erg_scheduler_place(struct erg_scheduler *scheduler, int job,
                         const struct erg_placement *placement, int point);

/* The same on the first room found for a shape (the job's own GPUs count as free). Returns false,
 * and changes nothing, if there is none. */
bool erg_scheduler_fit(struct erg_scheduler *scheduler, int job, int shape,
                       enum erg_node_order order, int point);

/*
 * Takes a running job's GPUs for the moment, so that others can have them. It keeps its place among
 * the running jobs, and must be placed again or suspended before the policy returns.
 */
void erg_scheduler_lift(struct erg_scheduler *scheduler, int job);

/* Takes a running job's GPUs: it waits again, last in the list, and its work is kept. */
void erg_scheduler_suspend(struct erg_scheduler *scheduler, int job);

/* Rejects a waiting job for good. */
void erg_scheduler_reject(struct erg_scheduler *scheduler, int job);

/* Requests a call of the policy at that time, regardless of earlier events (the earliest request
 * counts), if there are jobs then. If such a call changes nothing while no job runs and no event is
 * due, the policy is not called again, and the simulation ends. */
void erg_scheduler_wake(struct erg_scheduler *scheduler, double at_s);

#endif
