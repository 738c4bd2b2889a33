/*
 * Sequence parallelism in plans: op lists in which tensor ranks share the stream's rows, the
 * partitions that are cut from them, what a communication with a norm in it costs, and the plan of
 * such a job.
 */
#include "check.h"
#include "optimize.h"

#include "device/emulated/emulated.h"
#include "partition/cut_internal.h"
#include "partition/partition.h"
#include "plan/plan.h"
#include "train/engine/trainer.h"

/* ---- op lists ---- */

typedef void list_ops(struct erg_model_ops *, const struct erg_model *,
                      const struct erg_model_shape *);

static list_ops *const lists[] = {
    erg_model_layer_forward,      erg_model_layer_backward, erg_model_embedding_forward,
    erg_model_embedding_backward, erg_model_head_forward,   erg_model_head_backward,
};
enum { LISTS = sizeof lists / sizeof *lists };

static struct erg_model *load_model(const char *name)
{
    struct erg_model *model;
    struct erg_error err;
    assert_ok(erg_model_load(&model, name, &err), &err);
    return model;
}

static struct erg_model_shape shape_of(long tensor, bool parts)
{
    return (struct erg_model_shape){.tensor = tensor,
                                    .context = 1,
                                    .sequences = 4,
                                    .sequence = 4096,
                                    .fused_kernels = true,
                                    .sequence_parallel = parts};
}

static void one_tensor_rank_shares_nothing(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-3.2-3b");
    const struct erg_model_shape whole = shape_of(1, false), parts = shape_of(1, true);
    for (size_t i = 0; i < LISTS; i++) {
        struct erg_model_ops a, b;
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        lists[i](&a, model, &whole);
        lists[i](&b, model, &parts);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(&a, &b, sizeof a);
    }
    erg_model_free(model);
}

struct sums {
    double flops, norm_bytes, other_bytes, reduced, gathered;
};

static struct sums sum_ops(const struct erg_model_ops *ops)
{
    struct sums sums = {0};
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        for (int k = 0; k < op->work_count; k++) {
            sums.flops += op->work[k].flops;
            *(op->group == ERG_GROUP_NORM ? &sums.norm_bytes : &sums.other_bytes) +=
                op->work[k].bytes;
        }
        if (op->comm)
            *(op->communication.kind == ERG_COMM_ALLGATHER_HIDDEN ? &sums.gathered
                                                                  : &sums.reduced) +=
                op->communication.wire_bytes;
    }
    return sums;
}

/* Norms have a share of the rows. Forward as much travels as an all-reduce moves, and backward half
 * as much again, since inputs of weight gradients are gathered once more. */
static void ranks_share_the_rows_of_norms(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-3.2-3b", "qwen3-1.7b", "gpt3-175b"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct erg_model *model = load_model(models[m]);
        const struct erg_model_shape whole = shape_of(4, false), parts = shape_of(4, true);
        for (size_t i = 0; i < 2; i++) {
            struct erg_model_ops ops = {0};
            lists[i](&ops, model, &whole);
            const struct sums a = sum_ops(&ops);
            lists[i](&ops, model, &parts);
            const struct sums b = sum_ops(&ops);
            assert_close(b.flops, a.flops, 1e-12);
            assert_close(b.other_bytes, a.other_bytes, 1e-12);
            assert_close(b.norm_bytes, a.norm_bytes / 4, 1e-12);
            assert_close(b.reduced, a.reduced / 2, 1e-12);
            assert_close(b.gathered, (i ? 2 : 1) * a.reduced / 2, 1e-12);
        }
        erg_model_free(model);
    }
}

