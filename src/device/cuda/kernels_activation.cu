/* Kernels of SwiGLU and GELU: forward and backward. */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum { THREADS = 256 };

/* Where a thread's vector lies: row and column of the output. */
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

/* GELU is x p(x); p, and its derivative. By tanh p is the logistic function at twice its argument.
 */
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

template <bool TANH_FORM>
__global__ void __launch_bounds__(THREADS)
    gelu_backward(size_t vectors, const erg_bf16 *x, const erg_bf16 *d_out, erg_bf16 *d_x)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_last();
    if (i >= vectors)
        return;
    vector xs = load(x + i * VECTOR), ds = load(d_out + i * VECTOR);
    float values[VECTOR], d[VECTOR];
    unpack(values, xs);
    unpack(d, ds);
#pragma unroll
    for (int k = 0; k < VECTOR; k++) {
        float slope, share = gelu_share<TANH_FORM>(values[k], &slope);
        d[k] *= share + values[k] * slope;
    }
    store(d_x + i * VECTOR, pack(d));
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

extern "C" int erg_cuda_gelu_backward(size_t tokens, size_t width, bool tanh_form,
                                      const erg_bf16 *x, const erg_bf16 *d_out, erg_bf16 *d_x,
                                      struct CUstream_st *stream, struct erg_error *err)
{
    if (check_width("GELU backward", tokens, width, VECTOR, err))
        return -1;
    const size_t vectors = tokens * (width / VECTOR);
    if (vectors)
        follow(tanh_form ? gelu_backward<true> : gelu_backward<false>,
               (unsigned)blocks_for(vectors, THREADS), THREADS, 0, stream, vectors, x, d_out, d_x);
    return erg_cuda_check_launch("GELU backward", err);
}
