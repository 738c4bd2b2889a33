/*
 * The reconciler: the next requests to the resource manager, which bring every managed job to its
 * intended GPUs.
 *
 * It does no input or output: its answers follow from a snapshot, from the records of jobs, and
 * from the time. A cycle of a controller is
 *
 *     snapshot()                          of the engine; without one there is no cycle
 *     erg_reconcile_report()              for each job with a fresh report, read after the snapshot
 *     erg_reconcile_see()                 phases; then intents may change
 *     erg_reconcile_next()                actions
 *     erg_reconcile_act(), erg_reconcile_answer()    for each, in order
 *
 * The GPUs of a node are alike: only their number matters, and the resource manager chooses which
 * ones a job gets.
 *
 * Rules. Only an incarnation that has reported is signalled, and only once: if it does not leave in
 * time (save_least_s), it is killed. One that has not reported has nothing to save, and is killed
 * at once when it must leave. A job is placed when enough GPUs are free in the snapshot, on nodes
 * that are up; so jobs that exchange GPUs stop first. A requeued job is held before it can start. A
 * job in an unknown state is left alone, and a cancelled one is never touched again. A call without
 * an answer may have had its effect, or may have it later.
 *
 * Power. The power that all jobs together may draw, including those that stop or start, never
 * exceeds the cap because of an action. A plan counts from the moment at which it is written;
 * earlier plans count until the job reports that it follows the new one, or has left. Time alone
 * releases no power. Powers are beyond idle power.
 */
#ifndef ERG_CLUSTER_LIVE_RECONCILE_H
#define ERG_CLUSTER_LIVE_RECONCILE_H

#include "cluster/live/job_folder.h"
#include "cluster/live/live_engine.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_live_phase {
    ERG_PHASE_NEW,      /* not in any snapshot yet */
    ERG_PHASE_WAITING,  /* held */
    ERG_PHASE_STARTING, /* released by us, or running without a report */
    ERG_PHASE_RETURNED, /* may start, but not because of us: preempted, node failure, or requeued by
                         * its user */
    ERG_PHASE_RUNNING,
    ERG_PHASE_STOPPING, /* signalled or killed; its GPUs are still taken */
    ERG_PHASE_ENDING,   /* done, failing or cancelled; its GPUs are still taken */
    ERG_PHASE_ENDED,
    ERG_PHASE_FAILED,    /* will be requeued soon, unless given_up */
    ERG_PHASE_CANCELLED, /* by its user */
    ERG_PHASE_GONE,      /* the resource manager no longer lists it, and it was not done */
    ERG_PHASE_UNKNOWN,
};

/* "waiting", … */
const char *erg_live_phase_name(enum erg_live_phase phase);

/* Returns true if its GPUs are taken, or may be at any moment. */
bool erg_live_phase_holds_gpus(enum erg_live_phase phase);

/* Returns true if both have the same number of GPUs on every node. */
bool erg_placement_alike(const struct erg_placement *a, const struct erg_placement *b);

enum { ERG_AVOIDED_MOST = 3 };

/*
 * The record of a managed job. The controller fills the first part, the reconciler the rest; the
 * journal stores all. Call erg_managed_job_init() first. Times are on the engine's clock; NAN:
 * never.
 */
struct erg_managed_job {
    char token[ERG_TOKEN_LENGTH + 1];
    uint32_t id;

    /* Intents; may change between cycles. */
    struct erg_placement intended; /* empty: it should wait */
    int point;                     /* operating point; negative: none */
    double intended_w;             /* power of all its GPUs at that point, beyond their idle
                                    * power */
    long order;                    /* of placements: lower ones first, equal ones in the given
                                    * order */

    /* The job's plan file, as far as known. A controller that finds an unknown file sets these
     * (erg_reconcile_found_plan()). */
    long plan;       /* number of the last plan that was or may have been written; 0: none */
    int told_point;  /* -1: unknown, so a new plan is written */
    double told_w;   /* power that the plan allows; if unknown, the least that it may allow */
    double before_w; /* highest power of earlier plans, until the job follows this one; 0: it
                      * does */

    /* From the last snapshot. */
    enum erg_live_phase phase;
    bool running;                /* an incarnation has its GPUs, or had them and is completing */
    bool completing;             /* it is leaving; no request is possible */
    bool held_by_administrator;  /* while WAITING: its user cannot start it */
    struct erg_placement actual; /* its GPUs; empty while it waits */
    double since_s;              /* start of the phase */
    int restarts, exit_status;   /* from the resource manager */
    double started_unix_s;       /* from the resource manager, of the running incarnation */
    const char *waits_for;       /* why a job with intended GPUs was not placed in the last cycle, a
                                  * constant text; NULL: it does not wait */

    /* From its reports. */
    long incarnation;          /* highest that reported; 0: none */
    enum erg_job_state report; /* of that incarnation */
    double checkpoint;         /* highest iteration reported as saved */
    double longest_save_s;     /* 0: unknown */
    double report_s;           /* time of the last one */
    long incarnation_before;   /* the running incarnation has a higher number */
    bool in_doubt;             /* nothing is known about the running incarnation until it reports */
    bool reported;             /* the running incarnation has reported */

