/*
 * Backend: the interface of a decoder and a training engine to a device, as one table: memory,
 * streams and events, copies, kernels, and exchanges between ranks. The host (device/host/host.h)
 * or a GPU implements it; everything above sees only the table.
 *
 * Kernels are the operations of ops/ops.h, named by their kind, with the same arguments. Tensors
 * are device memory with elements of `element_bytes`: 2 for bf16, 4 for float. Calls that take a
 * stream are queued; memory that they point to, including host memory of copies, must stay valid
 * until the stream has reached them.
 */
#ifndef ERG_DEVICE_BACKEND_H
#define ERG_DEVICE_BACKEND_H

#include "ergon/error.h"
#include "launch/rendezvous.h"
#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum erg_kernel_kind {
    ERG_KERNEL_EMBEDDING,
    ERG_KERNEL_EMBEDDING_GRADIENT,
    ERG_KERNEL_POSITION,
    ERG_KERNEL_POSITION_GRADIENT,
    ERG_KERNEL_ADD,
    ERG_KERNEL_NORM,
    ERG_KERNEL_NORM_GRADIENT,
    ERG_KERNEL_LAYER_NORM,
    ERG_KERNEL_LAYER_NORM_GRADIENT,
    ERG_KERNEL_LINEAR,
    ERG_KERNEL_LINEAR_INPUT_GRADIENT,
    ERG_KERNEL_LINEAR_WEIGHT_GRADIENT,
    ERG_KERNEL_BIAS_GRADIENT,
    ERG_KERNEL_ROPE,
    ERG_KERNEL_ROPE_GRADIENT,
    ERG_KERNEL_ATTENTION,
    ERG_KERNEL_ATTENTION_GRADIENT,
    ERG_KERNEL_SWIGLU,
    ERG_KERNEL_SWIGLU_GRADIENT,
    ERG_KERNEL_GELU,
    ERG_KERNEL_GELU_GRADIENT,
    ERG_KERNEL_LOSS_STATS,
    ERG_KERNEL_LOSS_COMBINE,
    ERG_KERNEL_LOSS_GRADIENT,
    ERG_KERNEL_SQUARES,
    ERG_KERNEL_ADAMW,
    ERG_KERNEL_ROUND, /* floats to elements */
    ERG_KERNEL_COPY_RUNS,
    ERG_KERNEL_ADD_RUNS,
};

/* One kernel with its arguments, in the order of ops/ops.h. */
struct erg_kernel {
    enum erg_kernel_kind kind;
    int leave_sms; /* SMs to leave to a concurrent exchange; 0: it may use all */
    union {
        struct {
            size_t tokens, hidden, first, rows;
            const int32_t *ids, *order; /* order: of the gradient */
            const void *in;             /* the table; the gradient of the output */
            void *out;
            float *d_table;
        } embedding;
        struct {
            size_t tokens, sequence, hidden;
            const int32_t *positions;
            const void *in; /* the table; the gradient of the output */
            void *x;
            float *d_table;
        } position;
        struct {
            size_t tokens, hidden;
            const void *a, *b, *bias;
            void *out;
        } add;
        struct {
            size_t tokens, hidden;
            float eps;
            const void *residual, *x, *x_bias, *weight, *bias;
            void *sum, *out;
            float *stats; /* 1/rms; LayerNorm: mean and 1/deviation */
        } norm;
        struct {
            size_t tokens, hidden;
            const void *sum, *weight;
            const float *stats;
            const void *d_out, *d_sum;
            void *d_in;
            float *d_weight, *d_bias;
        } norm_gradient;
        struct {
            size_t tokens, inputs, outputs;
            const void *a, *b, *bias; /* x, weight; d_y, weight; x, d_y */
            void *c;                  /* y; d_x; d_weight, float */
            bool adds;                /* adds to d_weight; false: overwrites it */
        } linear;
        struct {
            size_t tokens, width;
            const void *d_y;
            float *d_bias;
        } bias;
        struct {
            struct erg_ops_qkv shape;
            float eps;
            const void *q_weight, *k_weight;
            const float *table;
            const void *qkv, *d_rotated;
            void *out; /* rotated; the gradient of qkv */
            size_t out_row;
            float *d_q_weight, *d_k_weight;
        } rope;
        struct {
            struct erg_ops_attention shape;
            const void *q, *k, *v;
            void *out;
            float *stats;
            const void *d_out;
            void *d_q, *d_k, *d_v;
        } attention;
        struct {
            size_t tokens, width;
            bool tanh_form; /* of GELU */
            const void *in, *d_out;
            void *out;
            float *d_bias; /* gradient of the bias before GELU; NULL: no bias */
        } activation;
        struct {
            size_t tokens, columns, valid, first, ranks;
            const int32_t *targets;
            void *logits;
            float *stats;
            const float *scale;
            float *log_sum, *loss;
        } loss;
        struct {
            size_t count;
            const float *in;
            double *sum;
            void *out;
        } floats;
        struct {
            size_t count;
            bool decays;
            const struct erg_ops_update *update;
            const float *gradient;
            float *master, *m, *v;
            void *weight;
        } adamw;
        struct {
            size_t runs, count;
            const void *x;
            size_t x_stride;
            void *to;
            size_t to_stride;
        } runs;
    };
};

