/*
 * CUDA's libraries: opens each by its names, newest first, and reads its version. They stay open,
 * because unloading leaks the resources of their initialisation.
 */
#include "observe/doctor_internal.h"

#include <dlfcn.h>
#include <string.h>

/* The two ways in which CUDA's libraries report their version. */
enum version_call { RETURNS_SIZE, FILLS_INT };

static const struct library {
    const char *subject;
    const char *names[3];
    const char *function;
    enum version_call call;
    int major, minor; /* divisors of the number; the rest is the patch, unless minor is 10 */
    const char *advice;
} libraries[] = {
    {"CUDA driver",
     {"libcuda.so.1"},
     "cuDriverGetVersion",
     FILLS_INT,
     1000,
     10,
     "Install NVIDIA's driver to run on GPUs; planning works without it."},
    {"cuBLASLt",
     {"libcublasLt.so.13", "libcublasLt.so.12"},
     "cublasLtGetVersion",
     RETURNS_SIZE,
     10000,
     100,
     "Install CUDA's cuBLAS to run on GPUs, or add its folder to LD_LIBRARY_PATH."},
    {"cuDNN",
     {"libcudnn.so.9"},
     "cudnnGetVersion",
     RETURNS_SIZE,
     10000,
     100,
     "Install cuDNN 9 to run on GPUs, or add its folder to LD_LIBRARY_PATH."},
    {"NCCL",
     {"libnccl.so.2"},
     "ncclGetVersion",
     FILLS_INT,
     10000,
     100,
     "Install NCCL to run on several machines, or add its folder to LD_LIBRARY_PATH."},
};

static long ask_version(const struct library *library, void *symbol)
{
    if (library->call == RETURNS_SIZE) {
        size_t (*returns_size)(void);
        memcpy(&returns_size, &symbol, sizeof symbol);
        return (long)returns_size();
    }
    int (*fills_int)(int *), version = 0;
    memcpy(&fills_int, &symbol, sizeof symbol);
    return fills_int(&version) == 0 ? version : 0;
}

static void examine(struct erg_doctor *doctor, const struct library *library)
{
    void *handle = NULL;
    const char *name = NULL, *why = NULL;
    for (size_t i = 0; i < 3 && library->names[i] && !handle; i++) {
        name = library->names[i];
        handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (!handle && !why) /* keep the error of the newest name */
            why = erg_arena_strdup(&doctor->arena, dlerror());
    }
    if (!handle) {
        erg_doctor_note(doctor, ERG_FINDING_MISSING, -1, library->subject, library->advice, "%s",
                        why);
        return;
    }
    void *symbol = dlsym(handle, library->function);
    long version = symbol ? ask_version(library, symbol) : 0;
    if (!version)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, -1, library->subject, library->advice,
                        "%s can be opened, but does not report its version", name);
    else if (library->minor == 10)
        erg_doctor_note(doctor, ERG_FINDING_OK, -1, library->subject, NULL, "%ld.%ld (%s)",
                        version / library->major, version % library->major / library->minor, name);
    else
        erg_doctor_note(doctor, ERG_FINDING_OK, -1, library->subject, NULL, "%ld.%ld.%ld (%s)",
                        version / library->major, version % library->major / library->minor,
                        version % library->minor, name);
}

void erg_doctor_libraries(struct erg_doctor *doctor)
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        examine(doctor, &libraries[i]);
}
