/*
 * Layers of a decoder as instructions: against the same layers computed by the CPU twins, and every
 * way of execution against the sequential one. With ERGON_WORLD_SIZE ranks (ergon run -n N -- ...)
 * the layers are split over them.
 */
#include "device/cuda/executor.h"

#include "gpu_check.h"
#include "ops/ops.h"
#include "partition/partition.h"

enum { LAYERS = 2, SEQUENCES = 4, SEQUENCE = 160, HIDDEN = 256, HEADS = 4, GROUPS = 2, DIM = 64 };
enum { FFN = 512, TOKENS = SEQUENCES * SEQUENCE };

static char test_name[] = "test", architecture[] = "LlamaForCausalLM";

/* Enough of a Hopper GPU for the rules that drop launch slots. */
static const struct erg_gpu gpu = {
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
static const struct erg_stack stack_costs = {.name = test_name, .kv_exchange_factor = 1};

static struct erg_model model = {
    .name = test_name,
    .architecture = architecture,
    .layers = LAYERS,
    .hidden = HIDDEN,
    .heads = HEADS,
    .kv_heads = GROUPS,
    .head_dim = DIM,
    .ffn = FFN,
    .vocab = 1024,
    .norm_eps = 1e-5,
    .rope_theta = 10000,
    .gated = true,
};

struct machine {
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous;
    struct erg_cuda cuda;
    struct erg_cudnn *cudnn;
    struct erg_gemm *gemm;
    struct erg_collective *group, *library;
};

static void open_machine(struct machine *m)
{
    gpu_ok(erg_launch_environment_read(&m->env, &gpu_error));
    int count = 0;
    if (erg_cuda_count(&count, &gpu_error) || count < m->env.world) {
        printf("skipped: %d GPUs here, %d wanted\n", count, m->env.world);
        exit(GPU_SKIPPED);
    }
    gpu_ok(erg_cuda_init(&m->cuda, m->env.local_rank, &gpu_error));
    gpu_ok(erg_rendezvous_open(&m->rendezvous, &m->env, 60, &gpu_error));
    gpu_ok(erg_cudnn_open(&m->cudnn, &m->cuda, NULL, &gpu_error));
    gpu_ok(erg_gemm_open(&m->gemm, &gpu_error));
    if (m->env.world == 1)
        return;
    int ranks[ERG_COLLECTIVE_MOST_RANKS];
    for (int i = 0; i < m->env.world; i++)
        ranks[i] = i;
    struct erg_collective_options options = {&m->env,      m->rendezvous,       ranks,
                                             m->env.world, ERG_COLLECTIVE_PEER, 20};
    gpu_ok(erg_collective_open(&m->group, &options, &gpu_error));
    options.method = ERG_COLLECTIVE_LIBRARY;
    gpu_ok(erg_collective_open(&m->library, &options, &gpu_error));
    gpu_ok(erg_collective_prepare(m->library, 0, &gpu_error));
}

/* ---- the steps of an instruction ---- */

struct list {
    struct erg_run_step *items;
    size_t count, capacity;
};

/* How an instruction runs: the whole microbatch, or nanobatches whose communication is launched
 * before a random op on a random number of SMs (or at once, by the library). */
enum how { SEQUENTIAL, NANOBATCHED, OVERLAPPED };

static void build(struct list *list, struct erg_workload *workload, int tensor, bool backward,
                  bool replay, enum how how, struct erg_rng *rng)
{
    struct erg_workload_request request = {
        .model = &model,
        .gpu = &gpu,
        .stack = &stack_costs,
        .tensor = tensor,
        .context = 1,
        /* Halves of twice the microbatch are whole microbatches. */
        .microbatch_size = how == SEQUENTIAL ? 2 * SEQUENCES : SEQUENCES,
        .sequence = SEQUENCE,
        .recompute = replay,
    };
    gpu_ok(erg_workload_build(workload, &request, &gpu_error));
    const struct erg_stage_partition *partitions;
    size_t count;
    gpu_ok(erg_stage_partitions(workload, &request, LAYERS, backward, &partitions, &count,
                                &gpu_error));
    for (size_t i = 0; i < count; i++) {
        struct erg_run_step item = {.step = {.task = partitions[i].task},
                                    .nanobatch = partitions[i].nanobatch};
        struct erg_task *task = &item.step.task;
        if (how == SEQUENTIAL) { /* compute, then its own communication */
            if (item.nanobatch == 0)
                continue;
            item.nanobatch = ERG_WHOLE_MICROBATCH;
            item.step.launch = (struct erg_launch){task->op_count, 16};
        } else if (how == NANOBATCHED) {
            task->comm.library = true;
        } else {
            item.step.launch.slot = erg_rng_below(rng, task->op_count + 1);
            item.step.launch.sms = 1 + (int)erg_rng_below(rng, 32);
        }
        ERG_PUSH(list, items, item);
    }
}

struct result {
    erg_bf16 *output, *input_gradient;
    float *gradients[LAYERS][ERG_WEIGHTS];
    size_t counts[ERG_WEIGHTS];
    /* What went in. */
    erg_bf16 *input, *output_gradient, *weights[LAYERS][ERG_WEIGHTS];
};

/* Every way of execution starts from the same weights and data. */
static void note_inputs(struct result *result, const struct erg_decoder *decoder)
{
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    size_t bytes = ends.tokens * ends.hidden * sizeof(erg_bf16);
    result->input = gpu_download(ends.input, bytes);
    result->output_gradient = gpu_download(ends.output_gradient, bytes);
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            struct erg_decoder_tensor tensor =
                erg_decoder_tensor(decoder, layer, (enum erg_decoder_weight)i);
            result->counts[i] = tensor.count;
            if (tensor.count)
                result->weights[layer][i] =
                    gpu_download(tensor.weight, tensor.count * sizeof(erg_bf16));
        }
}

