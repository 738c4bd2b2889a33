/* The exact model of the emulated GPU: golden rows, properties, measured data. */
#include "emulated_step.h"
#include "golden_ops.h"

#include "base/random.h"
#include "microbatch/microbatch.h"

static const struct erg_op forward_mlp[] = {
    {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 3072, 2048, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 1, 0, 100663296, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 103079215104, 140509184, 1024, 3072, {0}, 0, 0, 0},
};
struct golden {
    const struct erg_op *ops;
    size_t count, slot;
    int sms, clock_mhz;
    double wire_bytes, time_ms, energy_j, power_w, clock_effective_mhz,
        exposed_ms; /* < 0: not given */
};

static void check_golden(const struct erg_gpu *gpu, const struct erg_stack *stack,
                         const struct golden *rows, size_t count)
{
    struct erg_error err;
    for (size_t i = 0; i < count; i++) {
        const struct golden *row = &rows[i];
        struct erg_step step = step_of(row->ops, row->count, row->wire_bytes, row->slot, row->sms);
        struct erg_emulated_result result;
        assert_ok(erg_emulated_run(gpu, stack, &step, 1, row->clock_mhz, &result, &err), &err);
        assert_close(result.time_s * 1e3, row->time_ms, 1e-4);
        assert_close(result.energy_j, row->energy_j, 1e-4);
        assert_close(result.power_w, row->power_w, 1e-4);
        assert_near(result.clock_effective_mhz, row->clock_effective_mhz, 0.1);
        if (row->exposed_ms >= 0)
            assert_near(result.exposed_s * 1e3, row->exposed_ms, 1e-4);
    }
}

/* The host floor of a layer made of these steps: one launch per kernel and one per step. */
static void host_floor(const struct erg_gpu *gpu, const struct erg_stack *stack,
                       const struct erg_step *steps, size_t count, double *time_s, double *energy_j)
{
    struct erg_host_model host = {stack->host_per_kernel_s, gpu->static_power_w};
    int launches = 0;
    for (size_t s = 0; s < count; s++) {
        launches++;
        for (size_t i = 0; i < steps[s].task.op_count; i++)
            launches += steps[s].task.ops[i].kernels;
    }
    struct erg_cost layer = erg_host_floor(&host, (struct erg_cost){*time_s, *energy_j}, launches);
    *time_s = layer.time_s;
    *energy_j = layer.energy_j;
}

static void a100_golden_rows(void **state)
{
    (void)state;
    const double wire = 176160768;
    const struct golden rows[] = {
        {forward_attention, 5, 0, 3, 1410, wire, 2.079646, 0.599501, 288.271, 1410, 0.147315},
        {forward_attention, 5, 1, 6, 1410, wire, 1.892032, 0.570307, 301.425, 1410, 0},
        {forward_attention, 5, 1, 20, 1410, wire, 1.920318, 0.590939, 307.730, 1410, 0},
        {forward_attention, 5, 1, 1, 1410, wire, 5.367620, 1.136956, 211.818, 1410, 3.528246},
        {forward_attention, 5, 2, 12, 1200, wire, 2.074905, 0.456157, 219.845, 1200, 0},
        {forward_attention, 5, 0, 3, 990, wire, 2.440539, 0.450777, 184.704, 990, 0},
        {forward_mlp, 4, 1, 9, 1410, wire, 2.332869, 0.878363, 376.516, 1406.97, 0},
        {forward_mlp, 4, 0, 6, 990, wire, 3.074924, 0.674526, 219.363, 990, 0},
        {forward_mlp, 4, 3, 3, 1410, wire, 3.412217, 1.053706, 308.804, 1410, 1.120017},
        {forward_mlp, 4, 2, 30, 1410, wire, 2.554556, 0.942743, 369.044, 1408.85, 0.176215},
        {forward_mlp, 4, 0, 0, 1410, 0, 2.049488, 0.803755, 392.174, 1382.00, 0},
        {NULL, 0, 0, 6, 1410, wire, 1.273775, 0.204908, 160.866, 1410, 1.003038},
        {backward_mlp, 6, 1, 9, 1410, wire, 4.067535, 1.595493, 392.251, 1381.61, 0},
        {backward_mlp, 6, 1, 9, 1380, wire, 4.088206, 1.574127, 385.041, 1371.04, -1},
        {backward_mlp, 6, 1, 9, 1350, wire, 4.134871, 1.529941, 370.009, 1348.26, -1},
        {backward_mlp, 6, 1, 9, 1320, wire, 4.196240, 1.476698, 351.910, 1319.72, -1},
        {backward_mlp, 6, 1, 9, 1290, wire, 4.263192, 1.423113, 333.814, 1290.00, -1},
    };
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB");
    struct erg_stack stack = catalogue_stack("published-python");
    check_golden(&gpu, &stack, rows, COUNT(rows));
}

