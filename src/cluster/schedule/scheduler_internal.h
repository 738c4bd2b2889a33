/* Functions for a scheduler that are open to schedule/ and the simulator, but not to policies. */
#ifndef ERG_CLUSTER_SCHEDULE_SCHEDULER_INTERNAL_H
#define ERG_CLUSTER_SCHEDULE_SCHEDULER_INTERNAL_H

#include "cluster/name_table.h"
#include "cluster/schedule/control.h"

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

struct erg_job_ids {
    int *items;
    size_t count, capacity;
};

/* The events since the last call of the policy, and its time. */
struct erg_course {
    unsigned events;
    struct erg_job_ids arrived, ended, evicted;
    struct erg_job_ids adopted; /* that the policy is to take over when it is next opened */
    struct erg_job_ids changed; /* by the last decision */
    double round_s;             /* when its next round is, at the earliest */
    double called_s;            /* last */
    bool rested;                /* in its last round it changed nothing, and nothing had happened */
    long calls, vain_calls;     /* since something happened; of those the last, which changed
                                 * nothing */
    bool opened, stale;         /* the policy is; and must be anew before it is called */
};

struct erg_time_sum {
    double sum_s;
    long count;
};

/* Measured times of restarts. */
struct erg_restart_times {
    struct erg_time_sum *of_jobs; /* by id: restarts but the first start */
    struct erg_time_sum *starts;  /* by type: first ones, */
    struct erg_time_sum *again;   /* and the others */
};

/* The arrays of a live scheduler that grow. */
struct erg_live_tables {
    struct erg_job_trace trace;
    struct erg_name_table names, tenants, workloads;
    struct erg_speeds *speeds;
    struct erg_speed_source source;
    double power_cap_w; /* of all GPUs, foreign ones among them */
};

/* ---- states ---- */

void erg_scheduler_set_state(struct erg_scheduler *scheduler, int job,
                             enum erg_cluster_job_state state);

/* Gives a job's GPUs back. */
void erg_scheduler_strip(struct erg_scheduler *scheduler, struct erg_cluster_job *job);

/* A job's GPUs are one of the table's shapes: which. */
int erg_scheduler_shape(const struct erg_scheduler *scheduler,
                        const struct erg_placement *placement);

/* Allocates memory for the given number of jobs. */
void erg_scheduler_reserve(struct erg_scheduler *scheduler, size_t jobs);

/* A job of the trace that is not there yet. */
void erg_scheduler_init_job(struct erg_scheduler *scheduler, int job);

/* ---- accounts ---- */

enum erg_booking {
    ERG_BOOKED_NOTHING,
    ERG_BOOKED_REJECTION,
    ERG_BOOKED_PACE, /* the same GPUs, another operating point */
    ERG_BOOKED_MOVE, /* other GPUs, or none any more */
};

/* Whether a job has other GPUs or another operating point than before. */
bool erg_change_is_real(const struct erg_cluster_job *job, const struct change *before);

/* Books what became of a job in a call of the policy; fails where it was put where it cannot run.
 */
int erg_scheduler_book(struct erg_scheduler *scheduler, const struct change *before,
                       enum erg_booking *booking, struct erg_error *err);

/* The pace of a running job that stays on its GPUs is another from now on. */
void erg_scheduler_pace(struct erg_scheduler *scheduler, int job);

/* Forgets the changes; the next one is the first. */
void erg_scheduler_settle(struct erg_scheduler *scheduler);

/* ---- calls of the policy ---- */

/* The time of its next call if nothing happens until then; INFINITY: never. */
double erg_course_next_round(const struct erg_scheduler *scheduler);
double erg_course_next_wake(const struct erg_scheduler *scheduler);
double erg_course_next_tariff(const struct erg_scheduler *scheduler);

/* Calls it with all that happened since the last time. Changes are to be booked after that. */
int erg_course_call(struct erg_scheduler *scheduler, struct erg_error *err);

/* Opens it if it is not, or must be anew. */
void erg_course_open(struct erg_scheduler *scheduler);
void erg_course_release(struct erg_scheduler *scheduler);

/* Drops the pending events of a job that was not reported to the policy yet. */
void erg_course_forget(struct erg_scheduler *scheduler, int job);

#endif
