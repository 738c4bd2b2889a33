/* Turns CUDA's status codes into messages, and opens CUDA's libraries at run time. */
#ifndef ERG_CUDA_INTERNAL_H
#define ERG_CUDA_INTERNAL_H

#include "ergon/error.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * 0 if `status` is success; otherwise fails with "<action>: <CUDA's message> (<name of the code>)":
 *     erg_cuda_check(cudaFree(p), err, "freeing %zu bytes of GPU memory", bytes)
 */
int erg_cuda_check(cudaError_t status, struct erg_error *err, const char *format, ...)
    ERG_PRINTF(3, 4);

/* Call it after a kernel launch: checks that the launch was accepted. */
int erg_cuda_check_launch(const char *kernel, struct erg_error *err);

/* A function of a library, and where its pointer belongs in a table. */
struct erg_cuda_entry {
    const char *name;
    size_t offset;
};

/*
 * Opens a shared library by its name, "libcublasLt.so.13", by the system's loader or in CUDA's
 * usual folders, and fills the table. ERG_NO_DEVICE if it is missing. It is never unloaded: these
 * libraries keep threads and state that do not survive that.
 */
int erg_cuda_library_open(const char *library, void *table, const struct erg_cuda_entry *entries,
                          size_t count, struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
