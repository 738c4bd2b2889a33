/*
 * The fleet: the nodes of a shared, mixed cluster, as a YAML file.
 *
 *   types:                      # nodes are numbered in this order, from 0
 *     - name: a100              # the name in traces and profiles
 *       nodes: 80
 *       gpus_per_node: 4        # at most 64
 *       memory_gb: 40           # per GPU, decimal
 *       idle_power_w: 55        # per GPU without a job, or whose job restarts
 *       off_power_w: 4          # per GPU of a node that is off; default: 0
 *       waiting_power_w: 85     # per GPU that waits for others of its job; optional
 *       points:                 # operating points, the fastest first; optional
 *         - {slowdown: 1.0, power_w: 400}
 *         - {slowdown: 1.06, power_w: 310}
 *   reconfiguration:            # optional; the cost of a changed allocation, in seconds
 *     fixed_s: 60               # a checkpoint is saved, the job restarts from it
 *     start_s: 30               # for a job's first start; default: fixed_s
 *     per_gpu_s: 0              # in addition to either, for each of its GPUs
 *     most_s: 600               # upper limit of the sum
 *   power_saving:               # optional; without it all nodes are always on
 *     after_s: 600              # a node without jobs for this time is switched off
 *     wake_s: 120               # from the decision to use it until its jobs restart
 *   checkpoint_interval_s: 1800 # optional; a node failure loses the work since the last one
 *
 * Operating points describe a GPU type for which a profile has only times: computation takes
 * `slowdown` times as long, and each GPU draws `power_w` then. A type without points has one,
 * at the idle power, so that no energy is invented. With a waiting power, the part of an iteration
 * in which GPUs wait counts separately (speed_table.h); without one they compute all the time.
 *
 * Power saving is that of Slurm (slurm.conf: SuspendTime, and ResumeTimeout as the wake time). A
 * node draws idle power from the moment at which it is woken. Switching off takes no time.
 */
#ifndef ERG_CLUSTER_FLEET_H
#define ERG_CLUSTER_FLEET_H

#include "base/memory.h"
#include "ergon/error.h"

#include <stdbool.h>

enum { ERG_NODE_GPUS_MOST = 64 };

struct erg_operating_point {
    double slowdown; /* at least 1 */
    double power_w;  /* of one GPU */
};

struct erg_gpu_type {
    char *name;
    int nodes, gpus_per_node;
    double memory_bytes;
    double idle_power_w;                /* at most that of any point */
    double waiting_power_w;             /* between the two; 0: not given */
    double off_power_w;                 /* at most the idle power */
    struct erg_operating_point *points; /* by rising slowdown; the first has slowdown 1 */
    unsigned points_count;
    int first_node; /* of the fleet's numbering */
    char *hosts;    /* of a live fleet: the nodes' names in Slurm's notation; else NULL */
};

struct erg_fleet {
    struct erg_gpu_type *types;
    unsigned types_count;
    struct erg_reconfiguration {
        double fixed_s, per_gpu_s, most_s;
        bool has_start; /* a first start has its own cost */
        double start_s;
    } reconfiguration;
    double checkpoint_interval_s; /* INFINITY: checkpoints only at reconfigurations */
    bool saves_power;             /* nodes are switched off, with these times: */
    struct erg_power_saving {
        double after_s, wake_s;
    } power_saving;
    int nodes, gpus; /* of all types */
};

int erg_fleet_load(struct erg_fleet **fleet, const char *path, struct erg_error *err);
void erg_fleet_free(struct erg_fleet *fleet);

/* Power of all GPUs while nothing runs and all nodes are on. */
double erg_fleet_idle_power(const struct erg_fleet *fleet);

/* The index of a type, or -1. */
int erg_fleet_type(const struct erg_fleet *fleet, const char *name);

/* "a100, v100", for messages. */
const char *erg_fleet_type_names(const struct erg_fleet *fleet, struct erg_arena *arena);

#endif
