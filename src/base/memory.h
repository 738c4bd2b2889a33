/*
 * Memory: checked allocation, growable arrays and arenas.
 *
 * Where memory runs out, nothing here returns: it ends the library call that the calling thread
 * works for, which then fails (base/call.h); outside such a call it ends the process.
 */
#ifndef ERG_BASE_MEMORY_H
#define ERG_BASE_MEMORY_H

#include <stddef.h>

/*
 * The handler outside a library call, called by the thread whose `count` x `bytes` were refused. It
 * may end the process; if it returns, a message is printed and abort() called. Default: NULL, none.
 */
typedef void erg_memory_handler(size_t count, size_t bytes);
void erg_memory_set_handler(erg_memory_handler *to);

#ifdef __GNUC__
#define ERG_NEVER_NULL __attribute__((returns_nonnull))
#else
#define ERG_NEVER_NULL
#endif

void *erg_xmalloc(size_t bytes) ERG_NEVER_NULL;
/* Zeroed. Like realloc below it checks the product for overflow. */
void *erg_xcalloc(size_t count, size_t bytes) ERG_NEVER_NULL;
void *erg_xrealloc(void *old, size_t count, size_t bytes) ERG_NEVER_NULL;
char *erg_xstrdup(const char *text) ERG_NEVER_NULL;
/* A copy of `count` bytes, followed by a 0 byte. */
char *erg_xmemdup(const char *bytes, size_t count) ERG_NEVER_NULL;

/*
 * Growable arrays are plain structs { T *member; size_t count, capacity; }. ERG_PUSH appends one
 * item; ERG_RESERVE makes room for `extra` more. Both evaluate all but the item several times.
 */

/* The next capacity, at least `needed`. */
size_t erg_grow_capacity(size_t capacity, size_t needed);

#define ERG_RESERVE(array, member, extra)                                                          \
    do {                                                                                           \
        if ((array)->count + (extra) > (array)->capacity) {                                        \
            (array)->capacity = erg_grow_capacity((array)->capacity, (array)->count + (extra));    \
            (array)->member =                                                                      \
                erg_xrealloc((array)->member, (array)->capacity, sizeof *(array)->member);         \
        }                                                                                          \
    } while (0)

#define ERG_PUSH(array, member, ...)                                                               \
    do {                                                                                           \
        ERG_RESERVE(array, member, 1);                                                             \
        (array)->member[(array)->count++] = (__VA_ARGS__);                                         \
    } while (0)

/* Arena: many small allocations, freed together. All-zero is a valid empty arena. */
struct erg_arena {
    struct erg_arena_block *head;
};

void *erg_arena_alloc(struct erg_arena *arena, size_t bytes); /* zeroed, aligned for any type */
char *erg_arena_strdup(struct erg_arena *arena, const char *text);
char *erg_arena_printf(struct erg_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Frees all; the arena is empty and usable again. */
void erg_arena_release(struct erg_arena *arena);

#endif
