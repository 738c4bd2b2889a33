/* Models with a mixture of experts: their counts to the digit, what is wrong in their configs. */
#include "check.h"

#include "model/model.h"

#include <math.h>
#include <string.h>

static struct erg_model *load(const char *name)
{
    struct erg_error err;
    struct erg_model *model = NULL;
    assert_ok(erg_model_load(&model, name, &err), &err);
    return model;
}

static void counts_are_the_public_ones(void **state)
{
    (void)state;
    const struct {
        const char *name;
        double parameters, active;
    } known[] = {
        {"mixtral-8x7b", 46702792704, 12879925248},  {"mixtral-8x22b", 140620634112, 39152031744},
        {"qwen3-30b-a3b", 30532122624, 3353032704},  {"deepseek-v3", 671026419200, 37552297472},
        {"gpt3-175b", 174604259328, 174604259328},   {"gpt3-30b", 29974418432, 29974418432},
        {"llama-3.3-70b", 70553706496, 70553706496},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct erg_model *model = load(known[i].name);
        assert_near(erg_model_parameters(model), known[i].parameters, 0);
        assert_near(erg_model_active_parameters(model), known[i].active, 0);
        erg_model_free(model);
    }
    struct erg_model *large = load("mixtral-8x22b");
    large->vocab = 32768;
    assert_near(erg_model_parameters(large), 140630071296, 0);
    erg_model_free(large);
}

static void flops_are_those_of_chosen_experts(void **state)
{
    (void)state;
    const struct {
        const char *name;
        double linear; /* of a token */
    } known[] = {
        {"mixtral-8x7b", 25235030016},
        {"mixtral-8x22b", 77516242944},
        {"gpt3-175b", 347892350976},
        {"llama-3.3-70b", 136902082560},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct erg_model *model = load(known[i].name);
        assert_near(erg_model_forward_flops(model, 1, 4096).linear, known[i].linear, 0);
        erg_model_free(model);
    }
}

/* A latent attention: the sum over the op list is what the whole says. */
static void latent_attention_costs_the_sum_of_its_products(void **state)
{
    (void)state;
    struct erg_model *model = load("deepseek-v3");
    struct erg_model dense = erg_model_without_experts(model);
    const struct erg_model_shape shape = {
        .tensor = 8, .context = 1, .sequences = 1, .sequence = 4096, .expert = 8};
    double split = 0, attention = 0;
    struct erg_model_ops ops[2];
    erg_model_layer_forward(&ops[0], model, &shape);
    erg_model_layer_forward(&ops[1], &dense, &shape);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < ops[k].count; i++) {
            const struct erg_model_op *op = &ops[k].items[i];
            /* Down-products are on each of 8 ranks, a router's rows on one. */
            const double own = op->id == ERG_MODEL_Q_DOWN || op->id == ERG_MODEL_KV_DOWN ? 1 : 8;
            if (op->group == ERG_GROUP_LINEAR)
                split += own * (k ? 3 : 58) * op->work[0].flops;
            if (op->group == ERG_GROUP_ATTENTION)
                attention += 8 * (k ? 3 : 58) * op->work[0].flops;
        }
    const struct erg_model_flops whole = erg_model_forward_flops(model, 4096, 4096);
    assert_close(split, whole.linear, 1e-12);
    assert_close(2 * attention, whole.attention, 1e-12); /* the masked half is not computed */
    assert_near(model->head_dim, 192, 0);
    erg_model_free(model);
}

/* ---- a toy, token by token ---- */

enum { RANKS = 4, EXPERTS = 8, CHOSEN = 2, HIDDEN = 16, WIDTH = 8, TOKENS = 64 };

/* What each rank does of one microbatch of a layer. */
struct counted {
    double sent_rows, received_rows; /* all-to-all, without those to itself */
    double gathered_rows;            /* that come from the other tensor ranks */
    double computed_rows;
    double flops;
};

/* Experts of a token: by turns, or mostly the first ones. */
static int chosen_expert(int token, int choice, bool even)
{
    if (even)
        return (CHOSEN * token + choice) % EXPERTS;
    return token % 3 ? choice : (token + 3 * choice) % EXPERTS;
}

/* Tokens one by one. capacity 0: every row travels. Else an expert takes as many rows of a rank,
 * the others are dropped, and empty rows fill up. */
static void count_by_hand(struct counted counted[RANKS], int tensor, int expert, double capacity)
{
    static int rows[RANKS][EXPERTS]; /* by source */
    const int own = TOKENS / tensor, held = EXPERTS / expert;
    for (int rank = 0; rank < RANKS; rank++) {
        counted[rank] = (struct counted){0};
        for (int x = 0; x < EXPERTS; x++)
            rows[rank][x] = 0;
        int most = (int)ceil((double)(own * CHOSEN) / EXPERTS * capacity);
        for (int token = 0; token < own; token++)
            for (int choice = 0; choice < CHOSEN; choice++) {
                int *taken = &rows[rank][chosen_expert(token, choice, capacity == 0)];
                if (capacity == 0 || *taken < most)
                    ++*taken;
            }
        for (int x = 0; x < EXPERTS && capacity > 0; x++)
            rows[rank][x] = most;
    }
    for (int source = 0; source < RANKS; source++)
        for (int x = 0; x < EXPERTS; x++)
            for (int row = 0; row < rows[source][x]; row++) {
                const int group = source / (tensor * expert) * tensor * expert;
                const int target = group + source % tensor + tensor * (x / held);
                if (target != source) {
                    counted[source].sent_rows++;
                    counted[target].received_rows++;
                }
                for (int rank = target / tensor * tensor, i = 0; i < tensor; i++, rank++) {
                    counted[rank].gathered_rows += rank != target;
                    counted[rank].computed_rows++;
                    for (int column = 0; column < 3 * WIDTH / tensor; column++)
                        counted[rank].flops += 2 * HIDDEN; /* gate, up and down */
                }
            }
}

