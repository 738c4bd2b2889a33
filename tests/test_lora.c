/* LoRA: parameters, products, what is kept and trained; memory, time and energy; in job files. */
#include "memory_world.h"

#include "base/text.h"
#include "job/job.h"
#include "layout/energy/layout_energy.h"
#include "model/lora.h"
#include "time_world.h"

enum { QKV = 1 << ERG_LORA_QKV, ALL = (1 << ERG_LORA_TARGETS) - 1 };

static struct erg_model *with_lora(struct erg_model *model, long rank, unsigned targets)
{
    model->lora = (struct erg_lora){.rank = rank, .targets = targets};
    return model;
}

static struct erg_layout layout_with(long tensor, long data, enum erg_recompute recompute)
{
    return (struct erg_layout){.tensor = tensor,
                               .context = 1,
                               .pipeline = 1,
                               .data = data,
                               .virtual_stages = 1,
                               .microbatch = 1,
                               .microbatches = 4,
                               .sequence = 2048,
                               .recompute = recompute};
}

/* ---- counts ---- */

static void adapter_parameters(void **state)
{
    (void)state;
    struct erg_model *models[] = {
        load_model("gpt3-175b", 0),
        load_model("llama-3.3-70b", 0),
        llama("attention of Mixtral 8x7B", 32000, 32, 4096, 14336, 32, 8),
        llama("attention of Mixtral 8x22B", 32768, 56, 6144, 16384, 48, 8),
    };
    const double published[] = {150994944, 47185920, 10485760, 25690112};
    for (size_t i = 0; i < 4; i++) {
        struct erg_model *model = models[i];
        const double whole = erg_model_parameters(model);
        assert_near(erg_lora_layer_parameters(model), 0, 0);
        with_lora(model, 32, QKV);
        assert_near((double)model->layers * erg_lora_layer_parameters(model), published[i], 0);
        assert_near(erg_model_parameters(model), whole, 0);
        for (long tensor = 1; tensor <= 8; tensor *= 2) { /* each rank has its share */
            struct erg_memory_sizes sizes;
            const struct erg_layout layout = {
                .tensor = tensor, .context = 1, .microbatch = 1, .sequence = 2048};
            erg_memory_sizes_of(&sizes, model, &layout);
            assert_near(sizes.trained_layer * (double)(tensor * model->layers), published[i], 0);
            assert_near(sizes.trained_embedding + sizes.trained_head, 0, 0);
        }
        erg_model_free(model);
    }
    /* Beside all linears. */
    struct erg_model *model = with_lora(llama("small", 256, 2, 64, 160, 8, 2), 4, ALL);
    assert_near(erg_lora_layer_parameters(model),
                4 * ((64 + 96) + (64 + 64) + (64 + 320) + (160 + 64)), 0);
    erg_model_free(model);
}

static double products(const struct erg_model_ops *ops, bool adapters)
{
    double flops = 0;
    for (size_t i = 0; i < ops->count; i++)
        for (int k = 0; k < ops->items[i].work_count; k++)
            if (ops->items[i].group == ERG_GROUP_LINEAR && ops->items[i].adapter == adapters)
                flops += ops->items[i].work[k].flops;
    return flops;
}

/* Twice the parameters for each token forward, and with frozen weights once more backward; three
 * times as much of adapters. */
static void product_flops(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-3.3-70b", 0);
    const struct erg_model_shape shape = {
        .tensor = 8, .context = 1, .sequences = 1, .sequence = 4096, .fused_kernels = true};
    struct erg_model_ops ops;
    const double forward = erg_model_forward_flops(model, 4096, 4096).linear / 80 / 8;
    erg_model_layer_backward(&ops, model, &shape);
    assert_close(products(&ops, false), 2 * forward, 1e-12);
    assert_near(products(&ops, true), 0, 0);
    with_lora(model, 32, QKV);
    const double adapters = 2 * 4096 * erg_lora_layer_parameters(model) / 8;
    erg_model_layer_forward(&ops, model, &shape);
    assert_close(products(&ops, false), forward, 1e-12);
    assert_close(products(&ops, true), adapters, 1e-12);
    erg_model_layer_backward(&ops, model, &shape);
    assert_close(products(&ops, false), forward, 1e-12);
    assert_close(products(&ops, true), 2 * adapters, 1e-12);
    erg_model_head_forward(&ops, model, &shape);
    const double head = products(&ops, false);
    erg_model_head_backward(&ops, model, &shape);
    assert_near(products(&ops, false), head, 0);
    model->lora.targets = ALL;
    erg_model_layer_backward(&ops, model, &shape);
    assert_close(products(&ops, true), 4 * 4096 * erg_lora_layer_parameters(model) / 8, 1e-12);
    assert_true(ops.count <= ERG_MODEL_MAX_OPS);
    erg_model_free(model);
}

