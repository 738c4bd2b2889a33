/*
 * Attention by cuDNN against a naive fp32 reference, and the traps of its plans: buffers full of
 * NaN, plans that miss the fused kernels, grids that lose tiles, plan files, shared workspaces.
 */
#include "device/cuda/attention.h"

#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "gpu_check.h"
#include "io/file.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <unistd.h>

static const double bound = 5e-3;       /* relative, per head */
static const double stats_bound = 2e-5; /* absolute */

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

static void *at(void *base, size_t elements)
{
    return (char *)base + elements * sizeof(erg_bf16);
}

static void problem_init(struct problem *p, struct erg_cudnn *cudnn,
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

static void problem_release(struct problem *p)
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

static void forward(struct problem *p, int ctas, struct CUstream_st *stream)
{
    gpu_ok(erg_attention_forward(p->attention, &p->on, p->on_workspace, ctas, stream, &gpu_error));
}

static void backward(struct problem *p, int ctas, struct CUstream_st *stream)
{
    gpu_ok(erg_attention_backward(p->attention, &p->on, p->on_workspace, ctas, stream, &gpu_error));
}

/* Back to NaN everywhere that a pass writes. */
static void forget(struct problem *p, struct CUstream_st *stream)
{
    gpu_ok(erg_cuda_fill(p->on.o, 0xff, p->o_count * sizeof(erg_bf16), stream, &gpu_error));
    gpu_ok(erg_cuda_fill(p->on.stats, 0xff, p->rows * sizeof(float), stream, &gpu_error));
    gpu_ok(erg_cuda_fill(p->on_grad, 0xff, p->in_count * sizeof(erg_bf16), stream, &gpu_error));
    gpu_ok(erg_cuda_fill(p->on_workspace, 0xff, erg_attention_backward_bytes(p->attention), stream,
                         &gpu_error));
}

/* The naive reference: one query head of one batch entry. */

struct reference {
    const struct problem *problem;
    size_t batch, kv_head;
    struct head { /* of each query head of the group */
        float *o, *stats, *dq, *dk, *dv;
    } * heads;
};

/* [tokens, head_dim] of one head as floats, or [head_dim, tokens] when transposed. */
static float *widen(const erg_bf16 *first, int64_t tokens, int64_t d, int64_t stride,
                    bool transpose)
{
    float *wide = erg_xcalloc((size_t)(tokens * d), sizeof *wide);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < d; c++)
            wide[transpose ? c * tokens + t : t * d + c] = erg_bf16_float(first[t * stride + c]);
    return wide;
}