static void note_results(struct result *result, const struct erg_decoder *decoder)
{
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    size_t bytes = ends.tokens * ends.hidden * sizeof(erg_bf16);
    result->output = gpu_download(ends.output, bytes);
    result->input_gradient = gpu_download(ends.input_gradient, bytes);
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            struct erg_decoder_tensor tensor =
                erg_decoder_tensor(decoder, layer, (enum erg_decoder_weight)i);
            if (tensor.count)
                result->gradients[layer][i] =
                    gpu_download(tensor.gradient, tensor.count * sizeof(float));
        }
}

static void release(struct result *result)
{
    free(result->output);
    free(result->input_gradient);
    free(result->input);
    free(result->output_gradient);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            free(result->gradients[layer][i]);
            free(result->weights[layer][i]);
        }
}

static struct result execute(struct machine *m, bool replay, enum how how, uint64_t seed)
{
    struct erg_decoder_options options = {
        .cuda = &m->cuda,
        .cudnn = m->cudnn,
        .gemm = m->gemm,
        .model = &model,
        .tensor = m->env.world,
        .rank = m->env.rank,
        .group = m->group,
        .library = m->library,
        .layers = LAYERS,
        .sequences = SEQUENCES,
        .sequence = SEQUENCE,
        .replay = replay,
        .seed = 7,
    };
    struct erg_decoder *decoder;
    struct erg_executor *executor;
    gpu_ok(erg_decoder_open(&decoder, &options, &gpu_error));
    gpu_ok(erg_executor_open(&executor, decoder, &m->cuda, &gpu_error));
    struct CUstream_st *stream = erg_executor_stream(executor);
    struct result result = {0};
    note_inputs(&result, decoder);
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    for (int backward = 0; backward < 2; backward++) {
        struct erg_workload workload;
        struct list list = {0};
        struct erg_run *run;
        build(&list, &workload, m->env.world, backward, replay, how, &rng);
        gpu_ok(erg_run_new(&run, executor, list.items, list.count,
                           backward ? ERG_RUN_BACKWARD : ERG_RUN_FORWARD, &gpu_error));
        gpu_ok(erg_run_launch(run, &gpu_error));
        gpu_ok(erg_cuda_stream_sync(stream, &gpu_error));
        erg_run_free(run);
        erg_workload_release(&workload);
        free(list.items);
    }
    note_results(&result, decoder);
    erg_executor_close(executor);
    gpu_ok(erg_decoder_close(decoder, &gpu_error));
    return result;
}

