/*
 * Occupancy: which job has which GPUs.
 *
 * The GPUs of a node are bits. It matters which of them a job gets, since a job that changes GPUs
 * restarts.
 *
 * Nodes that are switched off (fleet.h) are free, and used last, as in Slurm. GPUs may be foreign,
 * and nodes may drain: no new jobs are placed on these, but jobs that are there stay.
 */
#ifndef ERG_CLUSTER_OCCUPANCY_H
#define ERG_CLUSTER_OCCUPANCY_H

#include "cluster/fleet.h"
#include "cluster/speed_table.h"

#include <stdbool.h>
#include <stdint.h>

/* GPUs of one node. */
struct erg_slice {
    int node;
    uint64_t gpus; /* bits, the node's first GPU the lowest */
};

/* The lowest `count` of some GPUs. */
uint64_t erg_gpus_lowest(uint64_t gpus, int count);

/* The GPUs of a job: the same number on each of its nodes. Zero slices: none. */
struct erg_placement {
    struct erg_slice *slices;
    int count, capacity;
};

struct erg_occupancy {
    const struct erg_fleet *fleet;
    uint64_t *free;   /* by node: GPUs that can be assigned; none on a node that is down or
                       * drains */
    bool *down;       /* by node */
    bool *drains;     /* by node */
    bool *off;        /* by node, until it is woken; the simulator wakes it for its first job */
    int *type_of;     /* by node */
    int *owners;      /* by GPU: the job that has it; -1: free; ERG_OWNER_FOREIGN */
    int *first_owner; /* by node: where its GPUs' owners begin */
    int *levels;      /* [type][free GPUs]: nodes with exactly that many free; the last entry: nodes
                       * that are off and entirely free */
    int *free_gpus;   /* by type */
    int *idle_nodes;  /* by type: nodes that are entirely free, off or not */
    int *off_nodes;   /* by type */
    int foreign;      /* GPUs */
};

/* The owner of foreign GPUs: no job of ours has them or can get them. */
#define ERG_OWNER_FOREIGN (-2)

struct erg_occupancy *erg_occupancy_new(const struct erg_fleet *fleet);
void erg_occupancy_free(struct erg_occupancy *occupancy);

/* Returns true if no job has a GPU of a node that is up. */
bool erg_occupancy_idle(const struct erg_occupancy *occupancy, int node);
int erg_occupancy_free_of(const struct erg_occupancy *occupancy, int node);
/* GPUs of a type that jobs have or could have: of nodes that are up, without foreign GPUs and
 * without free ones of nodes that drain. */
int erg_occupancy_up(const struct erg_occupancy *occupancy, int type);
/* The same of a node. */
int erg_occupancy_usable(const struct erg_occupancy *occupancy, int node);
int erg_occupancy_owner(const struct erg_occupancy *occupancy, int node, int gpu);

/* The order in which nodes are chosen. Nodes that are off come last, and equal nodes in their
 * numbers' order. */
enum erg_node_order {
    ERG_FIRST_NODES, /* regardless of their free GPUs */
    ERG_MOST_FREE,
    ERG_LEAST_FREE, /* packs */
};

/*
 * Finds GPUs for a shape: the nodes with the fewest sufficient free GPUs, and the lowest free GPUs
 * of each. Does not assign them. Returns false, with `placement` unchanged, if the shape does not
 * fit.
 */
bool erg_occupancy_find(const struct erg_occupancy *occupancy, const struct erg_gpu_shape *shape,
                        enum erg_node_order order, struct erg_placement *placement);

/* The GPUs must be free, or the job's, respectively. GPUs of a node that drains are never found,
 * but can be taken for a job that already has them. `job` may be ERG_OWNER_FOREIGN. */
void erg_occupancy_take(struct erg_occupancy *occupancy, int job,
                        const struct erg_placement *placement);
void erg_occupancy_give(struct erg_occupancy *occupancy, int job,
                        const struct erg_placement *placement);

/* Switches off a node without jobs, or wakes one that is off, which may have jobs by then. */
void erg_occupancy_switch(struct erg_occupancy *occupancy, int node, bool off);

/* A node that fails must have no jobs left, and must not be off. */
void erg_occupancy_fail(struct erg_occupancy *occupancy, int node);
void erg_occupancy_repair(struct erg_occupancy *occupancy, int node);

/* A node starts or stops to drain. */
void erg_occupancy_drain(struct erg_occupancy *occupancy, int node, bool drains);

/* Placements: release them; assign copies; equal ignores the order of slices. */
void erg_placement_add(struct erg_placement *placement, int node, uint64_t gpus);
void erg_placement_assign(struct erg_placement *to, const struct erg_placement *from);
bool erg_placement_equal(const struct erg_placement *a, const struct erg_placement *b);
/* Returns true if b contains all GPUs of a; also true if a is empty. */
bool erg_placement_within(const struct erg_placement *a, const struct erg_placement *b);
int erg_placement_gpus(const struct erg_placement *placement);
void erg_placement_release(struct erg_placement *placement);

#endif
