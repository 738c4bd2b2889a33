/* One GPU as a backend: memory and streams of CUDA, and the dispatch of kernels. */
#include "device/cuda/cuda_backend.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/cuda/attention.h"
#include "device/cuda/cuda_group.h"
#include "device/cuda/gemm.h"
#include "device/cuda/kernels.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct cuda_backend {
    struct erg_backend backend;
    struct erg_cuda cuda;
    char *plan_folder; /* NULL: no home folder */
    struct erg_cudnn *cudnn;
    struct erg_gemm *gemm;
    struct erg_cuda_groups *groups; /* NULL: one rank */
    bool deterministic;
    struct { /* plans of attention, each found once */
        struct cuda_attention {
            struct erg_ops_attention shape;
            struct erg_attention *plan;
        } * items;
        size_t count, capacity;
    } attentions;
};

static struct cuda_backend *cuda_of(struct erg_backend *backend)
{
    return (struct cuda_backend *)backend;
}

static struct CUstream_st *stream_of(struct erg_stream *stream)
{
    return (struct CUstream_st *)stream;
}

/* ---- memory, streams, events ---- */

static int cuda_alloc(struct erg_backend *backend, void **memory, size_t bytes,
                      struct erg_error *err)
{
    (void)backend;
    return erg_cuda_alloc(memory, bytes, err);
}

static void cuda_free(struct erg_backend *backend, void *memory)
{
    (void)backend;
    erg_cuda_free(memory);
}

static int cuda_host_alloc(struct erg_backend *backend, void **memory, size_t bytes,
                           struct erg_error *err)
{
    (void)backend;
    return erg_cuda_alloc_host(memory, bytes, err);
}

static void cuda_host_free(struct erg_backend *backend, void *memory)
{
    (void)backend;
    erg_cuda_free_host(memory);
}

static int cuda_memory_free(struct erg_backend *backend, size_t *bytes, struct erg_error *err)
{
    (void)backend;
    return erg_cuda_memory_free(bytes, err);
}

static int cuda_copy(struct erg_backend *backend, void *to, const void *from, size_t bytes,
                     struct erg_stream *stream, struct erg_error *err)
{
    (void)backend;
    return erg_cuda_copy(to, from, bytes, stream_of(stream), err);
}

static int cuda_fill(struct erg_backend *backend, void *memory, int byte, size_t bytes,
                     struct erg_stream *stream, struct erg_error *err)
{
    (void)backend;
    return erg_cuda_fill(memory, byte, bytes, stream_of(stream), err);
}

static int cuda_stream_new(struct erg_backend *backend, struct erg_stream **stream, bool urgent,
                           struct erg_error *err)
{
    (void)backend;
    struct CUstream_st *made;
    if (erg_cuda_stream_new(&made, urgent, err) != 0)
        return -1;
    *stream = (struct erg_stream *)made;
    return 0;
}

static void cuda_stream_free(struct erg_backend *backend, struct erg_stream *stream)
{
    (void)backend;
    if (stream)
        erg_cuda_stream_free(stream_of(stream));
}

static int cuda_stream_wait(struct erg_backend *backend, struct erg_stream *stream,
                            struct erg_error *err)
{
    struct erg_cuda_groups *groups = cuda_of(backend)->groups;
    return groups ? erg_cuda_groups_wait(groups, stream_of(stream), err)
                  : erg_cuda_stream_sync(stream_of(stream), err);
}

static int cuda_event_new(struct erg_backend *backend, struct erg_event **event, bool timed,
                          struct erg_error *err)
{
    (void)backend;
    struct CUevent_st *made;
    if (erg_cuda_event_new(&made, timed, err) != 0)
        return -1;
    *event = (struct erg_event *)made;
    return 0;
}

static void cuda_event_free(struct erg_backend *backend, struct erg_event *event)
{
    (void)backend;
    if (event)
        erg_cuda_event_free((struct CUevent_st *)event);
}

static int cuda_event_record(struct erg_backend *backend, struct erg_event *event,
                             struct erg_stream *stream, struct erg_error *err)
{
    (void)backend;
    return erg_cuda_event_record((struct CUevent_st *)event, stream_of(stream), err);
}