static void h200_golden_rows(void **state)
{
    (void)state;
    const double wire = 150994944;
    const struct golden rows[] = {
        {hopper_mlp, 4, 0, 4, 1980, wire, 1.869001, 1.073230, 574.226, 1980, -1},
        {hopper_mlp, 4, 0, 16, 1980, wire, 1.212199, 0.841154, 693.907, 1703.87, -1},
        {hopper_mlp, 4, 1, 8, 1980, wire, 1.526087, 1.019599, 668.113, 1979.65, -1},
        {hopper_mlp, 4, 1, 1, 1980, wire, 6.764746, 1.835262, 271.298, 1980, -1},
        {hopper_mlp, 4, 2, 32, 1980, wire, 1.252397, 0.869037, 693.899, 1748.75, -1},
        {hopper_mlp, 4, 3, 4, 1980, wire, 2.486959, 1.168914, 470.017, 1980, -1},
        {hopper_mlp, 4, 4, 16, 1980, wire, 1.461243, 1.005355, 688.014, 1970.61, -1},
    };
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = plain_stack;
    check_golden(&gpu, &stack, rows, COUNT(rows));
}

/* Attention of Llama 3.2 3B under TP4, a nanobatch of 4 x 4096: rows are launch slots, columns 1,
 * 2, 4, 12, 30 SMs at 1410 MHz, then 2, 4, 12 SMs at 1110 MHz (time only). */
static void schedules_differ_as_they_should(void **state)
{
    (void)state;
    const struct erg_op ops[] = {
        {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0, {0}, 0, 0, 0},
        {ERG_OP_GEMM, 1, 128849018880, 150470656, 3072, 1280, {0}, 0, 0, 0},
        {ERG_OP_MEMORY, 3, 0, 150994944, 0, 0, {0}, 0, 0, 0},
        {ERG_OP_ATTENTION_FORWARD, 1, 103079215104, 67108864, 0, 0, {0}, 0, 0, 0},
        {ERG_OP_GEMM, 1, 77309411328, 130547712, 768, 3072, {0}, 0, 0, 0},
    };
    const int sms[8] = {1, 2, 4, 12, 30, 2, 4, 12};
    const double time_ms[5][8] = {
        {4.411, 2.816, 2.867, 2.889, 2.905, 3.342, 3.369, 3.403},
        {4.854, 2.985, 2.813, 2.826, 2.854, 3.339, 3.371, 3.374},
        {5.345, 3.479, 2.792, 2.817, 2.856, 3.955, 3.346, 3.372},
        {5.481, 3.609, 2.772, 2.792, 2.841, 4.112, 3.344, 3.362},
        {6.215, 4.346, 3.476, 3.111, 3.087, 5.046, 4.047, 3.586},
    };
    const double energy_j[5][5] = {
        {1.217, 0.956, 0.965, 0.976, 1.001}, {1.289, 0.983, 0.956, 0.965, 0.988},
        {1.369, 1.064, 0.952, 0.963, 0.989}, {1.392, 1.085, 0.949, 0.958, 0.985},
        {1.512, 1.206, 1.064, 1.011, 1.026},
    };
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB");
    struct erg_stack stack = catalogue_stack("published-python");
    for (size_t slot = 0; slot < 5; slot++)
        for (size_t i = 0; i < 8; i++) {
            struct erg_step step = step_of(ops, 5, 150994944, slot, sms[i]);
            struct erg_emulated_result run = run_one(&gpu, &stack, &step, i < 5 ? 1410 : 1110);
            assert_near(run.time_s * 1e3, time_ms[slot][i], 0.0007);
            if (i < 5)
                assert_near(run.energy_j, energy_j[slot][i], 0.0007);
        }
}

