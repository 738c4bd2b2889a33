/* FSDP: what is kept and gathered, closed and followed; bytes, time and energy; what is refused. */
#include "memory_world.h"

#include "layout/energy/layout_energy.h"
#include "layout/search/layout_search.h"
#include "time_world.h"

static const double GiB = 0x1p30;

static const struct erg_time_machine one_adapter = {
    .memory_bandwidth = 4.8e12,
    .link_bandwidth = 450e9,
    .network_bandwidth = 12.5e9 / 8, /* 100 Gbit/s of a node */
    .node_gpus = 8,
};

/* GPT-3 175B on 32 GPUs, 128 sequences of 2048 tokens. */
static struct erg_layout gpt3_layout(long microbatch)
{
    return (struct erg_layout){
        .tensor = 8,
        .context = 1,
        .pipeline = 1,
        .data = 4,
        .virtual_stages = 1,
        .microbatch = microbatch,
        .microbatches = 32 / microbatch,
        .sequence = 2048,
        .recompute = ERG_RECOMPUTE_FULL,
        .fsdp = 4,
    };
}

/* ---- what is asked ---- */

static void text(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_layout layout = {.sequence = 2048};
    assert_ok(erg_layout_parse(&layout, "t=8,fsdp=4", 96, &err), &err);
    assert_int_equal(layout.tensor, 8);
    assert_int_equal(layout.fsdp, 4);
    assert_true(erg_layout_is_sharded(&layout));
    assert_ok(erg_layout_parse(&layout, "t=8", 96, &err), &err);
    assert_false(erg_layout_is_sharded(&layout));
    assert_int_equal(erg_layout_shards(&layout), 1);
    assert_fails(erg_layout_parse(&layout, "fsdp=4,fsdp=2", 96, &err), &err, "fsdp twice");
    assert_fails(erg_layout_parse(&layout, "fsd=4", 96, &err), &err, "at 'fsd=4'");
    assert_fails(erg_layout_parse(&layout, "fsdp=0", 96, &err), &err, "after 'fsdp='");
}

static void possible(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct erg_layout layout = gpt3_layout(1);
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    layout.fsdp = 2; /* two replicas */
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    layout.fsdp = 3;
    assert_fails(erg_layout_check(&layout, model, &err), &err, "does not divide the 4 ranks");
    layout.fsdp = 4;
    layout.context = 2;
    layout.data = 2;
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    layout.fsdp = 1;
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    layout.context = 4;
    layout.data = 1;
    layout.fsdp = 2;
    assert_fails(erg_layout_check(&layout, model, &err), &err, "cuts context groups of 4");
    layout = gpt3_layout(1);
    layout.pipeline = 2;
    assert_fails(erg_layout_check(&layout, model, &err), &err, "shards the layers of one stage");
    erg_model_free(model);
}

/* ---- memory ---- */

/* The model's parameters in 32 shards, with what tensor ranks each hold whole and the vocabulary's
 * padding. */
static void parameters_of_a_gpu(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    const struct erg_layout layout = gpt3_layout(1);
    const struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_sizes sizes = {0};
    struct erg_memory_stage closed;
    const double h = 12288, norms = 4 * h + 2 * h; /* two norms, biases of PROJ and FC2 */
    const double whole = 96 * norms + 2048 * h + 2 * h, padded = (51200 - 50257) * h;
    assert_near(erg_model_parameters(model) / 32, 5456383104.0, 0);
    erg_memory_sizes_of(&sizes, model, &layout);
    assert_near((96 * sizes.layer_parameters + sizes.embedding_parameters + 2 * h) / 4,
                5456383104.0 + (padded / 8 + whole * 7 / 8) / 4, 1e-3);
    erg_memory_closed(&closed, &request, &sizes, 0);
    const double state_bytes =
        16 * (96 * sizes.layer_parameters + sizes.embedding_parameters + 2 * h) / 4;
    assert_near(state_bytes / GiB, 81.3, 0.15);
    assert_near(closed.items[ERG_MEMORY_OPTIMIZER], state_bytes / 2, 1);
    assert_near(2 * sizes.layer_parameters / GiB, 0.42, 0.005);
    /* Of what is gathered the head and the layer above it, or two layers and a gradient. */
    const double gathered =
        closed.items[ERG_MEMORY_WEIGHTS] + closed.items[ERG_MEMORY_GRADIENTS] - state_bytes / 2;
    assert_near(gathered, 6 * sizes.layer_parameters, 1);
    erg_model_free(model);
}

