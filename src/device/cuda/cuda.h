/*
 * CUDA: one GPU of this process, its memory, streams and events, for C without a CUDA header.
 *
 * Streams and events are the CUDA runtime's own handles, which are pointers to these two structs;
 * NULL is the default stream. The runtime is linked statically and looks for the driver at the
 * first call, so on a machine without GPUs, erg_cuda_count() and erg_cuda_init() just return
 * ERG_NO_DEVICE.
 *
 * Everything is asynchronous except where noted; an error of a kernel shows up in a later call.
 */
#ifndef ERG_CUDA_H
#define ERG_CUDA_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct CUevent_st;

struct erg_cuda {
    int gpu;        /* CUDA's index: CUDA_VISIBLE_DEVICES applies */
    int capability; /* 90 for 9.0 */
    int sms;        /* streaming multiprocessors */
    size_t memory_bytes;
    char name[128]; /* "NVIDIA H200" */
    char bus[32];   /* PCI address, by which NVML finds the same GPU: "0000:19:00.0" */
};

int erg_cuda_count(int *count, struct erg_error *err);

/* Makes `gpu` the calling thread's GPU and reads its properties. */
int erg_cuda_init(struct erg_cuda *cuda, int gpu, struct erg_error *err);

/* For every further thread that works with this GPU. */
int erg_cuda_bind(const struct erg_cuda *cuda, struct erg_error *err);

/* A stream that never waits for the default stream. `urgent`: its kernels start before those of
 * other streams that wait for the same SMs. */
int erg_cuda_stream_new(struct CUstream_st **stream, bool urgent, struct erg_error *err);
void erg_cuda_stream_free(struct CUstream_st *stream);
int erg_cuda_stream_sync(struct CUstream_st *stream, struct erg_error *err); /* blocks */

/* `timed`: measures the time between two events; others are cheaper. */
int erg_cuda_event_new(struct CUevent_st **event, bool timed, struct erg_error *err);
void erg_cuda_event_free(struct CUevent_st *event);
/*
 * Adds one to a number in host memory, atomically, once the stream gets there; delays the stream by
 * some microseconds.
 */
int erg_cuda_stream_count(struct CUstream_st *stream, uint64_t *number, struct erg_error *err);
int erg_cuda_event_record(struct CUevent_st *event, struct CUstream_st *stream,
                          struct erg_error *err);
/* Later work of `stream` starts after the work recorded in `event`. */
int erg_cuda_event_wait(struct CUevent_st *event, struct CUstream_st *stream,
                        struct erg_error *err);
int erg_cuda_event_sync(struct CUevent_st *event, struct erg_error *err); /* blocks */
/* Milliseconds between two timed events that have happened; resolution about 1 us. */
int erg_cuda_event_ms(double *ms, struct CUevent_st *start, struct CUevent_st *end,
                      struct erg_error *err);

/* GPU memory, 256-byte aligned, not cleared. Free waits for the GPU. */
int erg_cuda_alloc(void **memory, size_t bytes, struct erg_error *err);
void erg_cuda_free(void *memory);
int erg_cuda_memory_free(size_t *bytes,
                         struct erg_error *err); /* bytes that could be allocated now */
/* Page-locked host memory: copies to and from it run concurrently with kernels. */
int erg_cuda_alloc_host(void **memory, size_t bytes, struct erg_error *err);
void erg_cuda_free_host(void *memory);

/* Copies between any two of host and GPU. With pageable host memory the call blocks. */
int erg_cuda_copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream,
                  struct erg_error *err);
/* Copies `rows` rows of row_bytes on the GPU, with a pitch in bytes for each side. */
int erg_cuda_copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                       size_t row_bytes, size_t rows, struct CUstream_st *stream,
                       struct erg_error *err);
int erg_cuda_fill(void *memory, int byte, size_t bytes, struct CUstream_st *stream,
                  struct erg_error *err);

/*
 * The folder of saved plans of attention and choices of products: ergon's folder in the user's
 * cache ($XDG_CACHE_HOME or ~/.cache); NULL without a home folder. The caller frees it.
 */
char *erg_cuda_plan_folder(void);

#ifdef __cplusplus
}
#endif

#endif
