/* model/: configs in, costs out; the costs against the emulated GPU's calibration to the byte. */
#include "check.h"

#include "io/file.h"
#include "model/model.h"

static struct erg_model *load(const char *name)
{
    struct erg_error err;
    struct erg_model *model = NULL;
    assert_ok(erg_model_load(&model, name, &err), &err);
    return model;
}

static void catalogue_has_the_public_parameter_counts(void **state)
{
    (void)state;
    const struct {
        const char *name;
        double parameters;
    } known[] = {
        {"llama-3.2-1b", 1235814400}, {"llama-3.2-3b", 3212749824},   {"llama-2-7b", 6738415616},
        {"llama-2-70b", 68976648192}, {"llama-3.3-70b", 70553706496}, {"llama-65b", 65285660672},
        {"qwen3-1.7b", 1720574976},   {"llama-175b", 174734979072},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct erg_model *model = load(known[i].name);
        assert_near(erg_model_parameters(model), known[i].parameters, 0);
        erg_model_free(model);
    }
    struct erg_model *gpt = load("GPT3-175B");
    assert_close(erg_model_parameters(gpt), 174.6e9, 1e-4);
    erg_model_free(gpt);
}

/* What one partition of the published workload gives to the device. */
struct expected {
    enum erg_op_kind kind;
    int kernels;
    double flops, bytes, k, tiles;
};

static void assert_work(const struct erg_op *work, const struct expected *expected)
{
    assert_int_equal(work->kind, expected->kind);
    assert_int_equal(work->kernels, expected->kernels);
    assert_near(work->flops, expected->flops, 0);
    assert_near(work->bytes, expected->bytes, 0);
    assert_near(work->k, expected->k, 0);
    assert_near(work->tiles, expected->tiles, 0);
}

/* The work of the ops in [first, last], neighbours of one memory-bound group merged. */
static size_t merged_work(const struct erg_model_ops *ops, enum erg_model_op_id first,
                          enum erg_model_op_id last, struct erg_op *work)
{
    size_t count = 0;
    bool inside = false;
    int group = -1;
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        inside = inside || op->id == first;
        for (int j = 0; inside && j < op->work_count; j++) {
            if ((int)op->group == group && op->work[j].kind == ERG_OP_MEMORY) {
                work[count - 1].bytes += op->work[j].bytes;
                work[count - 1].kernels += op->work[j].kernels;
            } else {
                work[count++] = op->work[j];
            }
            group = (int)op->group;
        }
        if (op->id == last)
            break;
    }
    return count;
}

static const struct erg_model_op *find(const struct erg_model_ops *ops, enum erg_model_op_id id)
{
    for (size_t i = 0; i < ops->count; i++) {
        if (ops->items[i].id == id)
            return &ops->items[i];
    }
    return NULL;
}

/* Llama 3.2 3B, tensor degree 8, nanobatch of 4 sequences of 4096 tokens. */
static const struct erg_model_shape nanobatch = {
    .tensor = 8, .context = 1, .sequences = 4, .sequence = 4096};

static void published_partitions_to_the_byte(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    struct erg_model_ops forward, backward;
    erg_model_layer_forward(&forward, model, &nanobatch);
    erg_model_layer_backward(&backward, model, &nanobatch);
    struct erg_op work[ERG_MODEL_MAX_OPS * 2];

    /* The bias-dropout-add of the MLP before belongs to the attention partition's norm group. */
    const struct expected attention[] = {
        {ERG_OP_MEMORY, 1, 0, 4.0 * 16384 * 3072, 0, 0},
        {ERG_OP_GEMM, 1, 64424509440, 125566976, 3072, 640},
        {ERG_OP_MEMORY, 3, 0, 75497472, 0, 0},
        {ERG_OP_ATTENTION_FORWARD, 1, 51539607552, 33554432, 4096, 0},
        {ERG_OP_GEMM, 1, 38654705664, 115605504, 384, 3072},
    };
    assert_int_equal(merged_work(&forward, ERG_MODEL_FORK_A, ERG_MODEL_PROJ, work), 5);
    for (size_t i = 0; i < 5; i++)
        assert_work(&work[i], &attention[i]);
    const struct erg_model_op *closing = find(&forward, ERG_MODEL_BDA_M);
    assert_near(work[0].bytes + closing->work[0].bytes, 553648128, 0);
    assert_int_equal(work[0].kernels + closing->work[0].kernels, 2);

    const struct expected mlp[] = {
        {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0},
        {ERG_OP_GEMM, 1, 206158430208, 180355072, 3072, 2048},
        {ERG_OP_MEMORY, 1, 0, 100663296, 0, 0},
        {ERG_OP_GEMM, 1, 103079215104, 140509184, 1024, 3072},
    };
    assert_int_equal(merged_work(&forward, ERG_MODEL_BDA_A, ERG_MODEL_FC2, work), 4);
    for (size_t i = 0; i < 4; i++)
        assert_work(&work[i], &mlp[i]);

    const struct expected mlp_backward[] = {
        {ERG_OP_MEMORY, 1, 0, 5.0 * 16384 * 3072, 0, 0},
        {ERG_OP_GEMM, 1, 103079215104, 140509184, 3072, 1024},
        {ERG_OP_GEMM, 1, 103079215104, 165675008, 16384, 192},
        {ERG_OP_MEMORY, 1, 0, 167772160, 0, 0},
        {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 3072},
        {ERG_OP_GEMM, 1, 206158430208, 230686720, 16384, 384},
    };
    assert_int_equal(merged_work(&backward, ERG_MODEL_BDA_M, ERG_MODEL_FC1, work), 6);
    for (size_t i = 0; i < 6; i++)
        assert_work(&work[i], &mlp_backward[i]);
    assert_int_equal(merged_work(&backward, ERG_MODEL_NORM_M, ERG_MODEL_BDA_A, work), 1);
    assert_near(work[0].bytes, 855638016, 0);
    assert_int_equal(work[0].kernels, 3);

    const struct erg_model_op *reduce = find(&forward, ERG_MODEL_REDUCE_A);
    assert_true(reduce->comm);
    assert_int_equal(reduce->communication.kind, ERG_COMM_ALLREDUCE);
    assert_near(reduce->communication.wire_bytes, 176160768, 0);
    assert_int_equal(reduce->communication.group, 8);
    erg_model_free(model);
}

