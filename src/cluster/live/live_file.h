/*
 * The live file: a fleet (cluster/fleet.h) with names of nodes, and how jobs are managed on it.
 *
 *   slurm:
 *     partition: ergon        # of the managed jobs
 *     spool: /shared/ergon    # folder of the jobs' folders, visible to all nodes
 *     poll_s: 2               # time between two cycles; default: 2
 *     settle_s: 5             # least time between two decisions; default: 5
 *   policy: ergon             # default: ergon
 *   profiles: profiles        # folder of published profiles, for jobs like those in them;
 *                             # optional; relative to the file's folder
 *   power_cap_w: 90000        # of all GPUs; optional
 *   types:                    # as in the fleet's file, except for:
 *     - nodes: h[001-004]     # names in Slurm's notation instead of a number
 */
#ifndef ERG_CLUSTER_LIVE_LIVE_FILE_H
#define ERG_CLUSTER_LIVE_LIVE_FILE_H

#include "cluster/fleet.h"
#include "cluster/live/host_list.h"
#include "cluster/schedule/policy.h"

struct erg_live_file {
    struct erg_fleet fleet;
    struct erg_live_slurm {
        char *partition, *spool; /* the spool's path is absolute */
        double poll_s, settle_s;
    } slurm;
    char *profiles;     /* NULL: none */
    double power_cap_w; /* INFINITY: none */
    char *policy_name;
    const struct erg_policy *policy;
    struct erg_host_list nodes; /* names by node of the fleet */
};

int erg_live_file_load(struct erg_live_file **live, const char *path, struct erg_error *err);
void erg_live_file_free(struct erg_live_file *live); /* NULL is fine */

#endif
