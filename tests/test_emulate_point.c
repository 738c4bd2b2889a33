/* Points of studies in virtual time: sums that must hold, heat, what published findings say. */
#include "check.h"
#include "study_point.h"

#include "io/json.h"

/* Mean of a value of the GPUs of a position. */
static double study_mean_c(const struct erg_study_result *result, const char *slot)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < result->gpu_count; i++)
        if (!strcmp(result->gpu[i].slot, slot)) {
            sum += result->gpu[i].temperature_c.mean;
            count++;
        }
    return sum / count;
}

/* ---- sums ---- */

/* Every second and joule of a traced GPU is in a category or idle; stages fill the iteration; what
 * is sent is received. */
static void nothing_is_lost(void **state)
{
    (void)state;
    const struct {
        const char *model, *layout;
        long sequence, microbatch;
        enum erg_recompute recompute;
    } points[] = {
        {"gpt3-175b", "t=2,p=16", 2048, 2, ERG_RECOMPUTE_FULL},
        {"gpt3-175b", "t=8,fsdp=4", 2048, 4, ERG_RECOMPUTE_FULL},
        {"llama-3.3-70b", "t=8,p=2", 8192, 1, ERG_RECOMPUTE_NONE},
        {"llama-3.3-70b", "t=4,p=4", 8192, 1, ERG_RECOMPUTE_BALANCED},
        {"mixtral-8x22b", "e=8,t=2,p=2", 4096, 1, ERG_RECOMPUTE_FULL},
        {"mixtral-8x7b", "e=4,t=2", 4096, 1, ERG_RECOMPUTE_FULL},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        struct test_study study;
        study_open(&study, points[i].model, points[i].layout, points[i].sequence,
                   points[i].microbatch, points[i].recompute);
        struct erg_study_result result = study_run(&study);
        const struct erg_result_metrics *metrics = &result.metrics;
        struct erg_result_bytes sent = {0}, received = {0};
        double energy_j = 0;
        assert_int_equal(result.status, ERG_RESULT_OK);
        assert_int_equal(result.gpu_count, 32);
        for (size_t k = 0; k < result.kernels_count; k++) {
            const struct erg_result_kernels *kernels = &result.kernels[k];
            double seconds = kernels->idle_s, joules = kernels->idle_j;
            for (size_t c = 0; c < kernels->category_count; c++) {
                const struct erg_result_category *own = &kernels->categories[c];
                seconds += own->exposed_s;
                joules += own->energy_j;
                assert_true(own->summed_s >= own->exposed_s * (1 - 1e-9));
                assert_true(own->wait_s <= own->exposed_s * (1 + 1e-9));
            }
            assert_close(seconds, metrics->time_s, 1e-9);
            assert_close(joules, result.gpu[kernels->rank].energy_j, 1e-9);
        }
        for (size_t k = 0; k < result.stage_count; k++) {
            const struct erg_result_stage *stage = &result.stages[k];
            assert_close(stage->forward_s + stage->backward_s + stage->head_s + stage->spin_s +
                             stage->message_s + stage->wait_s + stage->gradient_s +
                             stage->optimizer_s,
                         metrics->time_s, 1e-9);
        }
        for (size_t k = 0; k < result.gpu_count; k++) {
            energy_j += result.gpu[k].energy_j;
            sent.nvlink += result.gpu[k].sent.nvlink;
            sent.network += result.gpu[k].sent.network;
            received.nvlink += result.gpu[k].received.nvlink;
            received.network += result.gpu[k].received.network;
        }
        assert_close(energy_j, metrics->energy_j, 1e-12);
        assert_close(received.nvlink, sent.nvlink, 1e-12);
        assert_close(received.network, sent.network, 1e-12);
        /* The counter moves in steps of 92 to 100 ms; runs differ by half a per cent. */
        assert_close(metrics->sensor_energy_j, metrics->energy_j, 0.02);
        study_close(&study);
    }
}

