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
    ONE_VECTOR_THREADS = 512, /* longer rows: two vectors a thread */
    MAX_HIDDEN = MAX_THREADS * 2 * VECTOR,
    MAX_STAGES = 4, /* rows on their way, backward: fewer with longer rows */
    /* Rows of one partial sum of the weight's gradient. Few make many partial sums to write and
     * read again; many make few blocks, of which the last leave SMs idle. */
    CHUNK = 16,
    SLICES = 32, /* of the partial sums, summed side by side */
};

__global__ void __launch_bounds__(ADD_THREADS)
    add(size_t vectors, const erg_bf16 *a, const erg_bf16 *b, erg_bf16 *out)
{
    size_t i = (size_t)blockIdx.x * ADD_THREADS + threadIdx.x;
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

/* Starts copying a vector into shared memory, zeros if not `inside`; part of the next commit(). */
__device__ inline void fetch(vector *shared, const erg_bf16 *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ inline void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the latest `pending` commits have arrived, for the thread that asked for them. */
template <int pending> __device__ inline void wait_fetched()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/*
 * A block goes through CHUNK rows. The next STAGES - 1 rows are on their way into shared memory, as
 * registers are needed for the weight's gradient; a thread reads only what it fetched itself.
 */
template <int V, bool ADD>
__global__ void __launch_bounds__(MAX_THREADS)
    norm_backward(uint32_t tokens, uint32_t hidden, const erg_bf16 *sum, const erg_bf16 *weight,
                  const float *inv_rms, const erg_bf16 *d_out, const erg_bf16 *d_sum,
                  erg_bf16 *d_in, float *partials)
{
    constexpr int STAGES = MAX_STAGES / V, TENSORS = ADD ? 3 : 2;
    extern __shared__ vector ring[];      /* [STAGES][TENSORS][V][threads] */
    __shared__ float shared[2][1][LANES]; /* in turns, so that one barrier a row is enough */
    const uint32_t first = blockIdx.x * CHUNK;
    const erg_bf16 *const tensors[3] = {sum, d_out, d_sum};
    auto slot = [&](int row, int tensor, int j) {
        return ring + ((row % STAGES * TENSORS + tensor) * V + j) * blockDim.x + threadIdx.x;
    };
    auto fetch_row = [&](int row) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            bool inside = row < CHUNK && first + row < tokens && column < hidden;
            size_t at = inside ? (size_t)(first + row) * hidden + column : 0;
#pragma unroll
            for (int tensor = 0; tensor < TENSORS; tensor++)
                fetch(slot(row, tensor, j), tensors[tensor] + at, inside);
        }
        commit();
    };
    float d_weight[V][VECTOR] = {};
    vector weights[V];
    for (int row = 0; row < STAGES - 1; row++)
        fetch_row(row);
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
        weights[j] = column < hidden ? load(weight + column) : make_uint4(0, 0, 0, 0);
    }
    for (int row = 0; row < CHUNK && first + row < tokens; row++) {
        float scale = inv_rms[first + row], dot[1] = {0};
        float n[VECTOR], d[VECTOR], w[VECTOR];
        fetch_row(row + STAGES - 1);
        wait_fetched<STAGES - 1>();
#pragma unroll
        for (int j = 0; j < V; j++) {
            unpack(n, *slot(row, 0, j));
            unpack(d, *slot(row, 1, j));
            unpack(w, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                float part = d[i] * n[i] * scale;
                d_weight[j][i] += part;
                dot[0] += part * w[i];
            }
        }
        sum_over_block(dot, shared[row % 2]);
        float mean = dot[0] / hidden * scale;
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t column = (threadIdx.x + j * blockDim.x) * VECTOR;
            unpack(n, *slot(row, 0, j));
            unpack(d, *slot(row, 1, j));
            unpack(w, weights[j]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                d[i] = scale * (d[i] * w[i] - n[i] * mean);
            if (ADD) {
                unpack(w, *slot(row, 2, j));
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    d[i] += w[i];
            }
            if (column < hidden)
                store(d_in + (size_t)(first + row) * hidden + column, pack(d));
        }
    }
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

__global__ void __launch_bounds__(LANES *SLICES)
    sum_partials(uint32_t count, size_t stride, uint32_t columns, const float *partials, float *to)
{
    __shared__ float slices[SLICES][LANES];
    uint32_t column = blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
    if (column < columns)
#pragma unroll 8
        for (uint32_t p = threadIdx.y; p < count; p += SLICES)
            sum += partials[p * stride + column];
    slices[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns)
        return;
    sum = 0;
    for (int i = 0; i < SLICES; i++)
        sum += slices[i][threadIdx.x];
    to[column] += sum;
}

/* Vectors a thread, and threads a block. */
struct split {
    int v, threads;
};

struct split split_row(size_t hidden)
{
    int vectors = (int)(hidden / VECTOR), v = vectors > ONE_VECTOR_THREADS ? 2 : 1;
    int threads = (vectors + v - 1) / v;
    return (struct split){v, (threads + LANES - 1) / LANES * LANES};
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

void erg::add_partials(size_t count, size_t stride, size_t columns, const float *partials,
                       float *to, struct CUstream_st *stream)
{
    sum_partials<<<(unsigned)blocks_for(columns, LANES), dim3(LANES, SLICES), 0, stream>>>(
        (uint32_t)count, stride, (uint32_t)columns, partials, to);
}

extern "C" int erg_cuda_add(size_t count, const erg_bf16 *a, const erg_bf16 *b, erg_bf16 *out,
                            struct CUstream_st *stream, struct erg_error *err)
{
    if (count == 0)
        return 0;
    if (check_width("residual add", 1, count, VECTOR, err))
        return -1;
    add<<<(unsigned)blocks_for(count / VECTOR, ADD_THREADS), ADD_THREADS, 0, stream>>>(
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
    struct split split = split_row(hidden);
    kernel *run = split.v == 1 ? (x ? norm_forward<1, true> : norm_forward<1, false>)
                               : (x ? norm_forward<2, true> : norm_forward<2, false>);
    run<<<(unsigned)blocks_for(tokens, x ? ROWS / 2 : ROWS), split.threads, 0, stream>>>(
        (uint32_t)tokens, (uint32_t)hidden, eps, residual, x, weight, sum, out, inv_rms);
    return erg_cuda_check_launch("RMSNorm", err);
}

extern "C" size_t erg_cuda_norm_backward_scratch(size_t tokens, size_t hidden)
{
    return blocks_for(tokens, CHUNK) * hidden * sizeof(float);
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
    struct split split = split_row(hidden);
    kernel *run = split.v == 1 ? (d_sum ? norm_backward<1, true> : norm_backward<1, false>)
                               : (d_sum ? norm_backward<2, true> : norm_backward<2, false>);
    size_t blocks = blocks_for(tokens, CHUNK);
    size_t ring = MAX_STAGES * (d_sum ? 3 : 2) * split.threads * sizeof(vector);
    float *partials = static_cast<float *>(scratch);
    if (erg_cuda_check(
            cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring), err,
            "asking for %zu bytes of shared memory for RMSNorm backward", ring))
        return -1;
    run<<<(unsigned)blocks, split.threads, ring, stream>>>(
        (uint32_t)tokens, (uint32_t)hidden, sum, weight, inv_rms, d_out, d_sum, d_in, partials);
    add_partials(blocks, hidden, hidden, partials, d_weight, stream);
    return erg_cuda_check_launch("RMSNorm backward", err);
}
