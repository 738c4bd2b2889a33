#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 128,
    AHEAD = 4,      /* vectors a thread loads before it stores the first */
    ROWS_AHEAD = 8, /* rows of equal tokens loaded at a time */
};

__global__ void __launch_bounds__(THREADS)
    embedding_forward(uint32_t hidden, size_t first, size_t rows, const int32_t *ids,
                      const erg_bf16 *table, erg_bf16 *out)
{
    const size_t row = (size_t)ids[blockIdx.x] - first; /* wraps to something huge below first */
    const erg_bf16 *from = table + row * hidden;
    erg_bf16 *to = out + (size_t)blockIdx.x * hidden;
    for (uint32_t column = threadIdx.x * VECTOR; column < hidden;
         column += THREADS * VECTOR * AHEAD) {
        vector ahead[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            uint32_t at = column + k * THREADS * VECTOR;
            ahead[k] = row < rows && at < hidden ? load(from + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            uint32_t at = column + k * THREADS * VECTOR;
            if (at < hidden)
                store(to + at, ahead[k]);
        }
    }
}

/*
 * A block for each place in the order; those where a new id starts add up all its tokens, which
 * follow in the order. One thread has one vector of the row.
 */
__global__ void __launch_bounds__(THREADS)
    embedding_backward(uint32_t tokens, uint32_t hidden, size_t first, size_t rows,
                       const int32_t *ids, const int32_t *order, const erg_bf16 *d_out,
                       float *d_table)
{
    const uint32_t start = blockIdx.x, column = (blockIdx.y * THREADS + threadIdx.x) * VECTOR;
    const int32_t id = ids[order[start]];
    const size_t row = (size_t)id - first;
    if (row >= rows || column >= hidden || (start > 0 && ids[order[start - 1]] == id))
        return;
    float sum[VECTOR] = {}, d[VECTOR];
    bool more = true;
    for (uint32_t at = start; more; at += ROWS_AHEAD) {
        vector ahead[ROWS_AHEAD];
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++) {
            int32_t token = at + k < tokens ? order[at + k] : -1;
            more = token >= 0 && ids[token] == id;
            ahead[k] =
                more ? load(d_out + (size_t)token * hidden + column) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++) {
            unpack(d, ahead[k]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                sum[i] += d[i];
        }
    }
    float4 *to = reinterpret_cast<float4 *>(d_table + row * hidden + column);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float4 was = to[half];
        const float *part = sum + 4 * half;
        to[half] = make_float4(was.x + part[0], was.y + part[1], was.z + part[2], was.w + part[3]);
    }
}

} // namespace

extern "C" int erg_cuda_embedding_forward(size_t tokens, size_t hidden, size_t first, size_t rows,
                                          const int32_t *ids, const erg_bf16 *table, erg_bf16 *out,
                                          struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("embedding", tokens, hidden, VECTOR, err))
        return -1;
    if (tokens)
        embedding_forward<<<(unsigned)tokens, THREADS, 0, stream>>>((uint32_t)hidden, first, rows,
                                                                    ids, table, out);
    return erg_cuda_check_launch("embedding", err);
}

extern "C" int erg_cuda_embedding_backward(size_t tokens, size_t hidden, size_t first, size_t rows,
                                           const int32_t *ids, const int32_t *order,
                                           const erg_bf16 *d_out, float *d_table,
                                           struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("embedding backward", tokens, hidden, VECTOR, err))
        return -1;
    dim3 blocks((unsigned)tokens, (unsigned)blocks_for(hidden / VECTOR, THREADS));
    if (tokens)
        embedding_backward<<<blocks, THREADS, 0, stream>>>((uint32_t)tokens, (uint32_t)hidden,
                                                           first, rows, ids, order, d_out, d_table);
    return erg_cuda_check_launch("embedding backward", err);
}