/* Of two stages in the same slots, the first one's embedding is all that differs: 100.66 MB for the
 * tensor group each way at 224.2 GB/s, and 4 and 6 bytes of HBM a value at 3.84 TB/s. */
static void the_first_stage_looks_words_up(void **state)
{
    (void)state;
    struct test_study study;
    const double values = 8192.0 * 8192, exchange_s = 0.75 * 2 * values / (0.49825 * 450e9);
    const double expected_s = 2 * exchange_s + 10 * values / (0.8 * 4.8e12);
    study_open(&study, "llama-3.3-70b", "t=4,p=4", 8192, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result result = study_run(&study);
    const struct erg_result_stage *first = &result.stages[0], *third = &result.stages[2];
    const double more_s =
        first->forward_s + first->backward_s - third->forward_s - third->backward_s;
    assert_near(more_s, 64 * expected_s, 0.1 * 64 * expected_s);
    study_close(&study);
}

/* A stage in the middle sends and receives a message each way of each of 128 microbatches, the
 * first and the last one half of them. */
static void messages_are_counted(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result result = study_run(&study);
    for (size_t k = 0; k < result.kernels_count; k++) {
        const struct erg_result_kernels *kernels = &result.kernels[k];
        for (size_t c = 0; c < kernels->category_count; c++)
            if (!strcmp(kernels->categories[c].name, "SendRecv"))
                assert_near(kernels->categories[c].count,
                            kernels->stage == 0 || kernels->stage == 7 ? 256 : 512, 0);
    }
    study_close(&study);
}

/* ---- heat ---- */

/* T = inlet + A P of the means, on every node. */
static void temperatures_are_those_of_the_powers(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result result = study_run(&study);
    for (size_t i = 0; i < result.gpu_count; i++) {
        const struct erg_result_gpu *gpu = &result.gpu[i];
        double expected_c = 29 + 0.049 * gpu->power_w.mean;
        if (gpu->local >= 4) /* in the air of the front one */
            expected_c += 0.0245 * result.gpu[i - 4].power_w.mean;
        assert_near(gpu->temperature_c.mean, expected_c, ERG_EMULATE_KELVIN);
    }
    study_close(&study);
}

static void warmer_air_makes_it_slower_and_dearer(void **state)
{
    (void)state;
    struct test_study study;
    double before_s = 0, before_j = 0, before_c = 0;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    for (int inlet = 20; inlet <= 40; inlet += 5) {
        study.point.inlet_c = inlet;
        struct erg_study_result result = study_run(&study);
        assert_true(result.metrics.time_s > before_s);
        assert_true(result.metrics.energy_j > before_j);
        assert_true(result.metrics.temperature_c.mean > before_c + (before_c > 0 ? 3 : 0));
        before_s = result.metrics.time_s;
        before_j = result.metrics.energy_j;
        before_c = result.metrics.temperature_c.mean;
    }
    study_close(&study);
}

/* No GPU is warmer than its limit where the air is so warm that the cap alone would let it be. */
static void heat_holds_the_rear(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result cool = study_run(&study);
    study.point.inlet_c = 42;
    struct erg_study_result warm = study_run(&study);
    assert_int_equal(warm.flag_count, 0);
    assert_near(cool.metrics.thermal_share, 0, 0);
    assert_true(cool.metrics.cap_share > 0.3);
    assert_true(warm.metrics.thermal_share > 0.2);
    assert_near(study_mean_c(&warm, "rear"), 87, 0.2);
    for (size_t i = 0; i < warm.gpu_count; i++) {
        const struct erg_result_gpu *gpu = &warm.gpu[i];
        assert_true(gpu->temperature_c.mean < 87.2);
        assert_true(gpu->thermal_share + gpu->cap_share <= 1 + 1e-9);
        assert_true(!strcmp(gpu->slot, "rear") || gpu->thermal_share == 0);
    }
    study_close(&study);
}

/* Ten iterations after a cold start are not steady; an hour later it is as the fixed point says. */
static void a_cold_start_ends_in_the_steady_state(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result steady = study_run(&study);
    study.measuring.transient_s = 1200;
    struct erg_study_result cold = study_run(&study);
    const struct erg_result_moment *first = cold.course,
                                   *last = &cold.course[cold.course_count - 1];
    assert_int_equal(cold.flag_count, 1);
    assert_true(cold.course_count > 40 && cold.course_count < 60);
    assert_near(first->temperature_c, 29 + 79 * (0.049 + 0.0245 / 2), 0.01); /* idle */
    assert_true(cold.course[1].temperature_c > first->temperature_c + 10);
    assert_true(last->time_s > first->time_s); /* warmer GPUs clock lower */
    for (size_t i = 1; i < cold.course_count; i++)
        assert_true(cold.course[i].temperature_c >= cold.course[i - 1].temperature_c - 1e-6);
    assert_near(last->temperature_c, steady.metrics.temperature_c.mean, 0.2);
    assert_close(last->time_s, steady.metrics.time_s, 2e-3);
    assert_true(cold.course[2].temperature_c < last->temperature_c - 2);
    study_close(&study);
}

/* Each GPU by itself: 28 C and 0.052 K a watt of its own. */
static void without_a_chassis_all_are_alike(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "llama-3.3-70b", "t=4,p=4", 8192, 1, ERG_RECOMPUTE_FULL);
    study.machine.chassis = NULL;
    struct erg_study_result result = study_run(&study);
    for (size_t i = 0; i < result.gpu_count; i++) {
        const struct erg_result_gpu *gpu = &result.gpu[i];
        assert_null(gpu->slot);
        assert_near(gpu->temperature_c.mean, 28 + 0.052 * gpu->power_w.mean, ERG_EMULATE_KELVIN);
        assert_near(gpu->power_w.mean, result.gpu[gpu->stage * 8].power_w.mean, 1e-6);
    }
    assert_int_equal(result.flag_count, 1);
    study_close(&study);
}

