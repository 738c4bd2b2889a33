/* Models whose first layers have no experts: times, energies, splits and points of studies, against
 * sums by hand. */
#include "check.h"
#include "folder.h"
#include "memory_world.h"
#include "program.h"
#include "study_point.h"

#include "layout/energy/layout_energy.h"
#include "layout/search/layout_search.h"

/* Weights of DeepSeek V3's products by hand. Attention: queries 7168 x 1536 + 1536 x 128 x 192,
 * keys and values 7168 x (512 + 64) + 512 x 128 x (128 + 128), output 128 x 128 x 7168. A plain FFN
 * has three products of 7168 x 18432. A token passes 8 experts and the shared one of 2048 channels,
 * and a router of 256 columns. */
static const double attention_weights = 48758784.0 + 4128768 + 16777216 + 117440512;
static const double plain_weights = 396361728.0, routed_weights = 396361728.0 + 1835008;
static const double expert_weights = 3.0 * 7168 * 2048;

/* Every share is 1, so that times are FLOPs and bytes over these rates. */
static const struct erg_engine plain_engine = {
    .name = (char *)(uintptr_t) "plain",
    .peak_flops = 1e15,
    .gemm_efficiency = 1,
    .expert_gemm_efficiency = 1,
    .expert_exposed = 1,
    .whole_head_efficiency = 1,
    .attention_efficiency = 1,
    .attention_backward_efficiency = 1,
    .memory_efficiency = 1,
    .activation_factor = 1,
    .fused_kernels = true,
    .sequence_parallel = true,
    .link_efficiency = 1,
    .network_efficiency = 1,
    .gradient_bytes = 4,
    .optimizer_bytes = 20,
    .optimizer_sharded_bytes = 8,
    .pipeline_exposed = 1,
    .pipeline_ends_exposed = 1,
};
static const struct erg_time_machine machine = {
    .memory_bandwidth = 1e12,
    .link_bandwidth = 450e9,
    .network_bandwidth = 50e9,
    .node_gpus = 8,
};

static const long v3_layers[16] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3};

static struct erg_layout v3_layout(const long *layers)
{
    return (struct erg_layout){.tensor = 1,
                               .context = 1,
                               .pipeline = 16,
                               .data = 8,
                               .expert = 8,
                               .virtual_stages = 1,
                               .chunk_layers = layers,
                               .microbatch = 1,
                               .microbatches = 32,
                               .sequence = 4096,
                               .recompute = ERG_RECOMPUTE_FULL};
}

/*
 * 671,026,419,200 parameters, 37,552,297,472 of a token. Forward FLOPs of a token: twice the
 * weights of 61 attentions, 3 plain FFNs, 58 mixtures and the head of 7168 x 129280, and half of 2
 * x 4096 x 128 x (192 + 128) per layer for causal attention. A training step has three times as
 * many.
 */
static void flops_of_a_token(void **state)
{
    (void)state;
    struct erg_model *model = load_model("deepseek-v3", 0);
    const double products = 61 * attention_weights + 3 * plain_weights + 58 * routed_weights;
    const double head = 7168 * 129280.0, scores = 4096.0 * 128 * 320 * 61;
    assert_near(erg_model_parameters(model), 671026419200.0, 0);
    assert_near(erg_model_active_parameters(model), 37552297472.0, 0);
    assert_close(erg_time_flops_per_token(model, 4096), 3 * (2 * products + 2 * head + scores),
                 1e-12);
    erg_model_free(model);
}

