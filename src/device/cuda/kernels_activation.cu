/* Kernels of SwiGLU and GELU: forward and backward. */
#include "device/cuda/columns.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 256,
    GELU_AHEAD = 2, /* backward: rows of x and d_out that a thread has in flight */
    GELU_BLOCKS_OF_AN_SM = 4,
    GELU_MOST_BLOCKS = GELU_BLOCKS_OF_AN_SM * (PARTIAL_BLOCKS / 2),
};

struct column_grid gelu_grid(size_t tokens, size_t width)
{
    return column_grid_of(tokens, width, GELU_AHEAD, GELU_MOST_BLOCKS);
}

/* The position of a thread's vector: row and column of the output. */
struct vector_place {
    size_t token, column;
};

__device__ inline bool find(struct vector_place *place, size_t tokens, uint32_t row_vectors)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, token = i / row_vectors;
    place->token = token;
    place->column = (size_t)(i - token * row_vectors) * VECTOR;
    return token < tokens;
}

__global__ void __launch_bounds__(THREADS)
    swiglu_forward(size_t tokens, uint32_t row_vectors, const erg_bf16 *gate_up, erg_bf16 *out)
{
    struct vector_place at;
    wait_for_last();
    if (!find(&at, tokens, row_vectors))
        return;
    size_t width = (size_t)row_vectors * VECTOR;
    const erg_bf16 *row = gate_up + at.token * 2 * width + at.column;
    vector gates = load(row), ups = load(row + width);
    float gate[VECTOR], up[VECTOR];
    unpack(gate, gates);
    unpack(up, ups);
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        up[i] *= __fdividef(gate[i], 1 + __expf(-gate[i]));
    store(out + at.token * width + at.column, pack(up));
}

__global__ void __launch_bounds__(THREADS)
    swiglu_backward(size_t tokens, uint32_t row_vectors, const erg_bf16 *gate_up,
                    const erg_bf16 *d_out, erg_bf16 *d_gate_up)
{
    struct vector_place at;
    wait_for_last();
    if (!find(&at, tokens, row_vectors))
        return;
    size_t width = (size_t)row_vectors * VECTOR;
    size_t row = at.token * 2 * width + at.column;
    vector gates = load(gate_up + row), ups = load(gate_up + row + width);
    vector ds = load(d_out + at.token * width + at.column);
    float gate[VECTOR], up[VECTOR], d[VECTOR];
    unpack(gate, gates);
    unpack(up, ups);
    unpack(d, ds);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float sigmoid = __fdividef(1, 1 + __expf(-gate[i]));
        float d_gate = d[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
        up[i] = d[i] * gate[i] * sigmoid;
        gate[i] = d_gate;
    }
    store(d_gate_up + row, pack(gate));
    store(d_gate_up + row + width, pack(up));
}

/* GELU is x p(x); p, and its derivative. In the tanh form p is the logistic function at twice its
 * argument. */
template <bool TANH_FORM> __device__ inline float gelu_share(float x, float *slope)
{
    if (TANH_FORM) {
        const float root = 0.7978845608f, cubic = 0.044715f; /* sqrt(2 / pi) */
        float share = __fdividef(1, 1 + __expf(-2 * root * (x + cubic * x * x * x)));
        *slope = 2 * share * (1 - share) * root * (1 + 3 * cubic * x * x);
        return share;
    }
    *slope = 0.3989422804f * __expf(-0.5f * x * x); /* the normal density */
    return 0.5f * (1 + erff(0.7071067812f * x));
}

template <bool TANH_FORM>
__global__ void __launch_bounds__(THREADS)
    gelu_forward(size_t vectors, const erg_bf16 *x, erg_bf16 *out)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_last();
    if (i >= vectors)
        return;
    float values[VECTOR], slope;
    unpack(values, load(x + i * VECTOR));
#pragma unroll
    for (int k = 0; k < VECTOR; k++)
        values[k] *= gelu_share<TANH_FORM>(values[k], &slope);
    store(out + i * VECTOR, pack(values));
}

/* The gradient of the bias before GELU is the sum of the stored d_x, in partials[blocks of
 * rows][width] (NULL: no bias). */
