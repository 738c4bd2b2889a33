/*
 * Messages over peer memory: the sender says where one lies, the receiver copies it and says so. A
 * sender's kernel is one warp, so that it takes no SM from what runs beside it while it waits.
 */
#include "device/cuda/collective.cuh"

namespace erg
{

enum { THREADS = 512, IN_FLIGHT = 8 };

static __device__ struct erg_message_offer *offer_to(const erg_message_call &call, int rank)
{
    return reinterpret_cast<struct erg_message_offer *>(call.group.signals[rank] +
                                                        ERG_SIGNAL_OFFER);
}

static __device__ uint32_t *taken_of(const erg_message_call &call, int rank)
{
    return call.group.signals[rank] + ERG_SIGNAL_TAKEN;
}

/* One thread. */
static __global__ void send_kernel(const __grid_constant__ erg_message_call call)
{
    struct erg_collective_state *state = call.group.state;
    volatile struct erg_message_offer *offer = offer_to(call, call.peer);
    const uint32_t number = state->sent + 1;
    offer->offset = call.offset;
    offer->bytes = call.bytes;
    store_release(&offer_to(call, call.peer)->number, number);
    await_signal(call.group, taken_of(call, call.group.rank), number, call.peer, number);
    state->sent = number;
}

static __device__ void copy(const erg_message_call &call, uint64_t offset)
{
    const unsigned char *from = call.from + offset;
    const size_t all = call.bytes / 16, step = (size_t)gridDim.x * THREADS;
    for (size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x; at < all; at += step * IN_FLIGHT) {
        vector in[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            in[k] = load_once(from + min(at + k * step, all - 1) * 16);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            if (at + k * step < all)
                store_vector(call.to + (at + k * step) * 16, in[k]);
    }
}

static __global__ void __launch_bounds__(THREADS, 1)
    receive_kernel(const __grid_constant__ erg_message_call call)
{
    struct erg_collective_state *state = call.group.state;
    const struct erg_message_offer *offer = offer_to(call, call.group.rank);
    const uint32_t number = state->received + 1;
    bool here = true;
    if (threadIdx.x == 0) {
        here = await_signal(call.group, &offer->number, number, call.peer, number);
        if (here && *(const volatile uint64_t *)&offer->bytes != call.bytes) {
            give_up(call.group, (uint32_t)call.peer, number);
            here = false;
        }
    }
    if (!__syncthreads_and(here))
        return;
    copy(call, *(const volatile uint64_t *)&offer->offset);
    __syncthreads();
    /* The last block knows that all have copied. */
    if (threadIdx.x == 0 && atomicInc(&state->copied, gridDim.x - 1) == gridDim.x - 1) {
        state->received = number;
        store_release(taken_of(call, call.peer), number);
    }
}

} // namespace erg

int erg_message_load(struct erg_error *err)
{
    cudaFuncAttributes ignored;
    return erg_cuda_check(cudaFuncGetAttributes(&ignored, erg::send_kernel), err,
                          "loading messages") ||
                   erg_cuda_check(cudaFuncGetAttributes(&ignored, erg::receive_kernel), err,
                                  "loading messages")
               ? -1
               : 0;
}

int erg_message_launch_send(const struct erg_message_call *call, struct CUstream_st *stream,
                            struct erg_error *err)
{
    erg::send_kernel<<<1, 1, 0, stream>>>(*call);
    return erg_cuda_check_launch("a message to a rank", err);
}

int erg_message_launch_receive(const struct erg_message_call *call, int sms,
                               struct CUstream_st *stream, struct erg_error *err)
{
    erg::receive_kernel<<<sms, erg::THREADS, 0, stream>>>(*call);
    return erg_cuda_check_launch("a message from a rank", err);
}
