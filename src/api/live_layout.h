/*
 * The layout of a live job on its assigned GPUs: that of the controller's plan, else that of the
 * job's plan, else the planner's, else the job's own with as many copies as fit. The batch does not
 * change.
 */
#ifndef ERG_API_LIVE_LAYOUT_H
#define ERG_API_LIVE_LAYOUT_H

#include "api/layout_query.h"
#include "cluster/live/job_folder.h"

struct erg_live_layout_request {
    const char *path;                 /* of the job's file */
    const struct erg_live_plan *plan; /* `type` NULL: there is none */
    int nodes, gpus_per_node;
    bool plans;                     /* ask the planner */
    const struct erg_layout *other; /* to be preferred to the planner's if it has as many ranks as
                                     * there are GPUs; NULL: none */
};

struct erg_live_layout {
    struct erg_text job; /* a complete file */
    struct erg_text why; /* the layout in words */
    int nodes, ranks;    /* to be started: as many on each node, not more than there are GPUs */
};

/* To be released, also after a failure. */
int erg_live_layout_choose(struct erg_live_layout *chosen,
                           const struct erg_live_layout_request *request, struct erg_error *err);
void erg_live_layout_release(struct erg_live_layout *chosen);

/* Rows of a profile (layout/exchange/profile_rows.h) with their header: what the planner expects of
 * the job on nodes of one type, for numbers of GPUs as the input has them. */
int erg_live_layout_rows(struct erg_text *rows, const struct erg_job *job, const char *type,
                         int nodes, int gpus_per_node, const char *gpus, struct erg_error *err);

/* Whether the planner may choose it: for jobs with a profile, on GPUs. */
bool erg_live_layout_plans(const struct erg_live_request *request);

/* The job's file, or one that leaves its layout open. */
int erg_live_layout_load(struct erg_job **job, const char *path, struct erg_error *err);

/* Appends the job with another layout on such nodes; NULL: on its own. */
void erg_live_layout_write(struct erg_text *out, const struct erg_job *job,
                           const struct erg_layout *layout, const struct erg_cluster *nodes);

#endif