static int kernels(const struct erg_model_ops *ops)
{
    int total = 0;
    for (size_t i = 0; i < ops->count; i++) {
        total += ops->items[i].comm;
        for (int j = 0; j < ops->items[i].work_count; j++)
            total += ops->items[i].work[j].kernels;
    }
    return total;
}

static void kernel_counts_of_a_layer(void **state)
{
    (void)state;
    struct erg_model *llama = load("llama-3.2-3b"), *qwen = load("qwen3-1.7b");
    struct erg_model_ops forward, backward;
    erg_model_layer_forward(&forward, llama, &nanobatch);
    erg_model_layer_backward(&backward, llama, &nanobatch);
    assert_int_equal(2 * kernels(&forward), 30);
    assert_int_equal(2 * (kernels(&forward) + kernels(&backward)), 74);
    struct erg_model_shape split = {.tensor = 4, .context = 2, .sequences = 4, .sequence = 4096};
    erg_model_layer_forward(&forward, qwen, &split);
    erg_model_layer_backward(&backward, qwen, &split);
    assert_int_equal(find(&forward, ERG_MODEL_ATTENTION)->work[0].kernels, 4);
    assert_int_equal(find(&backward, ERG_MODEL_ATTENTION)->work[0].kernels, 8);
    assert_int_equal(find(&forward, ERG_MODEL_QKV_POST)->work[0].kernels, 3);
    assert_int_equal(find(&backward, ERG_MODEL_ROPE)->work[0].kernels, 2);
    erg_model_free(llama);
    erg_model_free(qwen);
}

static void order_of(const struct erg_model_ops *ops, char *out, size_t capacity)
{
    size_t at = 0;
    for (size_t i = 0; i < ops->count; i++)
        at += (size_t)snprintf(out + at, capacity - at, "%s%s", i ? " " : "", ops->items[i].name);
}

static void execution_order_and_communication(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    struct erg_model_ops ops;
    char order[512];
    struct erg_model_shape shape = {.tensor = 4, .context = 2, .sequences = 4, .sequence = 4096};
    erg_model_layer_forward(&ops, model, &shape);
    order_of(&ops, order, sizeof order);
    assert_string_equal(order, "fork_a norm_a qkv qkv_post rope ag_kv attn proj ar bda_a fork_m "
                               "norm_m fc1 swiglu fc2 ar bda_m");
    /* K and V, each 4 x 4096 tokens x 2 groups x 128 x 2 bytes; half of it comes from the peer. */
    const struct erg_model_op *gather = find(&ops, ERG_MODEL_GATHER_KV);
    assert_near(gather->communication.wire_bytes, 2.0 * 4 * 4096 * 2 * 128 * 2 / 2, 0);
    assert_int_equal(gather->communication.group, 2);
    erg_model_layer_backward(&ops, model, &shape);
    order_of(&ops, order, sizeof order);
    assert_string_equal(order, "bda_m fc2 swiglu fc1 ar norm_m fork_m bda_a proj ag_kv attn rs_kv "
                               "rope qkv_post qkv ar norm_a fork_a");
    assert_int_equal(find(&ops, ERG_MODEL_SCATTER_KV)->communication.kind,
                     ERG_COMM_REDUCESCATTER_KV);
    /* Rope and its neighbour cost 1.25 times as much backward; T = 8192, Q = 1280, R = 1024. */
    assert_near(find(&ops, ERG_MODEL_QKV_POST)->work[0].bytes, 1.25 * 4 * 8192 * 1280, 0);
    assert_near(find(&ops, ERG_MODEL_ROPE)->work[0].bytes, 1.25 * 4 * 8192 * 1024, 0);

    shape = (struct erg_model_shape){.tensor = 1, .context = 1, .sequences = 1, .sequence = 128};
    erg_model_layer_forward(&ops, model, &shape);
    for (size_t i = 0; i < ops.count; i++)
        assert_false(ops.items[i].comm);
    erg_model_free(model);
}

