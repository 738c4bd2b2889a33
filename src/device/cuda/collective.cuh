/* Parts of collective kernels: synchronisation with the same block of the peers, and sums. */
#ifndef ERG_CUDA_COLLECTIVE_CUH
#define ERG_CUDA_COLLECTIVE_CUH

#include "device/cuda/collective_internal.h"
#include "device/cuda/vector.cuh"

namespace erg
{

/* ---- signals ---- */

__device__ inline void store_release(uint32_t *to, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ inline uint32_t load_acquire(const uint32_t *from)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline uint64_t now_ns()
{
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

/* Reports the missing rank to the host; only the first block to give up does so. */
__device__ inline void give_up(const erg_collective_call &call, uint32_t peer, uint32_t number)
{
    if (atomicCAS(&call.state->broken, 0u, 1u) != 0)
        return;
    volatile erg_collective_status *status = call.status;
    status->peer = peer;
    status->call = number;
    __threadfence_system();
    status->failed = 1;
}

/* Waits until a peer's signal reaches `step`; false if it does not. `number`: of the call. */
__device__ inline bool await_signal(const erg_collective_call &call, const uint32_t *signal,
                                    uint32_t step, int peer, uint32_t number)
{
    volatile uint32_t *broken = &call.state->broken;
    const volatile uint32_t *abort = &call.status->abort;
    uint64_t start = 0;
    /* Steps only grow, and a peer may be one ahead. The difference is correct even if they wrap. */
    for (uint32_t polls = 1; (int32_t)(load_acquire(signal) - step) < 0; polls++) {
        if (polls % 1024) /* the checks below take longer than a poll */
            continue;
        if (start == 0)
            start = now_ns();
        if (*broken)
            return false;
        if (*abort || now_ns() - start > call.timeout_ns) {
            give_up(call, (uint32_t)peer, number);
            return false;
        }
    }
    return true;
}

/* Waits until the peer's block reaches `step`; false if it does not. */
__device__ inline bool await(const erg_collective_call &call, int peer, uint32_t step)
{
    const uint32_t *signal =
        call.signals[call.rank] + blockIdx.x * ERG_SIGNAL_STRIDE + (unsigned)peer;
    return await_signal(call, signal, step, peer, (step - 1) / 2);
}

/*
 * Synchronises this block with the same block of all peers: writes of each before are visible
 * after. `last`: the second and last meeting of a call. All threads of the block call it. False: a
 * peer is missing, and memory must not be accessed any more.
 *
 * Release and acquire at system scope extend over the barriers of the block, so one thread per peer
 * is enough.
 */
template <int RANKS> __device__ inline bool meet(const erg_collective_call &call, bool last)
{
    uint32_t number = call.state->calls[blockIdx.x];
    uint32_t step = 2 * number + (last ? 2 : 1);
    int peer = (int)threadIdx.x;
    bool here = true;
    __syncthreads();
    if (peer < RANKS && peer != call.rank) {
        store_release(call.signals[peer] + blockIdx.x * ERG_SIGNAL_STRIDE + (unsigned)call.rank,
                      step);
        here = await(call, peer, step);
    }
    here = __syncthreads_and(here);
    if (last && threadIdx.x == 0)
        call.state->calls[blockIdx.x] = number + 1;
    return here;
}

/* ---- elements ---- */

/*
 * Volatile, so that loads are issued in this order, before the first is used. Without allocation in
 * the L1 cache NVLink's rate would drop by 3 %.
 */
__device__ inline vector load_once(const unsigned char *from)
{
    vector v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

__device__ inline void store_vector(unsigned char *to, vector v)
{
    *reinterpret_cast<vector *>(to) = v;
}

/* For data that is not read again before the end of the call. */
__device__ inline void store_streaming(unsigned char *to, vector v)
{
    __stcs(reinterpret_cast<vector *>(to), v);
}

/* Whether rank `rank` writes its share to rank r. */
template <erg_collective_operation OPERATION> __device__ inline bool goes_to(int r, int rank)
{
    return OPERATION == ERG_ALL_REDUCE || (OPERATION == ERG_ALL_GATHER ? r != rank : r == rank);
}

struct bf16_type {
    enum { BYTES = 2, WIDTH = 8 };
    typedef uint16_t storage;

    static __device__ void add(float (&sum)[WIDTH], vector v)
    {
        float wide[WIDTH];
        unpack(wide, v);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            sum[i] += wide[i];
    }
    static __device__ vector round(const float (&sum)[WIDTH])
    {
        return pack(sum);
    }
    static __device__ float widen(storage bits)
    {
        return __uint_as_float((uint32_t)bits << 16);
    }
    static __device__ storage narrow(float value)
    {
        return (storage)pack(value, 0.0f);
    }
};

struct float_type {
    enum { BYTES = 4, WIDTH = 4 };
    typedef float storage;

    static __device__ void add(float (&sum)[WIDTH], vector v)
    {
        sum[0] += __uint_as_float(v.x);
        sum[1] += __uint_as_float(v.y);
        sum[2] += __uint_as_float(v.z);
        sum[3] += __uint_as_float(v.w);
    }
    static __device__ vector round(const float (&sum)[WIDTH])
    {
        return make_uint4(__float_as_uint(sum[0]), __float_as_uint(sum[1]), __float_as_uint(sum[2]),
                          __float_as_uint(sum[3]));
    }
    static __device__ float widen(storage value)
    {
        return value;
    }
    static __device__ storage narrow(float value)
    {
        return value;
    }
};

/* Sums from zero in the order of ranks, as for vectors: equal inputs give equal bits. */
template <class TYPE, int RANKS> __device__ inline vector sum_of(const vector (&parts)[RANKS])
{
    float sum[TYPE::WIDTH] = {};
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        TYPE::add(sum, parts[r]);
    return TYPE::round(sum);
}

/* The single elements before and after the vectors of a share: fewer than two vectors. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__device__ inline void do_singles(const erg_collective_call &call, const erg_collective_work &work)
{
    typedef typename TYPE::storage storage;
    size_t singles = work.share.head + work.share.tail;
    for (size_t k = threadIdx.x; k < singles; k += blockDim.x) {
        size_t i = work.share.begin + k;
        if (k >= work.share.head)
            i += work.share.vectors * TYPE::WIDTH;
        storage value;
        if (OPERATION == ERG_ALL_GATHER) {
            value = reinterpret_cast<const storage *>(work.base[call.rank])[i];
        } else {
            float sum = 0;
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                sum += TYPE::widen(reinterpret_cast<const volatile storage *>(work.base[r])[i]);
            value = TYPE::narrow(sum);
        }
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (goes_to<OPERATION>(r, call.rank))
                reinterpret_cast<storage *>(work.base[r] + work.shift)[i] = value;
    }
}

/* The start of a share's vectors on rank r. */
template <class TYPE>
__device__ inline unsigned char *vectors_of(const erg_collective_work &work, int rank)
{
    return work.base[rank] + (work.share.begin + work.share.head) * TYPE::BYTES;
}

} // namespace erg

#endif
