/*
 * How the room turns CUDA's status codes into sentences, and opens CUDA's libraries at run time.
 */
#ifndef ERG_CUDA_INTERNAL_H
#define ERG_CUDA_INTERNAL_H

#include "ergon/error.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * 0 when `status` is success, else fails with "<what was done>: <CUDA's words> (<code's name>)":
 *     erg_cuda_check(cudaFree(p), err, "freeing %zu bytes of GPU memory", bytes)
 */
int erg_cuda_check(cudaError_t status, struct erg_error *err, const char *format, ...)
    ERG_PRINTF(3, 4);

/* After a kernel launch: whether it was accepted. */
int erg_cuda_check_launch(const char *kernel, struct erg_error *err);

/* A function of a library, and where its pointer belongs in a table. */
struct erg_cuda_entry {
    const char *name;
    size_t offset;
};

/*
 * Opens a shared library by its name, "libcublasLt.so.13", where the system's loader finds it or in
 * the usual folders of CUDA, and fills the table. ERG_NO_DEVICE when it is not there. It stays
 * loaded for good: these libraries keep threads and state that do not survive being closed.
 */
int erg_cuda_library_open(const char *library, void *table, const struct erg_cuda_entry *entries,
                          size_t count, struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
