/* What `ergon plan` does for a cluster with nodes of several kinds: layout/search/mixed.h. */
#ifndef ERG_CLI_PLAN_MIXED_H
#define ERG_CLI_PLAN_MIXED_H

#include "cli/plan_answer.h"

/* Searches and prints. The planning is prepared for the cluster's first kind; the others are looked
 * up by their names. */
int erg_plan_mixed(struct planning *at, const struct erg_cluster *cluster, bool json,
                   struct erg_error *err);

#endif
