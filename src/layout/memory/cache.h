/*
 * A caching allocator, emulated: it hands out addresses of a device that does not exist, as
 * PyTorch's does with max_split_size_mb:21 (c10/cuda/CUDACachingAllocator.cpp). Requests are
 * rounded to 512 B. Those up to 1 MiB are cut from segments of 2 MiB, those below 10 MiB from
 * segments of 20 MiB, larger ones get segments of their size in multiples of 2 MiB. The smallest
 * free block that fits serves a request, of equal ones that of the lowest address. Blocks of
 * 21 MiB and more are never cut and serve only requests that are also that large and less than
 * 20 MiB smaller. Streams share nothing. Nothing is ever given back to the device.
 */
#ifndef ERG_LAYOUT_MEMORY_CACHE_H
#define ERG_LAYOUT_MEMORY_CACHE_H

#include <stdint.h>

struct erg_memory_cache;

struct erg_memory_cache *erg_memory_cache_new(void);
void erg_memory_cache_free(struct erg_memory_cache *cache);

/* A block's number; *held is what it takes: the request, and what was not cut off. */
uint32_t erg_memory_cache_take(struct erg_memory_cache *cache, int stream, int64_t bytes,
                               int64_t *held);
void erg_memory_cache_give(struct erg_memory_cache *cache, uint32_t block);

/* All segments together. */
int64_t erg_memory_cache_reserved(const struct erg_memory_cache *cache);

#endif
