/*
 * Collectives through registers. What bounds a block is latency: a load over NVLink takes more than
 * a microsecond, so every thread has 16 vectors on their way before it uses the first one, which is
 * 128 KB an SM, and stores are not waited for until the end. 512 threads of 128 registers fill an
 * SM, so that blocks are as many SMs. On two H200, 100 MB in bf16, that is 47, 88, 173, 288 and
 * 294 GB/s of bus bandwidth on 1, 2, 4, 8 and 16 SMs (NCCL 2.28: 21, 42, 82, 158, 246). Bulk copies
 * into shared memory were tried and are slower on every number of SMs (38 to 236 GB/s).
 */
#include "device/cuda/collective_exchange.cuh"

namespace erg
{

enum { THREADS = 512, IN_FLIGHT = 16 };

template <class TYPE, int RANKS, erg_collective_operation OPERATION> struct mover {
    enum {
        SOURCES = OPERATION == ERG_ALL_GATHER ? 1 : RANKS,
        UNROLL = IN_FLIGHT / SOURCES,
    };
    unsigned char *base[RANKS], *own;
    int rank;

    __device__ mover(const erg_collective_call &call, const erg_collective_work &work)
        : own(vectors_of<TYPE>(work, call.rank)), rank(call.rank)
    {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            base[r] = vectors_of<TYPE>(work, r);
    }

    __device__ void send(size_t offset, vector sum) const
    {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (goes_to<OPERATION>(r, rank))
                store_vector(base[r] + offset, sum);
    }

    /* Vectors at, at + THREADS, …; WHOLE: all UNROLL of them are before `end`. */
    template <bool WHOLE> __device__ void move(size_t at, size_t end) const
    {
        vector in[UNROLL][SOURCES];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (WHOLE || at + u * THREADS < end)
#pragma unroll
                for (int s = 0; s < SOURCES; s++)
                    in[u][s] = load_once((SOURCES == 1 ? own : base[s]) + (at + u * THREADS) * 16);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (WHOLE || at + u * THREADS < end)
                send((at + u * THREADS) * 16,
                     OPERATION == ERG_ALL_GATHER ? in[u][0] : sum_of<TYPE>(in[u]));
    }
};

/* This block's vectors of one part. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__device__ void do_vectors(const erg_collective_call &call, const erg_collective_work &work)
{
    typedef mover<TYPE, RANKS, OPERATION> mover;
    const mover m(call, work);
    size_t at = erg_collective_block_begin(work.share.vectors, blockIdx.x, gridDim.x) + threadIdx.x;
    size_t end = erg_collective_block_begin(work.share.vectors, blockIdx.x + 1, gridDim.x);
    const size_t step = mover::UNROLL * THREADS;
    for (; at + step - THREADS < end; at += step)
        m.template move<true>(at, end);
    if (at < end)
        m.template move<false>(at, end);
}

template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__global__ void __launch_bounds__(THREADS, 1)
    vector_kernel(const __grid_constant__ erg_collective_call call)
{
    if (!meet<RANKS>(call, false))
        return;
    for (int part = 0; part < call.parts; part++) {
        do_vectors<TYPE, RANKS, OPERATION>(call, call.work[part]);
        if (blockIdx.x == 0)
            do_singles<TYPE, RANKS, OPERATION>(call, call.work[part]);
    }
    meet<RANKS>(call, true);
}

template <class TYPE, int RANKS>
static void launch(erg_collective_operation operation, const erg_collective_call &call, int sms,
                   cudaStream_t stream)
{
    if (operation == ERG_ALL_REDUCE)
        vector_kernel<TYPE, RANKS, ERG_ALL_REDUCE><<<sms, THREADS, 0, stream>>>(call);
    else
        launch_exchange<TYPE, RANKS>(operation, call, sms, stream);
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

int erg_collective_launch(enum erg_collective_operation operation,
                                 enum erg_collective_type type, int ranks,
                                 const struct erg_collective_call *call, int sms,
                                 struct CUstream_st *stream, struct erg_error *err)
{
    if (type == ERG_COLLECTIVE_BF16)
        erg::launch<erg::bf16_type>(ranks, operation, *call, sms, stream);
    else
        erg::launch<erg::float_type>(ranks, operation, *call, sms, stream);
    return erg_cuda_check_launch("a collective", err);
}
