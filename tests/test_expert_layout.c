/* Layouts of mixtures of experts: memory, time and energy against numbers worked by hand, which
 * degrees there may be, and the search over them. */
#include "check.h"
#include "memory_world.h"
#include "program.h"

#include "base/random.h"
#include "folder.h"
#include "layout/energy/layout_energy.h"
#include "layout/search/layout_search.h"
#include "layout/time/fit.h"

static const double gib = 0x1p30;

static struct erg_layout layout_with(long tensor, long expert, long pipeline, long data)
{
    return (struct erg_layout){.tensor = tensor,
                               .context = 1,
                               .pipeline = pipeline,
                               .data = data,
                               .expert = expert,
                               .expert_capacity = 1,
                               .virtual_stages = 1,
                               .microbatch = 1,
                               .microbatches = 128 / data,
                               .sequence = 4096};
}

/* ---- memory ---- */

static double state_bytes(const struct erg_memory_stage *stage)
{
    return stage->items[ERG_MEMORY_WEIGHTS] + stage->items[ERG_MEMORY_GRADIENTS] +
           stage->items[ERG_MEMORY_OPTIMIZER];
}

/* Per parameter 2 bytes of weights, 4 of gradients and a share of 12: of the dense part over d
 * ranks, of experts over d / e. */
