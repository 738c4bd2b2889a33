/*
 * Collectives through shared memory (compute capability 9.0): one thread keeps bulk copies from all
 * ranks on their way into a ring of stages, eight warps add what has come, and another thread sends
 * the sums off as bulk copies to all ranks. Of six stages three are on their way, which is 96 KB an
 * SM, while one is being added and two are being sent. Method: asynchronous bulk copies and
 * transaction barriers, PTX ISA, sections "cp.async.bulk" and "mbarrier".
 */
#include "device/cuda/collective.cuh"

namespace erg
{

enum {
    STAGES = 6,
    STAGE_BYTES = 32 << 10,
    SENDING = 2, /* stages whose sums may still be read by copies */
    ADDERS = 256,
    /* Threads with a warp of their own, so that no other lane's waiting holds them up. */
    FEEDER = ADDERS,
    SENDER = ADDERS + LANES,
    THREADS = ADDERS + 2 * LANES,
};

#if __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

__device__ inline void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

__device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Arrives, and announces bytes that copies will bring. */
__device__ inline void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n"
                     "    .reg .pred p;\n"
                     "    mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "    selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

__device__ inline void bulk_load(void *to, const unsigned char *from, uint32_t bytes,
                                 uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ inline void bulk_store(unsigned char *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

/* Orders ordinary accesses before those of bulk copies. */
__device__ inline void fence_copies()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* What has happened to each stage: all its bytes have come, they are added, it is free again. */
struct ring {
    uint64_t full[STAGES], added[STAGES], empty[STAGES];
};

template <class TYPE, int RANKS, erg_collective_operation OPERATION> struct shape {
    enum {
        SOURCES = OPERATION == ERG_ALL_GATHER ? 1 : RANKS,
        TILE_BYTES = STAGE_BYTES / SOURCES,
        TILE = TILE_BYTES / 16, /* vectors */
    };

    /* Calls body(work, first vector, bytes, number of the tile) for this block's tiles. */
    template <class BODY>
    static __device__ void for_tiles(const erg_collective_call &call, BODY body)
    {
        uint32_t number = 0;
        for (int part = 0; part < call.parts; part++) {
            const erg_collective_work &work = call.work[part];
            size_t vectors = work.share.vectors;
            size_t end = erg_collective_block_begin(vectors, blockIdx.x + 1, gridDim.x);
            for (size_t at = erg_collective_block_begin(vectors, blockIdx.x, gridDim.x); at < end;
                 at += TILE) {
                size_t left = end - at;
                body(work, at, (uint32_t)(left < TILE ? left : TILE) * 16, number++);
            }
        }
    }

    static __device__ void feed(const erg_collective_call &call, unsigned char *stages, ring &ring)
    {
        fence_copies(); /* what peers wrote before the meeting */
        for_tiles(call,
                  [&](const erg_collective_work &work, size_t at, uint32_t bytes, uint32_t number) {
                      uint32_t slot = number % STAGES, round = number / STAGES;
                      if (round > 0)
                          barrier_wait(&ring.empty[slot], (round - 1) & 1);
                      barrier_expect(&ring.full[slot], bytes * SOURCES);
                      for (int s = 0; s < SOURCES; s++)
                          bulk_load(stages + slot * STAGE_BYTES + s * TILE_BYTES,
                                    vectors_of<TYPE>(work, SOURCES == 1 ? call.rank : s) + at * 16,
                                    bytes, &ring.full[slot]);
                  });
    }

    /* Sums of all sources over the first one: each thread reads and writes its own places. */
    static __device__ void add(const erg_collective_call &call, unsigned char *stages, ring &ring)
    {
        for_tiles(call, [&](const erg_collective_work &, size_t, uint32_t bytes, uint32_t number) {
            uint32_t slot = number % STAGES;
            unsigned char *stage = stages + slot * STAGE_BYTES;
            barrier_wait(&ring.full[slot], number / STAGES & 1);
            for (uint32_t offset = threadIdx.x * 16; offset < bytes; offset += ADDERS * 16) {
                vector in[SOURCES];
#pragma unroll
                for (int s = 0; s < SOURCES; s++)
                    in[s] = *reinterpret_cast<const vector *>(stage + s * TILE_BYTES + offset);
                *reinterpret_cast<vector *>(stage + offset) = sum_of<TYPE>(in);
            }
            fence_copies();
            __syncwarp();
            if (threadIdx.x % LANES == 0)
                barrier_arrive(&ring.added[slot]);
        });
    }

    static __device__ void send(const erg_collective_call &call, unsigned char *stages, ring &ring)
    {
        for_tiles(call, [&](const erg_collective_work &work, size_t at, uint32_t bytes,
                            uint32_t number) {
            uint32_t slot = number % STAGES;
            uint64_t *ready = OPERATION == ERG_ALL_GATHER ? &ring.full[slot] : &ring.added[slot];
            barrier_wait(ready, number / STAGES & 1);
            for (int r = 0; r < RANKS; r++)
                if (goes_to<OPERATION>(r, call.rank))
                    bulk_store(vectors_of<TYPE>(work, r) + at * 16, stages + slot * STAGE_BYTES,
                               bytes);
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"((int)SENDING) : "memory");
            if (number >= SENDING)
                barrier_arrive(&ring.empty[(number - SENDING) % STAGES]);
        });
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); /* all written, not only read */
        fence_copies();
    }
};

#endif

template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__global__ void __launch_bounds__(THREADS, 1)
    bulk_kernel(const __grid_constant__ erg_collective_call call)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ ring ring;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&ring.full[i], 1);
            barrier_init(&ring.added[i], ADDERS / LANES);
            barrier_init(&ring.empty[i], 1);
        }
        fence_copies();
    }
    if (!meet<RANKS>(call, false)) /* also lets all threads see the barriers */
        return;
    if (threadIdx.x == FEEDER)
        shape<TYPE, RANKS, OPERATION>::feed(call, stages, ring);
    else if (threadIdx.x == SENDER)
        shape<TYPE, RANKS, OPERATION>::send(call, stages, ring);
    else if (threadIdx.x < ADDERS && OPERATION != ERG_ALL_GATHER)
        shape<TYPE, RANKS, OPERATION>::add(call, stages, ring);
    if (blockIdx.x == 0)
        for (int part = 0; part < call.parts; part++)
            do_singles<TYPE, RANKS, OPERATION>(call, call.work[part]);
    meet<RANKS>(call, true);
