/*
 * The engine: the interface of a live controller to the cluster's resource manager.
 *
 * Slurm is one (slurm_engine.c), a fake one in memory with a virtual clock another (fake_engine.c).
 * Code above this interface does not depend on the manager. All calls are synchronous and bounded
 * in time; none executes anything of a user's.
 *
 * Times are seconds of the engine's own clock, which never goes back.
 */
#ifndef ERG_CLUSTER_LIVE_LIVE_ENGINE_H
#define ERG_CLUSTER_LIVE_LIVE_ENGINE_H

#include "base/memory.h"
#include "cluster/live/token.h"
#include "cluster/occupancy.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a job is, as the resource manager has it; the words are Slurm's. */
enum erg_live_state {
    ERG_LIVE_HELD,       /* pending at priority 0, or requeued and held */
    ERG_LIVE_PENDING,    /* may start at any moment */
    ERG_LIVE_RUNNING,    /* or configuring: its GPUs are taken */
    ERG_LIVE_COMPLETING, /* its GPUs are still taken */
    ERG_LIVE_COMPLETED,  /* exit status 0 */
    ERG_LIVE_FAILED,     /* ended otherwise, or its node failed, or it ran out of memory or time */
    ERG_LIVE_CANCELLED,
    ERG_LIVE_UNKNOWN, /* hands off; its GPUs, if any, are taken */
};

/* A job of the partition or on one of the fleet's nodes. Strings belong to the snapshot. */
struct erg_live_job {
    uint32_t id; /* 0: GPUs in use that no job shown has; UNKNOWN, of no user */
    char token[ERG_TOKEN_LENGTH + 1]; /* of its comment; "": a foreign job */
    uid_t uid;
    const char *user, *account, *name;
    enum erg_live_state state;
    const char *state_text, *reason; /* as the resource manager reports them */
    bool held_by_administrator;
    bool single;                    /* neither of an array nor of a heterogeneous job */
    bool in_partition;              /* the controller's */
    int exit_status;                /* of the last incarnation; -1: none known */
    int restarts;                   /* no fencing token: it can go back */
    double submitted_unix_s;        /* NAN: not known */
    double started_unix_s;          /* this incarnation; 0: not known, or it does not run */
    struct erg_placement placement; /* what it has; its request is not used */
};

enum erg_live_node_state {
    ERG_NODE_UP,
    ERG_NODE_DRAINS, /* no new jobs, present ones stay */
    ERG_NODE_DOWN,
    ERG_NODE_OFF,     /* powered down; a job may be placed after wake() */
    ERG_NODE_CHANGES, /* powering up or down */
    ERG_NODE_UNKNOWN, /* the manager was just started: as it was before */
};

/* "up", "draining", … */
const char *erg_live_node_state_name(enum erg_live_node_state state);

struct erg_live_node {
    enum erg_live_node_state state;
    const char *reason;
};

/* The state of the resource manager at one moment. The caller releases it; empty at first. */
struct erg_live_snapshot {
    double at_s;
    struct erg_live_job *jobs;
    size_t jobs_count, jobs_capacity;
    struct erg_live_node *nodes; /* by node of the fleet */
    size_t nodes_count;
    struct erg_arena strings;
};

void erg_live_snapshot_release(struct erg_live_snapshot *snapshot);

/* How a call went. Only ERG_ENGINE_BROKEN has an error of the program's; the others are answers,
 * whose sentence is in `err`, too. */
enum erg_engine_answer {
    ERG_ENGINE_DONE,
    ERG_ENGINE_GONE,    /* no such job any more, or the id is another job's now */
    ERG_ENGINE_REFUSED, /* it is in another state, or the request is not allowed */
    ERG_ENGINE_LATER,   /* the manager did not answer in time: nothing is known of the effect */
    ERG_ENGINE_BROKEN,
};

struct erg_live_engine;

struct erg_live_engine_calls {
    double (*now_s)(struct erg_live_engine *engine);

    /* Fills an empty or a former snapshot. DONE, LATER or BROKEN. */
    enum erg_engine_answer (*snapshot)(struct erg_live_engine *engine,
                                       struct erg_live_snapshot *snapshot, struct erg_error *err);

    /*
     * Every verb names a job by id and token, looks at it first, and does nothing to a job that is
     * not the one or not in a state for it. Each is idempotent: done twice it is done once.
     */

    /* A held job is given these GPUs (equal numbers on each node) and may start at once. */
    enum erg_engine_answer (*place)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    const struct erg_placement *placement, struct erg_error *err);
    /* A pending job may not start any more; a hold of the user's becomes the administrator's. */
    enum erg_engine_answer (*hold)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err);
    /* A running job is asked to save and to leave, to be held then. */
    enum erg_engine_answer (*stop)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err);
    /* A running job is ended without being asked, or one that failed is taken back; held then.
     * Never one that its user cancelled. */
    enum erg_engine_answer (*kill)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err);
    /* A waiting job returns to the manager's own scheduling: any node, this number of GPUs. */
    enum erg_engine_answer (*hand_back)(struct erg_live_engine *engine, uint32_t id,
                                        const char *token, int gpus, struct erg_error *err);
    enum erg_engine_answer (*wake)(struct erg_live_engine *engine, int node, struct erg_error *err);
    enum erg_engine_answer (*sleep)(struct erg_live_engine *engine, int node,
                                    struct erg_error *err);

    void (*close)(struct erg_live_engine *engine);
};

/* The first member of each engine's own struct. */
struct erg_live_engine {
    const struct erg_live_engine_calls *calls;
};

/*
 * Slurm, by its commands (sinfo is not needed: scontrol, scancel). `node_names`: by node of the
 * fleet; `partition`: where managed jobs are. Fails where the commands are missing, the partition
 * or a node is unknown, or a node has other GPUs than the fleet's file.
 */
int erg_slurm_engine_open(struct erg_live_engine **engine, const struct erg_fleet *fleet,
                          const char *const *node_names, const char *partition,
                          struct erg_error *err);

#endif
