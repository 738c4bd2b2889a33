/*
 * How the room turns CUDA's status codes into sentences.
 */
#ifndef ERG_CUDA_INTERNAL_H
#define ERG_CUDA_INTERNAL_H

#include "ergon/error.h"

#include <cuda_runtime_api.h>

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

#ifdef __cplusplus
}
#endif

#endif
