/*
 * Residual add and RMSNorm. A block holds whole rows, a thread V vectors of each, so that every
 * tensor passes once; several rows at a time keep enough loads in flight to fill the memory.
 */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    ADD_THREADS = 256,
    ROWS = 4, /* of one block, forward; half as many where two tensors are read */
    MAX_THREADS = 1024,
    ONE_VECTOR_THREADS = 512, /* forward; longer rows: two vectors a thread */
    MAX_HIDDEN = MAX_THREADS * 2 * VECTOR,
    /* Backward: few threads of several vectors each wait less for each other in every row. */
    BACK_THREADS = 128,
    BACK_VECTORS = 4, /* of a thread, at most; then the threads grow in number */
    MAX_BACK_THREADS = MAX_HIDDEN / VECTOR / BACK_VECTORS,
    SUM_THREADS = 1024,
    SUM_COLUMNS = 8, /* a sector of each partial sum: the more blocks, the sooner all are read */
    SLICES = SUM_THREADS / (SUM_COLUMNS / 4), /* of the partial sums, summed side by side */
    AHEAD = 4, /* partial sums a thread reads at a time: those of 2048 blocks at once */
};

__global__ void __launch_bounds__(ADD_THREADS)
    add(size_t vectors, const erg_bf16 *a, const erg_bf16 *b, erg_bf16 *out)
{
    size_t i = (size_t)blockIdx.x * ADD_THREADS + threadIdx.x;
    wait_for_last();
    if (i >= vectors)
        return;
    vector as = load(a + i * VECTOR), bs = load(b + i * VECTOR);
    float left[VECTOR], right[VECTOR];
    unpack(left, as);
    unpack(right, bs);
#pragma unroll
    for (int k = 0; k < VECTOR; k++)
        left[k] += right[k];
    store(out + i * VECTOR, pack(left));
}

template <int V, bool ADD>
__global__ void __launch_bounds__(MAX_THREADS)
    norm_forward(uint32_t tokens, uint32_t hidden, float eps, const erg_bf16 *residual,
                 const erg_bf16 *x, const erg_bf16 *weight, erg_bf16 *sum, erg_bf16 *out,
                 float *inv_rms)
{
    constexpr int ROWS_HERE = ADD ? ROWS / 2 : ROWS;
    __shared__ float shared[ROWS_HERE][LANES];
    const uint32_t first = blockIdx.x * ROWS_HERE;
    vector rows[ROWS_HERE][V], others[ROWS_HERE][V], weights[V];
    wait_for_last();
#pragma unroll
    for (int r = 0; r < ROWS_HERE; r++)
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            bool inside = column < hidden && first + r < tokens;
            size_t at = (size_t)(first + r) * hidden + column;
            rows[r][j] = inside ? load(residual + at) : make_uint4(0, 0, 0, 0);
            if (ADD)
                others[r][j] = inside ? load(x + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        weights[j] = column < hidden ? load(weight + column) : make_uint4(0, 0, 0, 0);
    }
    float squares[ROWS_HERE] = {};
    float row[VECTOR], other[VECTOR];
#pragma unroll
    for (int r = 0; r < ROWS_HERE; r++)
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            unpack(row, rows[r][j]);
            if (ADD) {
                unpack(other, others[r][j]);
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    row[i] += other[i];
                rows[r][j] = pack(row);
                unpack(row, rows[r][j]);
                if (column < hidden && first + r < tokens)
                    store(sum + (size_t)(first + r) * hidden + column, rows[r][j]);
            }
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                squares[r] += row[i] * row[i];
        }
    sum_over_block(squares, shared);
#pragma unroll
    for (int r = 0; r < ROWS_HERE; r++) {
        if (first + r >= tokens)
            return;
        float scale = rsqrtf(squares[r] / hidden + eps);
        if (threadIdx.x == 0)
            inv_rms[first + r] = scale;
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            unpack(row, rows[r][j]);
            unpack(other, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                row[i] *= scale * other[i];
            if (column < hidden)
                store(out + (size_t)(first + r) * hidden + column, pack(row));
        }
    }
}