enum erg_exchange_kind {
    ERG_EXCHANGE_ALL_REDUCE,     /* to [count]: the sum of every rank's from [count] */
    ERG_EXCHANGE_REDUCE_SCATTER, /* to [count]: this rank's part of the sum of from [ranks, count]
                                  */
    ERG_EXCHANGE_ALL_GATHER,     /* to [ranks, count]: every rank's from [count] */
    ERG_EXCHANGE_SEND,           /* from [count], in a group of two: to the other rank */
    ERG_EXCHANGE_RECEIVE,        /* to [count], in a group of two: from the other rank */
};

/*
 * One exchange of a group's ranks. Sums are computed in float, in the order of ranks, and rounded
 * once; NCCL sums in its own way between GPUs that cannot access each other's memory. Every rank
 * gets the same bits. `to` may be `from`; in a reduce-scatter or an all-gather the smaller one may
 * also be this rank's part of the larger one.
 */
struct erg_exchange {
    enum erg_exchange_kind kind;
    bool floats; /* false: elements */
    size_t count;
    const void *from;
    void *to;
    int sms; /* SMs that it may use; 0: the device decides */
};

struct erg_backend;
struct erg_stream;
struct erg_event;
struct erg_group;

struct erg_backend_table {
    void (*close)(struct erg_backend *backend);
    /* Memory, 256-byte aligned, not cleared. */
    int (*alloc)(struct erg_backend *backend, void **memory, size_t bytes, struct erg_error *err);
    void (*free)(struct erg_backend *backend, void *memory);
    /* Host memory that copies access without the CPU (page-locked), if the device has such. */
    int (*host_alloc)(struct erg_backend *backend, void **memory, size_t bytes,
                      struct erg_error *err);
    void (*host_free)(struct erg_backend *backend, void *memory);
    /* The number of bytes that can be allocated now. */
    int (*memory_free)(struct erg_backend *backend, size_t *bytes, struct erg_error *err);
    int (*copy)(struct erg_backend *backend, void *to, const void *from, size_t bytes,
                struct erg_stream *stream, struct erg_error *err);
    int (*fill)(struct erg_backend *backend, void *memory, int byte, size_t bytes,
                struct erg_stream *stream, struct erg_error *err);
    /* `urgent`: its kernels start before those of streams that are not urgent. */
    int (*stream_new)(struct erg_backend *backend, struct erg_stream **stream, bool urgent,
                      struct erg_error *err);
    void (*stream_free)(struct erg_backend *backend, struct erg_stream *stream);
    /* Waits until the stream has finished all queued work. */
    int (*stream_wait)(struct erg_backend *backend, struct erg_stream *stream,
                       struct erg_error *err);
    /* `timed`: measures the time between two events; others are cheaper. */
    int (*event_new)(struct erg_backend *backend, struct erg_event **event, bool timed,
                     struct erg_error *err);
    void (*event_free)(struct erg_backend *backend, struct erg_event *event);
    int (*event_record)(struct erg_backend *backend, struct erg_event *event,
                        struct erg_stream *stream, struct erg_error *err);
    /* Seconds between two timed events; both must have happened. */
    int (*event_seconds)(struct erg_backend *backend, double *seconds, struct erg_event *from,
                         struct erg_event *to, struct erg_error *err);
    /* Work queued from now on waits for the recorded work. */
    int (*event_wait)(struct erg_backend *backend, struct erg_event *event,
                      struct erg_stream *stream, struct erg_error *err);
    /* Bytes of scratch memory of a kernel; they depend only on its sizes. */
    int (*scratch_bytes)(struct erg_backend *backend, const struct erg_kernel *kernel,
                         size_t *bytes, struct erg_error *err);
    /*
     * Finds, once for each size, the fastest way to run a product (the kinds ERG_KERNEL_LINEAR...),
     * which later launches use: by timing, which takes seconds and memory and must run alone on the
     * device; or from a stored result. Two searches may give different bits. NULL: there is one
     * way.
     */
    int (*choose)(struct erg_backend *backend, const struct erg_kernel *kernel,
                  struct erg_error *err);
    int (*launch)(struct erg_backend *backend, const struct erg_kernel *kernel, void *scratch,
                  struct erg_stream *stream, struct erg_error *err);
    /*
     * World call, the same number of times on every rank: makes a group of ranks [count] in
     * ascending order, which include this one; with count 0 this rank is in no group and *group is
     * NULL. The groups of one call are disjoint.
     */
    int (*group_new)(struct erg_backend *backend, struct erg_group **group, const int *ranks,
                     size_t count, struct erg_error *err);
    /*
     * Call it before connect(): the data of this group's exchanges begins at `first` on this rank,
     * and elsewhere on others. Messages that it sends are at `first` and `stride` bytes further,
     * alternately.
     */
    void (*group_window)(struct erg_backend *backend, struct erg_group *group, const void *first,
                         size_t stride);
    void (*group_free)(struct erg_backend *backend, struct erg_group *group);
    /*
     * World calls, after the last group was made and before the first is freed; these and
     * group_window() are NULL if groups do not need them. From then on groups exchange data within
     * `memory`, which alloc() returned. `layout` is equal on two ranks if both have the same layout
     * of that memory: ranks that exchange more than messages need that, or a window. After
     * disconnect() the memory may be freed.
     */
    int (*connect)(struct erg_backend *backend, void *memory, size_t bytes, uint64_t layout,
                   struct erg_error *err);
    void (*disconnect)(struct erg_backend *backend);
    /* All ranks of a group make the same exchanges in the same order, on one stream each. */
    int (*exchange)(struct erg_backend *backend, struct erg_group *group,
                    const struct erg_exchange *exchange, struct erg_stream *stream,
                    struct erg_error *err);
    /*
     * Adds one, atomically, to a number in host memory once the stream has finished the queued
     * work, so that another thread sees its progress. NULL: not supported.
     */
    int (*count)(struct erg_backend *backend, uint64_t *number, struct erg_stream *stream,
                 struct erg_error *err);
};