static void throttling_makes_the_highest_clock_pointless(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_step step = step_of(hopper_mlp, 4, 0, 0, 0);
    const int clocks[3] = {1980, 1830, 1755};
    struct erg_emulated_result top, lower;
    for (int i = 0; i < 3; i++) {
        top = run_one(&gpu, &plain_stack, &step, clocks[i]);
        assert_near(top.time_s * 1e3, 1.094, 0.001);
        assert_near(top.energy_j, 0.759, 0.001);
        assert_near(top.clock_effective_mhz, 1683, 1);
    }
    lower = run_one(&gpu, &plain_stack, &step, 1650);
    assert_near(lower.time_s / top.time_s, 1.019, 0.001);
    assert_near(lower.energy_j / top.energy_j, 0.984, 0.001);
}

/* `ops` of a nanobatch, twice the tokens. */
static void double_tokens(const struct erg_op *ops, size_t count, struct erg_op *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = ops[i];
        out[i].flops *= 2;
        out[i].tiles *= 2;
        out[i].bytes *= 2;
    }
}

/*
 * Layers of Llama 3.2 3B under TP8, microbatch 8 x 4096, with the library's AllReduce: one after
 * the other, and in two nanobatches of which one computes while the other communicates.
 */
static void whole_layers_match_their_golden_numbers(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB");
    struct erg_stack stack = catalogue_stack("published-python");
    struct erg_op attention[5], mlp[4];
    double_tokens(forward_attention, 5, attention);
    double_tokens(forward_mlp, 4, mlp);
    const size_t weight_bytes[9] = {0, 2 * 3072 * 640, 0, 0, 2 * 384 * 3072, 0, 2 * 3072 * 2048,
                                    0, 2 * 1024 * 3072};
    for (size_t i = 0; i < 9; i++) /* weights do not grow with the tokens */
        (i < 5 ? &attention[i] : &mlp[i - 5])->bytes -= (double)weight_bytes[i];

    struct erg_step sequential[2] = {step_of(attention, 5, 352321536, 5, 0),
                                     step_of(mlp, 4, 352321536, 4, 0)};
    struct erg_step overlapped[4] = {step_of(forward_attention, 5, 176160768, 0, 0),
                                     step_of(forward_attention, 5, 176160768, 0, 0),
                                     step_of(forward_mlp, 4, 176160768, 0, 0),
                                     step_of(forward_mlp, 4, 176160768, 0, 0)};
    for (size_t i = 0; i < 4; i++)
        overlapped[i].task.comm.library = sequential[i / 2].task.comm.library = true;
    const struct {
        struct erg_step *steps;
        size_t count;
        int clock_mhz;
        double time_ms, energy_j;
    } golden[] = {
        {sequential, 2, 1410, 10.544, 3.372},
        {sequential, 2, 1110, 12.108, 2.533},
        {overlapped, 4, 1410, 9.375, 3.119},
    };
    for (size_t i = 0; i < COUNT(golden); i++) {
        struct erg_emulated_result layer;
        assert_ok(erg_emulated_run(&gpu, &stack, golden[i].steps, golden[i].count,
                                   golden[i].clock_mhz, &layer, &err),
                  &err);
        host_floor(&gpu, &stack, golden[i].steps, golden[i].count, &layer.time_s, &layer.energy_j);
        assert_close(layer.time_s * 1e3, golden[i].time_ms, 0.002);
        assert_close(layer.energy_j, golden[i].energy_j, 0.002);
    }
}

/* Random partitions, as a search would see them. */
enum { MAX_OPS = 8 };

struct random_partition {
    struct erg_op ops[MAX_OPS];
    struct erg_step step;
    int clock_mhz;
};

