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
#ifndef RESEARCH_COMM_TABLE_H
#define RESEARCH_COMM_TABLE_H

#include "layout/grid/grid.h"

const char *comm_collective_name(enum erg_grid_collective op); /* "send", "all-reduce", … */

/* Samples of one operation over one group: sizes in ascending order. Borrowed from the tables. */
struct comm_curve {
    const double *elements, *time_s;
    size_t count;
};

struct comm_tables;

int comm_tables_load(struct comm_tables **tables, const char *path, struct erg_error *err);
void comm_tables_free(struct comm_tables *tables);

/*
 * The curve of `op` over `group` in an allocation. Where nodes with so few GPUs were not measured,
 * that of the next more GPUs per node (doubling, up to 16) over a group that crosses as many nodes
 * with as many GPUs of each. A send has a table of its own: two GPUs of one node, or of two. Fails,
 * and says what was looked for, where nothing that fits was measured.
 */
int comm_tables_find(const struct comm_tables *tables, const struct erg_allocation *allocation,
                     enum erg_grid_collective op, struct erg_comm_group group,
                     struct comm_curve *curve, struct erg_error *err);

/*
 * Seconds for `elements` of fp32 (of each replica, as the tables count them): the first sample
 * up to the first size; between sizes the straight line; above the largest size M as many transfers
 * of M as fit and one of the rest, where M is at least 2^27 all of it 1.1 times as long for each
 * transfer of M (contention).
 */
double comm_time(const struct comm_curve *curve, double elements);

/* The tables as the network of a grid. */
struct erg_grid_network comm_tables_network(const struct comm_tables *tables);

#endif
