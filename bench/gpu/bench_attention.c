/*
 * Attention by cuDNN: time and rate of both passes on all SMs and on fewer, batch 4, head dim 128,
 * causal; of whole sequences, and of the chunks that context ranks have. FLOPs count the visible
 * half of the scores. Calls are captured into a graph, as training runs them. "cool" is one graph
 * after a pause, "hot" the same after some seconds of work, when the power cap has lowered the
 * clock; compare within a column only.
 *
 *   bench_attention
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "device/cuda/attention.h"
#include "ops/bf16.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 4, HEAD_DIM = 128, CALLS = 10, ROUNDS = 5 };

static struct erg_error err;

static void must(int result)
{
    if (result == 0)
        return;
    printf("%s\n", err.message);
    exit(err.status == ERG_NO_DEVICE ? 77 : 1);
}

static void must_cuda(cudaError_t status)
{
    if (status == cudaSuccess)
        return;
    printf("%s\n", cudaGetErrorString(status));
    exit(1);
}

/* Normal numbers; the same ones over and over, since only the power depends on them. */
static void *random_buffer(struct erg_rng *rng, size_t count)
{
    enum { PERIOD = 1 << 20 };
    erg_bf16 *values = erg_xcalloc(PERIOD, sizeof *values);
    void *memory;
    for (size_t i = 0; i < PERIOD; i++)
        values[i] = erg_bf16_round((float)erg_rng_normal(rng));
    must(erg_cuda_alloc(&memory, count * sizeof *values, &err));
    for (size_t i = 0; i < count; i += PERIOD) {
        size_t part = count - i < PERIOD ? count - i : PERIOD;
        must(erg_cuda_copy((erg_bf16 *)memory + i, values, part * sizeof *values, NULL, &err));
    }
    free(values);
    return memory;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds of a call. */
static double time_graph(cudaGraphExec_t graph, struct CUstream_st *stream,
                         struct CUevent_st *events[2], bool pause)
{
    double ms[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        if (pause)
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        must(erg_cuda_event_record(events[0], stream, &err));
        must_cuda(cudaGraphLaunch(graph, stream));
        must(erg_cuda_event_record(events[1], stream, &err));
        must(erg_cuda_event_sync(events[1], &err));
        must(erg_cuda_event_ms(&ms[i], events[0], events[1], &err));
    }
    qsort(ms, ROUNDS, sizeof *ms, by_value);
    return ms[ROUNDS / 2] / CALLS;
}

typedef int pass(struct erg_attention *attention, const struct erg_attention_buffers *buffers,
                 void *workspace, int ctas, struct CUstream_st *stream, struct erg_error *error);

static void bench_pass(const char *name, pass *run, double flops, struct erg_attention *attention,
                       const struct erg_attention_buffers *buffers, void *workspace, int ctas,
                       struct CUstream_st *stream)
{
    struct CUevent_st *events[2];
    cudaGraph_t graph;
    cudaGraphExec_t launch;
    must(erg_cuda_event_new(&events[0], true, &err));
    must(erg_cuda_event_new(&events[1], true, &err));
    must(run(attention, buffers, workspace, ctas, stream, &err)); /* loads the kernels */
    must(erg_cuda_stream_sync(stream, &err));
    must_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++)
        must(run(attention, buffers, workspace, ctas, stream, &err));
    must_cuda(cudaStreamEndCapture(stream, &graph));
    must_cuda(cudaGraphInstantiate(&launch, graph, 0));
    double cool = time_graph(launch, stream, events, true);
    for (int64_t start = erg_now_ns(); erg_now_ns() - start < 600000000;) {
        must_cuda(cudaGraphLaunch(launch, stream));
        must(erg_cuda_stream_sync(stream, &err));
    }
    double hot = time_graph(launch, stream, events, false);
    printf("  %-8s %4d SMs  cool %7.3f ms %6.1f TFLOP/s   hot %7.3f ms %6.1f TFLOP/s\n", name, ctas,
           cool, flops / cool * 1e-9, hot, flops / hot * 1e-9);
    cudaGraphExecDestroy(launch);
    cudaGraphDestroy(graph);
    erg_cuda_event_free(events[0]);
    erg_cuda_event_free(events[1]);
}