#endif
}

template <class TYPE, int RANKS, erg_collective_operation OPERATION>
static int launch(const erg_collective_call &call, int sms, cudaStream_t stream, erg_error *err)
{
    const int bytes = STAGES * STAGE_BYTES;
    if (erg_cuda_check(cudaFuncSetAttribute(bulk_kernel<TYPE, RANKS, OPERATION>,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                       err, "reserving %d bytes of shared memory for a collective", bytes))
        return -1;
    bulk_kernel<TYPE, RANKS, OPERATION><<<sms, THREADS, bytes, stream>>>(call);
    return erg_cuda_check_launch("a collective", err);
}

template <class TYPE, int RANKS>
static int launch(erg_collective_operation operation, const erg_collective_call &call, int sms,
                  cudaStream_t stream, erg_error *err)
{
    if (operation == ERG_ALL_REDUCE)
        return launch<TYPE, RANKS, ERG_ALL_REDUCE>(call, sms, stream, err);
    if (operation == ERG_ALL_GATHER)
        return launch<TYPE, RANKS, ERG_ALL_GATHER>(call, sms, stream, err);
    return launch<TYPE, RANKS, ERG_REDUCE_SCATTER>(call, sms, stream, err);
}

template <class TYPE>
static int launch(int ranks, erg_collective_operation operation, const erg_collective_call &call,
                  int sms, cudaStream_t stream, erg_error *err)
{
    if (ranks == 2)
        return launch<TYPE, 2>(operation, call, sms, stream, err);
    if (ranks == 4)
        return launch<TYPE, 4>(operation, call, sms, stream, err);
    return launch<TYPE, 8>(operation, call, sms, stream, err);
}

} // namespace erg

int erg_collective_launch_bulk(enum erg_collective_operation operation,
                               enum erg_collective_type type, int ranks,
                               const struct erg_collective_call *call, int sms,
                               struct CUstream_st *stream, struct erg_error *err)
{
    if (type == ERG_COLLECTIVE_BF16)
        return erg::launch<erg::bf16_type>(ranks, operation, *call, sms, stream, err);
    return erg::launch<erg::float_type>(ranks, operation, *call, sms, stream, err);
}
