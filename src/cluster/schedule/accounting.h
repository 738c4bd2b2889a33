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
    /* Seconds that a change to so many GPUs costs. */
    double (*cost)(const struct erg_fleet *fleet, const struct erg_policy *policy, int gpus);
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

#endif
