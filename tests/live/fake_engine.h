/*
 * A fake resource manager in memory, with a virtual clock: an erg_engine whose rules are those of
 * Slurm, jobs with trainers that obey the contract of live jobs or break it, users, foreign jobs,
 * nodes that fail, and calls that go wrong.
 *
 * Nothing moves but in fake_engine_advance(). What happens is a function of the settings and of the
 * calls, for one seed always the same. All durations are settings, so that they can equal what a
 * fleet's file says that a restart costs: from a stop to the next training that is save_s +
 * complete_s + start_s + boot_s + load_s.
 *
 * The fake judges the controller as well: fake_engine_wrong() is the first call that the last
 * snapshot and the reports that were read did not allow.
 */
#ifndef ERGON_TESTS_FAKE_ENGINE_H
#define ERGON_TESTS_FAKE_ENGINE_H

#include "base/random.h"
#include "cluster/live/job_folder.h"
#include "cluster/live/live_engine.h"

struct fake_engine;

struct fake_settings {
    double start_least_s, start_most_s; /* from released to running, uniform */
    double complete_s;                  /* from the trainer's exit until its GPUs are free */
    double requeue_s;                   /* a job that was requeued is not eligible before */
    double kill_wait_s;                 /* from TERM to KILL */
    double wake_s, sleep_s;             /* of a node */
    double forget_s;                    /* a job that is over is forgotten then */
    double state_s;                     /* a crash forgets at most that; INFINITY: never crashes */
    double obey_s;                      /* a changed plan is obeyed at the latest then, uniform,
                                         * and reported */
    double report_s;                    /* between reports while nothing changes */
    bool other_gpus;                    /* the highest free GPUs of a node, not those asked for */
    uint64_t seed;
    /* Seconds of an iteration; NULL: the trainer's iteration_s over its GPUs. */
    double (*iteration_s)(void *context, int job, const struct erg_placement *has, int point);
    /* After each event, e.g. to check what must hold at any moment. */
    void (*after)(void *context, struct fake_engine *fake);
    void *context;
};

/* As of Slurm with its defaults, but for the state: never crashes. */
void fake_settings_init(struct fake_settings *settings);

/* Shares of calls that go wrong. */
struct fake_faults {
    double refused, broken;
    double later;         /* no answer, no effect */
    double later_done;    /* no answer, but the effect */
    double later_delayed; /* no answer, the effect after up to 20 s, or before the next call */
    double no_snapshot;
};

/* What a job runs. All-zero but for iterations and iteration_s: perfect, and free to save. */
struct fake_trainer {
    double iterations;
    double iteration_s; /* on one GPU */
    double boot_s;      /* until it can be signalled, and reports */
    double load_s, save_s;
    double checkpoint_s; /* of training; 0: saves only to leave */
    bool ignores_usr1, ignores_term, silent;
    bool unfenced;    /* commits whatever has begun since */
    double dies_at;   /* iteration, each time; 0: never */
    int bad_starts;   /* so many of its next starts fail while they load */
    bool dies_saving; /* the next time that it is to leave */
};

enum fake_stage {
    FAKE_NO_TRAINER,
    FAKE_BOOTS,
    FAKE_LOADS,
    FAKE_TRAINS,
    FAKE_SAVES,
};

enum fake_leaving { FAKE_AS_IT_EXITS, FAKE_TO_HOLD, FAKE_TO_REQUEUE, FAKE_TO_CANCEL };

struct fake_job {
    uint32_t id;
    char token[ERG_TOKEN_LENGTH + 1];
    bool lost; /* forgotten */
    enum erg_live_state state;
    bool held_by_administrator;
    struct erg_placement asked, has; /* has: while RUNNING or COMPLETING */
    int asked_gpus;                  /* of any one node, where asked has none */
    double start_at_s;               /* of a pending job: its next try */
    double over_s;                   /* COMPLETING until then, or since when it is over */
    double unknown_until_s;          /* its state is shown as unknown till then */
    int restarts, exit_status;
    enum fake_leaving leaves;
    double kill_s; /* KILL after TERM; INFINITY: none */

    struct fake_trainer trainer;
    enum fake_stage stage;
    double stage_s, until_s; /* of the stage */
    double base, base_s;     /* iterations done at a moment */
    double iteration_s;      /* since then */
    double saves_at_s;       /* the next checkpoint while it trains */
    double started_s;
    int runs;          /* starts so far; the run that is or was the last */
    long incarnation;  /* highest that has begun */
    double checkpoint; /* iterations in the newest */
    double best;       /* most iterations ever reported or saved */
    int exit;

    long plan;      /* number of the plan file; 0: none */
    int plan_point; /* -1: none */
    double plan_w;
    long follows; /* number of the plan in force */
    int point;
    double watts;
    double obeys_at_s;