static double peak_of(const struct erg_memory_request *request)
{
    struct erg_memory_sizes sizes;
    struct erg_memory_stage closed;
    erg_memory_sizes_of(&sizes, request->model, request->layout);
    erg_memory_closed(&closed, request, &sizes, 0);
    return closed.peak_bytes;
}

/* On a GPU with 80 GiB only what is kept in bf16 fits. */
static void bytes_of_an_engine(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    const struct erg_layout layout = gpt3_layout(1);
    struct erg_engine engine = published_engine();
    struct erg_memory_request request = erg_memory_request_of(model, &layout, &engine);
    assert_near(peak_of(&request) / GiB, 87.6, 0.1);
    const double default_bytes = peak_of(&request);
    engine.fsdp_bytes = 16;
    request = erg_memory_request_of(model, &layout, &engine);
    assert_near(peak_of(&request), default_bytes, 0);
    engine.fsdp_bytes = 12;
    request = erg_memory_request_of(model, &layout, &engine);
    assert_true(default_bytes > 0.9 * 80 * GiB);
    assert_true(peak_of(&request) < 0.9 * 80 * GiB);
    erg_model_free(model);
}

static void closed_and_followed(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *models[] = {load_model("gpt3-175b", 0), load_model("llama-3.3-70b", 0),
                                  load_model("llama-3.2-1b", 0), load_model("qwen3-1.7b", 0)};
    const long degrees[][4] = {{8, 1, 4, 4}, {8, 1, 4, 2}, {1, 1, 32, 32}, {2, 1, 16, 16},
                               {4, 2, 4, 8}, {1, 1, 2, 2}, {1, 2, 4, 4}};
    int compared = 0;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
            for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
                struct erg_layout layout = gpt3_layout(1 + (long)i % 2);
                layout.tensor = degrees[i][0];
                layout.context = degrees[i][1];
                layout.data = degrees[i][2];
                layout.fsdp = degrees[i][3];
                layout.microbatches = 1 + (long)i % 3;
                layout.recompute = (enum erg_recompute)recompute;
                const struct erg_memory_request request = {.model = models[m], .layout = &layout};
                struct erg_memory_result result;
                assert_ok(erg_layout_check(&layout, models[m], &err), &err);
                assert_ok(erg_memory_simulate(&result, &request, &err), &err);
                assert_close(peak_of(&request), result.stages[0].peak_bytes, 1e-9);
                erg_memory_result_release(&result);
                compared++;
            }
    assert_int_equal(compared, 4 * 7 * ERG_RECOMPUTES);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        erg_model_free(models[m]);
}

static void other_accountings(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("llama-3.2-1b", 0);
    const struct erg_layout layout = gpt3_layout(1);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    assert_ok(erg_memory_check(&request, &err), &err);
    request.accounting = ERG_MEMORY_STATIC;
    assert_fails(erg_memory_check(&request, &err), &err, "ergon's own training does not shard");
    request.accounting = ERG_MEMORY_FRAMEWORK;
    assert_fails(erg_memory_check(&request, &err), &err, "not simulated with FSDP");
    erg_model_free(model);
}

/* ---- time ---- */

/*
 * A microbatch unit by unit: when one begins the network begins to carry what comes next and what
 * was left behind, and the next one begins when both have ended.
 */