/* ---- memory ---- */

/* Inputs of FC1 and FC2 are not kept, that of QKV is; keys, values, both residuals are. */
static void kept_activations(void **state)
{
    (void)state;
    struct erg_model *models[] = {load_model("gpt3-175b", 0), load_model("llama-3.3-70b", 0)};
    for (size_t i = 0; i < 2; i++) {
        struct erg_memory_sizes all, adapters;
        erg_memory_sizes_of(
            &all, models[i],
            &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 1, .sequence = 2048});
        with_lora(models[i], 32, QKV);
        erg_memory_sizes_of(
            &adapters, models[i],
            &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 1, .sequence = 2048});
        assert_int_equal(all.kept[ERG_RECOMPUTE_NONE] - adapters.kept[ERG_RECOMPUTE_NONE],
                         all.hidden + all.ffn);
        assert_int_equal(all.kept[ERG_RECOMPUTE_FULL], adapters.kept[ERG_RECOMPUTE_FULL]);
        models[i]->lora.targets = ALL;
        erg_memory_sizes_of(
            &adapters, models[i],
            &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 1, .sequence = 2048});
        assert_int_equal(all.kept[ERG_RECOMPUTE_NONE], adapters.kept[ERG_RECOMPUTE_NONE]);
        models[i]->lora.targets = 1 << ERG_LORA_PROJ;
        erg_memory_sizes_of(
            &adapters, models[i],
            &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 1, .sequence = 2048});
        assert_int_equal(all.kept[ERG_RECOMPUTE_NONE] - adapters.kept[ERG_RECOMPUTE_NONE],
                         2 * all.hidden + all.ffn);
        erg_model_free(models[i]);
    }
}

static double closed_peak(struct erg_memory_stage *closed, const struct erg_memory_request *request)
{
    struct erg_memory_sizes sizes;
    erg_memory_sizes_of(&sizes, request->model, request->layout);
    erg_memory_closed(closed, request, &sizes, 0);
    return closed->peak_bytes;
}

static void closed_and_followed(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *models[] = {load_model("gpt3-175b", 0), load_model("llama-3.3-70b", 0),
                                  load_model("llama-3.2-1b", 0)};
    const unsigned targets[] = {QKV, 1 << ERG_LORA_FC1, 1 << ERG_LORA_FC2 | 1 << ERG_LORA_PROJ,
                                ALL};
    const long degrees[][3] = {{1, 1, 0}, {2, 4, 0}, {8, 4, 0}, {8, 4, 4}, {1, 4, 2}};
    for (size_t m = 0; m < 3; m++)
        for (size_t k = 0; k < sizeof targets / sizeof *targets; k++)
            for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
                for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
                    struct erg_layout layout =
                        layout_with(degrees[i][0], degrees[i][1], (enum erg_recompute)recompute);
                    const struct erg_memory_request request = {
                        .model = with_lora(models[m], 16, targets[k]), .layout = &layout};
                    struct erg_memory_result result;
                    struct erg_memory_stage closed;
                    layout.fsdp = degrees[i][2];
                    assert_ok(erg_memory_simulate(&result, &request, &err), &err);
                    assert_close(closed_peak(&closed, &request), result.stages[0].peak_bytes, 1e-9);
                    erg_memory_result_release(&result);
                }
    for (size_t m = 0; m < 3; m++)
        erg_model_free(models[m]);
}