/* y[0..n) += a x[0..n) */
static void add_scaled(float *restrict y, float a, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static size_t visible_keys(const struct erg_attention_shape *s, size_t query)
{
    size_t keys = (size_t)s->keys;
    if (s->mask == ERG_MASK_NONE)
        return keys;
    size_t last = s->mask == ERG_MASK_CAUSAL ? query : query + keys - (size_t)s->queries;
    return last + 1 < keys ? last + 1 : keys;
}

static int reference_head(void *context, size_t g, struct erg_error *err)
{
    (void)err;
    const struct reference *r = context;
    const struct problem *p = r->problem;
    const struct erg_attention_shape *s = &p->shape;
    size_t d = (size_t)s->head_dim, queries = (size_t)s->queries, keys = (size_t)s->keys;
    size_t head = r->kv_head * (size_t)(s->query_heads / s->kv_heads) + g;
    const erg_bf16 *q_at =
        p->in + p->q_at + r->batch * (size_t)s->q.batch + head * (size_t)s->q.head;
    size_t kv_offset = r->batch * (size_t)s->kv.batch + r->kv_head * (size_t)s->kv.head;
    const erg_bf16 *d_o_at = p->d_o + r->batch * (size_t)s->o.batch + head * (size_t)s->o.head;
    float *q = widen(q_at, s->queries, s->head_dim, s->q.token, false);
    float *d_o = widen(d_o_at, s->queries, s->head_dim, s->o.token, false);
    float *k = widen(p->in + p->k_at + kv_offset, s->keys, s->head_dim, s->kv.token, false);
    float *v = widen(p->in + p->v_at + kv_offset, s->keys, s->head_dim, s->kv.token, false);
    float *kt = widen(p->in + p->k_at + kv_offset, s->keys, s->head_dim, s->kv.token, true);
    float *vt = widen(p->in + p->v_at + kv_offset, s->keys, s->head_dim, s->kv.token, true);
    struct head *out = &r->heads[g];
    *out = (struct head){
        .o = erg_xcalloc(queries * d, sizeof(float)),
        .stats = erg_xcalloc(queries, sizeof(float)),
        .dq = erg_xcalloc(queries * d, sizeof(float)),
        .dk = erg_xcalloc(keys * d, sizeof(float)),
        .dv = erg_xcalloc(keys * d, sizeof(float)),
    };
    float *scores = erg_xcalloc(keys, sizeof *scores), *dp = erg_xcalloc(keys, sizeof *dp);
    float scale = (float)(1 / sqrt((double)d));
    for (size_t i = 0; i < queries; i++) {
        size_t n = visible_keys(s, i);
        double most = -INFINITY, sum = 0, delta = 0;
        memset(scores, 0, n * sizeof *scores);
        memset(dp, 0, n * sizeof *dp);
        for (size_t c = 0; c < d; c++) {
            add_scaled(scores, q[i * d + c] * scale, kt + c * keys, n);
            add_scaled(dp, d_o[i * d + c], vt + c * keys, n);
        }
        for (size_t j = 0; j < n; j++)
            most = fmax(most, scores[j]);
        for (size_t j = 0; j < n; j++)
            sum += exp(scores[j] - most);
        out->stats[i] = (float)(most + log(sum));
        for (size_t j = 0; j < n; j++) {
            scores[j] = (float)(exp(scores[j] - most) / sum); /* P from here on */
            add_scaled(out->o + i * d, scores[j], v + j * d, d);
        }
        for (size_t c = 0; c < d; c++)
            delta += (double)d_o[i * d + c] * out->o[i * d + c];
        for (size_t j = 0; j < n; j++) {
            float ds = scores[j] * (dp[j] - (float)delta) * scale;
            add_scaled(out->dv + j * d, scores[j], d_o + i * d, d);
            add_scaled(out->dk + j * d, ds, q + i * d, d);
            add_scaled(out->dq + i * d, ds, k + j * d, d);
        }
    }
    free(q), free(d_o), free(k), free(v), free(kt), free(vt), free(scores), free(dp);
    return 0;
}

/* |x - reference| / |reference| over one head; NaN when x has one. */
static double relative_error(const erg_bf16 *x, const float *reference, int64_t tokens, int64_t d,
                             int64_t stride)
{
    double difference = 0, norm = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < d; c++) {
            double want = reference[t * d + c];
            double off = erg_bf16_float(x[t * stride + c]) - want;
            difference += off * off;
            norm += want * want;
        }
    return sqrt(difference / norm);
}

static double worse(double a, double b)
{
    return isnan(a) || isnan(b) ? (double)NAN : fmax(a, b);
}

static void judge(const char *what, double error, double allowed)
{
    bool good = error <= allowed;
    printf("%s %s: %.2e, allowed %.1e\n", good ? "ok    " : "FAILED", what, error, allowed);
    gpu_failures += !good;
}

struct errors {
    double o, stats, dq, dk, dv;
};

