/*
 * What it costs that two streams part and meet once a step, in a CUDA graph: the figures
 * join_grid_us and the launch gap of data/stacks/ergon.yaml.
 *
 * A chain of steps, each one memory-bound kernel of a few tens of microseconds. "apart" starts a
 * tiny kernel on the other stream before each step and joins it after; "in line" has the same tiny
 * kernel on the same stream. The tiny kernel itself lasts much shorter than a step.
 *
 *   bench_joins
 */
#include "gpu_check.h"

#include "device/cuda/kernels.h"

#include <cuda_runtime_api.h>

enum { STEPS = 200, ROUNDS = 9, COUNT = 16 << 20, TINY = 1024 };

enum chain { PLAIN, IN_LINE, APART };

struct bench {
    struct CUstream_st *compute, *comm;
    struct CUevent_st *launched, *finished, *start, *end;
    erg_bf16 *large[3], *small[3];
};

static void must_cuda(cudaError_t status)
{
    if (status == cudaSuccess)
        return;
    printf("%s\n", cudaGetErrorString(status));
    exit(1);
}

static void add(erg_bf16 *const *x, size_t count, struct CUstream_st *stream)
{
    gpu_ok(erg_cuda_add_bias(1, count, x[0], x[1], NULL, x[2], stream, &gpu_error));
}

static void run_step(const struct bench *b, enum chain chain)
{
    if (chain == APART) {
        gpu_ok(erg_cuda_event_record(b->launched, b->compute, &gpu_error));
        gpu_ok(erg_cuda_event_wait(b->launched, b->comm, &gpu_error));
        add(b->small, TINY, b->comm);
        gpu_ok(erg_cuda_event_record(b->finished, b->comm, &gpu_error));
    }
    if (chain == IN_LINE)
        add(b->small, TINY, b->compute);
    add(b->large, COUNT, b->compute);
    if (chain == APART)
        gpu_ok(erg_cuda_event_wait(b->finished, b->compute, &gpu_error));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median microseconds of a step. */
static double time_chain(const struct bench *b, enum chain chain)
{
    cudaGraph_t graph;
    cudaGraphExec_t launch;
    must_cuda(cudaStreamBeginCapture(b->compute, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < STEPS; i++)
        run_step(b, chain);
    must_cuda(cudaStreamEndCapture(b->compute, &graph));
    must_cuda(cudaGraphInstantiate(&launch, graph, 0));
    double us[ROUNDS];
    for (int i = -2; i < ROUNDS; i++) { /* the first ones warm up */
        double ms;
        gpu_ok(erg_cuda_event_record(b->start, b->compute, &gpu_error));
        must_cuda(cudaGraphLaunch(launch, b->compute));
        gpu_ok(erg_cuda_event_record(b->end, b->compute, &gpu_error));
        gpu_ok(erg_cuda_event_sync(b->end, &gpu_error));
        gpu_ok(erg_cuda_event_ms(&ms, b->start, b->end, &gpu_error));
        if (i >= 0)
            us[i] = 1e3 * ms / STEPS;
    }
    cudaGraphExecDestroy(launch);
    cudaGraphDestroy(graph);
    qsort(us, ROUNDS, sizeof *us, by_value);
    return us[ROUNDS / 2];
}

int main(void)
{
    struct bench b;
    gpu_open();
    gpu_ok(erg_cuda_stream_new(&b.compute, false, &gpu_error));
    gpu_ok(erg_cuda_stream_new(&b.comm, true, &gpu_error));
    gpu_ok(erg_cuda_event_new(&b.launched, false, &gpu_error));
    gpu_ok(erg_cuda_event_new(&b.finished, false, &gpu_error));
    gpu_ok(erg_cuda_event_new(&b.start, true, &gpu_error));
    gpu_ok(erg_cuda_event_new(&b.end, true, &gpu_error));
    for (int i = 0; i < 3; i++) {
        b.large[i] = gpu_alloc(COUNT * sizeof(erg_bf16));
        b.small[i] = gpu_alloc(TINY * sizeof(erg_bf16));
        gpu_ok(erg_cuda_fill(b.large[i], 0, COUNT * sizeof(erg_bf16), NULL, &gpu_error));
        gpu_ok(erg_cuda_fill(b.small[i], 0, TINY * sizeof(erg_bf16), NULL, &gpu_error));
    }
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    add(b.large, COUNT, b.compute); /* loads the kernel */
    add(b.small, TINY, b.compute);
    gpu_ok(erg_cuda_stream_sync(b.compute, &gpu_error));

    double plain = time_chain(&b, PLAIN), in_line = time_chain(&b, IN_LINE);
    double apart = time_chain(&b, APART);
    printf("a step alone                   %7.2f us\n", plain);
    printf("with a tiny kernel in line     %7.2f us: %+.2f us, a launch gap and the kernel\n",
           in_line, in_line - plain);
    printf("with a tiny kernel beside it   %7.2f us: %+.2f us, to part and to join\n", apart,
           apart - plain);
    return 0;
}
