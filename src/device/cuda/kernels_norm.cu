/*
 * Residual add and a norm, RMSNorm or LayerNorm. A block holds whole rows, a thread V vectors of
 * each, so that every tensor is read once; several rows at a time keep enough loads in flight to
 * saturate the memory.
 */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    ROWS = 4, /* of one block, forward; half as many if two tensors are read */
    MAX_THREADS = 1024,
    ONE_VECTOR_THREADS = 512, /* forward; longer rows: two vectors a thread */
    MAX_HIDDEN = MAX_THREADS * 2 * VECTOR,
    /* Backward: few threads with several vectors each wait less for each other in every row. */
    BACK_THREADS = 128,
    BACK_VECTORS = 4, /* per thread at most; longer rows get more threads */
    MAX_BACK_THREADS = MAX_HIDDEN / VECTOR / BACK_VECTORS,
    LONG_ROW = 2048, /* elements: two blocks per SM saturate the memory with rows in flight */
    SUM_THREADS = 1024,
    SUM_COLUMNS = 8, /* a sector of each partial sum: more blocks read all sooner */
    SLICES = SUM_THREADS / (SUM_COLUMNS / 4), /* of the partial sums, summed in parallel */
    AHEAD = 4, /* partial sums that a thread reads at a time, 2048 blocks in all */
};

/* The addend before a norm: none, x, or x with a bias. */
enum added { NOTHING, X, BIASED_X };

/* The tensors of a norm, forward; `bias` is LayerNorm's. */
struct norm_tensors {
    const erg_bf16 *residual, *x, *x_bias, *weight, *bias;
    erg_bf16 *sum, *out;
    float *stats; /* per row: 1 / rms; LayerNorm: mean, 1 / deviation */
};

template <int V, enum added ADDED, bool LAYER>
__global__ void __launch_bounds__(MAX_THREADS)
    norm_forward(uint32_t tokens, uint32_t hidden, float eps, const struct norm_tensors f)
{
    constexpr bool ADD = ADDED != NOTHING;
    constexpr int ROWS_HERE = ADD ? ROWS / 2 : ROWS;
    __shared__ float shared[LAYER ? 2 : 1][ROWS_HERE][LANES];
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
            rows[r][j] = inside ? load(f.residual + at) : make_uint4(0, 0, 0, 0);
            if (ADD)
                others[r][j] = inside ? load(f.x + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        weights[j] = column < hidden ? load(f.weight + column) : make_uint4(0, 0, 0, 0);
    }
    float squares[ROWS_HERE] = {}, means[ROWS_HERE] = {}; /* RMSNorm: 0 */
    float row[VECTOR], other[VECTOR], bias[VECTOR];
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        if (ADDED == BIASED_X)
            unpack(bias, column < hidden ? load(f.x_bias + column) : make_uint4(0, 0, 0, 0));
#pragma unroll
        for (int r = 0; r < ROWS_HERE; r++) {
            unpack(row, rows[r][j]);
            if (ADD) {
                unpack(other, others[r][j]);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) {
                    row[i] += other[i];
                    if (ADDED == BIASED_X)
                        row[i] += bias[i];
                }
                rows[r][j] = pack(row);
                unpack(row, rows[r][j]);
                if (column < hidden && first + r < tokens)
                    store(f.sum + (size_t)(first + r) * hidden + column, rows[r][j]);
            }
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                if (LAYER)
                    means[r] += row[i];
                else
                    squares[r] += row[i] * row[i];
        }
    }
    if constexpr (LAYER) { /* subtract the mean first: squares of the rest lose no digits */
        sum_over_block(means, shared[1]);
#pragma unroll
        for (int r = 0; r < ROWS_HERE; r++) {
            means[r] /= hidden;
#pragma unroll
            for (int j = 0; j < V; j++) {
                uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
                unpack(row, rows[r][j]);
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    if (column < hidden)
                        squares[r] += (row[i] - means[r]) * (row[i] - means[r]);
            }
        }
    }
    sum_over_block(squares, shared[0]);
