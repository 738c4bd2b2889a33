/*
 * The reconciler: what to ask of the resource manager next, so that every managed job gets to where
 * it is intended to be.
 *
 * It does no input or output: what it says follows from a snapshot, from what is kept of each job,
 * and from the time that it is told. A controller's pass is
 *
 *     snapshot()                          of the engine; without one there is no pass
 *     erg_reconcile_report()              for each job with a fresh report, read after the snapshot
 *     erg_reconcile_see()                 phases; then intents may change
 *     erg_reconcile_next()                actions
 *     erg_reconcile_act(), erg_reconcile_answer()    for each, in order
 *
 * The GPUs of a node are alike: only their number matters, which of them a job gets is the
 * resource manager's choice.
 *
 * Rules. Only an incarnation that has reported is signalled, and only once: after save_deadline_s
 * it is killed. One that has not reported has nothing to save and is killed at once when it must
 * leave. A job is placed when so many GPUs are free in the snapshot on nodes that are up, so jobs
 * that exchange GPUs stop first. A job that comes back by itself is held before it can start. A job
 * in an unknown state is left alone, a cancelled one is never touched again. A call without an
 * answer may have had its effect, or have it yet.
 *
 * Power. The sum of what jobs may draw, those that stop or start among them, never exceeds the
 * cap because of an action: what a plan allows counts from the moment at which it is written, what
 * plans before it allowed until the job reports that it follows the new one, or has left. Time
 * alone frees nothing. Watts are beyond idle power.
 */
#ifndef ERG_CLUSTER_LIVE_RECONCILE_H
#define ERG_CLUSTER_LIVE_RECONCILE_H

#include "cluster/live/job_folder.h"
#include "cluster/live/live_engine.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_live_phase {
    ERG_PHASE_NEW,      /* never seen in a snapshot */
    ERG_PHASE_WAITING,  /* held */
    ERG_PHASE_STARTING, /* released by us, or running and not reported yet */
    ERG_PHASE_RETURNED, /* may start, but not because of us: preempted, its node failed, its user */
    ERG_PHASE_RUNNING,
    ERG_PHASE_STOPPING, /* signalled or killed; its GPUs are still taken */
    ERG_PHASE_ENDING,   /* all done, or it fails or is cancelled; its GPUs are still taken */
    ERG_PHASE_ENDED,
    ERG_PHASE_FAILED,    /* taken back soon, unless given_up */
    ERG_PHASE_CANCELLED, /* by its user */
    ERG_PHASE_GONE,      /* the resource manager does not know it any more, and it was not done */
    ERG_PHASE_UNKNOWN,
};

/* "waiting", … */
const char *erg_live_phase_name(enum erg_live_phase phase);

/* Whether its GPUs are taken, or may be at any moment. */
bool erg_live_phase_holds_gpus(enum erg_live_phase phase);

/* Whether both have as many GPUs of every node. */
bool erg_placement_alike(const struct erg_placement *a, const struct erg_placement *b);

enum { ERG_AVOIDED_MOST = 3 };

/*
 * What is kept of a managed job. The controller fills the first part, the reconciler the rest, and
 * a journal has all of it. erg_managed_job_init() first; times are the engine's, NAN: never.
 */
struct erg_managed_job {
    char token[ERG_TOKEN_LENGTH + 1];
    uint32_t id;

    /* Intended, may be changed between passes. */
    struct erg_placement intended; /* none: it should wait */
    int point;                     /* operating point; none below 0 */
    double intended_w;             /* of all its GPUs at that point, beyond their idle power */
    long order;                    /* of placements: lower ones first, equal ones as given */

    /* What the job's plan file says, as far as is known. A controller that finds a file of which it
     * does not know sets them (erg_reconcile_found_plan()). */
    long plan;       /* its number: of the plan that was written last, or may have been; 0: none */
    int told_point;  /* -1: not known, so it is told anew */
    double told_w;   /* what the plan allows; where it is not known, the least that it may allow */
    double before_w; /* the most that plans before it allow, until the job follows it; 0: it does */

    /* Of the last snapshot. */
    enum erg_live_phase phase;
    bool running;                /* an incarnation has, or had till it completes, its GPUs */
    bool completing;             /* of these: it is leaving, nothing can be asked of it */
    bool held_by_administrator;  /* while WAITING: its user cannot start it */
    struct erg_placement actual; /* what it has; none while it waits */
    double since_s;              /* of the phase */
    int restarts, exit_status;   /* as the resource manager has them */
    double started_unix_s;       /* likewise, of the incarnation that runs */
    const char *waits_for;       /* why a job with intended GPUs was not placed in the last pass, a
                                  * constant text; NULL: it does not wait */

    /* Of its reports. */
    long incarnation;          /* the highest that reported; 0: none */
    enum erg_job_state report; /* of that */
    double checkpoint;         /* the highest iteration reported as saved */
    double longest_save_s;     /* 0: none known */
    double report_s;           /* when the last one came */
    long incarnation_before;   /* the one that runs is a later one */
    bool in_doubt;             /* nothing is known of the one that runs until a report comes */
    bool reported;             /* the one that runs has */