static void compare_group(struct errors *worst, const struct problem *p, size_t batch,
                          size_t kv_head, const erg_bf16 *o, const float *stats,
                          const erg_bf16 *grad)
{
    const struct erg_attention_shape *s = &p->shape;
    size_t group = (size_t)(s->query_heads / s->kv_heads);
    size_t kv_count = (size_t)(s->keys * s->head_dim);
    struct reference r = {p, batch, kv_head, erg_xcalloc(group, sizeof *r.heads)};
    gpu_ok(erg_parallel_for(group, 0, reference_head, &r, &gpu_error));
    for (size_t g = 0; g < group; g++) {
        size_t head = kv_head * group + g;
        size_t row = (batch * (size_t)s->query_heads + head) * (size_t)s->queries;
        const struct head *want = &r.heads[g];
        worst->o = worse(worst->o,
                         relative_error(o + batch * (size_t)s->o.batch + head * (size_t)s->o.head,
                                        want->o, s->queries, s->head_dim, s->o.token));
        worst->dq = worse(worst->dq, relative_error(grad + p->q_at + batch * (size_t)s->q.batch +
                                                        head * (size_t)s->q.head,
                                                    want->dq, s->queries, s->head_dim, s->q.token));
        for (size_t i = 0; i < (size_t)s->queries; i++)
            worst->stats = worse(worst->stats, fabs((double)stats[row + i] - want->stats[i]));
        if (g > 0) {
            add_scaled(r.heads[0].dk, 1, want->dk, kv_count);
            add_scaled(r.heads[0].dv, 1, want->dv, kv_count);
        }
    }
    size_t offset = batch * (size_t)s->kv.batch + kv_head * (size_t)s->kv.head;
    worst->dk = worse(worst->dk, relative_error(grad + p->k_at + offset, r.heads[0].dk, s->keys,
                                                s->head_dim, s->kv.token));
    worst->dv = worse(worst->dv, relative_error(grad + p->v_at + offset, r.heads[0].dv, s->keys,
                                                s->head_dim, s->kv.token));
    for (size_t g = 0; g < group; g++) {
        struct head *h = &r.heads[g];
        free(h->o), free(h->stats), free(h->dq), free(h->dk), free(h->dv);
    }
    free(r.heads);
}

/* The first and the last group of heads, which between them see every stride. */
static void check_numbers(struct erg_cudnn *cudnn, const struct erg_attention_shape *shape)
{
    static const char *const masks[] = {"no mask", "causal", "causal, last queries"};
    struct problem p;
    problem_init(&p, cudnn, shape, 7);
    forward(&p, 0, NULL);
    backward(&p, 0, NULL);
    erg_bf16 *o = gpu_download(p.on.o, p.o_count * sizeof *o);
    float *stats = gpu_download(p.on.stats, p.rows * sizeof *stats);
    erg_bf16 *grad = gpu_download(p.on_grad, p.in_count * sizeof *grad);
    printf("-- batch %d, heads %d/%d of %d, tokens %d/%d, %s\n", (int)shape->batch,
           (int)shape->query_heads, (int)shape->kv_heads, (int)shape->head_dim, (int)shape->queries,
           (int)shape->keys, masks[shape->mask]);
    struct errors worst = {0};
    compare_group(&worst, &p, 0, 0, o, stats, grad);
    if (shape->batch * shape->kv_heads > 1)
        compare_group(&worst, &p, (size_t)shape->batch - 1, (size_t)shape->kv_heads - 1, o, stats,
                      grad);
    judge("O", worst.o, bound);
    judge("stats", worst.stats, stats_bound);
    judge("dQ", worst.dq, bound);
    judge("dK", worst.dk, bound);
    judge("dV", worst.dv, bound);
    free(o), free(stats), free(grad);
    problem_release(&p);
}

/* Queries and keys of different numbers: Q alone, K and V side by side. */
static struct erg_attention_shape chunk(int64_t batch, int64_t query_heads, int64_t kv_heads,
                                        int64_t queries, int64_t keys, enum erg_attention_mask mask)
{
    struct erg_attention_shape s = erg_attention_packed(batch, query_heads, kv_heads, 128, queries);
    int64_t row = 2 * kv_heads * 128;
    s.keys = keys;
    s.mask = mask;
    s.q = s.o;
    s.kv = (struct erg_attention_strides){keys * row, row, 128};
    return s;
}

