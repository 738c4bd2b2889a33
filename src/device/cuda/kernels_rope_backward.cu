#include "device/cuda/rope.cuh"

namespace
{
using namespace erg;

enum {
    HEADS = 4, /* of a place */
    THREADS = 128,
    STAGES = 4, /* heads of a segment on their way */
};

/*
 * One head back through the norm (in `low`, `high`: gradients), with n = x scale and
 * dx = scale (d w - n mean(d w n)); adds d n to the gradient of the weight. The two sums over the
 * head do not need each other, and are waited for together.
 */
template <int SEGMENT>
__device__ inline void norm_back(const struct task &task, const struct pair &x,
                                 const struct pair &weight, float (&low)[VECTOR],
                                 float (&high)[VECTOR], float (&d_low)[VECTOR],
                                 float (&d_high)[VECTOR])
{
    float x_low[VECTOR], x_high[VECTOR], w_low[VECTOR], w_high[VECTOR];
    float part_low[VECTOR], part_high[VECTOR], squares = 0, dot = 0;
    unpack(x_low, x.low);
    unpack(x_high, x.high);
    unpack(w_low, weight.low);
    unpack(w_high, weight.high);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        squares += x_low[i] * x_low[i];
        squares += x_high[i] * x_high[i];
        part_low[i] = low[i] * x_low[i];
        part_high[i] = high[i] * x_high[i];
        dot += part_low[i] * w_low[i];
        dot += part_high[i] * w_high[i];
    }
#pragma unroll
    for (int mask = SEGMENT / 2; mask > 0; mask /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, squares, mask);
        dot += __shfl_xor_sync(0xffffffffu, dot, mask);
        squares += other;
    }
    const float scale = rsqrtf(squares * task.share + task.eps);
    const float back = scale * scale * scale * dot * task.share;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        d_low[i] += part_low[i] * scale;
        d_high[i] += part_high[i] * scale;
        low[i] = scale * w_low[i] * low[i] - x_low[i] * back;
        high[i] = scale * w_high[i] * high[i] - x_high[i] * back;
    }
}

/*
 * Blocks take tokens in turn, so that all are in one region of memory at a time. The next AHEAD
 * heads are on their way into shared memory; a thread reads only what it fetched itself. partials
 * [queries, keys][blocks][2 half].
 */
template <int SEGMENT>
__global__ void __launch_bounds__(THREADS, 4)
    rotate_norm_backward(const __grid_constant__ struct task task, const erg_bf16 *x,
                         const erg_bf16 *d_rotated, erg_bf16 *d, float *partials)
{
    constexpr int AHEAD = STAGES - 1;
    static_assert(HEADS % STAGES == 0, "a head of a place has one stage");
    extern __shared__ vector ring[]; /* [STAGES][d low, d high, x low, x high][threads] */
    const struct place place = find<SEGMENT>(task);
    const uint32_t step = gridDim.x * task.block_tokens;
    uint32_t token = blockIdx.x * task.block_tokens + place.token;
    const size_t head_size = 2 * task.half, at = place.head * head_size + place.column;
    const size_t stride = place.step * head_size;
    const size_t x_step = step * task.in_row, d_step = step * task.out_row;
    const erg_bf16 *x_at = x + token * task.in_row + at;
    const erg_bf16 *d_at = d_rotated + token * task.out_row + at;
    erg_bf16 *to = d + token * task.out_row + at;
    const uint32_t heads =
        place.inside ? (place.heads_end - place.head + place.step - 1) / place.step : 0;
    auto slot = [&](int k, int part) {
        return ring + (k % STAGES * 4 + part) * blockDim.x + threadIdx.x;
    };
    /* Head k of the place, or of the block's next token. */
    auto fetch_head = [&](int k) {
        const uint32_t later = k / HEADS, head = k % HEADS;
        const bool inside = head < heads && token + later * step < task.tokens;
        const erg_bf16 *d_from = inside ? d_at + later * d_step + head * stride : d_rotated;
        const erg_bf16 *x_from = inside ? x_at + later * x_step + head * stride : x;
        fetch(slot(k, 0), d_from, inside);
        fetch(slot(k, 1), d_from + task.half, inside);
        fetch(slot(k, 2), x_from, inside);
        fetch(slot(k, 3), x_from + task.half, inside);
        commit();
    };
    float d_low[VECTOR] = {}, d_high[VECTOR] = {};
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        fetch_head(k);
    const struct pair weight = load_weight(task, place);
#pragma unroll 1
    for (uint32_t first = blockIdx.x * task.block_tokens; first < task.tokens; first += step) {
        struct angles angles;
        read_angles(&angles, task, token, place);
#pragma unroll
        for (uint32_t k = 0; k < HEADS; k++) {
            float low[VECTOR], high[VECTOR];
            fetch_head(k + AHEAD);
            wait_fetched<AHEAD>();
            unpack(low, *slot(k, 0));
            unpack(high, *slot(k, 1));
            turn(low, high, angles, -1);
            norm_back<SEGMENT>(task, {*slot(k, 2), *slot(k, 3)}, weight, low, high, d_low, d_high);
            if (k < heads && token < task.tokens)
                store_pair(to + k * stride, task.half, low, high);
        }
        token += step, x_at += x_step, d_at += d_step, to += d_step;
    }
    wait_fetched<0>();
    __syncthreads();
    float *sums = reinterpret_cast<float *>(ring); /* [segments][2 half] */
    if (place.column < task.half)
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            float *to = sums + threadIdx.x / SEGMENT * head_size + place.column + i;
            *reinterpret_cast<float4 *>(to) =
                make_float4(d_low[i], d_low[i + 1], d_low[i + 2], d_low[i + 3]);
            *reinterpret_cast<float4 *>(to + task.half) =
                make_float4(d_high[i], d_high[i + 1], d_high[i + 2], d_high[i + 3]);
        }
    __syncthreads();
    const uint32_t blocks = gridDim.x * gridDim.y, block = blockIdx.y * gridDim.x + blockIdx.x;
    for (uint32_t c = threadIdx.x; c < 2 * head_size; c += blockDim.x) {
        const bool keys = c >= head_size;
        const uint32_t column = keys ? c - head_size : c;
        float sum = 0;
        for (uint32_t token = 0; token < task.block_tokens; token++)
            for (uint32_t p = 0; p < task.block_places; p++)
                if ((blockIdx.y * task.block_places + p >= task.query_places) == keys)
                    sum += sums[(token * task.block_places + p) * head_size + column];
        partials[((keys ? blocks : 0) + block) * head_size + column] = sum;
    }
}

