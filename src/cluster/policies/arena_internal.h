/*
 * Arena's tables: the GPUs of each job in a tentative plan, and the search for free GPUs in it,
 * which may move other jobs. Sources: arena.c.
 *
 * A table contains the running jobs and at most one more, the target, as seats: small numbers in
 * the order of the running jobs. Tables are copied as a whole: hundreds of plans are tried, and a
 * table has a few kilobytes.
 */
#ifndef ERG_CLUSTER_POLICIES_ARENA_INTERNAL_H
#define ERG_CLUSTER_POLICIES_ARENA_INTERNAL_H

#include "cluster/schedule/policy.h"

#include <stdbool.h>
#include <stdint.h>

/* The parts that a variant leaves out; the publication's variants are in research/. */
struct erg_arena_rules {
    bool no_scaling, no_types, no_opportunism;
    bool deadlines; /* a speed with which a job misses its deadline counts as none */
};

/* The type of a seat whose GPUs are lent to others. */
#define ARENA_NO_TYPE (-1)

/* A job in a table. */
struct erg_trial_seat {
    int job;
    int type, gpus; /* its GPUs, or its future GPUs */
    int nodes;      /* on which it has GPUs */
    double speed;   /* samples/s there; 0: no GPUs yet */
};

struct erg_trial {
    const struct erg_scheduler *scheduler;
    const struct erg_arena_rules *rules;
    struct erg_trial_seat *seats;
    int seats_count, seats_capacity;
    int *owners;    /* by GPU: seat, or -1 */
    uint64_t *free; /* by node: bits */
    int *free_gpus; /* by type */
};

void erg_trial_init(struct erg_trial *table, const struct erg_scheduler *scheduler,
                    const struct erg_arena_rules *rules);
void erg_trial_release(struct erg_trial *table);
void erg_trial_copy(struct erg_trial *to, const struct erg_trial *from);

/* As the cluster is now, without a target. */
void erg_trial_load(struct erg_trial *table);

/* Adds a job without GPUs; its seat. */
int erg_trial_add(struct erg_trial *table, int job, int type, int gpus);

/* GPUs of a node that are free, and that a seat has. */
int erg_trial_free_of(const struct erg_trial *table, int node);
uint64_t erg_trial_held(const struct erg_trial *table, int seat, int node);

void erg_trial_take(struct erg_trial *table, int seat, int node, uint64_t gpus);
void erg_trial_give(struct erg_trial *table, int seat, int node, uint64_t gpus);
void erg_trial_give_all(struct erg_trial *table, int seat);

/* Exchanges all that is on two nodes of a type. */
void erg_trial_swap_nodes(struct erg_trial *table, int a, int b);

/* Nodes on which a seat has GPUs, in order; their number, that of the seat. */
int erg_trial_nodes(const struct erg_trial *table, int seat, int *nodes);

/* Speed of a job on a shape, by the profiles; what cannot run is negative. */
double erg_trial_speed(const struct erg_trial *table, int job, int type, int nodes,
                       int gpus_per_node);
double erg_trial_best_speed(const struct erg_trial *table, int job, int type, int gpus);

/* How far a search may go, and the GPUs of a job that it can be made for. */
enum { ARENA_BUDGET = 4096, ARENA_SEARCH_BUDGET = 256, ARENA_GPUS_MOST = 256 };

struct erg_trial_room {
    bool relaxed; /* on more nodes than need be */
    double gain;  /* samples/s beyond those of the seat before */
};

/*
 * Finds GPUs for a seat that has none, of its type and number, and takes them: on idle nodes, on a
 * node that has room, by compacting partly used nodes, or on more nodes. False where there are not
 * enough GPUs; the table may have been compacted then.
 */
bool erg_trial_search(struct erg_trial *table, int seat, int *budget, struct erg_trial_room *room);

/*
 * Shrinks running jobs and moves them to other types, up to `depth` times, until the target, a seat
 * without GPUs, finds room; the plan that gains most replaces the table. False, and the table as it
 * was, where there is none.
 */
bool erg_trial_downgrade(struct erg_trial *table, int seat, int depth);

/* For a policy (policy.h) whose rules are a struct erg_arena_rules. */
void *erg_arena_open(const struct erg_scheduler *scheduler, const void *rules);
int erg_arena_decide(void *state, struct erg_scheduler *scheduler,
                     const struct erg_occasion *occasion, struct erg_error *err);
void erg_arena_close(void *state);

#endif
