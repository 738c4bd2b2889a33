/*
 * cuDNN at run time: the entry points of its C backend API, opened by dlopen, and the few calls on
 * its descriptors that are needed here.
 *
 * The backend API has descriptors (tensors, operations, graphs, plans) that are created, get
 * attributes and are finalized. Only the vendor's header is needed to compile this, for the enums.
 */
#ifndef ERG_CUDA_CUDNN_INTERNAL_H
#define ERG_CUDA_CUDNN_INTERNAL_H

#include "ergon/error.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_cudnn {
    __typeof__(&cudnnGetVersion) get_version;
    __typeof__(&cudnnGetErrorString) get_error_string;
    __typeof__(&cudnnGetLastErrorString) get_last_error_string;
    __typeof__(&cudnnCreate) create;
    __typeof__(&cudnnDestroy) destroy;
    __typeof__(&cudnnSetStream) set_stream;
    __typeof__(&cudnnBackendCreateDescriptor) create_descriptor;
    __typeof__(&cudnnBackendDestroyDescriptor) destroy_descriptor;
    __typeof__(&cudnnBackendSetAttribute) set_attribute;
    __typeof__(&cudnnBackendGetAttribute) get_attribute;
    __typeof__(&cudnnBackendFinalize) finalize;
    __typeof__(&cudnnBackendExecute) execute;

    /*
     * The driver's functions, because those of the runtime refuse kernels that it did not load
     * itself.
     */
    __typeof__(&cuGraphKernelNodeGetParams) get_kernel_params;
    __typeof__(&cuGraphKernelNodeSetParams) set_kernel_params;

    cudnnHandle_t handle;
    struct CUstream_st *capture_stream; /* for calls with a budget outside a capture */
    int sms;
    bool is_hopper;    /* has kernels with a budget of SMs */
    char *plan_folder; /* NULL: plans are not stored */
    char *identity;    /* what a saved plan depends on besides its graph: cuDNN and the GPU */
};

/* Fails with "doing: cuDNN reports …" and its last message. Lack of support is ERG_NO_DEVICE. */
int erg_cudnn_check(const struct erg_cudnn *cudnn, cudnnStatus_t status, const char *doing,
                    struct erg_error *err);

int erg_cudnn_make(const struct erg_cudnn *cudnn, cudnnBackendDescriptorType_t type,
                   cudnnBackendDescriptor_t *made, struct erg_error *err);
int erg_cudnn_set(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *values, struct erg_error *err);
int erg_cudnn_get(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t capacity, int64_t *count, void *values, struct erg_error *err);
int erg_cudnn_finalize(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                       const char *what, struct erg_error *err);
/* Destroys *descriptor, which may be NULL, and sets it to NULL. */
void erg_cudnn_destroy(const struct erg_cudnn *cudnn, cudnnBackendDescriptor_t *descriptor);

#endif