/* A lower clock or limit takes longer and less energy, down to where waiting costs more. */
static void requested_clocks_and_limits(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result full = study_run(&study);
    study.point.clock_mhz = 1500;
    struct erg_study_result slow = study_run(&study);
    study.point.clock_mhz = 0;
    study.point.power_w = 500;
    struct erg_study_result limited = study_run(&study);
    assert_near(slow.metrics.busy_clock_mhz, 1500, 1);
    assert_near(slow.metrics.cap_share, 0, 1e-9);
    assert_true(slow.metrics.time_s > full.metrics.time_s);
    assert_true(slow.metrics.energy_j < full.metrics.energy_j);
    assert_near(limited.metrics.power_w.peak, 500 * 693.75 / 700, 3);
    assert_true(limited.metrics.cap_share > 0.9);
    study_close(&study);
}

/* ---- findings of a published study that must come out ---- */

static void rear_gpus_are_a_quarter_warmer(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result result = study_run(&study);
    const double front_c = study_mean_c(&result, "front"), rear_c = study_mean_c(&result, "rear");
    double front_peak_c = 0, rear_least_c = INFINITY;
    for (size_t i = 0; i < result.gpu_count; i++)
        if (result.gpu[i].local < 4)
            front_peak_c = fmax(front_peak_c, result.gpu[i].temperature_c.peak);
        else
            rear_least_c = fmin(rear_least_c, result.gpu[i].temperature_c.least);
    assert_near(rear_c / front_c, 1.25, 0.05);
    assert_near(rear_c - front_c, 16, 4);
    assert_true(rear_least_c > front_peak_c);
    study_close(&study);
}