/* Three plain layers and one with experts on the first stage, four with experts on the second. */
static void a_stage_sums_its_own_layers(void **state)
{
    (void)state;
    struct erg_model *model = load_model("deepseek-v3", 0);
    struct erg_model dense = erg_model_without_experts(model), mixture = *model;
    mixture.experts.dense_layers = 0;
    const struct erg_layout layout = v3_layout(v3_layers);
    const struct erg_time_request request = {model, &plain_engine, &machine};
    const struct erg_time_request as_dense = {&dense, &plain_engine, &machine};
    const struct erg_time_request as_mixture = {&mixture, &plain_engine, &machine};
    struct erg_time_parts parts, plain, routed;
    erg_time_parts_of(&parts, &request, &layout, 128);
    erg_time_parts_of(&plain, &as_dense, &layout, 128);
    erg_time_parts_of(&routed, &as_mixture, &layout, 128);
    const double tokens = 4096;
    assert_close(parts.dense.forward[ERG_TIME_LINEAR],
                 2 * tokens * (attention_weights + plain_weights) / 1e15, 1e-12);
    assert_close(parts.forward[ERG_TIME_LINEAR],
                 2 * tokens * (attention_weights + routed_weights) / 1e15, 1e-12);
    assert_near(parts.dense.forward[ERG_TIME_EXPERT], 0, 0);
    assert_near(parts.dense.parameters, attention_weights + 16384 + plain_weights, 0);
    assert_true(parts.dense.forward_s < parts.forward_s); /* it sends no rows */
    struct erg_time_place place;
    erg_time_place_init(&place, &request, &parts, &layout, 450e9);
    const double plain_s = 2 * plain.forward_s + plain.backward_s;
    const double routed_s = 2 * routed.forward_s + routed.backward_s;
    double sum = 0, longest = 0;
    for (long stage = 0; stage < 16; stage++) {
        struct erg_time_stage cost;
        erg_time_stage_init(&cost, &place, &layout, stage);
        const double own_s = (double)v3_layers[stage] * cost.layer_s + cost.fixed_s;
        const double dense_layers = stage == 0 ? 3 : 0;
        assert_int_equal(cost.dense, dense_layers);
        assert_close(own_s - cost.message_s - (stage == 15 ? parts.head_s : 0),
                     dense_layers * plain_s + ((double)v3_layers[stage] - dense_layers) * routed_s,
                     1e-12);
        sum += own_s;
        longest = fmax(longest, own_s);
    }
    struct erg_time time;
    erg_time_layout(&time, &request, &layout);
    assert_close(time.total,
                 32 * longest + sum - longest + time.items[ERG_TIME_GRADIENTS] +
                     time.items[ERG_TIME_OPTIMIZER],
                 1e-12);
    double items_s = 0;
    for (int i = 0; i < ERG_TIME_ITEMS; i++)
        items_s += time.items[i];
    assert_close(items_s, time.total, 1e-12);
    erg_model_free(model);
}

/* With 5 layers on the first stage, 2 of them with experts, it is the slowest one: its own items.
 */
static void the_slowest_stage_may_have_both(void **state)
{
    (void)state;
    struct erg_model *model = load_model("deepseek-v3", 0);
    const long layers[16] = {9, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 1};
    const struct erg_layout layout = v3_layout(layers);
    const struct erg_time_request request = {model, &plain_engine, &machine};
    struct erg_time time;
    erg_time_layout(&time, &request, &layout);
    const double weights = 9 * attention_weights + 3 * plain_weights + 6 * routed_weights;
    assert_close(time.items[ERG_TIME_LINEAR], 32 * 3 * 2 * 4096.0 * weights / 1e15, 1e-12);
    /* 32 experts a GPU of 8 ranks, alone with them; the embedding's rows, 7/8 of 4 bytes. */
    const double dense = 9 * (attention_weights + 16384) + 3 * plain_weights +
                         6 * (routed_weights - 8 * expert_weights + 256) + 7168 * 129280.0;
    assert_close(time.items[ERG_TIME_GRADIENTS], dense * 4 * 7 / 8 / 450e9, 1e-12);
    assert_close(time.items[ERG_TIME_OPTIMIZER],
                 (dense * (20 + 8 / 8.0) + 6 * 32 * expert_weights * (20 + 8.0)) / 1e12, 1e-12);
    erg_model_free(model);
}