static void draw_partition(struct random_partition *out, struct erg_rng *rng,
                           const struct erg_gpu *gpu)
{
    size_t count = 1 + erg_rng_below(rng, MAX_OPS);
    for (size_t i = 0; i < count; i++) {
        double size = exp(2.5 * erg_rng_uniform(rng));
        struct erg_op *op = &out->ops[i];
        *op = (struct erg_op){.kind = (enum erg_op_kind)erg_rng_below(rng, 4),
                              .kernels = 1 + (int)erg_rng_below(rng, 3),
                              .bytes = 5e7 * size};
        if (op->kind != ERG_OP_MEMORY)
            op->flops = 2e10 * size;
        if (op->kind == ERG_OP_GEMM) {
            op->k = (double)(128 << erg_rng_below(rng, 7));
            op->tiles = (double)(100 + erg_rng_below(rng, 3000));
        }
    }
    double wire_bytes = 2e7 * exp(2.5 * erg_rng_uniform(rng));
    out->step = step_of(out->ops, count, wire_bytes, erg_rng_below(rng, count + 1),
                        1 + (int)erg_rng_below(rng, 30));
    int clocks = (gpu->search_max_mhz - gpu->search_min_mhz) / gpu->search_step_mhz + 1;
    out->clock_mhz =
        gpu->search_min_mhz + gpu->search_step_mhz * (int)erg_rng_below(rng, (size_t)clocks);
}

static void for_random_partitions(void (*check)(const struct erg_gpu *, const struct erg_stack *,
                                                const struct random_partition *))
{
    struct erg_gpu gpus[2] = {catalogue_gpu("A100-SXM4-40GB"), catalogue_gpu("H200-SXM")};
    struct erg_stack stack = catalogue_stack("published-python");
    struct erg_rng rng;
    erg_rng_seed(&rng, 7);
    for (int i = 0; i < 600; i++) {
        struct random_partition partition;
        draw_partition(&partition, &rng, &gpus[i % 2]);
        check(&gpus[i % 2], &stack, &partition);
    }
}

static void check_power_and_bounds(const struct erg_gpu *gpu, const struct erg_stack *stack,
                                   const struct random_partition *partition)
{
    struct erg_emulated_result capped = run_one(gpu, stack, &partition->step, partition->clock_mhz);
    assert_true(capped.power_w <= 1.005 * gpu->power_cap_w);
    assert_true(capped.clock_effective_mhz <= partition->clock_mhz);

    /* Not faster than compute alone, nor than communication alone, at the same clock. */
    struct erg_gpu free_gpu = *gpu;
    free_gpu.power_cap_w = INFINITY;
    struct erg_step compute = partition->step, comm = partition->step;
    compute.task.comm.wire_bytes = 0;
    comm.task.op_count = comm.launch.slot = 0;
    double both_s = run_one(&free_gpu, stack, &partition->step, partition->clock_mhz).time_s;
    double compute_s = run_one(&free_gpu, stack, &compute, partition->clock_mhz).time_s;
    double comm_s = run_one(&free_gpu, stack, &comm, partition->clock_mhz).time_s;
    assert_true(both_s >= compute_s * (1 - 1e-9));
    assert_true(both_s >= (comm_s - stack->join_grid_s) * (1 - 1e-9));

    /* Overlap loses against sequential execution through contention or a held launch only. */
    free_gpu.comm_contention = free_gpu.comm_sm_share = free_gpu.comm_hbm_per_wire = 0;
    free_gpu.persistent_gemm = 0;
    struct erg_step sequential = partition->step;
    sequential.launch.slot = sequential.task.op_count;
    double overlap_s = run_one(&free_gpu, stack, &partition->step, partition->clock_mhz).time_s;
    double sequential_s = run_one(&free_gpu, stack, &sequential, partition->clock_mhz).time_s;
    assert_true(overlap_s <= sequential_s * (1 + 1e-9));

    /* A lone communication never slows down with more SMs. */
    struct erg_step more = comm;
    more.launch.sms++;
    assert_true(run_one(gpu, stack, &more, partition->clock_mhz).time_s <= comm_s * (1 + 1e-9));
}

static void power_and_time_stay_in_their_bounds(void **state)
{
    (void)state;
    for_random_partitions(check_power_and_bounds);
}

