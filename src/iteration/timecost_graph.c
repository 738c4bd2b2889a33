/* The flow network of the time-cost problem: arcs with lengths and capacities. */
#include "iteration/timecost_graph_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void add_arc(struct timecost_graph *graph, struct timecost_moment from,
                    struct timecost_moment to, const int32_t *duration, const int64_t *slope,
                    int32_t levels)
{
    graph->arcs[graph->arc_count++] =
        (struct arc){.end = {from, to}, .levels = levels, .duration = duration, .slope = slope};
}

static void update_lengths(struct timecost_graph *graph, const struct arc *arc)
{
    int32_t offset = arc->end[0].offset - arc->end[1].offset;
    graph->halves[arc->half[0]].length = offset + arc->duration[arc->level];
    int at_breakpoint = arc->flow == arc->slope[arc->level];
    graph->halves[arc->half[1]].length =
        arc->flow ? -offset - arc->duration[arc->level - at_breakpoint] : ABSENT_LENGTH;
}

static void pack_halves(struct timecost_graph *graph)
{
    size_t events = (size_t)graph->events.count, arcs = (size_t)graph->arc_count;
    graph->halves = erg_xcalloc(2 * arcs, sizeof *graph->halves);
    graph->half_id = erg_xcalloc(2 * arcs, sizeof *graph->half_id);
    graph->first_half = erg_xcalloc(events + 2, sizeof *graph->first_half);
    for (size_t a = 0; a < arcs; a++)
        for (int side = 0; side < 2; side++)
            graph->first_half[graph->arcs[a].end[side].event + 2]++;
    for (size_t v = 2; v < events + 2; v++)
        graph->first_half[v] += graph->first_half[v - 1];
    for (int side = 1; side >= 0; side--) /* those towards the sink come last */
        for (size_t a = 0; a < arcs; a++) {
            struct arc *arc = &graph->arcs[a];
            int32_t place = graph->first_half[arc->end[side].event + 1]++;
            arc->half[side] = place;
            graph->halves[place].head = arc->end[!side].event;
            graph->half_id[place] = (int32_t)(2 * a) + side;
        }
    for (size_t a = 0; a < arcs; a++)
        update_lengths(graph, &graph->arcs[a]);
}

void erg_timecost_graph_init(struct timecost_graph *graph, const struct timecost_problem *problem)
{
    static const int64_t no_slopes[] = {0, TIMECOST_INFINITE};
    size_t n = problem->activity_count, m = problem->dependency_count;
    *graph = (struct timecost_graph){.activity_count = (int32_t)n};
    erg_timecost_events_init(&graph->events, problem);
    graph->arcs = erg_xcalloc(n + m + 1, sizeof *graph->arcs);
    const struct timecost_moment *moments = graph->events.moments;
    for (size_t i = 0; i < n; i++)
        add_arc(graph, moments[2 * i], moments[2 * i + 1], problem->table[i]->duration,
                problem->table[i]->slope, problem->table[i]->levels);
    for (size_t d = 0; d < m; d++) {
        const struct timecost_arc *dependency = &problem->dependencies[d];
        if (!graph->events.met[d])
            add_arc(graph, moments[2 * (size_t)dependency->before + 1],
                    moments[2 * (size_t)dependency->after], &dependency->latency, no_slopes, 1);
    }
    pack_halves(graph);
}

void erg_timecost_graph_release(struct timecost_graph *graph)
{
    erg_timecost_events_release(&graph->events);
    free(graph->halves);
    free(graph->half_id);
    free(graph->first_half);
    free(graph->arcs);
    *graph = (struct timecost_graph){0};
}

void erg_timecost_graph_push(struct timecost_graph *graph, int32_t half, int64_t amount)
{
    int32_t id = graph->half_id[half];
    struct arc *arc = &graph->arcs[id >> 1];
    arc->flow += id & 1 ? -amount : amount;
    while (arc->flow >= arc->slope[arc->level + 1])
        arc->level++;
    while (arc->flow < arc->slope[arc->level])
        arc->level--;
    assert(arc->flow >= 0 && arc->level < arc->levels);
    update_lengths(graph, arc);
}