template <bool TANH_FORM>
__global__ void __launch_bounds__(COLUMN_THREADS, GELU_BLOCKS_OF_AN_SM)
    gelu_backward(uint32_t tokens, uint32_t width, const erg_bf16 *x, const erg_bf16 *d_out,
                  erg_bf16 *d_x, float *partials)
{
    const uint32_t column = blockIdx.x * COLUMNS + threadIdx.x % LANES * VECTOR;
    const size_t step = (size_t)gridDim.y * COLUMN_ROWS;
    size_t row = blockIdx.y * COLUMN_ROWS + threadIdx.x / LANES;
    float sum[VECTOR] = {};
    wait_for_last();
    if (column < width)
        for (; row < tokens; row += step * GELU_AHEAD) {
            vector xs[GELU_AHEAD], ds[GELU_AHEAD];
#pragma unroll
            for (int k = 0; k < GELU_AHEAD; k++)
                if (row + k * step < tokens) {
                    xs[k] = load(x + (row + k * step) * width + column);
                    ds[k] = load(d_out + (row + k * step) * width + column);
                }
#pragma unroll
            for (int k = 0; k < GELU_AHEAD; k++) {
                if (row + k * step >= tokens)
                    break;
                float values[VECTOR], d[VECTOR];
                unpack(values, xs[k]);
                unpack(d, ds[k]);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) {
                    float slope, share = gelu_share<TANH_FORM>(values[i], &slope);
                    d[i] *= share + values[i] * slope;
                }
                const vector stored = pack(d);
                store(d_x + (row + k * step) * width + column, stored);
                unpack(d, stored);
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    sum[i] += d[i];
            }
        }
    if (partials)
        store_column_sums(width, sum, partials);
}

} // namespace

extern "C" int erg_cuda_swiglu_forward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                                       erg_bf16 *out, struct CUstream_st *stream,
                                       struct erg_error *err)
{
    if (check_width("SwiGLU", tokens, width, VECTOR, err))
        return -1;
    size_t blocks = blocks_for(tokens * (width / VECTOR), THREADS);
    if (blocks)
        follow(swiglu_forward, (unsigned)blocks, THREADS, 0, stream, tokens,
               (uint32_t)(width / VECTOR), gate_up, out);
    return erg_cuda_check_launch("SwiGLU", err);
}

extern "C" int erg_cuda_swiglu_backward(size_t tokens, size_t width, const erg_bf16 *gate_up,
                                        const erg_bf16 *d_out, erg_bf16 *d_gate_up,
                                        struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("SwiGLU backward", tokens, width, VECTOR, err))
        return -1;
    size_t blocks = blocks_for(tokens * (width / VECTOR), THREADS);
    if (blocks)
        follow(swiglu_backward, (unsigned)blocks, THREADS, 0, stream, tokens,
               (uint32_t)(width / VECTOR), gate_up, d_out, d_gate_up);
    return erg_cuda_check_launch("SwiGLU backward", err);
}

extern "C" int erg_cuda_gelu_forward(size_t tokens, size_t width, bool tanh_form, const erg_bf16 *x,
                                     erg_bf16 *out, struct CUstream_st *stream,
                                     struct erg_error *err)
{
    if (check_width("GELU", tokens, width, VECTOR, err))
        return -1;
    const size_t vectors = tokens * (width / VECTOR);
    if (vectors)
        follow(tanh_form ? gelu_forward<true> : gelu_forward<false>,
               (unsigned)blocks_for(vectors, THREADS), THREADS, 0, stream, vectors, x, out);
    return erg_cuda_check_launch("GELU", err);
}

extern "C" size_t erg_cuda_gelu_backward_scratch(size_t tokens, size_t width)
{
    return gelu_grid(tokens, width).rows * width * sizeof(float);
}

extern "C" int erg_cuda_gelu_backward(size_t tokens, size_t width, bool tanh_form,
                                      const erg_bf16 *x, const erg_bf16 *d_out, erg_bf16 *d_x,
                                      float *d_bias, void *scratch, struct CUstream_st *stream,
                                      struct erg_error *err)
{
    if (check_width("GELU backward", tokens, width, VECTOR, err))
        return -1;
    if (tokens == 0)
        return 0;
    const struct column_grid grid = gelu_grid(tokens, width);
    float *partials = d_bias ? static_cast<float *>(scratch) : NULL;
    follow(tanh_form ? gelu_backward<true> : gelu_backward<false>, dim3(grid.columns, grid.rows),
           COLUMN_THREADS, 0, stream, (uint32_t)tokens, (uint32_t)width, x, d_out, d_x, partials);
    const struct partials sums = {grid.rows, partials, d_bias};
    if (d_bias)
        add_partials(width, &sums, 1, stream);
    return erg_cuda_check_launch("GELU backward", err);
}
