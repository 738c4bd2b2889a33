/* The topology of the time-cost problem: neighbours, earliest starts and the longest path. */
#include "iteration/timecost_events_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

static void neighbours_init(struct timecost_neighbours *neighbours,
                            const struct timecost_problem *problem, bool after)
{
    size_t n = problem->activity_count, m = problem->dependency_count;
    neighbours->first = erg_xcalloc(n + 2, sizeof *neighbours->first);
    neighbours->list = erg_xcalloc(m + 1, sizeof *neighbours->list);
    for (size_t d = 0; d < m; d++) {
        const struct timecost_arc *arc = &problem->dependencies[d];
        neighbours->first[(after ? arc->before : arc->after) + 2]++;
    }
    for (size_t i = 2; i < n + 2; i++)
        neighbours->first[i] += neighbours->first[i - 1];
    for (size_t d = 0; d < m; d++) {
        const struct timecost_arc *arc = &problem->dependencies[d];
        neighbours->list[neighbours->first[(after ? arc->before : arc->after) + 1]++] = (uint32_t)d;
    }
}

/* Kahn's order. */
void erg_timecost_topology_init(struct timecost_topology *topology,
                                const struct timecost_problem *problem)
{
    size_t n = problem->activity_count;
    topology->problem = problem;
    neighbours_init(&topology->after, problem, true);
    neighbours_init(&topology->before, problem, false);
    topology->order = erg_xcalloc(n + 1, sizeof *topology->order);
    uint32_t *waiting = erg_xcalloc(n + 1, sizeof *waiting);
    size_t done = 0;
    for (uint32_t i = 0; i < n; i++) {
        waiting[i] = topology->before.first[i + 1] - topology->before.first[i];
        if (!waiting[i])
            topology->order[done++] = i;
    }
    for (size_t next = 0; next < done; next++) {
        uint32_t i = topology->order[next];
        for (uint32_t k = topology->after.first[i]; k < topology->after.first[i + 1]; k++) {
            uint32_t after = problem->dependencies[topology->after.list[k]].after;
            if (!--waiting[after])
                topology->order[done++] = after;
        }
    }
    assert(done == n && "the dependencies form a cycle");
    free(waiting);
}

void erg_timecost_topology_release(struct timecost_topology *topology)
{
    free(topology->after.first);
    free(topology->after.list);
    free(topology->before.first);
    free(topology->before.list);
    free(topology->order);
}

int64_t erg_timecost_earliest_starts(const struct timecost_topology *topology, bool fastest,
                                     int64_t *start)
{
    const struct timecost_problem *problem = topology->problem;
    int64_t end = 0;
    for (size_t next = 0; next < problem->activity_count; next++) {
        uint32_t i = topology->order[next];
        const struct timecost_table *table = problem->table[i];
        int64_t finish = start[i] + table->duration[fastest ? table->levels - 1 : 0];
        if (finish > end)
            end = finish;
        for (uint32_t k = topology->after.first[i]; k < topology->after.first[i + 1]; k++) {
            const struct timecost_arc *arc = &problem->dependencies[topology->after.list[k]];
            if (finish + arc->latency > start[arc->after])
                start[arc->after] = finish + arc->latency;
        }
    }
    return end;
}

int64_t erg_timecost_longest_path(const struct timecost_problem *problem, int fastest)
{
    struct timecost_topology topology;
    erg_timecost_topology_init(&topology, problem);
    int64_t *start = erg_xcalloc(problem->activity_count + 1, sizeof *start);
    int64_t end = erg_timecost_earliest_starts(&topology, fastest, start);
    free(start);
    erg_timecost_topology_release(&topology);
    return end;
}
