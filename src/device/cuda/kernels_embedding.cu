/* Kernels of the embedding: row lookup, learned positions, and the sums of their gradients. */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 128,
    AHEAD = 4, /* vectors a thread loads before it stores the first */
    BACK_THREADS = 128,
    PLACES = 3,     /* positions in the order, for each block of the backward pass */
    QUAD = 4,       /* elements of a thread there: 16 bytes of the float table */
    ROWS_AHEAD = 8, /* rows of equal tokens loaded at a time; of equal positions */
    POSITION_THREADS = 256,
};

__global__ void __launch_bounds__(THREADS)
    embedding_forward(uint32_t hidden, size_t first, size_t rows, const int32_t *ids,
                      const erg_bf16 *table, erg_bf16 *out)
{
    wait_for_last();
    const size_t row = (size_t)ids[blockIdx.x] - first; /* a smaller id wraps to a huge number */
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

__device__ inline uint2 load_quad(const erg_bf16 *rows, int32_t row, uint32_t width,
                                  uint32_t column)
{
    return *reinterpret_cast<const uint2 *>(rows + (size_t)row * width + column);
}

__device__ inline float4 add_quad(float4 sum, uint2 d)
{
    return make_float4(
        sum.x + __uint_as_float(d.x << 16), sum.y + __uint_as_float(d.x & 0xffff0000u),
        sum.z + __uint_as_float(d.y << 16), sum.w + __uint_as_float(d.y & 0xffff0000u));
}

/*
 * `sum` plus the gradients from place `at` on while the id is the same. Runs of frequent tokens are
 * hundreds of places long: the next tokens are loaded while the gradients of these are in flight,
 * and gradients before it is known whether they belong to the run.
 */
__device__ float4 add_run(float4 sum, uint32_t at, int32_t id, uint32_t tokens, uint32_t hidden,
                          uint32_t column, const int32_t *ids, const int32_t *order,
                          const erg_bf16 *d_out)
{
    int32_t next[ROWS_AHEAD];
#pragma unroll
    for (uint32_t j = 0; j < ROWS_AHEAD; j++)
        next[j] = at + j < tokens ? order[at + j] : -1;
    for (;;) {
        uint2 d[ROWS_AHEAD];
        bool same[ROWS_AHEAD];
        at += ROWS_AHEAD;
#pragma unroll
        for (uint32_t j = 0; j < ROWS_AHEAD; j++) {
            d[j] = next[j] >= 0 ? load_quad(d_out, next[j], hidden, column) : make_uint2(0, 0);
            same[j] = next[j] >= 0 && ids[next[j]] == id;
            next[j] = at + j < tokens ? order[at + j] : -1;
        }
#pragma unroll
        for (int j = 0; j < ROWS_AHEAD; j++)
            sum = add_quad(sum, same[j] ? d[j] : make_uint2(0, 0));
        if (!same[ROWS_AHEAD - 1])
            return sum;
    }
}

/*
 * Each block has PLACES positions of the order. Where a new id starts, it sums all tokens of the
 * id, which follow in the order. Independent loads are issued together: the tokens and ids of all
 * places and their neighbours, then the gradients and rows of the table. This includes one place
 * beyond, as most ids occur once or twice. Neighbouring blocks have neighbouring columns, and one
 * thread four of a row.
 */
__global__ void __launch_bounds__(BACK_THREADS)
    embedding_backward(uint32_t tokens, uint32_t hidden, uint32_t blocks_per_row, size_t first,
                       size_t rows, const int32_t *ids, const int32_t *order, const erg_bf16 *d_out,
                       float *d_table)
{
    const uint32_t row_block = blockIdx.x / blocks_per_row, start = row_block * PLACES;
    const uint32_t column =
        ((blockIdx.x - row_block * blocks_per_row) * BACK_THREADS + threadIdx.x) * QUAD;
    wait_for_last();
    if (column >= hidden)
        return;
    int32_t token[PLACES + 3], id[PLACES + 3]; /* from one place before to two after */
    bool starts[PLACES + 1], mine[PLACES + 1];
    uint2 d[PLACES + 1];
    float4 was[PLACES], base, sum;
#pragma unroll
    for (uint32_t k = 0; k < PLACES + 3; k++) {
        const uint32_t at = start + k - 1; /* wraps for the place before the first */
        token[k] = at < tokens ? order[at] : -1;
    }
#pragma unroll
    for (int k = 0; k < PLACES + 3; k++)
        id[k] = token[k] < 0 ? -1 : ids[token[k]];
#pragma unroll
    for (int k = 0; k <= PLACES; k++) {
        const size_t row = (size_t)id[k + 1] - first; /* a smaller id wraps to a huge number */
        const bool same = token[k] >= 0 && id[k + 1] == id[k];
        starts[k] = k < PLACES && token[k + 1] >= 0 && row < rows && !same;
        mine[k] = starts[k] || (k > 0 && mine[k - 1] && same);
        if (mine[k])
            d[k] = load_quad(d_out, token[k + 1], hidden, column);
        if (starts[k])
            was[k] = *reinterpret_cast<const float4 *>(d_table + row * hidden + column);
    }
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        if (!mine[k])
            continue;
        if (starts[k]) {
            base = was[k];
            sum = make_float4(0, 0, 0, 0);
        }
        sum = add_quad(sum, d[k]);
        if (mine[k + 1] && !starts[k + 1]) {
            if (k + 1 < PLACES)
                continue;
            sum = add_quad(sum, d[PLACES]);
            if (id[PLACES + 2] == id[PLACES + 1])
                sum = add_run(sum, start + PLACES + 1, id[PLACES + 1], tokens, hidden, column, ids,
                              order, d_out);
        }
        float *to = d_table + ((size_t)id[k + 1] - first) * hidden + column;
        *reinterpret_cast<float4 *>(to) =
            make_float4(base.x + sum.x, base.y + sum.y, base.z + sum.z, base.w + sum.w);
    }
}