/* ---- comparisons ---- */

/* |a - b| / |b| over all elements; NaN counts as different. */
static double distance(const void *a, const void *b, size_t count, bool bf16)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double x = gpu_read(a, i, bf16), y = gpu_read(b, i, bf16);
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static void check(const char *what, double distance, double allowed)
{
    bool good = distance <= allowed;
    printf("%s %s: relative distance %.2e, allowed %.0e\n", good ? "ok    " : "FAILED", what,
           distance, allowed);
    gpu_failures += !good;
}

static void compare(const char *name, const struct result *result, const struct result *reference,
                    double allowed_output, double allowed_gradient)
{
    char what[96];
    size_t count = (size_t)TOKENS * HIDDEN;
    snprintf(what, sizeof what, "%s: output", name);
    check(what, distance(result->output, reference->output, count, true), allowed_output);
    snprintf(what, sizeof what, "%s: input gradient", name);
    check(what, distance(result->input_gradient, reference->input_gradient, count, true),
          allowed_gradient);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            if (!result->counts[i])
                continue;
            snprintf(what, sizeof what, "%s: gradient %d of layer %d", name, i, layer);
            check(what,
                  distance(result->gradients[layer][i], reference->gradients[layer][i],
                           result->counts[i], false),
                  allowed_gradient);
        }
}

/* ---- the twins ---- */

struct twin { /* of one layer's activations */
    erg_bf16 *x_a, *n_a, *qkv, *rotated, *attn, *x_m, *n_m, *gate_up, *act;
    float *inv_a, *inv_m, *stats;
};

enum { ROW = (HEADS + 2 * GROUPS) * DIM, KEYS = HEADS * DIM, VALUES = (HEADS + GROUPS) * DIM };
static const struct erg_ops_qkv qkv_shape = {TOKENS, SEQUENCE, HEADS, GROUPS, DIM};
static const struct erg_ops_attention attention_shape = {
    SEQUENCES, SEQUENCE, SEQUENCE, HEADS, GROUPS, DIM, ROW, ROW, ROW, HEADS *DIM, true};

static erg_bf16 *tensor(size_t row)
{
    return erg_xcalloc(TOKENS * row, sizeof(erg_bf16));
}

