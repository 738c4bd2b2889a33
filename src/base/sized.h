/*
 * Structs of the public headers that begin with `size_t size`: taken from callers, and given to
 * them, that were compiled against an older or a newer header (see the rule in ergon/watch.h).
 */
#ifndef ERG_BASE_SIZED_H
#define ERG_BASE_SIZED_H

#include "ergon/error.h"

#include <stddef.h>

/*
 * `own`, of `bytes`, holds the defaults; the members of a caller's struct replace them. `given`
 * NULL: nothing does. `name` is the struct's, for messages. ERG_USAGE where the size is invalid, or
 * a struct of a newer header uses members that this version does not know.
 */
int erg_sized_take(void *own, size_t bytes, const void *given, const char *name,
                   struct erg_error *err);

/* The result `own` as far as the caller's struct goes, whose size stays. */
int erg_sized_give(void *given, const void *own, size_t bytes, const char *name,
                   struct erg_error *err);

/* The same for structs that begin with `uint32_t size`: a size that is too small takes nothing. */
void erg_sized_give32(void *given, const void *own, size_t bytes);

#endif
