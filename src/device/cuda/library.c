/* Opens NVIDIA's libraries at run time, and fills tables of their functions. */
#include "base/text.h"
#include "device/cuda/cuda_internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Where the system's loader looks; else where CUDA is usually installed. */
static void *open_library(const char *library)
{
    const char *const folders[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !opened; i++)
        if (folders[i]) {
            struct erg_text path = {0};
            erg_text_printf(&path, "%s/lib64/%s", folders[i], library);
            opened = dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
            erg_text_release(&path);
        }
    return opened;
}

int erg_cuda_library_open(const char *library, void *table, const struct erg_cuda_entry *entries,
                          size_t count, struct erg_error *err)
{
    void *opened = open_library(library);
    if (!opened)
        return erg_fail(err, ERG_NO_DEVICE,
                        "opening %s: not found by the system's loader (LD_LIBRARY_PATH), in "
                        "$CUDA_HOME/lib64 or in /usr/local/cuda/lib64",
                        library);
    for (size_t i = 0; i < count; i++) {
        void *entry = dlsym(opened, entries[i].name);
        if (!entry)
            return erg_fail(err, ERG_NO_DEVICE, "opening %s: it has no function %s", library,
                            entries[i].name);
        memcpy((char *)table + entries[i].offset, &entry, sizeof entry);
    }
    return 0;
}