/* Experts are frozen: they have weights alone. */
static void of_a_mixture_of_experts(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("mixtral-8x7b", 0);
    const long degrees[][3] = {{1, 8, 8}, {2, 8, 4}, {4, 2, 1}}; /* tensor, data, expert */
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
            struct erg_layout layout =
                layout_with(degrees[i][0], degrees[i][1], (enum erg_recompute)recompute);
            struct erg_memory_request request = {.model = with_lora(model, 32, QKV),
                                                 .layout = &layout};
            struct erg_memory_result result;
            struct erg_memory_stage closed, all;
            layout.expert = degrees[i][2];
            assert_ok(erg_layout_check(&layout, model, &err), &err);
            assert_ok(erg_memory_simulate(&result, &request, &err), &err);
            const double followed = result.stages[0].peak_bytes;
            const double peak = closed_peak(&closed, &request);
            if (!(peak > followed * (1 - 1e-4) && peak < followed * 1.018))
                fail_msg("layout %zu, %d: closed %.0f, followed %.0f", i, recompute, peak,
                         followed);
            assert_near(closed.items[ERG_MEMORY_GRADIENTS], 4 * 10485760.0 / (double)layout.tensor,
                        0);
            erg_memory_result_release(&result);
            with_lora(model, 0, 0);
            closed_peak(&all, &request);
            assert_near(closed.items[ERG_MEMORY_WEIGHTS] - all.items[ERG_MEMORY_WEIGHTS],
                        2 * 10485760.0 / (double)layout.tensor, 0);
        }
    with_lora(model, 32, 1 << ERG_LORA_FC1);
    assert_fails(erg_layout_check_lora(model, &err), &err, "expected the targets qkv and proj");
    erg_model_free(model);
}

/* Of pipelines the closed form is as near to what is followed as without LoRA. */
static void pipelines(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *models[] = {load_model("gpt3-175b", 0), load_model("llama-3.3-70b", 0)};
    const long degrees[][3] = {{8, 4, 1}, {2, 8, 1}, {4, 4, 2}};
    for (size_t m = 0; m < 2; m++)
        for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
            for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++) {
                struct erg_layout layout =
                    layout_with(degrees[i][0], 2, (enum erg_recompute)recompute);
                const struct erg_memory_request request = {.model = with_lora(models[m], 32, QKV),
                                                           .layout = &layout};
                struct erg_memory_result result;
                long where = 0;
                layout.pipeline = degrees[i][1];
                layout.virtual_stages = degrees[i][2];
                layout.microbatches = 32;
                assert_ok(erg_layout_check(&layout, models[m], &err), &err);
                assert_ok(erg_memory_simulate(&result, &request, &err), &err);
                const double followed = result.stages[result.worst].peak_bytes;
                const double closed = closed_worst(&request, &where).peak_bytes;
                assert_true(closed > followed * (1 - 1e-4) && closed < followed * 1.018);
                erg_memory_result_release(&result);
            }
    for (size_t m = 0; m < 2; m++)
        erg_model_free(models[m]);
}

/* Frozen weights in bf16, gradients and state of adapters alone. */
static void bytes_of_parameters(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load_model("llama-3.3-70b", 0);
    struct erg_layout layout = layout_with(8, 4, ERG_RECOMPUTE_FULL);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_stage all, adapters;
    closed_peak(&all, &request);
    with_lora(model, 32, QKV);
    closed_peak(&adapters, &request);
    const double trained = 47185920 / 8.0;
    assert_near(adapters.items[ERG_MEMORY_WEIGHTS], all.items[ERG_MEMORY_WEIGHTS] + 2 * trained, 0);
    assert_near(adapters.items[ERG_MEMORY_GRADIENTS], 4 * trained, 0);
    assert_near(adapters.items[ERG_MEMORY_OPTIMIZER], 12 * trained / 4, 0);
    request.accounting = ERG_MEMORY_STATIC;
    assert_fails(erg_memory_check(&request, &err), &err, "trains no adapters");
    erg_model_free(model);
}

/* ---- time and energy ---- */

