/* Kernels of rotary position embedding, backward, with the norm of heads if there is one. */
#include "device/cuda/rope.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 256,
    STAGES = 2, /* tokens of a segment in flight or in work */
    PARTS = 4,  /* vectors of a stage: d low, d high, x low, x high */
    MAX_BLOCKS = 2 * PARTIAL_BLOCKS,
    MAX_RUN = 4, /* enough to have few angles per rotated element */
};

/*
 * The assignment of work to blocks. A run is one position in up to MAX_RUN sequences, whose heads
 * rotate by the same angles; here, as many positions as a block has tokens. Neighbouring blocks
 * have neighbouring positions, so that all work in few regions of memory at a time.
 */
struct runs {
    uint32_t count, positions /* positions: blocks for all positions of a sequence */, sequences;
};

/* The remaining work of a run, for one segment. */
struct block_run {
    uint32_t token, position;
    uint32_t left; /* sequences, the same for all threads of a block */
    bool inside;
};

__device__ inline struct block_run begin_run(const struct rope_task &task, const struct runs &runs,
                                             const struct head_place &place, uint32_t index)
{
    const uint32_t part = index / runs.positions, first = part * MAX_RUN;
    struct block_run run;
    run.position = (index - part * runs.positions) * task.block_tokens + place.token;
    run.token = first * task.sequence + run.position;
    run.left = index < runs.count ? min(runs.sequences - first, (uint32_t)MAX_RUN) : 1;
    run.inside = index < runs.count && run.position < task.sequence && place.inside;
    return run;
}

/*
 * One head back through the norm (in `low`, `high`: gradients), with n = x scale and dx = scale (d
 * w - n mean(d w n)); adds d n to the gradient of the weight. The two sums over the head are
 * independent and need one common wait.
 */
template <int SEGMENT>
__device__ inline void norm_back(const struct rope_task &task, const struct pair &x,
                                 const struct pair &weight, float (&low)[VECTOR],
                                 float (&high)[VECTOR], float (&d_low)[VECTOR],
                                 float (&d_high)[VECTOR])
{
    float x_low[VECTOR], x_high[VECTOR], w_low[VECTOR], w_high[VECTOR];
    float part_low[VECTOR], part_high[VECTOR], squares[2] = {}, dots[2] = {};
    unpack(x_low, x.low);
    unpack(x_high, x.high);
    unpack(w_low, weight.low);
    unpack(w_high, weight.high);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        squares[0] += x_low[i] * x_low[i];
        squares[1] += x_high[i] * x_high[i];
        part_low[i] = low[i] * x_low[i];
        part_high[i] = high[i] * x_high[i];
        dots[0] += part_low[i] * w_low[i];
        dots[1] += part_high[i] * w_high[i];
    }
    float square = squares[0] + squares[1], dot = dots[0] + dots[1];
#pragma unroll
    for (int mask = SEGMENT / 2; mask > 0; mask /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, square, mask);
        dot += __shfl_xor_sync(0xffffffffu, dot, mask);
        square += other;
    }
    const float scale = rsqrtf(square * task.share + task.eps);
    const float back = scale * scale * scale * dot * task.share;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        d_low[i] += part_low[i] * scale;
        d_high[i] += part_high[i] * scale;
        low[i] = scale * w_low[i] * low[i] - x_low[i] * back;
        high[i] = scale * w_high[i] * high[i] - x_high[i] * back;
    }
}

__device__ inline void add(float4 &sum, const float4 &value)
{
    sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
}

/*
 * The block's sums of the weights' gradients, through `shared` [segments][2 half], to partials
 * [queries, keys][blocks][2 half].
 */
