/*
 * Starts and ends of activities as events of a time-cost problem, as few as there can be.
 *
 * An end that only one activity waits for can lie when that one starts (less the latency), and a
 * start that waits for one end only can lie with it: no other activity depends on either. Where
 * several ends and several starts all depend on each other without latency, as two by two in the
 * steady state of 1F1B, there is one moment for all of them. So an iteration of 1F1B without
 * latencies has an event for every two activities instead of two for each.
 */
#ifndef ERG_ITERATION_TIMECOST_EVENTS_INTERNAL_H
#define ERG_ITERATION_TIMECOST_EVENTS_INTERNAL_H

#include "iteration/timecost_internal.h"

#include <stdbool.h>

/* Dependencies by activity: those of activity i are list[first[i]] to list[first[i + 1] - 1]. */
struct timecost_neighbours {
    uint32_t *first, *list;
};

struct timecost_topology {
    const struct timecost_problem *problem;
    struct timecost_neighbours after, before; /* what waits for an activity; its predecessor */
    uint32_t *order;                          /* activities, each behind all that it waits for */
};

void erg_timecost_topology_init(struct timecost_topology *topology,
                                const struct timecost_problem *problem);
void erg_timecost_topology_release(struct timecost_topology *topology);

/* Earliest starts with all activities at their slowest or fastest; returns the longest path. */
int64_t erg_timecost_earliest_starts(const struct timecost_topology *topology, bool fastest,
                                     int64_t *start);

struct timecost_moment {
    int32_t event, offset; /* ticks after the event */
};

struct timecost_events {
    int32_t count;
    int32_t source, sink;            /* before all activities, after all */
    int32_t *time;                   /* earliest, with the slowest durations */
    struct timecost_moment *moments; /* 2 * i: the start of activity i; 2 * i + 1: its end */
    bool *met;                       /* per dependency: both its ends are one event */
};

/* Numbers the events by time: neighbours in time are neighbours in memory. */
void erg_timecost_events_init(struct timecost_events *events,
                              const struct timecost_problem *problem);
void erg_timecost_events_release(struct timecost_events *events);

#endif
