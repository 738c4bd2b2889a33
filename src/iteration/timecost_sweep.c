/* The exact time-cost sweep: cost against deadline by minimum-cost flow. */
#include "iteration/timecost_graph_internal.h"

#include "base/interrupt.h"
#include "base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Nothing finite comes near: a capacity this large has no further slope. */
#define ENDLESS (TIMECOST_INFINITE / 2)

struct waiting {
    int32_t distance, event;
};

struct bucket {
    struct waiting *entries;
    size_t count, capacity;
};

/*
 * Events that wait for their distance, by a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan, Journal of
 * the ACM 37, 1990): bucket b has the distances whose highest bit that differs from `now` is b. An
 * event that must wait is only appended, and nine of ten are overtaken before anyone looks at them
 * again.
 */
struct queue {
    struct bucket buckets[31];
    uint32_t filled; /* bit b: bucket b has entries */
    int32_t now;     /* the current distance */
};

/*
 * The search runs on times instead of distances: reached[v] is the time that v must keep when all
 * before it moves towards the source as far as it can; its distance is time[v] - reached[v].
 */
struct flow_sweep {
    struct timecost_graph graph;
    int32_t *reached;
    int32_t *parent; /* the event from which the search reached an event */
    int32_t *here;   /* events at the current distance */
    size_t here_count;
    struct queue queue;
    int32_t *path;           /* half-arcs */
    int32_t *hops, *current; /* blocking flow: breadth-first level, next half-arc to try */
    int64_t flow;            /* F */
    const struct timecost_problem *problem;
    int64_t *left; /* per activity: flow out of its end, then into its start, not yet reported */
};

static void wait_for(struct queue *queue, int32_t distance, int32_t event)
{
    int b = 31 - __builtin_clz((uint32_t)(distance ^ queue->now));
    assert(distance > queue->now);
    struct bucket *bucket = &queue->buckets[b];
    if (bucket->count == bucket->capacity) {
        bucket->capacity = erg_grow_capacity(bucket->capacity, bucket->count + 1);
        bucket->entries = erg_xrealloc(bucket->entries, bucket->capacity, sizeof *bucket->entries);
    }
    bucket->entries[bucket->count++] = (struct waiting){distance, event};
    queue->filled |= UINT32_C(1) << b;
}

static void forget_all(struct queue *queue)
{
    for (; queue->filled; queue->filled &= queue->filled - 1)
        queue->buckets[__builtin_ctz(queue->filled)].count = 0;
    queue->now = 0;
}

static bool is_overtaken(const struct flow_sweep *sweep, struct waiting waiting)
{
    int32_t v = waiting.event;
    return sweep->graph.events.time[v] - sweep->reached[v] != waiting.distance;
}

/* Makes the next distance the current one. */
static void next_distance(struct flow_sweep *sweep)
{
    struct queue *queue = &sweep->queue;
    sweep->here_count = 0;
    while (!sweep->here_count) {
        assert(queue->filled && "the sink is always reachable along forward half-arcs");
        struct bucket *bucket = &queue->buckets[__builtin_ctz(queue->filled)];
        queue->filled &= queue->filled - 1;
        int32_t least = INT32_MAX;
        size_t count = 0;
        for (size_t i = 0; i < bucket->count; i++) {
            struct waiting waiting = bucket->entries[i];
            if (is_overtaken(sweep, waiting))
                continue;
            bucket->entries[count++] = waiting;
            least = waiting.distance < least ? waiting.distance : least;
        }
        bucket->count = 0;
        if (count)
            queue->now = least;
        for (size_t i = 0; i < count; i++) {
            struct waiting waiting = bucket->entries[i];
            if (waiting.distance == least)
                sweep->here[sweep->here_count++] = waiting.event;
            else /* agrees with the least in this bucket's bit: goes to a bucket below */
                wait_for(queue, waiting.distance, waiting.event);
        }
    }
}

/* Settles the current distance, next the event that came first or the one that came last; true when
 * the sink is among it. */
