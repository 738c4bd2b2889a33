/* cuDNN: opens the library, checks its version, and formats its errors. */
#include "base/memory.h"
#include "base/text.h"
#include "device/cuda/attention.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/cudnn_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char library_name[] = "libcudnn.so.9";
enum { OLDEST_VERSION = 91000 }; /* the first version that masks with minus infinity */

static const struct erg_cuda_entry entries[] = {
    {"cudnnGetVersion", offsetof(struct erg_cudnn, get_version)},
    {"cudnnGetErrorString", offsetof(struct erg_cudnn, get_error_string)},
    {"cudnnGetLastErrorString", offsetof(struct erg_cudnn, get_last_error_string)},
    {"cudnnCreate", offsetof(struct erg_cudnn, create)},
    {"cudnnDestroy", offsetof(struct erg_cudnn, destroy)},
    {"cudnnSetStream", offsetof(struct erg_cudnn, set_stream)},
    {"cudnnBackendCreateDescriptor", offsetof(struct erg_cudnn, create_descriptor)},
    {"cudnnBackendDestroyDescriptor", offsetof(struct erg_cudnn, destroy_descriptor)},
    {"cudnnBackendSetAttribute", offsetof(struct erg_cudnn, set_attribute)},
    {"cudnnBackendGetAttribute", offsetof(struct erg_cudnn, get_attribute)},
    {"cudnnBackendFinalize", offsetof(struct erg_cudnn, finalize)},
    {"cudnnBackendExecute", offsetof(struct erg_cudnn, execute)},
};

int erg_cudnn_check(const struct erg_cudnn *cudnn, cudnnStatus_t status, const char *doing,
                    struct erg_error *err)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    char detail[512] = "";
    cudnn->get_last_error_string(detail, sizeof detail);
    bool unsupported = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
    return erg_fail(err, unsupported ? ERG_NO_DEVICE : ERG_FAILED, "%s: cuDNN %zu reports %s (%s)",
                    doing, cudnn->get_version(), cudnn->get_error_string(status), detail);
}

int erg_cudnn_make(const struct erg_cudnn *cudnn, cudnnBackendDescriptorType_t type,
                   cudnnBackendDescriptor_t *made, struct erg_error *err)
{
    return erg_cudnn_check(cudnn, cudnn->create_descriptor(type, made),
                           "making a descriptor of cuDNN", err);
}

int erg_cudnn_set(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *values, struct erg_error *err)
{
    cudnnStatus_t status = cudnn->set_attribute(descriptor, name, type, count, values);
    if (erg_cudnn_check(cudnn, status, "describing attention to cuDNN", err) == 0)
        return 0;
    return erg_fail_context(err, "attribute %d", (int)name);
}

int erg_cudnn_get(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t capacity, int64_t *count, void *values, struct erg_error *err)
{
    cudnnStatus_t status = cudnn->get_attribute(descriptor, name, type, capacity, count, values);
    if (erg_cudnn_check(cudnn, status, "asking cuDNN about attention", err) == 0)
        return 0;
    return erg_fail_context(err, "attribute %d", (int)name);
}

int erg_cudnn_finalize(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                       const char *what, struct erg_error *err)
{
    return erg_cudnn_check(cudnn, cudnn->finalize(descriptor), what, err);
}

void erg_cudnn_destroy(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t *descriptor)
{
    if (*descriptor)
        cudnn->destroy_descriptor(*descriptor);
    *descriptor = NULL;
}

static int load_library(struct erg_cudnn *cudnn, struct erg_error *err)
{
    if (erg_cuda_library_open(library_name, cudnn, entries, sizeof entries / sizeof *entries, err))
        return erg_fail_context(err, "opening cuDNN, 9.10 or newer");
    if (cudnn->get_version() < OLDEST_VERSION)
        return erg_fail(err, ERG_NO_DEVICE,
                        "opening cuDNN: %s has version %zu, expected %d (9.10) or newer",
                        library_name, cudnn->get_version(), OLDEST_VERSION);
    return 0;
}

static int driver_entry(const char *name, void *entry, struct erg_error *err)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result;
    if (erg_cuda_check(
            cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), err,
            "looking for the driver's graph functions") != 0)
        return -1;
    if (result != cudaDriverEntryPointSuccess || !found)
        return erg_fail(err, ERG_NO_DEVICE,
                        "opening cuDNN: the GPU driver has no %s; expected a driver of CUDA 12 or "
                        "newer",
                        name);
    memcpy(entry, &found, sizeof found);
    return 0;
}

static int open_device(struct erg_cudnn *cudnn, const struct erg_cuda *cuda, struct erg_error *err)
{
    struct erg_text identity = {0};
    erg_text_printf(&identity, "cudnn %zu, %s, capability %d, %d SMs", cudnn->get_version(),
                    cuda->name, cuda->capability, cuda->sms);
    cudnn->identity = identity.data;
    cudnn->sms = cuda->sms;
    cudnn->is_hopper = cuda->capability == 90;
    if (driver_entry("cuGraphKernelNodeGetParams", &cudnn->get_kernel_params, err) ||
        driver_entry("cuGraphKernelNodeSetParams", &cudnn->set_kernel_params, err) ||
        erg_cuda_stream_new(&cudnn->capture_stream, false, err))
        return -1;
    return erg_cudnn_check(cudnn, cudnn->create(&cudnn->handle), "opening cuDNN on the GPU", err);
}

int erg_cudnn_open(struct erg_cudnn **cudnn, const struct erg_cuda *cuda, const char *plan_folder,
                   struct erg_error *err)
{
    struct erg_cudnn *opened = erg_xcalloc(1, sizeof *opened);
    if (!plan_folder)
        opened->plan_folder = erg_cuda_plan_folder();
    else if (*plan_folder)
        opened->plan_folder = erg_xstrdup(plan_folder);
    if (load_library(opened, err) != 0 || open_device(opened, cuda, err) != 0) {
        erg_cudnn_close(opened);
        return -1;
    }
    *cudnn = opened;
    return 0;
}

void erg_cudnn_close(struct erg_cudnn *cudnn)
{
    if (!cudnn)
        return;
    if (cudnn->handle)
        cudnn->destroy(cudnn->handle);
    erg_cuda_stream_free(cudnn->capture_stream);
    free(cudnn->plan_folder);
    free(cudnn->identity);
    free(cudnn);
}
