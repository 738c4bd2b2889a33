/*
 * Partitions are derived from op lists. Expected: the tables of the published system (Kareus
 * and its artifact: partition types, order, slots, sizes), which no code here contains.
 */
#include "check.h"
#include "golden_ops.h"

#include "device/emulated/emulated.h"
#include "partition/cut_internal.h"
#include "partition/partition.h"

struct expected {
    const char *key;
    int occurrences;
    enum erg_comm_kind comm;
    const char *slots;     /* space separated */
    size_t configurations; /* at 18 clocks */
};

static const struct expected tensor_only[] = {
    {"fwd_attn", 2, ERG_COMM_ALLREDUCE, "norm_0 linear_0 rope_0 attn_0", 720},
    {"fwd_mlp", 2, ERG_COMM_ALLREDUCE, "norm_0 linear_0 activation_0", 540},
    {"bwd_mlp", 2, ERG_COMM_ALLREDUCE, "norm_0 linear_0 activation_0", 540},
    {"bwd_attn", 2, ERG_COMM_ALLREDUCE, "norm_0 linear_0 attn_0 rope_0", 720},
};
static const struct expected context_and_tensor[] = {
    {"fwd_qkv_ar", 1, ERG_COMM_ALLREDUCE, "norm_0 linear_0", 360},
    {"fwd_qkv_ag", 1, ERG_COMM_ALLGATHER_KV, "norm_0 linear_0 rope_0", 1080},
    {"fwd_ao_ag", 1, ERG_COMM_ALLGATHER_KV, "attn_0 linear_0", 720},
    {"fwd_ao_ar", 1, ERG_COMM_ALLREDUCE, "attn_0", 180},
    {"fwd_mlp", 2, ERG_COMM_ALLREDUCE, "norm_0 linear_0 activation_0", 540},
    {"bwd_mlp", 2, ERG_COMM_ALLREDUCE, "norm_0 linear_0 activation_0", 540},
    {"bwd_o_ar", 1, ERG_COMM_ALLREDUCE, "norm_0", 180},
    {"bwd_o_ag", 1, ERG_COMM_ALLGATHER_KV, "norm_0 linear_0", 720},
    {"bwd_a_ag", 1, ERG_COMM_ALLGATHER_KV, "attn_0", 360},
    {"bwd_a_rs", 1, ERG_COMM_REDUCESCATTER_KV, "attn_0", 360},
    {"bwd_qkv_rs", 1, ERG_COMM_REDUCESCATTER_KV, "rope_0 linear_0", 720},
    {"bwd_qkv_ar", 1, ERG_COMM_ALLREDUCE, "rope_0 linear_0", 360},
};

/* The ten published workloads. */
static const struct {
    const char *model;
    int tensor, context, microbatch_size, sequence;
} published[] = {
    {"llama-3.2-3b", 8, 1, 8, 4096}, {"llama-3.2-3b", 4, 2, 8, 4096},
    {"llama-3.2-3b", 4, 2, 8, 8192}, {"llama-3.2-3b", 4, 2, 16, 4096},
    {"qwen3-1.7b", 8, 1, 8, 4096},   {"qwen3-1.7b", 8, 1, 8, 8192},
    {"qwen3-1.7b", 8, 1, 16, 4096},  {"qwen3-1.7b", 4, 2, 8, 4096},
    {"qwen3-1.7b", 4, 2, 8, 8192},   {"qwen3-1.7b", 4, 2, 16, 4096},
};

struct fixture {
    struct erg_model *model;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_workload_request request;
    struct erg_workload workload;
};

static void set_up(struct fixture *f, const char *model, int tensor, int context,
                   int microbatch_size, int sequence, bool recompute)
{
    struct erg_error err = {0};
    assert_ok(erg_model_load(&f->model, model, &err), &err);
    assert_ok(erg_gpu_load(&f->gpu, "a100-sxm4-40gb", &err), &err);
    assert_ok(erg_stack_load(&f->stack, "published-python", &err), &err);
    f->request = (struct erg_workload_request){
        .model = f->model,
        .gpu = f->gpu,
        .stack = f->stack,
        .tensor = tensor,
        .context = context,
        .microbatch_size = microbatch_size,
        .sequence = sequence,
        .recompute = recompute,
    };
    assert_ok(erg_workload_build(&f->workload, &f->request, &err), &err);
}

static void tear_down(struct fixture *f)
{
    erg_workload_release(&f->workload);
    erg_stack_free(f->stack);
    erg_gpu_free(f->gpu);
    erg_model_free(f->model);
}