static int cuda_event_seconds(struct erg_backend *backend, double *seconds, struct erg_event *from,
                              struct erg_event *to, struct erg_error *err)
{
    (void)backend;
    double ms;
    if (erg_cuda_event_ms(&ms, (struct CUevent_st *)from, (struct CUevent_st *)to, err) != 0)
        return -1;
    *seconds = 1e-3 * ms;
    return 0;
}

static int cuda_event_wait(struct erg_backend *backend, struct erg_event *event,
                           struct erg_stream *stream, struct erg_error *err)
{
    (void)backend;
    return erg_cuda_event_wait((struct CUevent_st *)event, stream_of(stream), err);
}

/* ---- products and attention ---- */

static struct erg_gemm_shape product_of(const struct erg_kernel *kernel)
{
    const __typeof__(kernel->linear) *a = &kernel->linear;
    return (struct erg_gemm_shape){kernel->kind == ERG_KERNEL_LINEAR ? ERG_GEMM_FORWARD
                                   : kernel->kind == ERG_KERNEL_LINEAR_INPUT_GRADIENT
                                       ? ERG_GEMM_INPUT_GRADIENT
                                       : ERG_GEMM_WEIGHT_GRADIENT,
                                   a->tokens, a->inputs, a->outputs};
}

/* Without memory for the timing, a product uses cuBLASLt's choice. */
static int cuda_choose(struct erg_backend *backend, const struct erg_kernel *kernel,
                       struct erg_error *err)
{
    struct cuda_backend *cuda = cuda_of(backend);
    const struct erg_gemm_shape shape = product_of(kernel);
    struct erg_error why;
    (void)err;
    if (erg_gemm_choose(cuda->gemm, &cuda->cuda, cuda->plan_folder, &shape, &why) != 0)
        erg_log(ERG_LOG_DEBUG, "no search for the fastest product (%s)", why.message);
    return 0;
}

/* SMs that a kernel may use; 0: all. */
static int sms_of(const struct cuda_backend *cuda, const struct erg_kernel *kernel)
{
    return kernel->leave_sms ? cuda->cuda.sms - kernel->leave_sms : 0;
}

static int run_linear(struct cuda_backend *cuda, const struct erg_kernel *kernel, void *scratch,
                      struct CUstream_st *stream, struct erg_error *err)
{
    const __typeof__(kernel->linear) *a = &kernel->linear;
    const struct erg_gemm_shape shape = product_of(kernel);
    return erg_gemm_run(cuda->gemm, &shape, a->a, a->b, a->bias, a->c, a->adds,
                        sms_of(cuda, kernel), scratch, stream, err);
}

static bool same_attention(const struct erg_ops_attention *a, const struct erg_ops_attention *b)
{
    return memcmp(a, b, offsetof(struct erg_ops_attention, causal)) == 0 && a->causal == b->causal;
}

static int find_attention(struct cuda_backend *cuda, const struct erg_ops_attention *shape,
                          struct erg_attention **plan, struct erg_error *err)
{
    for (size_t i = 0; i < cuda->attentions.count; i++)
        if (same_attention(&cuda->attentions.items[i].shape, shape)) {
            *plan = cuda->attentions.items[i].plan;
            return 0;
        }
    const int64_t d = (int64_t)shape->head_dim;
    struct erg_attention_shape wanted = {
        .batch = (int64_t)shape->batch,
        .query_heads = (int64_t)shape->query_heads,
        .kv_heads = (int64_t)shape->kv_heads,
        .head_dim = d,
        .queries = (int64_t)shape->queries,
        .keys = (int64_t)shape->keys,
        .repeatable = cuda->deterministic,
        .mask = !shape->causal                  ? ERG_MASK_NONE
                : shape->queries == shape->keys ? ERG_MASK_CAUSAL
                                                : ERG_MASK_CAUSAL_LAST,
        .q = {(int64_t)(shape->queries * shape->q_row), (int64_t)shape->q_row, d},
        .kv = {(int64_t)(shape->keys * shape->k_row), (int64_t)shape->k_row, d},
        .o = {(int64_t)(shape->queries * shape->out_row), (int64_t)shape->out_row, d},
    };
    if (erg_attention_new(plan, cuda->cudnn, &wanted, err) != 0)
        return -1;
    ERG_PUSH(&cuda->attentions, items, (struct cuda_attention){*shape, *plan});
    return 0;
}