__global__ void __launch_bounds__(POSITION_THREADS)
    position_forward(size_t vectors, uint32_t row_vectors, uint32_t sequence,
                     const int32_t *positions, const erg_bf16 *table, erg_bf16 *x)
{
    const size_t i = (size_t)blockIdx.x * POSITION_THREADS + threadIdx.x;
    const uint32_t token = (uint32_t)i / row_vectors, place = token % sequence;
    wait_for_last();
    if (i >= vectors)
        return;
    const size_t column = (uint32_t)i - token * row_vectors;
    const size_t row = positions ? (size_t)positions[place] : place;
    vector xs = load(x + i * VECTOR), ps = load(table + (row * row_vectors + column) * VECTOR);
    float sum[VECTOR], other[VECTOR];
    unpack(sum, xs);
    unpack(other, ps);
#pragma unroll
    for (int k = 0; k < VECTOR; k++)
        sum[k] += other[k];
    store(x + i * VECTOR, pack(sum));
}

/* A thread has four elements of one place, in all sequences. */
__global__ void __launch_bounds__(POSITION_THREADS)
    position_backward(uint32_t tokens, uint32_t sequence, uint32_t hidden, const int32_t *positions,
                      const erg_bf16 *d_out, float *d_table)
{
    const size_t i = (size_t)blockIdx.x * POSITION_THREADS + threadIdx.x;
    const uint32_t row_quads = hidden / QUAD, place = (uint32_t)(i / row_quads);
    const uint32_t column = (uint32_t)(i - (size_t)place * row_quads) * QUAD;
    wait_for_last();
    if (place >= min(sequence, tokens))
        return;
    const size_t row = positions ? (size_t)positions[place] : place;
    float4 *to = reinterpret_cast<float4 *>(d_table + row * hidden + column);
    const float4 base = *to;
    float4 sum = make_float4(0, 0, 0, 0);
    for (size_t token = place; token < tokens; token += (size_t)sequence * ROWS_AHEAD) {
        uint2 d[ROWS_AHEAD];
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++) {
            const size_t at = token + (size_t)k * sequence;
            d[k] = at < tokens ? load_quad(d_out, (int32_t)at, hidden, column) : make_uint2(0, 0);
        }
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++)
            sum = add_quad(sum, d[k]);
    }
    *to = make_float4(base.x + sum.x, base.y + sum.y, base.z + sum.z, base.w + sum.w);
}

} // namespace

extern "C" int erg_cuda_embedding_forward(size_t tokens, size_t hidden, size_t first, size_t rows,
                                          const int32_t *ids, const erg_bf16 *table, erg_bf16 *out,
                                          struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("embedding", tokens, hidden, VECTOR, err))
        return -1;
    if (tokens)
        follow(embedding_forward, (unsigned)tokens, THREADS, 0, stream, (uint32_t)hidden, first,
               rows, ids, table, out);
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
        follow(embedding_backward, (unsigned)blocks, BACK_THREADS, 0, stream, (uint32_t)tokens,
               (uint32_t)hidden, (uint32_t)per_row, first, rows, ids, order, d_out, d_table);
    return erg_cuda_check_launch("embedding backward", err);
}

extern "C" int erg_cuda_position_forward(size_t tokens, size_t sequence, size_t hidden,
                                         const int32_t *positions, const erg_bf16 *table,
                                         erg_bf16 *x, struct CUstream_st *stream,
                                         struct erg_error *err)
{
    if (check_width("learned positions", tokens, hidden, VECTOR, err))
        return -1;
    const size_t row_vectors = hidden / VECTOR, vectors = tokens * row_vectors;
    if (vectors)
        follow(position_forward, (unsigned)blocks_for(vectors, POSITION_THREADS), POSITION_THREADS,
               0, stream, vectors, (uint32_t)row_vectors, (uint32_t)sequence, positions, table, x);
    return erg_cuda_check_launch("learned positions", err);
}

extern "C" int erg_cuda_position_backward(size_t tokens, size_t sequence, size_t hidden,
                                          const int32_t *positions, const erg_bf16 *d_out,
                                          float *d_table, struct CUstream_st *stream,
                                          struct erg_error *err)
{
    if (check_width("learned positions backward", tokens, hidden, VECTOR, err))
        return -1;
    const size_t places = sequence < tokens ? sequence : tokens;
    const size_t blocks = blocks_for(places * (hidden / QUAD), POSITION_THREADS);
    if (blocks)
        follow(position_backward, (unsigned)blocks, POSITION_THREADS, 0, stream, (uint32_t)tokens,
               (uint32_t)sequence, (uint32_t)hidden, positions, d_out, d_table);
    return erg_cuda_check_launch("learned positions backward", err);
}
