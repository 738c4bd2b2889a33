/* What the emulated GPU says of single kernels and collectives, by hand. */
#include "emulated_step.h"

#include <math.h>

static void library_collectives_use_the_stack(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB");
    struct erg_stack stack = catalogue_stack("published-python");
    struct erg_step step = step_of(NULL, 0, 176160768, 0, 1);
    step.task.comm.library = true;
    double copy = 32 * 39.921e9, link = 0.85975 * 300e9;
    double rate = pow(pow(copy, -3) + pow(link, -3), -1.0 / 3);
    assert_close(run_one(&gpu, &stack, &step, 1410).time_s, 15e-6 + 176160768 / rate + 355.31e-6,
                 1e-9);
}

static void library_collectives_fall_back_to_the_gpu(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_step step = step_of(hopper_mlp, 4, 150994944, 2, 16), library = step;
    library.task.comm.library =
        true; /* the H200 constants were measured on the library's kernels */
    library.launch.sms = 0;
    assert_near(run_one(&gpu, &plain_stack, &library, 1500).time_s,
                run_one(&gpu, &plain_stack, &step, 1500).time_s, 0);
}

/* What a block sends depends on how many ranks share a sum, and on what it does. */
static void blocks_send_by_ranks_and_kind(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    gpu.comm_latency_s = 0;
    gpu.comm_contention = 0;
    gpu.link_bandwidth = 1e15;
    gpu.comm_rank_power = 0.7;
    gpu.comm_gather = 0.53;
    gpu.comm_scatter = 0.6;
    struct erg_step step = step_of(NULL, 0, 1e8, 0, 2);
    const double alone = 1e8 / (2 * 25.067e9);
    static const struct {
        enum erg_comm_kind kind;
        int group;
        double factor;
    } cases[] = {
        {ERG_COMM_ALLREDUCE, 2, 1},          {ERG_COMM_ALLREDUCE, 4, 1.3282},
        {ERG_COMM_ALLREDUCE, 8, 1.4796},     {ERG_COMM_ALLGATHER_KV, 2, 0.53},
        {ERG_COMM_REDUCESCATTER_KV, 2, 0.6}, {ERG_COMM_REDUCESCATTER_KV, 4, 0.79691},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        step.task.comm.kind = cases[i].kind;
        step.task.comm.group = cases[i].group;
        assert_close(run_one(&gpu, &plain_stack, &step, 1980).time_s, alone / cases[i].factor,
                     1e-4);
    }
}

/*
 * Attention of 48 heads over 4096 tokens, 103 TFLOP at 500 TFLOP/s: seconds it takes on so many SMs
 * over those that its FLOPs take there.
 */
static double attention_cost(const struct erg_gpu *gpu, enum erg_op_kind kind, int chunks, int sms)
{
    struct erg_stack stack = {.leaves_sms = true};
    struct erg_op op = {.kind = kind, .flops = 1e11, .k = 4096, .heads = 48, .chunks = chunks};
    struct erg_step step = step_of(&op, 1, 1e6, 0, 132 - sms);
    double rate =
        kind == ERG_OP_ATTENTION_FORWARD ? gpu->attention_forward : gpu->attention_backward;
    return run_one(gpu, &stack, &step, 1200).time_s * rate * 4096 * sms * 1200e6 / 1e11;
}

