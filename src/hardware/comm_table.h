/*
 * Measured communication of clusters: how long one operation takes over one group of GPUs, by size.
 *
 * A table is CSV with the columns gpu_type, num_nodes, gpus_per_node, infiniband (0 or 1), op,
 * group_size, hosts_crossed, elements (of fp32) and time_s. The rows of one (type, nodes, GPUs per
 * node, network, op, group) are samples of a curve. Where a curve was measured twice the later run
 * counts, since the published estimates were made with it.
 *
 * Groups are normalised: GPUs are numbered node by node, and a group that crosses h nodes has
 * group_size / h consecutive GPUs of each of h consecutive nodes. The other groups of the same
 * shape communicate at the same time.
 *
 * Source of the method: Arena, offline communication profiles and their look-up.
 */
#ifndef ERG_COMM_TABLE_H
#define ERG_COMM_TABLE_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

enum erg_collective {
    ERG_SEND, /* from one GPU to one other */
    ERG_ALL_REDUCE,
    ERG_ALL_GATHER,
    ERG_ALL_TO_ALL,
    ERG_REDUCE_SCATTER,
    ERG_COLLECTIVES,
};
const char *erg_collective_name(enum erg_collective op); /* "send", "all-reduce", … */

/* Part of a cluster that a job gets: equally many GPUs of each of its nodes. */
struct erg_allocation {
    const char *gpu_type; /* as the tables call it: "a100" */
    long nodes, gpus_per_node;
    bool infiniband; /* which network, of a type that was measured on two; else what there is */
};

struct erg_comm_group {
    long size;  /* GPUs */
    long nodes; /* that it crosses */
};

/* The group of `size` GPUs `stride` apart from GPU `first` on. */
struct erg_comm_group erg_comm_group_of(long first, long stride, long size, long gpus_per_node);

/* Samples of one operation over one group: sizes in ascending order. Borrowed from the tables. */
struct erg_comm_curve {
    const double *elements, *time_s;
    size_t count;
};

struct erg_comm_tables;

int erg_comm_tables_load(struct erg_comm_tables **tables, const char *path, struct erg_error *err);
/*
 * The tables of one allocation whose links alone are known: all but sends take a latency and the
 * bytes that each GPU sends in a ring, at the rate of its node's links or, where the group crosses
 * nodes, at one GPU's share of the network for each of its GPUs in a node.
 */
struct erg_comm_links {
    double node_bandwidth, network_bandwidth; /* bytes/s of one GPU, one direction */
    double latency_s;
};
struct erg_comm_tables *erg_comm_tables_of_links(const struct erg_allocation *allocation,
                                                 const struct erg_comm_links *links);
void erg_comm_tables_free(struct erg_comm_tables *tables);

/*
 * The curve of `op` over `group` in an allocation. Where nodes with so few GPUs were not measured,
 * that of the next more GPUs per node (doubling, up to 16) over a group that crosses as many nodes
 * with as many GPUs of each. A send has a table of its own: two GPUs of one node, or of two. Fails,
 * and says what was looked for, where nothing that fits was measured.
 */
int erg_comm_tables_find(const struct erg_comm_tables *tables,
                         const struct erg_allocation *allocation, enum erg_collective op,
                         struct erg_comm_group group, struct erg_comm_curve *curve,
                         struct erg_error *err);

/*
 * Seconds for `elements` of fp32 (of each replica, as the tables count them): the first sample
 * up to the first size; between sizes the straight line; above the largest size M as many transfers
 * of M as fit and one of the rest, where M is at least 2^27 all of it 1.1 times as long for each
 * transfer of M (contention).
 */
double erg_comm_time(const struct erg_comm_curve *curve, double elements);

/* What `count` elements of a type are in elements of fp32, for the look-up. */
enum erg_comm_type { ERG_COMM_FP32, ERG_COMM_INT32, ERG_COMM_FP16, ERG_COMM_BOOL };
double erg_comm_elements(double count, enum erg_comm_type type);

#endif
