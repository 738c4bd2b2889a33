/*
 * Structs of the public headers that begin with `size_t size`: taken from callers, and given to
 * them, that were compiled against an older or a newer header (ergon/watch.h says the rule).
 */
#ifndef ERG_BASE_SIZED_H
#define ERG_BASE_SIZED_H

#include "ergon/error.h"

#include <stddef.h>

/*
 * `own`, of `bytes`, holds the defaults; what a caller's struct has comes in their place. `given`
 * NULL: nothing does. `name` is the struct's, for messages. ERG_USAGE where the size is none, or a
 * struct of a newer header asks for what is not known here.
 */
int erg_sized_take(void *own, size_t bytes, const void *given, const char *name,
                   struct erg_error *err);

/* The result `own` as far as the caller's struct goes, whose size stays. */
int erg_sized_give(void *given, const void *own, size_t bytes, const char *name,
                   struct erg_error *err);

#endif
