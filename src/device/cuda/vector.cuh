/*
 * Functions shared by the kernels: eight bf16 as one 16-byte load, sums over warps and blocks, and
 * the check of shapes. bf16 is converted by hand: the vendor's header doubles the compile time.
 */
#ifndef ERG_CUDA_VECTOR_CUH
#define ERG_CUDA_VECTOR_CUH

#include "device/cuda/cuda_internal.h"
#include "device/cuda/kernels.h"

#include <stdint.h>

namespace erg
{

enum { LANES = 32, VECTOR = 8 /* elements */ };

typedef uint4 vector;

__device__ inline vector load(const erg_bf16 *from)
{
    return *reinterpret_cast<const vector *>(from);
}

__device__ inline void store(erg_bf16 *to, vector value)
{
    *reinterpret_cast<vector *>(to) = value;
}

__device__ inline void load_floats(float (&to)[VECTOR], const float *from)
{
    const float4 *quads = reinterpret_cast<const float4 *>(from);
    const float4 low = quads[0], high = quads[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

__device__ inline void store_floats(float *to, const float (&values)[VECTOR])
{
    float4 *quads = reinterpret_cast<float4 *>(to);
    quads[0] = make_float4(values[0], values[1], values[2], values[3]);
    quads[1] = make_float4(values[4], values[5], values[6], values[7]);
}

/* Written data leaves the L2 cache before data that other blocks read. */
__device__ inline void store_stream(erg_bf16 *to, vector value)
{
    __stcs(reinterpret_cast<vector *>(to), value);
}

__device__ inline void unpack(float (&wide)[VECTOR], vector v)
{
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wide[2 * i] = __uint_as_float(words[i] << 16);
        wide[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

__device__ inline uint32_t pack(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

__device__ inline vector pack(const float (&wide)[VECTOR])
{
    return make_uint4(pack(wide[0], wide[1]), pack(wide[2], wide[3]), pack(wide[4], wide[5]),
                      pack(wide[6], wide[7]));
}

/* Starts copying a vector into shared memory, zeros if not `inside`; part of the next commit(). */
__device__ inline void fetch(vector *shared, const erg_bf16 *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ inline void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all but this thread's latest `pending` commits have arrived. */
template <int pending> __device__ inline void wait_fetched()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/*
 * Programmatic dependent launch (CUDA C++ Programming Guide), from compute capability 9.0 on: a
 * following kernel begins when all blocks of the stream's last kernel have allowed it or have
 * ended; in wait_for_last() it waits until that kernel's writes are visible. All kernels of
 * operations follow, which saves a microsecond each, and so must wait before they access memory.
 */
__device__ inline void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void wait_for_last()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Launches a following kernel; erg_cuda_check_launch() checks that it was accepted. */
template <class... Parameters, class... Arguments>
void follow(void (*kernel)(Parameters...), dim3 blocks, size_t threads, size_t shared_bytes,
            struct CUstream_st *stream, const Arguments &...arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaLaunchConfig_t launch = {};
    launch.gridDim = blocks;
    launch.blockDim = dim3((unsigned)threads);
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = stream;
    launch.attrs = &attribute;
    launch.numAttrs = major >= 9;
    cudaLaunchKernelEx(&launch, kernel, arguments...);
}

template <class T> __device__ inline T sum_over_lanes(T value, int lanes)
{
    for (int mask = lanes / 2; mask > 0; mask /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

/*
 * Sums `values` over the block; every thread gets the same bits. One barrier: `shared` must not be
 * written again before another barrier.
 */
template <int N>
__device__ inline void sum_over_block(float (&values)[N], float (&shared)[N][LANES])
{
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
#pragma unroll
    for (int i = 0; i < N; i++) {
        values[i] = sum_over_lanes(values[i], LANES);
        if (lane == 0)
            shared[i][warp] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        values[i] = sum_over_lanes(lane < warps ? shared[i][lane] : 0.0f, LANES);
}

/*
 * The second stage of a weight's gradient: to[c] += the sum of partials[p][c] over p < count. The
 * stream's last kernel computed these; its blocks call let_next_begin() before they store their
 * partial sums.
 */
struct partials {
    uint32_t count;
    const float *from;
    float *to;
};

enum {
    MAX_PARTIALS = 2,
    /*
     * Blocks of a first stage, each with one partial sum: two for each of 132 SMs, which saturate
     * the memory. At least twice as many fit on the GPU, so other work may use half the SMs.
     */
    PARTIAL_BLOCKS = 264,
};

/* Enqueues one kernel for up to MAX_PARTIALS weights of `columns` elements, a multiple of 4. */
void add_partials(size_t columns, const struct partials *sums, int count,
                  struct CUstream_st *stream);

inline size_t blocks_for(size_t items, size_t per_block)
{
    return (items + per_block - 1) / per_block;
}

/* Rows must be whole vectors, and the number of vectors of a tensor must fit in 32 bits. */
inline int check_width(const char *kernel, size_t tokens, size_t width, size_t multiple,
                       struct erg_error *err)
{
    if (width == 0 || width % multiple != 0)
        return erg_fail(err, ERG_FAILED, "%s: rows of %zu elements, expected a multiple of %zu",
                        kernel, width, multiple);
    if (tokens > UINT32_MAX / (width / VECTOR + 1))
        return erg_fail(err, ERG_FAILED,
                        "%s: %zu rows of %zu elements, expected fewer than 2^35 elements", kernel,
                        tokens, width);
    return 0;
}

} // namespace erg

#endif
