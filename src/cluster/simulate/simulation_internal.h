/*
 * The simulator's insides; shared by the files of simulate/ only.
 */
#ifndef ERG_CLUSTER_SIMULATE_INTERNAL_H
#define ERG_CLUSTER_SIMULATE_INTERNAL_H

#include "cluster/schedule/event_heap_internal.h"
#include "cluster/schedule/scheduler_internal.h"
#include "cluster/schedule/throttle.h"
#include "cluster/simulate/cluster_meter_internal.h"
#include "cluster/simulate/simulation.h"

/* A node's outage that has begun or is to begin. */
struct outages {
    const struct erg_outage **begins, **ends; /* by from_s and by to_s */
    size_t begun, ended;
};

struct simulator {
    const struct erg_simulation *simulation;
    struct erg_scheduler *scheduler;
    struct meter meter;
    struct erg_event_heap heap;      /* by job */
    struct erg_event_heap switching; /* by node: when it will be switched off */
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

/* Notes an event, where events are kept. */
void erg_simulator_record(struct simulator *sim, enum erg_record_kind kind, int job, int node);

/* Finds out when a job will next do something by itself. */
void erg_simulator_refresh(struct simulator *sim, int id);

/* A job is not served, for good. */
void erg_simulator_note_unserved(struct simulator *sim, int job, enum erg_unserved_fate fate);

/* The same of a job that its policy turned away, if it cannot run on the GPUs that it asked for; of
 * one that may simply have come too late nothing is said. */
void erg_simulator_note_rejected(struct simulator *sim, int job);

/* The same of jobs that wait at the end and will for ever. */
void erg_simulator_note_waiting(struct simulator *sim);

/* Books what became of all jobs since the last time; fails where one was put where it cannot run.
 */
int erg_simulator_book(struct simulator *sim, struct erg_error *err);

/* The pace of a running job that stays on its GPUs is another from now on. */
void erg_simulator_pace(struct simulator *sim, int job);

/* Slows down to keep the power cap; call it when everything else was recorded. */
void erg_simulator_throttle(struct simulator *sim);

/* Wakes nodes that are off and have jobs. */
void erg_simulator_wake_nodes(struct simulator *sim);

/* Switches off nodes that no job has had for long enough, and finds out when that will be of
 * others; call it when everything else was recorded. */
void erg_simulator_switch_off(struct simulator *sim);

/* Outages by the times at which they begin and end. */
void erg_simulator_sort_outages(struct outages *outages, const struct erg_simulation *simulation);

/* When a node next fails or comes back; INFINITY: never. */
double erg_simulator_next_outage(const struct simulator *sim);

/* Failures, which evict jobs, and repairs until now. */
void erg_simulator_pass_outages(struct simulator *sim);

#endif