/* Rows that are on their way or worked on: shared memory holds two of the longest. */
__host__ __device__ constexpr int stages_of(int v)
{
    return v == BACK_VECTORS ? 2 : 3;
}

/*
 * Blocks take rows in turn, so that all are in one region of memory at a time. The next STAGES - 1
 * rows of a block are on their way into shared memory, as registers are needed for the weight's
 * gradient; a thread reads only what it fetched itself.
 */
template <int V, bool ADD>
__global__ void __launch_bounds__(V == BACK_VECTORS ? MAX_BACK_THREADS : BACK_THREADS)
    norm_backward(uint32_t tokens, uint32_t hidden, const erg_bf16 *sum, const erg_bf16 *weight,
                  const float *inv_rms, const erg_bf16 *d_out, const erg_bf16 *d_sum,
                  erg_bf16 *d_in, float *partials)
{
    constexpr int STAGES = stages_of(V), TENSORS = ADD ? 3 : 2;
    extern __shared__ vector ring[];      /* [STAGES][TENSORS][V][threads] */
    __shared__ float shared[2][1][LANES]; /* in turns, so that one barrier a row is enough */
    const erg_bf16 *const tensors[3] = {sum, d_out, d_sum};
    auto slot = [&](int stage, int tensor, int j) {
        return ring + ((stage * TENSORS + tensor) * V + j) * blockDim.x + threadIdx.x;
    };
    auto fetch_row = [&](uint32_t row, int stage) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            bool inside = row < tokens && column < hidden;
            size_t at = inside ? (size_t)row * hidden + column : 0;
#pragma unroll
            for (int tensor = 0; tensor < TENSORS; tensor++)
                fetch(slot(stage, tensor, j), tensors[tensor] + at, inside);
        }
        commit();
    };
    float d_weight[V][VECTOR] = {}, scales[STAGES]; /* of this row and those on their way */
    vector weights[V];
    wait_for_last();
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) {
        uint32_t row = blockIdx.x + k * gridDim.x;
        fetch_row(row, k);
        scales[k] = row < tokens ? inv_rms[row] : 0;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        weights[j] = column < hidden ? load(weight + column) : make_uint4(0, 0, 0, 0);
    }
    int stage = 0, turn = 0;
#pragma unroll 1
    for (uint32_t row = blockIdx.x; row < tokens; row += gridDim.x, turn ^= 1) {
        const uint32_t ahead = row + (STAGES - 1) * gridDim.x;
        const float scale = scales[0];
        float n[VECTOR], d[VECTOR], w[VECTOR], dot[1] = {0};
        fetch_row(ahead, stage == 0 ? STAGES - 1 : stage - 1);
        scales[STAGES - 1] = ahead < tokens ? inv_rms[ahead] : 0;
        wait_fetched<STAGES - 1>();
#pragma unroll
        for (int k = 0; k < STAGES - 1; k++)
            scales[k] = scales[k + 1];
#pragma unroll
        for (int j = 0; j < V; j++) {
            unpack(n, *slot(stage, 0, j));
            unpack(d, *slot(stage, 1, j));
            unpack(w, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                float part = d[i] * n[i] * scale;
                d_weight[j][i] += part;
                dot[0] += part * w[i];
            }
        }
        sum_over_block(dot, shared[turn]);
        float mean = dot[0] / hidden * scale;
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            unpack(n, *slot(stage, 0, j));
            unpack(d, *slot(stage, 1, j));
            unpack(w, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                d[i] = scale * (d[i] * w[i] - n[i] * mean);
            if (ADD) {
                unpack(w, *slot(stage, 2, j));
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    d[i] += w[i];
            }
            if (column < hidden)
                store(d_in + (size_t)row * hidden + column, pack(d));
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    let_next_begin();
    wait_fetched<0>();
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        if (column < hidden) {
            float4 *to =
                reinterpret_cast<float4 *>(partials + (size_t)blockIdx.x * hidden + column);
            const float *d = d_weight[j];
            to[0] = make_float4(d[0], d[1], d[2], d[3]);
            to[1] = make_float4(d[4], d[5], d[6], d[7]);
        }
    }
}

