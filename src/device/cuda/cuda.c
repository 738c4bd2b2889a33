/* CUDA runtime: devices, memory, streams and events, with errors as sentences; other libraries. */
#define _DEFAULT_SOURCE /* setenv */

#include "device/cuda/cuda.h"

#include "base/text.h"
#include "device/cuda/cuda_internal.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int erg_cuda_check(cudaError_t status, struct erg_error *err, const char *format, ...)
{
    if (status == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* a failed call must not be blamed on the next launch */
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    bool no_device = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
                     status == cudaErrorInvalidDevice;
    return erg_fail(err, no_device ? ERG_NO_DEVICE : ERG_FAILED, "%s: %s (%s)", what,
                    cudaGetErrorString(status), cudaGetErrorName(status));
}

int erg_cuda_check_launch(const char *kernel, struct erg_error *err)
{
    return erg_cuda_check(cudaGetLastError(), err, "launching the kernel of %s", kernel);
}

int erg_cuda_count(int *count, struct erg_error *err)
{
    /*
     * Before the first call of CUDA: streams that wait for other ranks block others in their queue,
     * so each stream gets its own queue.
     */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return erg_cuda_check(cudaGetDeviceCount(count), err, "looking for CUDA GPUs");
}

int erg_cuda_init(struct erg_cuda *cuda, int gpu, struct erg_error *err)
{
    struct cudaDeviceProp properties;
    int count;
    *cuda = (struct erg_cuda){.gpu = gpu};
    if (erg_cuda_count(&count, err) ||
        erg_cuda_check(cudaGetDeviceProperties(&properties, gpu), err,
                       "reading the properties of CUDA GPU %d", gpu) ||
        erg_cuda_check(cudaDeviceGetPCIBusId(cuda->bus, sizeof cuda->bus, gpu), err,
                       "reading the PCI address of CUDA GPU %d", gpu) ||
        erg_cuda_bind(cuda, err))
        return -1;
    cuda->capability = properties.major * 10 + properties.minor;
    cuda->sms = properties.multiProcessorCount;
    cuda->memory_bytes = properties.totalGlobalMem;
    snprintf(cuda->name, sizeof cuda->name, "%s", properties.name);
    return 0;
}

int erg_cuda_bind(const struct erg_cuda *cuda, struct erg_error *err)
{
    return erg_cuda_check(cudaSetDevice(cuda->gpu), err, "selecting CUDA GPU %d", cuda->gpu);
}

int erg_cuda_stream_new(struct CUstream_st **stream, bool urgent, struct erg_error *err)
{
    int lowest = 0, highest = 0;
    *stream = NULL;
    if (erg_cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), err,
                       "reading the range of stream priorities"))
        return -1;
    return erg_cuda_check(
        cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, urgent ? highest : lowest), err,
        "creating a CUDA stream");
}

void erg_cuda_stream_free(struct CUstream_st *stream)
{
    if (stream)
        cudaStreamDestroy(stream);
}

int erg_cuda_stream_sync(struct CUstream_st *stream, struct erg_error *err)
{
    return erg_cuda_check(cudaStreamSynchronize(stream), err, "waiting for the GPU");
}

int erg_cuda_event_new(struct CUevent_st **event, bool timed, struct erg_error *err)
{
    *event = NULL;
    return erg_cuda_check(
        cudaEventCreateWithFlags(event, timed ? cudaEventDefault : cudaEventDisableTiming), err,
        "creating a CUDA event");
}

void erg_cuda_event_free(struct CUevent_st *event)
{
    if (event)
        cudaEventDestroy(event);
}

static void CUDART_CB add_one(void *number)
{
    __atomic_add_fetch((uint64_t *)number, 1, __ATOMIC_RELAXED);
}

int erg_cuda_stream_count(struct CUstream_st *stream, uint64_t *number, struct erg_error *err)
{
    return erg_cuda_check(cudaLaunchHostFunc(stream, add_one, number), err, "counting on the host");
}

int erg_cuda_event_record(struct CUevent_st *event, struct CUstream_st *stream,
                          struct erg_error *err)
{
    return erg_cuda_check(cudaEventRecord(event, stream), err, "recording a CUDA event");
}

int erg_cuda_event_wait(struct CUevent_st *event, struct CUstream_st *stream, struct erg_error *err)
{
    return erg_cuda_check(cudaStreamWaitEvent(stream, event, 0), err,
                          "making a CUDA stream wait for an event");
}

int erg_cuda_event_sync(struct CUevent_st *event, struct erg_error *err)
{
    return erg_cuda_check(cudaEventSynchronize(event), err, "waiting for a CUDA event");
}

int erg_cuda_event_ms(double *ms, struct CUevent_st *start, struct CUevent_st *end,
                      struct erg_error *err)
{
    float elapsed = 0;
    if (erg_cuda_check(cudaEventElapsedTime(&elapsed, start, end), err,
                       "reading the time between two CUDA events"))
        return -1;
    *ms = elapsed;
    return 0;
}

int erg_cuda_alloc(void **memory, size_t bytes, struct erg_error *err)
{
    *memory = NULL;
    return erg_cuda_check(cudaMalloc(memory, bytes), err, "allocating %zu bytes of GPU memory",
                          bytes);
}

void erg_cuda_free(void *memory)
{
    cudaFree(memory);
}

int erg_cuda_memory_free(size_t *bytes, struct erg_error *err)
{
    size_t all;
    return erg_cuda_check(cudaMemGetInfo(bytes, &all), err, "reading the free GPU memory");
}

int erg_cuda_alloc_host(void **memory, size_t bytes, struct erg_error *err)
{
    *memory = NULL;
    return erg_cuda_check(cudaMallocHost(memory, bytes), err,
                          "allocating %zu bytes of page-locked memory", bytes);
}

void erg_cuda_free_host(void *memory)
{
    cudaFreeHost(memory);
}

int erg_cuda_copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream,
                  struct erg_error *err)
{
    return erg_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), err,
                          "copying %zu bytes", bytes);
}

int erg_cuda_copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                       size_t row_bytes, size_t rows, struct CUstream_st *stream,
                       struct erg_error *err)
{
    /* The stride of a single row is unused but must not be shorter than the row. */
    if (rows <= 1)
        to_stride = from_stride = row_bytes;
    return erg_cuda_check(cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows,
                                            cudaMemcpyDeviceToDevice, stream),
                          err, "copying %zu rows of %zu bytes", rows, row_bytes);
}

int erg_cuda_fill(void *memory, int byte, size_t bytes, struct CUstream_st *stream,
                  struct erg_error *err)
{
    return erg_cuda_check(cudaMemsetAsync(memory, byte, bytes, stream), err,
                          "filling %zu bytes of GPU memory", bytes);
}

char *erg_cuda_plan_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct erg_text folder = {0};
    if (cache && *cache == '/')
        erg_text_printf(&folder, "%s/ergon/plans", cache);
    else if (home && *home == '/')
        erg_text_printf(&folder, "%s/.cache/ergon/plans", home);
    return folder.data;
}

/* ---- libraries that are opened at run time ---- */

/* Searches where the system's loader does, then where CUDA is usually installed. */
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
