/* Kernels of rotary position embedding, forward, with the norm of heads if there is one. */
#include "device/cuda/rope.cuh"

namespace
{
using namespace erg;

enum { THREADS = 128 };

/* Heads per place. The norm does more work for each, and so hides more latency. */
__host__ __device__ constexpr int heads_of(bool norm)
{
    return norm ? 2 : 1;
}

/* Rotation by `direction`, after the norm if there is one. */
template <int SEGMENT, bool NORM>
__global__ void __launch_bounds__(THREADS, NORM ? 6 : 10)
    rotate(const __grid_constant__ struct rope_task task, float direction, const erg_bf16 *in,
           erg_bf16 *out)
{
    constexpr int HEADS = heads_of(NORM);
    const struct head_place place = find<SEGMENT>(task);
    const uint32_t token = blockIdx.x * task.block_tokens + place.token;
    const bool inside = place.inside && token < task.tokens;
    const size_t head_size = 2 * task.half, at = place.head * head_size + place.column;
    struct pair pairs[HEADS], weight = {};
    struct angles angles;
    wait_for_last();
#pragma unroll
    for (int k = 0; k < HEADS; k++)
        pairs[k] = load_pair(in + token * task.in_row + at + k * place.step * head_size, task.half,
                             inside && place.head + k * place.step < place.heads_end);
    read_angles(&angles, task, token, place);
    if (NORM)
        weight = load_weight(task, place);
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        float low[VECTOR], high[VECTOR];
        unpack(low, pairs[k].low);
        unpack(high, pairs[k].high);
        if (NORM) {
            float w_low[VECTOR], w_high[VECTOR];
            const float scale = scale_of<SEGMENT>(task, low, high);
            unpack(w_low, weight.low);
            unpack(w_high, weight.high);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                low[i] *= scale * w_low[i];
                high[i] *= scale * w_high[i];
            }
        }
        turn(low, high, angles, direction);
        if (inside && place.head + k * place.step < place.heads_end)
            store_pair(out + token * task.out_row + at + k * place.step * head_size, task.half, low,
                       high);
    }
}

template <bool NORM>
void launch_rotate(struct rope_task *task, const struct erg_ops_qkv *shape, float direction,
                   const erg_bf16 *in, erg_bf16 *out, struct CUstream_st *stream)
{
    const int segment = segment_of(shape);
    const struct grid grid = divide(task, shape, heads_of(NORM), THREADS);
    auto run = segment == 4 ? rotate<4, NORM> : segment == 8 ? rotate<8, NORM> : rotate<16, NORM>;
    follow(run, grid.blocks, grid.threads, 0, stream, *task, direction, in, out);
}

} // namespace

void erg::rotate_back(struct rope_task *task, const struct erg_ops_qkv *shape,
                      const erg_bf16 *d_rotated, erg_bf16 *d_qkv, struct CUstream_st *stream)
{
    launch_rotate<false>(task, shape, -1, d_rotated, d_qkv, stream);
}

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
    struct rope_task task = task_of(shape, eps, q_weight, k_weight, table);
    task.out_row = out_row;
    if (q_weight)
        launch_rotate<true>(&task, shape, 1, qkv, out, stream);
    else
        launch_rotate<false>(&task, shape, 1, qkv, out, stream);
    return erg_cuda_check_launch("rotary embedding", err);
}
