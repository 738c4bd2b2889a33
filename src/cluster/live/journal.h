/*
 * The journal of a live controller: its intents, actions and measurements, and the data of its
 * policy, in a SQLite file. Deleting it loses no job: the controller then derives everything from
 * the resource manager and the jobs' folders, and only the history is lost.
 *
 * One controller uses it at a time: opening it locks the file. The lock on a spool is its lease
 * (lease.h).
 *
 * Times of jobs are on the engine's clock in memory, and UTC in the file, so that a controller on
 * another host can continue.
 */
#ifndef ERG_CLUSTER_LIVE_JOURNAL_H
#define ERG_CLUSTER_LIVE_JOURNAL_H

#include "cluster/live/reconcile.h"

#include <jansson.h>
#include <stdint.h>

struct erg_journal;

/* Opens or makes the file `path`. Fails if another controller uses it. */
int erg_journal_open(struct erg_journal **journal, const char *path, struct erg_error *err);
void erg_journal_close(struct erg_journal *journal);

/* Data about a job in addition to the reconciler's record. */
struct erg_journal_job {
    struct erg_managed_job *record; /* its times are on the engine's clock, which shows `now_s` */
    double attained_gpu_s;
    int starts;
    int chosen_point; /* the policy's choice; the record has the one that a power cap allows */
};

/* Changes between the two calls reach the disk together, with one sync. */
int erg_journal_gather(struct erg_journal *journal, struct erg_error *err);
int erg_journal_flush(struct erg_journal *journal, struct erg_error *err);

/* Replaces a job's row. Placements are stored by node names. */
int erg_journal_put_job(struct erg_journal *journal, const struct erg_journal_job *job,
                        const char *const *node_names, double now_s, struct erg_error *err);

/* Fills an initialised record with that token; `*found` is false if there is none. A node that is
 * no longer in the fleet drops the placement. */
int erg_journal_get_job(struct erg_journal *journal, struct erg_journal_job *job, bool *found,
                        const char *const *node_names, int nodes, double now_s,
                        struct erg_error *err);

/* The rows to keep. */
struct erg_journal_needs {
    double since_unix_s;                                      /* jobs written since then, and */
    bool (*is_known)(const void *context, const char *token); /* jobs for which this returns true */
    const void *context;
    long rows; /* per table: the last ended actions, decisions, restarts and delays */
};

/* Deletes all other rows; a new controller needs none of them. Compacts a file that is mostly free.
 * Not between gather and flush. */
int erg_journal_forget(struct erg_journal *journal, const struct erg_journal_needs *needs,
                       struct erg_error *err);

/* Records an action before its command, and its answer after it. `id` identifies it. */
int erg_journal_begin(struct erg_journal *journal, int64_t *id, const char *token,
                      enum erg_action_verb verb, int node, const char *why, struct erg_error *err);
int erg_journal_end(struct erg_journal *journal, int64_t id, enum erg_engine_answer answer,
                    const char *sentence, struct erg_error *err);

/* Actions that a dead controller started and did not finish; each is finished with an unknown
 * effect. */
struct erg_open_action {
    char token[ERG_TOKEN_LENGTH + 1];
    struct erg_action action; /* without the job's index */
};
int erg_journal_take_open(struct erg_journal *journal, struct erg_open_action **actions,
                          size_t *count, struct erg_error *err);

/* A decision of the policy: the jobs with changed GPUs or operating points, as JSON. */
int erg_journal_decision(struct erg_journal *journal, const char *policy, const json_t *changes,
                         struct erg_error *err);

/* A completed start or restart, in seconds of the engine; NAN: unknown. */
struct erg_journal_restart {
    const char *token;
    bool first;
    int gpus;
    double took_s; /* from the decision, or the signal, to the first report of training */
    double save_s, load_s;
};
int erg_journal_restart(struct erg_journal *journal, const struct erg_journal_restart *restart,
                        struct erg_error *err);

/* Other delays in seconds: "seen", from a job's submission to its detection; "end", from its last
 * iteration until its GPUs are free. With these, a simulator can predict the same days. */
int erg_journal_delay(struct erg_journal *journal, const char *token, const char *kind,
                      double seconds, struct erg_error *err);

/* Measured speeds in the form of the controller's live_speeds.c; `*speeds` is NULL if there are
 * none. */
int erg_journal_put_speeds(struct erg_journal *journal, const json_t *speeds,
                           struct erg_error *err);
int erg_journal_get_speeds(struct erg_journal *journal, json_t **speeds, struct erg_error *err);

/* When the first controller with this journal started, UTC: time 0 of the scheduler's clock, which
 * never restarts. */
int erg_journal_epoch(struct erg_journal *journal, double *unix_s, struct erg_error *err);

/* The data of the policy; `*policy` is NULL if there is none, or if it is another policy's. */
int erg_journal_put_policy(struct erg_journal *journal, const char *name, const json_t *policy,
                           struct erg_error *err);
int erg_journal_get_policy(struct erg_journal *journal, const char *name, json_t **policy,
                           struct erg_error *err);

/* Makes SPOOL/.controller, a folder that only this user can write to; free `*path`. A folder of
 * another user is refused, since every user can write to a spool. */
int erg_controller_folder(char **path, const char *spool, struct erg_error *err);

#endif
