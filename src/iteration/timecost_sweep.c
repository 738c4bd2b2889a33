#include "iteration/timecost_graph_internal.h"

#include "base/interrupt.h"
#include "base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Nothing finite comes near: a capacity this large has no further slope. */
#define ENDLESS (TIMECOST_INFINITE / 2)

struct sweep {
    struct timecost_graph graph;
    int32_t *parent; /* the half-arc by which the search reached an event */
    int32_t *fifo;   /* events at the current distance */
    uint64_t *heap;  /* distance << 32 | event; entries may be out of date */
    size_t heap_count, heap_capacity;
    int32_t *hops, *current; /* blocking flow: breadth-first level, next half-arc to try */
    int64_t flow;            /* F */
    size_t reported_arcs;    /* the activities, then the dependencies */
};

static void heap_push(struct sweep *sweep, uint64_t key)
{
    if (sweep->heap_count == sweep->heap_capacity) {
        sweep->heap_capacity = erg_grow_capacity(sweep->heap_capacity, sweep->heap_count + 1);
        sweep->heap = erg_xrealloc(sweep->heap, sweep->heap_capacity, sizeof *sweep->heap);
    }
    size_t hole = sweep->heap_count++;
    while (hole && sweep->heap[(hole - 1) / 2] > key) {
        sweep->heap[hole] = sweep->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    sweep->heap[hole] = key;
}

static uint64_t heap_pop(struct sweep *sweep)
{
    uint64_t least = sweep->heap[0], last = sweep->heap[--sweep->heap_count];
    size_t hole = 0, count = sweep->heap_count;
    for (;;) {
        size_t child = 2 * hole + 1;
        if (child >= count)
            break;
        child += child + 1 < count && sweep->heap[child + 1] < sweep->heap[child];
        if (sweep->heap[child] >= last)
            break;
        sweep->heap[hole] = sweep->heap[child];
        hole = child;
    }
    sweep->heap[hole] = last;
    return least;
}

/*
 * Dijkstra from the source with slacks as lengths, until the sink's distance is final; returns it.
 * Most steps have length zero: they go through a plain queue, only the others through the heap.
 * Every event not settled keeps a distance at or beyond the sink's.
 */
static int32_t search(struct sweep *sweep)
{
    struct timecost_graph *graph = &sweep->graph;
    struct event *events = graph->events;
    const struct half_arc *halves = graph->halves;
    int32_t *parent = sweep->parent, *fifo = sweep->fifo;
    const int32_t sink = graph->sink;
    size_t head = 0, tail = 0;
    int32_t distance = 0;
    sweep->heap_count = 0;
    events[graph->source].distance = 0;
    fifo[tail++] = graph->source;
    for (;;) {
        while (head < tail) {
            int32_t u = fifo[head++];
            int64_t base = (int64_t)distance - events[u].time;
            for (int32_t h = graph->first_half[u]; h < graph->first_half[u + 1]; h++) {
                int32_t v = halves[h].head;
                int64_t reached = base + events[v].time - halves[h].length;
                /* Never true for an absent half-arc. */
                if (reached >= events[v].distance)
                    continue;
                events[v].distance = (int32_t)reached;
                parent[v] = h;
                if (reached > distance) {
                    heap_push(sweep, (uint64_t)reached << 32 | (uint32_t)v);
                } else {
                    if (v == sink)
                        return distance;
                    fifo[tail++] = v;
                }
            }
        }
        /* The next distance: all its events enter the queue together. */
        assert(sweep->heap_count && "the sink is always reachable along forward half-arcs");
        head = tail = 0;
        while (sweep->heap_count) {
            int32_t next = (int32_t)(sweep->heap[0] >> 32);
            if (tail && next > distance)
                break;
            int32_t v = (int32_t)(uint32_t)heap_pop(sweep);
            if (events[v].distance != next)
                continue;
            if (v == sink)
                return next;
            distance = next;
            fifo[tail++] = v;
        }
    }
}

/* Moves every event towards the source by what the search allows and forgets the search. */
static void advance(struct timecost_graph *graph, int32_t delta)
{
    for (int32_t v = 0; v < graph->event_count; v++) {
        struct event *event = &graph->events[v];
        event->time -= event->distance < delta ? event->distance : delta;
        event->distance = UNREACHED;
    }
}

/* Pushes as much as fits along the path by which the search reached the sink. */
static int64_t augment_path(struct sweep *sweep)
{
    struct timecost_graph *graph = &sweep->graph;
    int64_t amount = TIMECOST_INFINITE;
    for (int32_t v = graph->sink; v != graph->source;
         v = timecost_half_tail(graph, sweep->parent[v])) {
        int64_t capacity = timecost_half_capacity(graph, sweep->parent[v]);
        amount = capacity < amount ? capacity : amount;
    }
    if (amount >= ENDLESS)
        return amount;
    for (int32_t v = graph->sink; v != graph->source;
         v = timecost_half_tail(graph, sweep->parent[v]))
        timecost_graph_push(graph, sweep->parent[v], amount);
    return amount;
}

static bool is_tight(const struct timecost_graph *graph, int32_t u, const struct half_arc *half)
{
    return half->length != ABSENT_LENGTH &&
           graph->events[half->head].time - graph->events[u].time == half->length;
}

/* Breadth-first levels over half-arcs without slack; false when the sink is cut off. */
static bool find_levels(struct sweep *sweep)
{
    struct timecost_graph *graph = &sweep->graph;
    for (int32_t v = 0; v < graph->event_count; v++) {
        sweep->hops[v] = -1;
        sweep->current[v] = graph->first_half[v];
    }
    size_t head = 0, tail = 0;
    sweep->hops[graph->source] = 0;
    sweep->fifo[tail++] = graph->source;
    while (head < tail) {
        int32_t u = sweep->fifo[head++];
        for (int32_t h = graph->first_half[u]; h < graph->first_half[u + 1]; h++) {
            int32_t v = graph->halves[h].head;
            if (sweep->hops[v] >= 0 || !is_tight(graph, u, &graph->halves[h]))
                continue;
            sweep->hops[v] = sweep->hops[u] + 1;
            if (v == graph->sink)
                return true;
            sweep->fifo[tail++] = v;
        }
    }
    return false;
}

/* One path to the sink along the levels, as parents; false when there is none left. */
static bool find_level_path(struct sweep *sweep)
{
    struct timecost_graph *graph = &sweep->graph;
    int32_t u = graph->source;
    while (u != graph->sink) {
        int32_t h = sweep->current[u];
        for (; h < graph->first_half[u + 1]; h++)
            if (sweep->hops[graph->halves[h].head] == sweep->hops[u] + 1 &&
                is_tight(graph, u, &graph->halves[h]))
                break;
        sweep->current[u] = h;
        if (h < graph->first_half[u + 1]) {
            sweep->parent[graph->halves[h].head] = h;
            u = graph->halves[h].head;
        } else { /* a dead end: no path of this level graph goes through u any more */
            if (u == graph->source)
                return false;
            sweep->hops[u] = -1;
            u = timecost_half_tail(graph, sweep->parent[u]);
        }
    }
    return true;
}

/*
 * Equal stages saturate together: many augmenting paths without any slack. Blocking flows
 * (Dinic) until the sink is cut off; false when the flow is endless, which is the fastest
 * schedule.
 */
static bool saturate(struct sweep *sweep)
{
    while (find_levels(sweep))
        while (find_level_path(sweep)) {
            int64_t amount = augment_path(sweep);
            if (amount >= ENDLESS)
                return false;
            sweep->flow += amount;
        }
    return true;
}

static void emit_plans(struct sweep *sweep, struct timecost_visitor *visitor, int32_t delta,
                       int32_t *start, int32_t *duration, int64_t *flow)
{
    const struct timecost_graph *graph = &sweep->graph;
    int32_t now = graph->events[graph->sink].time;
    while (visitor->deadline <= now && visitor->deadline >= (int64_t)now - delta) {
        int32_t step = now - (int32_t)visitor->deadline;
        for (int32_t i = 0; i < graph->activity_count; i++) {
            const struct arc *arc = &graph->arcs[i];
            int32_t at[2];
            for (int side = 0; side < 2; side++) {
                const struct event *event = &graph->events[arc->end[side]];
                at[side] = event->time - (event->distance < step ? event->distance : step);
            }
            start[i] = at[0];
            duration[i] = at[1] - at[0] < arc->duration[0] ? at[1] - at[0] : arc->duration[0];
        }
        for (size_t a = 0; a < sweep->reported_arcs; a++)
            flow[a] = graph->arcs[a].flow;
        int64_t done = visitor->deadline;
        visitor->plan(visitor, start, duration, flow);
        assert(visitor->deadline < done);
        (void)done;
    }
}

static int run(struct sweep *sweep, struct timecost_visitor *visitor, int32_t *start,
               int32_t *duration, int64_t *flow, struct erg_error *err)
{
    struct timecost_graph *graph = &sweep->graph;
    for (size_t phase = 0;; phase++) {
        if (phase % 64 == 0 && erg_interrupt_check(err) != 0)
            return -1;
        int32_t delta = search(sweep);
        if (delta == 0) {
            advance(graph, 0);
            if (!saturate(sweep))
                break;
            continue;
        }
        int32_t now = graph->events[graph->sink].time;
        visitor->piece(visitor, now, now - delta, sweep->flow);
        emit_plans(sweep, visitor, delta, start, duration, flow);
        advance(graph, delta);
        int64_t amount = augment_path(sweep);
        if (amount >= ENDLESS)
            break;
        sweep->flow += amount;
    }
    emit_plans(sweep, visitor, 0, start, duration, flow); /* where not even one piece was there */
    return 0;
}

int timecost_sweep(const struct timecost_problem *problem, struct timecost_visitor *visitor,
                   struct erg_error *err)
{
    struct sweep sweep = {0};
    timecost_graph_init(&sweep.graph, problem);
    size_t events = (size_t)sweep.graph.event_count, activities = problem->activity_count;
    sweep.parent = erg_xcalloc(events, sizeof *sweep.parent);
    sweep.fifo = erg_xcalloc(events, sizeof *sweep.fifo);
    sweep.hops = erg_xcalloc(events, sizeof *sweep.hops);
    sweep.current = erg_xcalloc(events, sizeof *sweep.current);
    int32_t *start = erg_xcalloc(2 * activities + 1, sizeof *start);
    sweep.reported_arcs = activities + problem->dependency_count;
    int64_t *flow = erg_xcalloc(sweep.reported_arcs + 1, sizeof *flow);
    int result = run(&sweep, visitor, start, start + activities, flow, err);
    free(flow);
    free(start);
    free(sweep.current);
    free(sweep.hops);
    free(sweep.fifo);
    free(sweep.heap);
    free(sweep.parent);
    timecost_graph_release(&sweep.graph);
    return result;
}