static void larger_microbatches_by_layout(void **state)
{
    (void)state;
    struct test_study study;
    double pipeline_s = 0, edp = INFINITY, fsdp_s[2], fsdp_w[2];
    study_open(&study, "gpt3-175b", "t=2,p=16", 2048, 1, ERG_RECOMPUTE_FULL);
    for (long microbatch = 1; microbatch <= 8; microbatch *= 2) {
        study.point.layout.microbatch = microbatch;
        study.point.layout.microbatches = 128 / microbatch;
        struct erg_study_result result = study_run(&study);
        assert_true(result.metrics.time_s > pipeline_s);
        assert_true(result.metrics.eff_edp < edp);
        pipeline_s = result.metrics.time_s;
        edp = result.metrics.eff_edp;
    }
    assert_near(pipeline_s, 43.9, 3); /* of the closed form, without heat */
    study_close(&study);
    study_open(&study, "gpt3-175b", "t=8,fsdp=4", 2048, 1, ERG_RECOMPUTE_FULL);
    for (int i = 0; i < 2; i++) {
        study.point.layout.microbatch = i ? 4 : 1;
        study.point.layout.microbatches = i ? 8 : 32;
        struct erg_study_result result = study_run(&study);
        fsdp_s[i] = result.metrics.time_s;
        fsdp_w[i] = result.metrics.power_w.mean;
    }
    assert_true(fsdp_s[0] / fsdp_s[1] > 3.2 && fsdp_s[0] / fsdp_s[1] <= 4);
    assert_close(fsdp_s[0], 2011 / 0.95755, 0.02); /* wires at what the engine reaches */
    assert_true(fsdp_w[1] > fsdp_w[0]);
    study_close(&study);
}

static void overlap_saves_time(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "llama-3.3-70b", "t=8,p=2", 8192, 1, ERG_RECOMPUTE_NONE);
    struct erg_study_result base = study_run(&study);
    study.point.overlap = ERG_STUDY_OVERLAP_GRADIENTS | ERG_STUDY_OVERLAP_TENSOR;
    struct erg_study_result cc = study_run(&study);
    assert_true(cc.metrics.exposed_share < base.metrics.exposed_share);
    assert_true(cc.metrics.time_s < base.metrics.time_s);
    assert_true(cc.metrics.power_w.mean > base.metrics.power_w.mean);
    assert_true(cc.metrics.temperature_c.peak > base.metrics.temperature_c.peak);
    study_close(&study);
}

static void a_faulty_node_delays_all_others(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=2,p=16", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result whole = study_run(&study);
    study.point.fault_node = 2;
    study.point.fault_clock_share = 0.25;
    struct erg_study_result faulty = study_run(&study);
    assert_true(faulty.metrics.time_s > 3 * whole.metrics.time_s);
    for (size_t i = 16; i < 24;
         i++) /* of the clock that it had, not of one that its cool die could */
        assert_near(faulty.gpu[i].busy_clock_mhz, 0.25 * whole.gpu[i].busy_clock_mhz, 5);
    assert_true(faulty.metrics.power_w.mean < 0.5 * whole.metrics.power_w.mean);
    study_close(&study);
}

/* One layer more on the GPUs that the air reaches first. Stages of Llama have 20 layers and their
 * rear GPUs are held by heat at 42 C: it gains. Those of GPT have 12: it loses. */