/* At the highest clock the energy model takes the time model's time; its items are a sum. */
static void energy_takes_the_time_of_both(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("deepseek-v3", 0);
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    assert_ok(erg_engine_load(&engine, "nemo-hopper", &err), &err);
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        struct erg_layout layout = v3_layout(v3_layers);
        const struct erg_layout_energy_request request = {.time = {model, engine, &machine},
                                                          .gpu = gpu};
        struct erg_layout_energy energy;
        struct erg_time time;
        struct erg_time_parts parts;
        struct erg_layout_work work;
        layout.recompute = (enum erg_recompute)recompute;
        erg_layout_energy_whole(&energy, &request, &layout);
        erg_time_layout(&time, &request.time, &layout);
        assert_close(energy.time_s, time.total, 1e-9);
        double sum = 0;
        for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
            sum += energy.items[i];
        assert_close(sum, energy.total_j, 1e-12);
        erg_time_parts_of(&parts, &request.time, &layout, 128);
        erg_layout_work_of(&work, &request, &parts, &layout, 128);
        assert_int_equal(work.pass_count, ERG_PASSES);
        assert_close(work.passes[ERG_PASS_DENSE_FORWARD].flops[0],
                     2 * 4096.0 * (attention_weights + plain_weights), 1e-12);
        assert_near(work.passes[ERG_PASS_DENSE_FORWARD].wire_bytes, 0, 0);
    }
    erg_engine_free(engine);
    erg_gpu_free(gpu);
    erg_model_free(model);
}

/* A search finds the fastest of all splits whose first stage has the layers without experts: 2 of
 * 8, the others with 32 experts. */
static void a_search_finds_the_fastest_split(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("deepseek-v3", 0);
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    assert_ok(erg_engine_load(&engine, "nemo-hopper", &err), &err);
    model->layers = 8;
    model->experts.count = 32;
    model->experts.dense_layers = 2;
    for (long pipeline = 2; pipeline <= 4; pipeline += 2)
        for (int full = 0; full < 2; full++) {
            const enum erg_recompute recompute = full ? ERG_RECOMPUTE_FULL : ERG_RECOMPUTE_NONE;
            struct erg_layout_search search = {
                .model = model,
                .kinds = {{.name = gpu->name,
                           .gpu = gpu,
                           .engine = engine,
                           .machine = machine,
                           .gpus = 8 * pipeline,
                           .memory_bytes = 125e9}},
                .kind_count = 1,
                .gpus = 8 * pipeline,
                .sequence = 4096,
                .batch_least = 64,
                .batch_most = 64,
                .recomputes = 1u << recompute,
                .only = {.tensor = 1, .expert = 8, .microbatch = 1, .data = 8},
                .top = 1,
            };
            struct erg_layout_results found;
            long layers[4] = {0}, best[4] = {0};
            double best_s = INFINITY;
            search.kinds[0].machine.memory_bandwidth = gpu->memory_bandwidth;
            const struct erg_time_request request = {model, engine, &search.kinds[0].machine};
            assert_ok(erg_layout_search(&found, &search, &err), &err);
            for (layers[0] = 2; layers[0] < 8; layers[0]++)
                for (layers[1] = 1; layers[1] < 8; layers[1]++)
                    for (layers[2] = pipeline > 2; layers[2] < (pipeline > 2 ? 8 : 1);
                         layers[2]++) {
                        struct erg_layout layout = v3_layout(layers);
                        struct erg_time time;
                        const long rest = 8 - layers[0] - layers[1] - layers[2];
                        if (pipeline > 2 ? rest < 1 : rest != 0)
                            continue;
                        layers[3] = rest;
                        layout.pipeline = pipeline;
                        layout.microbatches = 8;
                        layout.recompute = recompute;
                        erg_time_layout(&time, &request, &layout);
                        if (time.total < best_s) {
                            best_s = time.total;
                            memcpy(best, layers, sizeof best);
                        }
                    }
            assert_int_equal(found.count, 1);
            assert_close(found.items[0].time.total, best_s, 1e-12);
            for (long stage = 0; stage < pipeline; stage++)
                assert_int_equal(erg_layout_stage_layers(&found.items[0].layout, 8, stage),
                                 best[stage]);
            erg_layout_results_release(&found);
        }
    erg_engine_free(engine);
    erg_gpu_free(gpu);
    erg_model_free(model);
}

