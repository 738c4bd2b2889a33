/*
 * The next event of every job or node: a binary heap of times with at most one movable entry per
 * item. At equal times the item with the lower number comes first.
 */
#ifndef ERG_CLUSTER_SCHEDULE_EVENT_HEAP_INTERNAL_H
#define ERG_CLUSTER_SCHEDULE_EVENT_HEAP_INTERNAL_H

#include <stddef.h>

struct erg_event_heap {
    int *items; /* heap order */
    size_t count;
    double *time_s; /* by item */
    int *slot_of;   /* by item: its place in the heap; -1: none */
};

void erg_event_heap_init(struct erg_event_heap *heap, size_t items);
void erg_event_heap_release(struct erg_event_heap *heap);

/* Sets the time of an item's next event; INFINITY: it has none. */
void erg_event_heap_set(struct erg_event_heap *heap, int item, double time_s);

/* INFINITY when empty. */
double erg_event_heap_next(const struct erg_event_heap *heap);

/* Removes and returns the item of the next event; the heap must not be empty. */
int erg_event_heap_pop(struct erg_event_heap *heap);

#endif
