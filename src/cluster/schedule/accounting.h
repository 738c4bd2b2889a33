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

/* A job's account. What it says holds from the last change of the job's allocation on. */
struct erg_work {
    double iterations; /* to do in all */
    double since_s;    /* of that change */
    double remaining;  /* iterations, then */
    double executed_s; /* all time that ever counted, then; for those who ask for it */
    double overhead_s; /* what the change cost */
    double resume_s;   /* no progress before; INFINITY while it has no GPUs */
    double iteration_s;
    double saved, saved_s; /* iterations left at the last checkpoint, and when that was */
    /* What the job itself said last of its present run; the live accounting's. */
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
    /* Seconds that a change to so many GPUs of a type costs a job; -1: any. */
    double (*cost)(const struct erg_scheduler *scheduler, int job, int type, int gpus);
    /* The allocation changed: iterations take iteration_s now, INFINITY: it has no GPUs. `cost_s`:
     * of the restart; 0: it needs none. */
    void (*change)(struct erg_work *work, double now_s, double iteration_s, double cost_s);
    /* The job goes on where it is, at another pace. */
    void (*pace)(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                 double iteration_s);
    /* Work since the last checkpoint is lost; to be followed by change(). */
    void (*lose)(struct erg_work *work, const struct erg_fleet *fleet, double now_s);
    /* When it will have no iterations left, if nothing changes; INFINITY without GPUs. */
    double (*end)(const struct erg_work *work);
    /* Which share of its speed counts as throughput at a time, and when that will change next;
     * INFINITY: never. */
    double (*share)(const struct erg_work *work, double now_s, double *until_s);
};

extern const struct erg_accounting erg_accounting_fair;

/* By the fleet's file: what changing to so many GPUs costs, for the first time or again. */
double erg_fleet_restart_cost(const struct erg_fleet *fleet, bool first, int gpus);

/*
 * By what jobs report (control.h). What a job has left is what its last report says, less what it
 * did since then at the pace that it measured, but no less than its next report can say; where that
 * is overdue, and until the first of each run, the job counts as standing still. It ends when it
 * says so, so a job that is there has an iteration left. What a restart costs is the mean of what
 * this job's restarts took, else of restarts on the type of GPU, else what the fleet's file says;
 * first starts are kept apart. With a node is lost what came after the checkpoint that was reported
 * last.
 */
extern const struct erg_accounting erg_accounting_live;

#endif