static void published_tables_follow_from_the_op_lists(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof published / sizeof *published; w++) {
        struct fixture f;
        set_up(&f, published[w].model, published[w].tensor, published[w].context,
               published[w].microbatch_size, published[w].sequence, true);
        const struct expected *expected =
            published[w].context > 1 ? context_and_tensor : tensor_only;
        size_t count = published[w].context > 1 ? 12 : 4;
        assert_int_equal(f.workload.forward_count + f.workload.backward_count, count);
        for (size_t i = 0; i < count; i++) {
            const struct erg_partition *p = &f.workload.partitions[i];
            assert_string_equal(p->key, expected[i].key);
            assert_int_equal(p->occurrences, expected[i].occurrences);
            assert_int_equal(p->task.comm.kind, expected[i].comm);
            char slots[128] = "";
            for (size_t s = 0; s < p->slot_count; s++)
                snprintf(slots + strlen(slots), sizeof slots - strlen(slots), "%s%s", s ? " " : "",
                         p->slots[s].name);
            assert_string_equal(slots, expected[i].slots);
            assert_int_equal(18 * p->slot_count * p->sms_count, expected[i].configurations);
        }
        tear_down(&f);
    }
}

/* Emulator acceptance rows: the op list of these partitions, to the byte. */
static void op_lists_are_those_of_the_golden_rows(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "llama-3.2-3b", 8, 1, 8, 4096, true);
    const struct {
        size_t partition;
        const struct erg_op *ops;
        size_t count;
    } cases[] = {{0, forward_attention, 5}, {2, backward_mlp, 6}};
    for (size_t c = 0; c < 2; c++) {
        const struct erg_task *task = &f.workload.partitions[cases[c].partition].task;
        assert_int_equal(task->op_count, cases[c].count);
        assert_near(task->comm.wire_bytes, 176160768, 0);
        for (size_t i = 0; i < task->op_count; i++) {
            assert_int_equal(task->ops[i].kind, cases[c].ops[i].kind);
            assert_int_equal(task->ops[i].kernels, cases[c].ops[i].kernels);
            assert_near(task->ops[i].flops, cases[c].ops[i].flops, 0);
            assert_near(task->ops[i].bytes, cases[c].ops[i].bytes, 0);
            if (task->ops[i].kind == ERG_OP_GEMM) {
                assert_near(task->ops[i].k, cases[c].ops[i].k, 0);
                assert_near(task->ops[i].tiles, cases[c].ops[i].tiles, 0);
            }
        }
    }
    tear_down(&f);
}

#define PART(id) (1u << ERG_MODEL_##id)

/* A device with real kernels learns what to run from the codes of the ops. */
static void ops_carry_codes(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "qwen3-1.7b", 8, 1, 8, 4096, true);
    const struct {
        const char *key;
        enum erg_model_op_id comm; /* what the other nanobatch has left behind */
        struct erg_op_code codes[6];
    } cases[] = {
        {"fwd_attn",
         ERG_MODEL_REDUCE_M,
         {{PART(BDA_M) | PART(NORM_A), false, false, 4},
          {PART(QKV), false, false, 4},
          {PART(QKV_POST) | PART(ROPE), false, false, 4},
          {PART(ATTENTION), false, false, 4},
          {PART(PROJ), false, false, 4}}},
        {"bwd_mlp",
         ERG_MODEL_REDUCE_A,
         {{PART(NORM_A) | PART(FORK_A) | PART(BDA_M), true, false, 4},
          {PART(FC2), true, false, 4},
          {PART(FC2), true, true, 4},
          {PART(ACTIVATION), true, false, 4},
          {PART(FC1), true, false, 4},
          {PART(FC1), true, true, 4}}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct erg_partition *partition = f.workload.partitions;
        while (strcmp(partition->key, cases[c].key) != 0)
            partition++;
        assert_int_equal(partition->task.comm.part, cases[c].comm);
        assert_int_equal(partition->task.comm.sequences, 4);
        for (size_t i = 0; i < partition->task.op_count; i++) {
            const struct erg_op_code *code = &partition->task.ops[i].code;
            assert_int_equal(code->parts, cases[c].codes[i].parts);
            assert_int_equal(code->backward, cases[c].codes[i].backward);
            assert_int_equal(code->weights, cases[c].codes[i].weights);
            assert_int_equal(code->sequences, cases[c].codes[i].sequences);
        }
    }
    tear_down(&f);
}