static void splitting_divides_the_work(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-2-70b");
    struct erg_model_shape whole = {.tensor = 1, .context = 1, .sequences = 2, .sequence = 4096};
    struct erg_model_shape part = {.tensor = 4, .context = 2, .sequences = 2, .sequence = 4096};
    struct erg_model_ops a, b;
    void (*const passes[])(struct erg_model_ops *, const struct erg_model *,
                           const struct erg_model_shape *) = {
        erg_model_layer_forward,      erg_model_layer_backward, erg_model_embedding_forward,
        erg_model_embedding_backward, erg_model_head_forward,   erg_model_head_backward};
    for (size_t pass = 0; pass < sizeof passes / sizeof *passes; pass++) {
        passes[pass](&a, model, &whole);
        passes[pass](&b, model, &part);
        for (size_t i = 0; i < a.count; i++) {
            const struct erg_model_op *op = find(&b, a.items[i].id);
            assert_non_null(op);
            for (int j = 0; j < op->work_count; j++)
                assert_near(8 * op->work[j].flops, a.items[i].work[j].flops, 0);
        }
    }
    erg_model_free(model);
}

static void head_and_embedding(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    struct erg_model_ops ops;
    struct erg_model_shape shape = nanobatch;
    const double T = 16384, h = 3072, V = 128256.0 / 8;
    shape.head_gemm_factor = 0.5;
    erg_model_head_forward(&ops, model, &shape);
    assert_int_equal(ops.count, 3);
    assert_near(ops.items[0].work[0].bytes, 12 * T * h, 0);
    assert_near(ops.items[1].work[0].flops, 0.5 * 2 * T * h * V, 0);
    assert_near(ops.items[2].work[0].bytes, 10 * T * V, 0);
    assert_near(ops.items[1].params, h * V, 0);
    erg_model_head_backward(&ops, model, &shape);
    assert_int_equal(ops.count, 4);
    assert_near(ops.items[0].work[0].bytes, 6 * T * V, 0);
    assert_int_equal(ops.items[1].work_count, 2);
    assert_near(ops.items[1].work[1].flops, 0.5 * 2 * T * h * V, 0);
    assert_true(ops.items[2].comm);
    erg_model_embedding_forward(&ops, model, &shape);
    assert_near(ops.items[0].work[0].bytes, 4 * T * h, 0);
    assert_near(ops.items[1].communication.wire_bytes, 176160768, 0);
    erg_model_embedding_backward(&ops, model, &shape);
    assert_int_equal(ops.count, 1);
    assert_near(ops.items[0].work[0].bytes, 6 * T * h, 0);
    erg_model_free(model);
}

/* What our own kernels read and write: 2 bytes an element, every tensor once. */
static void fused_kernels_move_less(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    struct erg_model_shape shape = nanobatch;
    struct erg_model_ops forward, backward;
    struct erg_op work[ERG_MODEL_MAX_OPS * 2];
    const double th = 16384.0 * 3072, tr = 16384.0 * 32 * 128 / 8;
    shape.fused_kernels = true;
    erg_model_layer_forward(&forward, model, &shape);
    erg_model_layer_backward(&backward, model, &shape);
    merged_work(&forward, ERG_MODEL_BDA_A, ERG_MODEL_FC1, work);
    assert_near(work[0].bytes, 8 * th, 0); /* stream and addend; sum and norm */
    assert_int_equal(work[0].kernels, 1);
    merged_work(&forward, ERG_MODEL_QKV_POST, ERG_MODEL_ATTENTION, work);
    assert_near(work[0].bytes, 4 * tr, 0); /* in place */
    assert_int_equal(work[0].kernels, 1);
    merged_work(&backward, ERG_MODEL_NORM_M, ERG_MODEL_BDA_A, work);
    assert_near(work[0].bytes, 8 * th, 0); /* stream, gradients of sum and norm; gradient */
    assert_int_equal(work[0].kernels, 2);
    erg_model_head_forward(&forward, model, &shape);
    erg_model_head_backward(&backward, model, &shape);
    assert_near(forward.items[0].work[0].bytes, 4 * th, 0);
    assert_near(forward.items[2].work[0].bytes, 2 * 16384.0 * 128256 / 8, 0);
    assert_near(backward.items[0].work[0].bytes, 4 * 16384.0 * 128256 / 8, 0);
    assert_near(backward.items[3].work[0].bytes, 6 * th, 0);
    erg_model_embedding_backward(&backward, model, &shape);
    assert_near(backward.items[0].work[0].bytes, (2.5 + 7.5 / 8) * th, 0);
    shape.tensor = 1; /* a gradient read, a float row read and written */
    erg_model_embedding_backward(&backward, model, &shape);
    assert_near(backward.items[0].work[0].bytes, (2 + 4 + 4) * th, 0);
    erg_model_free(model);

    shape = nanobatch;
    shape.fused_kernels = true;
    model = load("qwen3-1.7b"); /* backward, its per-head norms read what they normalised */
    erg_model_layer_backward(&backward, model, &shape);
    merged_work(&backward, ERG_MODEL_ROPE, ERG_MODEL_QKV_POST, work);
    assert_near(work[0].bytes, 6 * 16384.0 * (16 + 8) * 128 / 8, 0);
    assert_int_equal(work[0].kernels, 2);
    erg_model_free(model);
}

/* Balanced recomputation: both norms and the activation once more, each before the linear that
 * needs it, and no products. */
