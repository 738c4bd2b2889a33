/* Events of the time-cost problem: merges the moments that always coincide. */
#include "iteration/timecost_events_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

/* Where starts and ends go, all numbered as moments are: with another one, or alone. */
struct joining {
    const struct timecost_topology *topology;
    const struct timecost_arc *dependencies;
    uint32_t *with;
    int32_t *offset;
    bool *met;
};

static uint32_t count_of(const struct timecost_neighbours *neighbours, uint32_t i)
{
    return neighbours->first[i + 1] - neighbours->first[i];
}

/* --- moments that are one event --- */

static bool waits_for(const struct joining *joining, uint32_t after, uint32_t before)
{
    const struct timecost_neighbours *all = &joining->topology->after;
    for (uint32_t k = all->first[before]; k < all->first[before + 1]; k++)
        if (joining->dependencies[all->list[k]].after == after)
            return true;
    return false;
}

/* Does all that waits for `a` wait for `b` too, and for `a` without latency? */
static bool share_followers(const struct joining *joining, uint32_t a, uint32_t b)
{
    const struct timecost_neighbours *all = &joining->topology->after;
    for (uint32_t k = all->first[a]; k < all->first[a + 1]; k++) {
        const struct timecost_arc *arc = &joining->dependencies[all->list[k]];
        if (arc->latency || !waits_for(joining, arc->after, b))
            return false;
    }
    return true;
}

/*
 * Whether all activities that wait for activity i wait for the same ends, without latency, and
 * those ends are followed by the same starts. Instructions have two neighbours, so this is cheap.
 */
static bool is_meeting(const struct joining *joining, uint32_t i)
{
    const struct timecost_topology *topology = joining->topology;
    for (uint32_t k = topology->after.first[i]; k < topology->after.first[i + 1]; k++) {
        uint32_t after = joining->dependencies[topology->after.list[k]].after;
        for (uint32_t l = topology->before.first[after]; l < topology->before.first[after + 1];
             l++) {
            uint32_t other = joining->dependencies[topology->before.list[l]].before;
            if (!share_followers(joining, other, i) || !share_followers(joining, i, other))
                return false;
        }
    }
    return true;
}

static void join(struct joining *joining, uint32_t moment, uint32_t with, int32_t offset)
{
    joining->with[moment] = with;
    joining->offset[moment] = offset;
}

/* All at one moment: where the first of the starts is. */
static void join_meeting(struct joining *joining, uint32_t i)
{
    const struct timecost_neighbours *after = &joining->topology->after;
    uint32_t first = UINT32_MAX;
    for (uint32_t k = after->first[i]; k < after->first[i + 1]; k++) {
        uint32_t start = 2 * joining->dependencies[after->list[k]].after;
        first = start < first ? start : first;
    }
    for (uint32_t k = after->first[i]; k < after->first[i + 1]; k++) {
        join(joining, 2 * joining->dependencies[after->list[k]].after, first, 0);
        joining->met[after->list[k]] = true;
    }
    join(joining, 2 * i + 1, first, 0);
}

/* Merges the end of activity i with the start of an activity that waits only for i, or the other
 * way round. */
static void join_pairs(struct joining *joining, uint32_t i)
{
    const struct timecost_neighbours *after = &joining->topology->after;
    for (uint32_t k = after->first[i]; k < after->first[i + 1]; k++) {
        uint32_t d = after->list[k], start = 2 * joining->dependencies[d].after, end = 2 * i + 1;
        int32_t latency = joining->dependencies[d].latency;
        joining->met[d] = true;
        if (count_of(&joining->topology->before, start / 2) == 1)
            join(joining, start, end, latency);
        else if (count_of(after, i) == 1)
            join(joining, end, start, -latency);
        else
            joining->met[d] = false;
    }
}

