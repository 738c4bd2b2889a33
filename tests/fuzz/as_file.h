/* The bytes of an input as a file in memory, for parsers that take a path only; to be included
 * first. */
#ifndef ERGON_TESTS_FUZZ_AS_FILE_H
#define ERGON_TESTS_FUZZ_AS_FILE_H

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Its path, which all inputs share. */
static inline const char *as_file(const unsigned char *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        if (file < 0)
            abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    return path;
}

#endif
