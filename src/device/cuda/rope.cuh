/*
 * Norm per head and rotary embedding: shared by their two kernels. SEGMENT neighbouring lanes hold
 * one head, each a vector of its lower half and the vector of its upper half that rotates with it.
 * A segment has a place in a token: up to HEADS heads that are all queries or all keys. So a thread
 * reads its angles once for all of them, and its weights once for all tokens.
 */
#ifndef ERG_CUDA_ROPE_CUH
#define ERG_CUDA_ROPE_CUH

#include "device/cuda/vector.cuh"

namespace erg
{

enum { MAX_HEAD_DIM = 256 };

struct rope_task {
    uint32_t tokens, sequence, heads, query_heads, half; /* elements of half a head */
    uint32_t places, query_places;                       /* of a token */
    uint32_t block_places, block_tokens; /* places and tokens of a block at a time */
    size_t in_row, out_row;
    float eps, share; /* 1 / elements of a head */
    const erg_bf16 *q_weight, *k_weight;
    const float *table;
};

/* The values that a thread keeps for all its tokens. */
struct head_place {
    uint32_t token; /* of the tokens of the block */
    uint32_t head, step,
        heads_end; /* heads head, head + step, …: neighbouring places cover neighbouring heads */
    uint32_t column; /* of this lane's vector in a half */
    bool keys, inside;
};

template <int SEGMENT> __device__ inline struct head_place find(const struct rope_task &task)
{
    const uint32_t segment = threadIdx.x / SEGMENT;
    struct head_place place;
    place.token = segment / task.block_places;
    const uint32_t index =
        blockIdx.y * task.block_places + segment - place.token * task.block_places;
    place.keys = index >= task.query_places;
    place.head = place.keys ? task.query_heads + index - task.query_places : index;
    place.step = place.keys ? task.places - task.query_places : task.query_places;
    place.heads_end = place.keys ? task.heads : task.query_heads;
    place.column = threadIdx.x % SEGMENT * VECTOR;
    place.inside =
        place.token < task.block_tokens && index < task.places && place.column < task.half;
    return place;
}

/* Cosines and sines of the VECTOR angles of this lane. */
struct angles {
    float cosine[VECTOR], sine[VECTOR];
};

__device__ inline void read_angles(struct angles *angles, const struct rope_task &task,
                                   uint32_t token, const struct head_place &place)
{
    const float4 *from = reinterpret_cast<const float4 *>(
        task.table + ((size_t)(token % task.sequence) * task.half + place.column) * 2);
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++) {
        float4 two = place.inside ? from[i] : make_float4(0, 0, 0, 0);
        angles->cosine[2 * i] = two.x, angles->sine[2 * i] = two.y;
        angles->cosine[2 * i + 1] = two.z, angles->sine[2 * i + 1] = two.w;
    }
}

/* direction 1 forwards, -1 backwards */
__device__ inline void turn(float (&low)[VECTOR], float (&high)[VECTOR],
                            const struct angles &angles, float direction)
{
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float sine = direction * angles.sine[i], was_low = low[i];
        low[i] = was_low * angles.cosine[i] - high[i] * sine;
        high[i] = high[i] * angles.cosine[i] + was_low * sine;
    }
}

/* A lane's vectors of the lower and the upper half of a head. */
struct pair {
    vector low, high;
};

__device__ inline struct pair load_pair(const erg_bf16 *from, uint32_t half, bool inside)
{
    struct pair pair = {};
    if (inside) {
        pair.low = load(from);
        pair.high = load(from + half);
    }
    return pair;
}

__device__ inline void store_pair(erg_bf16 *to, uint32_t half, const float (&low)[VECTOR],
                                  const float (&high)[VECTOR])
{
    store_stream(to, pack(low));
    store_stream(to + half, pack(high));
}

__device__ inline struct pair load_weight(const struct rope_task &task,
                                          const struct head_place &place)
{
    const erg_bf16 *weight = place.keys ? task.k_weight : task.q_weight;
    return load_pair(weight + place.column, task.half, place.inside);
}

/* 1/rms of a head, from the squares of this lane's elements. */
template <int SEGMENT>
__device__ inline float scale_of(const struct rope_task &task, const float (&low)[VECTOR],
                                 const float (&high)[VECTOR])
{
    float squares = 0;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        squares += low[i] * low[i];
        squares += high[i] * high[i];
    }
    return rsqrtf(sum_over_lanes(squares, SEGMENT) * task.share + task.eps);
}

inline struct rope_task task_of(const struct erg_ops_qkv *shape, float eps,
                                const erg_bf16 *q_weight, const erg_bf16 *k_weight,
                                const float *table)
{
    struct rope_task task = {};
    task.heads = (uint32_t)(shape->query_heads + shape->kv_heads);
    task.query_heads = (uint32_t)shape->query_heads;
    task.tokens = (uint32_t)shape->tokens;
    task.sequence = (uint32_t)shape->sequence;
    task.half = (uint32_t)(shape->head_dim / 2);
    task.in_row = task.out_row = erg_ops_qkv_row(shape);
    task.eps = eps;
    task.share = 1 / (float)shape->head_dim;
    task.q_weight = q_weight;
    task.k_weight = k_weight;
    task.table = table;
    return task;
}

/* Lanes per head, enough for its vectors: kernels exist for 4, 8 and 16. */
inline int segment_of(const struct erg_ops_qkv *shape)
{
    return shape->head_dim <= 64 ? 4 : shape->head_dim <= 128 ? 8 : 16;
}

struct grid {
    dim3 blocks;
    unsigned threads;
};

/*
 * Blocks of up to `threads` threads for places of `heads` heads, enough blocks for all tokens at
 * once.
 */
inline struct grid divide(struct rope_task *task, const struct erg_ops_qkv *shape, size_t heads,
                          size_t threads)
{
    const size_t segment = (size_t)segment_of(shape), segments = threads / segment;
    const size_t query_places = blocks_for(shape->query_heads, heads);
    const size_t places = query_places + blocks_for(shape->kv_heads, heads);
    const size_t block_places = blocks_for(places, blocks_for(places, segments)); /* evenly */
    const size_t block_tokens = segments / block_places;
    task->places = (uint32_t)places;
    task->query_places = (uint32_t)query_places;
    task->block_places = (uint32_t)block_places;
    task->block_tokens = (uint32_t)block_tokens;
    return {dim3((unsigned)blocks_for(shape->tokens, block_tokens),
                 (unsigned)blocks_for(places, block_places)),
            (unsigned)(blocks_for(block_places * block_tokens * segment, LANES) * LANES)};
}

inline int check_heads(const char *kernel, const struct erg_ops_qkv *shape, struct erg_error *err)
{
    if (check_width(kernel, shape->tokens, shape->head_dim, 2 * VECTOR, err) ||
        check_width(kernel, shape->tokens, erg_ops_qkv_row(shape), VECTOR, err))
        return -1;
    if (shape->head_dim > MAX_HEAD_DIM)
        return erg_fail(err, ERG_FAILED, "%s: heads of %zu elements, expected at most %d", kernel,
                        shape->head_dim, MAX_HEAD_DIM);
    return 0;
}

/* The backward pass without a norm: the forward kernel with the opposite rotation. */
void rotate_back(struct rope_task *task, const struct erg_ops_qkv *shape, const erg_bf16 *d_rotated,
                 erg_bf16 *d_qkv, struct CUstream_st *stream);

} // namespace erg

#endif