struct erg_backend {
    const struct erg_backend_table *table;
    size_t element_bytes;
    const char *name;   /* "host", or the GPU's */
    bool shares_memory; /* shares its memory with the other ranks of its machine */
    bool spoils_free;   /* for tests: free memory is filled with NaN */
};

/* Work queued on `stream` from now on waits for the work queued on `other`, by an event of the
 * caller. */
static inline int erg_backend_follow(struct erg_backend *backend, struct erg_event *event,
                                     struct erg_stream *stream, struct erg_stream *other,
                                     struct erg_error *err)
{
    return backend->table->event_record(backend, event, other, err) ||
                   backend->table->event_wait(backend, event, stream, err)
               ? -1
               : 0;
}

/* Copies, and waits for all work that is queued on the stream. */
static inline int erg_backend_copy_now(struct erg_backend *backend, void *to, const void *from,
                                       size_t bytes, struct erg_stream *stream,
                                       struct erg_error *err)
{
    return backend->table->copy(backend, to, from, bytes, stream, err) ||
                   backend->table->stream_wait(backend, stream, err)
               ? -1
               : 0;
}

enum erg_backend_kind {
    ERG_BACKEND_ANY, /* a GPU if this machine has one, otherwise the host */
    ERG_BACKEND_GPU, /* the GPU of this process's rank */
    ERG_BACKEND_HOST,
};

struct erg_backend_options {
    enum erg_backend_kind kind;
    bool float32;                      /* elements are floats, on the host only; false: bf16 */
    bool deterministic;                /* the same bits in every run, even if that costs time */
    int local_rank;                    /* the GPU */
    struct erg_rendezvous *rendezvous; /* of the ranks; outlives the backend; NULL: one rank */
};

/* World call. ERG_NO_DEVICE if no GPU is available; close it by its table. */
int erg_backend_open(struct erg_backend **backend, const struct erg_backend_options *options,
                     struct erg_error *err);

#endif
