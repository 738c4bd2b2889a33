/* Opens a backend: a GPU, or the host. */
#include "device/backend.h"

#include "device/host/host.h"

#if ERGON_CUDA
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_backend.h"
#include "launch/launch.h"

static int open_gpu(struct erg_backend **backend, struct erg_error *err)
{
    struct erg_launch_environment env;
    if (erg_launch_environment_read(&env, err) != 0)
        return -1;
    return erg_cuda_backend_open(backend, env.local_rank, err);
}

static bool has_gpu(void)
{
    struct erg_error ignored;
    int count = 0;
    return erg_cuda_count(&count, &ignored) == 0 && count > 0;
}
#else
static int open_gpu(struct erg_backend **backend, struct erg_error *err)
{
    (void)backend;
    return erg_fail(
        err, ERG_NO_DEVICE,
        "this ergon was built without CUDA; expected one that was built where nvcc is, or "
        "the device \"host\"");
}

static bool has_gpu(void)
{
    return false;
}
#endif

int erg_backend_open(struct erg_backend **backend, enum erg_backend_kind kind, bool float32,
                     struct erg_error *err)
{
    if (kind == ERG_BACKEND_GPU && float32)
        return erg_fail(err, ERG_USAGE,
                        "GPUs train in bfloat16; expected that type, or the device \"host\"");
    if (kind == ERG_BACKEND_GPU || (kind == ERG_BACKEND_ANY && !float32 && has_gpu()))
        return open_gpu(backend, err);
    *backend = erg_host_open(&(struct erg_host_options){.float32 = float32});
    return 0;
}