static int run_attention(struct cuda_backend *cuda, const struct erg_kernel *kernel, void *scratch,
                         struct CUstream_st *stream, struct erg_error *err)
{
    const __typeof__(kernel->attention) *a = &kernel->attention;
    struct erg_attention *plan;
    struct erg_attention_buffers buffers = {.q = a->q,
                                            .k = a->k,
                                            .v = a->v,
                                            .o = a->out,
                                            .stats = a->stats,
                                            .d_o = a->d_out,
                                            .dq = a->d_q,
                                            .dk = a->d_k,
                                            .dv = a->d_v};
    if (find_attention(cuda, &a->shape, &plan, err) != 0)
        return -1;
    return (kernel->kind == ERG_KERNEL_ATTENTION ? erg_attention_forward : erg_attention_backward)(
        plan, &buffers, scratch, sms_of(cuda, kernel), stream, err);
}

/* ---- kernels ---- */

static int run_vocabulary(const struct erg_kernel *kernel, struct CUstream_st *stream,
                          struct erg_error *err)
{
    const __typeof__(kernel->embedding) *e = &kernel->embedding;
    const __typeof__(kernel->position) *p = &kernel->position;
    const __typeof__(kernel->loss) *l = &kernel->loss;
    switch (kernel->kind) {
    case ERG_KERNEL_EMBEDDING:
        return erg_cuda_embedding_forward(e->tokens, e->hidden, e->first, e->rows, e->ids, e->in,
                                          e->out, stream, err);
    case ERG_KERNEL_EMBEDDING_GRADIENT:
        return erg_cuda_embedding_backward(e->tokens, e->hidden, e->first, e->rows, e->ids,
                                           e->order, e->in, e->d_table, stream, err);
    case ERG_KERNEL_POSITION:
        return erg_cuda_position_forward(p->tokens, p->sequence, p->hidden, p->positions, p->in,
                                         p->x, stream, err);
    case ERG_KERNEL_POSITION_GRADIENT:
        return erg_cuda_position_backward(p->tokens, p->sequence, p->hidden, p->positions, p->in,
                                          p->d_table, stream, err);
    case ERG_KERNEL_LOSS_STATS:
        return erg_cuda_loss_stats(l->tokens, l->columns, l->valid, l->first, l->targets, l->logits,
                                   l->stats, stream, err);
    case ERG_KERNEL_LOSS_COMBINE:
        return erg_cuda_loss_combine(l->tokens, l->ranks, l->targets, l->stats, l->scale,
                                     l->log_sum, l->loss, stream, err);
    default:
        return erg_cuda_loss_backward(l->tokens, l->columns, l->valid, l->first, l->targets,
                                      l->log_sum, l->scale, l->logits, stream, err);
    }
}

static int run_norm(const struct erg_kernel *kernel, void *scratch, struct CUstream_st *stream,
                    struct erg_error *err)
{
    const __typeof__(kernel->norm) *n = &kernel->norm;
    const __typeof__(kernel->norm_gradient) *g = &kernel->norm_gradient;
    switch (kernel->kind) {
    case ERG_KERNEL_NORM:
        return erg_cuda_norm_forward(n->tokens, n->hidden, n->eps, n->residual, n->x, n->x_bias,
                                     n->weight, n->sum, n->out, n->stats, stream, err);
    case ERG_KERNEL_NORM_GRADIENT:
        return erg_cuda_norm_backward(g->tokens, g->hidden, g->sum, g->weight, g->stats, g->d_out,
                                      g->d_sum, g->d_in, g->d_weight, scratch, stream, err);
    case ERG_KERNEL_LAYER_NORM:
        return erg_cuda_layer_norm_forward(n->tokens, n->hidden, n->eps, n->residual, n->x,
                                           n->x_bias, n->weight, n->bias, n->sum, n->out, n->stats,
                                           stream, err);
    default:
        return erg_cuda_layer_norm_backward(g->tokens, g->hidden, g->sum, g->weight, g->stats,
                                            g->d_out, g->d_sum, g->d_in, g->d_weight, g->d_bias,
                                            scratch, stream, err);
    }
}