/* Kareus, partitions: 4L+2 with TP, 6L+2 and 8L+2 with CP; the replay adds a forward per layer. */
static void an_instruction_has_two_partitions_per_segment_and_two_at_its_end(void **state)
{
    (void)state;
    const struct {
        int tensor, context;
        bool recompute;
        int per_layer[2];
    } cases[] = {
        {8, 1, false, {4, 4}}, {8, 1, true, {4, 8}}, {4, 2, false, {6, 8}}, {4, 2, true, {6, 14}}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct fixture f;
        set_up(&f, "llama-3.2-3b", cases[c].tensor, cases[c].context, 8, 4096, cases[c].recompute);
        for (int layers = 1; layers <= 15; layers += 7)
            for (int backward = 0; backward < 2; backward++) {
                struct erg_error err = {0};
                const struct erg_stage_partition *list;
                size_t count;
                assert_ok(erg_stage_partitions(&f.workload, &f.request, layers, backward, &list,
                                               &count, &err),
                          &err);
                assert_int_equal(count, cases[c].per_layer[backward] * layers + 2);
                assert_int_equal(list[0].task.comm.kind, ERG_COMM_NONE);
                assert_int_equal(list[count - 1].task.comm.kind, ERG_COMM_NONE);
                assert_int_not_equal(list[count - 2].task.comm.kind, ERG_COMM_NONE);
                for (size_t i = 0; i < count; i++) {
                    assert_int_equal(list[i].nanobatch, i % 2);
                    /* everything but the tail belongs to a searched type of its direction */
                    if (i + 2 < count) {
                        assert_true(list[i].type >= 0);
                        int forwards = cases[c].recompute ? cases[c].per_layer[0] : 0;
                        assert_int_equal(f.workload.partitions[list[i].type].backward,
                                         backward && (int)i % cases[c].per_layer[1] >= forwards);
                        if (i)
                            assert_int_equal(f.workload.partitions[list[i].type].task.comm.kind,
                                             list[i].task.comm.kind);
                    } else {
                        assert_int_equal(list[i].type, -1);
                    }
                }
            }
        tear_down(&f);
    }
}

static double steps_time_s(const struct fixture *f, const struct erg_step *steps, size_t count)
{
    double sum_s = 0;
    for (size_t i = 0; i < count; i++) {
        struct erg_error err = {0};
        struct erg_emulated_result result;
        assert_ok(erg_emulated_run(f->gpu, f->stack, &steps[i], 1, 1110, &result, &err), &err);
        sum_s += result.time_s;
    }
    return sum_s;
}

/*
 * An instruction of three layers, partition by partition as it runs, against the sums that the
 * composition makes: a single layer with its ends and two steady ones; and, with the schedules of
 * overlap, every type as often as it occurs, one of the first type less, plus the ends.
 */
static void the_ends_complete_an_instruction(void **state)
{
    (void)state;
    const int degrees[][2] = {{8, 1}, {4, 2}, {1, 2}};
    for (size_t c = 0; c < 12; c++) {
        struct fixture f;
        int backward = c & 1;
        bool recompute = c & 2;
        const int *degree = degrees[c / 4];
        set_up(&f, "llama-3.2-3b", degree[0], degree[1], 8, 4096, recompute);
        struct erg_error err = {0};
        const struct erg_stage_partition *list;
        size_t count;
        assert_ok(erg_stage_partitions(&f.workload, &f.request, 3, backward, &list, &count, &err),
                  &err);
        double library_s = 0, overlap_s = 0;
        for (size_t i = 0; i < count; i++) {
            struct erg_step step = {.task = list[i].task};
            /* few SMs for what has much compute beside it, as `ends` chooses them for the tail */
            step.launch.sms = i == count - 2 ? f.workload.ends[backward].steps[1].launch.sms : 6;
            overlap_s += steps_time_s(&f, &step, 1);
            step.task.comm.library = true;
            library_s += steps_time_s(&f, &step, 1);
        }
        const struct erg_steps *single = &f.workload.nanobatch_single[backward];
        const struct erg_steps *steady = &f.workload.nanobatch[backward];
        const struct erg_steps *ends = &f.workload.ends[backward];
        assert_close(steps_time_s(&f, single->steps, single->count) +
                         2 * steps_time_s(&f, steady->steps, steady->count),
                     library_s, 0.002);
        size_t first = backward && !f.workload.replays_forward ? f.workload.forward_count : 0;
        size_t end = backward ? f.workload.forward_count + f.workload.backward_count
                              : f.workload.forward_count;
        double sum_s = steps_time_s(&f, ends->steps, ends->count);
        for (size_t i = first; i < end; i++) {
            const struct erg_partition *partition = &f.workload.partitions[i];
            struct erg_step step = erg_partition_step(partition, 0, 6);
            sum_s += (3 * partition->occurrences - (i == first)) * steps_time_s(&f, &step, 1);
        }
        assert_close(sum_s, overlap_s, 0.005);
        tear_down(&f);
    }
}