/* The last `queries` of `keys` tokens: of packed rows if these are all, else of gathered K and V.
 */
static void bench_shape(struct erg_cudnn *cudnn, const struct erg_cuda *cuda, int query_heads,
                        int kv_heads, int queries, int keys, struct CUstream_st *stream)
{
    struct erg_attention_shape shape =
        erg_attention_packed(BATCH, query_heads, kv_heads, HEAD_DIM, queries);
    size_t in_count = (size_t)(BATCH * shape.q.batch), rows = (size_t)BATCH * query_heads * queries;
    size_t k_at = (size_t)query_heads * HEAD_DIM, v_at = k_at + (size_t)kv_heads * HEAD_DIM;
    if (keys > queries) {
        int64_t row = (int64_t)kv_heads * HEAD_DIM;
        shape.keys = keys;
        shape.mask = ERG_MASK_CAUSAL_LAST;
        shape.kv = (struct erg_attention_strides){keys * row, row, HEAD_DIM};
        k_at = in_count;
        v_at = k_at + (size_t)(BATCH * shape.kv.batch);
        in_count = v_at + (size_t)(BATCH * shape.kv.batch);
    }
    double flops = (double)rows * (keys - 0.5 * queries) * HEAD_DIM;
    struct erg_rng rng;
    struct erg_attention *attention;
    void *gradients, *o, *stats, *workspace;
    erg_rng_seed(&rng, 1);
    must(erg_attention_new(&attention, cudnn, &shape, &err));
    erg_bf16 *inputs = random_buffer(&rng, in_count);
    void *d_o = random_buffer(&rng, rows * HEAD_DIM);
    must(erg_cuda_alloc(&gradients, in_count * sizeof(erg_bf16), &err));
    must(erg_cuda_alloc(&o, rows * HEAD_DIM * sizeof(erg_bf16), &err));
    must(erg_cuda_alloc(&stats, rows * sizeof(float), &err));
    must(erg_cuda_alloc(&workspace, erg_attention_backward_bytes(attention), &err));
    must(erg_cuda_stream_sync(NULL, &err));
    struct erg_attention_buffers buffers = {
        .q = inputs,
        .k = inputs + k_at,
        .v = inputs + v_at,
        .o = o,
        .stats = stats,
        .d_o = d_o,
        .dq = gradients,
        .dk = (erg_bf16 *)gradients + k_at,
        .dv = (erg_bf16 *)gradients + v_at,
    };
    printf("batch %d, heads %d/%d of %d, %d queries, %d keys\n", BATCH, query_heads, kv_heads,
           HEAD_DIM, queries, keys);
    static const int free_sms[] = {0, 16, 24};
    bool limits = cuda->capability == 90;
    for (size_t i = 0; i < (limits ? 3 : 1); i++)
        bench_pass("forward", erg_attention_forward, 4 * flops, attention, &buffers, workspace,
                   cuda->sms - free_sms[i], stream);
    for (size_t i = 0; i < (limits ? 3 : 1); i++)
        bench_pass("backward", erg_attention_backward, 10 * flops, attention, &buffers, workspace,
                   cuda->sms - free_sms[i], stream);
    erg_attention_free(attention);
    erg_cuda_free(inputs), erg_cuda_free(d_o), erg_cuda_free(gradients);
    erg_cuda_free(o), erg_cuda_free(stats), erg_cuda_free(workspace);
}

int main(void)
{
    static const int heads[][2] = {{32, 8}, {24, 8}}, tokens[] = {4096, 8192};
    struct erg_cuda cuda;
    struct erg_cudnn *cudnn;
    struct CUstream_st *stream;
    must(erg_cuda_init(&cuda, 0, &err));
    must(erg_cudnn_open(&cudnn, &cuda, "", &err));
    must(erg_cuda_stream_new(&stream, false, &err));
    for (size_t h = 0; h < 2; h++)
        for (size_t t = 0; t < 2; t++)
            bench_shape(cudnn, &cuda, heads[h][0], heads[h][1], tokens[t], tokens[t], stream);
    for (int chunk = 1; chunk <= 4; chunk++)
        bench_shape(cudnn, &cuda, 24, 8, 1024, 1024 * chunk, stream);
    erg_cuda_stream_free(stream);
    erg_cudnn_close(cudnn);
    return 0;
}