struct sums {
    struct partials of[MAX_PARTIALS];
};

/*
 * A block adds up SUM_COLUMNS columns of one weight, a thread four of them, so that all loads of a
 * gradient are on their way at once: there is too little to read to wait for it twice.
 */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_partials(const __grid_constant__ struct sums sums, uint32_t columns)
{
    __shared__ float shared[SUM_THREADS / LANES][SUM_COLUMNS];
    const struct partials &task = sums.of[blockIdx.y];
    const uint32_t quad = threadIdx.x % (SUM_COLUMNS / 4) * 4, warp = threadIdx.x / LANES;
    const uint32_t column = blockIdx.x * SUM_COLUMNS + quad;
    const uint32_t mine = blockIdx.x * SUM_COLUMNS + threadIdx.x;
    const bool writes = threadIdx.x < SUM_COLUMNS && mine < columns;
    wait_for_last();
    float total = writes ? task.to[mine] : 0; /* not last: it would be waited for alone */
    float4 sum = make_float4(0, 0, 0, 0);
    if (column < columns)
        for (uint32_t p = threadIdx.x / (SUM_COLUMNS / 4); p < task.count; p += SLICES * AHEAD) {
            float4 ahead[AHEAD];
#pragma unroll
            for (uint32_t k = 0; k < AHEAD; k++) {
                const float *from = task.from + (size_t)(p + k * SLICES) * columns + column;
                ahead[k] = p + k * SLICES < task.count ? *reinterpret_cast<const float4 *>(from)
                                                       : make_float4(0, 0, 0, 0);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                sum.x += ahead[k].x, sum.y += ahead[k].y;
                sum.z += ahead[k].z, sum.w += ahead[k].w;
            }
        }
    float four[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        for (int mask = SUM_COLUMNS / 4; mask < LANES; mask *= 2)
            four[i] += __shfl_xor_sync(0xffffffffu, four[i], mask);
        if (threadIdx.x % LANES < SUM_COLUMNS / 4)
            shared[warp][quad + i] = four[i];
    }
    __syncthreads();
    if (!writes)
        return;
    float all = 0;
#pragma unroll
    for (int w = 0; w < SUM_THREADS / LANES; w++)
        all += shared[w][threadIdx.x];
    task.to[mine] = total + all;
}

/* Vectors a thread, and threads a block. */
struct split {
    int v, threads;
};

/* Up to `few` threads, more where `most` vectors of each are too few. */
struct split split_row(size_t hidden, int few, int most)
{
    int vectors = (int)(hidden / VECTOR), v = (vectors + few - 1) / few;
    v = v < most ? v : most;
    int threads = (vectors + v - 1) / v;
    return (struct split){v, (threads + LANES - 1) / LANES * LANES};
}

size_t backward_blocks(size_t tokens)
{
    return tokens < PARTIAL_BLOCKS ? tokens : (size_t)PARTIAL_BLOCKS;
}

int check_hidden(const char *kernel, size_t tokens, size_t hidden, struct erg_error *err)
{
    if (check_width(kernel, tokens, hidden, VECTOR, err))
        return -1;
    if (hidden > MAX_HIDDEN)
        return erg_fail(err, ERG_FAILED, "%s: rows of %zu elements, expected at most %d", kernel,
                        hidden, MAX_HIDDEN);
    return 0;
}

} // namespace

void erg::add_partials(size_t columns, const struct partials *sums, int count,
                       struct CUstream_st *stream)
{
    struct sums all = {};
    for (int i = 0; i < count; i++)
        all.of[i] = sums[i];
    follow(sum_partials, dim3((unsigned)blocks_for(columns, SUM_COLUMNS), (unsigned)count),
           SUM_THREADS, 0, stream, all, (uint32_t)columns);
}

