#include "layout/memory/cache.h"

#include "base/memory.h"
#include "layout/memory/memory_internal.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum {
    STREAMS = 2,
    SMALL_SEGMENT = 2 << 20,
    LARGE_SEGMENT = 20 << 20,
    OWN_SEGMENT = 10 << 20,
    ROUND = 512
};

struct block {
    int64_t size, address;
    uint32_t before, after; /* neighbours in its segment */
    bool taken, small;
    uint8_t stream;
};

/* Free blocks of one stream, small or large, by size, then address. */
struct pool {
    uint32_t *items;
    size_t count, capacity;
};

struct erg_memory_cache {
    struct block *items;
    size_t count, capacity;
    struct {
        uint32_t *items;
        size_t count, capacity;
    } spare; /* numbers of blocks that were merged into another */
    struct pool pools[STREAMS][2];
    int64_t reserved;
};

struct erg_memory_cache *erg_memory_cache_new(void)
{
    return erg_xcalloc(1, sizeof(struct erg_memory_cache));
}

void erg_memory_cache_free(struct erg_memory_cache *cache)
{
    if (!cache)
        return;
    for (int stream = 0; stream < STREAMS; stream++)
        for (int small = 0; small < 2; small++)
            free(cache->pools[stream][small].items);
    free(cache->spare.items);
    free(cache->items);
    free(cache);
}

int64_t erg_memory_cache_reserved(const struct erg_memory_cache *cache)
{
    return cache->reserved;
}

/* ---- pools ---- */

static struct pool *pool_of(struct erg_memory_cache *cache, uint32_t block)
{
    return &cache->pools[cache->items[block].stream][cache->items[block].small];
}

/* The first place whose block is at least (size, address). */
static size_t pool_place(const struct erg_memory_cache *cache, const struct pool *pool,
                         int64_t size, int64_t address)
{
    size_t low = 0, high = pool->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct block *block = &cache->items[pool->items[middle]];
        if (block->size < size || (block->size == size && block->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void pool_insert(struct erg_memory_cache *cache, uint32_t block)
{
    struct pool *pool = pool_of(cache, block);
    size_t place = pool_place(cache, pool, cache->items[block].size, cache->items[block].address);
    ERG_PUSH(pool, items, block);
    memmove(pool->items + place + 1, pool->items + place,
            (pool->count - 1 - place) * sizeof *pool->items);
    pool->items[place] = block;
}

static void pool_remove(struct erg_memory_cache *cache, uint32_t block)
{
    struct pool *pool = pool_of(cache, block);
    size_t place = pool_place(cache, pool, cache->items[block].size, cache->items[block].address);
    assert(pool->items[place] == block);
    pool->count--;
    memmove(pool->items + place, pool->items + place + 1,
            (pool->count - place) * sizeof *pool->items);
}

/* ---- blocks ---- */

static uint32_t new_block(struct erg_memory_cache *cache, struct block block)
{
    if (cache->spare.count) {
        uint32_t number = cache->spare.items[--cache->spare.count];
        cache->items[number] = block;
        return number;
    }
    ERG_PUSH(cache, items, block);
    return (uint32_t)cache->count - 1;
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
static uint32_t find_cached(struct erg_memory_cache *cache, const struct pool *pool, int64_t size)
{
    size_t place = pool_place(cache, pool, size, 0);
    if (place == pool->count)
        return NONE;
    const struct block *block = &cache->items[pool->items[place]];
    bool oversize = size >= ERG_CACHE_UNSPLIT_BYTES;
    if (!oversize && block->size >= ERG_CACHE_UNSPLIT_BYTES)
        return NONE;
    if (oversize && block->size >= size + ERG_CACHE_OVERSIZE_BYTES)
        return NONE;
    return pool->items[place];
}

/* Cuts what is more than `size` off the end, where the rules allow it. */
static void cut(struct erg_memory_cache *cache, uint32_t number, int64_t size)
{
    struct block block = cache->items[number];
    int64_t rest = block.size - size;
    bool allowed = block.small ? rest >= ROUND
                               : size < ERG_CACHE_UNSPLIT_BYTES && rest > ERG_CACHE_SMALL_BYTES;
    if (!allowed)
        return;
    uint32_t other = new_block(cache, (struct block){.size = rest,
                                                     .address = block.address + size,
                                                     .before = number,
                                                     .after = block.after,
                                                     .small = block.small,
                                                     .stream = block.stream});
    if (block.after != NONE)
        cache->items[block.after].before = other;
    cache->items[number].after = other;
    cache->items[number].size = size;
    pool_insert(cache, other);
}

uint32_t erg_memory_cache_take(struct erg_memory_cache *cache, int stream, int64_t bytes,
                               int64_t *held)
{
    int64_t size = bytes < ROUND ? ROUND : (bytes + ROUND - 1) / ROUND * ROUND;
    bool small = size <= ERG_CACHE_SMALL_BYTES;
    uint32_t number = find_cached(cache, &cache->pools[stream][small], size);
    if (number != NONE) {
        pool_remove(cache, number);
    } else {
        int64_t segment = segment_bytes(size);
        number = new_block(cache, (struct block){.size = segment,
                                                 .address = cache->reserved,
                                                 .before = NONE,
                                                 .after = NONE,
                                                 .small = small,
                                                 .stream = (uint8_t)stream});
        cache->reserved += segment;
    }
    cache->items[number].taken = true;
    cut(cache, number, size);
    *held = cache->items[number].size;
    return number;
}

/* Merges a free block into its free neighbour `from`, which follows it. */
static void merge(struct erg_memory_cache *cache, uint32_t into, uint32_t from)
{
    struct block *block = &cache->items[into];
    block->size += cache->items[from].size;
    block->after = cache->items[from].after;
    if (block->after != NONE)
        cache->items[block->after].before = into;
    ERG_PUSH(&cache->spare, items, from);
}

void erg_memory_cache_give(struct erg_memory_cache *cache, uint32_t number)
{
    assert(cache->items[number].taken);
    cache->items[number].taken = false;
    uint32_t after = cache->items[number].after, before = cache->items[number].before;
    if (after != NONE && !cache->items[after].taken) {
        pool_remove(cache, after);
        merge(cache, number, after);
    }
    if (before != NONE && !cache->items[before].taken) {
        pool_remove(cache, before);
        merge(cache, before, number);
        number = before;
    }
    pool_insert(cache, number);
}
