/*
 * The engine: the interface of a live controller to the cluster's resource manager.
 *
 * Implementations: Slurm (slurm_engine.c), and a fake in memory with a virtual clock
 * (fake_engine.c). Code above this interface does not depend on the manager. All calls are
 * synchronous, have a time limit, and execute nothing that a user supplies.
 *
 * Times are seconds on the engine's own clock, which never goes back.
 */
#ifndef ERG_CLUSTER_LIVE_LIVE_ENGINE_H
#define ERG_CLUSTER_LIVE_LIVE_ENGINE_H

#include "base/memory.h"
#include "cluster/live/token.h"
#include "cluster/occupancy.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The state of a job in the resource manager; the words are Slurm's. */
enum erg_live_state {
    ERG_LIVE_HELD,       /* pending at priority 0, or requeued and held */
    ERG_LIVE_PENDING,    /* may start at any time */
    ERG_LIVE_RUNNING,    /* or configuring: its GPUs are taken */
    ERG_LIVE_COMPLETING, /* its GPUs are still taken */
    ERG_LIVE_COMPLETED,  /* exit status 0 */
    ERG_LIVE_FAILED,     /* other exit status, node failure, out of memory, or out of time */
    ERG_LIVE_CANCELLED,
    ERG_LIVE_UNKNOWN, /* must not be touched; its GPUs, if any, are taken */
};

/* Returns true if a job in this state has ended. */
bool erg_live_state_is_over(enum erg_live_state state);

/* A job in the partition or on one of the fleet's nodes. The snapshot owns strings. */
struct erg_live_job {
    uint32_t id; /* 0: GPUs in use that belong to no visible job; UNKNOWN, without a user */
    char token[ERG_TOKEN_LENGTH + 1]; /* from its comment; "": a foreign job */
    uid_t uid;
    const char *user, *account, *name;
    enum erg_live_state state;
    const char *state_text, *reason; /* as the resource manager reports them */
    bool held_by_administrator;
    bool single;                    /* not part of an array or a heterogeneous job */
    bool in_partition;              /* the controller's */
    int exit_status;                /* of the last incarnation; -1: unknown */
    int restarts;                   /* unusable as a fencing token: it can decrease */
    double submitted_unix_s;        /* NAN: unknown */
    double started_unix_s;          /* of this incarnation; 0: unknown, or not running */
    struct erg_placement placement; /* the GPUs that it has, not those that it requests */
};

enum erg_live_node_state {
    ERG_NODE_UP,
    ERG_NODE_DRAINS, /* no new jobs; running ones stay */
    ERG_NODE_DOWN,
    ERG_NODE_OFF,     /* powered down; a job may be placed after wake() */
    ERG_NODE_CHANGES, /* powering up or down */
    ERG_NODE_UNKNOWN, /* the manager has just started: assume the previous state */
};

/* "up", "draining", … */
const char *erg_live_node_state_name(enum erg_live_node_state state);

struct erg_live_node {
    enum erg_live_node_state state;
    const char *reason;
};

/* The state of the resource manager at one moment. Zero at first; release it. */
struct erg_live_snapshot {
    double at_s;
    struct erg_live_job *jobs;
    size_t jobs_count, jobs_capacity;
    struct erg_live_node *nodes; /* by node of the fleet */
    size_t nodes_count;
    struct erg_arena strings;
};

void erg_live_snapshot_release(struct erg_live_snapshot *snapshot);

/* The result of a call. All but DONE have a sentence in `err`; only ERG_ENGINE_BROKEN is an error
 * of the program. */
enum erg_engine_answer {
    ERG_ENGINE_DONE,
    ERG_ENGINE_GONE,    /* the job is gone, or the id belongs to another job */
    ERG_ENGINE_REFUSED, /* it is in another state, or the request is not allowed */
    ERG_ENGINE_LATER,   /* no answer in time: the effect is unknown */
    ERG_ENGINE_BROKEN,
};

struct erg_live_engine;

struct erg_live_engine_calls {
    double (*now_s)(struct erg_live_engine *engine);

    /* Fills an empty or used snapshot. Returns DONE, LATER or BROKEN. */
    enum erg_engine_answer (*snapshot)(struct erg_live_engine *engine,
                                       struct erg_live_snapshot *snapshot, struct erg_error *err);

    /*
     * Every verb identifies a job by id and token and checks it first. It does nothing to another
     * job, or to one in an unsuitable state. Verbs are idempotent.
     */

    /* Assigns these GPUs (equal numbers on each node) to a held job, and lets it start. */
    enum erg_engine_answer (*place)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                    const struct erg_placement *placement, struct erg_error *err);
    /* Keeps a pending job from starting; a hold by its user becomes the administrator's. */
    enum erg_engine_answer (*hold)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err);
    /* Asks a running job to save and exit; it is then held. */
    enum erg_engine_answer (*stop)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err);
    /* Ends a running job without asking, or requeues a failed one; it is then held. Never applies
     * to a job that its user cancelled. */
    enum erg_engine_answer (*kill)(struct erg_live_engine *engine, uint32_t id, const char *token,
                                   struct erg_error *err);
    /* Returns a waiting job to the manager's own scheduling: any node, this number of GPUs. */
    enum erg_engine_answer (*hand_back)(struct erg_live_engine *engine, uint32_t id,
                                        const char *token, int gpus, struct erg_error *err);
    enum erg_engine_answer (*wake)(struct erg_live_engine *engine, int node, struct erg_error *err);
    enum erg_engine_answer (*sleep)(struct erg_live_engine *engine, int node,
                                    struct erg_error *err);

    void (*close)(struct erg_live_engine *engine);
};

/* The first member of each engine's struct. */
struct erg_live_engine {
    const struct erg_live_engine_calls *calls;
};

/*
 * Slurm, by its commands scontrol and scancel. `node_names`: by node of the fleet; `partition`:
 * that of managed jobs. Fails if a command is missing, if the partition or a node is unknown, or if
 * a node's GPUs differ from the fleet's file.
 */
int erg_slurm_engine_open(struct erg_live_engine **engine, const struct erg_fleet *fleet,
                          const char *const *node_names, const char *partition,
                          struct erg_error *err);

#endif
