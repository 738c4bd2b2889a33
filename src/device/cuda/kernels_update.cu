/* Kernels of the update: AdamW, the sum of squares for its clipping, rounding of weights. */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 256,
    QUAD = 4,  /* elements of a thread's floats: 16 bytes */
    AHEAD = 4, /* quads a thread loads before it adds the first */
    MOST_BLOCKS = 4 * PARTIAL_BLOCKS,
};

struct quad {
    float of[QUAD];
};

__device__ inline struct quad load_quad(const float *from)
{
    const float4 v = *reinterpret_cast<const float4 *>(from);
    return {{v.x, v.y, v.z, v.w}};
}

__device__ inline void store_quad(float *to, const struct quad &v)
{
    *reinterpret_cast<float4 *>(to) = make_float4(v.of[0], v.of[1], v.of[2], v.of[3]);
}

__global__ void __launch_bounds__(THREADS)
    adamw(size_t count, bool decays, const struct erg_ops_update *update, const float *gradient,
          float *master, float *m, float *v, erg_bf16 *weight)
{
    const size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * QUAD;
    wait_for_last();
    if (at >= count)
        return;
    const struct quad g = load_quad(gradient + at);
    struct quad w = load_quad(master + at), first = load_quad(m + at), second = load_quad(v + at);
    const struct erg_ops_update u = *update;
    const float kept = decays ? 1 - u.rate * u.decay : 1, step = u.rate / u.correction1;
#pragma unroll
    for (int i = 0; i < QUAD; i++) {
        const float clipped = u.factor * g.of[i];
        first.of[i] = u.beta1 * first.of[i] + (1 - u.beta1) * clipped;
        second.of[i] = u.beta2 * second.of[i] + (1 - u.beta2) * clipped * clipped;
        w.of[i] =
            w.of[i] * kept - step * first.of[i] / (sqrtf(second.of[i]) / u.correction2 + u.eps);
    }
    store_quad(m + at, first);
    store_quad(v + at, second);
    store_quad(master + at, w);
    *reinterpret_cast<uint2 *>(weight + at) =
        make_uint2(pack(w.of[0], w.of[1]), pack(w.of[2], w.of[3]));
}

__global__ void __launch_bounds__(THREADS) to_element(size_t count, const float *from, erg_bf16 *to)
{
    const size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR;
    float values[VECTOR];
    wait_for_last();
    if (at >= count)
        return;
    load_floats(values, from + at);
    store(to + at, pack(values));
}

/* The block's sum, in thread 0. */
__device__ inline double sum_of_block(double value)
{
    __shared__ double warps[THREADS / LANES];
    value = sum_over_lanes(value, LANES);
    if (threadIdx.x % LANES == 0)
        warps[threadIdx.x / LANES] = value;
    __syncthreads();
    if (threadIdx.x >= LANES)
        return 0;
    return sum_over_lanes(threadIdx.x < THREADS / LANES ? warps[threadIdx.x] : 0.0, LANES);
}

__global__ void __launch_bounds__(THREADS)
    squares(size_t count, const float *gradient, double *partials)
{
    const size_t step = (size_t)gridDim.x * THREADS * QUAD;
    double sum = 0;
    wait_for_last();
    for (size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * QUAD; at < count;
         at += step * AHEAD) {
        struct quad ahead[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            ahead[k] =
                at + k * step < count ? load_quad(gradient + at + k * step) : quad{{0, 0, 0, 0}};
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int i = 0; i < QUAD; i++)
                sum += (double)ahead[k].of[i] * ahead[k].of[i];
    }
    sum = sum_of_block(sum);
    let_next_begin();
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum;
}

/* One block. */
__global__ void __launch_bounds__(THREADS)
    sum_squares(uint32_t count, const double *partials, double *sum)
{
    double mine = 0;
    wait_for_last();
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        mine += partials[i];
    mine = sum_of_block(mine);
    if (threadIdx.x == 0)
        *sum += mine;
}

size_t squares_blocks(size_t count)
{
    const size_t wanted = blocks_for(count, (size_t)THREADS * QUAD * AHEAD);
    return wanted < MOST_BLOCKS ? wanted : (size_t)MOST_BLOCKS;
}

int check_count(const char *kernel, size_t count, struct erg_error *err)
{
    if (count % VECTOR)
        return erg_fail(err, ERG_FAILED, "%s: %zu elements, expected a multiple of %d", kernel,
                        count, VECTOR);
    if (count / (THREADS * QUAD) >= INT32_MAX)
        return erg_fail(err, ERG_FAILED, "%s: %zu elements, expected fewer than 2^41", kernel,
                        count);
    return 0;
}

} // namespace

extern "C" int erg_cuda_adamw(size_t count, bool decays, const struct erg_ops_update *update,
                              const float *gradient, float *master, float *m, float *v,
                              erg_bf16 *weight, struct CUstream_st *stream, struct erg_error *err)
{
    if (check_count("AdamW", count, err))
        return -1;
    if (count)
        follow(adamw, (unsigned)blocks_for(count, THREADS * QUAD), THREADS, 0, stream, count,
               decays, update, gradient, master, m, v, weight);
    return erg_cuda_check_launch("AdamW", err);
}

extern "C" size_t erg_cuda_squares_scratch(size_t count)
{
    return squares_blocks(count) * sizeof(double);
}

extern "C" int erg_cuda_squares(size_t count, const float *gradient, double *sum, void *scratch,
                                struct CUstream_st *stream, struct erg_error *err)
{
    if (check_count("a sum of squares", count, err))
        return -1;
    if (count == 0)
        return 0;
    const size_t blocks = squares_blocks(count);
    double *partials = static_cast<double *>(scratch);
    follow(squares, (unsigned)blocks, THREADS, 0, stream, count, gradient, partials);
    follow(sum_squares, 1, THREADS, 0, stream, (uint32_t)blocks,
           static_cast<const double *>(partials), sum);
    return erg_cuda_check_launch("a sum of squares", err);
}

extern "C" int erg_cuda_to_element(size_t count, const float *from, erg_bf16 *to,
                                   struct CUstream_st *stream, struct erg_error *err)
{
    if (check_count("rounding", count, err))
        return -1;
    if (count)
        follow(to_element, (unsigned)blocks_for(count, THREADS * VECTOR), THREADS, 0, stream, count,
               from, to);
    return erg_cuda_check_launch("rounding", err);
}
