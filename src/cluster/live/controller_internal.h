/* Shared by the files of the controller. */
#ifndef ERG_CLUSTER_LIVE_CONTROLLER_INTERNAL_H
#define ERG_CLUSTER_LIVE_CONTROLLER_INTERNAL_H

#include "base/memory.h"
#include "cluster/live/controller.h"
#include "cluster/live/job_folder.h"
#include "cluster/live/journal.h"
#include "cluster/live/lease.h"
#include "cluster/schedule/control.h"

/* The controller's data about a managed job; the reconciler's record with the same index has the
 * rest. */
struct erg_live_track {
    int job; /* the scheduler's number; -1: its request is invalid, so the job is left alone */
    uid_t uid;
    struct erg_live_request request;
    struct erg_arena strings;
    char *user, *account;
    struct erg_report_reader reader;
    long trained;      /* the highest incarnation that reported training */
    int failed_starts; /* as reported to the scheduler */
    int starts;        /* starts observed so far */
    int chosen_point;  /* the policy's choice, as in the journal; a power cap may not allow it */
    double decided_s;  /* time of its present placement on the scheduler's clock; NAN: placed by an
                        * earlier controller */
    bool complained;   /* a warning about its folder was printed */
    uint64_t stamp;    /* of its folder, while its request is invalid; */
    double tried_s;    /* when that was found, on the engine's clock; */
    char *left_why;    /* and the error message */
    bool dirty;        /* the journal needs an update */
    /* As in events.csv: */
    bool is_shown;
    enum erg_live_phase shown_phase;
    struct erg_placement shown;
};

/* The last decisions and actions, for people. */
struct erg_live_note {
    double unix_s;
    char text[240], why[80], gain[60], cost[60]; /* "": empty */
};
enum { ERG_NOTES = 1000 };

struct erg_controller {
    struct erg_controller_setup setup;
    struct erg_reconcile_limits limits;
    struct erg_journal *journal;         /* NULL in a dry run */
    struct erg_profile_source *profiles; /* NULL: the live file has no profiles */
    struct erg_speeds *speeds;
    struct erg_scheduler *scheduler;
    const char **node_names;
    char *folder; /* its own folder in the spool; NULL in a dry run */
    struct erg_lease lease;
    double began_s; /* time 0 of the scheduler, on the engine's clock */

    struct erg_managed_job *records;
    struct erg_live_track *tracks;
    size_t count, capacity;
    size_t *by_token; /* hash table of their indices + 1; 0: empty */
    size_t by_token_capacity;

    struct erg_live_snapshot snapshot;
    bool seen;               /* there was a snapshot */
    json_t *recalled_speeds; /* from the journal; of workloads that have not returned yet */
    bool recalled;           /* the policy has its data from the journal */
    double now_s;            /* time of this cycle, on the engine's clock */
    double decided_s;        /* time of the last decision, on the engine's clock; -INFINITY: none */
    double leased_s;         /* when the lease was renewed */
    double forgot_s;         /* when ended jobs were last dropped; -INFINITY: never */
    bool lease_late;         /* the last write of the lease failed */
    double late_s;           /* the next wait while there is no answer; 0: it answers */
    enum erg_live_node_state *node_states; /* as reported to the scheduler */
    double *sleep_s; /* by node: when it is switched off; NAN: a job has it, or it is not up */
    long decisions, actions_done, actions_failed; /* since the start */

    struct erg_actions actions;
    struct erg_live_note notes[ERG_NOTES];
    size_t notes_count; /* since the start; the ring's next index is this modulo ERG_NOTES */
    bool complained;    /* a warning about a failed write of the status was printed */

    struct erg_text events; /* rows to be written */
    bool events_begun;      /* their file has a header */
    bool events_late;       /* their last write failed */
};

/* Reports a line and stores it as a note, to which the caller may add details. */
struct erg_live_note *erg_controller_note(struct erg_controller *controller, const char *format,
                                          ...) __attribute__((format(printf, 2, 3)));

/* The index of a job's record by its token; the number of records if there is none. */
size_t erg_controller_find(const struct erg_controller *controller, const char *token);

/* Rebuilds the table of tokens after records were dropped or moved. */
void erg_controller_index(struct erg_controller *controller);

void erg_live_track_release(struct erg_live_track *track);

/* observe.c: reports the snapshot and the jobs' folders to the scheduler. */
int erg_controller_observe(struct erg_controller *controller, struct erg_error *err);

/* decide.c: calls the policy if it is due, and turns its decision into the records' intents. */
int erg_controller_decide(struct erg_controller *controller, struct erg_error *err);

/* Power of all of a job's GPUs at an operating point, beyond their idle power. */
double erg_controller_watts(const struct erg_scheduler *scheduler, int id, int point);

/* Time in which a job finishes its remaining work on a shape, on the scheduler's clock; NAN: shape
 * -1. */
double erg_controller_left_s(const struct erg_scheduler *scheduler, int id, int shape, int point);

/* controller.c: before each action. A cycle may wait long for the resource manager, and the lease
 * must stay held all the time. Returns -1 if it is lost. */
int erg_controller_renew_lease(struct erg_controller *controller, struct erg_error *err);

/* idle_nodes.c: after the actions of a cycle. Returns -1 if the lease is lost. */
int erg_controller_switch_off(struct erg_controller *controller, struct erg_error *err);

/* live_events.c: appends the events since the last cycle to SPOOL/.controller/events.csv; the
 * second function adds a node's change of state to the next write. */
void erg_controller_write_events(struct erg_controller *controller);
void erg_controller_node_event(struct erg_controller *controller, int node,
                               enum erg_live_node_state before, enum erg_live_node_state is);

/* forget.c: drops data about ended jobs from time to time. Call it after the records are stored. */
int erg_controller_forget(struct erg_controller *controller, struct erg_error *err);

/* status.c: writes SPOOL/.controller/status.json. */
void erg_controller_publish(struct erg_controller *controller);

/* live_speeds.c */

/* Measured speeds in the journal's form: a new reference. */
json_t *erg_controller_measured(const struct erg_controller *controller);

/* Drops measurements of workloads that belonged to one job which is forgotten. */
void erg_controller_forget_speeds(struct erg_controller *controller);

/* Restores what earlier controllers measured of a workload that has just arrived. */
void erg_controller_recall_speeds(struct erg_controller *controller, int job);

/* Fills a workload's row of the speeds from the profile in a job's folder, or from the live file's
 * profiles. */
int erg_controller_fill_speeds(void *controller, struct erg_speeds *speeds, int workload,
                               const struct erg_trace_workload *what, struct erg_error *err);

#endif
