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
 * dx = scale (d w - n mean(d w n)); adds d n to the gradient of the weight.
 */
template <int SEGMENT>
__device__ inline void norm_back(const struct task &task, const struct pair &x,
                                 const struct pair &weight, float (&low)[VECTOR],
                                 float (&high)[VECTOR], float (&d_low)[VECTOR],
                                 float (&d_high)[VECTOR])
{
    float x_low[VECTOR], x_high[VECTOR], dw_low[VECTOR], dw_high[VECTOR], dot = 0;
    unpack(x_low, x.low);
    unpack(x_high, x.high);
    unpack(dw_low, weight.low);
    unpack(dw_high, weight.high);
    const float scale = scale_of<SEGMENT>(task, x_low, x_high);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        dw_low[i] *= low[i];
        dw_high[i] *= high[i];
        dot += x_low[i] * dw_low[i];
        dot += x_high[i] * dw_high[i];
    }
    dot = sum_over_lanes(dot, SEGMENT);
    const float back = scale * scale * scale * dot * task.share;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        d_low[i] += low[i] * x_low[i] * scale;
        d_high[i] += high[i] * x_high[i] * scale;
        low[i] = scale * dw_low[i] - x_low[i] * back;
        high[i] = scale * dw_high[i] - x_high[i] * back;
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
    const size_t head_size = 2 * task.half, at = place.head * head_size + place.column;
    const size_t stride = place.step * head_size;
    auto slot = [&](int k, int part) {
        return ring + (k % STAGES * 4 + part) * blockDim.x + threadIdx.x;
    };
    auto has_head = [&](uint32_t token, int k) {
        return place.inside && token < task.tokens && place.head + k * place.step < place.heads_end;
    };
    /* Head k of the place, or of the block's next token. */
    auto fetch_head = [&](uint32_t token, int k) {
        token += k / HEADS * step;
        k %= HEADS;
        const bool inside = has_head(token, k);
        const size_t half = inside ? task.half : 0, head = inside ? at + k * stride : 0;
        const erg_bf16 *d_at = d_rotated + (inside ? token * task.out_row : 0) + head;
        const erg_bf16 *x_at = x + (inside ? token * task.in_row : 0) + head;
        fetch(slot(k, 0), d_at, inside);
        fetch(slot(k, 1), d_at + half, inside);
        fetch(slot(k, 2), x_at, inside);
        fetch(slot(k, 3), x_at + half, inside);
        commit();
    };
    float d_low[VECTOR] = {}, d_high[VECTOR] = {};
    uint32_t first = blockIdx.x * task.block_tokens; /* of the tokens that the block is at */
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        fetch_head(first + place.token, k);
    const struct pair weight = load_weight(task, place);
#pragma unroll 1
    for (; first < task.tokens; first += step) {
        const uint32_t token = first + place.token;
        struct angles angles;
        read_angles(&angles, task, token, place);
#pragma unroll
        for (int k = 0; k < HEADS; k++) {
            float low[VECTOR], high[VECTOR];
            fetch_head(token, k + AHEAD);
            wait_fetched<AHEAD>();
            unpack(low, *slot(k, 0));
            unpack(high, *slot(k, 1));
            turn(low, high, angles, -1);
            norm_back<SEGMENT>(task, {*slot(k, 2), *slot(k, 3)}, weight, low, high, d_low, d_high);
            if (has_head(token, k))
                store_pair(d + token * task.out_row + at + k * stride, task.half, low, high);
        }
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