extern "C" int erg_cuda_add(size_t count, const erg_bf16 *a, const erg_bf16 *b, erg_bf16 *out,
                            struct CUstream_st *stream, struct erg_error *err)
{
    if (count == 0)
        return 0;
    if (check_width("residual add", 1, count, VECTOR, err))
        return -1;
    follow(add, (unsigned)blocks_for(count / VECTOR, ADD_THREADS), ADD_THREADS, 0, stream,
           count / VECTOR, a, b, out);
    return erg_cuda_check_launch("residual add", err);
}

extern "C" int erg_cuda_norm_forward(size_t tokens, size_t hidden, float eps,
                                     const erg_bf16 *residual, const erg_bf16 *x,
                                     const erg_bf16 *weight, erg_bf16 *sum, erg_bf16 *out,
                                     float *inv_rms, struct CUstream_st *stream,
                                     struct erg_error *err)
{
    typedef void kernel(uint32_t, uint32_t, float, const erg_bf16 *, const erg_bf16 *,
                        const erg_bf16 *, erg_bf16 *, erg_bf16 *, float *);
    if (check_hidden("RMSNorm", tokens, hidden, err))
        return -1;
    if (tokens == 0)
        return 0;
    const struct split split = split_row(hidden, ONE_VECTOR_THREADS, 2);
    kernel *run = split.v == 1 ? (x ? norm_forward<1, true> : norm_forward<1, false>)
                               : (x ? norm_forward<2, true> : norm_forward<2, false>);
    follow(run, (unsigned)blocks_for(tokens, x ? ROWS / 2 : ROWS), (size_t)split.threads, 0, stream,
           (uint32_t)tokens, (uint32_t)hidden, eps, residual, x, weight, sum, out, inv_rms);
    return erg_cuda_check_launch("RMSNorm", err);
}

extern "C" size_t erg_cuda_norm_backward_scratch(size_t tokens, size_t hidden)
{
    return backward_blocks(tokens) * hidden * sizeof(float);
}

extern "C" int erg_cuda_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                                      const erg_bf16 *weight, const float *inv_rms,
                                      const erg_bf16 *d_out, const erg_bf16 *d_sum, erg_bf16 *d_in,
                                      float *d_weight, void *scratch, struct CUstream_st *stream,
                                      struct erg_error *err)
{
    typedef void kernel(uint32_t, uint32_t, const erg_bf16 *, const erg_bf16 *, const float *,
                        const erg_bf16 *, const erg_bf16 *, erg_bf16 *, float *);
    if (check_hidden("RMSNorm backward", tokens, hidden, err))
        return -1;
    if (tokens == 0)
        return 0;
    static kernel *const kernels[BACK_VECTORS][2] = {
        {norm_backward<1, false>, norm_backward<1, true>},
        {norm_backward<2, false>, norm_backward<2, true>},
        {norm_backward<3, false>, norm_backward<3, true>},
        {norm_backward<4, false>, norm_backward<4, true>},
    };
    const struct split split = split_row(hidden, BACK_THREADS, BACK_VECTORS);
    kernel *run = kernels[split.v - 1][d_sum != NULL];
    const size_t blocks = backward_blocks(tokens);
    size_t ring =
        (size_t)(stages_of(split.v) * (d_sum ? 3 : 2) * split.v * split.threads) * sizeof(vector);
    float *partials = static_cast<float *>(scratch);
    if (erg_cuda_check(
            cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring), err,
            "asking for %zu bytes of shared memory for RMSNorm backward", ring))
        return -1;
    follow(run, (unsigned)blocks, (size_t)split.threads, ring, stream, (uint32_t)tokens,
           (uint32_t)hidden, sum, weight, inv_rms, d_out, d_sum, d_in, partials);
    const struct partials sums = {(uint32_t)blocks, partials, d_weight};
    add_partials(hidden, &sums, 1, stream);
    return erg_cuda_check_launch("RMSNorm backward", err);
}