static void time_and_energy(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    struct erg_model *model = load_model("llama-3.3-70b", 0);
    const struct erg_time_machine machine = {.memory_bandwidth = 4.8e12,
                                             .link_bandwidth = 450e9,
                                             .network_bandwidth = 12.5e9 / 8,
                                             .node_gpus = 8};
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    assert_ok(erg_engine_load(&engine, "megatron-h800", &err), &err);
    const struct erg_layout_energy_request request = {{model, engine, &machine}, gpu, 0};
    for (int full = 0; full < 2; full++) {
        struct erg_layout layout =
            layout_with(8, 2, full ? ERG_RECOMPUTE_FULL : ERG_RECOMPUTE_NONE);
        struct erg_time all, adapters;
        struct erg_layout_energy whole, part;
        layout.pipeline = 2;
        layout.microbatches = 64;
        layout.sequence = 8192;
        model->lora = (struct erg_lora){0};
        erg_time_layout(&all, &request.time, &layout);
        erg_layout_energy_whole(&whole, &request, &layout);
        with_lora(model, 32, QKV);
        erg_time_layout(&adapters, &request.time, &layout);
        erg_layout_energy_whole(&part, &request, &layout);
        /* 4 N in place of 6 N, and 6 of adapters, which are 1 in 1,500 */
        const double share =
            erg_lora_layer_parameters(model) / (erg_model_forward_flops(model, 1, 1).linear / 160);
        assert_close(adapters.items[ERG_TIME_LINEAR] / all.items[ERG_TIME_LINEAR], 4.0 / 6 + share,
                     1e-9);
        assert_near(adapters.items[ERG_TIME_ATTENTION], all.items[ERG_TIME_ATTENTION], 0);
        const double trained = 47185920 / 8.0 / 2; /* of a stage */
        assert_close(adapters.items[ERG_TIME_GRADIENTS],
                     trained * engine->gradient_bytes / 2 /
                         (engine->network_efficiency * machine.network_bandwidth),
                     1e-9);
        assert_close(adapters.items[ERG_TIME_GRADIENTS] / all.items[ERG_TIME_GRADIENTS],
                     adapters.items[ERG_TIME_OPTIMIZER] / all.items[ERG_TIME_OPTIMIZER], 1e-9);
        assert_close(part.time_s, adapters.total, 1e-9);
        /* As many tokens for less energy. */
        const double gain = whole.total_j / part.total_j;
        assert_true(gain > 1.2 && gain < 1.7);
    }
    erg_gpu_free(gpu);
    erg_engine_free(engine);
    erg_model_free(model);
}

/* ---- job files ---- */

static int parse(struct erg_job **job, const char *more, struct erg_error *err)
{
    char text[600];
    snprintf(text, sizeof text,
             "model: llama-3.2-1b\ncluster: {nodes: 1, gpus_per_node: 8, gpu: H100-SXM}\n"
             "tensor: 8\nmicrobatch_size: 2\nmicrobatches: 4\nsequence: 2048\n%s",
             more);
    return erg_job_parse(job, "job.yaml", text, strlen(text), NULL, err);
}

static void in_job_files(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job, *again;
    struct erg_text text = {0};
    assert_ok(parse(&job, "lora: {rank: 32, targets: [qkv, fc2]}\n", &err), &err);
    assert_int_equal(job->model->lora.rank, 32);
    assert_int_equal(job->model->lora.targets, QKV | 1 << ERG_LORA_FC2);
    assert_fails(erg_job_check_whole(job, "ergon train", &err), &err,
                 "job.yaml: key 'lora': ergon train trains all weights, not adapters");
    const size_t kinds[] = {0};
    erg_job_write(&text, job,
                  &(struct erg_job_change){.layout = &job->layout,
                                           .vocabulary = job->model->vocab,
                                           .stage_kind = kinds});
    assert_ok(erg_job_parse(&again, "again.yaml", text.data, text.count, NULL, &err), &err);
    assert_int_equal(again->model->lora.rank, 32);
    assert_int_equal(again->model->lora.targets, QKV | 1 << ERG_LORA_FC2);
    erg_text_release(&text);
    erg_job_free(again);
    erg_job_free(job);
    assert_fails(parse(&job, "lora: {rank: 0, targets: [qkv]}\n", &err), &err,
                 "job.yaml:7: key 'lora.rank': expected a number from 1 to 2048, got 0");
    assert_fails(parse(&job, "lora: {rank: 8, targets: [qvk]}\n", &err), &err,
                 "did you mean 'qkv'");
    assert_fails(parse(&job, "lora: {rank: 8, targets: [qkv, qkv]}\n", &err), &err,
                 "key 'lora.targets[1]': 'qkv' is listed twice");
    assert_fails(parse(&job, "lora: {rank: 8}\n", &err), &err, "targets");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapter_parameters),  cmocka_unit_test(product_flops),
        cmocka_unit_test(kept_activations),    cmocka_unit_test(closed_and_followed),
        cmocka_unit_test(pipelines),           cmocka_unit_test(of_a_mixture_of_experts),
        cmocka_unit_test(bytes_of_parameters), cmocka_unit_test(time_and_energy),
        cmocka_unit_test(in_job_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
