#include "cluster/schedule/event_heap_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void event_heap_init(struct event_heap *heap, size_t jobs)
{
    heap->count = 0;
    heap->jobs = erg_xcalloc(jobs, sizeof *heap->jobs);
    heap->time_s = erg_xcalloc(jobs, sizeof *heap->time_s);
    heap->slot_of = erg_xmalloc(jobs * sizeof *heap->slot_of);
    for (size_t i = 0; i < jobs; i++)
        heap->slot_of[i] = -1;
}

void event_heap_release(struct event_heap *heap)
{
    free(heap->jobs);
    free(heap->time_s);
    free(heap->slot_of);
}

static bool earlier(const struct event_heap *heap, int a, int b)
{
    return heap->time_s[a] < heap->time_s[b] || (heap->time_s[a] == heap->time_s[b] && a < b);
}

static void put(struct event_heap *heap, size_t slot, int job)
{
    heap->jobs[slot] = job;
    heap->slot_of[job] = (int)slot;
}

static void rise(struct event_heap *heap, size_t slot)
{
    int job = heap->jobs[slot];
    while (slot > 0 && earlier(heap, job, heap->jobs[(slot - 1) / 2])) {
        put(heap, slot, heap->jobs[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    put(heap, slot, job);
}

static void sink(struct event_heap *heap, size_t slot)
{
    int job = heap->jobs[slot];
    for (size_t child; (child = 2 * slot + 1) < heap->count; slot = child) {
        if (child + 1 < heap->count && earlier(heap, heap->jobs[child + 1], heap->jobs[child]))
            child++;
        if (!earlier(heap, heap->jobs[child], job))
            break;
        put(heap, slot, heap->jobs[child]);
    }
    put(heap, slot, job);
}

static void take_out(struct event_heap *heap, int job)
{
    size_t slot = (size_t)heap->slot_of[job];
    heap->slot_of[job] = -1;
    if (slot == --heap->count)
        return;
    put(heap, slot, heap->jobs[heap->count]);
    rise(heap, slot);
    sink(heap, (size_t)heap->slot_of[heap->jobs[slot]]);
}

void event_heap_set(struct event_heap *heap, int job, double time_s)
{
    if (isinf(time_s)) {
        if (heap->slot_of[job] >= 0)
            take_out(heap, job);
        return;
    }
    heap->time_s[job] = time_s;
    if (heap->slot_of[job] < 0)
        put(heap, heap->count++, job);
    rise(heap, (size_t)heap->slot_of[job]);
    sink(heap, (size_t)heap->slot_of[job]);
}

double event_heap_next(const struct event_heap *heap)
{
    return heap->count ? heap->time_s[heap->jobs[0]] : INFINITY;
}

int event_heap_pop(struct event_heap *heap)
{
    int job = heap->jobs[0];
    take_out(heap, job);
    return job;
}
