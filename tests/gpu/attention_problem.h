/*
 * What the tests of attention share: a shape with random inputs, and its buffers on the GPU.
 */
#ifndef ERGON_GPU_ATTENTION_H
#define ERGON_GPU_ATTENTION_H

#include "device/cuda/attention.h"
#include "gpu_check.h"

/* Opens cuDNN, or leaves the program as skipped. "" as folder: no plan files. */
static inline struct erg_cudnn *open_cudnn(const struct erg_cuda *cuda, const char *folder)
{
    struct erg_cudnn *cudnn;
    if (erg_cudnn_open(&cudnn, cuda, folder, &gpu_error) != 0) {
        printf("%s\n", gpu_error.message);
        exit(gpu_error.status == ERG_NO_DEVICE ? GPU_SKIPPED : 1);
    }
    return cudnn;
}

/* One shape with its inputs on the host and all buffers on the GPU. */
struct problem {
    struct erg_attention_shape shape;
    size_t q_at, k_at, v_at; /* elements, in the inputs and in their gradients alike */
    size_t in_count, o_count, rows;
    erg_bf16 *in, *d_o; /* host */
    void *on_in, *on_grad, *on_workspace;
    struct erg_attention_buffers on;
    struct erg_attention *attention;
};

static inline void *at(void *base, size_t elements)
{
    return (char *)base + elements * sizeof(erg_bf16);
}

static inline void problem_init(struct problem *p, struct erg_cudnn *cudnn,
                                const struct erg_attention_shape *shape, uint64_t seed)
{
    const struct erg_attention_shape *s = shape;
    size_t d = (size_t)s->head_dim, batch = (size_t)s->batch;
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    *p = (struct problem){.shape = *shape};
    p->rows = batch * (size_t)(s->query_heads * s->queries);
    p->o_count = p->rows * d;
    if (s->q.token == s->kv.token) { /* packed: rows of Q, K, V */
        p->in_count = batch * (size_t)s->q.batch;
        p->k_at = (size_t)s->query_heads * d;
    } else { /* Q, then rows of K, V */
        p->in_count = batch * (size_t)(s->q.batch + s->kv.batch);
        p->k_at = batch * (size_t)s->q.batch;
    }
    p->v_at = p->k_at + (size_t)s->kv_heads * d;
    p->in = gpu_random(&rng, p->in_count, 1);
    p->d_o = gpu_random(&rng, p->o_count, 1);
    gpu_ok(erg_attention_new(&p->attention, cudnn, shape, &gpu_error));
    size_t workspace_bytes = erg_attention_backward_bytes(p->attention);
    if (workspace_bytes < erg_attention_forward_bytes(p->attention))
        workspace_bytes = erg_attention_forward_bytes(p->attention);
    p->on_workspace = gpu_alloc(workspace_bytes);
    p->on_in = gpu_upload(p->in, p->in_count * sizeof(erg_bf16));
    p->on_grad = gpu_alloc(p->in_count * sizeof(erg_bf16));
    p->on = (struct erg_attention_buffers){
        .q = at(p->on_in, p->q_at),
        .k = at(p->on_in, p->k_at),
        .v = at(p->on_in, p->v_at),
        .o = gpu_alloc(p->o_count * sizeof(erg_bf16)),
        .stats = gpu_alloc(p->rows * sizeof(float)),
        .d_o = gpu_upload(p->d_o, p->o_count * sizeof(erg_bf16)),
        .dq = at(p->on_grad, p->q_at),
        .dk = at(p->on_grad, p->k_at),
        .dv = at(p->on_grad, p->v_at),
    };
}

static inline void problem_release(struct problem *p)
{
    erg_attention_free(p->attention);
    free(p->in), free(p->d_o);
    erg_cuda_free(p->on_in), erg_cuda_free(p->on_grad), erg_cuda_free(p->on_workspace);
    erg_cuda_free(p->on.o), erg_cuda_free(p->on.stats);
    union {
        const void *in;
        void *out;
    } d_o = {.in = p->on.d_o};
    erg_cuda_free(d_o.out);
}

static inline void forward(struct problem *p, int ctas, struct CUstream_st *stream)
{
    gpu_ok(erg_attention_forward(p->attention, &p->on, p->on_workspace, ctas, stream, &gpu_error));
}

static inline void backward(struct problem *p, int ctas, struct CUstream_st *stream)
{
    gpu_ok(erg_attention_backward(p->attention, &p->on, p->on_workspace, ctas, stream, &gpu_error));
}

/* Queries and keys of different numbers: Q alone, K and V side by side. */
static inline struct erg_attention_shape chunk(int64_t batch, int64_t query_heads, int64_t kv_heads,
                                               int64_t queries, int64_t keys,
                                               enum erg_attention_mask mask)
{
    struct erg_attention_shape s = erg_attention_packed(batch, query_heads, kv_heads, 128, queries);
    int64_t row = 2 * kv_heads * 128;
    s.keys = keys;
    s.mask = mask;
    s.q = s.o;
    s.kv = (struct erg_attention_strides){keys * row, row, 128};
    return s;
}

static inline void judge(const char *what, double error, double allowed)
{
    bool good = error <= allowed;
    printf("%s %s: %.2e, allowed %.1e\n", good ? "ok    " : "FAILED", what, error, allowed);
    gpu_failures += !good;
}

#endif