    /* What was asked, and is not over. */
    struct erg_placement asked; /* by the last placement; it may start there at any moment while: */
    double released_s;
    bool unsure;      /* whether that placement had its effect */
    bool holds;       /* it was held by us: the manager's reason may still be an older one */
    double stopped_s; /* signalled */
    double killed_s;
    bool kill_unsure; /* whether that was done */
    int tries;        /* calls in a row that were not done */
    double retry_s;   /* no call before */

    /* What went wrong. */
    int failed_starts;        /* placements in a row from which nothing came */
    int failures;             /* of the job, in a row, without a new checkpoint */
    double failed_checkpoint; /* at the last of these; -1: none */
    double began_checkpoint;  /* when it last waited */
    double not_before_s;      /* not placed before; -INFINITY: at once */
    struct {
        int node; /* -1: none */
        double until_s;
    } avoided[ERG_AVOIDED_MOST];
    bool left_alone;      /* set by the controller: its request cannot be used, nothing is done */
    bool given_up;        /* never placed again: it fails */
    bool needs_attention; /* with the reason: */
    char reason[160];
};

void erg_managed_job_init(struct erg_managed_job *job, uint32_t id, const char *token);
void erg_managed_job_release(struct erg_managed_job *job);

/* Whether a node is avoided for a job, on which it failed. */
bool erg_reconcile_avoids(const struct erg_managed_job *job, int node, double now_s);

/* Seconds, but for the last two. */
struct erg_reconcile_limits {
    double start_deadline_s; /* from release to running */
    double save_least_s;     /* a signalled job is killed after that, or 3 x its longest save */
    double kill_again_s;     /* a killed job that still runs is killed again */
    double silence_s;        /* without a report; after three times that it is killed */
    double retry_s;          /* of a failed job: this x 2^n */
    double avoid_s;          /* a node on which the job failed */
    double attention_s;      /* after three placements without a start, until the next one */
    double cap_w;            /* INFINITY: none */
    double idle_w;           /* of everything under the cap, while nothing of ours runs */
};

/* 30 + 30, 60, 300, 600, 30, 120 and 600 s, no cap. */
void erg_reconcile_limits_init(struct erg_reconcile_limits *limits);

/* Watts of a job of which nothing is known: more than any cap. */
#define ERG_UNKNOWN_W 1e9

/*
 * The plan file of a job whose record is not of the same plan: it is new, or from a journal whose
 * controller died before it could keep what it wrote. `number` 0: there is no plan, or none that
 * can be read. `most_w`: what the job may draw by plans that nobody knows of.
 */
void erg_reconcile_found_plan(struct erg_managed_job *job, long number, int point, double allows_w,
                              double most_w);

/* A fresh report of the job's, of the highest incarnation. Reports are read after the snapshot
 * before it is seen. */
void erg_reconcile_report(struct erg_managed_job *job, const struct erg_report *report,
                          double now_s);

/* What a snapshot says of all jobs; counts failures, and gives up after three. A job that is in the
 * snapshot by another token is not the one. */
void erg_reconcile_see(struct erg_managed_job *jobs, size_t count,
                       const struct erg_live_snapshot *snapshot,
                       const struct erg_reconcile_limits *limits, double now_s);

enum erg_action_verb {
    ERG_ACTION_PACE, /* write the plan file, nothing else */
    ERG_ACTION_STOP,
    ERG_ACTION_HOLD,
    ERG_ACTION_KILL, /* or take back a failed one */
    ERG_ACTION_WAKE,
    ERG_ACTION_PLACE, /* the plan file first */
};

/* "pace", … */
const char *erg_action_verb_name(enum erg_action_verb verb);

struct erg_action {
    enum erg_action_verb verb;
    size_t job;      /* index; of WAKE the job for which */
    int node;        /* of WAKE; else -1 */
    bool failed;     /* of HOLD: the placement did not start in time */
    const char *why; /* a constant text */
};

struct erg_actions {
    struct erg_action *items;
    size_t count, capacity;
};

/*
 * What to do now, in order: paces that lower power, stops, holds, kills, wakes, paces that raise
 * power, and placements. `actions` is cleared first; its items are to be freed by free(). Jobs must
 * have been seen in that snapshot. Changes nothing of the jobs but waits_for.
 */
void erg_reconcile_next(struct erg_managed_job *jobs, size_t count,
                        const struct erg_live_snapshot *snapshot, const struct erg_fleet *fleet,
                        const struct erg_reconcile_limits *limits, double now_s,
                        struct erg_actions *actions);

/* Carries an action out; of PACE nothing, the plan file being the controller's: DONE. */
enum erg_engine_answer erg_reconcile_act(struct erg_live_engine *engine,
                                         const struct erg_managed_job *jobs,
                                         const struct erg_action *action, struct erg_error *err);

/* What became of an action, for `job`. A plan file that could not be written is ERG_ENGINE_BROKEN,
 * and its placement is not carried out. */
void erg_reconcile_answer(struct erg_managed_job *job, const struct erg_action *action,
                          enum erg_engine_answer answer, const struct erg_reconcile_limits *limits,
                          double now_s);

/* Nothing is known of what became of an action: its controller died in the middle. What that left
 * as a plan file has been found (erg_reconcile_found_plan()). */
void erg_reconcile_doubt(struct erg_managed_job *job, const struct erg_action *action,
                         const struct erg_reconcile_limits *limits, double now_s);

#endif
