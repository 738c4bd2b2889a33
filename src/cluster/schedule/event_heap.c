/* A binary heap of the next events of jobs or nodes. */
#include "cluster/schedule/event_heap_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void erg_event_heap_init(struct erg_event_heap *heap, size_t items)
{
    heap->count = 0;
    heap->items = erg_xcalloc(items, sizeof *heap->items);
    heap->time_s = erg_xcalloc(items, sizeof *heap->time_s);
    heap->slot_of = erg_xmalloc(items * sizeof *heap->slot_of);
    for (size_t i = 0; i < items; i++)
        heap->slot_of[i] = -1;
}

void erg_event_heap_release(struct erg_event_heap *heap)
{
    free(heap->items);
    free(heap->time_s);
    free(heap->slot_of);
}

static bool earlier(const struct erg_event_heap *heap, int a, int b)
{
    return heap->time_s[a] < heap->time_s[b] || (heap->time_s[a] == heap->time_s[b] && a < b);
}

static void put(struct erg_event_heap *heap, size_t slot, int item)
{
    heap->items[slot] = item;
    heap->slot_of[item] = (int)slot;
}

static void rise(struct erg_event_heap *heap, size_t slot)
{
    int item = heap->items[slot];
    while (slot > 0 && earlier(heap, item, heap->items[(slot - 1) / 2])) {
        put(heap, slot, heap->items[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    put(heap, slot, item);
}

static void sink(struct erg_event_heap *heap, size_t slot)
{
    int item = heap->items[slot];
    for (size_t child; (child = 2 * slot + 1) < heap->count; slot = child) {
        if (child + 1 < heap->count && earlier(heap, heap->items[child + 1], heap->items[child]))
            child++;
        if (!earlier(heap, heap->items[child], item))
            break;
        put(heap, slot, heap->items[child]);
    }
    put(heap, slot, item);
}

static void take_out(struct erg_event_heap *heap, int item)
{
    size_t slot = (size_t)heap->slot_of[item];
    heap->slot_of[item] = -1;
    if (slot == --heap->count)
        return;
    put(heap, slot, heap->items[heap->count]);
    rise(heap, slot);
    sink(heap, (size_t)heap->slot_of[heap->items[slot]]);
}

void erg_event_heap_set(struct erg_event_heap *heap, int item, double time_s)
{
    if (isinf(time_s)) {
        if (heap->slot_of[item] >= 0)
            take_out(heap, item);
        return;
    }
    heap->time_s[item] = time_s;
    if (heap->slot_of[item] < 0)
        put(heap, heap->count++, item);
    rise(heap, (size_t)heap->slot_of[item]);
    sink(heap, (size_t)heap->slot_of[item]);
}

double erg_event_heap_next(const struct erg_event_heap *heap)
{
    return heap->count ? heap->time_s[heap->items[0]] : INFINITY;
}

int erg_event_heap_pop(struct erg_event_heap *heap)
{
    int item = heap->items[0];
    take_out(heap, item);
    return item;
}