static void check_clock(const struct erg_gpu *gpu, const struct erg_stack *stack,
                        const struct random_partition *partition)
{
    struct erg_step compute = partition->step;
    compute.task.comm.wire_bytes = 0;
    double last_s = INFINITY, last_overlap_s = INFINITY;
    for (int clock = gpu->search_min_mhz; clock <= gpu->search_max_mhz; clock += 90) {
        double time_s = run_one(gpu, stack, &compute, clock).time_s;
        assert_true(time_s <= last_s * (1 + 1e-4)); /* 1e-4: the dither of a capped clock */
        last_s = time_s;
        /* Faster communication may take HBM bandwidth from compute, but not much. */
        double overlap_s = run_one(gpu, stack, &partition->step, clock).time_s;
        assert_true(overlap_s <= last_overlap_s * 1.04);
        last_overlap_s = overlap_s;
    }
}

static void time_falls_with_the_clock(void **state)
{
    (void)state;
    for_random_partitions(check_clock);
}

static void check_cap_entry(const struct erg_gpu *gpu, const struct erg_stack *stack,
                            const struct random_partition *partition)
{
    struct erg_error err;
    struct erg_emulated_result below, above;
    double low = 300, high = gpu->clock_max_mhz;
    for (int round = 0; round < 50; round++) { /* to the clock where the cap begins to act */
        double middle = 0.5 * (low + high);
        assert_ok(erg_emulated_run_at(gpu, stack, &partition->step, 1, middle, gpu->reference_c,
                                      &above, &err),
                  &err);
        if (above.throttle > 0)
            high = middle;
        else
            low = middle;
    }
    erg_emulated_run_at(gpu, stack, &partition->step, 1, low, gpu->reference_c, &below, &err);
    erg_emulated_run_at(gpu, stack, &partition->step, 1, high, gpu->reference_c, &above, &err);
    assert_close(above.time_s, below.time_s, 1e-3);
    assert_close(above.energy_j, below.energy_j, 1e-3);
}

static void the_cap_sets_in_without_a_jump(void **state)
{
    (void)state;
    for_random_partitions(check_cap_entry);
}

static void check_groups(const struct erg_gpu *gpu, const struct erg_stack *stack,
                         const struct random_partition *partition)
{
    struct erg_error err;
    struct erg_emulated_result one = run_one(gpu, stack, &partition->step, partition->clock_mhz);
    struct erg_step steps[3] = {partition->step, partition->step, partition->step};
    struct erg_emulated_result three;
    assert_ok(erg_emulated_run(gpu, stack, steps, 3, partition->clock_mhz, &three, &err), &err);
    assert_close(three.time_s, 3 * one.time_s, 1e-5);
    assert_close(three.energy_j, 3 * one.energy_j, 1e-5);
    assert_near(three.clock_effective_mhz, one.clock_effective_mhz, 0.02);

    /* With a step of low power in the group, the budget goes round. */
    struct erg_step rest = partition->step;
    rest.task.op_count = rest.launch.slot = 0;
    rest.launch.sms = 4;
    steps[1] = rest;
    assert_ok(erg_emulated_run(gpu, stack, steps, 2, partition->clock_mhz, &three, &err), &err);
    assert_true(three.clock_effective_mhz >= one.clock_effective_mhz - 0.02);
    assert_true(three.power_w <= 1.005 * gpu->power_cap_w);
}

static void groups_are_capped_jointly(void **state)
{
    (void)state;
    for_random_partitions(check_groups);
}

static void check_split(const struct erg_gpu *gpu, const struct erg_stack *stack,
                        const struct random_partition *partition)
{
    struct erg_step whole = partition->step, halved = partition->step;
    struct erg_op ops[MAX_OPS], split[2 * MAX_OPS];
    size_t count = whole.task.op_count;
    for (size_t i = 0; i < count; i++) {
        ops[i] = partition->ops[i];
        ops[i].kernels *= 2;
        if (ops[i].kind == ERG_OP_GEMM) /* a multiple of whole waves has no rounding to differ in */
            ops[i].tiles = 2 * gpu->sms * ceil(ops[i].tiles / gpu->sms);
        split[2 * i] = ops[i];
        split[2 * i].kernels /= 2;
        split[2 * i].flops /= 2;
        split[2 * i].bytes /= 2;
        split[2 * i].tiles /= 2;
        split[2 * i + 1] = split[2 * i];
    }
    whole.task.ops = ops;
    halved.task.ops = split;
    halved.task.op_count = 2 * count;
    whole.task.comm.wire_bytes = halved.task.comm.wire_bytes = 0;
    double whole_s = run_one(gpu, stack, &whole, partition->clock_mhz).time_s;
    double halved_s = run_one(gpu, stack, &halved, partition->clock_mhz).time_s;
    assert_close(halved_s, whole_s, 1e-6);
}