/* An emulated point: every second and joule of a traced GPU is in a category or idle, and the first
 * stage, which sends no rows for its plain layers, runs its passes in less time. */
static void a_point_has_both(void **state)
{
    (void)state;
    static const long layers[4] = {3, 2, 2, 1};
    struct test_study study;
    study_open(&study, "deepseek-v3", "e=8,t=1,p=4,v=1", 4096, 1, ERG_RECOMPUTE_FULL);
    struct erg_model *model = study.model;
    model->layers = 8;
    model->experts.count = 32;
    study.point.layout.virtual_stages = 1;
    study.point.layout.chunk_layers = layers;
    study.point.layout.data = 8;
    study.point.layout.microbatches = 16;
    struct erg_study_result result = study_run(&study);
    assert_int_equal(result.status, ERG_RESULT_OK);
    assert_int_equal(result.kernels_count, 4);
    for (size_t k = 0; k < result.kernels_count; k++) {
        const struct erg_result_kernels *kernels = &result.kernels[k];
        double seconds = kernels->idle_s, joules = kernels->idle_j;
        for (size_t c = 0; c < kernels->category_count; c++) {
            seconds += kernels->categories[c].exposed_s;
            joules += kernels->categories[c].energy_j;
        }
        assert_close(seconds, result.metrics.time_s, 1e-9);
        assert_close(joules, result.gpu[kernels->rank].energy_j, 1e-9);
    }
    assert_true(result.stages[0].forward_s / 3 < result.stages[1].forward_s / 2);
    /* Rows go to 8 ranks from every layer but the three: forward, again, and backward. */
    const double rows = 16.0 * 5 * 6 * 4096 * 8 * 7168 * 2 * 7 / 8;
    double sent = 0;
    for (size_t k = 0; k < result.gpu_count; k++)
        sent += result.gpu[k].sent.nvlink;
    assert_close(sent, 8 * rows, 0.2); /* and gradients */
    study_close(&study);
}

static void commands_know_the_model(void **state)
{
    (void)state;
    write_text("job.yaml", "model: deepseek-v3\ncluster:\n  gpu: h200-sxm\n  nodes: 64\n"
                           "  gpus_per_node: 8\n  inter_node_bandwidth_gb_s: 400\n"
                           "engine: nemo-hopper\npipeline: 16\ndata: 32\nexpert: 32\n"
                           "layers: [4,4,4,4,4,4,4,4,4,4,4,4,4,3,3,3]\nmicrobatch_size: 1\n"
                           "microbatches: 64\nsequence: 4096\nrecompute: full\n");
    struct erg_text line = with_folder("layout @/job.yaml --gpus 512 --layout t=1,p=16,e=32 2>&1");
    check_program(line.data, 0, "t=1,c=1,p=16,v=1,b=1,e=32");
    erg_text_release(&line);
    line = with_folder("layout @/job.yaml --gpus 512 --layout t=1,p=32,e=8 2>&1");
    check_program(line.data, 3,
                  "the first of 32 stages has fewer layers than the 3 of deepseek-ai/"
                  "DeepSeek-V3 without experts; expected at most 20 stages");
    erg_text_release(&line);
    line = with_folder("layout @/job.yaml --gpus 512 --export megatron 2>/dev/null");
    check_program(line.data, 0, "--moe-layer-freq ([0]*3+[1]*58)");
    erg_text_release(&line);
    line = with_folder("layout @/job.yaml --gpus 512 --export torchtitan 2>/dev/null");
    check_program(line.data, 0, "n_dense_layers 3");
    erg_text_release(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_of_a_token),
        cmocka_unit_test(a_stage_sums_its_own_layers),
        cmocka_unit_test(the_slowest_stage_may_have_both),
        cmocka_unit_test(energy_takes_the_time_of_both),
        cmocka_unit_test(a_search_finds_the_fastest_split),
        cmocka_unit_test(a_point_has_both),
        cmocka_unit_test(commands_know_the_model),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
