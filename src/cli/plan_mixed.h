/* What `ergon plan` does for a cluster with nodes of several kinds: layout/mixed.h. */
#ifndef ERG_CLI_PLAN_MIXED_H
#define ERG_CLI_PLAN_MIXED_H

#include "job/job.h"
#include "layout/search.h"

struct plan_mixed {
    const struct erg_job *job;
    const struct erg_cluster *cluster;
    const struct erg_gpu *gpu; /* of the cluster's first kind, as `search` is of it; those of the
                                * other kinds are looked up by their names in the cluster */
    const struct erg_layout_search *search;
    const char *layout, *why; /* of these degrees only; beside the fastest; NULL: not asked */
    bool json;
    int export; /* enum erg_export_format; below 0: not asked */
};

/* Searches and prints. */
int erg_plan_mixed(const struct plan_mixed *plan, struct erg_error *err);

#endif
