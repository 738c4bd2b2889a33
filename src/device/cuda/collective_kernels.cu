/*
 * Collectives through registers. Latency limits a block: a load over NVLink takes more than a
 * microsecond. So every thread has up to 16 vectors in flight, 128 KB per SM, uses the older half
 * and loads the next. It waits for stores only at the end. 512 threads with 128 registers fill an
 * SM, so the number of blocks is the number of SMs. Copies into shared memory, in bulk or by
 * vectors, were slower for every number of SMs.
 */
#include "device/cuda/collective.cuh"

namespace erg
{

enum { THREADS = 512, WARP = 32, WARPS = THREADS / WARP, IN_FLIGHT = 16 };

/* ---- sums for all ---- */

/*
 * Active warps of a block. 8 SMs saturate NVLink with about 900 KB in flight; more only queues, and
 * lowers the rate by up to 7 %.
 */
static __device__ int working_warps()
{
    enum { WARP_BYTES = IN_FLIGHT * WARP * 16, ENOUGH_BYTES = 896 << 10 };
    int warps = ENOUGH_BYTES / WARP_BYTES / (int)gridDim.x;
    return warps < 1 ? 1 : warps > WARPS ? WARPS : warps;
}

static __device__ uint32_t *drawn_of(const erg_collective_call &call, int rank)
{
    return call.signals[rank] + ERG_SIGNAL_WORDS;
}

/* A rank's share of a sum, as vectors of the buffer; any rank may draw chunks of it. */
struct share_line {
    size_t first, end;
    unsigned chunks;
    uint32_t *drawn;
};

template <class TYPE>
static __device__ struct share_line line_of(const erg_collective_share &share, uint32_t *drawn,
                                            unsigned chunk)
{
    const size_t first = (share.begin + share.head) / TYPE::WIDTH;
    return {first, first + share.vectors, (unsigned)((share.vectors + chunk - 1) / chunk), drawn};
}

/*
 * This rank's share. Every warp draws chunks of it one by one, because SMs are not equally far from
 * the links: with equal shares some would wait for the rest at the end (up to 7 %). Some GPUs also
 * finish their shares 4 % before others, so a rank that has finished helps the next one. A sum has
 * the same bits on every rank that computes it.
 *
 * A draw from the next rank is a round trip over NVLink, so it happens one chunk ahead. A warp
 * makes the first such draw when the other warps may have drawn the rest of the rank's own share.
 */
template <class TYPE, int RANKS>
__device__ void sum_vectors(const erg_collective_call &call, const erg_collective_work &work)
{
    enum { HALF = IN_FLIGHT / RANKS / 2, STEP = HALF * WARP, CHUNK = 2 * STEP };
    const unsigned warps = (unsigned)working_warps(), workers = gridDim.x * warps;
    if (threadIdx.x / WARP >= warps)
        return;
    const unsigned lane = threadIdx.x % WARP;
    const struct share_line next_rank =
        line_of<TYPE>(work.next, drawn_of(call, (call.rank + 1) % RANKS), CHUNK);
    struct share_line line = line_of<TYPE>(work.share, drawn_of(call, call.rank), CHUNK);
    bool helps = false;

    auto help = [&]() { line = next_rank, helps = true; };
    auto draw = [&]() { return lane == 0 ? atomicAdd_system(line.drawn, 1u) : 0u; };
    /* The vectors of a chunk from here on, before `end`. */
    struct place {
        size_t at, end;
    };
    auto find = [&](unsigned drawn) -> struct place {
        unsigned chunk = __shfl_sync(~0u, drawn, 0);
        if (chunk >= line.chunks && !helps) {
            help();
            chunk = __shfl_sync(~0u, draw(), 0);
        }
        if (chunk >= line.chunks)
            return {0, 0};
        const struct place place = {line.first + (size_t)chunk * CHUNK + lane, line.end};
        if (!helps && chunk + workers >= line.chunks)
            help();
        return place;
    };

    typedef vector half[HALF][RANKS];
    /*
     * Lanes beyond the end load the last vector again: conditional loads would not be issued
     * together.
     */
    auto ask = [&](half &in, const struct place &place, unsigned skip) {
        if (place.end == 0)
            return;
#pragma unroll
        for (int u = 0; u < HALF; u++) {
            const size_t at = min(place.at + skip + u * WARP, place.end - 1);
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                in[u][r] = load_once(work.base[r] + at * 16);
        }
    };
    auto use = [&](const half &in, const struct place &place, unsigned skip) {
#pragma unroll
        for (int u = 0; u < HALF; u++)
            if (place.at + skip + u * WARP < place.end) {
                vector sum = sum_of<TYPE>(in[u]);
#pragma unroll
                for (int r = 0; r < RANKS; r++)
                    store_streaming(work.base[r] + work.shift + (place.at + skip + u * WARP) * 16,
                                    sum);
            }
    };
    half one = {}, other = {};
    struct place place = find(draw());
    ask(one, place, 0);
    ask(other, place, STEP);
#pragma unroll 1
    while (place.end > 0) {
        const unsigned drawn = draw();
        use(one, place, 0);
        const struct place next = find(drawn);
        ask(one, next, 0);
        use(other, place, STEP);
        ask(other, next, STEP);
        place = next;
    }
}

template <class TYPE, int RANKS>
__global__ void __launch_bounds__(THREADS, 1)
    sum_kernel(const __grid_constant__ erg_collective_call call)
{
    if (!meet<RANKS>(call, false))
        return;
    sum_vectors<TYPE, RANKS>(call, call.work[0]);
    if (blockIdx.x == 0)
        do_singles<TYPE, RANKS, ERG_ALL_REDUCE>(call, call.work[0]);
    if (!meet<RANKS>(call, true) || threadIdx.x != 0)
        return;
    /*
     * The last block has synchronised with all ranks that draw here in this call; later calls
     * synchronise with this rank first.
     */
    if (atomicInc(&call.state->ended, gridDim.x - 1) == gridDim.x - 1)
        *drawn_of(call, call.rank) = 0;
}

/* ---- gather and scatter ---- */

/* One piece of one part, IN_FLIGHT vectors of a thread at a time. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION> struct mover {
    enum {
        GATHER = OPERATION == ERG_ALL_GATHER,
        SOURCES = GATHER ? 1 : RANKS,
        HALF = IN_FLIGHT / SOURCES / 2,
    };
    unsigned char *base[RANKS], *own; /* start of the share on each rank */
    unsigned char *rows;              /* of this rank, if its shard is not in the buffer */
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