/* The weight gradient reads what the input gradient is written over. */
static void weights_of_the_stream_come_first(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-3.2-3b");
    for (int parts = 0; parts < 2; parts++) {
        const struct erg_model_shape shape = shape_of(4, parts);
        struct erg_model_ops ops = {0};
        erg_model_layer_backward(&ops, model, &shape);
        for (size_t i = 0; i < ops.count; i++) {
            const struct erg_model_op *op = &ops.items[i];
            if (op->group != ERG_GROUP_LINEAR)
                continue;
            bool first = parts && (op->id == ERG_MODEL_QKV || op->id == ERG_MODEL_FC1);
            assert_int_equal(op->work[0].code.weights, first);
            assert_int_equal(op->work[1].code.weights, !first);
        }
    }
    erg_model_free(model);
}

/* ---- partitions ---- */

struct fixture {
    struct erg_model *model;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_workload_request request;
    struct erg_workload workload;
};

static void set_up(struct fixture *f, int tensor, int context, bool recompute, const char *stack)
{
    struct erg_error err = {0};
    f->model = load_model("llama-3.2-3b");
    assert_ok(erg_gpu_load(&f->gpu, "a100-sxm4-40gb", &err), &err);
    assert_ok(erg_stack_load(&f->stack, stack, &err), &err);
    f->request = (struct erg_workload_request){.model = f->model,
                                               .gpu = f->gpu,
                                               .stack = f->stack,
                                               .tensor = tensor,
                                               .context = context,
                                               .microbatch_size = 8,
                                               .sequence = 4096,
                                               .recompute = recompute,
                                               .sequence_parallel = true};
    assert_ok(erg_workload_build(&f->workload, &f->request, &err), &err);
}

static void tear_down(struct fixture *f)
{
    erg_workload_release(&f->workload);
    erg_stack_free(f->stack);
    erg_gpu_free(f->gpu);
    erg_model_free(f->model);
}

struct expected {
    const char *key;
    int occurrences;
    enum erg_comm_kind comm;
    const char *slots; /* space separated */
};

static const struct expected tensor_only[] = {
    {"fwd_attn", 2, ERG_COMM_NORM_HIDDEN, "linear_0 rope_0 attn_0"},
    {"fwd_mlp", 2, ERG_COMM_NORM_HIDDEN, "linear_0 activation_0"},
    {"bwd_mlp", 2, ERG_COMM_NORM_HIDDEN, "linear_0 activation_0"},
    {"bwd_attn", 2, ERG_COMM_NORM_HIDDEN, "linear_0 attn_0 rope_0"},
};
static const struct expected context_and_tensor[] = {
    {"fwd_qkv_norm", 1, ERG_COMM_NORM_HIDDEN, "linear_0"},
    {"fwd_qkv_ag", 1, ERG_COMM_ALLGATHER_KV, "linear_0 rope_0"},
    {"fwd_ao_ag", 1, ERG_COMM_ALLGATHER_KV, "attn_0 linear_0"},
    {"fwd_ao_norm", 1, ERG_COMM_NORM_HIDDEN, "attn_0"},
    {"fwd_mlp", 2, ERG_COMM_NORM_HIDDEN, "linear_0 activation_0"},
    {"bwd_mlp", 2, ERG_COMM_NORM_HIDDEN, "linear_0 activation_0"},
    {"bwd_o_norm", 1, ERG_COMM_NORM_HIDDEN, "linear_0"},
    {"bwd_o_ag", 1, ERG_COMM_ALLGATHER_KV, "linear_0"},
    {"bwd_a_ag", 1, ERG_COMM_ALLGATHER_KV, "attn_0"},
    {"bwd_a_rs", 1, ERG_COMM_REDUCESCATTER_KV, "attn_0"},
    {"bwd_qkv_rs", 1, ERG_COMM_REDUCESCATTER_KV, "rope_0 linear_0"},
    {"bwd_qkv_norm", 1, ERG_COMM_NORM_HIDDEN, "rope_0"},
};