#pragma unroll
    for (int r = 0; r < ROWS_HERE; r++) {
        if (first + r >= tokens)
            return;
        float scale = rsqrtf(squares[r] / hidden + eps);
        if (threadIdx.x == 0) {
            if (LAYER)
                f.stats[2 * (first + r)] = means[r];
            f.stats[LAYER ? 2 * (first + r) + 1 : first + r] = scale;
        }
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            if (column >= hidden)
                continue;
            unpack(row, rows[r][j]);
            unpack(other, weights[j]);
            if (LAYER)
                unpack(bias, load(f.bias + column));
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                row[i] = LAYER ? (row[i] - means[r]) * scale * other[i] + bias[i]
                               : row[i] * (scale * other[i]);
            store(f.out + (size_t)(first + r) * hidden + column, pack(row));
        }
    }
}

/* Rows in flight or in work: shared memory holds two of the longest. */
__host__ __device__ constexpr int stages_of(int v)
{
    return v == BACK_VECTORS ? 2 : 3;
}

/*
 * Blocks take rows in turn, so that all work in one region of memory at a time. The next STAGES - 1
 * rows of a block are in flight to shared memory, since registers are needed for the weight's
 * gradient; a thread reads only data that it has fetched itself.
 */
template <int V, bool ADD, bool LAYER>
__global__ void __launch_bounds__(V == BACK_VECTORS ? MAX_BACK_THREADS : BACK_THREADS)
    norm_backward(uint32_t tokens, uint32_t hidden, const erg_bf16 *sum, const erg_bf16 *weight,
                  const float *stats, const erg_bf16 *d_out, const erg_bf16 *d_sum, erg_bf16 *d_in,
                  float *partials)
{
    constexpr int STAGES = stages_of(V), TENSORS = ADD ? 3 : 2, SUMS = LAYER ? 2 : 1;
    extern __shared__ vector ring[];         /* [STAGES][TENSORS][V][threads] */
    __shared__ float shared[2][SUMS][LANES]; /* alternating: one barrier per row is enough */
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
    float d_weight[V][VECTOR] = {}, d_bias[LAYER ? V : 1][VECTOR] = {};
    float scales[STAGES], means[STAGES]; /* of this row and those in flight */
    vector weights[V];
    auto read_stats = [&](uint32_t row, int k) {
        scales[k] = means[k] = 0;
        if (row < tokens) {
            scales[k] = stats[LAYER ? 2 * row + 1 : row];
            means[k] = LAYER ? stats[2 * row] : 0;
        }
    };
    wait_for_last();
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) {
        uint32_t row = blockIdx.x + k * gridDim.x;
        fetch_row(row, k);
        read_stats(row, k);
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        weights[j] = column < hidden ? load(weight + column) : make_uint4(0, 0, 0, 0);
    }
    int stage = 0, turn = 0;
#pragma unroll 1
    for (uint32_t row = blockIdx.x; row < tokens; row += gridDim.x, turn ^= 1) {
        const float scale = scales[0], mean = means[0];
        float n[VECTOR], d[VECTOR], w[VECTOR];
        float dots[SUMS] = {}; /* sums of d_out weight n, and of d_out weight */
        fetch_row(row + (STAGES - 1) * gridDim.x, stage == 0 ? STAGES - 1 : stage - 1);
        read_stats(row + (STAGES - 1) * gridDim.x, STAGES - 1);
        wait_fetched<STAGES - 1>();
#pragma unroll
        for (int k = 0; k < STAGES - 1; k++)
            scales[k] = scales[k + 1], means[k] = means[k + 1];
#pragma unroll
        for (int j = 0; j < V; j++) {
            unpack(n, *slot(stage, 0, j));
            unpack(d, *slot(stage, 1, j));
            unpack(w, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                float part = d[i] * (LAYER ? n[i] - mean : n[i]) * scale;
                d_weight[j][i] += part;
                dots[0] += part * w[i];
                if constexpr (LAYER) {
                    d_bias[j][i] += d[i];
                    dots[SUMS - 1] += d[i] * w[i];
                }
            }
        }
        sum_over_block(dots, shared[turn]);
        const float mean_dot = dots[0] / hidden * scale;
        const float mean_d = LAYER ? dots[SUMS - 1] / hidden : 0;
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            unpack(n, *slot(stage, 0, j));
            unpack(d, *slot(stage, 1, j));
            unpack(w, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                d[i] = LAYER ? scale * (d[i] * w[i] - mean_d - (n[i] - mean) * mean_dot)
                             : scale * (d[i] * w[i] - n[i] * mean_dot);
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
        if (column >= hidden)
            continue;
        float *to = partials + (size_t)blockIdx.x * hidden + column;
        store_floats(to, d_weight[j]);
        if constexpr (LAYER)
            store_floats(to + (size_t)gridDim.x * hidden, d_bias[j]);
    }
}

