/* The list of policies. */
#ifndef ERG_CLUSTER_POLICIES_H
#define ERG_CLUSTER_POLICIES_H

#include "cluster/schedule/policy.h"

extern const struct erg_policy erg_policy_arena, erg_policy_arena_ddl;
extern const struct erg_policy erg_policy_elasticflow, erg_policy_elasticflow_ls;
extern const struct erg_policy erg_policy_fcfs, erg_policy_fcfs_relaxed, erg_policy_gandiva;
extern const struct erg_policy erg_policy_tiresias, erg_policy_gavel, erg_policy_gavel_fair;
extern const struct erg_policy erg_policy_sia, erg_policy_ergon, erg_policy_ergon_thrifty;

#endif