static void state_matches_hand_calculation(void **state)
{
    (void)state;
    const struct {
        const char *model;
        struct erg_layout layout;
        long stage;
        double dense, experts; /* parameters of the stage on one GPU */
        double gib[2];         /* to two digits */
    } cases[] = {
        {"mixtral-8x22b",
         layout_with(1, 8, 4, 8),
         1,
         14 * 88141824.0,
         14 * 301989888.0,
         {8.62, 70.88}},
        {"mixtral-8x7b",
         layout_with(1, 8, 1, 32),
         0,
         32 * 41984000.0 + 2 * 32000 * 4096.0 + 4096,
         32 * 176160768.0,
         {9.53, 47.25}},
        {"mixtral-8x7b",
         layout_with(1, 4, 1, 32),
         0,
         32 * 41984000.0 + 2 * 32000 * 4096.0 + 4096,
         64 * 176160768.0,
         {9.53, 78.75}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_model *model = load_model(cases[i].model, 0);
        const struct erg_layout *layout = &cases[i].layout;
        const struct erg_memory_request request = {.model = model, .layout = layout};
        const double group = (double)layout->data, replicas = group / (double)layout->expert;
        struct erg_memory_sizes sizes;
        struct erg_memory_stage closed;
        struct erg_memory_result followed;
        assert_ok(erg_layout_check(layout, model, &err), &err);
        erg_memory_sizes_of(&sizes, model, layout);
        erg_memory_closed(&closed, &request, &sizes, cases[i].stage);
        const double dense = (6 + 12 / group) * cases[i].dense;
        const double experts = (6 + 12 / replicas) * cases[i].experts;
        assert_close(state_bytes(&closed), dense + experts, 1e-12);
        assert_near(dense / gib, cases[i].gib[0], 0.005);
        assert_near(experts / gib, cases[i].gib[1], 0.005);
        assert_ok(erg_memory_simulate(&followed, &request, &err), &err);
        const struct erg_memory_stage *stage = &followed.stages[cases[i].stage];
        assert_close(state_bytes(stage), state_bytes(&closed), 1e-9);
        erg_memory_result_release(&followed);
        erg_model_free(model);
    }
}

/* DeepSeek V3 on 16 stages of 128 GPUs: 3 layers without experts on the first one. */
static void first_layers_may_have_none(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("deepseek-v3", 0);
    long layers[16];
    struct erg_layout layout = layout_with(1, 64, 16, 128);
    for (int i = 0; i < 16; i++)
        layers[i] = i < 13 ? 4 : 3;
    layout.chunk_layers = layers;
    layout.microbatches = 32;
    layout.recompute = ERG_RECOMPUTE_FULL;
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    const struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_sizes sizes;
    struct erg_memory_result followed;
    erg_memory_sizes_of(&sizes, model, &layout);
    assert_ok(erg_memory_simulate(&followed, &request, &err), &err);
    const double attention = 187121664, expert = 3 * 7168 * 2048.0;
    const double routed = attention + expert + 7168 * 256.0 + 256;
    const double plain = attention + 3 * 7168 * 18432.0, words = 129280 * 7168.0;
    double all = 0;
    for (long stage = 0; stage < 16; stage++) {
        struct erg_memory_stage closed;
        erg_memory_closed(&closed, &request, &sizes, stage);
        const double dense = stage == 0    ? 3 * plain + routed + words
                             : stage == 15 ? 3 * routed + words + 7168
                                           : (double)layers[stage] * routed;
        const double experts = (stage == 0 ? 1.0 : (double)layers[stage]) * 4 * expert;
        assert_close(state_bytes(&closed), (6 + 12 / 128.0) * dense + (6 + 12 / 2.0) * experts,
                     1e-12);
        assert_close(state_bytes(&followed.stages[stage]), state_bytes(&closed), 1e-9);
        assert_true(closed.peak_bytes > followed.stages[stage].peak_bytes * (1 - 1e-9));
        all += dense + 64 * experts;
    }
    assert_near(all, 671026419200, 0);
    erg_memory_result_release(&followed);
    erg_model_free(model);
}

static double kept_by_experts(const struct erg_model *model, const struct erg_layout *layout,
                              enum erg_recompute recompute)
{
    struct erg_memory_sizes sizes;
    erg_memory_sizes_of(&sizes, model, layout);
    const struct erg_memory_tensor *input = &sizes.tensors[ERG_MEMORY_FFN_INPUT];
    return (double)(sizes.kept_of_ffn[recompute] -
                    (input->saved & 1u << recompute ? input->bytes : 0));
}

/* Norm's output, scores, input of the experts, both outputs of theirs, what came back. */
static void kept_activations_are_counted(void **state)
{
    (void)state;
    struct erg_model *large = load_model("mixtral-8x22b", 0);
    struct erg_model *small = load_model("mixtral-8x7b", 0);
    const struct erg_layout whole = layout_with(1, 8, 4, 8), split = layout_with(4, 8, 1, 8);
    assert_near(kept_by_experts(large, &whole, ERG_RECOMPUTE_NONE) / 0x1p20, 1008.15625, 0);
    assert_near(kept_by_experts(large, &split, ERG_RECOMPUTE_NONE) / 0x1p20, 324.0390625, 0);
    assert_near(kept_by_experts(small, &whole, ERG_RECOMPUTE_NONE) / 0x1p20, 832.15625, 0);
    assert_near(kept_by_experts(large, &whole, ERG_RECOMPUTE_FULL), 0, 0);
    /* 2 T h of the norm and 2 T k F of the activation are made again. */
    assert_near(kept_by_experts(large, &whole, ERG_RECOMPUTE_NONE) -
                    kept_by_experts(large, &whole, ERG_RECOMPUTE_BALANCED),
                2.0 * 4096 * 6144 + 2.0 * 8192 * 16384, 0);
    erg_model_free(large);
    erg_model_free(small);
}

/* The closed form against every allocation, on whatever degrees. */
static void closed_form_equals_simulation(void **state)
{
    (void)state;
    enum { CASES = 150 };
    struct erg_model *models[] = {load_model("mixtral-8x7b", 0), load_model("mixtral-8x22b", 0),
                                  load_model("qwen3-30b-a3b", 0)};
    struct erg_rng rng;
    double most = 0;
    erg_rng_seed(&rng, 7);
    for (int done = 0; done < CASES;) {
        struct erg_error err;
        long stage;
        const struct erg_model *model = models[erg_rng_below(&rng, 3)];
        struct erg_layout layout =
            layout_with(1L << erg_rng_below(&rng, 4), 1L << erg_rng_below(&rng, 4),
                        1L << erg_rng_below(&rng, 4), 8);
        layout.microbatch = 1 + (long)erg_rng_below(&rng, 4);
        layout.microbatches = 1 + (long)erg_rng_below(&rng, 20);
        layout.recompute = (enum erg_recompute)erg_rng_below(&rng, ERG_RECOMPUTES);
        const struct erg_memory_request request = {.model = model, .layout = &layout};
        if (erg_layout_check(&layout, model, NULL) != 0)
            continue;
        struct erg_memory_result followed;
        struct erg_memory_sizes sizes;
        struct erg_memory_stage worst = {0}, closed;
        assert_ok(erg_memory_simulate(&followed, &request, &err), &err);
        erg_memory_sizes_of(&sizes, model, &layout);
        for (stage = 0; stage < layout.pipeline; stage++) {
            erg_memory_closed(&closed, &request, &sizes, stage);
            worst = closed.peak_bytes > worst.peak_bytes ? closed : worst;
        }
        const double peak = followed.stages[followed.worst].peak_bytes;
        const double error = worst.peak_bytes / peak - 1;
        if (error < -1e-9 || error > 0.014)
            fail_msg("%s, t=%ld,e=%ld,p=%ld,b=%ld, %ld microbatches, recompute %s: the closed form "
                     "is %+.4f %% of the followed peak apart (%s, %s)",
                     model->name, layout.tensor, layout.expert, layout.pipeline, layout.microbatch,
                     layout.microbatches, erg_recompute_name(layout.recompute), 100 * error,
                     worst.moment, followed.stages[followed.worst].moment);
        most = fmax(most, error);
        erg_memory_result_release(&followed);
        done++;
    }
    for (int i = 0; i < 3; i++)
        erg_model_free(models[i]);
}

/* ---- time ---- */

static const struct erg_engine plain_engine = {
    .name = (char *)(uintptr_t) "plain",
    .peak_flops = 1e15,
    .gemm_efficiency = 1,
    .expert_gemm_efficiency = 0.5,
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
};
/* A node of 8, with 450 GB/s of links, and 12.5 GB/s of network to be shared. */
static const struct erg_time_machine machine = {
    .memory_bandwidth = 1e12,
    .link_bandwidth = 450e9,
    .network_bandwidth = 12.5e9 / 8,
    .node_gpus = 8,
};

/* Bytes on links and network of a middle stage and an iteration, in GB, as seconds at 1 GB/s. */
static void exchanges_take_the_time_of_their_bytes(void **state)
{
    (void)state;
    const struct {
        const char *model;
        struct erg_layout layout;
        double link, network, tensor; /* GB: all-to-all, and around the products */
    } cases[] = {
        {"mixtral-8x22b", layout_with(1, 8, 4, 8), 78.920, 0, 0},
        {"mixtral-8x22b", layout_with(2, 8, 2, 8), 33.823, 45.097, 90.194},
        {"mixtral-8x22b", layout_with(4, 8, 1, 8), 11.274, 67.646, 270.583},
        {"mixtral-8x7b", layout_with(1, 8, 1, 32), 30.065, 0, 0},
        {"mixtral-8x7b", layout_with(2, 4, 1, 16), 25.770, 0, 34.360},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_model *model = load_model(cases[i].model, 0);
        const struct erg_layout *layout = &cases[i].layout;
        const double layers = (double)(model->layers / layout->pipeline);
        const double rows = 4096.0 / (double)layout->tensor * 2; /* that leave a rank */
        const double group = (double)layout->expert, bytes = rows * (double)model->hidden * 2;
        const struct erg_time_request request = {model, &plain_engine, &machine};
        const double inside = (double)erg_time_expert_members(&request, layout, 32);
        const double each = 4 * layers * (double)layout->microbatches * bytes / 1e9;
        assert_near(each * (inside - 1) / group, cases[i].link, 0.0006);
        assert_near(each * (group - inside) / group, cases[i].network, 0.0006);
        assert_near(each * (double)(layout->tensor - 1), cases[i].tensor, 0.0006);
        struct erg_time_parts parts;
        erg_time_parts_of(&parts, &request, layout, 32);
        const double all_to_all = 1e9 * fmax(cases[i].link / 450e9, cases[i].network / 1.5625e9);
        assert_close((parts.forward[ERG_TIME_EXPERT] + parts.backward[ERG_TIME_EXPERT]) * layers *
                         (double)layout->microbatches,
                     all_to_all + 1e9 * cases[i].tensor / 450e9, 1e-4);
        erg_model_free(model);
    }
}

/* Products of experts at half the rate of others, and gradients of both parts. */
static void an_iteration_by_hand(void **state)
{
    (void)state;
    struct erg_model *model = load_model("mixtral-8x22b", 0);
    const struct erg_layout layout = layout_with(1, 4, 4, 8);
    const struct erg_time_request request = {model, &plain_engine, &machine};
    struct erg_time time;
    struct erg_time_parts parts;
    erg_time_layout(&time, &request, &layout);
    erg_time_parts_of(&parts, &request, &layout, 32);
    const double expert_flops = 6.0 * 8192 * 6144 * 16384;
    const double dense_flops = 2.0 * 4096 * (88141824 - 2 * 6144);
    assert_close(parts.forward[ERG_TIME_LINEAR], expert_flops / 0.5e15 + dense_flops / 1e15, 1e-12);
    assert_close(parts.expert_s[1], 2 * expert_flops / 0.5e15, 1e-12);
    assert_near(parts.layer_parameters, 88141824, 0);
    assert_near(parts.expert_parameters, 2 * 301989888.0, 0);
    /* The last stage, with the head: 7/8 of 4 bytes within a node of 8; experts on 2 ranks that are
     * 4 apart. */
    const double dense = 14 * 88141824.0 + 32000 * 6144.0 + 6144, experts = 28 * 301989888.0;
    assert_close(time.items[ERG_TIME_GRADIENTS], (dense * 4 * 7 / 8 + experts * 4 / 2) / 450e9,
                 2e-4);
    assert_close(time.items[ERG_TIME_OPTIMIZER],
                 (dense * (20 + 8 / 8.0) + experts * (20 + 8 / 2.0)) / 1e12, 2e-4);
    double sum = 0;
    for (int i = 0; i < ERG_TIME_ITEMS; i++)
        sum += time.items[i];
    assert_close(sum, time.total, 1e-12);
    erg_model_free(model);
}

/* ---- energy ---- */

static void energy_counts_the_work_of_the_time_model(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("mixtral-8x22b", 0);
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    assert_ok(erg_engine_load(&engine, "nemo-hopper", &err), &err);
    const struct erg_layout layout = layout_with(2, 8, 2, 8);
    const struct erg_layout_energy_request request = {.time = {model, engine, &machine},
                                                      .gpu = gpu};
    struct erg_layout_energy energy;
    struct erg_time time;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    erg_layout_energy_whole(&energy, &request, &layout);
    erg_time_layout(&time, &request.time, &layout);
    assert_close(energy.time_s, time.total, 1e-9);
    erg_time_parts_of(&parts, &request.time, &layout, 32);
    erg_layout_work_of(&work, &request, &parts, &layout, 32);
    /* A rank computes 6 (t A) h F / t of the experts' FLOPs, half of the attention's products, and
     * its rows of the router's. */
    const double flops = 6.0 * 8192 * 6144 * 8192 + 2.0 * 4096 * 6144 * (6144 * 2 + 2048) / 2 +
                         2.0 * 2048 * 6144 * 8;
    assert_close(work.passes[ERG_PASS_FORWARD].flops[0], flops, 1e-12);
    /* Two AllReduces less one of a dense layer; two all-to-alls, a gather and a scatter. */
    assert_close(work.passes[ERG_PASS_FORWARD].wire_bytes,
                 2.0 * 4096 * 6144 * 2 / 2 + 2 * (4096.0 * 6144 * 2 * 7 / 8 + 4096.0 * 6144 * 2),
                 1e-12);
    double sum = 0;
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        sum += energy.items[i];
    assert_close(sum, energy.total_j, 1e-12);
    erg_engine_free(engine);
    erg_gpu_free(gpu);
    erg_model_free(model);
}

/* ---- degrees ---- */

static void degrees_from_text(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_layout layout = {0};
    assert_ok(erg_layout_parse(&layout, "e=8,t=1,p=4", 56, &err), &err);
    assert_int_equal(layout.expert, 8);
    assert_int_equal(layout.tensor, 1);
    assert_int_equal(layout.pipeline, 4);
    assert_int_equal(layout.virtual_stages, 1);
    assert_ok(erg_layout_parse(&layout, "t=2", 56, &err), &err);
    assert_int_equal(erg_layout_experts(&layout), 1);
    assert_fails(erg_layout_parse(&layout, "e=2,e=2", 56, &err), &err, "gives e twice");
    assert_fails(erg_layout_parse(&layout, "ee=2", 56, &err), &err, "e (expert)");
    assert_fails(erg_layout_parse(&layout, "e=0", 56, &err), &err, "after 'e='");
}

static void impossible_degrees_are_refused(void **state)
{
    (void)state;
    struct erg_model *moe = load_model("mixtral-8x7b", 0), *dense = load_model("llama-2-7b", 0);
    struct erg_model *latent = load_model("deepseek-v3", 0);
    const struct {
        const struct erg_model *model;
        long expert, context, virtual_stages, data;
        const char *message;
    } cases[] = {
        {moe, 8, 1, 1, 8, NULL},
        {moe, 0, 1, 1, 3, NULL},
        {moe, 3, 1, 1, 3, "cannot be divided among an expert degree of 3"},
        {moe, 8, 1, 1, 4, "does not divide the 4 data ranks"},
        {moe, 2, 2, 1, 4, "expected a context degree of 1, got 2"},
        {moe, 1, 2, 1, 4, "expected a context degree of 1, got 2"},
        {moe, 2, 1, 2, 4, "expected 1 virtual stage, got 2"},
        {dense, 2, 1, 1, 4, "has no experts"},
        {latent, 8, 2, 1, 8, "context degree of 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_layout layout = layout_with(1, cases[i].expert, 4, cases[i].data);
        layout.context = cases[i].context;
        layout.virtual_stages = cases[i].virtual_stages;
        layout.microbatches = 16;
        if (cases[i].message)
            assert_fails(erg_layout_check(&layout, cases[i].model, &err), &err, cases[i].message);
        else
            assert_ok(erg_layout_check(&layout, cases[i].model, &err), &err);
    }
    erg_model_free(moe);
    erg_model_free(dense);
    erg_model_free(latent);
}

/* ---- the search ---- */

/* The fastest of all by brute force over every degree is the first that a search finds. */
static void a_search_finds_the_fastest_degree(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("mixtral-8x7b", 0);
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    struct erg_layout_results found;
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    assert_ok(erg_engine_load(&engine, "nemo-hopper", &err), &err);
    struct erg_layout_search search = {
        .model = model,
        .kinds = {{.name = gpu->name,
                   .gpu = gpu,
                   .engine = engine,
                   .machine = machine,
                   .gpus = 16,
                   .memory_bytes = 125e9}},
        .kind_count = 1,
        .gpus = 16,
        .sequence = 4096,
        .batch_least = 64,
        .batch_most = 64,
        .recomputes = ERG_RECOMPUTE_ALL,
        .equal_stages = true,
        .top = 20,
    };
    search.kinds[0].machine.memory_bandwidth = gpu->memory_bandwidth;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    double best_s = INFINITY;
    unsigned degrees = 0;
    for (size_t i = 0; i < found.count; i++)
        degrees |= 1u << erg_layout_experts(&found.items[i].layout);
    for (long t = 1; t <= 8; t *= 2)
        for (long p = 1; t * p <= 16; p *= 2)
            for (long e = 1; e <= 8 && e <= 16 / t / p; e *= 2)
                for (long b = 1; b * (16 / t / p) <= 64; b *= 2)
                    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
                        struct erg_layout layout = {.tensor = t,
                                                    .context = 1,
                                                    .pipeline = p,
                                                    .expert = e,
                                                    .virtual_stages = 1,
                                                    .microbatch = b,
                                                    .cut = ERG_CUT_EQUALLY,
                                                    .recompute = (enum erg_recompute)recompute};
                        struct erg_layout_candidate one;
                        if (erg_layout_evaluate(&one, &search, &layout, NULL, 0, NULL) != 0)
                            continue;
                        best_s = fmin(best_s, one.time.total);
                        erg_layout_candidate_release(&one);
                    }
    assert_close(found.items[0].time.total, best_s, 1e-12);
    assert_true(degrees & ~(1u << 1)); /* some spread their experts */
    erg_layout_results_release(&found);
    search.only.expert = 1;
    assert_ok(erg_layout_search(&found, &search, &err), &err);
    for (size_t i = 0; i < found.count; i++)
        assert_int_equal(erg_layout_experts(&found.items[i].layout), 1);
    erg_layout_results_release(&found);
    erg_engine_free(engine);
    assert_ok(erg_engine_load(&engine, "ergon", &err), &err);
    search.kinds[0].engine = engine;
    assert_fails(erg_layout_search(&found, &search, &err), &err,
                 "has a mixture of experts, which ergon's own training does not run");
    erg_engine_free(engine);
    erg_gpu_free(gpu);
    erg_model_free(model);
}

/* ---- rows that are measured ---- */

/* A column e, which `ergon fit` reads. */
static void rows_say_the_degree(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("mixtral-8x7b", 0);
    struct erg_engine engine = plain_engine;
    struct erg_text csv = {0};
    struct erg_fit_rows rows;
    const struct erg_time_request request = {model, &engine, &machine};
    engine.expert_gemm_efficiency = 0.3;
    erg_text_add(&csv, "model,sequence,gpus,batch,t,c,p,e,time_s\n");
    for (long e = 1; e <= 8; e *= 2) {
        struct erg_time time;
        struct erg_layout layout = layout_with(1, e, 1, 8);
        layout.expert_capacity = 0;
        layout.microbatches = 16;
        erg_time_layout(&time, &request, &layout);
        erg_text_printf(&csv, "mixtral-8x7b,4096,8,128,1,1,1,%ld,%.17g\n", e, time.total);
    }
    write_text("rows.csv", csv.data);
    assert_ok(erg_fit_rows_load(&rows, in_folder("rows.csv"), &err), &err);
    assert_int_equal(rows.count, 4);
    for (size_t i = 0; i < rows.count; i++) {
        struct erg_time time;
        assert_int_equal(erg_layout_experts(&rows.items[i].layout), 1L << i);
        erg_time_layout(&time, &request, &rows.items[i].layout);
        assert_close(time.total, rows.items[i].time_s, 1e-12);
    }
    erg_fit_rows_release(&rows);
    erg_text_release(&csv);
    erg_model_free(model);
}

/* ---- commands ---- */

static const char job_text[] = "name: moe\n"
                               "cluster:\n"
                               "  gpu: h200-sxm\n"
                               "  nodes: 4\n"
                               "  gpus_per_node: 8\n"
                               "  inter_node_bandwidth_gb_s: 12.5\n"
                               "engine: nemo-hopper\n"
                               "pipeline: 4\n"
                               "data: 8\n"
                               "%s"
                               "microbatch_size: 1\n"
                               "microbatches: 16\n"
                               "sequence: 4096\n"
                               "recompute: full\n";

/* A command on a job with this key, in the folder @. */
static void check_job(const char *key, const char *command, int exit_code, const char *part)
{
    struct erg_text text = {0}, line = with_folder(command);
    erg_text_printf(&text, job_text, key);
    write_text("job.yaml", text.data);
    check_program(line.data, exit_code, part);
    erg_text_release(&text);
    erg_text_release(&line);
}

static void commands_know_the_degree(void **state)
{
    (void)state;
    const char *own = "model: mixtral-8x22b\nexpert: 8\nexpert_capacity: 1.0\n";
    check_job(own, "memory @/job.yaml 2>&1", 0, "experts over 8 ranks");
    check_job(own, "memory @/job.yaml --json 2>&1", 0, "\"expert\": 8");
    check_job(own, "memory @/job.yaml --layout t=2,p=2,e=4 2>&1", 0, "experts over 4 ranks");
    check_job("model: mixtral-8x22b\nexpert: 3\n", "memory @/job.yaml 2>&1", 1,
              "key 'expert': the 8 experts of");
    check_job("model: mixtral-8x22b\nexpert: 8\n", "memory @/job.yaml --layout t=4,p=4,e=8 2>&1", 1,
              "does not divide the 2 data ranks");
    check_job(own, "layout @/job.yaml --gpus 32 --layout e=8,t=1,p=4 2>&1", 0,
              "t=1,c=1,p=4,l=14,b=1,e=8");
    check_job(own, "layout @/job.yaml --gpus 32 --layout e=8,t=1,p=4 --json 2>&1", 0, "\"e\": 8");
    check_job(own, "layout @/job.yaml --gpus 32 --planner arena 2>&1", 1, "plans dense models");
    check_job(own, "layout @/job.yaml --gpus 32 --export profile 2>/dev/null", 0,
              "Mixtral-8x22B-v0.1,141B,128,H200-SXM,4,8,");
    check_job(own, "layout @/job.yaml --gpus 32 --why t=2,p=2,e=2 --recompute none 2>&1", 3,
              "it fits with");
    check_job("model: deepseek-v3\nlayers: [16, 15, 15, 15]\n", "layout @/job.yaml --gpus 32 2>&1",
              3, "GiB more");
    check_job(own, "optimize @/job.yaml 2>&1", 3, "whose operations cannot be run one by one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_matches_hand_calculation),
        cmocka_unit_test(first_layers_may_have_none),
        cmocka_unit_test(kept_activations_are_counted),
        cmocka_unit_test(closed_form_equals_simulation),
        cmocka_unit_test(exchanges_take_the_time_of_their_bytes),
        cmocka_unit_test(an_iteration_by_hand),
        cmocka_unit_test(energy_counts_the_work_of_the_time_model),
        cmocka_unit_test(degrees_from_text),
        cmocka_unit_test(impossible_degrees_are_refused),
        cmocka_unit_test(a_search_finds_the_fastest_degree),
        cmocka_unit_test(rows_say_the_degree),
        cmocka_unit_test(commands_know_the_degree),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