static void partitions_are_cut_at_the_norms(void **state)
{
    (void)state;
    for (int c = 0; c < 4; c++) {
        const int context = 1 + c / 2;
        struct fixture f;
        set_up(&f, 8 / context, context, c % 2, "published-python");
        const struct expected *expected = context > 1 ? context_and_tensor : tensor_only;
        assert_int_equal(f.workload.forward_count + f.workload.backward_count,
                         context > 1 ? 12 : 4);
        assert_int_equal(f.workload.replays_forward, c % 2);
        for (size_t i = 0; i < f.workload.forward_count + f.workload.backward_count; i++) {
            const struct erg_partition *p = &f.workload.partitions[i];
            char slots[128] = "";
            for (size_t s = 0; s < p->slot_count; s++)
                snprintf(slots + strlen(slots), sizeof slots - strlen(slots), "%s%s", s ? " " : "",
                         p->slots[s].name);
            assert_string_equal(p->key, expected[i].key);
            assert_int_equal(p->occurrences, expected[i].occurrences);
            assert_int_equal(p->task.comm.kind, expected[i].comm);
            assert_string_equal(slots, expected[i].slots);
        }
        tear_down(&f);
    }
}

/* A reduce-scatter and what is gathered, of half a microbatch, and between them the norm's bytes of
 * a rank's rows. */
static void a_communication_has_a_norm_in_it(void **state)
{
    (void)state;
    static const struct {
        size_t partition;
        enum erg_model_op_id part, gather;
        int gathered; /* tensors */
        bool backward;
        uint32_t parts;
        double bytes; /* of a row's elements, fused */
    } cases[] = {
#define PART(id) (1u << ERG_MODEL_##id)
        {0, ERG_MODEL_REDUCE_M, ERG_MODEL_GATHER_A, 1, false, PART(BDA_M) | PART(NORM_A), 8},
        {1, ERG_MODEL_REDUCE_A, ERG_MODEL_GATHER_M, 1, false, PART(BDA_A) | PART(NORM_M), 8},
        {2, ERG_MODEL_REDUCE_A, ERG_MODEL_GATHER_M, 2, true,
         PART(NORM_A) | PART(FORK_A) | PART(BDA_M), 8},
        {3, ERG_MODEL_REDUCE_M, ERG_MODEL_GATHER_A, 2, true,
         PART(NORM_M) | PART(FORK_M) | PART(BDA_A), 8},
#undef PART
    };
    struct fixture f;
    set_up(&f, 4, 1, false, "ergon");
    const double elements = 4.0 * 4096 * (double)f.model->hidden;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct erg_task *task = &f.workload.partitions[cases[c].partition].task;
        const struct erg_comm *comm = &task->comm;
        assert_int_equal(comm->part, cases[c].part);
        assert_int_equal(comm->gather_part, cases[c].gather);
        assert_near(comm->gather_bytes, cases[c].gathered * 2 * elements * 3 / 4, 0);
        assert_near(comm->wire_bytes, (1 + cases[c].gathered) * 2 * elements * 3 / 4, 0);
        assert_int_equal(comm->group, 4);
        assert_int_equal(comm->sequences, 4);
        assert_int_equal(comm->work_count, 1);
        assert_int_equal(comm->works[0].code.parts, cases[c].parts);
        assert_int_equal(comm->works[0].code.backward, cases[c].backward);
        assert_int_equal(comm->works[0].code.sequences, 4);
        assert_near(comm->works[0].bytes, cases[c].bytes * elements / 4, 0);
        for (size_t i = 0; i < task->op_count; i++) /* what hides it has none */
            assert_false(task->ops[i].code.parts &
                         (1u << ERG_MODEL_NORM_A | 1u << ERG_MODEL_NORM_M));
    }
    tear_down(&f);
}

