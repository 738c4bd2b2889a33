/* layout/: degrees from text, batches cut into microbatches, and what cannot be. */
#include "memory_world.h"

static void text(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_layout layout = {.sequence = 8192, .recompute = ERG_RECOMPUTE_FULL};
    assert_ok(erg_layout_parse(&layout, "t=2,c=2,p=8,l=2", 80, &err), &err);
    assert_int_equal(layout.tensor, 2);
    assert_int_equal(layout.context, 2);
    assert_int_equal(layout.pipeline, 8);
    assert_int_equal(layout.virtual_stages, 5);
    assert_int_equal(layout.microbatch, 1);
    assert_int_equal(layout.sequence, 8192);
    assert_int_equal(layout.recompute, ERG_RECOMPUTE_FULL);
    assert_ok(erg_layout_parse(&layout, "p=4,v=2,b=3", 80, &err), &err);
    assert_int_equal(layout.tensor, 1);
    assert_int_equal(layout.virtual_stages, 2);
    assert_int_equal(layout.microbatch, 3);
    const struct {
        const char *text, *message;
    } wrong[] = {
        {"t=2,x=3", "at 'x=3'"},
        {"t=2,", "at ''"},
        {"", "at ''"},
        {"t=2,t=4", "t twice"},
        {"t=0", "from 1"},
        {"t=2.5", "whole number"},
        {"p=4,l=2,v=2", "both"},
        {"p=7,l=2", "multiple of 14"},
        {"t:2", "is invalid at"},
        {"t=99999999", "million"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(erg_layout_parse(&layout, wrong[i].text, 80, &err), &err, wrong[i].message);
}

static void batch(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_layout layout = {.tensor = 2, .context = 2, .pipeline = 8, .microbatch = 1};
    assert_ok(erg_layout_fill(&layout, 256, 256, &err), &err);
    assert_int_equal(layout.data, 8);
    assert_int_equal(layout.microbatches, 32);
    assert_int_equal(erg_layout_gpus(&layout), 256);
    layout.microbatch = 4;
    assert_ok(erg_layout_fill(&layout, 256, 256, &err), &err);
    assert_int_equal(layout.microbatches, 8);
    assert_fails(erg_layout_fill(&layout, 240, 256, &err), &err, "makes 32 GPUs, and 240 GPUs");
    assert_fails(erg_layout_fill(&layout, 256, 250, &err), &err, "a multiple of 32");
}

static void vocabulary(void **state)
{
    (void)state;
    struct erg_model *llama = load_model("llama-65b", 32005), *gpt = load_model("gpt3-175b", 0);
    assert_int_equal(erg_layout_vocabulary(llama, 1), 32128);
    assert_int_equal(erg_layout_vocabulary(llama, 2), 32256);
    assert_int_equal(erg_layout_vocabulary(llama, 4), 32256);
    assert_int_equal(erg_layout_vocabulary(gpt, 1), 50304);
    assert_int_equal(erg_layout_vocabulary(gpt, 8), 51200);
    erg_model_free(llama);
    erg_model_free(gpt);
}

/* t, c, p, v, microbatches, sequence and offload of a layout of Llama 2 70B, on one replica. */
static void impossible(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-70b", 32005); /* 80 layers, 64 heads, 8 groups */
    static const long short_chunks[] = {20, 20, 20, 19}, empty_chunk[] = {40, 0, 20, 20};
    static const double too_much[] = {0, 0.5, 1.5, 0};
    const struct {
        long tensor, context, pipeline, virtual_stages, microbatches, sequence;
        double offload;
        const long *chunk_layers;
        const double *stage_offload;
        const char *message; /* NULL: possible */
    } cases[] = {
        {2, 2, 4, 5, 8, 8192, 0.5, NULL, NULL, NULL},
        {16, 2, 4, 1, 8, 8192, 0, NULL, NULL, NULL}, /* each KV group is held twice */
        {24, 2, 4, 1, 8, 8192, 0, NULL, NULL, "heads"},
        {0, 2, 4, 1, 8, 8192, 0, NULL, NULL, "tensor degree from 1"},
        {2, 2, 4, 1, 8, 8190, 0, NULL, NULL, "equal chunks"},
        {8, 1, 4, 1, 8, 100, 0, NULL, NULL, "100 tokens of a sequence on a context rank"},
        {2, 1, 4, 1, 8, 101, 0, NULL, NULL, "tensor degree of 2"},
        {2, 2, 81, 1, 8, 8192, 0, NULL, NULL, "too few"},
        {2, 2, 3, 1, 8, 8192, 0, NULL, NULL, "cannot be divided"},
        {2, 2, 4, 1, 8, 8192, 0, short_chunks, NULL, "79 layers together"},
        {2, 2, 4, 1, 8, 8192, 0, empty_chunk, NULL, "chunk 1 has 0"},
        {2, 2, 4, 5, 6, 8192, 0, NULL, NULL, "multiple of the 4"},
        {2, 2, 1, 2, 8, 8192, 0, NULL, NULL, "there is 1 stage"},
        {2, 2, 4, 1, 8, 8192, -0.1, NULL, NULL, "from 0 to 1"},
        {2, 2, 4, 1, 8, 8192, 0, NULL, too_much, "for stage 2, got 1.5"},
        {2, 2, 4, 1, 0, 8192, 0, NULL, NULL, "number of microbatches"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_layout layout = {.tensor = cases[i].tensor,
                                    .context = cases[i].context,
                                    .pipeline = cases[i].pipeline,
                                    .data = 1,
                                    .virtual_stages = cases[i].virtual_stages,
                                    .microbatch = 2, /* no help: sequences are split one by one */
                                    .microbatches = cases[i].microbatches,
                                    .sequence = cases[i].sequence,
                                    .offload = cases[i].offload,
                                    .chunk_layers = cases[i].chunk_layers,
                                    .stage_offload = cases[i].stage_offload};
        struct erg_error err;
        if (cases[i].message)
            assert_fails(erg_layout_check(&layout, model, &err), &err, cases[i].message);
        else
            assert_ok(erg_layout_check(&layout, model, &err), &err);
    }
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test(batch),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