static void joining_init(struct joining *joining, const struct timecost_topology *topology)
{
    uint32_t n = (uint32_t)topology->problem->activity_count, source = 2 * n, sink = 2 * n + 1;
    *joining = (struct joining){
        .topology = topology,
        .dependencies = topology->problem->dependencies,
        .with = erg_xcalloc(2 * (size_t)n + 2, sizeof *joining->with),
        .offset = erg_xcalloc(2 * (size_t)n + 2, sizeof *joining->offset),
        .met = erg_xcalloc(topology->problem->dependency_count + 1, sizeof *joining->met)};
    for (uint32_t moment = 0; moment < 2 * n + 2; moment++)
        joining->with[moment] = moment;
    for (uint32_t i = 0; i < n; i++) {
        if (!count_of(&topology->before, i))
            join(joining, 2 * i, source, 0);
        if (!count_of(&topology->after, i))
            join(joining, 2 * i + 1, sink, 0);
        if (count_of(&topology->after, i) > 1 && is_meeting(joining, i))
            join_meeting(joining, i);
        else
            join_pairs(joining, i);
    }
}

/* --- numbers --- */

struct moment_key {
    uint64_t time; /* time << 32 | 2 * place in the topological order + (0 start, 1 end) */
    uint32_t moment;
};

static int compare_keys(const void *left, const void *right)
{
    const struct moment_key *a = left, *b = right;
    return (a->time > b->time) - (a->time < b->time);
}

/* Returns how many keys: one for each moment that others join or that is alone. */
static size_t sorted_keys(const struct joining *joining, const int64_t *start,
                          struct moment_key *keys)
{
    const struct timecost_topology *topology = joining->topology;
    size_t count = 0;
    for (size_t place = 0; place < topology->problem->activity_count; place++) {
        uint32_t i = topology->order[place];
        for (uint32_t end = 0; end < 2; end++) {
            if (joining->with[2 * i + end] != 2 * i + end)
                continue;
            int64_t time = start[i] + (end ? topology->problem->table[i]->duration[0] : 0);
            keys[count++] =
                (struct moment_key){(uint64_t)time << 32 | (2 * place + end), 2 * i + end};
        }
    }
    qsort(keys, count, sizeof *keys, compare_keys);
    return count;
}

void erg_timecost_events_init(struct timecost_events *events,
                              const struct timecost_problem *problem)
{
    size_t n = problem->activity_count;
    struct timecost_topology topology;
    erg_timecost_topology_init(&topology, problem);
    int64_t *start = erg_xcalloc(n + 1, sizeof *start);
    int64_t end = erg_timecost_earliest_starts(&topology, false, start);
    assert(end < (INT64_C(1) << 30) && 4 * n + problem->dependency_count < INT32_MAX / 4);
    struct joining joining;
    joining_init(&joining, &topology);
    struct moment_key *keys = erg_xcalloc(2 * n + 1, sizeof *keys);
    size_t count = sorted_keys(&joining, start, keys);

    *events = (struct timecost_events){.count = (int32_t)count + 2,
                                       .sink = (int32_t)count + 1,
                                       .time = erg_xcalloc(count + 2, sizeof *events->time),
                                       .moments = erg_xcalloc(2 * n + 2, sizeof *events->moments),
                                       .met = joining.met};
    events->moments[2 * n].event = events->source;
    events->moments[2 * n + 1].event = events->sink;
    for (size_t k = 0; k < count; k++) {
        events->moments[keys[k].moment].event = (int32_t)k + 1;
        events->time[k + 1] = (int32_t)(keys[k].time >> 32);
    }
    events->time[events->sink] = (int32_t)end;
    for (size_t moment = 0; moment < 2 * n; moment++)
        events->moments[moment] = (struct timecost_moment){
            events->moments[joining.with[moment]].event, joining.offset[moment]};
    free(keys);
    free(joining.with);
    free(joining.offset);
    free(start);
    erg_timecost_topology_release(&topology);
}

void erg_timecost_events_release(struct timecost_events *events)
{
    free(events->time);
    free(events->moments);
    free(events->met);
}