static void balanced_recomputation_reads_and_writes_again(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    for (int fused = 0; fused < 2; fused++) {
        struct erg_model_shape shape = nanobatch;
        struct erg_model_ops none, balanced;
        double bytes[2] = {0}, flops[2] = {0}, params[2] = {0};
        shape.fused_kernels = fused;
        erg_model_layer_backward(&none, model, &shape);
        shape.norms_again = true;
        erg_model_layer_backward(&balanced, model, &shape);
        assert_int_equal(balanced.count, none.count + 2);
        shape.activation_again = true;
        erg_model_layer_backward(&balanced, model, &shape);
        assert_int_equal(balanced.count, none.count + 3);
        for (int which = 0; which < 2; which++) {
            const struct erg_model_ops *ops = which ? &balanced : &none;
            for (size_t i = 0; i < ops->count; i++) {
                params[which] += ops->items[i].params;
                for (int k = 0; k < ops->items[i].work_count; k++) {
                    bytes[which] += ops->items[i].work[k].bytes;
                    flops[which] += ops->items[i].work[k].flops;
                }
            }
        }
        assert_near(bytes[1] - bytes[0], 8 * 16384.0 * 3072 + 6 * 16384.0 * 8192 / 8, 1);
        assert_near(flops[1], flops[0], 0);
        assert_near(params[1], params[0], 0);
        for (size_t i = 0; i + 1 < balanced.count; i++) {
            const struct erg_model_op *op = &balanced.items[i];
            if (op->work_count && !op->work[0].code.backward)
                assert_true(op[1].id == ERG_MODEL_FC2 || op[1].id == ERG_MODEL_FC1 ||
                            op[1].id == ERG_MODEL_QKV);
        }
    }
    erg_model_free(model);
}

static void hopper_tiles_are_wider(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    struct erg_model_shape shape = nanobatch;
    shape.tile_n = 256;
    struct erg_model_ops ops;
    erg_model_layer_forward(&ops, model, &shape);
    assert_near(find(&ops, ERG_MODEL_FC1)->work[0].tiles, 1024, 0);
    assert_near(find(&ops, ERG_MODEL_QKV)->work[0].tiles, 128 * 3, 0); /* 640 columns round up */
    erg_model_free(model);
}

static void saved_activations_of_a_layer(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-2-7b");
    struct erg_model_ops ops;
    struct erg_model_shape shape = {.tensor = 1, .context = 1, .sequences = 1, .sequence = 4096};
    erg_model_layer_forward(&ops, model, &shape);
    double saved = 0, params = 0;
    for (size_t i = 0; i < ops.count; i++) {
        saved += ops.items[i].saved_bytes;
        params += ops.items[i].params;
    }
    /* Two norm inputs and outputs, Q K V and O, three FFN widths, two dropout masks, 32 LSE. */
    assert_near(saved / 4096, 2 * (4 * 4096 + 4 * 4096 + 3 * 11008) + 2 * 4096 + 4 * 32, 0);
    assert_near(params, 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008 + 2 * 4096, 0);
    erg_model_layer_backward(&ops, model, &shape);
    for (size_t i = 0; i < ops.count; i++)
        assert_near(ops.items[i].saved_bytes, 0, 0);
    erg_model_free(model);
}

static void gpt_has_one_width_and_no_rope(void **state)
{
    (void)state;
    struct erg_model *model = load("gpt3-175b");
    assert_true(model->layer_norm && model->learned_positions && model->tied && !model->gated);
    assert_int_equal(model->ffn, 4 * 12288);
    struct erg_model_ops ops;
    struct erg_model_shape shape = {.tensor = 1, .context = 1, .sequences = 1, .sequence = 2048};
    erg_model_layer_forward(&ops, model, &shape);
    assert_null(find(&ops, ERG_MODEL_ROPE));
    assert_near(find(&ops, ERG_MODEL_FC1)->work[0].flops, 2.0 * 2048 * 12288 * 49152, 0);
    assert_string_equal(find(&ops, ERG_MODEL_ACTIVATION)->name, "gelu");
    assert_near(find(&ops, ERG_MODEL_ACTIVATION)->work[0].bytes, 4.0 * 2048 * 49152, 0);
    erg_model_free(model);
}

/* An iteration with full recomputation: forward, the layers once more, backward. */
static double iteration_flops(const struct erg_model *model, double tokens)
{
    struct erg_model_flops forward = erg_model_forward_flops(model, tokens, 4096);
    return 4 * (forward.linear + forward.attention) + 3 * forward.head;
}

static void published_flops(void **state)
{
    (void)state;
    /* Qwen 3 1.7B, CP2 TP4, microbatch 16 x 8, 4K: 110.6 TFLOP/s on each of 16 GPUs for 5.007 s. */
    struct erg_model *qwen = load("qwen3-1.7b");
    double flops = iteration_flops(qwen, 16.0 * 8 * 4096);
    assert_near(flops / (110.6e12 * 16), 5.007, 0.0005);
    erg_model_free(qwen);
    struct erg_model *llama = load("llama-3.2-3b");
    flops = iteration_flops(llama, 8.0 * 8 * 4096);
    assert_near(flops / (104.8e12 * 16), 4.776, 0.0025);
    erg_model_free(llama);
}

