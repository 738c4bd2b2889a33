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
    THREADS = 256,
    HEADS = 4,      /* of an item */
    HEADS_BACK = 2, /* the same in the backward pass with norm, which has more to keep */
    ROUNDS = 16,    /* items of a segment in the backward pass with norm: one partial sum a block */
    MAX_HEAD_DIM = 256,
};

struct task {
    uint32_t items, per_token;                   /* items */
    uint32_t sequence, heads, query_heads, half; /* elements of half a head */
    size_t in_row, out_row;
    float eps;
    const erg_bf16 *q_weight, *k_weight;
    const float *table;
};

/* An item's token, and the first of its heads; the others follow per_token apart. */
struct item {
    size_t token;
    uint32_t head, column; /* of this lane's vector in a half */
    bool inside;
};

template <int SEGMENT> __device__ inline struct item find(const struct task &task, uint32_t i)
{
    struct item item;
    uint32_t token = i / task.per_token;
    item.token = token;
    item.head = i - token * task.per_token;
    item.column = threadIdx.x % SEGMENT * VECTOR;
    item.inside = i < task.items && item.column < task.half;
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
        task.table + (item.token % task.sequence * task.half + item.column) * 2);
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
__global__ void __launch_bounds__(THREADS)
    rotate(const __grid_constant__ struct task task, float direction, const erg_bf16 *in,
           erg_bf16 *out)
{
    const struct item item =
        find<SEGMENT>(task, blockIdx.x * (THREADS / SEGMENT) + threadIdx.x / SEGMENT);
    struct pair pairs[HEADS];
    struct angles angles;
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        uint32_t head = item.head + k * task.per_token;
        pairs[k] = load_pair(in + item.token * task.in_row, task, item, head,
                             item.inside && head < task.heads);
    }
    read_angles(&angles, task, item);
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        uint32_t head = item.head + k * task.per_token;
        float low[VECTOR], high[VECTOR];
        unpack(low, pairs[k].low);
        unpack(high, pairs[k].high);
        if (NORM) {
            float squares = 0, w_low[VECTOR], w_high[VECTOR];
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                squares += low[i] * low[i] + high[i] * high[i];
            squares = sum_over_lanes(squares, SEGMENT);
            float scale = rsqrtf(squares / (2 * task.half) + task.eps);
            struct pair weight = load_weight(task, item, head);
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
 * One head back through rotation and norm (in `low`, `high`: gradients), with
 * n = x scale and dx = scale (d w - n mean(d w n)); adds d n to the gradient of the weight.
 */
template <int SEGMENT>
__device__ inline void norm_back(const struct task &task, const struct item &item, uint32_t head,
                                 const struct pair &x, float (&low)[VECTOR], float (&high)[VECTOR],
                                 float (&d_low)[VECTOR], float (&d_high)[VECTOR])
{
    float x_low[VECTOR], x_high[VECTOR], w_low[VECTOR], w_high[VECTOR];
    float squares = 0, dot = 0;
    unpack(x_low, x.low);
    unpack(x_high, x.high);
    struct pair weight = load_weight(task, item, head);
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

/* partials [blocks][4][half]: queries' lower and upper half, then keys'. */
template <int SEGMENT>
__global__ void __launch_bounds__(THREADS, 2)
    rotate_norm_backward(const __grid_constant__ struct task task, const erg_bf16 *x, erg_bf16 *d,
                         float *partials)
{
    __shared__ float sums[THREADS / LANES][4][SEGMENT * VECTOR];
    float d_weight[4][VECTOR] = {};
    for (int round = 0; round < ROUNDS; round++) {
        const struct item item = find<SEGMENT>(
            task, (blockIdx.x * ROUNDS + round) * (THREADS / SEGMENT) + threadIdx.x / SEGMENT);
        struct pair ds[HEADS_BACK], xs[HEADS_BACK];
        struct angles angles;
#pragma unroll
        for (int k = 0; k < HEADS_BACK; k++) {
            uint32_t head = item.head + k * task.per_token;
            bool inside = item.inside && head < task.heads;
            ds[k] = load_pair(d + item.token * task.out_row, task, item, head, inside);
            xs[k] = load_pair(x + item.token * task.in_row, task, item, head, inside);
        }
        read_angles(&angles, task, item);
#pragma unroll
        for (int k = 0; k < HEADS_BACK; k++) {
            uint32_t head = item.head + k * task.per_token;
            float low[VECTOR], high[VECTOR];
            unpack(low, ds[k].low);
            unpack(high, ds[k].high);
            turn(low, high, angles, -1);
            if (head < task.query_heads)
                norm_back<SEGMENT>(task, item, head, xs[k], low, high, d_weight[0], d_weight[1]);
            else
                norm_back<SEGMENT>(task, item, head, xs[k], low, high, d_weight[2], d_weight[3]);
            if (item.inside && head < task.heads)
                store_pair(d + item.token * task.out_row, task, item, head, low, high);
        }
    }
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (int part = 0; part < 4; part++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float sum = d_weight[part][i]; /* over the warp's segments */
            for (int mask = SEGMENT; mask < LANES; mask *= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, mask);
            if (lane < SEGMENT)
                sums[warp][part][lane * VECTOR + i] = sum;
        }
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < 4 * task.half; c += THREADS) {
        float sum = 0;
        for (int w = 0; w < THREADS / LANES; w++)
            sum += sums[w][c / task.half][c % task.half];
        partials[blockIdx.x * 4 * (size_t)task.half + c] = sum;
    }
}

struct task task_of(const struct erg_ops_qkv *shape, int heads, float eps, const erg_bf16 *q_weight,
                    const erg_bf16 *k_weight, const float *table)
{
    struct task task = {};
    task.heads = (uint32_t)(shape->query_heads + shape->kv_heads);
    task.query_heads = (uint32_t)shape->query_heads;
    task.per_token = (uint32_t)blocks_for(task.heads, (size_t)heads);
    task.items = (uint32_t)(shape->tokens * task.per_token);
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

size_t backward_blocks(const struct erg_ops_qkv *shape)
{
    size_t per_token = blocks_for(shape->query_heads + shape->kv_heads, HEADS_BACK);
    return blocks_for(shape->tokens * per_token,
                      (size_t)ROUNDS * THREADS / (size_t)segment_of(shape));
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
    unsigned blocks = (unsigned)blocks_for(task.items, (size_t)(THREADS / segment));
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
    struct task task = task_of(shape, HEADS, eps, q_weight, k_weight, table);
    task.out_row = out_row;
    if (q_weight)
        launch_rotate<true>(task, segment_of(shape), 1, qkv, out, stream);
    else
        launch_rotate<false>(task, segment_of(shape), 1, qkv, out, stream);
    return erg_cuda_check_launch("rotary embedding", err);
}

extern "C" size_t erg_cuda_rope_backward_scratch(const struct erg_ops_qkv *shape)
{
    return backward_blocks(shape) * 2 * shape->head_dim * sizeof(float);
}

extern "C" int erg_cuda_rope_backward(const struct erg_ops_qkv *shape, float eps,
                                      const erg_bf16 *q_weight, const erg_bf16 *k_weight,
                                      const float *table, const erg_bf16 *qkv, erg_bf16 *d_qkv,
                                      float *d_q_weight, float *d_k_weight, void *scratch,
                                      struct CUstream_st *stream, struct erg_error *err)
{
    if (check_heads("rotary embedding backward", shape, err))
        return -1;
    if (shape->tokens == 0)
        return 0;
    struct task task =
        task_of(shape, q_weight ? HEADS_BACK : HEADS, eps, q_weight, k_weight, table);
    int segment = segment_of(shape);
    if (!q_weight) {
        launch_rotate<false>(task, segment, -1, d_qkv, d_qkv, stream);
        return erg_cuda_check_launch("rotary embedding backward", err);
    }
    auto run = segment == 4   ? rotate_norm_backward<4>
               : segment == 8 ? rotate_norm_backward<8>
                              : rotate_norm_backward<16>;
    size_t blocks = backward_blocks(shape), d = shape->head_dim;
    float *partials = static_cast<float *>(scratch);
    run<<<(unsigned)blocks, THREADS, 0, stream>>>(task, qkv, d_qkv, partials);
    add_partials(blocks, 2 * d, d, partials, d_q_weight, stream);
    add_partials(blocks, 2 * d, d, partials + d, d_k_weight, stream);
    return erg_cuda_check_launch("rotary embedding backward", err);
}
