#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 128,
    AHEAD = 4, /* vectors a thread loads before it stores the first */
    BACK_THREADS = 256,
    PLACES = 4,     /* of the order, for each block of the backward pass */
    QUAD = 4,       /* elements of a thread there: 16 bytes of the float table */
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

__device__ inline float4 add_quad(float4 sum, uint2 d)
{
    return make_float4(
        sum.x + __uint_as_float(d.x << 16), sum.y + __uint_as_float(d.x & 0xffff0000u),
        sum.z + __uint_as_float(d.y << 16), sum.w + __uint_as_float(d.y & 0xffff0000u));
}

/*
 * Each block has PLACES of the order; where a new id starts, it adds up all the id's tokens, which
 * follow in the order. What is known at once is asked for at once: the tokens and ids of all
 * places, then their gradients and rows of the table. Most ids occur once; the others go on from
 * there. Neighbouring blocks have neighbouring columns, and one thread four of a row.
 */
__global__ void __launch_bounds__(BACK_THREADS)
    embedding_backward(uint32_t tokens, uint32_t hidden, uint32_t blocks_per_row, size_t first,
                       size_t rows, const int32_t *ids, const int32_t *order, const erg_bf16 *d_out,
                       float *d_table)
{
    const uint32_t row_block = blockIdx.x / blocks_per_row, start = row_block * PLACES;
    const uint32_t column =
        ((blockIdx.x - row_block * blocks_per_row) * BACK_THREADS + threadIdx.x) * QUAD;
    if (column >= hidden)
        return;
    int32_t token[PLACES], id[PLACES + 2]; /* with the ids before and after */
    bool starts[PLACES];
    uint2 d[PLACES];
    float4 was[PLACES];
#pragma unroll
    for (int k = 0; k < PLACES + 2; k++) {
        const uint32_t at = start + k - 1; /* wraps before the first */
        const int32_t here = at < tokens ? order[at] : -1;
        id[k] = here < 0 ? -1 : ids[here];
        if (k >= 1 && k <= PLACES)
            token[k - 1] = here;
    }
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        const size_t row = (size_t)id[k + 1] - first; /* wraps to something huge below first */
        starts[k] = token[k] >= 0 && row < rows && (start + k == 0 || id[k + 1] != id[k]);
        if (starts[k]) {
            d[k] = *reinterpret_cast<const uint2 *>(d_out + (size_t)token[k] * hidden + column);
            was[k] = *reinterpret_cast<const float4 *>(d_table + row * hidden + column);
        }
    }
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        if (!starts[k])
            continue;
        float4 sum = add_quad(make_float4(0, 0, 0, 0), d[k]);
        bool more = id[k + 2] == id[k + 1];
        for (uint32_t at = start + k + 1; more; at += ROWS_AHEAD) {
            uint2 ahead[ROWS_AHEAD];
#pragma unroll
            for (int j = 0; j < ROWS_AHEAD; j++) {
                const int32_t next = at + j < tokens ? order[at + j] : -1;
                more = next >= 0 && ids[next] == id[k + 1];
                ahead[j] =
                    more ? *reinterpret_cast<const uint2 *>(d_out + (size_t)next * hidden + column)
                         : make_uint2(0, 0);
            }
#pragma unroll
            for (int j = 0; j < ROWS_AHEAD; j++)
                sum = add_quad(sum, ahead[j]);
        }
        float *to = d_table + ((size_t)id[k + 1] - first) * hidden + column;
        *reinterpret_cast<float4 *>(to) =
            make_float4(was[k].x + sum.x, was[k].y + sum.y, was[k].z + sum.z, was[k].w + sum.w);
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
    const size_t per_row = blocks_for(hidden / QUAD, BACK_THREADS);
    const size_t blocks = blocks_for(tokens, PLACES) * per_row;
    if (blocks)
        embedding_backward<<<(unsigned)blocks, BACK_THREADS, 0, stream>>>(
            (uint32_t)tokens, (uint32_t)hidden, (uint32_t)per_row, first, rows, ids, order, d_out,
            d_table);
    return erg_cuda_check_launch("embedding backward", err);
}