/* A pass begins with norms alone, behind which it gathers, and ends with what it scatters. */
static void passes_exchange_one_way_at_their_ends(void **state)
{
    (void)state;
    static const int per_layer[][2] = {{4, 4}, {4, 8}, {6, 8}, {6, 14}};
    for (int c = 0; c < 4; c++) {
        struct fixture f;
        set_up(&f, c < 2 ? 8 : 4, c < 2 ? 1 : 2, c % 2, "published-python");
        for (int layers = 1; layers <= 9; layers += 4)
            for (int backward = 0; backward < 2; backward++) {
                struct erg_error err = {0};
                const struct erg_stage_partition *list;
                size_t count;
                assert_ok(erg_stage_partitions(&f.workload, &f.request, layers, backward, &list,
                                               &count, &err),
                          &err);
                assert_int_equal(count, per_layer[c][backward] * layers + 4);
                assert_int_equal(list[0].task.comm.kind, ERG_COMM_NONE);
                assert_int_equal(list[1].task.comm.kind, ERG_COMM_ALLGATHER_HIDDEN);
                assert_int_equal(list[2].task.comm.kind, ERG_COMM_ALLGATHER_HIDDEN);
                assert_int_equal(list[count - 3].task.comm.kind, ERG_COMM_REDUCESCATTER_HIDDEN);
                assert_int_equal(list[count - 2].task.comm.kind, ERG_COMM_REDUCESCATTER_HIDDEN);
                assert_int_equal(list[count - 1].task.comm.kind, ERG_COMM_NONE);
                for (size_t i = 0; i < count; i++) {
                    const bool end = i < 2 || i >= count - 2;
                    assert_int_equal(list[i].nanobatch, i % 2);
                    assert_int_equal(list[i].type < 0, end);
                    if (end)
                        continue;
                    const int forwards = f.workload.replays_forward ? per_layer[c][0] : 0;
                    assert_int_equal(f.workload.partitions[list[i].type].backward,
                                     backward && (int)(i - 2) % per_layer[c][1] >= forwards);
                }
            }
        tear_down(&f);
    }
}

/* ---- time ---- */

static struct erg_emulated_result run_step(const struct fixture *f, const struct erg_step *step)
{
    struct erg_error err = {0};
    struct erg_emulated_result result;
    assert_ok(erg_emulated_run(f->gpu, f->stack, step, 1, 1110, &result, &err), &err);
    return result;
}

static double time_of(const struct fixture *f, const struct erg_comm *comm, int sms)
{
    const struct erg_step step = {.task = {.comm = *comm}, .launch = {.sms = sms}};
    return run_step(f, &step).time_s;
}

/* It lasts as long as its exchanges and a norm on its SMs. */
static void a_norm_takes_its_time_on_the_same_sms(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 4, 1, false, "ergon");
    for (size_t i = 0; i < 4; i++)
        for (int sms = 3; sms <= 30; sms += 9) {
            const struct erg_comm *comm = &f.workload.partitions[i].task.comm;
            struct erg_comm reduce = *comm, gather = *comm, bare = *comm;
            reduce.kind = ERG_COMM_REDUCESCATTER_HIDDEN;
            gather.kind = ERG_COMM_ALLGATHER_HIDDEN;
            reduce.wire_bytes -= comm->gather_bytes;
            gather.wire_bytes = comm->gather_bytes;
            reduce.work_count = gather.work_count = bare.work_count = 0;
            const double joins_s = f.stack->join_grid_s;
            assert_close(time_of(&f, &bare, sms) + joins_s,
                         time_of(&f, &reduce, sms) + time_of(&f, &gather, sms), 0.02);
            const double norm_s = time_of(&f, comm, sms) - time_of(&f, &bare, sms);
            const double bandwidth = f.gpu->memory_efficiency * f.gpu->memory_bandwidth;
            assert_true(norm_s >= comm->works[0].bytes / bandwidth);
            assert_true(norm_s > time_of(&f, comm, sms + 3) - time_of(&f, &bare, sms + 3));
        }
    tear_down(&f);
}