struct sums {
    struct partials of[MAX_PARTIALS];
};

/*
 * A block sums SUM_COLUMNS columns of one weight, a thread four of them, so that all loads of a
 * gradient are in flight at once: with so little data, a second wait would dominate.
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
    float total = writes ? task.to[mine] : 0; /* first: at the end it would cost a separate wait */
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

/* Vectors per thread, and threads per block. */
struct split {
    int v, threads;
};

/* Up to `few` threads; more if `most` vectors per thread are not enough. */
struct split split_row(size_t hidden, int few, int most)
{
    int vectors = (int)(hidden / VECTOR), v = (vectors + few - 1) / few;
    v = v < most ? v : most;
    int threads = (vectors + v - 1) / v;
    return (struct split){v, (threads + LANES - 1) / LANES * LANES};
}

/* Short rows need more blocks for the same number of bytes in flight. */
size_t backward_blocks(size_t tokens, size_t hidden)
{
    const size_t most = PARTIAL_BLOCKS * (hidden < LONG_ROW ? blocks_for(LONG_ROW, hidden) : 1);
    return tokens < most ? tokens : most;
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

template <bool LAYER>
int run_forward(const char *kernel, size_t tokens, size_t hidden, float eps,
                const struct norm_tensors &f, struct CUstream_st *stream, struct erg_error *err)
{
    if (check_hidden(kernel, tokens, hidden, err))
        return -1;
    if (tokens == 0)
        return 0;
    static void (*const kernels[2][3])(uint32_t, uint32_t, float, struct norm_tensors) = {
        {norm_forward<1, NOTHING, LAYER>, norm_forward<1, X, LAYER>,
         norm_forward<1, BIASED_X, LAYER>},
        {norm_forward<2, NOTHING, LAYER>, norm_forward<2, X, LAYER>,
         norm_forward<2, BIASED_X, LAYER>},
    };
    const struct split split = split_row(hidden, ONE_VECTOR_THREADS, 2);
    const enum added added = !f.x ? NOTHING : f.x_bias ? BIASED_X : X;
    follow(kernels[split.v - 1][added], (unsigned)blocks_for(tokens, f.x ? ROWS / 2 : ROWS),
           (size_t)split.threads, 0, stream, (uint32_t)tokens, (uint32_t)hidden, eps, f);
    return erg_cuda_check_launch(kernel, err);
}

/* The tensors of a norm, backward; d_bias is LayerNorm's. */
struct norm_gradients {
    const erg_bf16 *sum, *weight;
    const float *stats;
    const erg_bf16 *d_out, *d_sum;
    erg_bf16 *d_in;
    float *d_weight, *d_bias, *partials;
};

template <bool LAYER>
int run_backward(const char *kernel, size_t tokens, size_t hidden, const struct norm_gradients &b,
                 struct CUstream_st *stream, struct erg_error *err)
{
    typedef void function(uint32_t, uint32_t, const erg_bf16 *, const erg_bf16 *, const float *,
                          const erg_bf16 *, const erg_bf16 *, erg_bf16 *, float *);
    if (check_hidden(kernel, tokens, hidden, err))
        return -1;
    if (tokens == 0)
        return 0;
    static function *const kernels[BACK_VECTORS][2] = {
        {norm_backward<1, false, LAYER>, norm_backward<1, true, LAYER>},
        {norm_backward<2, false, LAYER>, norm_backward<2, true, LAYER>},
        {norm_backward<3, false, LAYER>, norm_backward<3, true, LAYER>},
        {norm_backward<4, false, LAYER>, norm_backward<4, true, LAYER>},
    };
    const struct split split = split_row(hidden, BACK_THREADS, BACK_VECTORS);
    function *run = kernels[split.v - 1][b.d_sum != NULL];
    const size_t blocks = backward_blocks(tokens, hidden);
    const size_t ring =
        (size_t)(stages_of(split.v) * (b.d_sum ? 3 : 2) * split.v * split.threads) * sizeof(vector);
    if (erg_cuda_check(
            cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring), err,
            "requesting %zu bytes of shared memory for %s", ring, kernel))
        return -1;
    follow(run, (unsigned)blocks, (size_t)split.threads, ring, stream, (uint32_t)tokens,
           (uint32_t)hidden, b.sum, b.weight, b.stats, b.d_out, b.d_sum, b.d_in, b.partials);
    const struct partials sums[] = {{(uint32_t)blocks, b.partials, b.d_weight},
                                    {(uint32_t)blocks, b.partials + blocks * hidden, b.d_bias}};
    add_partials(hidden, sums, LAYER ? 2 : 1, stream);
    return erg_cuda_check_launch(kernel, err);
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

extern "C" int erg_cuda_norm_forward(size_t tokens, size_t hidden, float eps,
                                     const erg_bf16 *residual, const erg_bf16 *x,
                                     const erg_bf16 *x_bias, const erg_bf16 *weight, erg_bf16 *sum,
                                     erg_bf16 *out, float *inv_rms, struct CUstream_st *stream,
                                     struct erg_error *err)
{
    const struct norm_tensors f = {residual, x, x_bias, weight, NULL, sum, out, inv_rms};
    return run_forward<false>("RMSNorm", tokens, hidden, eps, f, stream, err);
}

extern "C" int erg_cuda_layer_norm_forward(size_t tokens, size_t hidden, float eps,
                                           const erg_bf16 *residual, const erg_bf16 *x,
                                           const erg_bf16 *x_bias, const erg_bf16 *weight,
                                           const erg_bf16 *bias, erg_bf16 *sum, erg_bf16 *out,
                                           float *stats, struct CUstream_st *stream,
                                           struct erg_error *err)
{
    const struct norm_tensors f = {residual, x, x_bias, weight, bias, sum, out, stats};
    return run_forward<true>("LayerNorm", tokens, hidden, eps, f, stream, err);
}

extern "C" size_t erg_cuda_norm_backward_scratch(size_t tokens, size_t hidden)
{
    return backward_blocks(tokens, hidden) * hidden * sizeof(float);
}

extern "C" int erg_cuda_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                                      const erg_bf16 *weight, const float *inv_rms,
                                      const erg_bf16 *d_out, const erg_bf16 *d_sum, erg_bf16 *d_in,
                                      float *d_weight, void *scratch, struct CUstream_st *stream,
                                      struct erg_error *err)
{
    const struct norm_gradients b = {
        sum, weight, inv_rms, d_out, d_sum, d_in, d_weight, NULL, static_cast<float *>(scratch)};
    return run_backward<false>("RMSNorm backward", tokens, hidden, b, stream, err);
}

extern "C" size_t erg_cuda_layer_norm_backward_scratch(size_t tokens, size_t hidden)
{
    return 2 * erg_cuda_norm_backward_scratch(tokens, hidden);
}

extern "C" int erg_cuda_layer_norm_backward(size_t tokens, size_t hidden, const erg_bf16 *sum,
                                            const erg_bf16 *weight, const float *stats,
                                            const erg_bf16 *d_out, const erg_bf16 *d_sum,
                                            erg_bf16 *d_in, float *d_weight, float *d_bias,
                                            void *scratch, struct CUstream_st *stream,
                                            struct erg_error *err)
{
    const struct norm_gradients b = {
        sum, weight, stats, d_out, d_sum, d_in, d_weight, d_bias, static_cast<float *>(scratch)};
    return run_backward<true>("LayerNorm backward", tokens, hidden, b, stream, err);
}