    /* Requests in progress. */
    struct erg_placement asked; /* by the last placement; it may start there at any time while: */
    double released_s;
    bool unsure;      /* the effect of that placement is unknown */
    bool holds;       /* we held it: the manager may still show an older reason */
    double stopped_s; /* time of the signal */
    double killed_s;
    bool kill_unsure; /* it is unknown whether the kill had its effect */
    int tries;        /* consecutive calls without effect */
    double retry_s;   /* no call before this time */

    /* Failures. */
    int failed_starts;        /* consecutive placements without a start */
    int failures;             /* consecutive failures of the job without a new checkpoint */
    double failed_checkpoint; /* checkpoint at the last failure; -1: none */
    double began_checkpoint;  /* checkpoint when it last waited */
    double not_before_s;      /* time of the next placement; -INFINITY: at once */
    struct {
        int node; /* -1: none */
        double until_s;
    } avoided[ERG_AVOIDED_MOST];
    bool left_alone;      /* set by the controller: its request is invalid, no action is taken */
    bool given_up;        /* failed for good: never placed again */
    bool needs_attention; /* for this reason: */
    char reason[160];
};

void erg_managed_job_init(struct erg_managed_job *job, uint32_t id, const char *token);
void erg_managed_job_release(struct erg_managed_job *job);

/* Returns true if a job avoids a node on which it failed. */
bool erg_reconcile_avoids(const struct erg_managed_job *job, int node, double now_s);

/* Seconds, except the last two. */
struct erg_reconcile_limits {
    double start_deadline_s; /* from the release to the start */
    double save_least_s;     /* a signalled job is killed after this, or after 3 times its longest
                              * save */
    double kill_again_s;     /* a killed job that still runs is killed again after this */
    double silence_s;        /* without a report; after three times this it is killed */
    double retry_s;          /* of a failed job: this x 2^n */
    double avoid_s;          /* how long a job avoids a node on which it failed */
    double attention_s;      /* after three placements without a start, until the next one */
    double cap_w;            /* INFINITY: none */
    double idle_w;           /* of everything under the cap, while no managed job runs */
};

/* Defaults: 30 + 30, 60, 300, 600, 30, 120 and 600 s, no cap. */
void erg_reconcile_limits_init(struct erg_reconcile_limits *limits);

/* Power of a job about which nothing is known: more than any cap. */
#define ERG_UNKNOWN_W 1e9

/*
 * The plan file of a job whose record does not match it: a new record, or one from a journal whose
 * controller died before it could store what it wrote. `number` 0: there is no readable plan.
 * `most_w`: the power that unknown plans may allow.
 */
void erg_reconcile_found_plan(struct erg_managed_job *job, long number, int point, double allows_w,
                              double most_w);

/* A new report of the highest incarnation. Read reports after the snapshot and before
 * erg_reconcile_see(). */
void erg_reconcile_report(struct erg_managed_job *job, const struct erg_report *report,
                          double now_s);

/* Updates all jobs from a snapshot; counts failures, and gives up after three. A job with the same
 * id and another token is a different job. */
void erg_reconcile_see(struct erg_managed_job *jobs, size_t count,
                       const struct erg_live_snapshot *snapshot,
                       const struct erg_reconcile_limits *limits, double now_s);

enum erg_action_verb {
    ERG_ACTION_PACE, /* write the plan file, nothing else */
    ERG_ACTION_STOP,
    ERG_ACTION_HOLD,
    ERG_ACTION_KILL, /* or requeue a failed one */
    ERG_ACTION_WAKE,
    ERG_ACTION_PLACE, /* after writing the plan file */
};

/* "pace", … */
const char *erg_action_verb_name(enum erg_action_verb verb);

struct erg_action {
    enum erg_action_verb verb;
    size_t job;      /* index; for WAKE, the job that needs the node */
    int node;        /* for WAKE; else -1 */
    bool failed;     /* for HOLD: the placement did not start in time */
    const char *why; /* a constant text */
};

struct erg_actions {
    struct erg_action *items;
    size_t count, capacity;
};

/*
 * The actions to take now, in order: paces that lower power, stops, holds, kills, wakes, paces that
 * raise power, and placements. Clears `actions` first; free its items with free(). Call
 * erg_reconcile_see() with that snapshot first. Changes only waits_for of the jobs.
 */
void erg_reconcile_next(struct erg_managed_job *jobs, size_t count,
                        const struct erg_live_snapshot *snapshot, const struct erg_fleet *fleet,
                        const struct erg_reconcile_limits *limits, double now_s,
                        struct erg_actions *actions);

/* Executes an action. For PACE it returns DONE, since the controller writes the plan file. */
enum erg_engine_answer erg_reconcile_act(struct erg_live_engine *engine,
                                         const struct erg_managed_job *jobs,
                                         const struct erg_action *action, struct erg_error *err);

/* Records the result of an action for `job`. A failed write of the plan file is ERG_ENGINE_BROKEN;
 * then do not execute the placement. */
void erg_reconcile_answer(struct erg_managed_job *job, const struct erg_action *action,
                          enum erg_engine_answer answer, const struct erg_reconcile_limits *limits,
                          double now_s);

/* The result of an action is unknown, because its controller died before the answer. The plan file
 * was handled before (erg_reconcile_found_plan()). */
void erg_reconcile_doubt(struct erg_managed_job *job, const struct erg_action *action,
                         const struct erg_reconcile_limits *limits, double now_s);

#endif