static int run_elements(const struct erg_kernel *kernel, void *scratch, struct CUstream_st *stream,
                        struct erg_error *err)
{
    const __typeof__(kernel->rope) *r = &kernel->rope;
    const __typeof__(kernel->activation) *a = &kernel->activation;
    switch (kernel->kind) {
    case ERG_KERNEL_ROPE:
        return erg_cuda_rope_forward(&r->shape, r->eps, r->q_weight, r->k_weight, r->table, r->qkv,
                                     r->out, r->out_row, stream, err);
    case ERG_KERNEL_ROPE_GRADIENT:
        return erg_cuda_rope_backward(&r->shape, r->eps, r->q_weight, r->k_weight, r->table, r->qkv,
                                      r->d_rotated, r->out, r->d_q_weight, r->d_k_weight, scratch,
                                      stream, err);
    case ERG_KERNEL_SWIGLU:
        return erg_cuda_swiglu_forward(a->tokens, a->width, a->in, a->out, stream, err);
    case ERG_KERNEL_SWIGLU_GRADIENT:
        return erg_cuda_swiglu_backward(a->tokens, a->width, a->in, a->d_out, a->out, stream, err);
    case ERG_KERNEL_GELU:
        return erg_cuda_gelu_forward(a->tokens, a->width, a->tanh_form, a->in, a->out, stream, err);
    default:
        return erg_cuda_gelu_backward(a->tokens, a->width, a->tanh_form, a->in, a->d_out, a->out,
                                      a->d_bias, scratch, stream, err);
    }
}

static int run_floats(const struct erg_kernel *kernel, void *scratch, struct CUstream_st *stream,
                      struct erg_error *err)
{
    const __typeof__(kernel->floats) *f = &kernel->floats;
    const __typeof__(kernel->adamw) *a = &kernel->adamw;
    switch (kernel->kind) {
    case ERG_KERNEL_SQUARES:
        return erg_cuda_squares(f->count, f->in, f->sum, scratch, stream, err);
    case ERG_KERNEL_ROUND:
        return erg_cuda_to_element(f->count, f->in, f->out, stream, err);
    default:
        return erg_cuda_adamw(a->count, a->decays, a->update, a->gradient, a->master, a->m, a->v,
                              a->weight, stream, err);
    }
}

static int copy_runs(const struct erg_kernel *kernel, struct CUstream_st *stream,
                     struct erg_error *err)
{
    const __typeof__(kernel->runs) *r = &kernel->runs;
    const size_t bytes = sizeof(erg_bf16);
    return erg_cuda_copy_rows(r->to, r->to_stride * bytes, r->x, r->x_stride * bytes,
                              r->count * bytes, r->runs, stream, err);
}

