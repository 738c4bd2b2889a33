/* Structs with a size, between this library and programs of other days. */
#include "base/sized.h"

#include <stdint.h>
#include <string.h>

static int read_size(size_t *size, const void *given, const char *name, struct erg_error *err)
{
    memcpy(size, given, sizeof *size);
    if (*size >= sizeof *size)
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "struct %s: its size is %zu; expected sizeof(struct %s), set by the caller",
                    name, *size, name);
}

int erg_sized_take(void *own, size_t bytes, const void *given, const char *name,
                   struct erg_error *err)
{
    size_t size;
    if (!given)
        return 0;
    if (read_size(&size, given, name, err) != 0)
        return -1;
    for (size_t i = bytes; i < size; i++)
        if (((const unsigned char *)given)[i])
            return erg_fail(err, ERG_USAGE,
                            "struct %s: byte %zu of %zu is set, but this library supports %zu "
                            "bytes; expected a library as new as the header of the program",
                            name, i, size, bytes);
    memcpy(own, given, size < bytes ? size : bytes);
    memcpy(own, &bytes, sizeof bytes);
    return 0;
}

int erg_sized_give(void *given, const void *own, size_t bytes, const char *name,
                   struct erg_error *err)
{
    size_t size;
    if (read_size(&size, given, name, err) != 0)
        return -1;
    const size_t known = size < bytes ? size : bytes;
    memcpy((char *)given + sizeof size, (const char *)own + sizeof size, known - sizeof size);
    return 0;
}

void erg_sized_give32(void *given, const void *own, size_t bytes)
{
    uint32_t size;
    memcpy(&size, given, sizeof size);
    if (size > sizeof size)
        memcpy((char *)given + sizeof size, (const char *)own + sizeof size,
               (size < bytes ? size : bytes) - sizeof size);
}