static void check_all_numbers(struct erg_cudnn *cudnn)
{
    static const int64_t heads[][2] = {{32, 8}, {24, 8}, {16, 8}, {32, 32}, {4, 1}};
    static const int64_t tokens[] = {256, 1000, 4096};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            struct erg_attention_shape s = erg_attention_packed(
                tokens[t] > 1000 ? 1 : 2, heads[h][0], heads[h][1], 128, tokens[t]);
            check_numbers(cudnn, &s);
        }
    /* What context parallelism needs. */
    static const struct {
        int64_t queries, keys;
        enum erg_attention_mask mask;
    } chunks[] = {
        {1024, 1024, ERG_MASK_NONE},       {512, 1536, ERG_MASK_NONE},
        {500, 1300, ERG_MASK_NONE},        {512, 512, ERG_MASK_CAUSAL_LAST},
        {512, 1536, ERG_MASK_CAUSAL_LAST}, {500, 1300, ERG_MASK_CAUSAL_LAST},
    };
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct erg_attention_shape s =
            chunk(2, 24, 8, chunks[i].queries, chunks[i].keys, chunks[i].mask);
        check_numbers(cudnn, &s);
    }
}

/* The bits of a forward pass. */
struct bits {
    erg_bf16 *o;
    float *stats;
};

static struct bits read_bits(const struct problem *p)
{
    return (struct bits){gpu_download(p->on.o, p->o_count * sizeof(erg_bf16)),
                         gpu_download(p->on.stats, p->rows * sizeof(float))};
}

static void check_bits(const char *what, const struct problem *p, const struct bits *want)
{
    struct bits got = read_bits(p);
    bool same = memcmp(got.o, want->o, p->o_count * sizeof(erg_bf16)) == 0 &&
                memcmp(got.stats, want->stats, p->rows * sizeof(float)) == 0;
    printf("%s %s: O and stats bit for bit\n", same ? "ok    " : "FAILED", what);
    gpu_failures += !same;
    free(got.o), free(got.stats);
}

/* All gradients at once, against those of another run. */
static void check_gradients(const char *what, const struct problem *p, const erg_bf16 *want)
{
    erg_bf16 *got = gpu_download(p->on_grad, p->in_count * sizeof *got);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < p->in_count; i++) {
        double w = erg_bf16_float(want[i]), off = erg_bf16_float(got[i]) - w;
        difference += off * off;
        norm += w * w;
    }
    judge(what, sqrt(difference / norm), 1e-4);
    free(got);
}

static void check_grids(struct erg_cudnn *cudnn)
{
    static const int grids[] = {128, 116, 108, 64};
    struct erg_attention_shape shape = erg_attention_packed(4, 32, 8, 128, 1024);
    struct problem p;
    problem_init(&p, cudnn, &shape, 11);
    gpu_ok(erg_attention_verify(p.attention, &p.on, p.on_workspace, NULL, &gpu_error));
    forget(&p, NULL);
    forward(&p, 0, NULL);
    backward(&p, 0, NULL);
    struct bits want = read_bits(&p);
    erg_bf16 *grad = gpu_download(p.on_grad, p.in_count * sizeof *grad);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char what[64];
        forget(&p, NULL);
        forward(&p, grids[i], NULL);
        backward(&p, grids[i], NULL);
        snprintf(what, sizeof what, "%d CTAs", grids[i]);
        check_bits(what, &p, &want);
        check_gradients(what, &p, grad);
    }
    if (erg_attention_forward(p.attention, &p.on, p.on_workspace, 10000, NULL, &gpu_error) == 0 ||
        erg_attention_forward(p.attention, &p.on, at(p.on_workspace, 1), 0, NULL, &gpu_error) ==
            0) {
        printf("FAILED 10000 CTAs or a workspace that is not aligned were accepted\n");
        gpu_failures++;
    }
    free(want.o), free(want.stats), free(grad);
    problem_release(&p);
}

/* The kernels of 384 threads in a captured graph and their grids. */
static size_t read_grids(cudaGraph_t graph, unsigned grids[], size_t capacity)
{
    void *entry = NULL;
    enum cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuGraphKernelNodeGetParams", &entry, 12000, cudaEnableDefault,
                                     &result);
    CUresult (*get_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *) = NULL;
    memcpy(&get_params, &entry, sizeof entry);
    cudaGraphNode_t nodes[128];
    size_t count = sizeof nodes / sizeof *nodes, found = 0;
    if (!get_params || cudaGraphGetNodes(graph, nodes, &count) != cudaSuccess)
        return 0;
    for (size_t i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        CUDA_KERNEL_NODE_PARAMS kernel;
        if (cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess &&
            type == cudaGraphNodeTypeKernel && get_params(nodes[i], &kernel) == CUDA_SUCCESS &&
            kernel.blockDimX == 384 && found < capacity)
            grids[found++] = kernel.gridDimX;
    }
    return found;
}