static bool settle(struct flow_sweep *sweep, bool breadth_first)
{
    const struct timecost_graph *graph = &sweep->graph;
    const struct half_arc *halves = graph->halves;
    const int32_t *time = graph->events.time, distance = sweep->queue.now;
    int32_t *reached = sweep->reached, *parent = sweep->parent, *here = sweep->here;
    size_t head = 0, tail = sweep->here_count;
    while (head < tail) {
        int32_t u = breadth_first ? here[head++] : here[--tail], from = reached[u];
        if (u == graph->events.sink) {
            sweep->here_count = tail;
            return true;
        }
        for (int32_t h = graph->first_half[u]; h < graph->first_half[u + 1]; h++) {
            int32_t v = halves[h].head, at = from + halves[h].length;
            if (at <= reached[v]) /* always so for an absent half-arc */
                continue;
            reached[v] = at;
            parent[v] = u;
            if (time[v] - at > distance)
                wait_for(&sweep->queue, time[v] - at, v);
            else
                here[tail++] = v;
        }
    }
    return false;
}

/*
 * Dijkstra from the source with slacks as lengths, until the sink's distance is final; returns it.
 * Most steps have length zero. Every event not settled keeps a distance at or beyond the sink's, so
 * of the last distance a path to the sink is enough: depth first, towards the sink first, finds it
 * before the rest. At distance zero, levels are asked for (block()).
 */
static int32_t search(struct flow_sweep *sweep)
{
    const struct timecost_graph *graph = &sweep->graph;
    for (int32_t v = 0; v < graph->events.count; v++)
        sweep->reached[v] = graph->events.time[v] - UNREACHED;
    forget_all(&sweep->queue);
    sweep->reached[graph->events.source] = 0;
    sweep->here[0] = graph->events.source;
    sweep->here_count = 1;
    for (bool at_zero = true; !settle(sweep, at_zero); at_zero = false)
        next_distance(sweep);
    return sweep->queue.now;
}

/* The time of an event when the sink has moved by `step`, at most by the search's limit. */
static int32_t moved(const struct flow_sweep *sweep, int32_t v, int32_t step)
{
    int32_t at = sweep->graph.events.time[v] - step;
    return at > sweep->reached[v] ? at : sweep->reached[v];
}

/* Moves every event towards the source as far as the search allows. */
static void advance(struct flow_sweep *sweep, int32_t delta)
{
    for (int32_t v = 0; v < sweep->graph.events.count; v++)
        sweep->graph.events.time[v] = moved(sweep, v, delta);
}

/* Pushes as much as fits along the path by which the search reached the sink. */
static int64_t augment_path(struct flow_sweep *sweep)
{
    struct timecost_graph *graph = &sweep->graph;
    int64_t amount = TIMECOST_INFINITE;
    size_t count = 0;
    for (int32_t v = graph->events.sink, u; v != graph->events.source; v = u) {
        u = sweep->parent[v];
        int32_t h = graph->first_half[u], length = graph->events.time[v] - graph->events.time[u];
        while (graph->halves[h].head != v || graph->halves[h].length != length)
            h++;
        sweep->path[count++] = h;
        int64_t capacity = timecost_half_capacity(graph, h);
        amount = capacity < amount ? capacity : amount;
    }
    if (amount >= ENDLESS)
        return amount;
    for (size_t i = 0; i < count; i++)
        erg_timecost_graph_push(graph, sweep->path[i], amount);
    return amount;
}

/* Whether a unit may go from `u` to an event one level above it, along the half-arc whose other
 * half is `h`. */
static bool leads_up(const struct flow_sweep *sweep, int32_t u, int32_t h, int32_t v)
{
    const struct timecost_graph *graph = &sweep->graph;
    const int32_t *time = graph->events.time;
    if (sweep->reached[u] != time[u] || sweep->hops[u] != sweep->hops[v] - 1)
        return false;
    int32_t id = graph->half_id[h];
    int32_t other = graph->arcs[id >> 1].half[!(id & 1)];
    return graph->halves[other].length == time[v] - time[u];
}

