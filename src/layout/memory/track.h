/* What is allocated at each moment of a simulation, by item, and the worst moment. */
#ifndef ERG_LAYOUT_MEMORY_TRACK_H
#define ERG_LAYOUT_MEMORY_TRACK_H

#include "layout/memory/cache.h"
#include "layout/memory/memory.h"

#define ERG_MEMORY_NO_BLOCK UINT32_MAX

struct erg_memory_moment {
    int64_t total, items[ERG_MEMORY_ITEMS];
};

struct erg_memory_track {
    struct erg_memory_cache *cache; /* NULL: every tensor takes its bytes */
    struct erg_memory_tracked {
        int64_t bytes, held;
        uint32_t number; /* in the cache */
        enum erg_memory_item item;
    } * blocks;
    size_t count, capacity;
    struct {
        uint32_t *items;
        size_t count, capacity;
    } spare;
    struct erg_memory_moment now, worst; /* worst: since it was last set to now */
};

void erg_memory_track_init(struct erg_memory_track *track, enum erg_memory_accounting accounting);
void erg_memory_track_release(struct erg_memory_track *track);

/* A tensor of no bytes has no block. Streams are 0 and 1. */
uint32_t erg_memory_take(struct erg_memory_track *track, enum erg_memory_item item, int64_t bytes,
                         int stream);
/* Frees the block, if it is one, and forgets it. */
void erg_memory_give(struct erg_memory_track *track, uint32_t *block);
/* From now on it counts as another item. */
void erg_memory_call(struct erg_memory_track *track, uint32_t block, enum erg_memory_item item);

#endif