/* By hand, from the tiles of 128 of the middle one of two context ranks. */
static void attention_pays_for_its_tiles(void **state)
{
    (void)state;
    const enum erg_op_kind forward = ERG_OP_ATTENTION_FORWARD, backward = ERG_OP_ATTENTION_BACKWARD;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    assert_close(attention_cost(&gpu, forward, 1, 128), 1, 1e-9);
    assert_close(attention_cost(&gpu, forward, 4, 100), 1, 1e-9);
    gpu.attention_diagonal = 1;
    assert_close(attention_cost(&gpu, forward, 4, 128), 1.25, 1e-9);
    assert_close(attention_cost(&gpu, backward, 4, 100), 1, 1e-9);
    gpu.attention_tail = 0.5; /* of 12, and of twice 3 tiles an SM */
    assert_close(attention_cost(&gpu, forward, 1, 128), 1 + 0.5 / 12, 1e-9);
    assert_close(attention_cost(&gpu, forward, 4, 128), 1.25 * (1 + 0.5 / 3), 1e-9);
    assert_close(attention_cost(&gpu, backward, 1, 128), 1, 1e-9);
    gpu.attention_waves = 1; /* 6 and 9 waves, or 7 and 10 */
    assert_close(attention_cost(&gpu, backward, 4, 128), 1, 1e-9);
    assert_close(attention_cost(&gpu, backward, 4, 127),
                 (1536 * 7 * 127.0 / 768 + 2560 * 10 * 127.0 / 1152) / 4096, 1e-9);
    gpu.attention_k0 = 1000;
    gpu.attention_backward_k0 = 600; /* 65 % of it once for each of 2.5 times as many tiles */
    assert_close(attention_cost(&gpu, forward, 1, 128), (1 + 1000.0 / 4096) * (1 + 0.5 / 12), 1e-9);
    assert_close(attention_cost(&gpu, forward, 4, 128), (5120 + 1000) / 4096.0 * (1 + 0.5 / 3),
                 1e-9);
    assert_close(attention_cost(&gpu, backward, 1, 128), 1 + 600.0 / 4096, 1e-9);
    assert_close(attention_cost(&gpu, backward, 4, 128), 1 + (0.35 * 600 + 5 * 0.65 * 300) / 4096,
                 1e-9);
}

/* Heads of 64 have twice the scores for the FLOPs of heads of 128. */
static void attention_pays_for_its_scores(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_op op = {.kind = ERG_OP_ATTENTION_FORWARD, .flops = 1e11, .k = 4096, .heads = 48};
    struct erg_step step = step_of(&op, 1, 0, 0, 0);
    gpu.attention_softmax = 0.4;
    gpu.attention_backward_softmax = 0.25;
    const double costs[2][3] = {{1.4, 1, 0.8}, {1.25, 1, 0.875}};
    for (int backward = 0; backward < 2; backward++) {
        op.kind = backward ? ERG_OP_ATTENTION_BACKWARD : ERG_OP_ATTENTION_FORWARD;
        op.head_dim = 0; /* not told: as usual */
        double usual_s = run_one(&gpu, &plain_stack, &step, 1200).time_s;
        for (int i = 0; i < 3; i++) {
            op.head_dim = 64 << i;
            assert_close(run_one(&gpu, &plain_stack, &step, 1200).time_s / usual_s,
                         costs[backward][i], 1e-9);
        }
    }
}

/*
 * A stack that leaves the SMs of a collective free: the collective starts beside a product at once,
 * and the product keeps to its share although the collective ended long before.
 */
static void sms_left_free_stay_free(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack leaving = {.leaves_sms = true};
    gpu.power_cap_w = 1e4;
    gpu.wave_weight = gpu.comm_hbm_per_wire = 0;
    struct erg_error err;
    struct erg_emulated_result alone, held, free;
    struct erg_step step = step_of(hopper_mlp + 1, 1, 0, 0, 0);
    assert_ok(erg_emulated_run(&gpu, &plain_stack, &step, 1, 1980, &alone, &err), &err);
    step = step_of(hopper_mlp + 1, 1, 1e6, 0, 33); /* a quarter of 132 SMs */
    assert_ok(erg_emulated_run(&gpu, &plain_stack, &step, 1, 1980, &held, &err), &err);
    assert_ok(erg_emulated_run(&gpu, &leaving, &step, 1, 1980, &free, &err), &err);
    assert_true(held.exposed_s > 0); /* the product owns every SM */
    assert_near(free.exposed_s, 0, 0);
    double gap_s = gpu.launch_gap_s;
    assert_close(free.time_s - gap_s, (alone.time_s - gap_s) * 132 / 99, 1e-6);

    step.launch.slot = 1; /* after the product: nothing is left free for it */
    assert_ok(erg_emulated_run(&gpu, &leaving, &step, 1, 1980, &free, &err), &err);
    assert_near(free.time_s - free.exposed_s, alone.time_s, 1e-9);
    step.launch.slot = 0;
    step.task.comm.library = true; /* nor for the library's kernel */
    assert_ok(erg_emulated_run(&gpu, &leaving, &step, 1, 1980, &free, &err), &err);
    assert_true(free.exposed_s > 0);
}

