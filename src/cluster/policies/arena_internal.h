/*
 * Arena's tables: who has which GPUs in a plan that is only being tried, and the search for room in
 * it, which may move other jobs. Sources: arena.c.
 *
 * A table knows the running jobs and at most one more, the target, by seats: small numbers in the
 * order of the running jobs. Tables are copied as a whole, since a plan is tried by the hundred and
 * a table has a few kilobytes.
 */
#ifndef ERG_CLUSTER_POLICIES_ARENA_INTERNAL_H
#define ERG_CLUSTER_POLICIES_ARENA_INTERNAL_H

#include "cluster/schedule/policy.h"

#include <stdbool.h>
#include <stdint.h>

/* What a variant leaves out; those of the publication are in research/. */
struct arena_rules {
    bool no_scaling, no_types, no_opportunism;
    bool deadlines; /* a speed with which a job misses its deadline counts as none */
};

/* The type of a seat whose GPUs are lent to others. */
#define ARENA_NO_TYPE (-1)

/* A job in a table. */
struct arena_seat {
    int job;
    int type, gpus; /* what it has, or is to have */
    int nodes;      /* on which it has GPUs */
    double speed;   /* samples/s there; 0: it has no GPUs yet */
};

struct arena_table {
    const struct erg_scheduler *scheduler;
    const struct arena_rules *rules;
    struct arena_seat *seats;
    int seats_count, seats_capacity;
    int *owners;    /* by GPU: seat, or -1 */
    uint64_t *free; /* by node: bits */
    int *free_gpus; /* by type */
};

void arena_table_init(struct arena_table *table, const struct erg_scheduler *scheduler,
                      const struct arena_rules *rules);
void arena_table_release(struct arena_table *table);
void arena_table_copy(struct arena_table *to, const struct arena_table *from);

/* As the cluster is now, without a target. */
void arena_table_load(struct arena_table *table);

/* Adds a job without GPUs; its seat. */
int arena_table_add(struct arena_table *table, int job, int type, int gpus);

/* GPUs of a node that are free, and that a seat has. */
int arena_free(const struct arena_table *table, int node);
uint64_t arena_held(const struct arena_table *table, int seat, int node);

void arena_take(struct arena_table *table, int seat, int node, uint64_t gpus);
void arena_give(struct arena_table *table, int seat, int node, uint64_t gpus);
void arena_give_all(struct arena_table *table, int seat);

/* The lowest of some GPUs. */
uint64_t arena_lowest(uint64_t gpus, int count);

/* Exchanges all that is on two nodes of a type. */
void arena_swap_nodes(struct arena_table *table, int a, int b);

/* Takes all free GPUs out of a table, and puts those back that were free in another. */
void arena_hide_free(struct arena_table *table);
void arena_show_free(struct arena_table *table, const struct arena_table *from);

/* Nodes on which a seat has GPUs, in order; their number, that of the seat. */
int arena_nodes(const struct arena_table *table, int seat, int *nodes);

/* Speed of a job on a shape, by the profiles; what cannot run is negative. */
double arena_speed(const struct arena_table *table, int job, int type, int nodes,
                   int gpus_per_node);
double arena_best_speed(const struct arena_table *table, int job, int type, int gpus);

/* How far a search may go, and the GPUs of a job that it can be made for. */
enum { ARENA_BUDGET = 4096, ARENA_SEARCH_BUDGET = 256, ARENA_GPUS_MOST = 256 };

struct arena_room {
    bool relaxed; /* on more nodes than need be */
    double gain;  /* samples/s beyond what the seat had */
};

/*
 * Finds GPUs for a seat that has none, of its type and number, and takes them: on idle nodes, on a
 * node that has room, by compacting partly used nodes, or on more nodes. False where there is no
 * room; the table may have been compacted then.
 */
bool arena_search(struct arena_table *table, int seat, int *budget, struct arena_room *room);

/*
 * Shrinks running jobs and moves them to other types, up to `depth` times, until the target, a seat
 * without GPUs, finds room; the plan that gains most replaces the table. False, and the table as it
 * was, where there is none.
 */
bool arena_downgrade(struct arena_table *table, int seat, int depth);

/* For a policy (policy.h) whose rules are a struct arena_rules. */
void *erg_arena_open(const struct erg_scheduler *scheduler, const void *rules);
int erg_arena_decide(void *state, struct erg_scheduler *scheduler,
                     const struct erg_occasion *occasion, struct erg_error *err);
void erg_arena_close(void *state);

#endif