static void splitting_an_op_changes_nothing(void **state)
{
    (void)state;
    for_random_partitions(check_split);
}

static void check_timeline(const struct erg_gpu *gpu, const struct erg_stack *stack,
                           const struct random_partition *partition)
{
    struct erg_error err;
    struct erg_emulated_timeline timeline = {0};
    struct erg_step steps[2] = {partition->step, partition->step};
    struct erg_emulated_result result;
    assert_ok(erg_emulated_run(gpu, stack, steps, 2, partition->clock_mhz, &result, &err), &err);
    assert_ok(erg_emulated_timeline(gpu, stack, steps, 2, partition->clock_mhz, &timeline, &err),
              &err);
    double end_s = 0;
    size_t comms = 0, joins = 0, ops = 0;
    for (size_t i = 0; i < timeline.count; i++) {
        const struct erg_emulated_span *span = &timeline.spans[i];
        assert_true(span->end_s >= span->start_s);
        end_s = fmax(end_s, span->end_s);
        comms += span->lane == ERG_SPAN_COMM;
        joins += span->lane == ERG_SPAN_JOIN;
        if (span->lane == ERG_SPAN_COMPUTE)
            assert_int_equal(span->op + span->step * partition->step.task.op_count, ops++);
    }
    assert_int_equal(ops, 2 * partition->step.task.op_count);
    assert_int_equal(comms, 2);
    assert_int_equal(joins, 2);
    assert_close(end_s, result.time_s, 1e-9);
    erg_emulated_timeline_release(&timeline);
}

static void the_timeline_contains_every_op(void **state)
{
    (void)state;
    for_random_partitions(check_timeline);
}

static void persistent_gemms_hold_a_launch(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = plain_stack;
    struct erg_step before = step_of(hopper_mlp, 4, 150994944, 1, 4), after = before;
    after.launch.slot = 2;
    assert_close(run_one(&gpu, &stack, &before, 1500).time_s,
                 run_one(&gpu, &stack, &after, 1500).time_s, 1e-9);
}

static void a_hotter_die_leaks_and_throttles(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("H200-SXM");
    struct erg_stack stack = plain_stack;
    struct erg_error err;
    struct erg_step step = step_of(hopper_mlp, 4, 150994944, 0, 16);
    struct erg_emulated_result cold, warm;
    erg_emulated_run_at(&gpu, &stack, &step, 1, 1980, 45, &cold, &err);
    erg_emulated_run_at(&gpu, &stack, &step, 1, 1980, 64, &warm, &err);
    assert_true(warm.clock_effective_mhz < cold.clock_effective_mhz);
    assert_true(warm.time_s > cold.time_s && warm.energy_j > cold.energy_j);
    erg_emulated_run_at(&gpu, &stack, &step, 1, 1300, 45, &cold, &err);
    erg_emulated_run_at(&gpu, &stack, &step, 1, 1300, 64, &warm, &err);
    assert_near(warm.time_s, cold.time_s, 0);
    assert_close(warm.energy_j - cold.energy_j, 120 * 0.012 * 19 * warm.time_s, 1e-9);
}

