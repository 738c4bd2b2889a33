/* The policies there are; policy.c lists them. */
#ifndef ERG_CLUSTER_POLICIES_H
#define ERG_CLUSTER_POLICIES_H

#include "cluster/policy.h"

extern const struct erg_policy erg_policy_elasticflow, erg_policy_elasticflow_ls;
extern const struct erg_policy erg_policy_fcfs, erg_policy_fcfs_relaxed;
extern const struct erg_policy erg_policy_tiresias, erg_policy_ergon;

#endif