/* An instruction of three layers as it runs, against the sums that the composition makes. */
static void the_ends_complete_an_instruction(void **state)
{
    (void)state;
    for (int c = 0; c < 8; c++) {
        struct fixture f;
        const int backward = c & 1, context = 1 + (c >> 2);
        set_up(&f, 8 / context, context, c & 2, "published-python");
        struct erg_error err = {0};
        const struct erg_stage_partition *list;
        size_t count;
        assert_ok(erg_stage_partitions(&f.workload, &f.request, 3, backward, &list, &count, &err),
                  &err);
        const struct erg_steps *ends = &f.workload.ends[backward];
        const size_t first = backward && !f.workload.replays_forward ? f.workload.forward_count : 0;
        const size_t end = f.workload.forward_count + (backward ? f.workload.backward_count : 0);
        double whole_s = 0, sum_s = 0;
        assert_int_equal(ends->count, 5);
        for (size_t i = 0; i < count; i++) {
            struct erg_step step = {.task = list[i].task, .launch = {.sms = 12}};
            if (i < 3)
                step.launch = ends->steps[i].launch;
            if (i >= count - 2)
                step.launch = ends->steps[i + 5 - count].launch;
            whole_s += run_step(&f, &step).time_s;
        }
        for (size_t i = 0; i < ends->count; i++)
            sum_s += run_step(&f, &ends->steps[i]).time_s;
        for (size_t i = first; i < end; i++) {
            const struct erg_partition *partition = &f.workload.partitions[i];
            const struct erg_step step = {.task = partition->task, .launch = {.sms = 12}};
            sum_s += (3 * partition->occurrences - (i == first)) * run_step(&f, &step).time_s;
        }
        /* The last sum alone is taken for one that is gathered, too. */
        assert_close(sum_s, whole_s, 0.015);
        tear_down(&f);
    }
}

static void rows_that_ranks_cannot_share_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct erg_error err = {0};
    set_up(&f, 4, 1, false, "ergon");
    struct erg_workload workload;
    f.request.microbatch_size = 2;
    f.request.sequence = 4098;
    assert_int_equal(erg_workload_build(&workload, &f.request, &err), -1);
    assert_non_null(strstr(err.message, "cannot share the 4098 tokens of a nanobatch"));
    tear_down(&f);
}

/* ---- plans ---- */

#define TRAIN                                                                                      \
    "train: {data: [{file: tokens, type: uint16}], updates: 2, learning_rate: 0.001, "             \
    "sequence_parallel: %s}\n"

static void write_training_job(const char *name, const char *value)
{
    struct erg_text text = {0};
    erg_text_add(&text, SMALL_JOB);
    erg_text_printf(&text, TRAIN, value);
    write_file(name, text.data);
    erg_text_release(&text);
}

static struct erg_job *read_job(const char *name)
{
    struct erg_job *job;
    struct erg_error err;
    assert_ok(erg_job_load(&job, in_folder(name), NULL, &err), &err);
    return job;
}

static struct erg_plan *read_plan(const char *name)
{
    struct erg_plan *plan;
    struct erg_error err;
    assert_ok(erg_plan_load(&plan, in_folder(name), &err), &err);
    return plan;
}

/* The plan says it where it is so, and is one of such jobs alone. */
static void a_job_gets_a_plan_of_its_own(void **state)
{
    (void)state;
    struct erg_error err = {0};
    write_training_job("parts.yaml", "true");
    write_training_job("whole.yaml", "false");
    check_optimize("parts.yaml", "parts", "", 0, "selected: ergon");
    check_optimize("whole.yaml", "whole", "", 0, "selected: ergon");
    struct erg_text show = {0};
    erg_text_printf(&show, "show %s/parts/plan.json", folder);
    check_program(show.data, 0, "sequence parallel");
    erg_text_release(&show);
    struct erg_job *jobs[] = {read_job("whole.yaml"), read_job("parts.yaml")};
    struct erg_plan *plans[] = {read_plan("whole/plan.json"), read_plan("parts/plan.json")};
    for (int p = 0; p < 2; p++) {
        assert_int_equal(plans[p]->sequence_parallel, p);
        for (int j = 0; j < 2; j++)
            assert_int_equal(erg_plan_check_job(plans[p], jobs[j], &err), p == j ? 0 : -1);
    }
    assert_non_null(strstr(err.message, "key 'train.sequence_parallel': the plan is one for true"));
    char *text;
    assert_ok(erg_file_read(in_folder("whole/plan.json"), 0, &text, NULL, &err), &err);
    assert_null(strstr(text, "sequence_parallel"));
    free(text);
    for (int i = 0; i < 2; i++) {
        erg_plan_free(plans[i]);
        erg_job_free(jobs[i]);
    }
}

