/*
 * Norm per head and rotary embedding. `SEGMENT` neighbouring lanes hold one head: each a vector of
 * its lower half and the vector of its upper half that turns with it. A segment takes an item, up
 * to HEADS heads of one token, and so reads the token's angles once for all of them.
 */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 128,
    BACK_THREADS = 256, /* of the backward pass with norm */
    HEADS = 2,  /* of an item; the backward pass with norm, which has more to keep, takes one */
    STAGES = 4, /* items of a segment on their way, in the backward pass with norm */
    /* Items of a segment in the backward pass with norm, which make one partial sum a block: 132
     * SMs hold 264 blocks, of which 16384 tokens of 16 heads make nearly twice as many. */
    ROUNDS = 16,
    MAX_HEAD_DIM = 256,
};

struct task {
    uint32_t tokens, sequence, heads, query_heads, half; /* elements of half a head */
    size_t in_row, out_row;
    float eps;
    const erg_bf16 *q_weight, *k_weight;
    const float *table;
};

/* An item's token, and the first of its heads. */
struct item {
    uint32_t token, head, column; /* of this lane's vector in a half */
    bool inside;
};

/* Of the items of all tokens, per_token each, the one with index i. */
template <int SEGMENT>
__device__ inline struct item find(const struct task &task, uint32_t per_token, uint32_t i)
{
    struct item item;
    item.token = i / per_token;
    item.head = i - item.token * per_token;
    item.column = threadIdx.x % SEGMENT * VECTOR;
    item.inside = item.token < task.tokens && item.column < task.half;
    return item;
}

/* Cosines and sines of the VECTOR angles of this lane. */
struct angles {
    float cosine[VECTOR], sine[VECTOR];
};

__device__ inline void read_angles(struct angles *angles, const struct task &task,
                                   const struct item &item)
{
    const float4 *from = reinterpret_cast<const float4 *>(
        task.table + ((size_t)(item.token % task.sequence) * task.half + item.column) * 2);
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++) {
        float4 two = item.inside ? from[i] : make_float4(0, 0, 0, 0);
        angles->cosine[2 * i] = two.x, angles->sine[2 * i] = two.y;
        angles->cosine[2 * i + 1] = two.z, angles->sine[2 * i + 1] = two.w;
    }
}

/* direction 1 forwards, -1 backwards */
__device__ inline void turn(float (&low)[VECTOR], float (&high)[VECTOR],
                            const struct angles &angles, float direction)
{
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float sine = direction * angles.sine[i], was_low = low[i];
        low[i] = was_low * angles.cosine[i] - high[i] * sine;
        high[i] = high[i] * angles.cosine[i] + was_low * sine;
    }
}

struct pair {
    vector low, high;
};

__device__ inline struct pair load_pair(const erg_bf16 *row, const struct task &task,
                                        const struct item &item, uint32_t head, bool inside)
{
    struct pair pair = {};
    if (inside) {
        const erg_bf16 *at = row + (size_t)head * 2 * task.half + item.column;
        pair.low = load(at);
        pair.high = load(at + task.half);
    }
    return pair;
}

__device__ inline void store_pair(erg_bf16 *row, const struct task &task, const struct item &item,
                                  uint32_t head, const float (&low)[VECTOR],
                                  const float (&high)[VECTOR])
{
    erg_bf16 *at = row + (size_t)head * 2 * task.half + item.column;
    store(at, pack(low));
    store(at + task.half, pack(high));
}

__device__ inline struct pair load_weight(const struct task &task, const struct item &item,
                                          uint32_t head)
{
    struct pair pair = {};
    if (item.inside) {
        const erg_bf16 *weight = head < task.query_heads ? task.q_weight : task.k_weight;
        pair.low = load(weight + item.column);
        pair.high = load(weight + item.column + task.half);
    }
    return pair;
}

