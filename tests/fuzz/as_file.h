/* The bytes of an input as a file, for parsers that take a path only. */
#ifndef ERGON_TESTS_FUZZ_AS_FILE_H
#define ERGON_TESTS_FUZZ_AS_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The path of a file without a name, which all inputs share. */
static inline const char *as_file(const unsigned char *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        char name[] = "/tmp/ergon-fuzz-XXXXXX";
        file = mkstemp(name);
        if (file < 0 || unlink(name) != 0)
            abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    return path;
}

#endif
