/* What the simulator does with a scheduler that policies cannot. */
#ifndef ERG_CLUSTER_SCHEDULE_SCHEDULER_INTERNAL_H
#define ERG_CLUSTER_SCHEDULE_SCHEDULER_INTERNAL_H

#include "cluster/schedule/accounting.h"
#include "cluster/schedule/scheduler.h"

/* Jobs as they were before the policy first touched them in this call. */
struct erg_change_log {
    struct change {
        int job;
        enum erg_cluster_job_state state;
        struct erg_placement placement;
        int point;
    } * items; /* placements beyond `count` keep their memory for the next call */
    size_t count, capacity;
    int *entry_of;  /* by job: index, -1: untouched */
    double *used_s; /* by job: GPU-seconds that it had until its last change */
    double wake_s;  /* INFINITY: the policy did not ask */
};

struct erg_scheduler *erg_scheduler_new(const struct erg_fleet *fleet,
                                        const struct erg_job_trace *trace,
                                        const struct erg_speeds *speeds,
                                        const struct erg_policy *policy,
                                        const struct erg_accounting *accounting);
void erg_scheduler_free(struct erg_scheduler *scheduler);

/* A future job waits from now on. */
void erg_scheduler_submit(struct erg_scheduler *scheduler, int job);

/* A running job gives its GPUs back for good. */
void erg_scheduler_end(struct erg_scheduler *scheduler, int job);

/* Forgets the changes; the next one is the first. */
void erg_scheduler_settle(struct erg_scheduler *scheduler);

#endif