static double followed_s(const struct erg_time_parts *parts, long layers, double forward_s,
                         double backward_s)
{
    enum { MOST = 256 };
    const struct erg_time_shards *shards = &parts->shards;
    double gather_s[MOST] = {0}, scatter_s[MOST] = {0}, compute_s[2][MOST] = {{0}};
    const long units = layers + 2;
    for (long i = 0; i < units; i++) {
        const bool first = i == 0, last = i == units - 1;
        gather_s[i] = first  ? shards->embedding_gather_s
                      : last ? shards->head_gather_s
                             : shards->layer_gather_s;
        scatter_s[i] = first  ? shards->embedding_scatter_s
                       : last ? shards->head_scatter_s
                              : shards->layer_scatter_s;
        compute_s[0][i] = first ? 0 : last ? parts->head_s / 3 : forward_s;
        compute_s[1][i] = first ? 0 : last ? parts->head_s * 2 / 3 : backward_s;
    }
    double now_s = gather_s[0];
    for (long i = 0; i < units; i++)
        now_s += fmax(compute_s[0][i], i + 1 < units ? gather_s[i + 1] : 0);
    now_s += gather_s[units - 1];
    for (long i = units; i-- > 0;)
        now_s += fmax(compute_s[1][i],
                      (i > 0 ? gather_s[i - 1] : 0) + (i + 1 < units ? scatter_s[i + 1] : 0));
    return now_s + scatter_s[0];
}

static void passes_and_gathers(void **state)
{
    (void)state;
    const struct {
        const char *model;
        long tensor, data, fsdp;
        double network;
    } cases[] = {
        {"gpt3-175b", 8, 4, 4, 1.5625e9}, {"gpt3-175b", 8, 4, 4, 50e9},
        {"gpt3-175b", 8, 4, 4, 1e15},     {"llama-3.3-70b", 8, 4, 2, 4e9},
        {"llama-3.2-1b", 1, 32, 8, 1e9},  {"llama-3.2-1b", 1, 32, 32, 12.5e9},
    };
    bool exposed[2] = {false, false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
            struct erg_model *model = load_model(cases[i].model, 0);
            struct erg_engine engine = published_engine();
            struct erg_time_machine machine = one_adapter;
            const struct erg_time_request request = {model, &engine, &machine};
            struct erg_layout layout = gpt3_layout(1), plain;
            struct erg_time_parts parts, alone;
            struct erg_time time;
            engine.collective_latency_s = 1e-5;
            engine.sequence_parallel = false;
            engine.tensor_forward = engine.tensor_backward = 1;
            machine.network_bandwidth = cases[i].network;
            layout.tensor = cases[i].tensor;
            layout.data = cases[i].data;
            layout.fsdp = cases[i].fsdp;
            layout.recompute = (enum erg_recompute)recompute;
            plain = layout;
            plain.fsdp = 0;
            erg_time_parts_of(&parts, &request, &layout, 32);
            erg_time_parts_of(&alone, &request, &plain, 32);
            erg_time_layout(&time, &request, &layout);
            double sum_s = 0;
            for (int k = 0; k <= ERG_TIME_BUBBLE; k++)
                sum_s += time.items[k];
            const double own_s = followed_s(&parts, model->layers, alone.forward_s,
                                            alone.backward_s + alone.recompute_s[recompute]);
            assert_close(sum_s, 32 * own_s, 1e-12);
            exposed[time.items[ERG_TIME_FSDP] > 0.5 * time.total] = true;
            erg_model_free(model);
        }
    assert_true(exposed[0] && exposed[1]);
}

/* Bytes, and how long one adapter a node takes for them: 8 GPUs send at once. */
static void bytes_and_microbatches(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {model, &engine, &one_adapter};
    const double published[] = {3142.88e9, 785.72e9}, wire_s[] = {2011, 503};
    double total_s[2];
    for (int i = 0; i < 2; i++) {
        const struct erg_layout layout = gpt3_layout(i ? 4 : 1);
        struct erg_time_parts parts;
        struct erg_time time;
        erg_time_parts_of(&parts, &request, &layout, 32);
        /* The model's parameters; a tied head is gathered apart from the embedding. */
        const double bytes = 3 * (double)layout.microbatches *
                             erg_time_shard_bytes(&layout, erg_model_parameters(model) / 8);
        assert_near(bytes, published[i], 5e6);
        assert_near(bytes / one_adapter.network_bandwidth, wire_s[i], 0.5);
        const double own = 3 * (double)layout.microbatches *
                           erg_time_shard_bytes(&layout, 96 * parts.shards.layer_parameters +
                                                             parts.shards.embedding_parameters);
        assert_close(own, published[i], 0.0015);
        erg_time_layout(&time, &request, &layout);
        total_s[i] = time.total;
        assert_true(time.total > wire_s[i]);
    }
    assert_true(total_s[0] / total_s[1] > 3.2 && total_s[0] / total_s[1] < 4);
    erg_model_free(model);
}

