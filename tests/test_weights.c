/*
 * Weights of a rank and the parts of a checkpoint that they are: for models and layouts of all
 * kinds, every element of a checkpoint is counted by one rank, on the ranks that have it too it is
 * a copy, and every element of a rank's state comes from one place.
 */
#include "check.h"

#include "base/memory.h"
#include "base/random.h"
#include "decoder/decoder_weights.h"

struct checkpoint {
    struct tensor {
        char name[96];
        size_t dimensions, shape[2];
        unsigned char *held, *counted; /* by how many ranks, of each element */
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
    size_t count = span->shape[0] * (span->dimensions == 2 ? span->shape[1] : 1);
    tensor->held = erg_xcalloc(count, 1);
    tensor->counted = erg_xcalloc(count, 1);
    return tensor;
}

/* The shares of a rank's state together are all of its weights. */
static void hold_share(struct checkpoint *checkpoint, const struct erg_weights *weights,
                       const struct erg_weight_spans *spans, unsigned char *used)
{
    unsigned char *in_state = erg_xcalloc(weights->state, 1);
    for (size_t i = 0; i < spans->count; i++) {
        const struct erg_weight_span *span = &spans->items[i];
        struct tensor *tensor = find(checkpoint, span);
        assert_int_equal(tensor->dimensions, span->dimensions);
        assert_memory_equal(tensor->shape, span->shape, sizeof tensor->shape);
        tensor->split = weights->items[span->weight].split;
        for (size_t row = 0; row < span->rows; row++)
            for (size_t column = 0; column < span->columns; column++) {
                tensor->held[erg_weight_span_there(span, row, column)]++;
                tensor->counted[erg_weight_span_there(span, row, column)] += !span->copy;
                used[span->offset + row * span->stride + column]++;
                assert_int_equal(in_state[erg_weight_span_here(span, row, column)]++, 0);
            }
    }
    free(in_state);
}

static void hold(struct checkpoint *checkpoint, const struct erg_weights_request *of_rank)
{
    struct erg_weights_request request = *of_rank;
    struct erg_weights weights;
    unsigned char *used = NULL;
    for (request.share = 0; request.share < request.ranks; request.share++) {
        struct erg_weight_spans spans;
        erg_weights_init(&weights, &request);
        erg_weight_spans_init(&spans, &weights, &request);
        if (!used)
            used = erg_xcalloc(weights.elements, 1);
        assert_int_equal(weights.state * (size_t)request.ranks, weights.elements);
        hold_share(checkpoint, &weights, &spans, used);
        erg_weight_spans_release(&spans);
        if (request.share + 1 < request.ranks)
            erg_weights_release(&weights);
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
        assert_int_equal(weights.buckets.items[i].part % 64, 0);
        sum += weights.buckets.items[i].elements;
    }
    assert_int_equal(sum, weights.elements);
    free(used);
    erg_weights_release(&weights);
}

/* Stages of two chunks each: of `layers` layers the first, the third, … and the others. */
static void check_model(const struct erg_model *model, long tensor, long stages, long ranks)
{
    struct checkpoint checkpoint = {0};
    struct erg_layer_range chunks[2][8];
    size_t counts[2] = {0};
    for (long layer = 0; layer < model->layers; layer++)
        chunks[layer % stages][counts[layer % stages]++] = (struct erg_layer_range){layer, 1};
    for (long stage = 0; stage < stages; stage++)
        for (long place = 0; place < tensor; place++)
            hold(&checkpoint,
                 &(struct erg_weights_request){model, tensor, place, chunks[stage], counts[stage],
                                               stage == 0, stage == stages - 1, ranks, 0});
    double elements = 0;
    for (size_t i = 0; i < checkpoint.count; i++) {
        struct tensor *t = &checkpoint.items[i];
        size_t count = t->shape[0] * (t->dimensions == 2 ? t->shape[1] : 1);
        for (size_t k = 0; k < count; k++)
            if (t->counted[k] != 1 || t->held[k] < (t->split ? 1 : tensor))
                fail_msg("element %zu of %s is counted by %d ranks and held by %d", k, t->name,
                         t->counted[k], t->held[k]);
        elements += (double)count;
        free(t->held);
        free(t->counted);
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
            .layers = 2 + (long)erg_rng_below(&rng, 3),
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
        check_model(&model, tensor, 1 + (long)erg_rng_below(&rng, 2),
                    1 + (long)erg_rng_below(&rng, 5));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