static int cuda_launch(struct erg_backend *backend, const struct erg_kernel *kernel, void *scratch,
                       struct erg_stream *queue, struct erg_error *err)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct CUstream_st *stream = stream_of(queue);
    switch (kernel->kind) {
    case ERG_KERNEL_EMBEDDING:
    case ERG_KERNEL_EMBEDDING_GRADIENT:
    case ERG_KERNEL_POSITION:
    case ERG_KERNEL_POSITION_GRADIENT:
    case ERG_KERNEL_LOSS_STATS:
    case ERG_KERNEL_LOSS_COMBINE:
    case ERG_KERNEL_LOSS_GRADIENT:
        return run_vocabulary(kernel, stream, err);
    case ERG_KERNEL_ADD:
        return erg_cuda_add_bias(kernel->add.tokens, kernel->add.hidden, kernel->add.a,
                                 kernel->add.b, kernel->add.bias, kernel->add.out, stream, err);
    case ERG_KERNEL_NORM:
    case ERG_KERNEL_NORM_GRADIENT:
    case ERG_KERNEL_LAYER_NORM:
    case ERG_KERNEL_LAYER_NORM_GRADIENT:
        return run_norm(kernel, scratch, stream, err);
    case ERG_KERNEL_LINEAR:
    case ERG_KERNEL_LINEAR_INPUT_GRADIENT:
    case ERG_KERNEL_LINEAR_WEIGHT_GRADIENT:
        return run_linear(cuda, kernel, scratch, stream, err);
    case ERG_KERNEL_BIAS_GRADIENT:
        return erg_cuda_bias_gradient(kernel->bias.tokens, kernel->bias.width, kernel->bias.d_y,
                                      kernel->bias.d_bias, scratch, stream, err);
    case ERG_KERNEL_ATTENTION:
    case ERG_KERNEL_ATTENTION_GRADIENT:
        return run_attention(cuda, kernel, scratch, stream, err);
    case ERG_KERNEL_SQUARES:
    case ERG_KERNEL_ADAMW:
    case ERG_KERNEL_ROUND:
        return run_floats(kernel, scratch, stream, err);
    case ERG_KERNEL_COPY_RUNS:
        return copy_runs(kernel, stream, err);
    case ERG_KERNEL_ADD_RUNS:
        return erg_cuda_add_runs(kernel->runs.runs, kernel->runs.count, kernel->runs.x,
                                 kernel->runs.x_stride, kernel->runs.to, kernel->runs.to_stride,
                                 stream, err);
    default:
        return run_elements(kernel, scratch, stream, err);
    }
}

static int cuda_scratch_bytes(struct erg_backend *backend, const struct erg_kernel *kernel,
                              size_t *bytes, struct erg_error *err)
{
    struct erg_attention *plan;
    const __typeof__(kernel->norm_gradient) *g = &kernel->norm_gradient;
    *bytes = 0;
    switch (kernel->kind) {
    case ERG_KERNEL_LINEAR:
    case ERG_KERNEL_LINEAR_INPUT_GRADIENT:
    case ERG_KERNEL_LINEAR_WEIGHT_GRADIENT:
        *bytes = ERG_GEMM_WORKSPACE_BYTES;
        return 0;
    case ERG_KERNEL_NORM_GRADIENT:
        *bytes = erg_cuda_norm_backward_scratch(g->tokens, g->hidden);
        return 0;
    case ERG_KERNEL_LAYER_NORM_GRADIENT:
        *bytes = erg_cuda_layer_norm_backward_scratch(g->tokens, g->hidden);
        return 0;
    case ERG_KERNEL_BIAS_GRADIENT:
        *bytes = erg_cuda_bias_gradient_scratch(kernel->bias.tokens, kernel->bias.width);
        return 0;
    case ERG_KERNEL_GELU_GRADIENT:
        if (kernel->activation.d_bias)
            *bytes =
                erg_cuda_gelu_backward_scratch(kernel->activation.tokens, kernel->activation.width);
        return 0;
    case ERG_KERNEL_ROPE_GRADIENT:
        *bytes = erg_cuda_rope_backward_scratch(&kernel->rope.shape);
        return 0;
    case ERG_KERNEL_SQUARES:
        *bytes = erg_cuda_squares_scratch(kernel->floats.count);
        return 0;
    case ERG_KERNEL_ATTENTION:
    case ERG_KERNEL_ATTENTION_GRADIENT:
        if (find_attention(cuda_of(backend), &kernel->attention.shape, &plan, err) != 0)
            return -1;
        *bytes = kernel->kind == ERG_KERNEL_ATTENTION ? erg_attention_forward_bytes(plan)
                                                      : erg_attention_backward_bytes(plan);
        return 0;
    default:
        return 0;
    }
}

/* ---- ranks ---- */

