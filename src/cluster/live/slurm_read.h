/*
 * Parsers of the output of Slurm's commands: "scontrol -a -d -o show job", "... show node", "...
 * show partition" and "show config", of releases from 20.11 on, in UTC.
 *
 * Users choose some of that text: names, comments, paths and, without slurmdbd, accounts may have
 * blanks and line breaks, and "JobState=RUNNING" or a whole line of another job in them. So fields
 * count only where Slurm prints them, and a job whose text can be read in two ways is doubtful. A
 * user who breaks lines can add lines for ids of other jobs: an id that has two texts must be asked
 * for alone (then all of the text is one job's).
 */
#ifndef ERG_CLUSTER_LIVE_SLURM_READ_H
#define ERG_CLUSTER_LIVE_SLURM_READ_H

#include "cluster/live/live_engine.h"

/* GPUs as Slurm writes them: "gpu:a40:2(IDX:0-1)", "gpu:4", "gres/gpu:4", "gres:gpu:4". */
struct erg_slurm_gres {
    int count;     /* of all entries that are GPUs */
    uint64_t gpus; /* bits by IDX */
    bool indexed;  /* every GPU has its bit */
    char type[64]; /* of the first; "": not said */
    bool mixed;    /* there are several types */
};

void erg_slurm_read_gres(struct erg_slurm_gres *gres, const char *text, size_t length);

/* The fleet's nodes, found by name. Borrows its arguments; to be released. */
struct erg_slurm_nodes {
    const struct erg_fleet *fleet;
    const char *const *names;
    int *sorted;
};

void erg_slurm_nodes_make(struct erg_slurm_nodes *nodes, const struct erg_fleet *fleet,
                          const char *const *names);
void erg_slurm_nodes_release(struct erg_slurm_nodes *nodes);
int erg_slurm_nodes_find(const struct erg_slurm_nodes *nodes, const char *name); /* or -1 */

/* A job's text. The placement is the reader's to release; strings lie in the arena. */
struct erg_slurm_job {
    struct erg_live_job job;
    bool doubtful;           /* then only the id holds, and the job is UNKNOWN without GPUs */
    int cpus_per_task;       /* at least 1 */
    const char *asked_nodes; /* as Slurm writes a list; "": none */
    int asked_gpus;          /* on each node; -1: not said */
    bool which_unknown;      /* GPUs of each node, whose bits are invalid: the job completes */
    bool is_started;         /* its batch script: RUNNING and no longer CONFIGURING */
};

/*
 * The next job of a list of them: moves *text behind it. False at the end. A record begins at any
 * line with "JobId=".
 */
bool erg_slurm_next_job(const char **text, const char **record, size_t *length);
/* All of `record` is about one job. False where it does not begin with a job's id. */
bool erg_slurm_read_job(struct erg_slurm_job *job, const struct erg_slurm_nodes *nodes,
                        const char *partition, const char *record, size_t length,
                        struct erg_arena *arena);

/* A node's line. */
struct erg_slurm_node {
    int node;               /* of the fleet; -1: another one */
    const char *name;       /* these three in the arena */
    const char *state_text; /* "IDLE+DRAIN" */
    struct erg_live_node live;
    struct erg_slurm_gres has, used;
    bool is_used_known;
};

bool erg_slurm_next_node(const char **text, struct erg_slurm_node *node,
                         const struct erg_slurm_nodes *nodes, struct erg_arena *arena);
enum erg_live_node_state erg_slurm_node_state(const char *text);

/* The value of the first "key=value" or "key   = value" that begins a word, up to a blank or, in a
 * configuration, the line's end; NULL where there is none. */
const char *erg_slurm_value(const char *text, const char *key, struct erg_arena *arena);

#endif
