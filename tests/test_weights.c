/*
 * Weights of a rank and the parts of a checkpoint that they are: for models and tensor degrees of
 * all kinds, every element of a checkpoint is held, by one rank where a weight is split and by all
 * where it is whole, and every element of a rank comes from one place.
 */
#include "check.h"

#include "base/memory.h"
#include "base/random.h"
#include "decoder/decoder_weights.h"

struct checkpoint {
    struct tensor {
        char name[96];
        size_t dimensions, shape[2];
        unsigned char *held; /* by how many ranks, of each element */
        bool split;
    } items[400];
    size_t count;
};

static struct tensor *find(struct checkpoint *checkpoint, const struct erg_weight_span *span)
{
    for (size_t i = 0; i < checkpoint->count; i++)
        if (strcmp(checkpoint->items[i].name, span->name) == 0)
            return &checkpoint->items[i];
    struct tensor *tensor = &checkpoint->items[checkpoint->count++];
    *tensor =
        (struct tensor){.dimensions = span->dimensions, .shape = {span->shape[0], span->shape[1]}};
    snprintf(tensor->name, sizeof tensor->name, "%s", span->name);
    tensor->held = erg_xcalloc(span->shape[0] * (span->dimensions == 2 ? span->shape[1] : 1), 1);
    return tensor;
}

static void hold(struct checkpoint *checkpoint, const struct erg_weights_request *request)
{
    struct erg_weights weights;
    struct erg_weight_spans spans;
    erg_weights_init(&weights, request);
    erg_weight_spans_init(&spans, &weights, request);
    unsigned char *used = erg_xcalloc(weights.elements, 1);
    for (size_t i = 0; i < spans.count; i++) {
        const struct erg_weight_span *span = &spans.items[i];
        const struct erg_weight *weight = &weights.items[span->weight];
        struct tensor *tensor = find(checkpoint, span);
        assert_int_equal(tensor->dimensions, span->dimensions);
        assert_memory_equal(tensor->shape, span->shape, sizeof tensor->shape);
        tensor->split = weight->split;
        for (size_t row = 0; row < span->rows; row++)
            for (size_t column = 0; column < span->columns; column++) {
                tensor->held[erg_weight_span_there(span, row, column)]++;
                used[weight->offset + erg_weight_span_here(span, weight, row, column)]++;
            }
    }
    for (size_t i = 0; i < weights.count; i++) {
        const struct erg_weight *weight = &weights.items[i];
        bool words = weight->tensor == ERG_TENSOR_EMBEDDING || weight->tensor == ERG_TENSOR_HEAD;
        assert_int_equal(weight->offset % 64, 0);
        for (size_t k = 0; k < weight->rows * weight->columns; k++)
            assert_true(used[weight->offset + k] == 1 || (words && used[weight->offset + k] == 0));
    }
    size_t sum = 0;
    for (size_t i = 0; i < weights.buckets.count; i++) {
        assert_int_equal(weights.buckets.items[i].elements % (64 * (size_t)request->ranks), 0);
        sum += weights.buckets.items[i].elements;
    }
    assert_int_equal(sum, weights.elements);
    free(used);
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
}

static void check_model(const struct erg_model *model, long tensor)
{
    struct checkpoint checkpoint = {0};
    for (long place = 0; place < tensor; place++)
        hold(&checkpoint,
             &(struct erg_weights_request){model, tensor, place, 0, model->layers, true, true, 3});
    double elements = 0;
    for (size_t i = 0; i < checkpoint.count; i++) {
        struct tensor *t = &checkpoint.items[i];
        size_t count = t->shape[0] * (t->dimensions == 2 ? t->shape[1] : 1);
        /* Several ranks hold the same keys and values where there are fewer groups than ranks. */
        size_t copies = tensor > model->kv_heads ? (size_t)(tensor / model->kv_heads) : 1;
        for (size_t k = 0; k < count; k++)
            if (t->held[k] != (t->split ? 1 : tensor) && !(t->split && t->held[k] == copies))
                fail_msg("element %zu of %s is held by %d ranks", k, t->name, t->held[k]);
        elements += (double)count;
        free(t->held);
    }
    assert_near(elements, erg_model_parameters(model), 0.5);
}

static void every_element_is_held(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    for (int i = 0; i < 300; i++) {
        long groups = 1L << erg_rng_below(&rng, 4), ratio = 1L << erg_rng_below(&rng, 3);
        long tensor = 1L << erg_rng_below(&rng, 4);
        struct erg_model model = {
            .name = (char *)(uintptr_t) "random",
            .architecture = (char *)(uintptr_t)(erg_rng_below(&rng, 4) ? "LlamaForCausalLM"
                                                                       : "Phi3ForCausalLM"),
            .layers = 1 + (long)erg_rng_below(&rng, 3),
            .hidden = 8 * (1 + (long)erg_rng_below(&rng, 4)),
            .heads = groups * ratio * tensor,
            .kv_heads = groups,
            .head_dim = 2 * (1 + (long)erg_rng_below(&rng, 3)),
            .ffn = tensor * (1 + (long)erg_rng_below(&rng, 20)),
            .vocab = 1 + (long)erg_rng_below(&rng, 600),
            .max_positions = 10,
            .gated = true,
            .rope_theta = 10000,
            .tied = erg_rng_below(&rng, 2),
        };
        if (strcmp(model.architecture, "LlamaForCausalLM") == 0) {
            model.qkv_bias = erg_rng_below(&rng, 2);
            model.projection_bias = erg_rng_below(&rng, 2);
            model.mlp_bias = erg_rng_below(&rng, 2);
            model.qk_norm = erg_rng_below(&rng, 2);
        }
        if (erg_rng_below(&rng, 4) == 0) { /* GPT-2's kind */
            model.architecture = (char *)(uintptr_t) "GPT2LMHeadModel";
            model.kv_heads = model.heads;
            model.gated = model.qk_norm = false;
            model.layer_norm = model.learned_positions = true;
            model.qkv_bias = model.projection_bias = model.mlp_bias = true;
        }
        check_model(&model, tensor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
