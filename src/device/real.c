/* Real GPUs: opens the GPUs of this machine as a device, if ergon was built with CUDA. */
#include "device/real.h"

#if !ERGON_CUDA

int erg_real_open(struct erg_real **real, const struct erg_real_request *request,
                  struct erg_error *err)
{
    (void)real;
    (void)request;
    return erg_fail(err, ERG_NO_DEVICE,
                    "opening the GPUs of this machine: this ergon was built without CUDA; build it "
                    "where nvcc and the headers of cuDNN and NCCL are installed, or use emulated "
                    "GPUs with --device emulated");
}

struct erg_device *erg_real_device(const struct erg_real *real)
{
    (void)real;
    return NULL;
}

void erg_real_close(struct erg_real *real)
{
    (void)real;
}

#else

#include "base/memory.h"
#include "base/text.h"
#include "device/cuda/cuda_device.h"

#include <stdlib.h>

struct erg_real {
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous;
    struct erg_worker_options options;
    struct erg_device *device;
};

static const double meeting_s = 60;

static int check_ranks(const struct erg_launch_environment *env,
                       const struct erg_real_request *request, struct erg_error *err)
{
    int wanted = request->tensor * request->context;
    if (env->world == wanted)
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "measuring on the GPUs of this machine: tensor %d x context %d needs %d "
                    "processes, one per GPU, but there %s %d; start them with: ergon run -n %d -- "
                    "ergon ...",
                    request->tensor, request->context, wanted, env->world == 1 ? "is" : "are",
                    env->world, wanted);
}

/* A GPU that two ranks share could measure neither. */
static int check_gpus(const struct erg_launch_environment *env, struct erg_error *err)
{
    int gpus;
    struct erg_error missing;
    if (erg_cuda_count(&gpus, &missing))
        return erg_fail(err, missing.status,
                        "%s; install an NVIDIA driver that is new enough for this ergon's CUDA, "
                        "or use emulated GPUs with --device emulated",
                        missing.message);
    if (env->local_rank < gpus)
        return 0;
    return erg_fail(
        err, ERG_NO_DEVICE,
        "measuring on the GPUs of this machine: rank %d is number %d on this machine, but there %s "
        "%d GPU%s; expected a GPU for each rank",
        env->rank, env->local_rank + 1, gpus == 1 ? "is" : "are", gpus, erg_plural((size_t)gpus));
}

static int open_or_follow(struct erg_real *real, bool lock_clocks, struct erg_error *err)
{
    if (real->env.rank == 0)
        return erg_cuda_device_open(&real->device, &real->options, lock_clocks, err);
    return erg_cuda_device_follow(&real->options, err);
}

int erg_real_open(struct erg_real **out, const struct erg_real_request *request,
                  struct erg_error *err)
{
    struct erg_real *real = erg_xcalloc(1, sizeof *real);
    if (erg_launch_environment_read(&real->env, err) || check_ranks(&real->env, request, err) ||
        check_gpus(&real->env, err) ||
        erg_rendezvous_open(&real->rendezvous, &real->env, meeting_s, err)) {
        erg_real_close(real);
        return -1;
    }
    real->options = (struct erg_worker_options){
        .env = &real->env,
        .rendezvous = real->rendezvous,
        .model = request->model,
        .tensor = request->tensor,
        .context = request->context,
        .layers = request->layers,
        .replay = request->replay,
        .sequences = request->sequences,
        .sequence = request->sequence,
        .seed = request->seed,
    };
    if (open_or_follow(real, request->lock_clocks, err)) {
        erg_real_close(real);
        return -1;
    }
    *out = real;
    return 0;
}

struct erg_device *erg_real_device(const struct erg_real *real)
{
    return real->device;
}

void erg_real_close(struct erg_real *real)
{
    if (!real)
        return;
    erg_device_close(real->device);
    erg_rendezvous_close(real->rendezvous);
    free(real);
}

#endif