/*
 * One path to the sink along the search's levels, as parents; false when there is none left. From
 * the sink back: every event of a level was reached from the one below, so only edges that were
 * saturated since are dead ends, while most events that the source reaches do not lead to the sink.
 */
static bool find_level_path(struct flow_sweep *sweep)
{
    const struct timecost_graph *graph = &sweep->graph;
    int32_t *above = sweep->path; /* the events on the way */
    size_t count = 0;
    int32_t v = graph->events.sink;
    while (v != graph->events.source) {
        int32_t h = sweep->current[v];
        while (h < graph->first_half[v + 1] && !leads_up(sweep, graph->halves[h].head, h, v))
            h++;
        sweep->current[v] = h;
        if (h < graph->first_half[v + 1]) {
            sweep->parent[v] = graph->halves[h].head;
            above[count++] = v;
            v = sweep->parent[v];
        } else { /* no path of this level graph goes through v any more */
            if (count == 0)
                return false;
            sweep->hops[v] = -1;
            v = above[--count];
        }
    }
    return true;
}

/*
 * Equal stages saturate together: many augmenting paths without any slack. A blocking flow (Dinic)
 * on the levels of a search that reached the sink at distance zero; false when the flow is
 * endless, which is the fastest schedule.
 */
static bool block(struct flow_sweep *sweep)
{
    const struct timecost_graph *graph = &sweep->graph;
    sweep->hops[graph->events.source] = 0;
    sweep->current[graph->events.source] = graph->first_half[graph->events.source];
    for (size_t i = 1; i < sweep->here_count; i++) {
        int32_t v = sweep->here[i];
        sweep->hops[v] = sweep->hops[sweep->parent[v]] + 1;
        sweep->current[v] = graph->first_half[v];
    }
    while (find_level_path(sweep)) {
        int64_t amount = augment_path(sweep);
        if (amount >= ENDLESS)
            return false;
        sweep->flow += amount;
    }
    return true;
}

/*
 * The flows of the activities, then of the dependencies. Where ends and starts met, all that leaves
 * an end serves some start: as much as both have left, one dependency after the other, is right.
 */
static void report_flows(const struct flow_sweep *sweep, int64_t *flow)
{
    const struct timecost_graph *graph = &sweep->graph;
    const struct timecost_problem *problem = sweep->problem;
    size_t activities = problem->activity_count, next = activities;
    int64_t *along = flow + activities, *out = sweep->left, *in = sweep->left + activities;
    for (size_t i = 0; i < activities; i++)
        flow[i] = out[i] = in[i] = graph->arcs[i].flow;
    for (int met = 0; met < 2; met++)
        for (size_t d = 0; d < problem->dependency_count; d++) {
            const struct timecost_arc *arc = &problem->dependencies[d];
            int64_t *from = &out[arc->before], *to = &in[arc->after];
            if (graph->events.met[d] != met)
                continue;
            along[d] = !met ? graph->arcs[next++].flow : *from < *to ? *from : *to;
            *from -= along[d];
            *to -= along[d];
        }
}

static void emit_plans(struct flow_sweep *sweep, struct timecost_visitor *visitor, int32_t delta,
                       struct timecost_plan *plan)
{
    const struct timecost_graph *graph = &sweep->graph;
    int32_t now = graph->events.time[graph->events.sink];
    while (visitor->deadline <= now && visitor->deadline >= (int64_t)now - delta) {
        int32_t step = now - (int32_t)visitor->deadline;
        for (int32_t i = 0; i < graph->activity_count; i++) {
            const struct arc *arc = &graph->arcs[i];
            int32_t at[2];
            for (int side = 0; side < 2; side++)
                at[side] = moved(sweep, arc->end[side].event, step) + arc->end[side].offset;
            int32_t room = at[1] - at[0];
            plan->start[i] = at[0];
            plan->duration[i] = room < arc->duration[0] ? room : arc->duration[0];
        }
        report_flows(sweep, plan->flow);
        int64_t done = visitor->deadline;
        visitor->plan(visitor, plan);
        assert(visitor->deadline < done);
        (void)done;
    }
}