/*
 * A product of 256 tiles, tuned on 128 of 132 SMs for two full waves, takes these of them where so
 * many SMs are left free.
 */
static void tuned_products_go_in_whole_waves(void **state)
{
    (void)state;
    static const struct {
        int left_free;
        double waves;
    } cases[] = {
        {2, 2},   /* more SMs than it was tuned for are of no use */
        {4, 2},   /* those */
        {8, 2.5}, /* on 124 its tiles need a third wave, or were 8 less */
        {12, 3},  /* on 120 the third is certain, as they were no 16 less */
        {64, 4},  {68, 4}, {72, 5},
    };
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = {.leaves_sms = true, .tuned_beside_sms = 4};
    struct erg_op op = {.kind = ERG_OP_GEMM, .flops = 1e11, .k = 64, .tiles = 256};
    double rate = gpu.gemm_efficiency / (1 + gpu.gemm_k0 / 64) * 4096 * 1200e6; /* of an SM */
    gpu.wave_weight = 1;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct erg_step step = step_of(&op, 1, 1, 0, cases[i].left_free);
        double whole_s = 1e11 / rate / 256; /* of a wave */
        gpu.gemm_slack = 1.0 / 16;
        assert_close(run_one(&gpu, &stack, &step, 1200).time_s, cases[i].waves * whole_s, 1e-9);
        gpu.gemm_slack = 0; /* not known: its tiles are those of the GPU's file */
        int sms = 132 - cases[i].left_free;
        assert_close(run_one(&gpu, &stack, &step, 1200).time_s, ceil(256.0 / sms) * whole_s, 1e-9);
    }
}

/* 132 - 12 SMs, and 20 less until the collective has ended. */
static void compute_during_a_collective_has_fewer_sms(void **state)
{
    (void)state;
    static const enum erg_op_kind kinds[] = {ERG_OP_GEMM, ERG_OP_ATTENTION_FORWARD,
                                             ERG_OP_ATTENTION_BACKWARD};
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = {.leaves_sms = true};
    gpu.wave_weight = gpu.comm_hbm_per_wire = 0;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct erg_op op = {.kind = kinds[i], .flops = 1e11, .k = 4096};
        struct erg_step step = step_of(&op, 1, 1e10, 0, 12); /* outlasts it */
        gpu.comm_missed_sms = 0;
        struct erg_emulated_result without = run_one(&gpu, &stack, &step, 1200);
        gpu.comm_missed_sms = 20;
        struct erg_emulated_result with = run_one(&gpu, &stack, &step, 1200);
        assert_true(with.exposed_s > 0);
        assert_close(with.time_s - with.exposed_s, 1.2 * (without.time_s - without.exposed_s),
                     1e-9);
        step.task.comm.wire_bytes = 1; /* nothing but latency */
        with = run_one(&gpu, &stack, &step, 1200);
        gpu.comm_missed_sms = 0;
        without = run_one(&gpu, &stack, &step, 1200);
        assert_close(with.time_s - without.time_s, gpu.comm_latency_s / 6, 1e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_collectives_use_the_stack),
        cmocka_unit_test(library_collectives_fall_back_to_the_gpu),
        cmocka_unit_test(blocks_send_by_ranks_and_kind),
        cmocka_unit_test(attention_pays_for_its_tiles),
        cmocka_unit_test(attention_pays_for_its_scores),
        cmocka_unit_test(sms_left_free_stay_free),
        cmocka_unit_test(tuned_products_go_in_whole_waves),
        cmocka_unit_test(compute_during_a_collective_has_fewer_sms),
    };
    return cmocka_run_group_tests(tests, NULL, catalogue_release);
}
