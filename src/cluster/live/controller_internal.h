/* What the files of the controller share. */
#ifndef ERG_CLUSTER_LIVE_CONTROLLER_INTERNAL_H
#define ERG_CLUSTER_LIVE_CONTROLLER_INTERNAL_H

#include "base/memory.h"
#include "cluster/live/controller.h"
#include "cluster/live/job_folder.h"
#include "cluster/live/journal.h"
#include "cluster/live/lease.h"
#include "cluster/schedule/control.h"

/* What the controller knows of a managed job beyond the reconciler's record, which has the same
 * index. */
struct erg_live_track {
    int job; /* of the scheduler; -1: its request cannot be used, so it is left alone */
    uid_t uid;
    struct erg_live_request request;
    struct erg_arena strings;
    char *user, *account;
    struct erg_report_reader reader;
    long trained;      /* the highest incarnation that was seen to train */
    int failed_starts; /* as the scheduler knows them */
    int starts;        /* that were seen */
    int chosen_point;  /* of the policy, as the journal has it: a power cap may not allow it */
    double decided_s;  /* scheduler's time at which its present placement was; NAN: not by us */
    bool complained;   /* about its folder */
    uint64_t stamp;    /* of its folder, while its request cannot be used; */
    double tried_s;    /* when that was found out, the engine's time; */
    char *left_why;    /* and what is wrong with it, as was said */
    bool dirty;        /* to be written to the journal */
    /* As events.csv has it: */
    bool is_shown;
    enum erg_live_phase shown_phase;
    struct erg_placement shown;
};

/* The last decisions and actions, for people. */
struct erg_live_note {
    double unix_s;
    char text[240], why[80], gain[60], cost[60]; /* "": not said */
};
enum { ERG_NOTES = 1000 };

struct erg_controller {
    struct erg_controller_setup setup;
    struct erg_reconcile_limits limits;
    struct erg_journal *journal;         /* NULL in a dry run */
    struct erg_profile_source *profiles; /* NULL: the live file names none */
    struct erg_speeds *speeds;
    struct erg_scheduler *scheduler;
    const char **node_names;
    char *folder; /* of its own, in the spool; NULL in a dry run */
    struct erg_lease lease;
    double began_s; /* the engine's time at the scheduler's 0 */

    struct erg_managed_job *records;
    struct erg_live_track *tracks;
    size_t count, capacity;
    size_t *by_token; /* a hash table of their indices + 1; 0: none */
    size_t by_token_capacity;

    struct erg_live_snapshot snapshot;
    bool seen;               /* there was a snapshot */
    json_t *recalled_speeds; /* of the journal; of workloads that have not come again */
    bool recalled;           /* the policy got back what the journal has */
    double now_s;            /* the engine's, of this pass */
    double decided_s;        /* the engine's, of the last decision; -INFINITY: none */
    double leased_s;         /* when the lease was renewed */
    double forgot_s;         /* when it last forgot what is over; -INFINITY: not yet */
    bool lease_late;         /* it could not be written the last time */
    double late_s;           /* how long the next wait is while nobody answers; 0: they do */
    enum erg_live_node_state *node_states; /* as the scheduler knows them */
    double *sleep_s; /* by node: when it is switched off; NAN: a job has it, or it is not up */
    long decisions, actions_done, actions_failed; /* since it began */

    struct erg_actions actions;
    struct erg_live_note notes[ERG_NOTES];
    size_t notes_count; /* ever; the ring's next is this modulo ERG_NOTES */
    bool complained;    /* that the status cannot be written */

    struct erg_text events; /* rows that are to be written */
    bool events_begun;      /* their file has its header */
    bool events_late;       /* they could not be written */
};

/* Says a line, and keeps it: the note, to which more may be added. */
struct erg_live_note *erg_controller_note(struct erg_controller *controller, const char *format,
                                          ...) __attribute__((format(printf, 2, 3)));

/* The scheduler's time of an engine's. */
double erg_controller_virtual(const struct erg_controller *controller, double engine_s);

/* The index of a job's record by its token; the records' count: none. */
size_t erg_controller_find(const struct erg_controller *controller, const char *token);

/* Finds all records by their tokens again, after some were dropped or moved. */
void erg_controller_index(struct erg_controller *controller);

void erg_live_track_release(struct erg_live_track *track);

/* observe.c: what a snapshot and the jobs' folders say, to the scheduler. */
int erg_controller_observe(struct erg_controller *controller, struct erg_error *err);

/* decide.c: has the policy called if it is due, and makes its decision the records' intentions. */
int erg_controller_decide(struct erg_controller *controller, struct erg_error *err);

/* Watts of all of a job's GPUs at a point, beyond what they draw idle. */
double erg_controller_watts(const struct erg_scheduler *scheduler, int id, int point);

/* The scheduler's seconds in which a job does what it has left on a shape; NAN: shape -1. */
double erg_controller_left_s(const struct erg_scheduler *scheduler, int id, int shape, int point);

/* idle_nodes.c: after the actions of a pass. */
void erg_controller_switch_off(struct erg_controller *controller);

/* live_events.c: what has happened since the last pass, in SPOOL/.controller/events.csv; and that a
 * node is in another state, at the next writing. */
void erg_controller_write_events(struct erg_controller *controller);
void erg_controller_node_event(struct erg_controller *controller, int node,
                               enum erg_live_node_state before, enum erg_live_node_state is);

/* forget.c: drops, now and then, what nobody needs any more of jobs that are over. Records must
 * have been kept. */
int erg_controller_forget(struct erg_controller *controller, struct erg_error *err);

/* status.c: writes SPOOL/.controller/status.json. */
void erg_controller_publish(struct erg_controller *controller);

/* live_speeds.c */

/* What was measured, as the journal keeps it: a new reference. */
json_t *erg_controller_measured(const struct erg_controller *controller);

/* What was measured of workloads that were one job's, which is not known any more, is dropped. */
void erg_controller_forget_speeds(struct erg_controller *controller);

/* What earlier controllers measured of a job's workload that has just come. */
void erg_controller_recall_speeds(struct erg_controller *controller, int job);

/* Fills a workload's row of the speeds: from the profile in a job's folder, or from the live
 * file's profiles. */
int erg_controller_fill_speeds(void *controller, struct erg_speeds *speeds, int workload,
                               const struct erg_trace_workload *what, struct erg_error *err);

#endif