static struct twin twin_forward(erg_bf16 *const *w, const erg_bf16 *input, const float *table,
                                erg_bf16 *output)
{
    struct twin t = {
        .x_a = tensor(HIDDEN),
        .n_a = tensor(HIDDEN),
        .qkv = tensor(ROW),
        .rotated = tensor(ROW),
        .attn = tensor(HEADS * DIM),
        .x_m = tensor(HIDDEN),
        .n_m = tensor(HIDDEN),
        .gate_up = tensor(2 * FFN),
        .act = tensor(FFN),
        .inv_a = erg_xcalloc(TOKENS, sizeof(float)),
        .inv_m = erg_xcalloc(TOKENS, sizeof(float)),
        .stats = erg_xcalloc((size_t)TOKENS * HEADS, sizeof(float)),
    };
    float eps = (float)model.norm_eps;
    erg_bf16 *sum = tensor(HIDDEN);
    memcpy(t.x_a, input, (size_t)TOKENS * HIDDEN * sizeof *input);
    erg_ops_norm_forward(TOKENS, HIDDEN, eps, t.x_a, NULL, w[ERG_WEIGHT_NORM_A], NULL, t.n_a,
                         t.inv_a);
    erg_ops_linear_forward(TOKENS, HIDDEN, ROW, t.n_a, w[ERG_WEIGHT_QKV], t.qkv);
    erg_ops_rope_forward(&qkv_shape, eps, w[ERG_WEIGHT_Q_NORM], w[ERG_WEIGHT_K_NORM], table, t.qkv,
                         t.rotated, ROW);
    erg_ops_attention_forward(&attention_shape, t.rotated, t.rotated + KEYS, t.qkv + VALUES, t.attn,
                              t.stats);
    erg_ops_linear_forward(TOKENS, HEADS * DIM, HIDDEN, t.attn, w[ERG_WEIGHT_PROJ], sum);
    erg_ops_norm_forward(TOKENS, HIDDEN, eps, t.x_a, sum, w[ERG_WEIGHT_NORM_M], t.x_m, t.n_m,
                         t.inv_m);
    erg_ops_linear_forward(TOKENS, HIDDEN, 2 * FFN, t.n_m, w[ERG_WEIGHT_FC1], t.gate_up);
    erg_ops_swiglu_forward(TOKENS, FFN, t.gate_up, t.act);
    erg_ops_linear_forward(TOKENS, FFN, HIDDEN, t.act, w[ERG_WEIGHT_FC2], sum);
    erg_ops_add((size_t)TOKENS * HIDDEN, t.x_m, sum, output);
    free(sum);
    return t;
}

/* d: the gradient of the layer's output, then of its input. */
static void twin_backward(const struct twin *t, erg_bf16 *const *w, float *const *g,
                          const float *table, erg_bf16 *d)
{
    erg_bf16 *d_act = tensor(FFN), *d_gate_up = tensor(2 * FFN), *d_n = tensor(HIDDEN);
    erg_bf16 *d_attn = tensor(HEADS * DIM), *d_qkv = tensor(ROW);
    float eps = (float)model.norm_eps;
    erg_ops_linear_input_gradient(TOKENS, FFN, HIDDEN, d, w[ERG_WEIGHT_FC2], d_act);
    erg_ops_linear_weight_gradient(TOKENS, FFN, HIDDEN, t->act, d, g[ERG_WEIGHT_FC2]);
    erg_ops_swiglu_backward(TOKENS, FFN, t->gate_up, d_act, d_gate_up);
    erg_ops_linear_input_gradient(TOKENS, HIDDEN, 2 * FFN, d_gate_up, w[ERG_WEIGHT_FC1], d_n);
    erg_ops_linear_weight_gradient(TOKENS, HIDDEN, 2 * FFN, t->n_m, d_gate_up, g[ERG_WEIGHT_FC1]);
    erg_ops_norm_backward(TOKENS, HIDDEN, t->x_m, w[ERG_WEIGHT_NORM_M], t->inv_m, d_n, d, d,
                          g[ERG_WEIGHT_NORM_M]);
    erg_ops_linear_input_gradient(TOKENS, HEADS * DIM, HIDDEN, d, w[ERG_WEIGHT_PROJ], d_attn);
    erg_ops_linear_weight_gradient(TOKENS, HEADS * DIM, HIDDEN, t->attn, d, g[ERG_WEIGHT_PROJ]);
    erg_ops_attention_backward(&attention_shape, t->rotated, t->rotated + KEYS, t->qkv + VALUES,
                               t->attn, t->stats, d_attn, d_qkv, d_qkv + KEYS, d_qkv + VALUES);
    erg_ops_rope_backward(&qkv_shape, eps, w[ERG_WEIGHT_Q_NORM], w[ERG_WEIGHT_K_NORM], table,
                          t->qkv, d_qkv, g[ERG_WEIGHT_Q_NORM], g[ERG_WEIGHT_K_NORM]);
    erg_ops_linear_input_gradient(TOKENS, HIDDEN, ROW, d_qkv, w[ERG_WEIGHT_QKV], d_n);
    erg_ops_linear_weight_gradient(TOKENS, HIDDEN, ROW, t->n_a, d_qkv, g[ERG_WEIGHT_QKV]);
    erg_ops_norm_backward(TOKENS, HIDDEN, t->x_a, w[ERG_WEIGHT_NORM_A], t->inv_a, d_n, d, d,
                          g[ERG_WEIGHT_NORM_A]);
    free(d_act), free(d_gate_up), free(d_n), free(d_attn), free(d_qkv);
}