/* Without sequence parallelism: a sum of whole tensors in each half of a layer, both ways. */
static void sums_of_the_tensor_group(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {model, &engine, &one_adapter};
    const struct erg_layout layout = gpt3_layout(1);
    struct erg_time_parts parts;
    erg_time_parts_of(&parts, &request, &layout, 32);
    const double unit = 2048 * 12288.0 * 2 * 7 / 8; /* a gather or a scatter */
    assert_close(parts.forward[ERG_TIME_TENSOR], 2 * 2 * unit / 450e9, 1e-12);
    assert_close(parts.backward[ERG_TIME_TENSOR], 2 * 2 * unit / 450e9, 1e-12);
    erg_model_free(model);
}

/* Two replicas of two shards sum a half of the gradients each, in bf16. */
static void replicas(void **state)
{
    (void)state;
    struct erg_engine engine = published_engine();
    struct erg_layout layout = gpt3_layout(1);
    assert_int_equal(erg_time_gradient_ranks(&layout), 1);
    assert_near(erg_time_gradient_bytes(&engine, &layout), 0, 0);
    assert_near(erg_time_optimizer_bytes(&engine, &layout), (24 + 28) / 4.0, 1e-12);
    layout.fsdp = 2;
    assert_int_equal(erg_time_gradient_ranks(&layout), 2);
    assert_int_equal(erg_time_gradient_stride(&layout), 16);
    assert_near(erg_time_gradient_bytes(&engine, &layout), 4 / 2.0 / 2, 1e-12);
    layout.fsdp = 0;
    assert_int_equal(erg_time_gradient_ranks(&layout), 4);
    assert_int_equal(erg_time_gradient_stride(&layout), 8);
    assert_near(erg_time_gradient_bytes(&engine, &layout), 1.188 * 6 * 3 / 4, 1e-12);
    assert_near(erg_time_optimizer_bytes(&engine, &layout), 24 + 28 / 4.0, 1e-12);
}

/* ---- energy ---- */