static void degrees_are_checked(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load("llama-3.2-3b"), *gpt = load("gpt3-175b");
    assert_ok(erg_model_check_tensor(model, 8, &err), &err);
    assert_fails(erg_model_check_tensor(model, 16, &err), &err,
                 "the 24 attention heads of meta-llama/Llama-3.2-3B cannot be divided among a "
                 "tensor degree of 16");
    assert_fails(erg_model_check_tensor(model, 12, &err), &err, "the 8 KV groups");
    assert_fails(erg_model_check_tensor(model, 0, &err), &err, "at least 1, got 0");
    assert_fails(erg_model_check_tensor(gpt, 8, &err), &err,
                 "has 50257 words, which cannot be divided among a tensor degree of 8; pad it, for "
                 "example to 51200");
    assert_ok(erg_model_check_sequence(model, 2, 4096, &err), &err);
    assert_fails(erg_model_check_sequence(model, 3, 4096, &err), &err,
                 "a sequence of 4096 tokens cannot be cut into the 6 equal chunks");
    assert_fails(erg_model_check_sequence(gpt, 1, 4096, &err), &err,
                 "longer than the 2048 positions");
    erg_model_free(model);
    erg_model_free(gpt);
}

#define LLAMA                                                                                      \
    "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64,"                              \
    "\"intermediate_size\": 128, \"num_hidden_layers\": 2, \"vocab_size\": 1000,"

static void wrong_configs_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": -3}",
         "c.json:1: key 'num_attention_heads': expected a positive integer, got -3"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 5}",
         "key 'num_attention_heads': expected a divisor of the hidden size 64"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 3}",
         "key 'num_key_value_heads': expected a divisor of the 4 attention heads, got 3"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 8}",
         "expected a positive integer of at most 4, got 8"},
        {"{" LLAMA "\"num_attention_heads\": 4}",
         "key 'rms_norm_eps': the key is missing, expected a number from 0 to 1"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, \"hidden_act\": \"relu\"}",
         "key 'hidden_act': expected \"silu\", got \"relu\""},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, "
         "\"tie_word_embeddings\": 1}",
         "key 'tie_word_embeddings': expected true or false, got 1"},
        {"{\"architectures\": [\"MixtralForCausalLM\"]}",
         "key 'architectures': the architecture 'MixtralForCausalLM' is not known; known are "
         "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
         "Phi3ForCausalLM, GPT2LMHeadModel"},
        {"{\"architectures\": []}", "expected a list with the architecture's name"},
        {"{\"architectures\": \"LlamaForCausalLM\"}", "expected a list"},
        {"{}",
         "c.json:1: key 'architectures': the key is missing, expected a list with the "
         "architecture's name, such as [\"LlamaForCausalLM\"], or a key 'model_type', such as "
         "\"llama\""},
        {"{\"model_type\": \"mixtral\"}",
         "c.json:1: key 'model_type': the type of model 'mixtral' is not known; known are llama, "
         "mistral, qwen2, qwen3, phi3, gpt2"},
        {"{\"architectures\": [\"X\"],\n\"text_config\": {\"model_type\": \"qwen3_vl_moe_text\"}}",
         "c.json:2: key 'text_config.model_type': the type of model 'qwen3_vl_moe_text' is not"},
        {"{\"architectures\": [\"X\"],\n\"text_config\": {\"model_type\": \"llama\"}}",
         "c.json:2: key 'text_config.hidden_size': the key is missing"},
        {"{\"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 64, \"n_layer\": 99999}",
         "key 'n_layer': expected a positive integer of at most 10000, got 99999"},
        {"[]", "c.json:1: expected an object {…} at the top"},
        {"{", "c.json:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_model *model;
        assert_fails(erg_model_parse(&model, "c.json", cases[i].text, strlen(cases[i].text), &err),
                     &err, cases[i].message);
    }
    struct erg_error err;
    struct erg_model *model;
    assert_fails(erg_model_load(&model, "lama-3.2-3b", &err), &err, "did you mean 'llama-3.2-3b'?");
    assert_fails(erg_model_load(&model, "unheard", &err), &err,
                 "one of the catalogue: gpt3-175b, llama-175b, llama-2-70b");
    assert_fails(erg_model_load(&model, "/nonexistent/config.json", &err), &err,
                 "loading the model '/nonexistent/config.json'");
    assert_fails(erg_model_load(&model, ERGON_TEST_SOURCE_DIR "/data", &err), &err,
                 "data/config.json': No such file");
}