/* Rotation by `direction`, after the norm where there is one. */
template <int SEGMENT, bool NORM>
__global__ void __launch_bounds__(THREADS, NORM ? 7 : 8)
    rotate(const __grid_constant__ struct task task, float direction, const erg_bf16 *in,
           erg_bf16 *out)
{
    const uint32_t per_token = (task.heads + HEADS - 1) / HEADS; /* and so far apart */
    const struct item item =
        find<SEGMENT>(task, per_token, blockIdx.x * (THREADS / SEGMENT) + threadIdx.x / SEGMENT);
    struct pair pairs[HEADS];
    struct angles angles;
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        uint32_t head = item.head + k * per_token;
        pairs[k] = load_pair(in + item.token * task.in_row, task, item, head,
                             item.inside && head < task.heads);
    }
    read_angles(&angles, task, item);
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        uint32_t head = item.head + k * per_token;
        float low[VECTOR], high[VECTOR];
        unpack(low, pairs[k].low);
        unpack(high, pairs[k].high);
        if (NORM) {
            float squares = 0, w_low[VECTOR], w_high[VECTOR];
            const struct pair weight = load_weight(task, item, head);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                squares += low[i] * low[i] + high[i] * high[i];
            squares = sum_over_lanes(squares, SEGMENT);
            float scale = rsqrtf(squares / (2 * task.half) + task.eps);
            unpack(w_low, weight.low);
            unpack(w_high, weight.high);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                low[i] *= scale * w_low[i];
                high[i] *= scale * w_high[i];
            }
        }
        turn(low, high, angles, direction);
        if (item.inside && head < task.heads)
            store_pair(out + item.token * task.out_row, task, item, head, low, high);
    }
}

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
    float x_low[VECTOR], x_high[VECTOR], w_low[VECTOR], w_high[VECTOR];
    float squares = 0, dot = 0;
    unpack(x_low, x.low);
    unpack(x_high, x.high);
    unpack(w_low, weight.low);
    unpack(w_high, weight.high);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        squares += x_low[i] * x_low[i] + x_high[i] * x_high[i];
        dot += x_low[i] * w_low[i] * low[i] + x_high[i] * w_high[i] * high[i];
    }
    squares = sum_over_lanes(squares, SEGMENT);
    dot = sum_over_lanes(dot, SEGMENT);
    float scale = rsqrtf(squares / (2 * task.half) + task.eps);
    float mean = scale * dot / (2 * task.half);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        d_low[i] += low[i] * x_low[i] * scale;
        d_high[i] += high[i] * x_high[i] * scale;
        low[i] = scale * (low[i] * w_low[i] - x_low[i] * scale * mean);
        high[i] = scale * (high[i] * w_high[i] - x_high[i] * scale * mean);
    }
}

/*
 * The first query_blocks blocks turn queries, the others keys, so that a thread has one weight and
 * one gradient of it. The heads of the next STAGES - 1 rounds are on their way into shared memory;
 * a thread reads only what it fetched itself. partials [blocks][2 half].
 */
