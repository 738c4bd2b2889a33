#include "iteration/timecost_graph_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Successors of every activity in one array, and the order of Kahn. */
struct topology {
    uint32_t *first, *dependency; /* dependency indices by `before` */
    uint32_t *order, *predecessors;
};

static void topology_init(struct topology *topology, const struct timecost_problem *problem)
{
    size_t n = problem->activity_count, m = problem->dependency_count;
    topology->first = erg_xcalloc(n + 2, sizeof *topology->first);
    topology->dependency = erg_xcalloc(m + 1, sizeof *topology->dependency);
    topology->order = erg_xcalloc(n + 1, sizeof *topology->order);
    topology->predecessors = erg_xcalloc(n + 1, sizeof *topology->predecessors);
    for (size_t d = 0; d < m; d++) {
        topology->first[problem->dependencies[d].before + 2]++;
        topology->predecessors[problem->dependencies[d].after]++;
    }
    for (size_t i = 2; i < n + 2; i++)
        topology->first[i] += topology->first[i - 1];
    for (size_t d = 0; d < m; d++)
        topology->dependency[topology->first[problem->dependencies[d].before + 1]++] = (uint32_t)d;

    uint32_t *waiting = erg_xcalloc(n + 1, sizeof *waiting);
    memcpy(waiting, topology->predecessors, n * sizeof *waiting);
    size_t done = 0;
    for (size_t i = 0; i < n; i++)
        if (!waiting[i])
            topology->order[done++] = (uint32_t)i;
    for (size_t next = 0; next < done; next++) {
        uint32_t i = topology->order[next];
        for (uint32_t k = topology->first[i]; k < topology->first[i + 1]; k++) {
            uint32_t after = problem->dependencies[topology->dependency[k]].after;
            if (!--waiting[after])
                topology->order[done++] = after;
        }
    }
    assert(done == n && "the dependencies form a cycle");
    free(waiting);
}

static void topology_release(struct topology *topology)
{
    free(topology->first);
    free(topology->dependency);
    free(topology->order);
    free(topology->predecessors);
}

/* Earliest starts; returns the longest path. */
static int64_t earliest_starts(const struct topology *topology,
                               const struct timecost_problem *problem, bool fastest, int64_t *start)
{
    int64_t end = 0;
    for (size_t next = 0; next < problem->activity_count; next++) {
        uint32_t i = topology->order[next];
        const struct timecost_table *table = problem->table[i];
        int64_t finish = start[i] + table->duration[fastest ? table->levels - 1 : 0];
        if (finish > end)
            end = finish;
        for (uint32_t k = topology->first[i]; k < topology->first[i + 1]; k++) {
            const struct timecost_arc *arc = &problem->dependencies[topology->dependency[k]];
            if (finish + arc->latency > start[arc->after])
                start[arc->after] = finish + arc->latency;
        }
    }
    return end;
}

int64_t timecost_longest_path(const struct timecost_problem *problem, int fastest)
{
    struct topology topology;
    topology_init(&topology, problem);
    int64_t *start = erg_xcalloc(problem->activity_count + 1, sizeof *start);
    int64_t end = earliest_starts(&topology, problem, fastest, start);
    free(start);
    topology_release(&topology);
    return end;
}

static int compare_keys(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (a[0] > b[0]) - (a[0] < b[0]);
}

/*
 * Numbers the events by (time, place in the topological order): neighbours in time are
 * neighbours in memory. number[2 * i] and number[2 * i + 1] are start and end of activity i.
 */
static void number_events(struct timecost_graph *graph, const struct topology *topology,
                          const struct timecost_problem *problem, const int64_t *start,
                          int32_t *number)
{
    size_t n = problem->activity_count;
    struct {
        uint64_t key; /* time << 32 | 2 * place + end */
        uint32_t event;
    } *keys = erg_xcalloc(2 * n + 1, sizeof *keys);
    for (size_t place = 0; place < n; place++) {
        uint32_t i = topology->order[place];
        for (uint32_t end = 0; end < 2; end++) {
            uint64_t time = (uint64_t)(start[i] + (end ? problem->table[i]->duration[0] : 0));
            keys[2 * place + end].key = time << 32 | (2 * place + end);
            keys[2 * place + end].event = 2 * i + end;
        }
    }
    qsort(keys, 2 * n, sizeof *keys, compare_keys);
    for (size_t k = 0; k < 2 * n; k++) {
        number[keys[k].event] = (int32_t)k + 1;
        graph->time[k + 1] = (int32_t)(keys[k].key >> 32);
    }
    free(keys);
}

