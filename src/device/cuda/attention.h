/*
 * Attention on the GPU: grouped-query flash attention, forward and backward, in bf16 with fp32
 * accumulation, by the fused kernels of cuDNN 9, with a budget of SMs per call.
 *
 *   O = softmax(scale Q K^T + mask) V,   scale = 1/sqrt(head_dim)
 *
 * Query head h reads key/value head h / (query_heads / kv_heads). The forward pass also writes
 * `stats`, the natural logarithm of each row's sum of exponentials of the scaled and masked scores,
 * [batch, query_heads, queries] in fp32; the backward pass reads it.
 *
 * cuDNN is opened at run time (libcudnn.so.9) through its C backend API, without C++ and without
 * linking to it. The attention is a graph of matrix products, pointwise operations and reductions
 * that cuDNN recognises as a whole (NVIDIA cuDNN documentation, "Graph API", fused attention).
 *
 * Budget of SMs. On Hopper both main kernels are persistent: one CTA per SM takes tiles until none
 * are left, so that the number of CTAs changes the time and not the result (bit for bit in the
 * forward pass). A call with `ctas` lowers the grid of that kernel, as a node of a CUDA graph:
 *   - while the stream is being captured, the node just captured is edited in place, so a caller
 *     that captures a longer piece of work (a partition) need do nothing else;
 *   - otherwise the call is captured, edited, launched and freed, which costs the host some tens of
 *     microseconds: good enough for tests, too slow for a training loop.
 * A collective that runs concurrently with attention must be launched first, or attention must
 * leave SMs free for it: the persistent CTAs hold their SMs until the end. The small kernels of the
 * backward pass (row sums, conversion of dQ, sums over a group's heads) use all SMs regardless of
 * `ctas`.
 *
 * The GPU given to erg_cudnn_open() must be the calling thread's in every call (erg_cuda_bind()).
 * Only one thread at a time may use an erg_cudnn and objects made from it.
 */
#ifndef ERG_CUDA_ATTENTION_H
#define ERG_CUDA_ATTENTION_H

#include "device/cuda/cuda.h"
#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cuDNN, ready on one GPU. */
struct erg_cudnn;

/*
 * Opens cuDNN on the GPU of the calling thread. Plans are stored as files in `plan_folder`, since a
 * search takes half a second and reading a file some milliseconds. NULL: ergon's folder in the
 * user's cache ($XDG_CACHE_HOME or ~/.cache); "": plans are not stored. A plan that is damaged or
 * belongs to another device or version is searched again. ERG_NO_DEVICE if cuDNN 9 or the GPU is
 * missing.
 */
int erg_cudnn_open(struct erg_cudnn **cudnn, const struct erg_cuda *cuda, const char *plan_folder,
                   struct erg_error *err);
void erg_cudnn_close(struct erg_cudnn *cudnn); /* after everything made with it; NULL is fine */

enum erg_attention_mask {
    ERG_MASK_NONE,   /* every query sees all keys */
    ERG_MASK_CAUSAL, /* query i sees keys 0..i */
    /*
     * Query i sees keys 0..i + keys - queries: the last queries of a longer sequence. A rank has
     * these under context parallelism once it has gathered the earlier keys.
     */
    ERG_MASK_CAUSAL_LAST,
};

/* Strides in elements; head_dim itself is contiguous. */
struct erg_attention_strides {
    int64_t batch, token, head;
};

struct erg_attention_shape {
    int64_t batch, query_heads, kv_heads, head_dim;
    int64_t queries, keys; /* tokens of Q and of K, V */
    enum erg_attention_mask mask;
    /* q: Q and dQ; kv: K, V, dK and dV; o: O and dO. All multiples of 8 (16 bytes). */
    struct erg_attention_strides q, kv, o;
    /*
     * The backward pass without atomics: slower, with the same bits in every run, and with 2 batch
     * query_heads queries keys bytes more workspace for all scores.
     */
    bool repeatable;
};

/*
 * The causal shape of one layer whose Q, K, V are slices of one packed projection output
 * [batch, tokens, (query_heads + 2 kv_heads) head_dim], and O is [batch, tokens, query_heads
 * head_dim]. K starts query_heads head_dim elements after Q, V kv_heads head_dim after K.
 */
struct erg_attention_shape erg_attention_packed(int64_t batch, int64_t query_heads,
                                                int64_t kv_heads, int64_t head_dim, int64_t tokens);

/* Checks that the numbers are valid, independent of cuDNN's support. */
int erg_attention_check_shape(const struct erg_attention_shape *shape, struct erg_error *err);

/* The plans of both directions for one shape. */
struct erg_attention;

/*
 * Finds plans for a shape. ERG_NO_DEVICE if cuDNN has none for this GPU, or none within the
 * workspace that the fused kernels need (cuDNN then did not recognise the graph as attention).
 */
int erg_attention_new(struct erg_attention **attention, struct erg_cudnn *cudnn,
                      const struct erg_attention_shape *shape, struct erg_error *err);
void erg_attention_free(struct erg_attention *attention);

/*
 * Bytes of the workspace of a call: a few hundred forward; backward slightly more than 4 batch
 * query_heads head_dim (queries + keys) (only `queries` if query_heads = kv_heads). All layers can
 * share one. It needs no initialisation.
 */
size_t erg_attention_forward_bytes(const struct erg_attention *attention);
size_t erg_attention_backward_bytes(const struct erg_attention *attention);

/* Device memory, aligned to 16 bytes. Outputs need no zeroing. The forward pass ignores the d*. */
struct erg_attention_buffers {
    const void *q, *k, *v; /* bf16, in */
    void *o;               /* bf16, out of forward, into backward */
    float *stats;          /* out of forward, into backward */
    const void *d_o;       /* bf16, in */
    void *dq, *dk, *dv;    /* bf16, out */
};

/*
 * Queue one pass on a stream. `ctas` is the number of SMs that the main kernel uses; 0: all. GPUs
 * other than Hopper support only 0 and otherwise fail with ERG_NO_DEVICE. The workspace keeps the
 * kernels' state (tile counter, sums): calls that may run concurrently, on two streams or in two
 * graphs, need two workspaces.
 *
 * The forward pass gives the same bits in every run. The gradients may differ by a relative 1e-6
 * from run to run, since dQ is summed by atomics, unless the shape is repeatable.
 */
int erg_attention_forward(struct erg_attention *attention,
                          const struct erg_attention_buffers *buffers, void *workspace, int ctas,
                          struct CUstream_st *stream, struct erg_error *err);
int erg_attention_backward(struct erg_attention *attention,
                           const struct erg_attention_buffers *buffers, void *workspace, int ctas,
                           struct CUstream_st *stream, struct erg_error *err);

/*
 * Checks the assumptions of the budget once, before training starts, on the caller's own buffers:
 * the main kernels have one CTA per SM, and the forward pass with fewer CTAs writes the same O and
 * stats, bit for bit. Q, K, V and dO must hold finite numbers that are not all equal; a sequence's
 * O must have no gaps; all outputs are overwritten. The workspace must be large enough for both
 * directions. The stream must not be captured; the call waits for it. It also loads the kernels, so
 * that a later capture triggers no lazy loading.
 */
int erg_attention_verify(struct erg_attention *attention,
                         const struct erg_attention_buffers *buffers, void *workspace,
                         struct CUstream_st *stream, struct erg_error *err);

#endif