static int run(struct flow_sweep *sweep, struct timecost_visitor *visitor,
               struct timecost_plan *plan, struct erg_error *err)
{
    struct timecost_graph *graph = &sweep->graph;
    for (size_t phase = 0;; phase++) {
        if (phase % 64 == 0 && erg_interrupt_check(err) != 0)
            return -1;
        int32_t delta = search(sweep);
        if (delta == 0) {
            if (!block(sweep))
                break;
            continue;
        }
        int32_t now = graph->events.time[graph->events.sink];
        visitor->piece(visitor, now, now - delta, sweep->flow);
        emit_plans(sweep, visitor, delta, plan);
        if (visitor->enough)
            return 0;
        advance(sweep, delta);
        int64_t amount = augment_path(sweep);
        if (amount >= ENDLESS)
            break;
        sweep->flow += amount;
    }
    emit_plans(sweep, visitor, 0, plan); /* where not even one piece was there */
    return 0;
}

int erg_timecost_sweep(const struct timecost_problem *problem, struct timecost_visitor *visitor,
                       struct erg_error *err)
{
    struct flow_sweep sweep = {.problem = problem};
    erg_timecost_graph_init(&sweep.graph, problem);
    size_t events = (size_t)sweep.graph.events.count, activities = problem->activity_count;
    sweep.reached = erg_xcalloc(events, sizeof *sweep.reached);
    sweep.parent = erg_xcalloc(events, sizeof *sweep.parent);
    sweep.here = erg_xcalloc(events, sizeof *sweep.here);
    sweep.path = erg_xcalloc(events, sizeof *sweep.path);
    sweep.hops = erg_xcalloc(events, sizeof *sweep.hops);
    sweep.current = erg_xcalloc(events, sizeof *sweep.current);
    sweep.left = erg_xcalloc(2 * activities + 1, sizeof *sweep.left);
    struct timecost_plan plan = erg_timecost_plan_new(problem);
    int result = run(&sweep, visitor, &plan, err);
    erg_timecost_plan_free(&plan);
    free(sweep.left);
    free(sweep.current);
    free(sweep.hops);
    free(sweep.path);
    free(sweep.here);
    free(sweep.parent);
    free(sweep.reached);
    for (size_t b = 0; b < sizeof sweep.queue.buckets / sizeof *sweep.queue.buckets; b++)
        free(sweep.queue.buckets[b].entries);
    erg_timecost_graph_release(&sweep.graph);
    return result;
}

/* --- plans --- */

static size_t flow_count(const struct timecost_problem *problem)
{
    return problem->activity_count + problem->dependency_count;
}

struct timecost_plan erg_timecost_plan_new(const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = flow_count(problem);
    struct timecost_plan plan = {.start = erg_xcalloc(2 * activities + 1, sizeof *plan.start),
                                 .flow = erg_xcalloc(flows + 1, sizeof *plan.flow)};
    plan.duration = plan.start + activities;
    return plan;
}

size_t erg_timecost_plan_bytes(const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = flow_count(problem);
    return 2 * activities * sizeof(int32_t) + flows * sizeof(int64_t);
}

void erg_timecost_plan_copy(struct timecost_plan *to, const struct timecost_plan *from,
                            const struct timecost_problem *problem)
{
    size_t activities = problem->activity_count, flows = flow_count(problem);
    memcpy(to->start, from->start, activities * sizeof *to->start);
    memcpy(to->duration, from->duration, activities * sizeof *to->duration);
    memcpy(to->flow, from->flow, flows * sizeof *to->flow);
}

void erg_timecost_plan_free(struct timecost_plan *plan)
{
    free(plan->start);
    free(plan->flow);
}