static void add_arc(struct timecost_graph *graph, int32_t tail, int32_t head,
                    const int32_t *duration, const int64_t *slope, int32_t levels)
{
    graph->arcs[graph->arc_count++] =
        (struct arc){.end = {tail, head}, .levels = levels, .duration = duration, .slope = slope};
}

static void update_lengths(struct timecost_graph *graph, const struct arc *arc)
{
    graph->halves[arc->half[0]].length = arc->duration[arc->level];
    int at_breakpoint = arc->flow == arc->slope[arc->level];
    graph->halves[arc->half[1]].length =
        arc->flow ? -arc->duration[arc->level - at_breakpoint] : ABSENT_LENGTH;
}

static void pack_halves(struct timecost_graph *graph)
{
    size_t events = (size_t)graph->event_count, arcs = (size_t)graph->arc_count;
    graph->halves = erg_xcalloc(2 * arcs, sizeof *graph->halves);
    graph->half_id = erg_xcalloc(2 * arcs, sizeof *graph->half_id);
    graph->first_half = erg_xcalloc(events + 2, sizeof *graph->first_half);
    for (size_t a = 0; a < arcs; a++)
        for (int side = 0; side < 2; side++)
            graph->first_half[graph->arcs[a].end[side] + 2]++;
    for (size_t v = 2; v < events + 2; v++)
        graph->first_half[v] += graph->first_half[v - 1];
    for (size_t a = 0; a < arcs; a++) {
        struct arc *arc = &graph->arcs[a];
        for (int side = 0; side < 2; side++) {
            int32_t place = graph->first_half[arc->end[side] + 1]++;
            arc->half[side] = place;
            graph->halves[place].head = arc->end[!side];
            graph->half_id[place] = (int32_t)(2 * a) + side;
        }
        update_lengths(graph, arc);
    }
}

void timecost_graph_init(struct timecost_graph *graph, const struct timecost_problem *problem)
{
    static const int64_t no_slopes[] = {0, TIMECOST_INFINITE};
    static const int32_t no_latency = 0;
    size_t n = problem->activity_count, m = problem->dependency_count;
    struct topology topology;
    topology_init(&topology, problem);
    int64_t *start = erg_xcalloc(n + 1, sizeof *start);
    int64_t end = earliest_starts(&topology, problem, false, start);
    assert(end < (INT64_C(1) << 30) && 4 * n + m < INT32_MAX / 4);

    *graph = (struct timecost_graph){.event_count = (int32_t)(2 * n + 2),
                                     .activity_count = (int32_t)n,
                                     .sink = (int32_t)(2 * n + 1)};
    graph->time = erg_xcalloc(2 * n + 2, sizeof *graph->time);
    graph->arcs = erg_xcalloc(3 * n + m, sizeof *graph->arcs);
    graph->latencies = erg_xcalloc(m + 1, sizeof *graph->latencies);
    int32_t *number = erg_xcalloc(2 * n + 1, sizeof *number);
    number_events(graph, &topology, problem, start, number);
    graph->time[graph->sink] = (int32_t)end;

    for (size_t i = 0; i < n; i++)
        add_arc(graph, number[2 * i], number[2 * i + 1], problem->table[i]->duration,
                problem->table[i]->slope, problem->table[i]->levels);
    for (size_t d = 0; d < m; d++) {
        const struct timecost_arc *dependency = &problem->dependencies[d];
        graph->latencies[d] = dependency->latency;
        add_arc(graph, number[2 * dependency->before + 1], number[2 * dependency->after],
                &graph->latencies[d], no_slopes, 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (!topology.predecessors[i])
            add_arc(graph, graph->source, number[2 * i], &no_latency, no_slopes, 1);
        if (topology.first[i] == topology.first[i + 1])
            add_arc(graph, number[2 * i + 1], graph->sink, &no_latency, no_slopes, 1);
    }
    pack_halves(graph);
    free(number);
    free(start);
    topology_release(&topology);
}

void timecost_graph_release(struct timecost_graph *graph)
{
    free(graph->time);
    free(graph->halves);
    free(graph->half_id);
    free(graph->first_half);
    free(graph->arcs);
    free(graph->latencies);
    *graph = (struct timecost_graph){0};
}

void timecost_graph_push(struct timecost_graph *graph, int32_t half, int64_t amount)
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