static void the_host_floor_slows_small_work_only(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB");
    struct erg_stack stack = catalogue_stack("published-python");
    struct erg_step steps[2] = {step_of(forward_mlp, 4, 0, 0, 0), step_of(forward_mlp, 4, 0, 0, 0)};
    double host_s = 127.6e-6 * 2 * (5 + 1), time_s = host_s, energy_j = 1;
    host_floor(&gpu, &stack, steps, 2, &time_s, &energy_j);
    assert_close(time_s, host_s * pow(2, 1.0 / 6), 1e-12);
    assert_close(energy_j, 1 + 60 * (time_s - host_s), 1e-12);
    time_s = 1, energy_j = 300;
    host_floor(&gpu, &stack, steps, 2, &time_s, &energy_j);
    assert_close(time_s, 1, 1e-9);
    stack.host_per_kernel_s = 0;
    time_s = 1e-6, energy_j = 3e-4;
    host_floor(&gpu, &stack, steps, 2, &time_s, &energy_j);
    assert_near(time_s, 1e-6, 0);
    assert_near(energy_j, 3e-4, 0);
}

static void nonsense_is_refused_with_a_sentence(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB");
    struct erg_stack stack = catalogue_stack("published-python");
    struct erg_error err;
    struct erg_emulated_result result;
    struct erg_step step = step_of(forward_mlp, 4, 1e8, 5, 3);
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 1410, &result, &err), &err, "slot 5");
    step.launch = (struct erg_launch){0, 0};
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 1410, &result, &err), &err, "0 SMs");
    step.launch.sms = 1;
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 1500, &result, &err), &err, "1500 MHz");
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 0, &result, &err), &err, "0 MHz");
    struct erg_op bad = forward_mlp[1];
    bad.k = 0;
    step.task.ops = &bad;
    step.task.op_count = 1;
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 1410, &result, &err), &err,
                 "inner dimension");
    bad = forward_mlp[1];
    bad.flops = NAN;
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 1410, &result, &err), &err, "flops nan");
    step = step_of(forward_mlp, 4, INFINITY, 0, 3);
    assert_fails(erg_emulated_run(&gpu, &stack, &step, 1, 1410, &result, &err), &err, "inf bytes");
}

static void calibration_scales_the_named_constants(void **state)
{
    (void)state;
    struct erg_gpu gpu = catalogue_gpu("A100-SXM4-40GB"), gpu_out;
    struct erg_stack stack = catalogue_stack("published-python"), stack_out;
    size_t count;
    const struct erg_calibratable *list = erg_emulated_calibratables(&count);
    double log_ratio[64] = {0};
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, "comm_link_factor") == 0 ||
            strcmp(list[i].name, "join_grid_s") == 0)
            log_ratio[i] = log(2);
    erg_emulated_calibrate(&gpu, &stack, log_ratio, &gpu_out, &stack_out);
    assert_close(gpu_out.comm_link_factor, 2 * 0.70957, 1e-12);
    assert_close(stack_out.library_link_factor, 2 * 0.85975, 1e-12);
    assert_close(stack_out.join_grid_s, 2 * 270.74e-6, 1e-12);
    assert_close(stack_out.join_library_s, 2 * 355.31e-6, 1e-12);
    assert_near(gpu_out.gemm_efficiency, gpu.gemm_efficiency, 0);
    assert_near(stack_out.library_sm_share, stack.library_sm_share, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a100_golden_rows),
        cmocka_unit_test(h200_golden_rows),
        cmocka_unit_test(schedules_differ_as_they_should),
        cmocka_unit_test(whole_layers_match_their_golden_numbers),
        cmocka_unit_test(throttling_makes_the_highest_clock_pointless),
        cmocka_unit_test(power_and_time_stay_in_their_bounds),
        cmocka_unit_test(time_falls_with_the_clock),
        cmocka_unit_test(the_cap_sets_in_without_a_jump),
        cmocka_unit_test(groups_are_capped_jointly),
        cmocka_unit_test(splitting_an_op_changes_nothing),
        cmocka_unit_test(the_timeline_contains_every_op),
        cmocka_unit_test(persistent_gemms_hold_a_launch),
        cmocka_unit_test(a_hotter_die_leaks_and_throttles),
        cmocka_unit_test(the_host_floor_slows_small_work_only),
        cmocka_unit_test(nonsense_is_refused_with_a_sentence),
        cmocka_unit_test(calibration_scales_the_named_constants),
    };
    return cmocka_run_group_tests(tests, NULL, catalogue_release);
}
