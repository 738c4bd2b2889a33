/*
 * What tests of decoders on meshes of ranks share: a small model, the ranks' machines, and a main
 * program that runs itself on one mesh after the other. Where a mesh has more ranks than there are
 * GPUs, they share them, which works for our collectives but not for the library's.
 */
#ifndef ERGON_GPU_DECODER_MESH_H
#define ERGON_GPU_DECODER_MESH_H

#include "decoder_twin.h"
#include "device/cuda/executor.h"
#include "gpu_ranks.h"
#include "ops/context.h"
#include "partition/partition.h"

static char test_name[] = "test", architecture[] = "LlamaForCausalLM";

/* Enough of a Hopper GPU for the rules that drop launch slots. */
static const struct erg_gpu test_gpu = {
    .name = test_name,
    .sms = 132,
    .clock_max_mhz = 1980,
    .flops_per_sm_clock = 4096,
    .memory_bandwidth = 3e12,
    .link_bandwidth = 4e11,
    .search_max_mhz = 1980,
    .search_min_mhz = 1980,
    .search_step_mhz = 15,
    .gemm_efficiency = 0.7,
    .gemm_k0 = 64,
    .gemm_tile_m = 128,
    .gemm_tile_n = 256,
    .attention_forward = 0.5,
    .attention_backward = 0.4,
    .memory_efficiency = 0.9,
    .memory_issue = 1.3,
    .comm_sm_rate = 2.5e10,
    .comm_gather = 1,
    .comm_scatter = 1,
    .comm_link_factor = 0.8,
    .comm_latency_s = 3e-5,
    .comm_blend = 3.6,
    .library_link_factor = 0.8,
    .library_sm_share = 1,
    .library_blocks = 16,
    .static_power_w = 120,
    .power_cap_w = 1e6,
    .cap_softness_mhz = 15,
    .head_gemm_factor = 1,
};
static const struct erg_stack test_stack = {.name = test_name, .kv_exchange_factor = 1};

static struct erg_model test_model = {
    .name = test_name,
    .architecture = architecture,
    .layers = LAYERS,
    .hidden = HIDDEN,
    .heads = HEADS,
    .kv_heads = GROUPS,
    .head_dim = DIM,
    .ffn = FFN,
    .vocab = 1024,
    .norm_eps = NORM_EPS,
    .rope_theta = ROPE_THETA,
    .gated = true,
};

struct machine {
    struct gpu_world world;
    struct erg_cudnn *cudnn;
    struct erg_gemm *gemm;
    struct erg_mesh mesh;
    bool shared; /* GPUs have several ranks */
    size_t tensor, context, tensor_place, context_place;
    size_t tokens;      /* of this rank */
    int32_t *positions; /* [tokens]: which of the whole's TOKENS each is */
};

static inline void open_machine(struct machine *m, int tensor, int context)
{
    int gpus;
    gpu_ok(erg_cuda_count(&gpus, &gpu_error));
    gpu_ok(erg_launch_environment_read(&m->world.env, &gpu_error));
    gpu_meet(&m->world);
    m->shared = m->world.env.world > gpus;
    gpu_ok(erg_cudnn_open(&m->cudnn, &m->world.cuda, NULL, &gpu_error));
    gpu_ok(erg_gemm_open(&m->gemm, &gpu_error));
    struct erg_mesh_options options = {
        .env = &m->world.env,
        .rendezvous = m->world.rendezvous,
        .tensor = tensor,
        .context = context,
        .library = !m->shared,
        .timeout_s = 20,
    };
    gpu_ok(erg_mesh_open(&m->mesh, &options, &gpu_error));
    m->tensor = (size_t)tensor;
    m->context = (size_t)context;
    m->tensor_place = (size_t)m->mesh.places[ERG_MESH_TENSOR];
    m->context_place = (size_t)m->mesh.places[ERG_MESH_CONTEXT];
    m->tokens = TOKENS / m->context;
    m->positions = erg_xcalloc(m->tokens, sizeof *m->positions);
    size_t sequence = SEQUENCE / m->context;
    for (size_t s = 0; s < SEQUENCES; s++) {
        erg_context_positions(SEQUENCE, m->context, m->context_place, m->positions + s * sequence);
        for (size_t i = 0; i < sequence; i++)
            m->positions[s * sequence + i] += (int32_t)(s * SEQUENCE);
    }
}

static inline void close_machine(struct machine *m)
{
    erg_mesh_close(&m->mesh);
    erg_gemm_close(m->gemm);
    erg_cudnn_close(m->cudnn);
    erg_rendezvous_close(m->world.rendezvous);
    free(m->positions);
}

/* This rank's rows of the whole's [TOKENS, HIDDEN]. */
static inline erg_bf16 *own_rows(const struct machine *m, const erg_bf16 *whole)
{
    erg_bf16 *rows = erg_xcalloc(m->tokens * HIDDEN, sizeof *rows);
    for (size_t i = 0; i < m->tokens; i++)
        memcpy(rows + i * HIDDEN, whole + (size_t)m->positions[i] * HIDDEN, HIDDEN * sizeof *rows);
    return rows;
}

/* `options` says how many layers, and what is special about them. */
static inline void open_decoder(struct machine *m, struct erg_decoder_options options,
                                struct erg_decoder **decoder, struct erg_executor **executor)
{
    options.cuda = &m->world.cuda;
    options.cudnn = m->cudnn;
    options.gemm = m->gemm;
    options.model = &test_model;
    options.mesh = &m->mesh;
    options.sequences = SEQUENCES;
    options.sequence = SEQUENCE;
    options.seed = 7;
    gpu_ok(erg_decoder_open(decoder, &options, &gpu_error));
    gpu_ok(erg_executor_open(executor, *decoder, &m->world.cuda, &gpu_error));
}

/* What the whole program runs: `check` on each mesh, as ranks that it starts. */
static inline int run_on_meshes(int argc, char **argv, void (*check_mesh)(struct machine *m))
{
    static const char *const meshes[] = {"1x1", "2x1", "1x2", "2x2", "4x1", "1x4"};
    int tensor = 1, context = 1, gpus = 0, failed = 0;
    if (argc > 1) {
        struct machine m = {0};
        if (sscanf(argv[1], "%dx%d", &tensor, &context) != 2)
            return 2;
        open_machine(&m, tensor, context);
        check_mesh(&m);
        close_machine(&m);
        return gpu_result();
    }
    if (erg_cuda_count(&gpus, &gpu_error) || gpus == 0) {
        printf("skipped: no GPU here (%s)\n", gpu_error.message);
        return GPU_SKIPPED;
    }
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        sscanf(meshes[i], "%dx%d", &tensor, &context);
        printf("== tensor %d x context %d%s\n", tensor, context,
               tensor * context > gpus ? ", ranks share GPUs" : "");
        fflush(stdout);
        failed |= gpu_run_ranks(tensor * context, meshes[i]) != 0;
    }
    return failed;
}

#endif
