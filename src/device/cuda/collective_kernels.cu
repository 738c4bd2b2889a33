/*
 * Collectives through registers. What bounds a block is latency: a load over NVLink takes more than
 * a microsecond, so every thread has up to 16 vectors on their way, which is 128 KB an SM, uses the
 * older half and asks for the next. Stores are not waited for until the end. 512 threads of 128
 * registers fill an SM, so that blocks are as many SMs. NVLink is full with 8 SMs; from there on
 * half as many vectors of a sum's loads, among its stores, carry more than all of them. Copies into
 * shared memory were tried, in bulk and by vectors, and are slower on every number of SMs.
 */
#include "device/cuda/collective.cuh"

namespace erg
{

enum { THREADS = 512, MOST_IN_FLIGHT = 16, FEW_SMS = 8 };

/* One piece of one part, IN_FLIGHT vectors of a thread at a time. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION, int IN_FLIGHT> struct mover {
    enum {
        SUM_FOR_ALL = OPERATION == ERG_ALL_REDUCE,
        GATHER = OPERATION == ERG_ALL_GATHER,
        SOURCES = GATHER ? 1 : RANKS,
        HALF = IN_FLIGHT / SOURCES > 1 ? IN_FLIGHT / SOURCES / 2 : 1,
    };
    unsigned char *base[RANKS], *own; /* where the share begins on each rank */
    unsigned char *rows;              /* of this rank, where it does not lie in the buffer */
    const erg_collective_local &local;
    erg_collective_spot step;
    int rank;

    __device__ mover(const erg_collective_call &call, const erg_collective_work &work, size_t piece)
        : own(vectors_of<TYPE>(work, call.rank) + piece * work.stride),
          rows(work.local.memory ? work.local.memory + piece * work.local.piece_bytes : nullptr),
          local(work.local), step(erg_collective_spot_of(&work.local, THREADS)), rank(call.rank)
    {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            base[r] = vectors_of<TYPE>(work, r) + piece * work.stride;
    }

    /* Of a vector of the own shard, which it leaves for the next one of this thread. */
    __device__ unsigned char *take_place(erg_collective_spot &spot, size_t index) const
    {
        if (!rows)
            return own + index * 16;
        unsigned char *place = rows + erg_collective_spot_at(&local, spot);
        spot = erg_collective_spot_add(&local, spot, step);
        return place;
    }

    __device__ void load(vector (&in)[SOURCES], size_t index, erg_collective_spot &spot) const
    {
#pragma unroll
        for (int s = 0; s < SOURCES; s++)
            in[s] = load_once(GATHER ? take_place(spot, index) : base[s] + index * 16);
    }

    __device__ void send(const vector (&in)[SOURCES], size_t index, erg_collective_spot &spot) const
    {
        vector result = GATHER ? in[0] : sum_of<TYPE>(in);
        if (OPERATION == ERG_REDUCE_SCATTER) {
            store_vector(take_place(spot, index), result);
        } else {
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                if (SUM_FOR_ALL || r != rank || rows)
                    store_vector(base[r] + index * 16, result);
        }
    }

    /* Vectors at, at + THREADS, …, of which HALF are asked for, and used, at a time. */
    typedef vector half[HALF][SOURCES];

    __device__ void ask(half &in, size_t at, size_t end, erg_collective_spot &spot) const
    {
#pragma unroll
        for (int u = 0; u < HALF; u++)
            if (at + u * THREADS < end)
                load(in[u], at + u * THREADS, spot);
    }

    __device__ void use(const half &in, size_t at, size_t end, erg_collective_spot &spot) const
    {
#pragma unroll
        for (int u = 0; u < HALF; u++)
            if (at + u * THREADS < end)
                send(in[u], at + u * THREADS, spot);
    }

    __device__ void move_all(size_t begin, size_t end) const
    {
        const size_t stride = HALF * THREADS;
        size_t at = begin + threadIdx.x;
        erg_collective_spot spot = erg_collective_spot_of(&local, (unsigned)at);
        half one, other;
        ask(one, at, end, spot);
        ask(other, at + stride, end, spot);
#pragma unroll 1
        for (; at < end; at += 2 * stride) {
            use(one, at, end, spot);
            ask(one, at + 2 * stride, end, spot);
            use(other, at + stride, end, spot);
            ask(other, at + 3 * stride, end, spot);
        }
    }
};

/* This block's vectors of one part: a run of those of all pieces. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION, int IN_FLIGHT>
__device__ void do_vectors(const erg_collective_call &call, const erg_collective_work &work)
{
    typedef mover<TYPE, RANKS, OPERATION, IN_FLIGHT> mover;
    size_t each = work.share.vectors, all = each * work.pieces;
    size_t at = erg_collective_block_begin(all, blockIdx.x, gridDim.x);
    size_t end = erg_collective_block_begin(all, blockIdx.x + 1, gridDim.x);
    while (at < end) {
        size_t piece = at / each, first = at - piece * each, rest = end - piece * each;
        size_t last = rest < each ? rest : each;
        mover(call, work, piece).move_all(first, last);
        at += last - first;
    }
}

template <class TYPE, int RANKS, erg_collective_operation OPERATION, int IN_FLIGHT = MOST_IN_FLIGHT>
__global__ void __launch_bounds__(THREADS, 1)
    vector_kernel(const __grid_constant__ erg_collective_call call)
{
    if (!meet<RANKS>(call, false))
        return;
    for (int part = 0; part < call.parts; part++) {
        do_vectors<TYPE, RANKS, OPERATION, IN_FLIGHT>(call, call.work[part]);
        if (blockIdx.x == 0) /* none where there are several pieces */
            do_singles<TYPE, RANKS, OPERATION>(call, call.work[part]);
    }
    meet<RANKS>(call, true);
}

template <class TYPE, int RANKS>
static void launch(erg_collective_operation operation, const erg_collective_call &call, int sms,
                   cudaStream_t stream)
{
    if (operation == ERG_ALL_REDUCE && sms > FEW_SMS)
        vector_kernel<TYPE, RANKS, ERG_ALL_REDUCE, MOST_IN_FLIGHT / 2>
            <<<sms, THREADS, 0, stream>>>(call);
    else if (operation == ERG_ALL_REDUCE)
        vector_kernel<TYPE, RANKS, ERG_ALL_REDUCE><<<sms, THREADS, 0, stream>>>(call);
    else if (operation == ERG_ALL_GATHER)
        vector_kernel<TYPE, RANKS, ERG_ALL_GATHER><<<sms, THREADS, 0, stream>>>(call);
    else
        vector_kernel<TYPE, RANKS, ERG_REDUCE_SCATTER><<<sms, THREADS, 0, stream>>>(call);
}

template <class TYPE>
static void launch(int ranks, erg_collective_operation operation, const erg_collective_call &call,
                   int sms, cudaStream_t stream)
{
    if (ranks == 2)
        launch<TYPE, 2>(operation, call, sms, stream);
    else if (ranks == 4)
        launch<TYPE, 4>(operation, call, sms, stream);
    else
        launch<TYPE, 8>(operation, call, sms, stream);
}

} // namespace erg

int erg_collective_launch(enum erg_collective_operation operation, enum erg_collective_type type,
                          int ranks, const struct erg_collective_call *call, int sms,
                          struct CUstream_st *stream, struct erg_error *err)
{
    if (type == ERG_COLLECTIVE_BF16)
        erg::launch<erg::bf16_type>(ranks, operation, *call, sms, stream);
    else
        erg::launch<erg::float_type>(ranks, operation, *call, sms, stream);
    return erg_cuda_check_launch("a collective", err);
}