static void one_layer_more_in_front(void **state)
{
    (void)state;
    static const long llama[] = {21, 19, 21, 19}, gpt[] = {13, 11, 13, 11, 13, 11, 13, 11};
    const struct {
        const char *model, *layout;
        long sequence, nodes;
        const long *layers;
        double gain, tolerance;
    } rows[] = {{"llama-3.3-70b", "t=4,p=4", 8192, 2, llama, 0.042, 0.01},
                {"gpt3-175b", "t=4,p=8", 2048, 4, gpt, -0.01, 0.01}};
    for (size_t i = 0; i < 2; i++) {
        struct test_study study;
        double edp[2], gap_k[2];
        study_open(&study, rows[i].model, rows[i].layout, rows[i].sequence, 1, ERG_RECOMPUTE_FULL);
        study.machine.engine->tensor_forward = 0.5;
        study.machine.engine->tensor_backward = 0;
        study.cluster.nodes = (int)rows[i].nodes;
        study.point.layout.data = 1;
        study.point.layout.microbatches = 32 * rows[i].nodes; /* one replica */
        study.point.inlet_c = 42;
        for (int uneven = 0; uneven < 2; uneven++) {
            study.point.layout.chunk_layers = uneven ? rows[i].layers : NULL;
            struct erg_study_result result = study_run(&study);
            edp[uneven] = result.metrics.eff_edp;
            gap_k[uneven] = study_mean_c(&result, "rear") - study_mean_c(&result, "front");
        }
        assert_near(edp[1] / edp[0] - 1, rows[i].gain, rows[i].tolerance);
        assert_true(gap_k[1] / gap_k[0] > 0.75 && gap_k[1] / gap_k[0] < 0.93);
        study_close(&study);
    }
}

/* 64 GPUs with less memory against 32 with more: 0.5 to 0.65 of the time. */
static void twice_as_many_h100(void **state)
{
    (void)state;
    struct test_study study;
    struct erg_error err;
    study_open(&study, "llama-3.3-70b", "t=8,p=2", 8192, 1, ERG_RECOMPUTE_NONE);
    struct erg_study_result few = study_run(&study);
    erg_gpu_free(study.machine.gpu);
    assert_ok(erg_gpu_load(&study.machine.gpu, "H100-SXM", &err), &err);
    study.cluster.nodes = 8;
    study.point.layout.pipeline = 4;
    struct erg_study_result many = study_run(&study);
    assert_int_equal(many.gpu_count, 64);
    assert_near(many.metrics.time_s / few.metrics.time_s, 0.575, 0.075);
    study_close(&study);
}

