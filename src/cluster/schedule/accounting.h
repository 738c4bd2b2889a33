/*
 * Accounting: the progress of a job, and the cost of a change of its GPUs.
 *
 * Work is the integral of speed, exact between events. A job that gets other GPUs, or another
 * operating point on other GPUs, makes no progress for the time in the fleet's file. A node failure
 * loses the work since the last checkpoint. Jobs arrive and end at any time.
 *
 * The rules are an interface, because published comparisons use other ones: research/ replays one
 * under its own rules.
 */
#ifndef ERG_CLUSTER_SCHEDULE_ACCOUNTING_H
#define ERG_CLUSTER_SCHEDULE_ACCOUNTING_H

#include "cluster/fleet.h"
#include "cluster/job_trace.h"
#include "cluster/schedule/policy.h"

/* A job's account. Its values are those at the last change of the job's allocation. */
struct erg_work {
    double iterations; /* total */
    double since_s;    /* time of that change */
    double remaining;  /* iterations at since_s */
    double executed_s; /* all counted time until since_s */
    double overhead_s; /* cost of the change */
    double resume_s;   /* no progress before it; INFINITY without GPUs */
    double iteration_s;
    double saved, saved_s; /* iterations left at the last checkpoint, and its time */
    /* The job's last report about its present run; for live accounting. */
    bool reported;     /* there is a report */
    double reported_s; /* its time, */
    double due_s;      /* and the expected time of the next */
};

struct erg_accounting {
    double round_s; /* everything happens at multiples of it after the first submission; 0: at any
                     * time */
    bool shrinks_in_place;   /* a job that keeps some of its GPUs and gets no others does not
                              * restart */
    double throughput_least; /* least speed of a round that counts in the mean */

    /* The time of a submission, after the first submission; `previous_s`: that of the job before
     * it. */
    double (*submission)(double asked_s, double previous_s);
    /* A job's account at its submission; may change iterations and deadline. */
    void (*submit)(struct erg_cluster_job *job, struct erg_work *work);
    /* Iterations left at a time after since_s. */
    double (*remaining)(const struct erg_work *work, double now_s);
    /* Cost in seconds of a change to the given number of GPUs of a type; -1: any. */
    double (*cost)(const struct erg_scheduler *scheduler, int job, int type, int gpus);
    /* The allocation has changed: iterations now take iteration_s, INFINITY without GPUs. `cost_s`:
     * of the restart; 0: no restart. */
    void (*change)(struct erg_work *work, double now_s, double iteration_s, double cost_s);
    /* The job continues on its GPUs, at another pace. */
    void (*pace)(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                 double iteration_s);
    /* Drops the work since the last checkpoint; call change() next. */
    void (*lose)(struct erg_work *work, const struct erg_fleet *fleet, double now_s);
    /* The time of its last iteration, if nothing changes; INFINITY without GPUs. */
    double (*end)(const struct erg_work *work);
    /* The share of its speed that counts as throughput at a time, and the time of its next change;
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