    /* The address of this thread's vector of its own shard; moves `spot` to the next one. */
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
        if (GATHER) {
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                if (r != rank || rows)
                    store_vector(base[r] + index * 16, in[0]);
        } else {
            store_vector(take_place(spot, index), sum_of<TYPE>(in));
        }
    }

    /* Vectors at, at + THREADS, …, loaded and used HALF at a time. */
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

/* This block's vectors of one part: a contiguous range over all pieces. */
template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__device__ void do_vectors(const erg_collective_call &call, const erg_collective_work &work)
{
    typedef mover<TYPE, RANKS, OPERATION> mover;
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

template <class TYPE, int RANKS, erg_collective_operation OPERATION>
__global__ void __launch_bounds__(THREADS, 1)
    move_kernel(const __grid_constant__ erg_collective_call call)
{
    if (!meet<RANKS>(call, false))
        return;
    for (int part = 0; part < call.parts; part++) {
        do_vectors<TYPE, RANKS, OPERATION>(call, call.work[part]);
        if (blockIdx.x == 0) /* there are none with several pieces */
            do_singles<TYPE, RANKS, OPERATION>(call, call.work[part]);
    }
    meet<RANKS>(call, true);
}

typedef void (*kernel)(const erg_collective_call);

template <class TYPE, int RANKS> static kernel kernel_of(erg_collective_operation operation)
{
    return operation == ERG_ALL_REDUCE   ? sum_kernel<TYPE, RANKS>
           : operation == ERG_ALL_GATHER ? move_kernel<TYPE, RANKS, ERG_ALL_GATHER>
                                         : move_kernel<TYPE, RANKS, ERG_REDUCE_SCATTER>;
}

template <class TYPE> static kernel kernel_of(int ranks, erg_collective_operation operation)
{
    return ranks == 2   ? kernel_of<TYPE, 2>(operation)
           : ranks == 4 ? kernel_of<TYPE, 4>(operation)
                        : kernel_of<TYPE, 8>(operation);
}

static kernel kernel_of(enum erg_collective_type type, int ranks,
                        erg_collective_operation operation)
{
    return type == ERG_COLLECTIVE_BF16 ? kernel_of<bf16_type>(ranks, operation)
                                       : kernel_of<float_type>(ranks, operation);
}

} // namespace erg

int erg_collective_load(int ranks, struct erg_error *err)
{
    cudaFuncAttributes ignored;
    for (int type = ERG_COLLECTIVE_BF16; type <= ERG_COLLECTIVE_FLOAT; type++)
        for (int what = ERG_ALL_REDUCE; what <= ERG_REDUCE_SCATTER; what++)
            if (erg_cuda_check(cudaFuncGetAttributes(
                                   &ignored, erg::kernel_of((enum erg_collective_type)type, ranks,
                                                            (enum erg_collective_operation)what)),
                               err, "loading collectives"))
                return -1;
    return 0;
}

int erg_collective_launch(enum erg_collective_operation operation, enum erg_collective_type type,
                          int ranks, const struct erg_collective_call *call, int sms,
                          struct CUstream_st *stream, struct erg_error *err)
{
    erg::kernel_of(type, ranks, operation)<<<sms, erg::THREADS, 0, stream>>>(*call);
    return erg_cuda_check_launch("a collective", err);
}
