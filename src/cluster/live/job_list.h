/*
 * Managed jobs as their users see them: their states in Slurm, in their folders, and in the latest
 * .controller/status.json of the spool.
 */
#ifndef ERG_CLUSTER_LIVE_JOB_LIST_H
#define ERG_CLUSTER_LIVE_JOB_LIST_H

#include "base/memory.h"
#include "cluster/live/job_folder.h"

struct erg_live_line {
    const char *id, *user, *state, *reason, *nodes; /* in Slurm's notation */
    char token[ERG_TOKEN_LENGTH + 1];
    int gpus;          /* 0: it has none */
    double since_s;    /* time since its start; NAN: it does not run */
    bool waits, ended; /* neither: it has GPUs */
    bool is_readable;  /* its folder is readable; the members below come from it */
    struct erg_live_request request;
    struct erg_report report; /* incarnation 0: none */
    double speed;             /* recent iterations per second; NAN: unknown */
    double left_s;            /* time until its end at that speed; NAN: unknown */
    const char *why;          /* why it waits, from the controller; NULL: unknown */
    double begins_unix_s;     /* expected start, from the controller; NAN: unknown */
};

/* Zero at first; release it. */
struct erg_live_list {
    struct erg_live_line *items;
    size_t count, capacity;
    struct erg_arena arena;
};

/* The jobs of a partition whose folders are in the spool. `all`: also those of other users, and
 * ended ones that Slurm still lists. */
int erg_live_list_read(struct erg_live_list *list, const char *partition, const char *spool,
                       bool all, struct erg_error *err);
void erg_live_list_release(struct erg_live_list *list);

/* Parses a line of "squeue -o" in the format of this file; false for a job that is not managed.
 * Exposed for tests. */
bool erg_live_line_parse(struct erg_live_line *line, const char *text, struct erg_arena *arena);

/* Adds the controller's data about the jobs from the document `text`. */
void erg_live_list_status(struct erg_live_list *list, const char *text, size_t length,
                          double now_unix_s);

/* The state for people: "runs", "waits for its place", ... */
const char *erg_live_line_says(const struct erg_live_line *line);

#endif
