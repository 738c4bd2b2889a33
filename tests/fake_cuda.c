/*
 * A fake of CUDA's driver library, for $ERGON_LIBCUDA: it shows the GPUs whose UUIDs
 * $ERGON_FAKE_CUDA lists, 32 hexadecimal digits each with commas between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY(name, ...)                                                                           \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                  \
    int name(__VA_ARGS__)

static const char *list(void)
{
    const char *text = getenv("ERGON_FAKE_CUDA");
    return text ? text : "";
}

ENTRY(cuInit, unsigned flags)
{
    (void)flags;
    return list()[0] ? 0 : 100; /* no device */
}

ENTRY(cuDeviceGetCount, int *count)
{
    *count = (int)(strlen(list()) + 1) / 33;
    return 0;
}

ENTRY(cuDeviceGet, int *device, int index)
{
    *device = index;
    return 0;
}

ENTRY(cuDeviceGetUuid, unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        sscanf(list() + (size_t)device * 33 + (size_t)i * 2, "%2x", &byte);
        uuid[i] = (unsigned char)byte;
    }
    return 0;
}
