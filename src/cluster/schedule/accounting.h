/*
 * Accounting: what running a job for a while amounts to, and what changing its GPUs costs.
 *
 * One simulator, two ways of counting, so that policies need not know:
 *
 * fair: work is the integral of speed, exact between events; a job that gets other GPUs, or
 *   another operating point on other GPUs, makes no progress for the time that the fleet's file
 *   gives; work since the last checkpoint is lost with a node. Jobs arrive and end at any time.
 *
 * artifact: the rules of the published comparison of Arena (EuroSys'26 artifact), quirks included,
 *   so that it can be replayed. Everything happens at multiples of 300 s. A fifth of a trace's
 *   iterations is run. Progress is all seconds executed so far over the present iteration time,
 *   rounded down: rescaling rewrites history. A restart takes 150 s per GPU, at most 600 s (10 and
 *   40 s for a policy that prunes the search for a plan): up to 300 s of that lower the throughput
 *   of one round and cost no progress; beyond that, two rounds count no throughput, and one of them
 *   no progress. Deadlines are 5 times as far away, and none at all where a policy drops them.
 */
#ifndef ERG_CLUSTER_SCHEDULE_ACCOUNTING_H
#define ERG_CLUSTER_SCHEDULE_ACCOUNTING_H

#include "cluster/fleet.h"
#include "cluster/job_trace.h"
#include "cluster/schedule/policy.h"

/* A job's account. What it says holds from the last change of the job's allocation on. */
struct erg_work {
    double iterations; /* to do in all; the artifact lowers it to what is left at suspensions */
    double since_s;    /* of that change */
    double remaining;  /* iterations, then */
    double executed_s; /* artifact: all time that ever counted, then */
    double overhead_s; /* what the change cost */
    double resume_s;   /* no progress before; INFINITY while it has no GPUs */
    double iteration_s;
    double saved, saved_s; /* fair: iterations left at the last checkpoint, and when that was */
};

struct erg_accounting {
    const char *name;
    double
        round_s;  /* everything happens at its multiples after the first submission; 0: any time */
    bool replays; /* a published comparison, with what its policies did (scheduler.h) */
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

extern const struct erg_accounting erg_accounting_fair, erg_accounting_artifact;

/* The artifact's account: all time of a job that counted until now. */
double erg_artifact_executed(const struct erg_work *work, double now_s);

#endif
