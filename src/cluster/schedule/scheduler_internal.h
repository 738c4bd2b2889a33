/* Functions of a scheduler for schedule/ and the simulator, but not for policies. */
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
    double wake_s;  /* INFINITY: the policy requested no call */
};

struct erg_job_ids {
    int *items;
    size_t count, capacity;
};

/* The events since the last call of the policy, and its time. */
struct erg_course {
    unsigned events;
    struct erg_job_ids arrived, ended, evicted;
    struct erg_job_ids adopted; /* that the policy takes over when it is next opened */
    struct erg_job_ids changed; /* by the last decision */
    double round_s;             /* earliest time of its next round */
    double called_s;            /* time of the last call */
    bool rested;                /* its last round changed nothing, and no event preceded it */
    long calls, vain_calls;     /* calls since the last event; and of those, the last ones without a
                                 * change */
    bool opened, stale;         /* the policy is open; it must be opened again before its next
                                 * call */
};

struct erg_time_sum {
    double sum_s;
    long count;
};

/* Measured durations of restarts. */
struct erg_restart_times {
    struct erg_time_sum *of_jobs; /* by id: restarts, except the first start */
    struct erg_time_sum *starts;  /* by type: first starts, */
    struct erg_time_sum *again;   /* and other restarts */
};

/* The arrays of a live scheduler that grow. */
struct erg_live_tables {
    struct erg_job_trace trace;
    struct erg_name_table names, tenants, workloads;
    struct erg_speeds *speeds;
    struct erg_speed_source source;
    double power_cap_w; /* of all GPUs, including foreign ones */
};

/* ---- states ---- */

void erg_scheduler_set_state(struct erg_scheduler *scheduler, int job,
                             enum erg_cluster_job_state state);

/* Gives a job's GPUs back. */
void erg_scheduler_strip(struct erg_scheduler *scheduler, struct erg_cluster_job *job);

/* The shape of a job's GPUs, which must be one of the table's. */
int erg_scheduler_shape(const struct erg_scheduler *scheduler,
                        const struct erg_placement *placement);

/* Allocates memory for the given number of jobs. */
void erg_scheduler_reserve(struct erg_scheduler *scheduler, size_t jobs);

/* Adds a job of the trace. */
void erg_scheduler_init_job(struct erg_scheduler *scheduler, int job);

/* ---- accounts ---- */

enum erg_booking {
    ERG_BOOKED_NOTHING,
    ERG_BOOKED_REJECTION,
    ERG_BOOKED_PACE, /* the same GPUs, another operating point */
    ERG_BOOKED_MOVE, /* other GPUs, or none */
};

/* Returns true if a job has other GPUs or another operating point than before. */
bool erg_change_is_real(const struct erg_cluster_job *job, const struct change *before);

/* Records the result of a call of the policy for a job; fails if it was placed where it cannot
 * run. */
int erg_scheduler_book(struct erg_scheduler *scheduler, const struct change *before,
                       enum erg_booking *booking, struct erg_error *err);

/* A running job that stays on its GPUs has a new pace. */
void erg_scheduler_pace(struct erg_scheduler *scheduler, int job);

/* Clears the list of changes. */
void erg_scheduler_settle(struct erg_scheduler *scheduler);

/* ---- calls of the policy ---- */

/* The time of its next call if nothing happens until then; INFINITY: never. */
double erg_course_next_round(const struct erg_scheduler *scheduler);
double erg_course_next_wake(const struct erg_scheduler *scheduler);
double erg_course_next_tariff(const struct erg_scheduler *scheduler);

/* Calls the policy with all events since its last call. Record the changes afterwards. */
int erg_course_call(struct erg_scheduler *scheduler, struct erg_error *err);

/* Opens the policy if it is closed or stale. */
void erg_course_open(struct erg_scheduler *scheduler);
void erg_course_release(struct erg_scheduler *scheduler);

/* Drops the pending events of a job that was not reported to the policy yet. */
void erg_course_forget(struct erg_scheduler *scheduler, int job);

#endif