/* What a GPU sends costs its bytes, and while it waits for weights it draws no more than that. */
static void energy(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    assert_ok(erg_engine_load(&engine, "megatron-h800", &err), &err);
    const struct erg_layout_energy_request request = {{model, engine, &one_adapter}, gpu, 0};
    const struct erg_layout layout = gpt3_layout(1);
    struct erg_layout plain = layout;
    struct erg_layout_energy whole, alone;
    struct erg_time time;
    struct erg_time_parts parts;
    plain.fsdp = 0;
    erg_layout_energy_whole(&whole, &request, &layout);
    erg_layout_energy_whole(&alone, &request, &plain);
    erg_time_layout(&time, &request.time, &layout);
    erg_time_parts_of(&parts, &request.time, &layout, 32);
    assert_close(whole.time_s, time.total, 1e-9);
    const struct erg_time_shards *shards = &parts.shards;
    const double hbm_j = gpu->comm_hbm_per_wire *
                         (whole.items[ERG_LAYOUT_ENERGY_OPTIMIZER] /
                          (32.0 * erg_layout_stage_parameters(&request.time, &parts, &layout, 0) *
                           erg_time_optimizer_bytes(engine, &layout)));
    const double sent =
        3 * 32 * erg_time_shard_bytes(&layout, 96 * shards->layer_parameters) +
        32 * (2 * erg_time_shard_bytes(&layout,
                                       shards->embedding_parameters + shards->head_parameters) +
              erg_time_shard_bytes(&layout, parts.embedding_parameters + parts.head_parameters));
    assert_close(whole.items[ERG_LAYOUT_ENERGY_WIRES] - alone.items[ERG_LAYOUT_ENERGY_WIRES],
                 32 * sent * (gpu->energy_per_wire_byte_j + hbm_j), 1e-6);
    assert_true(whole.items[ERG_LAYOUT_ENERGY_WAITING] >
                0.97 * 32 * gpu->blocking_power_w * time.items[ERG_TIME_FSDP]);
    assert_near(whole.gpu_power_w, gpu->blocking_power_w + 10, 10);
    /* Over a network that is as fast as the links no pass is over the cap, and little is waited. */
    struct erg_time_machine fast = one_adapter;
    struct erg_layout_energy_request fast_request = request;
    fast.network_bandwidth = 450e9;
    fast_request.time.machine = &fast;
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
        struct erg_layout own = layout;
        own.recompute = (enum erg_recompute)recompute;
        erg_layout_energy_whole(&whole, &fast_request, &own);
        assert_true(whole.gpu_power_w < gpu->power_cap_w + 5);
        assert_true(whole.gpu_power_w > 0.8 * gpu->power_cap_w);
        for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
            assert_true(whole.items[i] >= 0);
    }
    erg_gpu_free(gpu);
    erg_engine_free(engine);
    erg_model_free(model);
}

/* ---- searching ---- */

static void search(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("llama-3.3-70b", 0);
    const struct erg_engine engine = published_engine();
    struct erg_time_machine machine = one_adapter;
    machine.network_bandwidth = 50e9;
    struct erg_layout_search asked = {
        .model = model,
        .kinds = {{.name = "GPU",
                   .engine = &engine,
                   .machine = machine,
                   .gpus = 32,
                   .memory_bytes = 60 * GiB}},
        .kind_count = 1,
        .gpus = 32,
        .sequence = 4096,
        .batch_least = 128,
        .batch_most = 128,
        .recomputes = ERG_RECOMPUTE_ALL,
        .only = {.pipeline = 1},
        .top = 20,
    };
    struct erg_layout_results found;
    assert_fails(erg_layout_search(&found, &asked, &err), &err, "fits into 60.0 GiB");
    asked.fsdp = true;
    assert_ok(erg_layout_search(&found, &asked, &err), &err);
    assert_true(found.count > 0);
    for (size_t i = 0; i < found.count; i++) {
        const struct erg_layout_candidate *item = &found.items[i];
        struct erg_layout_candidate one;
        assert_true(erg_layout_is_sharded(&item->layout));
        assert_ok(erg_layout_check(&item->layout, model, &err), &err);
        assert_true(item->peak_bytes <= 60 * GiB);
        assert_ok(erg_layout_evaluate(&one, &asked, &item->layout, NULL, 0, &err), &err);
        assert_near(one.time.total, item->time.total, 0);
        assert_near(one.peak_bytes, item->peak_bytes, 0);
        erg_layout_candidate_release(&one);
    }
    const double fastest_s = found.items[0].time.total;
    erg_layout_results_release(&found);
    asked.only.fsdp = 16;
    assert_ok(erg_layout_search(&found, &asked, &err), &err);
    for (size_t i = 0; i < found.count; i++)
        assert_int_equal(found.items[i].layout.fsdp, 16);
    assert_true(found.items[0].time.total >= fastest_s);
    erg_layout_results_release(&found);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test(possible),
        cmocka_unit_test(parameters_of_a_gpu),
        cmocka_unit_test(bytes_of_an_engine),
        cmocka_unit_test(closed_and_followed),
        cmocka_unit_test(other_accountings),
        cmocka_unit_test(passes_and_gathers),
        cmocka_unit_test(bytes_and_microbatches),
        cmocka_unit_test(sums_of_the_tensor_group),
        cmocka_unit_test(replicas),
        cmocka_unit_test(energy),
        cmocka_unit_test(search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
