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

#define SHAPE(hidden, ffn, layers, heads, kv, vocab)                                               \
    "\"hidden_size\": " #hidden ", \"intermediate_size\": " #ffn                                   \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads                       \
    ", \"num_key_value_heads\": " #kv ", \"vocab_size\": " #vocab ", \"rms_norm_eps\": 1e-05"

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
        cmocka_unit_test(fewer_groups_than_gpus_are_replicated),
        cmocka_unit_test(given_vocabularies_are_padded_no_further),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
