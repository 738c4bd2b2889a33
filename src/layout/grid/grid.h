/*
 * Grids: one job on fixed resources with a fixed number of pipeline stages. The layers of each
 * stage and its parallelism over its GPUs are free.
 *
 * A stage of n GPUs has a shape: `data` replicas, each of `tensor` GPUs, data x tensor = n, both
 * powers of two. Layers are pipeline layers: 16 or fewer parts of a model with about equal work.
 *
 * Source of the method: Arena (published under that name and as Crius): grids, disaggregated
 * profiles, parallelism planner.
 */
#ifndef ERG_LAYOUT_GRID_H
#define ERG_LAYOUT_GRID_H

#include "base/text.h"
#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    ERG_GRID_MAX_STAGES = 16,
    ERG_GRID_MICROBATCHES = 16, /* of an iteration, in all published profiles */
};

struct erg_shape {
    long data, tensor;
};

struct erg_grid_plan {
    size_t stages;
    size_t first[ERG_GRID_MAX_STAGES + 1]; /* stage s has layers [first[s], first[s + 1]) */
    struct erg_shape shapes[ERG_GRID_MAX_STAGES];
};

/* "0_7__8_15::2_1__1_2": first and last layer of each stage, then data_tensor of each. */
void erg_grid_plan_text(const struct erg_grid_plan *plan, struct erg_text *text);

/* ---- Communication (grid_network.c) ---- */

enum erg_grid_collective {
    ERG_SEND, /* from one GPU to one other */
    ERG_ALL_REDUCE,
    ERG_ALL_GATHER,
    ERG_ALL_TO_ALL,
    ERG_REDUCE_SCATTER,
    ERG_COLLECTIVES,
};

/* A job's part of a cluster: the same number of GPUs on each of its nodes. */
struct erg_allocation {
    const char *gpu_type;
    long nodes, gpus_per_node;
    bool infiniband; /* the network, for a type measured on two; ignored otherwise */
};

struct erg_comm_group {
    long size;  /* GPUs */
    long nodes; /* number of nodes that it spans */
};

/* The group of `size` GPUs `stride` apart from GPU `first` on. */
struct erg_comm_group erg_comm_group_of(long first, long stride, long size, long gpus_per_node);

/* A model of the time of a collective over a group. */
struct erg_grid_network {
    /*
     * Adds seconds for `elements` fp32 elements of each replica. A failure names the unknown part.
     */
    int (*time)(const void *context, const struct erg_allocation *allocation,
                enum erg_grid_collective op, struct erg_comm_group group, double elements,
                double *seconds, struct erg_error *err);
    const void *context;
};

/*
 * A network known only by the rates of its links. Everything except sends takes a latency plus
 * the bytes that each GPU sends in a ring, at the rate of its node's links or, if the group spans
 * nodes, at one GPU's share of the network for each of its GPUs in a node. Supports all groups.
 */
struct erg_grid_links {
    double node_bandwidth, network_bandwidth; /* bytes/s of one GPU, one direction */
    double latency_s;
};
struct erg_grid_network erg_grid_network_of(const struct erg_grid_links *links);

/* ---- Iteration time (grid_time.c) ---- */

/* Seconds of one stage: of one microbatch, or of an iteration where noted. */
struct erg_stage_time {
    double forward_s, backward_s;             /* computation; backward, including recomputation */
    double forward_intra_s, backward_intra_s; /* communication within the stage */
    double forward_send_s, backward_send_s;   /* to the next stage, to the previous stage */
    double gradient_sync_s;                   /* once per iteration */
    double apply_s, apply_intra_s;            /* update of the weights, once per iteration */
};

/* The sum and its parts; each part of a slowest stage is in its own member. */
struct erg_iteration_time {
    double total_s;
    double compute_s, intra_s, inter_s;
};

/*
 * A pipeline of B microbatches: for each of forward, backward and their sends, the sum over stages
 * and B - 1 times the slowest; gradient synchronisation of all stages in sequence; the slowest
 * update. Updates of 10^5 s or more are failed profiles and count as 0.
 */
void erg_grid_time(const struct erg_stage_time *stages, size_t count, long microbatches,
                   struct erg_iteration_time *time);

#endif