static void count_work(const struct erg_steps *steps, double *flops, double *wire_bytes)
{
    *flops = *wire_bytes = 0;
    for (size_t i = 0; i < steps->count; i++) {
        for (size_t k = 0; k < steps->steps[i].task.op_count; k++)
            *flops += steps->steps[i].task.ops[k].flops;
        if (steps->steps[i].task.comm.kind != ERG_COMM_NONE)
            *wire_bytes += steps->steps[i].task.comm.wire_bytes;
    }
}

/* Steps of an instruction of four layers: the compute of four layers, all of its communication, and
 * launches that are those of the types. */
static void whole_instructions_are_steps_of_all_layers(void **state)
{
    (void)state;
    static const struct {
        int tensor, context;
        bool recompute;
    } cases[] = {{4, 1, false}, {4, 1, true}, {2, 2, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct fixture f;
        set_up(&f, "llama-3.2-3b", cases[c].tensor, cases[c].context, 8, 4096, cases[c].recompute);
        struct erg_launch launches[32];
        for (int i = 0; i < 32; i++)
            launches[i] = (struct erg_launch){.slot = 1, .sms = 3 + i};
        for (int backward = 0; backward < 2; backward++) {
            struct erg_error err = {0};
            struct erg_steps stack, steady;
            double flops[2], wire[2];
            int layers = 4;
            assert_ok(erg_stage_sequential(&f.workload, &f.request, layers, backward, &stack, &err),
                      &err);
            steady = f.workload.sequential[backward];
            count_work(&stack, &flops[0], &wire[0]);
            count_work(&steady, &flops[1], &wire[1]);
            assert_close(flops[0], layers * flops[1], 1e-12);
            assert_close(wire[0], layers * wire[1], 1e-12);
            assert_true(stack.steps[0].instruction && stack.steps[stack.count - 1].instruction);

            assert_ok(erg_stage_nanobatched(&f.workload, &f.request, layers, backward, NULL, &stack,
                                            &err),
                      &err);
            steady = f.workload.nanobatch[backward];
            count_work(&stack, &flops[0], &wire[0]);
            count_work(&steady, &flops[1], &wire[1]);
            assert_close(flops[0], layers * flops[1], 1e-12);
            assert_close(wire[0], layers * wire[1], 1e-12);
            assert_true(stack.steps[1].task.comm.library && stack.steps[1].launch.slot == 0);

            assert_ok(erg_stage_nanobatched(&f.workload, &f.request, layers, backward, launches,
                                            &stack, &err),
                      &err);
            size_t first = backward && !cases[c].recompute ? f.workload.forward_count : 0;
            const struct erg_step *second = &stack.steps[1], *last = &stack.steps[stack.count - 2];
            assert_false(second->task.comm.library);
            assert_int_equal(second->launch.slot, 1);
            assert_in_range(second->launch.sms, 3 + first, 4 + first);
            assert_int_equal(last->launch.slot, 0);
            assert_int_equal(last->launch.sms, f.workload.ends[backward].steps[1].launch.sms);
            for (size_t i = 0; i < stack.count; i++)
                assert_true(stack.steps[i].launch.slot <= stack.steps[i].task.op_count);
        }
        tear_down(&f);
    }
}

/* Published kernel counts of a nanobatched layer: forward 30, replay and backward 74. */
/*
 * What the planner adds up does the work of the instruction, whatever is cut where: all types in
 * every layer, less the first one of the direction, and the ends.
 */
static void pieces_add_up_to_the_instruction(void **state)
{
    (void)state;
    static const int degrees[][2] = {{2, 1}, {8, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 2}};
    enum { LAYERS = 3 };
    for (size_t i = 0; i < 4 * sizeof degrees / sizeof *degrees; i++) {
        struct fixture f;
        bool recompute = i & 1, backward = i & 2;
        set_up(&f, "llama-3.2-1b", degrees[i / 4][0], degrees[i / 4][1], 4, 2048, recompute);
        const struct erg_workload *workload = &f.workload;
        size_t first = backward && !workload->replays_forward ? workload->forward_count : 0;
        size_t end = workload->forward_count + (backward ? workload->backward_count : 0);
        double flops, wire_bytes, all_flops, all_wire_bytes;
        count_work(&workload->ends[backward], &flops, &wire_bytes);
        for (size_t k = first; k < end; k++) {
            struct erg_step step = erg_partition_step(&workload->partitions[k], 0, 3);
            const struct erg_steps once = {.steps = &step, .count = 1};
            double type_flops, type_wire_bytes;
            count_work(&once, &type_flops, &type_wire_bytes);
            int times = LAYERS * workload->partitions[k].occurrences - (k == first);
            flops += times * type_flops;
            wire_bytes += times * type_wire_bytes;
        }
        struct erg_steps steps;
        struct erg_error err = {0};
        assert_ok(
            erg_stage_nanobatched(&f.workload, &f.request, LAYERS, backward, NULL, &steps, &err),
            &err);
        count_work(&steps, &all_flops, &all_wire_bytes);
        assert_close(flops, all_flops, 1e-12);
        assert_close(wire_bytes, all_wire_bytes, 1e-12);
        tear_down(&f);
    }
}

/* Where a replayed layer meets the layer behind it, its first run has an op more, and the launch is
 * still beside the op that the slot is named after. */
static void slots_are_found_behind_more_ops(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "llama-3.2-1b", 4, 1, 4, 2048, true);
    struct erg_launch launches[8] = {{0, 3}, {0, 3}, {0, 3}, {0, 3}};
    launches[0].slot = 1; /* of fwd_attn: qkv */
    struct erg_steps steps;
    struct erg_error err = {0};
    assert_ok(erg_stage_nanobatched(&f.workload, &f.request, 2, true, launches, &steps, &err),
              &err);
    size_t longer = 0;
    for (size_t i = 0; i < steps.count; i++) {
        const struct erg_step *step = &steps.steps[i];
        if (step->launch.slot == 0)
            continue;
        assert_int_equal(step->task.ops[step->launch.slot].code.parts, 1u << ERG_MODEL_QKV);
        longer += step->launch.slot > 1;
    }
    assert_int_equal(longer, 2);
    tear_down(&f);
}

