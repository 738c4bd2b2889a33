/*
 * Every kernel against its twin of ops/ops.h, on random inputs of odd shapes.
 */
#include "device/cuda/kernels.h"

#include "gpu_check.h"
#include "ops/ops.h"

static void check_swiglu(struct erg_rng *rng, size_t tokens, size_t width)
{
    size_t count = tokens * width, bytes = count * sizeof(erg_bf16);
    erg_bf16 *gate_up = gpu_random(rng, 2 * count, 2), *d_out = gpu_random(rng, count, 1);
    erg_bf16 *out = erg_xmalloc(bytes), *d_gate_up = erg_xmalloc(2 * bytes);
    erg_ops_swiglu_forward(tokens, width, gate_up, out);
    erg_ops_swiglu_backward(tokens, width, gate_up, d_out, d_gate_up);

    void *on_gate_up = gpu_upload(gate_up, 2 * bytes), *on_d_out = gpu_upload(d_out, bytes);
    void *on_out = gpu_alloc(bytes);
    gpu_ok(erg_cuda_swiglu_forward(tokens, width, on_gate_up, on_out, NULL, &gpu_error));
    gpu_near_bf16("SwiGLU", on_out, out, count, 1e-6);
    gpu_ok(erg_cuda_swiglu_backward(tokens, width, on_gate_up, on_d_out, on_gate_up, NULL,
                                    &gpu_error));
    gpu_near_bf16("SwiGLU backward, in place", on_gate_up, d_gate_up, 2 * count, 1e-6);

    erg_cuda_free(on_gate_up), erg_cuda_free(on_d_out), erg_cuda_free(on_out);
    free(gate_up), free(d_out), free(out), free(d_gate_up);
}

int main(void)
{
    gpu_open();
    struct erg_rng rng;
    erg_rng_seed(&rng, 1);
    check_swiglu(&rng, 1, 8);
    check_swiglu(&rng, 333, 1000);
    check_swiglu(&rng, 77, 2048);
    return gpu_result();
}
