/*
 * The tensors of a simulation: the allocated bytes at each moment, by item, and the worst moment.
 * In the arena accounting every tensor takes its bytes. In the framework accounting, it emulates a
 * caching allocator with addresses of an imaginary device, as PyTorch's with max_split_size_mb:21
 * (c10/cuda/CUDACachingAllocator.cpp). Requests are rounded to 512 B. Those up to 1 MiB are cut
 * from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones get segments of
 * their size in multiples of 2 MiB. The smallest free block that fits serves a request, among equal
 * ones that with the lowest address. Blocks of 21 MiB and more are never split and serve only
 * requests that are also that large and less than 20 MiB smaller. Streams share no blocks. Memory
 * is never returned to the device.
 */
#ifndef ERG_LAYOUT_MEMORY_ALLOCATOR_H
#define ERG_LAYOUT_MEMORY_ALLOCATOR_H

#include "layout/memory/stage_memory.h"

#define ERG_MEMORY_NO_BLOCK UINT32_MAX

struct erg_memory_moment {
    int64_t total, items[ERG_MEMORY_ITEMS];
};

enum { ERG_MEMORY_STREAMS = 2 };

struct erg_memory_allocator {
    enum erg_memory_accounting accounting;
    struct erg_memory_moment now, worst; /* see erg_memory_worst() */
    bool is_worst;                       /* the items of worst are those of now */
    struct erg_memory_block {
        int64_t bytes,
            held; /* the tensor's bytes, and its allocated bytes; for a free block its size */
        int64_t address;
        uint32_t before, after; /* neighbours in its segment */
        enum erg_memory_item item;
        bool taken, small;
        uint8_t stream;
    } * blocks;
    size_t count, capacity;
    struct {
        uint32_t *items;
        size_t count, capacity;
    } spare; /* numbers of released blocks */
    /* Free blocks of one stream, small or large, by size, then address. */
    struct erg_memory_pool {
        uint32_t *items;
        size_t count, capacity;
    } pools[ERG_MEMORY_STREAMS][2];
    int64_t reserved; /* all segments together */
};

void erg_memory_allocator_release(struct erg_memory_allocator *memory);

/* A tensor of 0 bytes does not have a block. */
uint32_t erg_memory_take(struct erg_memory_allocator *memory, enum erg_memory_item item,
                         int64_t bytes, int stream);
/* Frees the block, if there is one, and clears the number. */
void erg_memory_give(struct erg_memory_allocator *memory, uint32_t *block);
/* The worst moment since the last erg_memory_begin_worst(). */
const struct erg_memory_moment *erg_memory_worst(struct erg_memory_allocator *memory);
void erg_memory_begin_worst(struct erg_memory_allocator *memory);
/* Counts the block as another item from now on. */
void erg_memory_relabel(struct erg_memory_allocator *memory, uint32_t block,
                        enum erg_memory_item item);

#endif