/* Rotary frequencies as configs have them: beside each other, in one object, scaled. */
static void rotary_frequencies(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        double theta, factor;
        enum erg_rope_scaling scaling;
        long positions;
    } cases[] = {
        {"\"rope_theta\": 500000.0", 500000, 0, ERG_ROPE_PLAIN, 0},
        {"\"rope_theta\": 500000.0, \"rope_scaling\": null", 500000, 0, ERG_ROPE_PLAIN, 0},
        {"\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": "
         "32.0}",
         500000, 32, ERG_ROPE_LLAMA3, 8192},
        {"\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"rope_theta\": "
         "250000.0}",
         250000, 8, ERG_ROPE_LLAMA3, 8192},
        {"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}", 1e6, 0,
         ERG_ROPE_PLAIN, 0},
        {"\"max_position_embeddings\": 32768, \"rope_scaling\": {\"type\": \"yarn\", "
         "\"factor\": 4.0}",
         10000, 4, ERG_ROPE_YARN, 32768},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 4096}",
         10000, 4, ERG_ROPE_YARN, 4096},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", 10000, 2.5, ERG_ROPE_LINEAR,
         0},
        {"\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1]}", 10000, 0,
         ERG_ROPE_OTHER, 0},
        {"\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}", 10000, 0,
         ERG_ROPE_PLAIN, 0},
    };
    struct erg_error err;
    struct erg_model *model;
    char text[600];
    const char *rest = "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "
                       "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "
                       "\"num_attention_heads\": 4, \"rms_norm_eps\": 1e-06, \"vocab_size\": 100";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{%s, %s}", rest, cases[i].keys);
        assert_ok(erg_model_parse(&model, "r", text, strlen(text), &err), &err);
        assert_close(model->rope_theta, cases[i].theta, 1e-12);
        assert_near(model->rope.factor, cases[i].factor, 0);
        assert_int_equal(model->rope.scaling, cases[i].scaling);
        if (cases[i].scaling == ERG_ROPE_LLAMA3 || cases[i].scaling == ERG_ROPE_YARN)
            assert_int_equal(model->rope.positions, cases[i].positions);
        erg_model_free(model);
    }
    snprintf(text, sizeof text, "{%s,\n\"partial_rotary_factor\": 0}", rest);
    assert_fails(erg_model_parse(&model, "r", text, strlen(text), &err), &err,
                 "r:2: key 'partial_rotary_factor': expected a number above 0, got 0");
    snprintf(text, sizeof text, "{%s, \"rope_scaling\": {\"rope_type\": \"llama3\"}}", rest);
    assert_fails(erg_model_parse(&model, "r", text, strlen(text), &err), &err, "factor");
}

