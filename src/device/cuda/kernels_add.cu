/* Kernels that add: the residual stream, and runs of equal length at two strides. */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum { THREADS = 256, PER_THREAD = 4, MOST_RUNS = 65535 };

template <bool BIAS>
__global__ void __launch_bounds__(THREADS)
    add_bias(size_t vectors, uint32_t row_vectors, const erg_bf16 *a, const erg_bf16 *b,
             const erg_bf16 *bias, erg_bf16 *out)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_last();
    if (i >= vectors)
        return;
    vector as = load(a + i * VECTOR), bs = load(b + i * VECTOR), biases;
    if (BIAS)
        biases = load(bias + (uint32_t)i % row_vectors * VECTOR);
    float left[VECTOR], right[VECTOR];
    unpack(left, as);
    unpack(right, bs);
#pragma unroll
    for (int k = 0; k < VECTOR; k++)
        left[k] += right[k];
    if (BIAS) {
        unpack(right, biases);
#pragma unroll
        for (int k = 0; k < VECTOR; k++)
            left[k] += right[k];
    }
    store(out + i * VECTOR, pack(left));
}

/* A block loads THREADS x PER_THREAD vectors of one run, all in flight at once. */
__global__ void __launch_bounds__(THREADS)
    add_runs(uint32_t vectors, const erg_bf16 *x, size_t x_stride, erg_bf16 *to, size_t to_stride)
{
    x += blockIdx.y * x_stride;
    to += blockIdx.y * to_stride;
    uint32_t first = blockIdx.x * (THREADS * PER_THREAD) + threadIdx.x;
    vector a[PER_THREAD], b[PER_THREAD];
    wait_for_last();
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        uint32_t i = first + k * THREADS;
        if (i < vectors) {
            a[k] = load(to + (size_t)i * VECTOR);
            b[k] = load(x + (size_t)i * VECTOR);
        }
    }
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        uint32_t i = first + k * THREADS;
        if (i < vectors) {
            float sum[VECTOR], other[VECTOR];
            unpack(sum, a[k]);
            unpack(other, b[k]);
#pragma unroll
            for (int e = 0; e < VECTOR; e++)
                sum[e] += other[e];
            store(to + (size_t)i * VECTOR, pack(sum));
        }
    }
}

} // namespace

extern "C" int erg_cuda_add_bias(size_t tokens, size_t hidden, const erg_bf16 *a, const erg_bf16 *b,
                                 const erg_bf16 *bias, erg_bf16 *out, struct CUstream_st *stream,
                                 struct erg_error *err)
{
    if (check_width("residual add", tokens, hidden, VECTOR, err))
        return -1;
    const size_t row_vectors = hidden / VECTOR, vectors = tokens * row_vectors;
    if (tokens)
        follow(bias ? add_bias<true> : add_bias<false>, (unsigned)blocks_for(vectors, THREADS),
               THREADS, 0, stream, vectors, (uint32_t)row_vectors, a, b, bias, out);
    return erg_cuda_check_launch("residual add", err);
}

extern "C" int erg_cuda_add_runs(size_t runs, size_t count, const erg_bf16 *x, size_t x_stride,
                                 erg_bf16 *to, size_t to_stride, struct CUstream_st *stream,
                                 struct erg_error *err)
{
    if (check_width("adding runs", runs, count, VECTOR, err))
        return -1;
    if (runs > MOST_RUNS || x_stride % VECTOR || to_stride % VECTOR)
        return erg_fail(err, ERG_FAILED,
                        "adding %zu runs that are %zu and %zu elements apart: expected at most %d "
                        "and multiples of %d",
                        runs, x_stride, to_stride, MOST_RUNS, VECTOR);
    size_t vectors = count / VECTOR;
    dim3 grid((unsigned)blocks_for(vectors, THREADS * PER_THREAD), (unsigned)runs);
    if (runs)
        follow(add_runs, grid, THREADS, 0, stream, (uint32_t)vectors, x, x_stride, to, to_stride);
    return erg_cuda_check_launch("adding runs", err);
}
