/*
 * Managed jobs as their users see them: their states in Slurm, in their folders, and in the
 * controller's latest .controller/status.json in the spool.
 */
#ifndef ERG_CLUSTER_LIVE_JOB_LIST_H
#define ERG_CLUSTER_LIVE_JOB_LIST_H

#include "base/memory.h"
#include "cluster/live/job_folder.h"

struct erg_live_line {
    const char *id, *user, *state, *reason, *nodes; /* in Slurm's notation */
    char token[ERG_TOKEN_LENGTH + 1];
    int gpus;          /* that it has; 0: none */
    double since_s;    /* for how long it has run; NAN: it does not */
    bool waits, ended; /* else it has GPUs */
    bool is_readable;  /* its folder, whose words these are: */
    struct erg_live_request request;
    struct erg_report report; /* incarnation 0: there is none */
    double speed;             /* iterations per second of late; NAN: not known */
    double left_s;            /* until its end as it runs now; NAN: not known */
    const char *why;          /* it waits, in the controller's words; NULL: not known */
    double begins_unix_s;     /* as the controller expects it; NAN: not known */
};

/* To be released. Empty at first. */
struct erg_live_list {
    struct erg_live_line *items;
    size_t count, capacity;
    struct erg_arena arena;
};

/* Those of a partition whose folders are in the spool; `all`: also other users', and ended ones
 * that Slurm still lists. */
int erg_live_list_read(struct erg_live_list *list, const char *partition, const char *spool,
                       bool all, struct erg_error *err);
void erg_live_list_release(struct erg_live_list *list);

/* A line of "squeue -o" in the format of this file; false where it is not a managed job's. Exposed
 * for tests. */
bool erg_live_line_parse(struct erg_live_line *line, const char *text, struct erg_arena *arena);

/* Fills in the controller's state of jobs; `text` is the document. */
void erg_live_list_status(struct erg_live_list *list, const char *text, size_t length,
                          double now_unix_s);

/* The state for people: "runs", "waits for its place", ... … */
const char *erg_live_line_says(const struct erg_live_line *line);

#endif
