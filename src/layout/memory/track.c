#include "layout/memory/track.h"

#include "base/memory.h"

#include <stdlib.h>

void erg_memory_track_init(struct erg_memory_track *track, enum erg_memory_accounting accounting)
{
    *track = (struct erg_memory_track){0};
    if (accounting == ERG_MEMORY_FRAMEWORK)
        track->cache = erg_memory_cache_new();
}

void erg_memory_track_release(struct erg_memory_track *track)
{
    erg_memory_cache_free(track->cache);
    free(track->blocks);
    free(track->spare.items);
    *track = (struct erg_memory_track){0};
}

uint32_t erg_memory_take(struct erg_memory_track *track, enum erg_memory_item item, int64_t bytes,
                         int stream)
{
    if (bytes <= 0)
        return ERG_MEMORY_NO_BLOCK;
    struct erg_memory_tracked block = {.bytes = bytes, .held = bytes, .item = item};
    if (track->cache)
        block.number = erg_memory_cache_take(track->cache, stream, bytes, &block.held);
    uint32_t index;
    if (track->spare.count) {
        index = track->spare.items[--track->spare.count];
        track->blocks[index] = block;
    } else {
        index = (uint32_t)track->count;
        ERG_PUSH(track, blocks, block);
    }
    track->now.items[item] += bytes;
    track->now.items[ERG_MEMORY_ROUNDING] += block.held - bytes;
    track->now.total += block.held;
    if (track->now.total > track->worst.total)
        track->worst = track->now;
    return index;
}

void erg_memory_give(struct erg_memory_track *track, uint32_t *index)
{
    if (*index == ERG_MEMORY_NO_BLOCK)
        return;
    const struct erg_memory_tracked *block = &track->blocks[*index];
    track->now.items[block->item] -= block->bytes;
    track->now.items[ERG_MEMORY_ROUNDING] -= block->held - block->bytes;
    track->now.total -= block->held;
    if (track->cache)
        erg_memory_cache_give(track->cache, block->number);
    ERG_PUSH(&track->spare, items, *index);
    *index = ERG_MEMORY_NO_BLOCK;
}

void erg_memory_call(struct erg_memory_track *track, uint32_t index, enum erg_memory_item item)
{
    if (index == ERG_MEMORY_NO_BLOCK)
        return;
    struct erg_memory_tracked *block = &track->blocks[index];
    track->now.items[block->item] -= block->bytes;
    track->now.items[item] += block->bytes;
    block->item = item;
}
