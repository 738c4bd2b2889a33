/* Opens a backend: a GPU, or the host. */
#define _DEFAULT_SOURCE /* setenv */

#include "device/backend.h"

#include "device/host/host.h"

#include <stdlib.h>

#if ERGON_CUDA
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_backend.h"

static int open_gpu(struct erg_backend **backend, const struct erg_backend_options *options,
                    struct erg_error *err)
{
    return erg_cuda_backend_open(backend, options->local_rank, options->deterministic,
                                 options->rendezvous, err);
}

static bool has_gpu(void)
{
    struct erg_error ignored;
    int count = 0;
    return erg_cuda_count(&count, &ignored) == 0 && count > 0;
}
#else
static int open_gpu(struct erg_backend **backend, const struct erg_backend_options *options,
                    struct erg_error *err)
{
    (void)backend;
    (void)options;
    return erg_fail(
        err, ERG_NO_DEVICE,
        "this ergon was built without CUDA; expected a build with nvcc, or the device \"host\"");
}

static bool has_gpu(void)
{
    return false;
}
#endif

int erg_backend_open(struct erg_backend **backend, const struct erg_backend_options *options,
                     struct erg_error *err)
{
    enum erg_backend_kind kind = options->kind;
    bool float32 = options->float32;
    /*
     * CUDA reads it once, at its start: with fewer connections than streams, a stream that waits
     * for another rank could block one that does not.
     */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (kind == ERG_BACKEND_GPU && float32)
        return erg_fail(err, ERG_USAGE,
                        "GPUs train in bfloat16; expected that type, or the device \"host\"");
    if (kind == ERG_BACKEND_GPU || (kind == ERG_BACKEND_ANY && !float32 && has_gpu()))
        return open_gpu(backend, options, err);
    return erg_host_open(
        backend, &(struct erg_host_options){.float32 = float32, .rendezvous = options->rendezvous},
        err);
}
