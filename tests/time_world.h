/* Vocabulary, machine and engine of the published time model. */
#ifndef ERGON_TESTS_TIME_WORLD_H
#define ERGON_TESTS_TIME_WORLD_H

#include "layout/time/time.h"
#include "llama.h"

/* Words of the published models, the end token among them. */
enum { PUBLISHED_WORDS = 32005 };

static const struct erg_time_machine h800 = {
    .memory_bandwidth = 3.35e12,
    .link_bandwidth = 200e9,
    .network_bandwidth = 12.5e9,
    .node_gpus = 8,
};

/* As published: k_tp, k_dp and k_p 1, 5 constants of the full fit for the rest. */
static inline struct erg_engine published_engine(void)
{
    return (struct erg_engine){
        .peak_flops = 989.4e12,
        .gemm_efficiency = 0.594,
        .whole_head_efficiency = 1,
        .attention_efficiency = 0.35,
        .attention_backward_efficiency = 0.35,
        .memory_efficiency = 0.8,
        .activation_factor = 2,
        .loss_bytes = 30,
        .fused_kernels = true,
        .layer_overhead_s = 333e-6,
        .link_efficiency = 1,
        .network_efficiency = 1,
        .sequence_parallel = true,
        .tensor_forward = 0.5 * 1.122,
        .tensor_forward_context = 0.5 * 1.122,
        .context_exposed = 0.5,
        .context_exposed_grouped = 1,
        .pipeline_exposed = 0.351,
        .pipeline_ends_exposed = 0.351,
        .gradient_bytes = 1.188 * 6,
        .optimizer_bytes = 24,
        .optimizer_sharded_bytes = 28,
        .host_link_bandwidth = 64e9,
        .offload_interference = 0.04,
    };
}

#endif