/* Both ends of an instruction over context ranks alone have compute beside a communication: little
 * at the first, nearly a layer at the last. Each gets the SMs that it needs. */
static void each_end_gets_its_own_sms(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "llama-2-7b", 1, 8, 8, 4096, false);
    struct erg_launch launches[8] = {{0, 30}};
    struct erg_steps steps;
    struct erg_error err = {0};
    assert_ok(erg_stage_nanobatched(&f.workload, &f.request, 2, false, launches, &steps, &err),
              &err);
    assert_int_equal(steps.steps[steps.count - 2].launch.sms, 3);
    assert_true(steps.steps[1].launch.sms > 3);
    tear_down(&f);
}

static void whole_layers_have_the_published_kernel_counts_and_costs(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "llama-3.2-3b", 8, 1, 8, 4096, true);
    assert_int_equal(f.workload.nanobatch[0].kernels, 30);
    assert_int_equal(f.workload.nanobatch[1].kernels, 74);
    const struct {
        const struct erg_steps *steps;
        int clock_mhz;
        double time_s, energy_j;
    } cases[] = {
        {&f.workload.sequential[0], 1410, 10.544e-3, 3.372},
        {&f.workload.sequential[0], 1110, 12.108e-3, 2.533},
        {&f.workload.nanobatch[0], 1410, 9.375e-3, 3.119},
        {&f.workload.nanobatch[1], 1410, 25.63e-3, 8.94},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err = {0};
        struct erg_emulated_result result;
        assert_ok(erg_emulated_run(f.gpu, f.stack, cases[i].steps->steps, cases[i].steps->count,
                                   cases[i].clock_mhz, &result, &err),
                  &err);
        assert_close(result.time_s, cases[i].time_s, 0.002);
        assert_close(result.energy_j, cases[i].energy_j, 0.002);
    }
    tear_down(&f);
}

static struct erg_model_op compute_op(enum erg_model_op_id id, enum erg_model_group group,
                                      enum erg_op_kind kind, double bytes)
{
    return (struct erg_model_op){
        .id = id,
        .name = "op",
        .group = group,
        .work = {{.kind = kind, .kernels = 1, .bytes = bytes}},
        .work_count = 1,
    };
}

