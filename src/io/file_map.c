/* Maps files. */
#include "io/file_map.h"

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int erg_file_map(const char *path, void **bytes, size_t *length, struct erg_error *err)
{
    struct stat info;
    *bytes = NULL;
    *length = 0;
    if (erg_file_refuse_fifo(path, err) != 0)
        return -1;
    const int handle = open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0 || fstat(handle, &info) != 0) {
        if (handle >= 0)
            close(handle);
        return erg_fail(err, ERG_FAILED, "reading '%s': %s", path, strerror(errno));
    }
    if (S_ISREG(info.st_mode) && info.st_size > 0) {
        void *mapped = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, handle, 0);
        *bytes = mapped == MAP_FAILED ? NULL : mapped;
        *length = *bytes ? (size_t)info.st_size : 0;
    }
    close(handle);
    return 0;
}