static size_t times(const unsigned *grids, size_t count, int grid)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += grids[i] == (unsigned)grid;
    return n;
}

/*
 * A longer capture, as of a partition: each call gets its own budget, at whatever place it has,
 * and without a budget there is one CTA per SM (a plan made from device properties had 18).
 */
static void check_capture(struct erg_cudnn *cudnn, int sms)
{
    struct erg_attention_shape shape = erg_attention_packed(2, 32, 8, 128, 2048);
    struct problem p;
    struct CUstream_st *stream;
    cudaGraph_t graph;
    cudaGraphExec_t launch;
    problem_init(&p, cudnn, &shape, 13);
    gpu_ok(erg_cuda_stream_new(&stream, false, &gpu_error));
    forward(&p, 0, NULL);
    backward(&p, 0, NULL);
    struct bits want = read_bits(&p);
    erg_bf16 *grad = gpu_download(p.on_grad, p.in_count * sizeof *grad);

    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        exit(1);
    forward(&p, 64, stream);
    forget(&p, stream);
    forward(&p, 116, stream);
    backward(&p, 108, stream);
    forward(&p, 0, stream);
    backward(&p, 0, stream);
    forward(&p, 100, stream);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
        cudaGraphInstantiate(&launch, graph, 0) != cudaSuccess) {
        printf("FAILED the captured calls make no graph\n");
        exit(1);
    }
    unsigned grids[16];
    size_t count = read_grids(graph, grids, 16);
    bool right = times(grids, count, 64) == 1 && times(grids, count, 116) == 1 &&
                 times(grids, count, 108) == 1 && times(grids, count, 100) == 1 &&
                 times(grids, count, sms) == 2;
    printf("%s captured grids:", right ? "ok    " : "FAILED");
    for (size_t i = 0; i < count; i++)
        printf(" %u", grids[i]);
    printf("\n");
    gpu_failures += !right;
    for (int i = 0; i < 3; i++)
        if (cudaGraphLaunch(launch, stream) != cudaSuccess)
            exit(1);
    gpu_ok(erg_cuda_stream_sync(stream, &gpu_error));
    check_bits("launched three times", &p, &want);
    check_gradients("launched three times, gradients", &p, grad);
    cudaGraphExecDestroy(launch);
    cudaGraphDestroy(graph);
    erg_cuda_stream_free(stream);
    free(want.o), free(want.stats), free(grad);
    problem_release(&p);
}

/* Two streams at once, each with its own workspace. */
static void check_two_streams(struct erg_cudnn *cudnn)
{
    struct erg_attention_shape shape = erg_attention_packed(2, 24, 8, 128, 1024);
    struct problem p[2];
    struct bits want[2];
    struct CUstream_st *streams[2];
    for (int i = 0; i < 2; i++) {
        problem_init(&p[i], cudnn, &shape, 17 + (uint64_t)i);
        gpu_ok(erg_cuda_stream_new(&streams[i], false, &gpu_error));
        forward(&p[i], 0, NULL);
        want[i] = read_bits(&p[i]);
        forget(&p[i], NULL);
    }
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 2; i++)
            gpu_ok(erg_attention_forward(p[0].attention, &p[i].on, p[i].on_workspace, 64,
                                         streams[i], &gpu_error));
    for (int i = 0; i < 2; i++) {
        gpu_ok(erg_cuda_stream_sync(streams[i], &gpu_error));
        check_bits("one of two streams", &p[i], &want[i]);
        erg_cuda_stream_free(streams[i]);
        free(want[i].o), free(want[i].stats);
        problem_release(&p[i]);
    }
}

