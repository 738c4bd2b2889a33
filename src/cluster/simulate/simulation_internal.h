/* Internal to the simulator. */
#ifndef ERG_CLUSTER_SIMULATE_INTERNAL_H
#define ERG_CLUSTER_SIMULATE_INTERNAL_H

#include "cluster/schedule/event_heap_internal.h"
#include "cluster/schedule/scheduler_internal.h"
#include "cluster/schedule/throttle.h"
#include "cluster/simulate/cluster_meter_internal.h"
#include "cluster/simulate/simulation.h"

/* An outage of a node that has begun or will begin. */
struct outages {
    const struct erg_outage **begins, **ends; /* by from_s and by to_s */
    size_t begun, ended;
};

struct simulator {
    const struct erg_simulation *simulation;
    struct erg_scheduler *scheduler;
    struct meter meter;
    struct erg_event_heap heap;      /* by job */
    struct erg_event_heap switching; /* by node: the time at which it will be switched off */
    double *submission_s;            /* by job */
    int *order;                      /* jobs by submission */
    size_t submitted;
    struct outages outages;
    size_t calls; /* of the policy */
    struct {
        struct erg_power_draw *items;
        size_t count, capacity;
    } draws; /* scratch */
    struct {
        struct erg_cluster_record *items;
        size_t count, capacity;
    } records;
    struct {
        struct erg_slice *items;
        size_t count, capacity;
    } slices; /* of the records */
    struct {
        struct erg_cluster_sample *items;
        size_t count, capacity;
    } samples;
    struct {
        struct erg_unserved *items;
        size_t count, capacity;
    } unserved;
};

/* Records an event, if events are kept. */
void erg_simulator_record(struct simulator *sim, enum erg_record_kind kind, int job, int node);

/* Computes the time of a job's next own event. */
void erg_simulator_refresh(struct simulator *sim, int id);

/* Records that a job is not served, for good. */
void erg_simulator_note_unserved(struct simulator *sim, int job, enum erg_unserved_fate fate);

/* The same for a job that its policy rejected, if it cannot run on its requested GPUs; a job that
 * may only have come too late is not recorded. */
void erg_simulator_note_rejected(struct simulator *sim, int job);

/* The same for jobs that still wait at the end. */
void erg_simulator_note_waiting(struct simulator *sim);

/* Records the changes of all jobs since the last call; fails if one was placed where it cannot
 * run. */
int erg_simulator_book(struct simulator *sim, struct erg_error *err);

/* A running job that stays on its GPUs has a new pace. */
void erg_simulator_pace(struct simulator *sim, int job);

/* Slows GPUs down to keep the power cap; call it after everything else was recorded. */
void erg_simulator_throttle(struct simulator *sim);

/* Wakes nodes that are off and have jobs. */
void erg_simulator_wake_nodes(struct simulator *sim);

/* Switches off nodes that had no job for long enough, and computes the times for the others; call
 * it after everything else was recorded. */
void erg_simulator_switch_off(struct simulator *sim);

/* Outages by the times at which they begin and end. */
void erg_simulator_sort_outages(struct outages *outages, const struct erg_simulation *simulation);

/* The next failure or repair; INFINITY: none. */
double erg_simulator_next_outage(const struct simulator *sim);

/* Handles failures, which evict jobs, and repairs until now. */
void erg_simulator_pass_outages(struct simulator *sim);

#endif
