/*
 * Asks the driver's CUDA library (libcuda.so.1, or $ERGON_LIBCUDA) for its GPUs, with this
 * process's environment. A child process does it, for seconds at most: a program that has
 * initialised CUDA cannot use it in its own forked children any more.
 */
#include "telemetry/gpu_internal.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t patience_ns = 20000000000; /* machines with many GPUs take seconds */

enum { UUID_BYTES = 16, GPUS_MAX = 64 };

/* The child's work: writes UUIDs into the pipe. */
static int tell(int to)
{
    const char *path = getenv("ERGON_LIBCUDA");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(unsigned), (*get_count)(int *), (*get)(int *, int), (*get_uuid)(void *, int);
    const struct {
        const char *name;
        void *function;
    } calls[] = {{"cuInit", &init},
                 {"cuDeviceGetCount", &get_count},
                 {"cuDeviceGet", &get},
                 {"cuDeviceGetUuid", &get_uuid}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = library ? dlsym(library, calls[i].name) : NULL;
        if (!symbol)
            return 1;
        memcpy(calls[i].function, &symbol, sizeof symbol);
    }
    unsigned char uuids[GPUS_MAX][UUID_BYTES];
    int count = 0, device;
    if (init(0) != 0 || get_count(&count) != 0 || count < 1 || count > GPUS_MAX)
        return 1;
    for (int i = 0; i < count; i++)
        if (get(&device, i) != 0 || get_uuid(uuids[i], device) != 0)
            return 1;
    size_t bytes = (size_t)count * UUID_BYTES; /* less than a pipe holds */
    return write(to, uuids, bytes) == (ssize_t)bytes ? 0 : 1;
}

/* Reads a pipe to its end; 0 on timeout. */
static size_t receive(int from, unsigned char *bytes, size_t capacity)
{
    int64_t end_ns = erg_now_ns() + patience_ns;
    struct pollfd news = {.fd = from, .events = POLLIN};
    for (size_t count = 0;;) {
        int64_t left_ns = end_ns - erg_now_ns();
        int ready = left_ns > 0 ? poll(&news, 1, (int)(left_ns / 1000000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t got = ready > 0 ? read(from, bytes + count, capacity - count) : -1;
        if (got <= 0)
            return got == 0 ? count : 0;
        count += (size_t)got;
    }
}

bool erg_cuda_order(char (*uuids)[ERG_CUDA_UUID_BYTES], size_t capacity, size_t *count)
{
    int ends[2], status;
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        _exit(tell(ends[1]));
    }
    close(ends[1]);
    unsigned char bytes[GPUS_MAX * UUID_BYTES + 1];
    size_t received = child < 0 ? 0 : receive(ends[0], bytes, sizeof bytes);
    close(ends[0]);
    if (child < 0)
        return false;
    if (!received)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    *count = received / UUID_BYTES;
    if (!received || received % UUID_BYTES || *count > capacity)
        return false;
    for (size_t i = 0; i < *count; i++) {
        int at = snprintf(uuids[i], sizeof uuids[i], "GPU-");
        for (size_t b = 0; b < UUID_BYTES; b++)
            at += snprintf(uuids[i] + at, sizeof uuids[i] - (size_t)at, "%s%02x",
                           b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "",
                           bytes[i * UUID_BYTES + b]);
    }
    return true;
}
