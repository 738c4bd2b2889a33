/* Internal to the reconciler. */
#ifndef ERG_CLUSTER_LIVE_RECONCILE_INTERNAL_H
#define ERG_CLUSTER_LIVE_RECONCILE_INTERNAL_H

#include "cluster/live/reconcile.h"

/* A placement failed: the job is not placed for wait_s, and needs attention after three
 * failures. */
void erg_managed_job_failed_start(struct erg_managed_job *job, const char *why, double wait_s,
                                  const struct erg_reconcile_limits *limits, double now_s);

#endif
