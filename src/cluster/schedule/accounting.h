/*
 * Accounting: what running a job for a while amounts to, and what changing its GPUs costs.
 *
 * Work is the integral of speed, exact between events; a job that gets other GPUs, or another
 * operating point on other GPUs, makes no progress for the time that the fleet's file gives; work
 * since the last checkpoint is lost with a node. Jobs arrive and end at any time.
 *
 * These rules are an interface, because published comparisons counted otherwise: research/ replays
 * one under its own.
 */
#ifndef ERG_CLUSTER_SCHEDULE_ACCOUNTING_H
#define ERG_CLUSTER_SCHEDULE_ACCOUNTING_H

#include "cluster/fleet.h"
#include "cluster/job_trace.h"
#include "cluster/schedule/policy.h"

/* A job's account. Its values hold from the last change of the job's allocation on. */
struct erg_work {
    double iterations; /* to do in all */
    double since_s;    /* of that change */
    double remaining;  /* iterations, then */
    double executed_s; /* all time that ever counted, then; for those who ask for it */
    double overhead_s; /* what the change cost */
    double resume_s;   /* no progress before; INFINITY without GPUs */
    double iteration_s;
    double saved, saved_s; /* iterations left at the last checkpoint, and when that was */
    /* The job's last report about its present run; for live accounting. */
    bool reported;     /* it did */
    double reported_s; /* when, */
    double due_s;      /* and when it will again */
};

struct erg_accounting {
    double
        round_s; /* everything happens at its multiples after the first submission; 0: any time */
    bool shrinks_in_place;   /* a job that keeps some of its GPUs and gets no other restarts not */
    double throughput_least; /* of a round that counts in the mean */

    /* When a job is submitted, after the first submission; `previous_s`: the job before it. */
    double (*submission)(double asked_s, double previous_s);
    /* A job's account at its submission; may change iterations and deadline. */
    void (*submit)(struct erg_cluster_job *job, struct erg_work *work);
    /* Iterations left at a time from since_s on. */
    double (*remaining)(const struct erg_work *work, double now_s);
    /* Seconds that a change to the given number of GPUs of a type costs a job; -1: any. */
    double (*cost)(const struct erg_scheduler *scheduler, int job, int type, int gpus);
    /* The allocation changed: iterations now take iteration_s, INFINITY without GPUs. `cost_s`: of
     * the restart; 0: none is needed. */
    void (*change)(struct erg_work *work, double now_s, double iteration_s, double cost_s);
    /* The job goes on where it is, at another pace. */
    void (*pace)(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                 double iteration_s);
    /* Work since the last checkpoint is lost; to be followed by change(). */
    void (*lose)(struct erg_work *work, const struct erg_fleet *fleet, double now_s);
    /* The time of its last iteration, if nothing changes; INFINITY without GPUs. */
    double (*end)(const struct erg_work *work);
    /* Which share of its speed counts as throughput at a time, and when that will change next;
     * INFINITY: never. */
    double (*share)(const struct erg_work *work, double now_s, double *until_s);
};

extern const struct erg_accounting erg_accounting_fair;

/* Accounting by the fleet's file: the cost of a change to a number of GPUs, for the first time or
 * again. */
double erg_fleet_restart_cost(const struct erg_fleet *fleet, bool first, int gpus);

/*
 * Accounting by jobs' reports (control.h). A job's remaining iterations are those of its last
 * report, less the iterations since then at its measured pace, but not fewer than its next report
 * may contain; while that report is overdue, and until the first report of each run, the job counts
 * as standing still. A job ends when it reports so; until then it has at least one iteration left.
 * The cost of a restart is the mean of this job's restarts, else of restarts on the type of GPU,
 * else the value of the fleet's file; first starts count separately. The failure of a node loses
 * the work after the last reported checkpoint.
 */
extern const struct erg_accounting erg_accounting_live;

#endif
