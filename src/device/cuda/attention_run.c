/* Attention on the GPU: opens cuDNN's plans, lays out their workspace, and runs both passes. */
#include "device/cuda/attention.h"

#include "base/memory.h"
#include "device/cuda/attention_internal.h"
#include "device/cuda/cuda_internal.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_ALIGNMENT = 256, POINTER_ALIGNMENT = 16, MAX_TENSORS = 16 };

struct erg_attention {
    struct erg_cudnn *cudnn;
    struct erg_attention_shape shape;
    struct erg_attention_plan plans[2]; /* of each pass */
    /* The layout of the workspace, with the offsets of the backward pass's sums. */
    size_t forward_bytes, softmax_sum_at, dq_sum_at, backward_bytes;
    /* cuDNN reads the scalars when it runs a plan. */
    float scale, minus_infinity, one;
    int32_t queries, keys;
};

static size_t align(size_t bytes)
{
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

static void lay_out_workspace(struct erg_attention *a)
{
    size_t rows = (size_t)(a->shape.batch * a->shape.query_heads * a->shape.queries);
    size_t forward_bytes = (size_t)a->plans[ERG_ATTENTION_FORWARD].workspace_bytes;
    a->forward_bytes = align(
        forward_bytes ? forward_bytes : 1); /* never 0, so there is always a pointer to check */
    a->softmax_sum_at = align((size_t)a->plans[ERG_ATTENTION_BACKWARD].workspace_bytes);
    a->dq_sum_at = align(a->softmax_sum_at + rows * sizeof(float));
    a->backward_bytes = a->dq_sum_at;
    if (!a->shape.repeatable)
        a->backward_bytes += rows * (size_t)a->shape.head_dim * sizeof(float);
}

int erg_attention_new(struct erg_attention **attention, struct erg_cudnn *cudnn,
                      const struct erg_attention_shape *shape, struct erg_error *err)
{
    if (erg_attention_check_shape(shape, err) != 0)
        return -1;
    struct erg_attention *a = erg_xcalloc(1, sizeof *a);
    a->cudnn = cudnn;
    a->shape = *shape;
    a->scale = (float)(1 / sqrt((double)shape->head_dim));
    a->minus_infinity = -INFINITY;
    a->one = 1;
    a->queries = (int32_t)shape->queries;
    a->keys = (int32_t)shape->keys;
    for (int pass = ERG_ATTENTION_FORWARD; pass <= ERG_ATTENTION_BACKWARD; pass++)
        if (erg_attention_plan_find(&a->plans[pass], cudnn, shape, (enum erg_attention_pass)pass,
                                    err) != 0) {
            erg_attention_free(a);
            return -1;
        }
    lay_out_workspace(a);
    *attention = a;
    return 0;
}

void erg_attention_free(struct erg_attention *a)
{
    if (!a)
        return;
    for (size_t pass = 0; pass < 2; pass++)
        erg_cudnn_destroy(a->cudnn, &a->plans[pass].plan);
    free(a);
}

size_t erg_attention_forward_bytes(const struct erg_attention *a)
{
    return a->forward_bytes;
}

size_t erg_attention_backward_bytes(const struct erg_attention *a)
{
    return a->backward_bytes;
}

/* The buffers of a plan's run. */
struct pack {
    int64_t ids[MAX_TENSORS], count;
    void *pointers[MAX_TENSORS];
    void *workspace;
    bool misplaced; /* a device pointer is NULL or not aligned */
};

static void add_scalar(struct pack *pack, enum erg_attention_tensor id, void *value)
{
    pack->ids[pack->count] = id;
    pack->pointers[pack->count++] = value;
}

static void add(struct pack *pack, enum erg_attention_tensor id, const void *memory)
{
    uintptr_t address = (uintptr_t)memory; /* drops const: cuDNN takes all alike */
    pack->misplaced |= !memory || address % POINTER_ALIGNMENT != 0;
    pack->ids[pack->count] = id;
    pack->pointers[pack->count++] = (void *)address;
}

static void fill_pack(struct pack *pack, struct erg_attention *a,
                      const struct erg_attention_buffers *buffers, void *workspace,
                      enum erg_attention_pass pass)
{
    *pack = (struct pack){.workspace = workspace};
    pack->misplaced = !workspace || (uintptr_t)workspace % POINTER_ALIGNMENT != 0;
    add(pack, ERG_TENSOR_Q, buffers->q);
    add(pack, ERG_TENSOR_K, buffers->k);
    add(pack, ERG_TENSOR_V, buffers->v);
    add(pack, ERG_TENSOR_O, buffers->o);
    add(pack, ERG_TENSOR_STATS, buffers->stats);
    add_scalar(pack, ERG_TENSOR_SCALE, &a->scale);
    if (a->shape.mask != ERG_MASK_NONE)
        add_scalar(pack, ERG_TENSOR_MINUS_INFINITY, &a->minus_infinity);
    if (a->shape.mask == ERG_MASK_CAUSAL_LAST) {
        add_scalar(pack, ERG_TENSOR_QUERIES, &a->queries);
        add_scalar(pack, ERG_TENSOR_KEYS, &a->keys);
    }
    if (pass == ERG_ATTENTION_FORWARD)
        return;
    add(pack, ERG_TENSOR_DO, buffers->d_o);
    add(pack, ERG_TENSOR_DQ, buffers->dq);
    add(pack, ERG_TENSOR_DK, buffers->dk);
    add(pack, ERG_TENSOR_DV, buffers->dv);
    add_scalar(pack, ERG_TENSOR_ONE, &a->one);
    add(pack, ERG_TENSOR_SOFTMAX_SUM, (char *)workspace + a->softmax_sum_at);
    if (!a->shape.repeatable)
        add(pack, ERG_TENSOR_DQ_SUM, (char *)workspace + a->dq_sum_at);
}

static int execute(struct erg_attention *a, enum erg_attention_pass pass, const struct pack *pack,
                   cudaStream_t stream, struct erg_error *err)
{
    const struct erg_cudnn *cudnn = a->cudnn;
    const char *doing =
        pass == ERG_ATTENTION_FORWARD ? "running attention" : "running attention backward";
    cudnnBackendDescriptor_t variant = NULL;
    int result =
        erg_cudnn_make(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &variant, err) ||
                erg_cudnn_set(cudnn, variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                              pack->count, pack->ids, err) ||
                erg_cudnn_set(cudnn, variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                              CUDNN_TYPE_VOID_PTR, pack->count, pack->pointers, err) ||
                erg_cudnn_set(cudnn, variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                              CUDNN_TYPE_VOID_PTR, 1, &pack->workspace, err) ||
                erg_cudnn_finalize(cudnn, variant, doing, err) ||
                erg_cudnn_check(cudnn, cudnn->set_stream(cudnn->handle, stream), doing, err) ||
                erg_cudnn_check(cudnn, cudnn->execute(cudnn->handle, a->plans[pass].plan, variant),
                                doing, err)
            ? -1
            : 0;
    erg_cudnn_destroy(cudnn, &variant);
    return result;
}

/* Runs on a stream in capture. *full becomes the number of CTAs without the limit. */
static int execute_limited(struct erg_attention *a, enum erg_attention_pass pass,
                           const struct pack *pack, int ctas, cudaStream_t stream, int *full,
                           struct erg_error *err)
{
    struct erg_grid_mark mark;
    return erg_grid_mark(&mark, stream, err) || execute(a, pass, pack, stream, err) ||
                   erg_grid_limit(a->cudnn, &mark, stream, ctas, full, err)
               ? -1
               : 0;
}

/* Captures on our own stream, launches once on the caller's. */
static int capture_and_launch(struct erg_attention *a, enum erg_attention_pass pass,
                              const struct pack *pack, int ctas, cudaStream_t stream, int *full,
                              struct erg_error *err)
{
    static const char doing[] = "running attention on a part of the GPU";
    cudaStream_t own = a->cudnn->capture_stream;
    if (erg_cuda_check(cudaStreamBeginCapture(own, cudaStreamCaptureModeRelaxed), err, "%s",
                       doing) != 0)
        return -1;
    int result = execute_limited(a, pass, pack, ctas, own, full, err);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t launch = NULL;
    cudaError_t ended = cudaStreamEndCapture(own, &graph); /* also after a failure */
    if (result != 0)
        (void)cudaGetLastError(); /* reported already */
    else
        result =
            erg_cuda_check(ended, err, "%s", doing) ||
                    erg_cuda_check(cudaGraphInstantiate(&launch, graph, 0), err, "%s", doing) ||
                    erg_cuda_check(cudaGraphLaunch(launch, stream), err, "%s", doing)
                ? -1
                : 0;
    if (launch)
        cudaGraphExecDestroy(launch); /* the driver frees it after it has run */
    if (graph)
        cudaGraphDestroy(graph);
    return result;
}

static int run(struct erg_attention *a, enum erg_attention_pass pass,
               const struct erg_attention_buffers *buffers, void *workspace, int ctas,
               cudaStream_t stream, int *full, struct erg_error *err)
{
    struct pack pack;
    fill_pack(&pack, a, buffers, workspace, pass);
    if (pack.misplaced)
        return erg_fail(err, ERG_FAILED,
                        "running attention: a buffer or the workspace is missing or not aligned to "
                        "%d bytes",
                        POINTER_ALIGNMENT);
    if (ctas < 0 || ctas > a->cudnn->sms)
        return erg_fail(err, ERG_FAILED,
                        "running attention on %d SMs: expected 0 (all) to %d, the GPU's number",
                        ctas, a->cudnn->sms);
    if (ctas == 0 || ctas == a->cudnn->sms)
        return execute(a, pass, &pack, stream, err);
    enum cudaStreamCaptureStatus status;
    if (erg_cuda_check(cudaStreamIsCapturing(stream, &status), err, "running attention") != 0)
        return -1;
    if (status == cudaStreamCaptureStatusActive)
        return execute_limited(a, pass, &pack, ctas, stream, full, err);
    return capture_and_launch(a, pass, &pack, ctas, stream, full, err);
}

int erg_attention_forward(struct erg_attention *a, const struct erg_attention_buffers *buffers,
                          void *workspace, int ctas, struct CUstream_st *stream,
                          struct erg_error *err)
{
    int full;
    return run(a, ERG_ATTENTION_FORWARD, buffers, workspace, ctas, stream, &full, err);
}

int erg_attention_backward(struct erg_attention *a, const struct erg_attention_buffers *buffers,
                           void *workspace, int ctas, struct CUstream_st *stream,
                           struct erg_error *err)
{
    int full;
    return run(a, ERG_ATTENTION_BACKWARD, buffers, workspace, ctas, stream, &full, err);
}

/* The outputs of a forward pass, on the host. */
struct outcome {
    size_t o_bytes, stats_bytes;
    char *o, *stats;
};

static void outcome_init(struct outcome *outcome, const struct erg_attention_shape *s)
{
    size_t rows = (size_t)(s->batch * s->query_heads * s->queries);
    *outcome = (struct outcome){.o_bytes = rows * (size_t)s->head_dim * 2,
                                .stats_bytes = rows * sizeof(float)};
    outcome->o = erg_xmalloc(outcome->o_bytes);
    outcome->stats = erg_xmalloc(outcome->stats_bytes);
}

static void outcome_release(struct outcome *outcome)
{
    free(outcome->o);
    free(outcome->stats);
}

/* O may have gaps between sequences. */
static int copy_o(const struct erg_attention *a, const struct erg_attention_buffers *buffers,
                  struct outcome *outcome, struct CUstream_st *stream, struct erg_error *err)
{
    size_t bytes = outcome->o_bytes / (size_t)a->shape.batch;
    for (size_t b = 0; b < (size_t)a->shape.batch; b++)
        if (erg_cuda_copy(outcome->o + b * bytes,
                          (char *)buffers->o + b * (size_t)a->shape.o.batch * 2, bytes, stream,
                          err))
            return -1;
    return 0;
}

static int poison_o(const struct erg_attention *a, const struct erg_attention_buffers *buffers,
                    size_t o_bytes, struct CUstream_st *stream, struct erg_error *err)
{
    size_t bytes = o_bytes / (size_t)a->shape.batch;
    for (size_t b = 0; b < (size_t)a->shape.batch; b++)
        if (erg_cuda_fill((char *)buffers->o + b * (size_t)a->shape.o.batch * 2, 0xff, bytes,
                          stream, err))
            return -1;
    return 0;
}

/*
 * Runs forward into outputs filled with NaN, so that no earlier result can be mistaken for this
 * one's.
 */
static int run_to_host(struct erg_attention *a, const struct erg_attention_buffers *buffers,
                       void *workspace, int ctas, struct outcome *outcome,
                       struct CUstream_st *stream, int *full, struct erg_error *err)
{
    return poison_o(a, buffers, outcome->o_bytes, stream, err) ||
                   erg_cuda_fill(buffers->stats, 0xff, outcome->stats_bytes, stream, err) ||
                   run(a, ERG_ATTENTION_FORWARD, buffers, workspace, ctas, stream, full, err) ||
                   copy_o(a, buffers, outcome, stream, err) ||
                   erg_cuda_copy(outcome->stats, buffers->stats, outcome->stats_bytes, stream,
                                 err) ||
                   erg_cuda_stream_sync(stream, err)
               ? -1
               : 0;
}

static bool all_finite(const struct outcome *outcome)
{
    for (size_t i = 0; i < outcome->o_bytes; i += 2) {
        uint16_t bits;
        memcpy(&bits, outcome->o + i, sizeof bits);
        if ((bits & 0x7f80) == 0x7f80)
            return false;
    }
    return true;
}

/* A grid smaller than the GPU is correct only for few tiles; tiles have 128 rows. */
static int check_full_grid(const struct erg_attention *a, int full, struct erg_error *err)
{
    const struct erg_attention_shape *s = &a->shape;
    int64_t tokens = s->queries < s->keys ? s->queries : s->keys;
    if (full == a->cudnn->sms || s->batch * s->query_heads * (tokens / 256) < a->cudnn->sms)
        return 0;
    return erg_fail(err, ERG_NO_DEVICE,
                    "verifying attention: cuDNN's kernel has %d CTAs, expected one for each of the "
                    "%d SMs",
                    full, a->cudnn->sms);
}

int erg_attention_verify(struct erg_attention *a, const struct erg_attention_buffers *buffers,
                         void *workspace, struct CUstream_st *stream, struct erg_error *err)
{
    const struct erg_attention_shape *s = &a->shape;
    if (s->o.head != s->head_dim || s->o.token != s->query_heads * s->head_dim)
        return erg_fail(err, ERG_FAILED,
                        "verifying attention: O has gaps in a sequence, expected [token, head, "
                        "dim]");
    int some = a->cudnn->sms - a->cudnn->sms / 8; /* leaves SMs for a collective */
    int full = 0, full_backward = 0;
    struct outcome whole, limited;
    outcome_init(&whole, s);
    outcome_init(&limited, s);
    int result = run_to_host(a, buffers, workspace, 0, &whole, stream, &full, err) ||
                         run_to_host(a, buffers, workspace, some, &limited, stream, &full, err) ||
                         run(a, ERG_ATTENTION_BACKWARD, buffers, workspace, some, stream,
                             &full_backward, err) ||
                         erg_cuda_stream_sync(stream, err) || check_full_grid(a, full, err) ||
                         check_full_grid(a, full_backward, err)
                     ? -1
                     : 0;
    if (result == 0 && !all_finite(&whole))
        result = erg_fail(err, ERG_FAILED,
                          "verifying attention: O is not finite, expected finite Q, K and V");
    if (result == 0 && (memcmp(whole.o, limited.o, whole.o_bytes) != 0 ||
                        memcmp(whole.stats, limited.stats, whole.stats_bytes) != 0))
        result = erg_fail(err, ERG_NO_DEVICE,
                          "verifying attention: %d CTAs give another result than %d; this cuDNN "
                          "cannot limit the SMs of attention",
                          some, full);
    outcome_release(&whole);
    outcome_release(&limited);
    return result;
}