    struct erg_report report; /* the last that was written */
    double written_s;
    int report_run, read_run; /* whose it is, and whose was read last */
    bool unread;

    /* For judging. */
    int completed;    /* times */
    bool cancelled;   /* by its user, and Slurm has not forgotten that */
    int excuses;      /* faults since the last start */
    double may_lose;  /* iterations, by these: a checkpoint's interval each */
    double fastest_s; /* iteration_s of this run at its best */
    double stopped_s; /* last signal, of: */
    int stopped_run;
    bool seen;     /* in the last snapshot, as: */
    bool confused; /* a crash undid a run that no snapshot showed: nobody can tell it from the next
                    */
    enum erg_live_state seen_state;
    int seen_run, starts_without_checkpoint;
};

struct fake_node {
    enum erg_live_node_state state;
    double until_s; /* of CHANGES: then it is */
    enum erg_live_node_state then;
    uint64_t taken;
    int seen_free; /* in the last snapshot, less what was placed there since; -1: takes no jobs */
};

/* A trainer on a node that was cut off: it computes, and commits, until it finds out. */
struct fake_ghost {
    int job;
    long incarnation;
    double iteration, commits_s;
};

struct fake_late_call;
struct fake_state;

struct fake_engine {
    struct erg_live_engine engine;
    struct fake_settings settings;
    struct fake_faults faults;
    const struct erg_fleet *fleet; /* borrowed */
    double now_s;
    struct erg_rng rng;
    struct fake_job *jobs; /* by index, in the order of submission */
    size_t jobs_count, jobs_capacity;
    struct fake_node *nodes;
    uint32_t next_id;
    double unsure_until_s; /* nodes are unknown till then */
    double down_until_s;   /* answers nothing till then */
    struct fake_ghosts {
        struct fake_ghost *items;
        size_t count, capacity;
    } ghosts;
    struct fake_late_calls {
        struct fake_late_call *items;
        size_t count, capacity;
    } late;
    struct fake_state *saved;
    bool lenient;       /* does not judge */
    long calls;         /* verbs */
    long early_signals; /* that met a trainer before it could take them, but of confused jobs */
    long fenced;        /* commits that trainers refused to make */
    char wrong[200];    /* what the controller did wrong first; "": nothing */
    char broken[200];   /* which invariant of the cluster broke first; "": none */
};

struct fake_engine *fake_engine_new(const struct erg_fleet *fleet,
                                    const struct fake_settings *settings);
/* close() of the engine does nothing: tests look at what is left. */
void fake_engine_free(struct fake_engine *fake);

void fake_engine_advance(struct fake_engine *fake, double to_s);
/* When something happens next; INFINITY: never, if nothing is called. */
double fake_engine_next(const struct fake_engine *fake);

/* A managed job, held by its user; token NULL: a foreign one, which runs as soon as it can on so
 * many GPUs of one node, -1: any. Returns its index. */
int fake_engine_submit(struct fake_engine *fake, const char *token,
                       const struct fake_trainer *trainer, int node, int gpus);
struct fake_job *fake_engine_job(struct fake_engine *fake, const char *token);

/* The reader of reports: the last one, and whether it is fresh. False: there is none. */
bool fake_engine_report(struct fake_engine *fake, const char *token, struct erg_report *report,
                        bool *fresh);
/* The plan file. */
void fake_engine_plan(struct fake_engine *fake, const char *token, long number, int point,
                      double watts);
/* Beyond idle power, of all managed jobs. */
double fake_engine_watts(const struct fake_engine *fake);
double fake_engine_iteration(const struct fake_engine *fake, const struct fake_job *job);

/* What users do to a job. Nothing where Slurm would refuse. */
void fake_user_cancel(struct fake_engine *fake, int job);
void fake_user_release(struct fake_engine *fake, int job);
void fake_user_hold(struct fake_engine *fake, int job);
void fake_user_move(struct fake_engine *fake, int job, int node); /* ReqNodeList=, one GPU */
void fake_user_requeue(struct fake_engine *fake, int job);

/* What else happens. A requeue by Slurm is the same as a preemption. */
void fake_preempt(struct fake_engine *fake, int job);
void fake_crash_trainer(struct fake_engine *fake, int job);
void fake_node_fail(struct fake_engine *fake, int node, bool cut); /* cut: its jobs go on */
void fake_node_drain(struct fake_engine *fake, int node);
void fake_node_return(struct fake_engine *fake, int node); /* failed or drained */
/* A job is in a state that nobody has heard of. */
void fake_unknown(struct fake_engine *fake, int job, double for_s);
/* slurmctld stops for a while, cleanly or not; for 5 s more it does not know its nodes. */
void fake_manager_stop(struct fake_engine *fake, double for_s, bool unclean);

#endif