static void count_searches(void *context, enum erg_log_level level, const char *text)
{
    (void)level;
    if (strstr(text, "looking for a new plan"))
        ++*(int *)context;
}

/* Changes one byte in the middle of every plan, or removes them. */
static int damage_plans(const char *folder, bool remove_them)
{
    DIR *listing = opendir(folder);
    struct dirent *entry;
    int files = 0;
    while (listing && (entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        struct erg_text path = {0};
        erg_text_printf(&path, "%s/%s", folder, entry->d_name);
        char *text;
        size_t length;
        gpu_ok(erg_file_read(path.data, 0, &text, &length, &gpu_error));
        text[length / 2] ^= 1;
        if (remove_them)
            unlink(path.data);
        else
            gpu_ok(erg_file_write(path.data, text, length, &gpu_error));
        files++;
        free(text);
        erg_text_release(&path);
    }
    if (listing)
        closedir(listing);
    return files;
}

static void check_plan_files(const struct erg_cuda *cuda)
{
    static const char *const rounds[] = {"new plan", "plan from its file",
                                         "plan after its file was damaged"};
    static const int searches_expected[] = {2, 0, 2};
    struct erg_attention_shape shape = erg_attention_packed(1, 16, 8, 128, 512);
    char folder[] = "/tmp/ergon-plans-XXXXXX";
    struct bits want = {0};
    int searches = 0;
    if (!mkdtemp(folder))
        exit(1);
    erg_log_set_sink(&(struct erg_log_sink){.message = count_searches, .context = &searches});
    for (int round = 0; round < 3; round++) {
        struct erg_cudnn *cudnn;
        struct problem p;
        gpu_ok(erg_cudnn_open(&cudnn, cuda, folder, &gpu_error));
        searches = 0;
        problem_init(&p, cudnn, &shape, 19);
        forward(&p, 0, NULL);
        if (round == 0)
            want = read_bits(&p);
        check_bits(rounds[round], &p, &want);
        if (searches != searches_expected[round]) {
            printf("FAILED %s: %d plans were looked for, expected %d\n", rounds[round], searches,
                   searches_expected[round]);
            gpu_failures++;
        }
        problem_release(&p);
        erg_cudnn_close(cudnn);
        if (round == 1 && damage_plans(folder, false) != 2) {
            printf("FAILED the folder of plans does not hold two files\n");
            gpu_failures++;
        }
    }
    erg_log_set_sink(NULL);
    damage_plans(folder, true);
    rmdir(folder);
    free(want.o), free(want.stats);
}

static void check_refusals(struct erg_cudnn *cudnn)
{
    struct erg_attention *attention;
    struct erg_attention_shape heads = erg_attention_packed(1, 10, 4, 128, 256);
    struct erg_attention_shape stride = erg_attention_packed(1, 8, 8, 128, 256);
    struct erg_attention_shape last = chunk(1, 8, 8, 512, 256, ERG_MASK_CAUSAL_LAST);
    stride.o.token += 4;
    const struct erg_attention_shape *shapes[] = {&heads, &stride, &last};
    for (size_t i = 0; i < 3; i++)
        if (erg_attention_new(&attention, cudnn, shapes[i], &gpu_error) == 0) {
            printf("FAILED shape %zu that makes no sense was accepted\n", i);
            gpu_failures++;
        }
}

int main(void)
{
    struct erg_cuda cuda = gpu_open();
    struct erg_cudnn *cudnn;
    if (erg_cudnn_open(&cudnn, &cuda, "", &gpu_error) != 0) {
        printf("%s\n", gpu_error.message);
        return gpu_error.status == ERG_NO_DEVICE ? GPU_SKIPPED : 1;
    }
    check_refusals(cudnn);
    check_all_numbers(cudnn);
    check_plan_files(&cuda);
    if (cuda.capability == 90) { /* the kernels that take a budget */
        check_grids(cudnn);
        check_capture(cudnn, cuda.sms);
        check_two_streams(cudnn);
    }
    erg_cudnn_close(cudnn);
    return gpu_result();
}
