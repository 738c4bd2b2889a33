/*
 * The journal of a live controller: what it intended, did and measured, and what its policy
 * remembers. A SQLite file. It may be deleted without losing a job: then everything is derived from
 * the resource manager and the jobs' folders, and the past is forgotten.
 *
 * One controller has it at a time: opening it takes a lock on the file. That of the spool is the
 * lease's concern (lease.h).
 *
 * Times of jobs are the engine's in memory, and UTC in the file, so that a controller that begins
 * anew on another host goes on with them.
 */
#ifndef ERG_CLUSTER_LIVE_JOURNAL_H
#define ERG_CLUSTER_LIVE_JOURNAL_H

#include "cluster/live/reconcile.h"

#include <jansson.h>
#include <stdint.h>

struct erg_journal;

/* `path`: made if it is not there. Fails where another controller has it. */
int erg_journal_open(struct erg_journal **journal, const char *path, struct erg_error *err);
void erg_journal_close(struct erg_journal *journal);

/* What is kept of a job beyond the reconciler's record. */
struct erg_journal_job {
    struct erg_managed_job *record; /* times are the engine's, `now_s` now */
    double attained_gpu_s;
    int starts;
    int chosen_point; /* of the policy, where the record's is what a power cap allows */
};

/* Changes between the two are on the disk together, and cost one wait for it. */
int erg_journal_gather(struct erg_journal *journal, struct erg_error *err);
int erg_journal_flush(struct erg_journal *journal, struct erg_error *err);

/* Writes a job anew. Placements are kept by node names. */
int erg_journal_put_job(struct erg_journal *journal, const struct erg_journal_job *job,
                        const char *const *node_names, double now_s, struct erg_error *err);

/* Fills an initialised record of that token; `*found`: whether there is one. Nodes that the fleet
 * does not have any more drop the placement. */
int erg_journal_get_job(struct erg_journal *journal, struct erg_journal_job *job, bool *found,
                        const char *const *node_names, int nodes, double now_s,
                        struct erg_error *err);

/* What a journal is to keep. */
struct erg_journal_needs {
    double since_unix_s; /* jobs that were written since then, and */
    bool (*is_known)(const void *context, const char *token); /* jobs that are known */
    const void *context;
    long rows; /* the last ones of actions that ended, decisions, restarts and delays, of each */
};

/* Deletes the rest, of which a controller that begins anew needs nothing; a file of which most has
 * become free is made smaller. Not between gather and flush. */
int erg_journal_forget(struct erg_journal *journal, const struct erg_journal_needs *needs,
                       struct erg_error *err);

/* An action before its command, and after it. `id` names it. */
int erg_journal_begin(struct erg_journal *journal, int64_t *id, const char *token,
                      enum erg_action_verb verb, int node, const char *why, struct erg_error *err);
int erg_journal_end(struct erg_journal *journal, int64_t id, enum erg_engine_answer answer,
                    const char *sentence, struct erg_error *err);

/* Actions that began and did not end, those of a controller that died; each is ended as one of
 * which nothing is known. */
struct erg_open_action {
    char token[ERG_TOKEN_LENGTH + 1];
    struct erg_action action; /* without a job's index */
};
int erg_journal_take_open(struct erg_journal *journal, struct erg_open_action **actions,
                          size_t *count, struct erg_error *err);

/* A decision of the policy: which jobs have other GPUs or points from now on, as JSON. */
int erg_journal_decision(struct erg_journal *journal, const char *policy, const json_t *changes,
                         struct erg_error *err);

/* A start or restart that is over, in seconds of the engine; NAN: not known. */
struct erg_journal_restart {
    const char *token;
    bool first;
    int gpus;
    double took_s; /* from the decision, or the signal, to the first report of training */
    double save_s, load_s;
};
int erg_journal_restart(struct erg_journal *journal, const struct erg_journal_restart *restart,
                        struct erg_error *err);

/* What else passed, in seconds: "seen", from a job's submission until it was; "end", from its last
 * iteration until its GPUs were free. A simulator that is told all of these predicts the days. */
int erg_journal_delay(struct erg_journal *journal, const char *token, const char *kind,
                      double seconds, struct erg_error *err);

/* What was measured of workloads, as speeds.c of the controller has it; `*speeds` NULL: nothing. */
int erg_journal_put_speeds(struct erg_journal *journal, const json_t *speeds,
                           struct erg_error *err);
int erg_journal_get_speeds(struct erg_journal *journal, json_t **speeds, struct erg_error *err);

/* When the first controller with this journal began, UTC: the zero of the scheduler's clock, which
 * goes on. */
int erg_journal_epoch(struct erg_journal *journal, double *unix_s, struct erg_error *err);

/* What the policy must not forget; `*policy` NULL: nothing was kept, or another policy's. */
int erg_journal_put_policy(struct erg_journal *journal, const char *name, const json_t *policy,
                           struct erg_error *err);
int erg_journal_get_policy(struct erg_journal *journal, const char *name, json_t **policy,
                           struct erg_error *err);

/* SPOOL/.controller, a folder that nobody else can write to: `*path` is to be freed. Made if it is
 * not there; one that is somebody else's is refused, since a spool is open to all. */
int erg_controller_folder(char **path, const char *spool, struct erg_error *err);

#endif