static int cuda_group_new(struct erg_backend *backend, struct erg_group **group, const int *ranks,
                          size_t count, struct erg_error *err)
{
    (void)err;
    erg_cuda_group_new(cuda_of(backend)->groups, (struct erg_cuda_group **)group, ranks, count);
    return 0;
}

static void cuda_group_window(struct erg_backend *backend, struct erg_group *group,
                              const void *first, size_t stride)
{
    (void)backend;
    erg_cuda_group_window((struct erg_cuda_group *)group, first, stride);
}

/* Groups are freed with the backend, because they are connected in the order of their creation. */
static void cuda_group_free(struct erg_backend *backend, struct erg_group *group)
{
    (void)backend;
    (void)group;
}

static int cuda_connect(struct erg_backend *backend, void *memory, size_t bytes, uint64_t layout,
                        struct erg_error *err)
{
    return erg_cuda_groups_connect(cuda_of(backend)->groups, memory, bytes, layout, err);
}

static void cuda_disconnect(struct erg_backend *backend)
{
    if (cuda_of(backend)->groups)
        erg_cuda_groups_disconnect(cuda_of(backend)->groups);
}

static int cuda_exchange(struct erg_backend *backend, struct erg_group *group,
                         const struct erg_exchange *exchange, struct erg_stream *stream,
                         struct erg_error *err)
{
    return erg_cuda_group_exchange(cuda_of(backend)->groups, (struct erg_cuda_group *)group,
                                   exchange, stream_of(stream), err);
}

static int cuda_count(struct erg_backend *backend, uint64_t *number, struct erg_stream *stream,
                      struct erg_error *err)
{
    (void)backend;
    return erg_cuda_stream_count(stream_of(stream), number, err);
}

/* ---- open and close ---- */

static void cuda_close(struct erg_backend *backend)
{
    struct cuda_backend *cuda = cuda_of(backend);
    for (size_t i = 0; i < cuda->attentions.count; i++)
        erg_attention_free(cuda->attentions.items[i].plan);
    free(cuda->attentions.items);
    erg_cuda_groups_free(cuda->groups);
    erg_gemm_close(cuda->gemm);
    erg_cudnn_close(cuda->cudnn);
    free(cuda->plan_folder);
    free(cuda);
}

int erg_cuda_backend_open(struct erg_backend **out, int gpu, bool deterministic,
                          struct erg_rendezvous *rendezvous, struct erg_error *err)
{
    static const struct erg_backend_table table = {
        .close = cuda_close,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .host_alloc = cuda_host_alloc,
        .host_free = cuda_host_free,
        .memory_free = cuda_memory_free,
        .copy = cuda_copy,
        .fill = cuda_fill,
        .stream_new = cuda_stream_new,
        .stream_free = cuda_stream_free,
        .stream_wait = cuda_stream_wait,
        .event_new = cuda_event_new,
        .event_free = cuda_event_free,
        .event_record = cuda_event_record,
        .event_seconds = cuda_event_seconds,
        .event_wait = cuda_event_wait,
        .scratch_bytes = cuda_scratch_bytes,
        .choose = cuda_choose,
        .launch = cuda_launch,
        .group_new = cuda_group_new,
        .group_window = cuda_group_window,
        .group_free = cuda_group_free,
        .connect = cuda_connect,
        .disconnect = cuda_disconnect,
        .exchange = cuda_exchange,
        .count = cuda_count,
    };
    struct cuda_backend *cuda = erg_xcalloc(1, sizeof *cuda);
    cuda->deterministic = deterministic;
    cuda->backend = (struct erg_backend){&table, sizeof(erg_bf16), "GPU", false, false};
    if (erg_cuda_init(&cuda->cuda, gpu, err) ||
        erg_cudnn_open(&cuda->cudnn, &cuda->cuda, NULL, err) || erg_gemm_open(&cuda->gemm, err)) {
        cuda_close(&cuda->backend);
        return -1;
    }
    if (rendezvous)
        cuda->groups = erg_cuda_groups_new(rendezvous);
    cuda->plan_folder = erg_cuda_plan_folder();
    cuda->backend.name = cuda->cuda.name;
    *out = &cuda->backend;
    return 0;
}