template <int SEGMENT>
__global__ void __launch_bounds__(BACK_THREADS, 2)
    rotate_norm_backward(const __grid_constant__ struct task task, uint32_t query_blocks,
                         const erg_bf16 *x, const erg_bf16 *d_rotated, erg_bf16 *d, float *partials)
{
    extern __shared__ vector ring[]; /* [STAGES][d low, d high, x low, x high][BACK_THREADS] */
    __shared__ float sums[BACK_THREADS / LANES][2][SEGMENT * VECTOR];
    const bool keys = blockIdx.x >= query_blocks;
    const uint32_t start = (blockIdx.x - (keys ? query_blocks : 0)) * ROUNDS;
    const uint32_t first_head = keys ? task.query_heads : 0;
    const uint32_t heads = keys ? task.heads - task.query_heads : task.query_heads;
    auto find_round = [&](uint32_t round) {
        struct item item = find<SEGMENT>(
            task, heads, (start + round) * (BACK_THREADS / SEGMENT) + threadIdx.x / SEGMENT);
        item.head += first_head;
        item.inside = item.inside && round < ROUNDS;
        return item;
    };
    auto slot = [&](uint32_t round, int part) {
        return ring + (round % STAGES * 4 + part) * BACK_THREADS + threadIdx.x;
    };
    auto fetch_round = [&](uint32_t round) {
        const struct item item = find_round(round);
        const size_t token = item.inside ? item.token : 0;
        const size_t at = item.inside ? item.head * 2 * task.half + item.column : 0;
        const erg_bf16 *d_at = d_rotated + token * task.out_row + at, *x_at = x + token * task.in_row + at;
        fetch(slot(round, 0), d_at, item.inside);
        fetch(slot(round, 1), d_at + task.half, item.inside);
        fetch(slot(round, 2), x_at, item.inside);
        fetch(slot(round, 3), x_at + task.half, item.inside);
        commit();
    };
    float d_low[VECTOR] = {}, d_high[VECTOR] = {};
    struct angles angles;
    for (uint32_t round = 0; round < STAGES - 1; round++)
        fetch_round(round);
    struct item item = find_round(0);
    read_angles(&angles, task, item);
    const struct pair weight = load_weight(task, item, first_head);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        float low[VECTOR], high[VECTOR];
        fetch_round(round + STAGES - 1);
        wait_fetched<STAGES - 1>();
        unpack(low, *slot(round, 0));
        unpack(high, *slot(round, 1));
        const struct pair x_pair = {*slot(round, 2), *slot(round, 3)};
        turn(low, high, angles, -1);
        const struct item next = find_round(round + 1);
        read_angles(&angles, task, next); /* on their way during the rest of the round */
        norm_back<SEGMENT>(task, x_pair, weight, low, high, d_low, d_high);
        if (item.inside)
            store_pair(d + item.token * task.out_row, task, item, item.head, low, high);
        item = next;
    }
    wait_fetched<0>();
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) /* over the warp's segments */
        for (int mask = SEGMENT; mask < LANES; mask *= 2) {
            d_low[i] += __shfl_xor_sync(0xffffffffu, d_low[i], mask);
            d_high[i] += __shfl_xor_sync(0xffffffffu, d_high[i], mask);
        }
    if (lane < SEGMENT)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            sums[warp][0][lane * VECTOR + i] = d_low[i];
            sums[warp][1][lane * VECTOR + i] = d_high[i];
        }
    __syncthreads();
    if (threadIdx.x < 2 * task.half) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < BACK_THREADS / LANES; w++)
            sum += sums[w][threadIdx.x / task.half][threadIdx.x % task.half];
        partials[blockIdx.x * 2 * (size_t)task.half + threadIdx.x] = sum;
    }
}

struct task task_of(const struct erg_ops_qkv *shape, float eps, const erg_bf16 *q_weight,
                    const erg_bf16 *k_weight, const float *table)
{
    struct task task = {};
    task.heads = (uint32_t)(shape->query_heads + shape->kv_heads);
    task.query_heads = (uint32_t)shape->query_heads;
    task.tokens = (uint32_t)shape->tokens;
    task.sequence = (uint32_t)shape->sequence;
    task.half = (uint32_t)(shape->head_dim / 2);
    task.in_row = task.out_row = erg_ops_qkv_row(shape);
    task.eps = eps;
    task.q_weight = q_weight;
    task.k_weight = k_weight;
    task.table = table;
    return task;
}

/* Lanes of a head, enough for its vectors: kernels exist for 4, 8 and 16. */
int segment_of(const struct erg_ops_qkv *shape)
{
    return shape->head_dim <= 64 ? 4 : shape->head_dim <= 128 ? 8 : 16;
}