/* Two dies on one sink, of which one is farther from it. */
static void twin_dies_differ(void **state)
{
    (void)state;
    struct test_study study;
    struct erg_error err;
    study_open(&study, "gpt3-30b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    erg_gpu_free(study.machine.gpu);
    erg_engine_free(study.machine.engine);
    erg_chassis_free(study.chassis);
    assert_ok(erg_gpu_load(&study.machine.gpu, "MI250", &err), &err);
    assert_ok(erg_engine_load(&study.machine.engine, "megatron-mi250", &err), &err);
    assert_ok(erg_chassis_load(&study.chassis, "mi250-4-air", &err), &err);
    study.machine.chassis = study.chassis;
    struct erg_study_result result = study_run(&study);
    for (size_t i = 0; i < result.gpu_count; i += 2) {
        const double differ_k =
            result.gpu[i + 1].temperature_c.mean - result.gpu[i].temperature_c.mean;
        assert_near(differ_k, 7.5, 2.5);
        assert_true(result.gpu[i].power_w.mean + result.gpu[i + 1].power_w.mean <= 500);
    }
    study_close(&study);
}

/* Early stages on cool slots, whole stages each. */
/* The cap of a board is for both of its dies: of 400 W an idle one, at 45 W, leaves 355. */
static void dies_share_a_cap(void **state)
{
    (void)state;
    struct test_study study;
    struct erg_error err;
    study_open(&study, "llama-3.2-1b", "t=1", 2048, 4, ERG_RECOMPUTE_FULL);
    erg_gpu_free(study.machine.gpu);
    erg_engine_free(study.machine.engine);
    erg_chassis_free(study.chassis);
    assert_ok(erg_gpu_load(&study.machine.gpu, "MI250", &err), &err);
    assert_ok(erg_engine_load(&study.machine.engine, "megatron-mi250", &err), &err);
    assert_ok(erg_chassis_load(&study.chassis, "mi250-4-air", &err), &err);
    study.machine.chassis = study.chassis;
    study.point.power_w = 200;
    study.cluster.nodes = 1;
    study.point.layout.data = 8;
    study.point.layout.microbatches = 4;
    struct erg_study_result both = study_run(&study);
    study.point.layout.data = 1;
    struct erg_study_result alone = study_run(&study);
    for (size_t i = 0; i + 1 < both.gpu_count; i += 2)
        assert_true(both.gpu[i].power_w.mean + both.gpu[i + 1].power_w.mean < 402);
    assert_true(both.gpu[0].cap_share > 0.9);
    assert_true(alone.gpu[0].power_w.mean > 210);
    assert_true(alone.gpu[0].busy_clock_mhz > both.gpu[0].busy_clock_mhz + 100);
    study_close(&study);
}

static void cold_first_moves_stages(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result given = study_run(&study);
    study.point.placement = ERG_STUDY_COLD_FIRST;
    struct erg_study_result cold = study_run(&study);
    for (size_t i = 0; i < cold.gpu_count; i++) {
        const struct erg_result_gpu *gpu = &cold.gpu[i];
        assert_string_equal(gpu->slot, gpu->stage < 4 ? "front" : "rear");
        assert_int_equal(gpu->node, gpu->stage < 4 ? gpu->stage : 7 - gpu->stage);
    }
    assert_near(cold.metrics.eff_edp / given.metrics.eff_edp - 1, 0, 0.025);
    assert_true(cold.metrics.network_use > given.metrics.network_use);
    study_close(&study);
}

/* Whoever has more to do goes where it is cool: the search finds what alternating layers have in
 * the usual order, and undoes the opposite. */
static void a_search_finds_cool_slots(void **state)
{
    (void)state;
    static const long more_in_rear[] = {19, 21, 19, 21};
    struct test_study study;
    study_open(&study, "llama-3.3-70b", "t=4,p=4", 8192, 1, ERG_RECOMPUTE_FULL);
    study.cluster.nodes = 2;
    study.point.layout.data = 1;
    study.point.layout.microbatches = 64;
    study.point.layout.chunk_layers = more_in_rear;
    study.point.inlet_c = 42;
    struct erg_study_result given = study_run(&study);
    study.point.placement = ERG_STUDY_SEARCH;
    struct erg_study_result found = study_run(&study);
    assert_string_equal(given.gpu[0].slot, "front"); /* 19 layers */
    for (size_t i = 0; i < found.gpu_count; i++)
        assert_string_equal(found.gpu[i].slot, found.gpu[i].stage % 2 ? "front" : "rear");
    assert_true(found.metrics.time_s < 0.97 * given.metrics.time_s);
    study_close(&study);
}

/* Frozen weights need no gradients: less time, and nothing to sum but adapters. */
static void adapters_are_cheaper(void **state)
{
    (void)state;
    struct test_study study;
    double gradients[2], tokens_per_j[2];
    study_open(&study, "llama-3.3-70b", "t=4,p=4", 8192, 1, ERG_RECOMPUTE_FULL);
    for (int lora = 0; lora < 2; lora++) {
        study.point.lora_rank = lora ? 32 : 0;
        study.point.lora_targets = "qkv";
        struct erg_study_result result = study_run(&study);
        tokens_per_j[lora] = result.metrics.tokens_per_j;
        for (size_t i = 0; i < result.link_count; i++)
            if (!strcmp(result.links[i].kind, "gradients"))
                gradients[lora] = result.links[i].nvlink + result.links[i].network;
    }
    /* 47,185,920 parameters; two replicas, 4 bytes both ways, half of them to the other one. */
    assert_close(gradients[1], 47185920.0 * 4 * 0.5 * 2, 1e-9);
    assert_true(gradients[0] > 1000 * gradients[1]);
    assert_true(tokens_per_j[1] / tokens_per_j[0] > 1.2 && tokens_per_j[1] / tokens_per_j[0] < 1.7);
    study.point.lora_targets = "qkv,none";
    struct erg_study_result result;
    struct erg_error err;
    erg_study_result_init(&result);
    assert_fails(erg_emulate_point(NULL, &study.point, &result, &study.arena, &err), &err,
                 "'none'");
    study_close(&study);
}

/* ---- what does not fit, what is equal ---- */

static void a_point_that_does_not_fit_has_a_reason(void **state)
{
    (void)state;
    struct test_study study;
    study_open(&study, "gpt3-175b", "t=4,p=8", 2048, 2, ERG_RECOMPUTE_NONE);
    struct erg_study_result result = study_run(&study);
    assert_int_equal(result.status, ERG_RESULT_MEMORY);
    assert_non_null(strstr(result.message, "stage 0 needs"));
    assert_true(result.memory_bytes.count > 0);
    study_close(&study);
}

static void equal_keys_give_equal_bytes(void **state)
{
    (void)state;
    struct test_study study;
    char *texts[3];
    study_open(&study, "llama-3.3-70b", "t=4,p=4", 8192, 1, ERG_RECOMPUTE_FULL);
    for (int i = 0; i < 3; i++) {
        study.point.model_name = i ? "another name" : "a name";
        study.measuring.seed = i < 2 ? 1 : 2;
        struct erg_study_result result = study_run(&study);
        json_t *root = erg_study_result_json(&result);
        texts[i] = erg_json_text(root);
        json_decref(root);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_string_not_equal(texts[0], texts[2]); /* other sensors, other noise */
    for (int i = 0; i < 3; i++)
        free(texts[i]);
    study_close(&study);
}

static void a_document_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct test_study study;
    struct erg_study_result back;
    struct erg_error err;
    study_open(&study, "gpt3-175b", "t=8,p=4", 2048, 1, ERG_RECOMPUTE_FULL);
    struct erg_study_result result = study_run(&study);
    json_t *root = erg_study_result_json(&result);
    char *text = erg_json_text(root);
    assert_ok(
        erg_study_result_from_json(&back, root, "point", text, strlen(text), &study.arena, &err),
        &err);
    json_t *again = erg_study_result_json(&back);
    char *text_again = erg_json_text(again);
    assert_string_equal(text_again, text);
    assert_true(isnan(back.metrics.memory_temperature_c.p99));
    json_object_set_new(root, "schema_version", json_integer(2));
    assert_fails(erg_study_result_from_json(&back, root, "point", NULL, 0, &study.arena, &err),
                 &err, "schema_version");
    json_decref(root);
    json_decref(again);
    free(text);
    free(text_again);
    study_close(&study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(the_first_stage_looks_words_up),
        cmocka_unit_test(messages_are_counted),
        cmocka_unit_test(temperatures_are_those_of_the_powers),
        cmocka_unit_test(warmer_air_makes_it_slower_and_dearer),
        cmocka_unit_test(heat_holds_the_rear),
        cmocka_unit_test(a_cold_start_ends_in_the_steady_state),
        cmocka_unit_test(without_a_chassis_all_are_alike),
        cmocka_unit_test(requested_clocks_and_limits),
        cmocka_unit_test(rear_gpus_are_a_quarter_warmer),
        cmocka_unit_test(larger_microbatches_by_layout),
        cmocka_unit_test(overlap_saves_time),
        cmocka_unit_test(a_faulty_node_delays_all_others),
        cmocka_unit_test(one_layer_more_in_front),
        cmocka_unit_test(twice_as_many_h100),
        cmocka_unit_test(twin_dies_differ),
        cmocka_unit_test(dies_share_a_cap),
        cmocka_unit_test(cold_first_moves_stages),
        cmocka_unit_test(a_search_finds_cool_slots),
        cmocka_unit_test(adapters_are_cheaper),
        cmocka_unit_test(a_point_that_does_not_fit_has_a_reason),
        cmocka_unit_test(equal_keys_give_equal_bytes),
        cmocka_unit_test(a_document_is_read_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
