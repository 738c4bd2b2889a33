/* What `ergon plan` does for a cluster with nodes of several kinds: layout/mixed.h. */
#ifndef ERG_CLI_PLAN_MIXED_H
#define ERG_CLI_PLAN_MIXED_H

#include "job/job.h"
#include "layout/search.h"

/*
 * Searches and prints. `search` is that of the cluster's first kind, whose GPU is `gpu`; the other
 * kinds' GPUs and engines are looked up by the names in the cluster.
 */
int erg_plan_mixed(const struct erg_job *job, const struct erg_cluster *cluster,
                   const struct erg_gpu *gpu, const struct erg_layout_search *search, bool json,
                   struct erg_error *err);

#endif
