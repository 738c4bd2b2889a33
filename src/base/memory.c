/* Checked allocation and arenas. */
#include "base/memory.h"

#include "base/call.h"

#include <assert.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A process-wide setting, like the log's sink: set before any thread starts. */
static erg_memory_handler *handler;

void erg_memory_set_handler(erg_memory_handler *to)
{
    handler = to;
}

static void out_of_memory(size_t count, size_t bytes)
{
    erg_call_run_out(count, bytes);
    if (handler)
        handler(count, bytes);
    fprintf(stderr, "ergon: out of memory: could not allocate %zu x %zu bytes\n", count, bytes);
    abort();
}

void *erg_xmalloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        out_of_memory(1, bytes);
    return memory;
}

void *erg_xcalloc(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!memory)
        out_of_memory(count, bytes);
    return memory;
}

void *erg_xrealloc(void *old, size_t count, size_t bytes)
{
    if (bytes && count > SIZE_MAX / bytes)
        out_of_memory(count, bytes);
    size_t total = count * bytes;
    void *memory = realloc(old, total ? total : 1);
    if (!memory)
        out_of_memory(count, bytes);
    return memory;
}

char *erg_xstrdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(erg_xmalloc(bytes), text, bytes);
}

char *erg_xmemdup(const char *bytes, size_t count)
{
    char *copy = erg_xmalloc(count + 1);
    if (count)
        memcpy(copy, bytes, count);
    copy[count] = '\0';
    return copy;
}

size_t erg_grow_capacity(size_t capacity, size_t needed)
{
    size_t grown = capacity + capacity / 2 + 8;
    return grown < needed ? needed : grown;
}

struct erg_arena_block {
    struct erg_arena_block *next;
    size_t used, capacity;
    alignas(max_align_t) unsigned char bytes[];
};

enum { ARENA_BLOCK_BYTES = 16384 };

void *erg_arena_alloc(struct erg_arena *arena, size_t bytes)
{
    size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX - sizeof(struct erg_arena_block) - align)
        out_of_memory(1, bytes);
    size_t padded = (bytes + align - 1) / align * align;
    struct erg_arena_block *block = arena->head;
    if (!block || block->capacity - block->used < padded) {
        size_t capacity = padded > ARENA_BLOCK_BYTES ? padded : ARENA_BLOCK_BYTES;
        block = erg_xmalloc(sizeof *block + capacity);
        block->used = 0;
        block->capacity = capacity;
        block->next = arena->head;
        arena->head = block;
    }
    assert(block->used + padded <= block->capacity);
    void *memory = block->bytes + block->used;
    block->used += padded;
    return memset(memory, 0, padded);
}

char *erg_arena_strdup(struct erg_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(erg_arena_alloc(arena, bytes), text, bytes);
}

char *erg_arena_printf(struct erg_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t bytes = length < 0 ? 1 : (size_t)length + 1;
    char *text = erg_arena_alloc(arena, bytes);
    vsnprintf(text, bytes, format, again);
    va_end(again);
    return text;
}

void erg_arena_release(struct erg_arena *arena)
{
    while (arena->head) {
        struct erg_arena_block *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
}