static const struct erg_model_op *find(const struct erg_model_ops *ops, enum erg_model_op_id id)
{
    for (size_t i = 0; i < ops->count; i++)
        if (ops->items[i].id == id)
            return &ops->items[i];
    return NULL;
}

static double wire_bytes(const struct erg_model_ops *ops, enum erg_model_op_id id)
{
    const struct erg_model_op *op = find(ops, id);
    return op ? op->communication.wire_bytes : 0;
}

/* Both lists against the rank counted by hand. */
static void assert_counted(const struct erg_model *model, const struct erg_model_shape *shape,
                           const struct counted *counted)
{
    const double row = 2.0 * HIDDEN, width = (double)WIDTH / (double)shape->tensor;
    struct erg_model_ops forward, backward;
    erg_model_layer_forward(&forward, model, shape);
    erg_model_layer_backward(&backward, model, shape);
    for (int k = 0; k < 2; k++) {
        const struct erg_model_ops *ops = k ? &backward : &forward;
        assert_near(wire_bytes(ops, ERG_MODEL_DISPATCH), row * counted->sent_rows, 0);
        assert_near(wire_bytes(ops, ERG_MODEL_COMBINE), row * counted->received_rows, 0);
        assert_near(wire_bytes(ops, ERG_MODEL_GATHER_E), row * counted->gathered_rows, 0);
        assert_near(wire_bytes(ops, ERG_MODEL_SCATTER_E), row * counted->gathered_rows, 0);
        double flops = 0;
        const enum erg_model_op_id products[] = {ERG_MODEL_FC1_E, ERG_MODEL_FC2_E};
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < find(ops, products[i])->work_count; j++)
                flops += find(ops, products[i])->work[j].flops;
        assert_near(flops, (k ? 2 : 1) * counted->flops, 0);
        assert_near(find(ops, ERG_MODEL_ACTIVATION_E)->work[0].bytes,
                    (k ? 10 : 6) * counted->computed_rows * width, 0);
    }
}

static void operations_are_those_of_a_toy_token_by_token(void **state)
{
    (void)state;
    const struct {
        int tensor, expert;
        double capacity;
    } cases[] = {{1, 4, 0},    {1, 4, 1}, {1, 4, 1.25}, {2, 2, 0},
                 {2, 2, 1.25}, {1, 2, 0}, {4, 1, 1.5},  {1, 4, 1.3}};
    struct erg_model model = {
        .name = (char *)(uintptr_t) "toy",
        .layers = 1,
        .hidden = HIDDEN,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 4,
        .ffn = WIDTH,
        .vocab = 128,
        .gated = true,
        .experts = {.count = EXPERTS, .chosen = CHOSEN, .ffn = WIDTH},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct counted counted[RANKS];
        struct erg_model_shape shape = {
            .tensor = cases[i].tensor,
            .context = 1,
            .sequences = 2,
            .sequence = TOKENS / 2,
            .expert = cases[i].expert,
            .capacity = cases[i].capacity,
        };
        count_by_hand(counted, cases[i].tensor, cases[i].expert, cases[i].capacity);
        for (int rank = 0; rank < RANKS; rank++)
            assert_counted(&model, &shape, &counted[rank]);
        const struct erg_model_rows rows = erg_model_expert_rows(&model, &shape);
        assert_near(rows.held * rows.expert, counted[0].computed_rows, 0);
    }
}