/* Blocks that turn the queries, or the keys, back. */
size_t backward_blocks(const struct erg_ops_qkv *shape, size_t heads)
{
    return blocks_for(shape->tokens * heads, (size_t)(ROUNDS * BACK_THREADS / segment_of(shape)));
}

int check_heads(const char *kernel, const struct erg_ops_qkv *shape, struct erg_error *err)
{
    if (check_width(kernel, shape->tokens, shape->head_dim, 2 * VECTOR, err) ||
        check_width(kernel, shape->tokens, erg_ops_qkv_row(shape), VECTOR, err))
        return -1;
    if (shape->head_dim > MAX_HEAD_DIM)
        return erg_fail(err, ERG_FAILED, "%s: heads of %zu elements, expected at most %d", kernel,
                        shape->head_dim, MAX_HEAD_DIM);
    return 0;
}

template <bool NORM>
void launch_rotate(const struct task &task, int segment, float direction, const erg_bf16 *in,
                   erg_bf16 *out, struct CUstream_st *stream)
{
    unsigned blocks = (unsigned)blocks_for(task.tokens * blocks_for(task.heads, HEADS),
                                           (size_t)(THREADS / segment));
    auto run = segment == 4 ? rotate<4, NORM> : segment == 8 ? rotate<8, NORM> : rotate<16, NORM>;
    run<<<blocks, THREADS, 0, stream>>>(task, direction, in, out);
}

} // namespace

extern "C" int erg_cuda_rope_forward(const struct erg_ops_qkv *shape, float eps,
                                     const erg_bf16 *q_weight, const erg_bf16 *k_weight,
                                     const float *table, const erg_bf16 *qkv, erg_bf16 *out,
                                     size_t out_row, struct CUstream_st *stream,
                                     struct erg_error *err)
{
    if (check_heads("rotary embedding", shape, err) ||
        check_width("rotary embedding", shape->tokens, out_row, VECTOR, err))
        return -1;
    if (shape->tokens == 0)
        return 0;
    struct task task = task_of(shape, eps, q_weight, k_weight, table);
    task.out_row = out_row;
    if (q_weight)
        launch_rotate<true>(task, segment_of(shape), 1, qkv, out, stream);
    else
        launch_rotate<false>(task, segment_of(shape), 1, qkv, out, stream);
    return erg_cuda_check_launch("rotary embedding", err);
}

extern "C" size_t erg_cuda_rope_backward_scratch(const struct erg_ops_qkv *shape)
{
    return (backward_blocks(shape, shape->query_heads) + backward_blocks(shape, shape->kv_heads)) *
           shape->head_dim * sizeof(float);
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
    int segment = segment_of(shape);
    if (!q_weight) {
        launch_rotate<false>(task, segment, -1, d_rotated, d_qkv, stream);
        return erg_cuda_check_launch("rotary embedding backward", err);
    }
    auto run = segment == 4   ? rotate_norm_backward<4>
               : segment == 8 ? rotate_norm_backward<8>
                              : rotate_norm_backward<16>;
    const size_t query_blocks = backward_blocks(shape, shape->query_heads);
    const size_t key_blocks = backward_blocks(shape, shape->kv_heads), d = shape->head_dim;
    const size_t ring = STAGES * 4 * BACK_THREADS * sizeof(vector);
    float *partials = static_cast<float *>(scratch);
    if (erg_cuda_check(
            cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring), err,
            "asking for %zu bytes of shared memory for rotary embedding backward", ring))
        return -1;
    run<<<(unsigned)(query_blocks + key_blocks), BACK_THREADS, ring, stream>>>(
        task, (uint32_t)query_blocks, qkv, d_rotated, d_qkv, partials);
    const struct partials sums[] = {
        {(uint32_t)query_blocks, partials, d_q_weight},
        {(uint32_t)key_blocks, partials + query_blocks * d, d_k_weight}};
    add_partials(d, sums, 2, stream);
    return erg_cuda_check_launch("rotary embedding backward", err);
}
