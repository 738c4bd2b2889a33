/*
 * ElasticFlow as a policy of several rules: elasticflow.c has the two that users choose, research/
 * those of published comparisons.
 */
#ifndef ERG_CLUSTER_POLICIES_ELASTICFLOW_H
#define ERG_CLUSTER_POLICIES_ELASTICFLOW_H

#include "cluster/schedule/policy.h"

struct erg_elastic_rules {
    bool deadlines; /* a share must meet its job's deadline; else any share on which the job runs */
    /* Shares are computed only when a job is admitted; all jobs of the type are then placed again,
     * the newest first among equals, and double even where that adds nothing. Jobs wait even for
     * types on which they cannot run. */
    bool as_published;
    const struct erg_speeds *speeds; /* speeds for the computation of shares; NULL: the
                                      * scheduler's */
};

/* For a policy (policy.h) whose rules these are. */
void *erg_elastic_open(const struct erg_scheduler *scheduler, const void *rules);
int erg_elastic_decide(void *state, struct erg_scheduler *scheduler,
                       const struct erg_occasion *occasion, struct erg_error *err);
void erg_elastic_close(void *state);

#endif
