/*
 * The keys of a cluster, for files that hold one among other things:
 *
 *   cluster:
 *     nodes: 2
 *     gpus_per_node: 8
 *     gpus_used: 12                   # of the first nodes on; optional: all
 *     gpu: A100-SXM4-40GB
 *     chassis: hgx-8-air              # of a node, thermal/thermal.h; optional: GPUs are alike
 *     intra_node_bandwidth_gb_s: 300  # one direction, per GPU; optional: the GPU's own link
 *     inter_node_bandwidth_gb_s: 50   # one direction, per node; needed with several nodes
 *     inter_node_latency_us: 15       # optional
 *     adapters_per_node: 1            # network adapters that the GPUs of a node share; optional:
 *                                     # each GPU has its own share of the node's bandwidth
 *     host_memory_gib: 1024           # of a node; optional
 *     host_memory_bandwidth_gb_s: 400 # of a node, reading and writing together; optional
 *     shared_link_bandwidth_gb_s: 64  # one direction, per GPU: of the link or memory that copies
 *                                     # to the host and messages to other nodes both cross;
 *                                     # optional: they share none
 *     more_nodes:                     # of other kinds; optional
 *       - nodes: 4                    # the same keys
 *         engine: megatron-a100       # what trains there; as the job's key for the others
 *
 * Embed with CYAML_FIELD_MAPPING("cluster", CYAML_FLAG_DEFAULT, struct job, cluster,
 * erg_cluster_fields), and call erg_cluster_finish() after reading.
 */
#ifndef ERG_HARDWARE_CLUSTER_SCHEMA_H
#define ERG_HARDWARE_CLUSTER_SCHEMA_H

#include "hardware/hardware.h"
#include "io/yaml.h"

extern const cyaml_schema_field_t erg_cluster_fields[];

/* The optional keys of nodes; ends with a NULL key. */
extern const struct erg_quantity erg_cluster_numbers[];

/*
 * Converts what was read to the units of struct erg_cluster and checks it. `prefix` is the path of
 * the cluster in the document ("cluster", or "" at the top). Does not look the GPU's name up.
 */
int erg_cluster_finish(struct erg_cluster *cluster, const struct erg_yaml *yaml, const char *prefix,
                       struct erg_error *err);

#endif
