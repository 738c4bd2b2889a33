/*
 * The residual graph of the time-cost sweep (see timecost_internal.h): activities and
 * dependencies as arcs between events, and for every event one contiguous list of residual
 * half-arcs, so that the inner loop of the search reads 8 bytes per half-arc and 4 of the event
 * it leads to.
 */
#ifndef ERG_ITERATION_TIMECOST_GRAPH_INTERNAL_H
#define ERG_ITERATION_TIMECOST_GRAPH_INTERNAL_H

#include "iteration/timecost_events_internal.h"

/*
 * Times stay below 2^30, so nothing that matters is UNREACHED before an event's time, and an absent
 * half-arc leads to no later a time than that: the search's inner loop needs no test for absence.
 */
#define ABSENT_LENGTH INT32_MIN
#define UNREACHED (INT32_C(1) << 30)

/* Slack of a half-arc from u: time[head] - time[u] - length >= 0, always. */
struct half_arc {
    int32_t head;
    int32_t length; /* ABSENT_LENGTH: no residual capacity */
};

struct arc {
    struct timecost_moment end[2]; /* tail, head */
    int32_t half[2];               /* where its two half-arcs are */
    int32_t level, levels;
    const int32_t *duration; /* of the table, or the dependency's latency */
    const int64_t *slope;
    int64_t flow; /* slope[level] <= flow < slope[level + 1] */
};

struct timecost_graph {
    struct timecost_events events;
    int32_t arc_count, activity_count; /* activities, then the dependencies between two events */
    struct half_arc *halves;
    int32_t *half_id;    /* per half-arc: 2 * arc + (0 along the arc, 1 against it) */
    int32_t *first_half; /* events.count + 1 */
    struct arc *arcs;
};

/* Flow 0, every event at its earliest time with the slowest durations. */
void erg_timecost_graph_init(struct timecost_graph *graph, const struct timecost_problem *problem);
void erg_timecost_graph_release(struct timecost_graph *graph);

/* Moves `amount` over a half-arc and updates level and both lengths. */
void erg_timecost_graph_push(struct timecost_graph *graph, int32_t half, int64_t amount);

static inline int64_t timecost_half_capacity(const struct timecost_graph *graph, int32_t half)
{
    int32_t id = graph->half_id[half];
    const struct arc *arc = &graph->arcs[id >> 1];
    if (!(id & 1))
        return arc->slope[arc->level + 1] - arc->flow;
    int at_breakpoint = arc->flow == arc->slope[arc->level];
    return arc->flow - arc->slope[arc->level - at_breakpoint];
}

#endif
