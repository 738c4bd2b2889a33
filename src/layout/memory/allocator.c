/* The caching allocator's rules, and the sums of allocated bytes. */
#include "layout/memory/allocator.h"

#include "base/memory.h"
#include "layout/memory/memory_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE ERG_MEMORY_NO_BLOCK

enum { SMALL_SEGMENT = 2 << 20, LARGE_SEGMENT = 20 << 20, OWN_SEGMENT = 10 << 20, ROUND = 512 };

void erg_memory_allocator_release(struct erg_memory_allocator *memory)
{
    for (int stream = 0; stream < ERG_MEMORY_STREAMS; stream++)
        for (int small = 0; small < 2; small++)
            free(memory->pools[stream][small].items);
    free(memory->spare.items);
    free(memory->blocks);
    *memory = (struct erg_memory_allocator){0};
}

/* ---- pools ---- */

static struct erg_memory_pool *pool_of(struct erg_memory_allocator *memory, uint32_t block)
{
    return &memory->pools[memory->blocks[block].stream][memory->blocks[block].small];
}

/* The first index whose block is at least (size, address). */
static size_t pool_place(const struct erg_memory_allocator *memory,
                         const struct erg_memory_pool *pool, int64_t size, int64_t address)
{
    size_t low = 0, high = pool->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct erg_memory_block *block = &memory->blocks[pool->items[middle]];
        if (block->held < size || (block->held == size && block->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void pool_insert(struct erg_memory_allocator *memory, uint32_t block)
{
    struct erg_memory_pool *pool = pool_of(memory, block);
    size_t place =
        pool_place(memory, pool, memory->blocks[block].held, memory->blocks[block].address);
    ERG_PUSH(pool, items, block);
    memmove(pool->items + place + 1, pool->items + place,
            (pool->count - 1 - place) * sizeof *pool->items);
    pool->items[place] = block;
}

static void pool_remove(struct erg_memory_allocator *memory, uint32_t block)
{
    struct erg_memory_pool *pool = pool_of(memory, block);
    size_t place =
        pool_place(memory, pool, memory->blocks[block].held, memory->blocks[block].address);
    assert(pool->items[place] == block);
    pool->count--;
    memmove(pool->items + place, pool->items + place + 1,
            (pool->count - place) * sizeof *pool->items);
}

/* ---- blocks ---- */

/*
 * A new block, which the caller fills in place: copying whole blocks would take half of the time.
 */
static uint32_t new_block(struct erg_memory_allocator *memory)
{
    if (memory->spare.count)
        return memory->spare.items[--memory->spare.count];
    ERG_PUSH(memory, blocks, (struct erg_memory_block){0});
    return (uint32_t)memory->count - 1;
}

static int64_t segment_bytes(int64_t size)
{
    if (size <= ERG_CACHE_SMALL_BYTES)
        return SMALL_SEGMENT;
    if (size < OWN_SEGMENT)
        return LARGE_SEGMENT;
    return (size + ERG_CACHE_ROUND_BYTES - 1) / ERG_CACHE_ROUND_BYTES * ERG_CACHE_ROUND_BYTES;
}

/* The cached block that serves the request, or NONE. */
static uint32_t find_cached(struct erg_memory_allocator *memory, const struct erg_memory_pool *pool,
                            int64_t size)
{
    size_t place = pool_place(memory, pool, size, 0);
    if (place == pool->count)
        return NONE;
    const struct erg_memory_block *block = &memory->blocks[pool->items[place]];
    bool oversize = size >= ERG_CACHE_UNSPLIT_BYTES;
    if (!oversize && block->held >= ERG_CACHE_UNSPLIT_BYTES)
        return NONE;
    if (oversize && block->held >= size + ERG_CACHE_OVERSIZE_BYTES)
        return NONE;
    return pool->items[place];
}

/* Splits the bytes beyond `size` off, if the rules allow it. */
static void cut(struct erg_memory_allocator *memory, uint32_t number, int64_t size)
{
    bool small = memory->blocks[number].small;
    int64_t rest = memory->blocks[number].held - size;
    bool allowed =
        small ? rest >= ROUND : size < ERG_CACHE_UNSPLIT_BYTES && rest > ERG_CACHE_SMALL_BYTES;
    if (!allowed)
        return;
    uint32_t other = new_block(memory);
    struct erg_memory_block *block = &memory->blocks[number];
    memory->blocks[other] = (struct erg_memory_block){.held = rest,
                                                      .address = block->address + size,
                                                      .before = number,
                                                      .after = block->after,
                                                      .small = small,
                                                      .stream = block->stream};
    if (block->after != NONE)
        memory->blocks[block->after].before = other;
    block->after = other;
    block->held = size;
    pool_insert(memory, other);
}

/* Takes a block from the cache, or from a new segment. */
static uint32_t take_block(struct erg_memory_allocator *memory, int64_t bytes, int stream)
{
    int64_t size = bytes < ROUND ? ROUND : (bytes + ROUND - 1) / ROUND * ROUND;
    bool small = size <= ERG_CACHE_SMALL_BYTES;
    uint32_t number = find_cached(memory, &memory->pools[stream][small], size);
    if (number != NONE) {
        pool_remove(memory, number);
    } else {
        int64_t segment = segment_bytes(size);
        number = new_block(memory);
        memory->blocks[number] = (struct erg_memory_block){.held = segment,
                                                           .address = memory->reserved,
                                                           .before = NONE,
                                                           .after = NONE,
                                                           .small = small,
                                                           .stream = (uint8_t)stream};
        memory->reserved += segment;
    }
    cut(memory, number, size);
    return number;
}

/* Merges a free block into its free neighbour `from`, which follows it. */
static void merge(struct erg_memory_allocator *memory, uint32_t into, uint32_t from)
{
    struct erg_memory_block *block = &memory->blocks[into];
    block->held += memory->blocks[from].held;
    block->after = memory->blocks[from].after;
    if (block->after != NONE)
        memory->blocks[block->after].before = into;
    ERG_PUSH(&memory->spare, items, from);
}

/* Returns a block to the cache. */
static void give_block(struct erg_memory_allocator *memory, uint32_t number)
{
    uint32_t after = memory->blocks[number].after, before = memory->blocks[number].before;
    if (after != NONE && !memory->blocks[after].taken) {
        pool_remove(memory, after);
        merge(memory, number, after);
    }
    if (before != NONE && !memory->blocks[before].taken) {
        pool_remove(memory, before);
        merge(memory, before, number);
        number = before;
    }
    pool_insert(memory, number);
}

/* ---- the worst moment ---- */

/* Call it before memory is freed. */
static void keep_worst(struct erg_memory_allocator *memory)
{
    if (memory->is_worst)
        memory->worst = memory->now;
    memory->is_worst = false;
}

const struct erg_memory_moment *erg_memory_worst(struct erg_memory_allocator *memory)
{
    keep_worst(memory);
    return &memory->worst;
}

void erg_memory_begin_worst(struct erg_memory_allocator *memory)
{
    memory->worst = memory->now;
    memory->is_worst = false;
}

/* ---- tensors ---- */

uint32_t erg_memory_take(struct erg_memory_allocator *memory, enum erg_memory_item item,
                         int64_t bytes, int stream)
{
    if (bytes <= 0)
        return NONE;
    const bool cached = memory->accounting == ERG_MEMORY_FRAMEWORK;
    uint32_t number = cached ? take_block(memory, bytes, stream) : new_block(memory);
    struct erg_memory_block *block = &memory->blocks[number];
    if (!cached)
        block->held = bytes;
    block->taken = true;
    block->bytes = bytes;
    block->item = item;
    memory->now.items[item] += bytes;
    memory->now.items[ERG_MEMORY_ROUNDING] += block->held - bytes;
    memory->now.total += block->held;
    if (memory->now.total > memory->worst.total) {
        memory->worst.total = memory->now.total;
        memory->is_worst = true;
    }
    return number;
}

void erg_memory_give(struct erg_memory_allocator *memory, uint32_t *number)
{
    if (*number == NONE)
        return;
    struct erg_memory_block *block = &memory->blocks[*number];
    assert(block->taken);
    keep_worst(memory);
    block->taken = false;
    memory->now.items[block->item] -= block->bytes;
    memory->now.items[ERG_MEMORY_ROUNDING] -= block->held - block->bytes;
    memory->now.total -= block->held;
    if (memory->accounting == ERG_MEMORY_FRAMEWORK)
        give_block(memory, *number);
    else
        ERG_PUSH(&memory->spare, items, *number);
    *number = NONE;
}

void erg_memory_relabel(struct erg_memory_allocator *memory, uint32_t number,
                        enum erg_memory_item item)
{
    if (number == NONE)
        return;
    struct erg_memory_block *block = &memory->blocks[number];
    keep_worst(memory);
    memory->now.items[block->item] -= block->bytes;
    memory->now.items[item] += block->bytes;
    block->item = item;
}
