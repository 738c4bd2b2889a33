/*
 * Cross entropy over rows that are far longer than a block: one pass with a running maximum
 * (Milakov & Gimelshein 2018, arXiv 1805.02867), then one for the gradient.
 */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 512,
    AHEAD = 4,               /* vectors a thread loads before it uses the first */
    STEP = THREADS * VECTOR, /* distance of a thread's vectors in elements */
    COMBINE_THREADS = 1024,
};

/* The first `count` elements of a vector, then -inf. */
__device__ inline vector cut(vector v, uint32_t count)
{
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (2 * i + 1 >= count)
            words[i] = (words[i] & 0xffffu) | 0xff800000u;
        if (2 * i >= count)
            words[i] = 0xff80ff80u;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* A thread's next vectors of a row, whose first `valid` elements count; the others are -inf. */
__device__ inline void load_ahead(vector (&ahead)[AHEAD], const erg_bf16 *row, uint32_t column,
                                  uint32_t valid)
{
    const uint32_t none = 0xff80ff80; /* two of -inf */
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        ahead[k] = column + k * STEP < valid ? load(row + column + k * STEP)
                                             : make_uint4(none, none, none, none);
    if (valid % VECTOR == 0)
        return;
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        const uint32_t at = column + k * STEP;
        if (at < valid && valid - at < VECTOR)
            ahead[k] = cut(ahead[k], valid - at);
    }
}

/* The largest of some numbers, and the sum of exp(number - largest). */
struct partial_sum {
    float largest, sum;
};

/* exp(number - largest); 1 if both are -inf. */
__device__ inline float exp_below(float number, float largest)
{
    return number == largest ? 1 : __expf(number - largest);
}

__device__ inline struct partial_sum join(const struct partial_sum &a, const struct partial_sum &b)
{
    float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * exp_below(a.largest, largest) + b.sum * exp_below(b.largest, largest)};
}

__device__ inline struct partial_sum join_lanes(struct partial_sum mine)
{
    for (int mask = LANES / 2; mask > 0; mask /= 2) {
        struct partial_sum other = {__shfl_xor_sync(0xffffffffu, mine.largest, mask),
                                    __shfl_xor_sync(0xffffffffu, mine.sum, mask)};
        mine = join(mine, other);
    }
    return mine;
}

__global__ void __launch_bounds__(THREADS)
    loss_stats(uint32_t columns, uint32_t valid, size_t first, const int32_t *targets,
               const erg_bf16 *logits, float *stats)
{
    __shared__ struct partial_sum warps[THREADS / LANES];
    const erg_bf16 *row = logits + (size_t)blockIdx.x * columns;
    struct partial_sum mine = {-INFINITY, 0};
    wait_for_last();
    for (uint32_t column = threadIdx.x * VECTOR; column < valid; column += STEP * AHEAD) {
        vector ahead[AHEAD];
        float logit[AHEAD][VECTOR], largest = mine.largest;
        load_ahead(ahead, row, column, valid);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            unpack(logit[k], ahead[k]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                largest = fmaxf(largest, logit[k][i]);
        }
        mine.sum *= exp_below(mine.largest, largest);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                mine.sum += __expf(logit[k][i] - largest);
        mine.largest = largest;
    }
    mine = join_lanes(mine);
    if (threadIdx.x % LANES == 0)
        warps[threadIdx.x / LANES] = mine;
    __syncthreads();
    if (threadIdx.x >= LANES)
        return;
    mine = threadIdx.x < THREADS / LANES ? warps[threadIdx.x] : (struct partial_sum){-INFINITY, 0};
    mine = join_lanes(mine);
    if (threadIdx.x == 0) {
        size_t target = (size_t)targets[blockIdx.x] - first; /* huge if below first */
        float *to = stats + 3 * (size_t)blockIdx.x;
        to[0] = mine.largest;
        to[1] = mine.sum;
        to[2] = target < valid ? __uint_as_float((uint32_t)row[target] << 16) : -INFINITY;
    }
}

/* One block: the order of the sum over tokens is fixed, and there is little to read. */
__global__ void __launch_bounds__(COMBINE_THREADS)
    loss_combine(uint32_t tokens, uint32_t ranks, const int32_t *targets, const float *stats,
                 const float *scale, float *log_sum, float *loss)
{
    __shared__ float shared[1][LANES];
    float total[1] = {0};
    wait_for_last();
    for (uint32_t t = threadIdx.x; t < tokens; t += COMBINE_THREADS) {
        struct partial_sum all = {-INFINITY, 0};
        float target = -INFINITY;
        for (uint32_t r = 0; r < ranks; r++) {
            const float *of_rank = stats + 3 * ((size_t)r * tokens + t);
            all = join(all, (struct partial_sum){of_rank[0], of_rank[1]});
            target = fmaxf(target, of_rank[2]);
        }
        float sum = all.largest + logf(all.sum);
        log_sum[t] = sum;
        if (targets[t] >= 0)
            total[0] += sum - target;
    }
    sum_over_block(total, shared);
    if (threadIdx.x == 0)
        *loss += *scale * total[0];
}

__global__ void __launch_bounds__(THREADS)
    loss_backward(uint32_t columns, uint32_t valid, size_t first, const int32_t *targets,
                  const float *log_sum, const float *scale, erg_bf16 *logits)
{
    erg_bf16 *row = logits + (size_t)blockIdx.x * columns;
    wait_for_last();
    const size_t target = (size_t)targets[blockIdx.x] - first;
    const float factor = targets[blockIdx.x] < 0 ? 0 : *scale, sum = log_sum[blockIdx.x];
    for (uint32_t column = threadIdx.x * VECTOR; column < columns; column += STEP * AHEAD) {
        vector ahead[AHEAD];
        load_ahead(ahead, row, column, valid);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t at = column + k * STEP;
            float logit[VECTOR];
            unpack(logit, ahead[k]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                logit[i] = factor * (__expf(logit[i] - sum) - (at + i == target ? 1 : 0));
            if (at < columns)
                store(row + at, pack(logit));
        }
    }
}

} // namespace

extern "C" int erg_cuda_loss_stats(size_t tokens, size_t columns, size_t valid, size_t first,
                                   const int32_t *targets, const erg_bf16 *logits, float *stats,
                                   struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("cross entropy", tokens, columns, VECTOR, err))
        return -1;
    if (tokens)
        follow(loss_stats, (unsigned)tokens, THREADS, 0, stream, (uint32_t)columns, (uint32_t)valid,
               first, targets, logits, stats);
    return erg_cuda_check_launch("cross entropy", err);
}

extern "C" int erg_cuda_loss_combine(size_t tokens, size_t ranks, const int32_t *targets,
                                     const float *stats, const float *scale, float *log_sum,
                                     float *loss, struct CUstream_st *stream, struct erg_error *err)
{
    follow(loss_combine, 1, COMBINE_THREADS, 0, stream, (uint32_t)tokens, (uint32_t)ranks, targets,
           stats, scale, log_sum, loss);
    return erg_cuda_check_launch("the sum of cross entropies", err);
}

extern "C" int erg_cuda_loss_backward(size_t tokens, size_t columns, size_t valid, size_t first,
                                      const int32_t *targets, const float *log_sum,
                                      const float *scale, erg_bf16 *logits,
                                      struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("cross entropy backward", tokens, columns, VECTOR, err))
        return -1;
    if (tokens)
        follow(loss_backward, (unsigned)tokens, THREADS, 0, stream, (uint32_t)columns,
               (uint32_t)valid, first, targets, log_sum, scale, logits);
    return erg_cuda_check_launch("cross entropy backward", err);
}