static struct erg_model_op comm_op(enum erg_comm_kind kind, double wire_bytes)
{
    return (struct erg_model_op){
        .id = ERG_MODEL_GATHER_KV,
        .name = "comm",
        .group = ERG_GROUP_COMM,
        .comm = true,
        .communication = {.kind = kind, .wire_bytes = wire_bytes, .group = 2},
    };
}

/* K and V gathered one after the other are one communication; neighbours of a group are one op. */
static void adjacent_communications_fuse_and_memory_runs_merge(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_model_ops ops = {
        .items =
            {
                compute_op(ERG_MODEL_BDA_A, ERG_GROUP_NORM, ERG_OP_MEMORY, 7),
                compute_op(ERG_MODEL_NORM_A, ERG_GROUP_NORM, ERG_OP_MEMORY, 4),
                compute_op(ERG_MODEL_QKV, ERG_GROUP_LINEAR, ERG_OP_GEMM, 100),
                compute_op(ERG_MODEL_QKV_POST, ERG_GROUP_ROPE, ERG_OP_MEMORY, 3),
                comm_op(ERG_COMM_ALLGATHER_KV, 10),
                comm_op(ERG_COMM_ALLGATHER_KV, 20),
                compute_op(ERG_MODEL_ATTENTION, ERG_GROUP_ATTENTION, ERG_OP_ATTENTION_FORWARD, 5),
            },
        .count = 7,
    };
    struct erg_segments segments = {0};
    assert_ok(erg_segments_add(&segments, &ops, &err), &err);
    assert_int_equal(segments.count, 2);
    assert_near(segments.items[0].comm.wire_bytes, 30, 0);
    assert_int_equal(segments.items[0].count, 3); /* norm, linear, rope */
    assert_near(segments.items[0].pieces[0].op.bytes, 11, 0);
    assert_int_equal(segments.items[0].pieces[0].op.kernels, 2);
    assert_int_equal(segments.items[1].count, 1);
    assert_int_equal(segments.items[1].comm.kind, ERG_COMM_NONE);
    erg_segments_release(&segments);

    ops.items[5] = comm_op(ERG_COMM_ALLREDUCE, 20);
    assert_fails(erg_segments_add(&segments, &ops, &err), &err, "two different communications");
    erg_segments_release(&segments);
}

static void without_recomputation_a_backward_is_only_the_backward(void **state)
{
    (void)state;
    struct fixture with, without;
    set_up(&with, "llama-3.2-3b", 8, 1, 8, 4096, true);
    set_up(&without, "llama-3.2-3b", 8, 1, 8, 4096, false);
    assert_int_equal(with.workload.sequential[1].count, 4);
    assert_int_equal(without.workload.sequential[1].count, 2);
    assert_int_equal(without.workload.nanobatch[1].kernels, 44);
    tear_down(&with);
    tear_down(&without);
}

static void odd_microbatches_and_single_gpus_run_sequentially(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "llama-3.2-1b", 8, 1, 3, 4096, true);
    assert_false(f.workload.nanobatched);
    assert_int_equal(f.workload.forward_count, 0);
    assert_true(f.workload.sequential[0].count > 0);
    tear_down(&f);
    set_up(&f, "llama-3.2-1b", 1, 1, 2, 2048, false);
    assert_false(f.workload.nanobatched);
    assert_int_equal(f.workload.sequential[0].count, 1);
    assert_int_equal(f.workload.sequential[0].steps[0].task.comm.kind, ERG_COMM_NONE);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_tables_follow_from_the_op_lists),
        cmocka_unit_test(op_lists_are_those_of_the_golden_rows),
        cmocka_unit_test(ops_carry_codes),
        cmocka_unit_test(an_instruction_has_two_partitions_per_segment_and_two_at_its_end),
        cmocka_unit_test(the_ends_complete_an_instruction),
        cmocka_unit_test(whole_instructions_are_steps_of_all_layers),
        cmocka_unit_test(pieces_add_up_to_the_instruction),
        cmocka_unit_test(slots_are_found_behind_more_ops),
        cmocka_unit_test(each_end_gets_its_own_sms),
        cmocka_unit_test(whole_layers_have_the_published_kernel_counts_and_costs),
        cmocka_unit_test(adjacent_communications_fuse_and_memory_runs_merge),
        cmocka_unit_test(without_recomputation_a_backward_is_only_the_backward),
        cmocka_unit_test(odd_microbatches_and_single_gpus_run_sequentially),
    };
    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
