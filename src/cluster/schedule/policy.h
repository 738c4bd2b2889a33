/*
 * Policies: which job gets which GPUs. Each is a file policies/NAME.c behind this interface.
 *
 * The top of each file names the source of the policy and its departures from it. A policy keeps
 * state between calls (queues, solutions of linear programs).
 */
#ifndef ERG_CLUSTER_SCHEDULE_POLICY_H
#define ERG_CLUSTER_SCHEDULE_POLICY_H

#include "cluster/schedule/scheduler.h"
#include "io/json.h"

/* Reasons for a call of the policy; several may apply at once. */
enum erg_policy_event {
    ERG_EVENT_ARRIVAL = 1 << 0, /* jobs were submitted */
    ERG_EVENT_END = 1 << 1,     /* jobs ended; their GPUs are free */
    ERG_EVENT_FAILURE = 1 << 2, /* nodes failed; their jobs wait */
    ERG_EVENT_REPAIR = 1 << 3,  /* nodes came back, empty */
    ERG_EVENT_ROUND = 1 << 4,   /* the policy's round, or the time that it requested */
    /* The price or the emissions of electricity have changed. A policy that keeps all jobs waiting
     * for this must request a call (scheduler.h), because a simulation ends when nothing runs and
     * nothing is due. */
    ERG_EVENT_TARIFF = 1 << 5,
    ERG_EVENTS_OF_JOBS = ERG_EVENT_ARRIVAL | ERG_EVENT_END | ERG_EVENT_FAILURE | ERG_EVENT_REPAIR,
};

/* The events since the last call; jobs by id, in the order of events. */
struct erg_occasion {
    unsigned events;
    const int *arrived; /* all still waiting */
    size_t arrived_count;
    const int *ended;
    size_t ended_count;
    const int *evicted; /* lost a node; all waiting */
    size_t evicted_count;
};

struct erg_policy {
    const char *name;    /* as on the command line */
    const char *summary; /* one line */
    unsigned events;     /* events that cause an immediate call; others wait for the next call */
    double round_s;      /* it is called at all multiples of it; 0: no rounds */
    const void *rules;   /* parameters for open(), for policies that share code */
    /*
     * The policy's own state, which close() frees. A policy is opened before the first job, and may
     * be closed and opened again at any moment: when tables grow, when speeds change, or in another
     * process. open() takes over all jobs that wait or run and were reported (`told`); jobs that
     * arrived since the last decision follow with the next one. Jobs that ended or were evicted
     * before open() are not reported again.
     */
    void *(*open)(const struct erg_scheduler *scheduler, const void *rules);
    /* Fails only if something external fails, such as a solver. */
    int (*decide)(void *state, struct erg_scheduler *scheduler, const struct erg_occasion *occasion,
                  struct erg_error *err);
    void (*close)(void *state);
    /*
     * State that open() cannot derive: save(), before close(), returns it as an object; load(),
     * after open(), restores the part about present jobs, tenants and types, and ignores any other
     * JSON. Jobs are identified by the names of their requests, since numbers are valid only in one
     * process. NULL: no state.
     */
    json_t *(*save)(const void *state, const struct erg_scheduler *scheduler);
    void (*load)(void *state, const struct erg_scheduler *scheduler, const json_t *saved);
    /* With power saving: seconds for which a node stays on after its last job, at most the fleet's
     * time. NULL: the fleet's time. */
    double (*linger)(const struct erg_scheduler *scheduler);
};

/* All policies; ends with NULL. */
extern const struct erg_policy *const erg_policies[];

/* Finds a policy by name; the error for an unknown name lists the policies. */
int erg_policy_find(const struct erg_policy **policy, const char *name, struct erg_error *err);

#endif
