/*
 * Parsers of the output of Slurm's commands: "scontrol -a -d -o show job", "... show node", "...
 * show partition" and "show config", of releases from 20.11 on, in UTC.
 *
 * Users choose some of that text: names, comments, paths and, without slurmdbd, accounts may
 * contain blanks and line breaks, and so "JobState=RUNNING" or a whole line of another job. So
 * fields count only where Slurm prints them, and a job with ambiguous text is doubtful. A user who
 * adds line breaks can forge lines for ids of other jobs: query an id with two texts alone (then
 * the whole text belongs to one job).
 */
#ifndef ERG_CLUSTER_LIVE_SLURM_READ_H
#define ERG_CLUSTER_LIVE_SLURM_READ_H

#include "cluster/live/live_engine.h"

/* GPUs in Slurm's notation: "gpu:a40:2(IDX:0-1)", "gpu:4", "gres/gpu:4", "gres:gpu:4". */
struct erg_slurm_gres {
    int count;     /* sum over all entries of GPUs */
    uint64_t gpus; /* bits from IDX */
    bool indexed;  /* every GPU has its bit */
    char type[64]; /* of the first entry; "": none */
    bool mixed;    /* there are several types */
};

void erg_slurm_read_gres(struct erg_slurm_gres *gres, const char *text, size_t length);

/* Finds the fleet's nodes by name. Borrows its arguments; release it. */
struct erg_slurm_nodes {
    const struct erg_fleet *fleet;
    const char *const *names;
    int *sorted;
};

void erg_slurm_nodes_make(struct erg_slurm_nodes *nodes, const struct erg_fleet *fleet,
                          const char *const *names);
void erg_slurm_nodes_release(struct erg_slurm_nodes *nodes);
int erg_slurm_nodes_find(const struct erg_slurm_nodes *nodes, const char *name); /* -1: not found */

/* A job's text. The caller releases the placement; the arena owns strings. */
struct erg_slurm_job {
    struct erg_live_job job;
    bool doubtful;           /* ambiguous: only the id is valid, and the job is UNKNOWN without
                              * GPUs */
    int cpus_per_task;       /* at least 1 */
    const char *asked_nodes; /* in Slurm's notation; "": none */
    int asked_gpus;          /* per node; -1: none */
    bool which_unknown;      /* the job completes: numbers of GPUs are known, their bits are
                              * invalid */
    bool is_started;         /* its batch script runs: RUNNING and no longer CONFIGURING */
};

/*
 * Reads the next job of a list and moves *text behind it. False at the end. A record starts at any
 * line with "JobId=".
 */
bool erg_slurm_next_job(const char **text, const char **record, size_t *length);
/* Treats all of `record` as one job. False if it does not begin with a job's id. */
bool erg_slurm_read_job(struct erg_slurm_job *job, const struct erg_slurm_nodes *nodes,
                        const char *partition, const char *record, size_t length,
                        struct erg_arena *arena);

/* The state of a job by Slurm's word. A held job is PENDING, too: its priority tells. */
enum erg_live_state erg_slurm_job_state(const char *text);

/* A node's line. */
struct erg_slurm_node {
    int node;               /* of the fleet; -1: another node */
    const char *name;       /* the arena owns these four */
    const char *state_text; /* "IDLE+DRAIN" */
    const char *partitions; /* "ergon,other" */
    struct erg_live_node live;
    struct erg_slurm_gres has, used;
    bool is_used_known;
};

bool erg_slurm_next_node(const char **text, struct erg_slurm_node *node,
                         const struct erg_slurm_nodes *nodes, struct erg_arena *arena);
enum erg_live_node_state erg_slurm_node_state(const char *text);

/* Fails, with the reason, where slurm.conf keeps a node on: SuspendProgram is missing, or one of
 * SuspendExcNodes, SuspendExcParts and SuspendExcStates contains it. `config`: "show config". */
int erg_slurm_may_sleep(const struct erg_slurm_node *node, const char *config,
                        struct erg_error *err);

/* The value of the first "key=value" or "key   = value" at the start of a word, up to a blank or,
 * in a configuration, to the end of the line; NULL if there is none. */
const char *erg_slurm_value(const char *text, const char *key, struct erg_arena *arena);

#endif
