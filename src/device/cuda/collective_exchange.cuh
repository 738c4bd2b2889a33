/*
 * Gathers and scatters. A share has several pieces, and this rank's own may lie elsewhere, in rows
 * of a wider tensor, where it is read and written without a copy before or after: keys and values
 * under context parallelism.
 */
#ifndef ERG_CUDA_COLLECTIVE_EXCHANGE_CUH
#define ERG_CUDA_COLLECTIVE_EXCHANGE_CUH

#include "device/cuda/collective.cuh"

namespace erg
{

enum { EXCHANGE_THREADS = 512, EXCHANGE_IN_FLIGHT = 16 };

/* One piece of one part. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION> struct exchange {
    enum {
        GATHER = OPERATION == ERG_ALL_GATHER,
        SOURCES = GATHER ? 1 : RANKS,
        UNROLL = EXCHANGE_IN_FLIGHT / SOURCES,
    };
    unsigned char *base[RANKS], *own; /* where the share begins on each rank */
    const erg_collective_local &local;
    size_t piece;
    int rank;

    __device__ exchange(const erg_collective_call &call, const erg_collective_work &work,
                        size_t piece)
        : own(vectors_of<TYPE>(work, call.rank) + piece * work.stride), local(work.local),
          piece(piece), rank(call.rank)
    {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            base[r] = vectors_of<TYPE>(work, r) + piece * work.stride;
    }

    /* Of a vector of the own shard. */
    __device__ unsigned char *place(size_t index) const
    {
        return local.memory
                   ? local.memory + erg_collective_local_at(&local, piece, (unsigned)index)
                   : own + index * 16;
    }

    __device__ void load(vector (&in)[SOURCES], size_t index) const
    {
#pragma unroll
        for (int s = 0; s < SOURCES; s++)
            in[s] = load_once(GATHER ? place(index) : base[s] + index * 16);
    }

    __device__ void send(const vector (&in)[SOURCES], size_t index) const
    {
        if (GATHER) {
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                if (r != rank || local.memory)
                    store_vector(base[r] + index * 16, in[0]);
        } else {
            store_vector(place(index), sum_of<TYPE>(in));
        }
    }

    /* Vectors at, at + THREADS, …; WHOLE: all UNROLL of them are before `end`. */
    template <bool WHOLE> __device__ void move(size_t at, size_t end) const
    {
        vector in[UNROLL][SOURCES];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (WHOLE || at + u * EXCHANGE_THREADS < end)
                load(in[u], at + u * EXCHANGE_THREADS);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (WHOLE || at + u * EXCHANGE_THREADS < end)
                send(in[u], at + u * EXCHANGE_THREADS);
    }

    __device__ void move_all(size_t begin, size_t end) const
    {
        const size_t step = UNROLL * EXCHANGE_THREADS;
        size_t at = begin + threadIdx.x;
        for (; at + step - EXCHANGE_THREADS < end; at += step)
            move<true>(at, end);
        if (at < end)
            move<false>(at, end);
    }
};

/* This block's vectors of one part: a run of those of all pieces. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__device__ void exchange_vectors(const erg_collective_call &call, const erg_collective_work &work)
{
    size_t each = work.share.vectors, all = each * work.pieces;
    size_t at = erg_collective_block_begin(all, blockIdx.x, gridDim.x);
    size_t end = erg_collective_block_begin(all, blockIdx.x + 1, gridDim.x);
    while (at < end) {
        size_t piece = at / each, first = at - piece * each, rest = end - piece * each;
        size_t last = rest < each ? rest : each;
        exchange<TYPE, RANKS, OPERATION>(call, work, piece).move_all(first, last);
        at += last - first;
    }
}

template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__global__ void __launch_bounds__(EXCHANGE_THREADS, 1)
    exchange_kernel(const __grid_constant__ erg_collective_call call)
{
    if (!meet<RANKS>(call, false))
        return;
    for (int part = 0; part < call.parts; part++) {
        exchange_vectors<TYPE, RANKS, OPERATION>(call, call.work[part]);
        if (blockIdx.x == 0) /* none where there are several pieces */
            do_singles<TYPE, RANKS, OPERATION>(call, call.work[part]);
    }
    meet<RANKS>(call, true);
}

template <class TYPE, int RANKS>
void launch_exchange(erg_collective_operation operation, const erg_collective_call &call, int sms,
                     cudaStream_t stream)
{
    if (operation == ERG_ALL_GATHER)
        exchange_kernel<TYPE, RANKS, ERG_ALL_GATHER>
            <<<sms, EXCHANGE_THREADS, 0, stream>>>(call);
    else
        exchange_kernel<TYPE, RANKS, ERG_REDUCE_SCATTER>
            <<<sms, EXCHANGE_THREADS, 0, stream>>>(call);
}

} // namespace erg

#endif