static void twin_release(struct twin *t)
{
    free(t->x_a), free(t->n_a), free(t->qkv), free(t->rotated), free(t->attn), free(t->x_m);
    free(t->n_m), free(t->gate_up), free(t->act), free(t->inv_a), free(t->inv_m), free(t->stats);
}

/* What the CPU makes of the inputs of `result`. */
static void check_twins(const struct result *result)
{
    size_t bytes = (size_t)TOKENS * HIDDEN * sizeof(erg_bf16);
    struct result twin = {.output = erg_xmalloc(bytes), .input_gradient = erg_xmalloc(bytes)};
    memcpy(twin.counts, result->counts, sizeof twin.counts);
    float *table = erg_xcalloc((size_t)SEQUENCE * DIM, sizeof *table);
    erg_ops_rope_table(SEQUENCE, NULL, DIM, model.rope_theta, table);
    struct twin layers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        layers[i] =
            twin_forward(result->weights[i], i ? twin.output : result->input, table, twin.output);
    memcpy(twin.input_gradient, result->output_gradient, bytes);
    for (int i = LAYERS - 1; i >= 0; i--) {
        for (int k = 0; k < ERG_WEIGHTS; k++)
            if (twin.counts[k])
                twin.gradients[i][k] = erg_xcalloc(twin.counts[k], sizeof(float));
        twin_backward(&layers[i], result->weights[i], twin.gradients[i], table,
                      twin.input_gradient);
        twin_release(&layers[i]);
    }
    compare("CPU twins", result, &twin, 1e-2, 2e-2);
    free(table);
    release(&twin);
}

/* ---- all of it ---- */

static void check_model(struct machine *m, bool replay)
{
    printf("-- %s heads, activations %s\n", model.qk_norm ? "normalised" : "plain",
           replay ? "replayed" : "kept");
    struct result sequential = execute(m, replay, SEQUENTIAL, 0);
    if (m->env.world == 1)
        check_twins(&sequential);
    struct result again = execute(m, replay, SEQUENTIAL, 0);
    compare("sequential again", &again, &sequential, 0, 1e-4);
    release(&again);
    /* Products of another size may add in another order. */
    struct result nanobatched = execute(m, replay, OVERLAPPED, 1);
    compare("nanobatches", &nanobatched, &sequential, 1e-2, 1e-2);
    for (uint64_t seed = 2; m->env.world > 1 && seed <= 6; seed++) {
        char name[40];
        snprintf(name, sizeof name, "schedule %d", (int)seed);
        struct result overlapped = execute(m, replay, OVERLAPPED, seed);
        compare(name, &overlapped, &nanobatched, 0, 1e-4);
        release(&overlapped);
    }
    if (m->env.world > 1) {
        struct result library = execute(m, replay, NANOBATCHED, 0);
        compare("the library's communication", &library, &nanobatched, 1e-2, 1e-2);
        release(&library);
    }
    release(&nanobatched);
    release(&sequential);
}

int main(void)
{
    struct machine m = {0};
    open_machine(&m);
    for (int norms = 0; norms < 2; norms++)
        for (int replay = 0; replay < 2; replay++) {
            model.qk_norm = norms;
            check_model(&m, replay);
        }
    erg_collective_close(m.library);
    erg_collective_close(m.group);
    erg_gemm_close(m.gemm);
    erg_cudnn_close(m.cudnn);
    erg_rendezvous_close(m.rendezvous);
    return gpu_result();
}