template <int SEGMENT>
__device__ inline void store_partials(const struct rope_task &task, const struct head_place &place,
                                      const float (&d_low)[VECTOR], const float (&d_high)[VECTOR],
                                      float *shared, float *partials)
{
    const uint32_t head_size = 2 * task.half, first_place = blockIdx.y * task.block_places;
    if (place.column < task.half)
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            float *to = shared + threadIdx.x / SEGMENT * head_size + place.column + i;
            *reinterpret_cast<float4 *>(to) =
                make_float4(d_low[i], d_low[i + 1], d_low[i + 2], d_low[i + 3]);
            *reinterpret_cast<float4 *>(to + task.half) =
                make_float4(d_high[i], d_high[i + 1], d_high[i + 2], d_high[i + 3]);
        }
    __syncthreads();
    const uint32_t blocks = gridDim.x * gridDim.y, block = blockIdx.y * gridDim.x + blockIdx.x;
    const uint32_t queries = task.query_places > first_place
                                 ? min(task.query_places - first_place, task.block_places)
                                 : 0;
    for (uint32_t c = threadIdx.x * 4; c < 2 * head_size; c += blockDim.x * 4) {
        const bool keys = c >= head_size;
        const uint32_t column = keys ? c - head_size : c;
        const uint32_t begin = keys ? queries : 0, end = keys ? task.block_places : queries;
        float4 sum = make_float4(0, 0, 0, 0);
        for (uint32_t token = 0; token < task.block_tokens; token++)
#pragma unroll 8
            for (uint32_t p = begin; p < end; p++) {
                const uint32_t segment = token * task.block_places + p;
                add(sum, *reinterpret_cast<float4 *>(shared + segment * head_size + column));
            }
        float *to = partials + ((keys ? blocks : 0) + block) * head_size + column;
        *reinterpret_cast<float4 *>(to) = sum;
    }
}

/*
 * A segment has one head of each token. The next AHEAD tokens are in flight to shared memory, where
 * a thread reads only data that it has fetched itself. Angles are read once per run and directly:
 * through shared memory the kernel took 10 % longer.
 */
template <int SEGMENT>
__global__ void __launch_bounds__(THREADS, 2)
    rotate_norm_backward(const __grid_constant__ struct rope_task task,
                         const __grid_constant__ struct runs runs, const erg_bf16 *x,
                         const erg_bf16 *d_rotated, erg_bf16 *d, float *partials)
{
    constexpr int AHEAD = STAGES - 1;
    extern __shared__ vector ring[]; /* [STAGES][PARTS][threads] */
    const struct head_place place = find<SEGMENT>(task);
    const uint32_t at = place.head * 2 * task.half + place.column;
    auto slot = [&](int stage, int part) {
        return ring + (stage * PARTS + part) * blockDim.x + threadIdx.x;
    };
    uint32_t next_index = blockIdx.x;
    struct block_run next = begin_run(task, runs, place, next_index);
    auto fetch_next = [&](int stage) {
        const bool inside = next.inside && next.token < task.tokens;
        const erg_bf16 *d_from = d_rotated, *x_from = x;
        if (inside) {
            d_from += next.token * task.out_row + at;
            x_from += next.token * task.in_row + at;
        }
        fetch(slot(stage, 0), d_from, inside);
        fetch(slot(stage, 1), d_from + task.half, inside);
        fetch(slot(stage, 2), x_from, inside);
        fetch(slot(stage, 3), x_from + task.half, inside);
        commit();
        next.token += task.sequence;
        if (--next.left == 0)
            next = begin_run(task, runs, place, next_index += gridDim.x);
    };
    float d_low[VECTOR] = {}, d_high[VECTOR] = {};
    wait_for_last();
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        fetch_next(k);
    const struct pair weight = load_weight(task, place);
    int stage = 0;
#pragma unroll 1
    for (uint32_t index = blockIdx.x; index < runs.count; index += gridDim.x) {
        struct block_run run = begin_run(task, runs, place, index);
        struct angles angles;
        read_angles(&angles, task, run.position, place);
#pragma unroll 1
        for (; run.left > 0; run.left--, run.token += task.sequence) {
            float low[VECTOR], high[VECTOR];
            fetch_next(stage == 0 ? STAGES - 1 : stage - 1);
            wait_fetched<AHEAD>();
            unpack(low, *slot(stage, 0));
            unpack(high, *slot(stage, 1));
            turn(low, high, angles, -1);
            norm_back<SEGMENT>(task, {*slot(stage, 2), *slot(stage, 3)}, weight, low, high, d_low,
                               d_high);
            if (run.inside && run.token < task.tokens)
                store_pair(d + run.token * task.out_row + at, task.half, low, high);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
    }
    let_next_begin();
    wait_fetched<0>();
    __syncthreads();
    store_partials<SEGMENT>(task, place, d_low, d_high, reinterpret_cast<float *>(ring), partials);
}

struct runs runs_of(const struct rope_task &task)
{
    struct runs runs = {};
    runs.positions = (uint32_t)blocks_for(min(task.sequence, task.tokens), task.block_tokens);
    runs.sequences = (uint32_t)blocks_for(task.tokens, task.sequence);
    runs.count = runs.positions * (uint32_t)blocks_for(runs.sequences, MAX_RUN);
    return runs;
}

/* Uses no more blocks than needed for the lowest number of turns. */
struct grid divide_backward(struct rope_task *task, const struct erg_ops_qkv *shape, size_t blocks)
{
    struct grid grid = divide(task, shape, 1, THREADS);
    const size_t runs = runs_of(*task).count;
    const size_t most = grid.blocks.y < blocks ? blocks / grid.blocks.y : 1;
    grid.blocks.x = (unsigned)blocks_for(runs, blocks_for(runs, most));
    return grid;
}

/*
 * Two blocks per SM run at once. If blocks of equal work end together, that number is best, as each
 * block costs its start and a partial sum: on H200, whose memory has six stacks, it reaches 91.5 %
 * of a copy's rate, and twice as many blocks reach 89.2 %. On H100, which has five stacks, some
 * blocks end later: with twice as many, a block that ends early makes room for the next, and they
 * reach 91.7 %, the smaller number 89.5 %. (Timed alternately with other numbers of blocks and
 * threads, at the shape of bench_kernels.)
 */
int most_blocks(size_t *blocks, struct erg_error *err)
{
    enum { FIVE_STACKS_BITS = 5 * 1024 }; /* a sixth stack is used in part: 6016 */
    int device = 0, bits = 0;
    if (erg_cuda_check(cudaGetDevice(&device), err, "reading the current GPU") ||
        erg_cuda_check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device), err,
                       "reading the width of a GPU's memory"))
        return -1;
    *blocks = bits > FIVE_STACKS_BITS ? MAX_BLOCKS / 2 : MAX_BLOCKS;
    return 0;
}

} // namespace