/* What a rank cannot hold is said before a run begins. */
static void uneven_shares_are_refused(void **state)
{
    (void)state;
    static const struct {
        int sequences, sequence;
        bool planned;
        const char *part;
    } cases[] = {
        {1, 33, false, "2 tensor ranks cannot share the 33 tokens of a microbatch"},
        {2, 33, false, NULL},
        {2, 33, true, "2 tensor ranks cannot share the 33 tokens of half a microbatch"},
        {6, 32, false, NULL},
        {6, 32, true, "3 sequences of half a microbatch and 2 tensor ranks"},
        {8, 32, true, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        struct erg_error err = {0};
        struct erg_job *job;
        erg_text_printf(&text,
                        "model: %s/tests/data/train/gpt2\n"
                        "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                        "tensor: 2\nmicrobatch_size: %d\nmicrobatches: 2\nsequence: %d\n" TRAIN,
                        ERGON_TEST_SOURCE_DIR, cases[i].sequences, cases[i].sequence, "true");
        assert_ok(erg_job_parse(&job, in_folder("job.yaml"), text.data, text.count, NULL, &err),
                  &err);
        struct erg_plan *plan = NULL;
        if (cases[i].planned) {
            plan = erg_plan_new(); /* nothing of it is looked at before */
            plan->layout = erg_layout_copy(&job->layout, &plan->arena);
            plan->sequence_parallel = true;
        }
        const struct erg_trainer_options options = {.job = job, .plan = plan, .world = 2};
        assert_int_equal(erg_trainer_check(&options, &err), -1);
        /* The others lack their data alone. */
        if (!strstr(err.message, cases[i].part ? cases[i].part : "train.data[0].file"))
            fail_msg("case %zu: %s", i, err.message);
        erg_plan_free(plan);
        erg_job_free(job);
        erg_text_release(&text);
    }
}

/* The sums that a plan is made of are those of whole stacks. */
static void its_pieces_add_up(void **state)
{
    (void)state;
    struct erg_text verify = {0};
    erg_text_printf(&verify, "verify %s/parts.yaml %s/parts/plan.json 2>&1", folder, folder);
    check_program(verify.data, 0, "stack");
    erg_text_release(&verify);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tensor_rank_shares_nothing),
        cmocka_unit_test(ranks_share_the_rows_of_norms),
        cmocka_unit_test(weights_of_the_stream_come_first),
        cmocka_unit_test(partitions_are_cut_at_the_norms),
        cmocka_unit_test(a_communication_has_a_norm_in_it),
        cmocka_unit_test(passes_exchange_one_way_at_their_ends),
        cmocka_unit_test(a_norm_takes_its_time_on_the_same_sms),
        cmocka_unit_test(the_ends_complete_an_instruction),
        cmocka_unit_test(rows_that_ranks_cannot_share_are_refused),
        cmocka_unit_test(a_job_gets_a_plan_of_its_own),
        cmocka_unit_test(its_pieces_add_up),
        cmocka_unit_test(uneven_shares_are_refused),
    };
    return cmocka_run_group_tests(tests, make_quick_folder, remove_folder);
}