struct grid divide_backward(struct task *task, const struct erg_ops_qkv *shape)
{
    struct grid grid = divide(task, shape, HEADS, THREADS);
    const unsigned most = PARTIAL_BLOCKS / grid.blocks.y;
    if (grid.blocks.x > most)
        grid.blocks.x = most > 0 ? most : 1;
    return grid;
}

} // namespace

extern "C" size_t erg_cuda_rope_backward_scratch(const struct erg_ops_qkv *shape)
{
    struct task task;
    const struct grid grid = divide_backward(&task, shape);
    return 2 * (size_t)grid.blocks.x * grid.blocks.y * shape->head_dim * sizeof(float);
}

extern "C" int erg_cuda_rope_backward(const struct erg_ops_qkv *shape, float eps,
                                      const erg_bf16 *q_weight, const erg_bf16 *k_weight,
                                      const float *table, const erg_bf16 *qkv,
                                      const erg_bf16 *d_rotated, erg_bf16 *d_qkv, float *d_q_weight,
                                      float *d_k_weight, void *scratch, struct CUstream_st *stream,
                                      struct erg_error *err)
{
    if (check_heads("rotary embedding backward", shape, err))
        return -1;
    if (shape->tokens == 0)
        return 0;
    struct task task = task_of(shape, eps, q_weight, k_weight, table);
    if (!q_weight) {
        rotate_back(&task, shape, d_rotated, d_qkv, stream);
        return erg_cuda_check_launch("rotary embedding backward", err);
    }
    const int segment = segment_of(shape);
    auto run = segment == 4   ? rotate_norm_backward<4>
               : segment == 8 ? rotate_norm_backward<8>
                              : rotate_norm_backward<16>;
    const struct grid grid = divide_backward(&task, shape);
    const size_t blocks = (size_t)grid.blocks.x * grid.blocks.y;
    const size_t ring = STAGES * 4 * grid.threads * sizeof(vector);
    float *partials = static_cast<float *>(scratch);
    if (erg_cuda_check(
            cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring), err,
            "asking for %zu bytes of shared memory for rotary embedding backward", ring))
        return -1;
    run<<<grid.blocks, grid.threads, ring, stream>>>(task, qkv, d_rotated, d_qkv, partials);
    const struct partials sums[] = {
        {(uint32_t)blocks, partials, d_q_weight},
        {(uint32_t)blocks, partials + blocks * shape->head_dim, d_k_weight}};
    add_partials(shape->head_dim, sums, 2, stream);
    return erg_cuda_check_launch("rotary embedding backward", err);
}