extern "C" size_t erg_cuda_rope_backward_scratch(const struct erg_ops_qkv *shape)
{
    if (shape->tokens == 0)
        return 0;
    struct rope_task task = task_of(shape, 0, NULL, NULL, NULL);
    const struct grid grid = divide_backward(&task, shape, MAX_BLOCKS);
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
    struct rope_task task = task_of(shape, eps, q_weight, k_weight, table);
    if (!q_weight) {
        rotate_back(&task, shape, d_rotated, d_qkv, stream);
        return erg_cuda_check_launch("rotary embedding backward", err);
    }
    const int segment = segment_of(shape);
    auto run = segment == 4   ? rotate_norm_backward<4>
               : segment == 8 ? rotate_norm_backward<8>
                              : rotate_norm_backward<16>;
    size_t most;
    if (most_blocks(&most, err))
        return -1;
    const struct grid grid = divide_backward(&task, shape, most);
    const size_t blocks = (size_t)grid.blocks.x * grid.blocks.y;
    const size_t ring = (size_t)STAGES * PARTS * grid.threads * sizeof(vector);
    float *partials = static_cast<float *>(scratch);
    if (erg_cuda_check(
            cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring), err,
            "requesting %zu bytes of shared memory for rotary embedding backward", ring))
        return -1;
    follow(run, grid.blocks, grid.threads, ring, stream, task, runs_of(task), qkv, d_rotated, d_qkv,
           partials);
    const struct partials sums[] = {
        {(uint32_t)blocks, partials, d_q_weight},
        {(uint32_t)blocks, partials + blocks * shape->head_dim, d_k_weight}};
    add_partials(shape->head_dim, sums, 2, stream);
    return erg_cuda_check_launch("rotary embedding backward", err);
}