/* A key that is not there means what its family's own reader takes it for. */
static void keys_left_out_have_the_familys_defaults(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    /* Qwen 3 4B, whose heads are not hidden / heads = 80 wide; 4 022 468 096 parameters. */
    const char qwen3[] =
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 2560,"
        "\"intermediate_size\": 9728, \"num_hidden_layers\": 36,"
        "\"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
        "\"rms_norm_eps\": 1e-06, \"sliding_window\": 4096, \"tie_word_embeddings\": true,"
        "\"vocab_size\": 151936}";
    assert_ok(erg_model_parse(&model, "q", qwen3, strlen(qwen3), &err), &err);
    assert_int_equal(model->head_dim, 128);
    assert_near(erg_model_parameters(model), 4022468096, 0);
    assert_int_equal(model->window, 0);
    assert_ok(erg_model_check_sequence(model, 1, 32768, &err), &err);
    erg_model_free(model);
    const char windowed[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 64,"
                            "\"intermediate_size\": 128, \"num_hidden_layers\": 2,"
                            "\"num_attention_heads\": 4, \"use_sliding_window\": true,"
                            "\"rms_norm_eps\": 1e-06,"
                            "\"sliding_window\": 512, \"vocab_size\": 100}";
    assert_ok(erg_model_parse(&model, "w", windowed, strlen(windowed), &err), &err);
    assert_int_equal(model->window, 512);
    assert_int_equal(model->head_dim, 16);
    erg_model_free(model);
}

/* What came out for a model may lie in a folder with its name. */
static void folders_without_a_config_hide_nothing(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    char folder[] = "/tmp/ergon-test-XXXXXX", before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_ok(erg_dir_make("llama-3.2-3b", &err), &err);
    assert_ok(erg_model_load(&model, "llama-3.2-3b", &err), &err);
    assert_int_equal(model->layers, 28);
    erg_model_free(model);
    assert_int_equal(rmdir("llama-3.2-3b"), 0);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void other_families_load(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    /* Qwen 2.5 0.5B: biases on QKV only; 494 032 768 parameters. */
    const char qwen2[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 896,"
                         "\"intermediate_size\": 4864, \"num_hidden_layers\": 24,"
                         "\"num_attention_heads\": 14, \"num_key_value_heads\": 2,"
                         "\"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0,"
                         "\"use_sliding_window\": false, \"sliding_window\": 32768,"
                         "\"tie_word_embeddings\": true, \"vocab_size\": 151936}";
    assert_ok(erg_model_parse(&model, "q", qwen2, strlen(qwen2), &err), &err);
    assert_true(model->qkv_bias && !model->projection_bias && model->tied);
    assert_int_equal(model->window, 0);
    assert_near(erg_model_parameters(model), 494032768, 0);
    erg_model_free(model);
    /* Mistral 7B: 7 241 732 096 parameters; GPT-2: 124 439 808. */
    const char mistral[] = "{\"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 4096,"
                           "\"intermediate_size\": 14336, \"num_hidden_layers\": 32,"
                           "\"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
                           "\"head_dim\": null, \"rms_norm_eps\": 1e-05, \"sliding_window\": 4096,"
                           "\"vocab_size\": 32000}";
    assert_ok(erg_model_parse(&model, "m", mistral, strlen(mistral), &err), &err);
    assert_near(erg_model_parameters(model), 7241732096, 0);
    assert_ok(erg_model_check_sequence(model, 1, 4096, &err), &err);
    assert_fails(erg_model_check_sequence(model, 1, 8192, &err), &err,
                 "longer than the window of 4096");
    erg_model_free(model);
    const char gpt2[] = "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 768, \"n_layer\":"
                        "12, \"n_head\": 12, \"n_positions\": 1024, \"vocab_size\": 50257}";
    assert_ok(erg_model_parse(&model, "g", gpt2, strlen(gpt2), &err), &err);
    assert_near(erg_model_parameters(model), 124439808, 0);
    erg_model_free(model);
}

/* A model by the numbers that its config has, and its published or hand-counted parameters. */
struct counted {
    const char *text;
    double parameters;
    long window;
    double rotated_share;
};

#define SHAPE(hidden, ffn, layers, heads, kv, vocab)                                               \
    "\"hidden_size\": " #hidden ", \"intermediate_size\": " #ffn                                   \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads                       \
    ", \"num_key_value_heads\": " #kv ", \"vocab_size\": " #vocab ", \"rms_norm_eps\": 1e-05"

static void fused_partial_and_nested_models_load(void **state)
{
    (void)state;
    static const struct counted models[] = {
        /* Phi-4: 14 659 507 200; Phi-3 mini with its window; Phi-4 mini, tied, partly rotated. */
        {"{\"architectures\": [\"Phi3ForCausalLM\"], \"sliding_window\": null, " SHAPE(
             5120, 17920, 40, 40, 10, 100352) "}",
         14659507200, 0, 1},
        {"{\"architectures\": [\"Phi3ForCausalLM\"], \"sliding_window\": 2047, "
         "\"model_type\": \"phi3\", " SHAPE(3072, 8192, 32, 32, 32, 32064) "}",
         3821079552, 2047, 1},
        {"{\"architectures\": [\"Phi3ForCausalLM\"], \"tie_word_embeddings\": true, "
         "\"partial_rotary_factor\": 0.75, \"sliding_window\": 262144, \"rope_scaling\": "
         "{\"type\": \"longrope\"}, " SHAPE(3072, 8192, 32, 24, 8, 200064) "}",
         3836021760, 262144, 0.75},
        /* Ministral 8B and Ministral 3 3B. */
        {"{\"architectures\": [\"MistralForCausalLM\"], \"head_dim\": 128, \"sliding_window\": "
         "32768, " SHAPE(4096, 12288, 36, 32, 8, 131072) "}",
         8019808256, 32768, 1},
        {"{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"tie_word_embeddings\": "
         "true, \"text_config\": {\"model_type\": \"ministral3\", \"head_dim\": 128, "
         "\"rope_parameters\": {\"type\": \"yarn\", \"factor\": 16.0, "
         "\"original_max_position_embeddings\": 16384, \"llama_4_scaling_beta\": 0.1}, " SHAPE(
             3072, 9216, 26, 32, 8, 131072) "}}",
         3429006336, 0, 1},
        /* The text part of Voxtral Mini, of Mistral Small 3.1 24B, of Qwen2.5-VL 7B and 3B. */
        {"{\"architectures\": [\"VoxtralForConditionalGeneration\"], \"audio_config\": "
         "{\"hidden_size\": 1280}, \"text_config\": {\"model_type\": \"llama\", \"head_dim\": 128, "
         "\"sliding_window\": null, " SHAPE(3072, 8192, 30, 32, 8, 131072) "}}",
         4014136320, 0, 1},
        {"{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"vision_config\": {}, "
         "\"text_config\": {\"model_type\": \"mistral\", \"head_dim\": 128, " SHAPE(
             5120, 32768, 40, 32, 8, 131072) "}}",
         23572403200, 0, 1},
        {"{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": "
         "\"qwen2_5_vl\", \"use_sliding_window\": false, \"sliding_window\": 32768, "
         "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}, " SHAPE(
             3584, 18944, 28, 28, 4, 152064) "}",
         7615616512, 0, 1},
        {"{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"text_config\": "
         "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": "
         "\"qwen2_5_vl_text\", \"tie_word_embeddings\": true, " SHAPE(2048, 11008, 36, 16, 2,
                                                                      151936) "}}",
         3085938688, 0, 1},
        /* Only a type of model: TinyLlama 1.1B; and with a byte-order mark. */
        {"{\"model_type\": \"llama\", " SHAPE(2048, 5632, 22, 32, 4, 32000) "}", 1100048384, 0, 1},
        {"\xef\xbb\xbf{\"model_type\": \"llama\", \"architectures\": null, " SHAPE(
             2048, 5632, 22, 32, 4, 32000) "}",
         1100048384, 0, 1},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct erg_error err;
        struct erg_model *model;
        assert_ok(erg_model_parse(&model, "m", models[i].text, strlen(models[i].text), &err), &err);
        assert_near(erg_model_parameters(model), models[i].parameters, 0);
        assert_int_equal(model->window, models[i].window);
        assert_near(model->rope.rotated_share, models[i].rotated_share, 0);
        erg_model_free(model);
    }
}

/* The lines of messages count from the mark on. */
static void byte_order_marks_move_no_line(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    const char text[] = "\xef\xbb\xbf{\n\"model_type\": \"llama\",\n\"hidden_size\": 0}";
    assert_fails(erg_model_parse(&model, "m", text, strlen(text), &err), &err,
                 "m:3: key 'hidden_size': expected");
    assert_fails(erg_model_parse(&model, "m", "\xef\xbb\xbf", 3, &err), &err, "m:1");
}

/* Qwen2.5 3B has 2 KV groups: on 8 GPUs each has one, as four of them have the same. */
static void fewer_groups_than_gpus_are_replicated(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    const char text[] = "{\"model_type\": \"qwen2\", \"tie_word_embeddings\": true, " SHAPE(
        2048, 11008, 36, 16, 2, 151936) "}";
    struct erg_model_ops two, eight;
    assert_ok(erg_model_parse(&model, "q", text, strlen(text), &err), &err);
    assert_near(erg_model_parameters(model), 3085938688, 0);
    assert_ok(erg_model_check_tensor(model, 8, &err), &err);
    assert_ok(erg_model_check_tensor(model, 2, &err), &err);
    assert_int_equal(erg_model_local_kv_heads(model, 1), 2);
    assert_int_equal(erg_model_local_kv_heads(model, 2), 1);
    assert_int_equal(erg_model_local_kv_heads(model, 8), 1);
    struct erg_model_shape shape = {.tensor = 2, .context = 2, .sequences = 1, .sequence = 4096};
    erg_model_layer_forward(&two, model, &shape);
    shape.tensor = 8;
    erg_model_layer_forward(&eight, model, &shape);
    /* (8 + 2 x 1) heads of 128, and (2 + 2 x 1); the bias has as many. */
    assert_near(find(&two, ERG_MODEL_QKV)->params, 2049.0 * 10 * 128, 0);
    assert_near(find(&eight, ERG_MODEL_QKV)->params, 2049.0 * 4 * 128, 0);
    assert_near(find(&eight, ERG_MODEL_QKV)->work[0].flops, 2 * 2048.0 * 2048 * 4 * 128, 0);
    assert_near(find(&eight, ERG_MODEL_PROJ)->params, 2048.0 * 2 * 128, 0);
    /* As many bytes of keys and values as on 2 GPUs. */
    assert_near(find(&eight, ERG_MODEL_GATHER_KV)->communication.wire_bytes,
                find(&two, ERG_MODEL_GATHER_KV)->communication.wire_bytes, 0);
    model->kv_heads = 4;
    model->heads = 24;
    assert_fails(erg_model_check_tensor(model, 6, &err), &err,
                 "the 4 KV groups of q cannot be divided among a tensor degree of 6");
    erg_model_free(model);
}

/* A vocabulary that was given as the padded size stays where the tensor degree divides it. */
static void given_vocabularies_are_padded_no_further(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.2-3b");
    model->vocab = 128256;
    assert_int_equal(erg_model_padded_vocabulary(model, 8), 129024);
    model->vocab_is_padded = true;
    assert_int_equal(erg_model_padded_vocabulary(model, 1), 128256);
    assert_int_equal(erg_model_padded_vocabulary(model, 8), 128256);
    assert_int_equal(erg_model_padded_vocabulary(model, 5), 128640);
    erg_model_free(model);
}

/* Names stay on their line, whatever is in them. */
static void names_have_no_control_characters(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    const char text[] = "{\"model_type\": \"llama\", \"_name_or_path\": \"x\\n--load y\\u001b]0;"
                        "\\u2028\\u0085\\u00fc\", " SHAPE(64, 128, 2, 4, 4, 100) "}";
    assert_ok(erg_model_parse(&model, "m", text, strlen(text), &err), &err);
    assert_string_equal(model->name, "x\\x0a--load y\\x1b]0;\\u2028\\x85\u00fc");
    erg_model_free(model);
    const char nameless[] = "{\"model_type\": \"llama\", " SHAPE(64, 128, 2, 4, 4, 100) "}";
    assert_ok(erg_model_parse(&model, "a\rb", nameless, strlen(nameless), &err), &err);
    assert_string_equal(model->name, "a\\x0db");
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalogue_has_the_public_parameter_counts),
        cmocka_unit_test(published_partitions_to_the_byte),
        cmocka_unit_test(kernel_counts_of_a_layer),
        cmocka_unit_test(execution_order_and_communication),
        cmocka_unit_test(splitting_divides_the_work),
        cmocka_unit_test(head_and_embedding),
        cmocka_unit_test(fused_kernels_move_less),
        cmocka_unit_test(balanced_recomputation_reads_and_writes_again),
        cmocka_unit_test(hopper_tiles_are_wider),
        cmocka_unit_test(saved_activations_of_a_layer),
        cmocka_unit_test(gpt_has_one_width_and_no_rope),
        cmocka_unit_test(published_flops),
        cmocka_unit_test(degrees_are_checked),
        cmocka_unit_test(wrong_configs_are_refused),
        cmocka_unit_test(rotary_frequencies),
        cmocka_unit_test(keys_left_out_have_the_familys_defaults),
        cmocka_unit_test(folders_without_a_config_hide_nothing),
        cmocka_unit_test(other_families_load),
        cmocka_unit_test(fused_partial_and_nested_models_load),
        cmocka_unit_test(byte_order_marks_move_no_line),
        cmocka_unit_test(fewer_groups_than_gpus_are_replicated),
        cmocka_unit_test(given_vocabularies_are_padded_no_further),
        cmocka_unit_test(names_have_no_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