/* The bytes of the table of operations: Mixtral 8x22B, e 8, one sequence of 4096. */
static void bytes_and_kernels_of_a_large_one(void **state)
{
    (void)state;
    struct erg_model *model = load("mixtral-8x22b");
    struct erg_model_shape shape = {
        .tensor = 1, .context = 1, .sequences = 1, .sequence = 4096, .expert = 8, .capacity = 1};
    const double mib[][2] = {{1, 1008.15625}, {4, 324.0390625}};
    for (int k = 0; k < 2; k++) {
        struct erg_model_ops ops;
        double saved = 0;
        shape.tensor = (long)mib[k][0];
        erg_model_layer_forward(&ops, model, &shape);
        for (size_t i = 0; i < ops.count; i++)
            if (ops.items[i].id >= ERG_MODEL_ROUTER)
                saved += ops.items[i].saved_bytes;
        assert_near(saved / 0x1p20, mib[k][1], 1e-9);
    }
    struct erg_model_ops ops;
    shape.tensor = 1;
    erg_model_layer_forward(&ops, model, &shape);
    const double rows = 8192, h = 6144;
    assert_near(find(&ops, ERG_MODEL_ROUTER)->work[0].bytes, 2 * 4096 * h + 10 * 4096 * 8, 0);
    assert_near(find(&ops, ERG_MODEL_ROUTER)->work[0].flops, 2 * 4096 * h * 8, 0);
    assert_int_equal(find(&ops, ERG_MODEL_ROUTER)->work[0].kernels, 5);
    assert_near(find(&ops, ERG_MODEL_PERMUTE)->work[0].bytes, 2 * (4096 + rows) * h, 0);
    assert_near(find(&ops, ERG_MODEL_UNPERMUTE)->work[0].bytes, 2 * (4096 + rows) * h + 4 * rows,
                0);
    assert_near(wire_bytes(&ops, ERG_MODEL_DISPATCH), rows * h * 2 * 7 / 8, 0);
    assert_int_equal(find(&ops, ERG_MODEL_FC1_E)->work[0].kernels, 1);
    shape.expert = 2;
    erg_model_layer_forward(&ops, model, &shape);
    assert_int_equal(find(&ops, ERG_MODEL_FC1_E)->work[0].kernels, 4);
    shape.grouped = true;
    erg_model_layer_forward(&ops, model, &shape);
    assert_int_equal(find(&ops, ERG_MODEL_FC1_E)->work[0].kernels, 1);
    erg_model_free(model);
}

/* ---- configs ---- */

#define SHAPE                                                                                      \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 6, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 128, "                \
    "\"rms_norm_eps\": 1e-6"

static int parse(struct erg_model **model, const char *text, struct erg_error *err)
{
    return erg_model_parse(model, "c", text, strlen(text), err);
}

static void some_layers_may_be_dense(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    assert_ok(parse(&model,
                    "{\"model_type\": \"qwen3_moe\", \"num_experts\": 8, \"num_experts_per_tok\": "
                    "2, \"moe_intermediate_size\": 32, \"decoder_sparse_step\": 2, "
                    "\"mlp_only_layers\": [3], " SHAPE "}",
                    &err),
              &err);
    /* Layers 1 and 5 have experts: 0, 2 and 4 are no multiple of the step, 3 is named. */
    assert_int_equal(model->experts.dense_layers, 4);
    assert_false(model->experts.dense_first);
    const double attention = 4.0 * 64 * 64 + 2 * 16 + 2 * 64;
    assert_near(erg_model_parameters(model),
                6 * attention + 4.0 * 3 * 64 * 96 + 2.0 * (8 * 3 * 64 * 32 + 64 * 8) +
                    2.0 * 128 * 64 + 64,
                0);
    erg_model_free(model);
}

static void wrong_configs_are_told(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } wrong[] = {
        {"{\"model_type\": \"mixtral\", " SHAPE "}", "num_local_experts"},
        {"{\"model_type\": \"mixtral\", \"num_local_experts\": 8, \"num_experts_per_tok\": "
         "9, " SHAPE "}",
         "num_experts_per_tok"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 8, \"num_experts_per_tok\": 2, " SHAPE
         "}",
         "moe_intermediate_size"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 8, \"num_experts_per_tok\": 2, "
         "\"moe_intermediate_size\": 32, \"mlp_only_layers\": [6], " SHAPE "}",
         "expected layers from 0 to 5"},
        {"{\"model_type\": \"deepseek_v3\", " SHAPE "}", "kv_lora_rank"},
        {"{\"model_type\": \"deepseek_v3\", \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, "
         "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"n_routed_experts\": 4, "
         "\"num_experts_per_tok\": 1, \"moe_intermediate_size\": 32, \"moe_layer_freq\": 2, " SHAPE
         "}",
         "expected 1, the only supported value, got 2"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct erg_error err;
        struct erg_model *model;
        assert_fails(parse(&model, wrong[i].text, &err), &err, wrong[i].message);
    }
}

static void degrees_are_checked(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model = load("mixtral-8x7b"), *dense = load("llama-3.2-1b");
    assert_ok(erg_model_check_experts(model, 4, &err), &err);
    assert_ok(erg_model_check_experts(dense, 1, &err), &err);
    assert_fails(erg_model_check_experts(model, 3, &err), &err,
                 "the 8 experts of mistralai/Mixtral-8x7B-v0.1 cannot be divided among an expert "
                 "degree of 3");
    assert_fails(erg_model_check_experts(dense, 2, &err), &err, "has no experts");
    erg_model_free(model);
    erg_model_free(dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_the_public_ones),
        cmocka_unit_test(flops_are_those_of_chosen_experts),
        cmocka_unit_test(latent_attention_costs_the_sum_of_its_products),
        cmocka_unit_test(operations_are_those_of_a_toy_token_by_token),
        cmocka_unit_test(bytes_and_kernels_of_a_large_one),
        cmocka_unit_test(some_layers_may_be_dense),
        cmocka_unit_test(wrong_configs_are_told),
        cmocka_unit_test(degrees_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
