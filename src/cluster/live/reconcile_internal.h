/* What the files of the reconciler share. */
#ifndef ERG_CLUSTER_LIVE_RECONCILE_INTERNAL_H
#define ERG_CLUSTER_LIVE_RECONCILE_INTERNAL_H

#include "cluster/live/reconcile.h"

/* Whether both have as many GPUs of every node. */
bool erg_placement_alike(const struct erg_placement *a, const struct erg_placement *b);

/* A placement came to nothing: not tried again for wait_s, and shown after three. */
void erg_managed_job_failed_start(struct erg_managed_job *job, const char *why, double wait_s,
                                  const struct erg_reconcile_limits *limits, double now_s);

#endif
