/* layout/export: exactly what other software is told, for layouts that it can run and cannot. */
#include "memory_world.h"

#include "io/file.h"
#include "layout/exchange/export.h"

static void check_format(const struct erg_model *model, const struct erg_layout *layout,
                         enum erg_export_format format, const char *file)
{
    struct erg_error err;
    struct erg_text text = {0};
    char path[200], *expected;
    snprintf(path, sizeof path, "%s/tests/data/export/%s", ERGON_TEST_SOURCE_DIR, file);
    assert_ok(erg_file_read(path, ERG_FILE_SMALL_BYTES, &expected, NULL, &err), &err);
    erg_layout_export(&text, format, model, layout);
    assert_string_equal(text.data, expected);
    erg_text_release(&text);
    free(expected);
}

/* Against tests/data/export/NAME.args and .toml. */
static void check(const struct erg_model *model, const struct erg_layout *layout, const char *name)
{
    struct erg_error err;
    char file[100];
    assert_ok(erg_layout_check(layout, model, &err), &err);
    snprintf(file, sizeof file, "%s.args", name);
    check_format(model, layout, ERG_EXPORT_MEGATRON, file);
    snprintf(file, sizeof file, "%s.toml", name);
    check_format(model, layout, ERG_EXPORT_TORCHTITAN, file);
}

/* Grouped queries, tensor and context ranks, one stage. */
static void grouped(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-3.2-3b", 0);
    struct erg_layout layout = {.tensor = 4,
                                .context = 2,
                                .pipeline = 1,
                                .data = 2,
                                .virtual_stages = 1,
                                .microbatch = 8,
                                .microbatches = 4,
                                .sequence = 4096};
    check(model, &layout, "grouped");
    erg_model_free(model);
}

/* Virtual stages, balanced recomputation and offloading: none of both can be said exactly. */
static void offloaded(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    struct published row = {8192, 256, 256, 2, 2, 8, 2, ERG_REMAT_BALANCED, 0.2};
    struct erg_layout layout = layout_of(model, &row);
    check(model, &layout, "offloaded");
    erg_model_free(model);
}

/* GPT-3: LayerNorm, biases, learned positions, a tied head; everything recomputed. */
static void gpt(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct published row = {2048, 96, 48, 8, 1, 12, 8, ERG_REMAT_FULL, 0};
    struct erg_layout layout = layout_of(model, &row);
    check(model, &layout, "gpt");
    erg_model_free(model);
}

/* Stages of unequal layers, each with its own recomputation and ratio. */
static void unequal(void **state)
{
    (void)state;
    struct erg_model *model = load_model("qwen3-1.7b", 0);
    const long layers[] = {10, 10, 8};
    const enum erg_remat remats[] = {ERG_REMAT_BALANCED, ERG_REMAT_NONE, ERG_REMAT_NONE};
    const double offloads[] = {0.25, 0.125, 0};
    struct erg_layout layout = {.tensor = 1,
                                .context = 1,
                                .pipeline = 3,
                                .data = 1,
                                .virtual_stages = 1,
                                .microbatch = 1,
                                .microbatches = 6,
                                .sequence = 4096,
                                .chunk_layers = layers,
                                .stage_remat = remats,
                                .stage_offload = offloads};
    check(model, &layout, "unequal");
    erg_model_free(model);
}

/* Norms or the activation alone; stages of which some recompute one, some the other, do both. */
static void parts_of_a_layer(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-7b", 0);
    const enum erg_remat mixed[] = {ERG_REMAT_NORMS, ERG_REMAT_ACTIVATION, ERG_REMAT_NONE,
                                    ERG_REMAT_NORMS};
    static const struct {
        enum erg_remat remat;
        bool mixed;
        const char *megatron, *torchtitan;
    } cases[] = {
        {ERG_REMAT_NORMS, false, "\n--recompute-modules layernorm\n", "planned are norms; this"},
        {ERG_REMAT_ACTIVATION, false, "\n--recompute-modules mlp\n", "planned is the activation"},
        {ERG_REMAT_NONE, true,
         "norms activation none norms.\n# Megatron-LM recomputes the same on "
         "all of them: here balanced.\n",
         "planned are norms and the activation"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_layout layout = {.tensor = 1,
                                    .context = 1,
                                    .pipeline = 4,
                                    .data = 1,
                                    .virtual_stages = 1,
                                    .microbatch = 1,
                                    .microbatches = 4,
                                    .sequence = 4096,
                                    .remat = cases[i].remat,
                                    .stage_remat = cases[i].mixed ? mixed : NULL};
        struct erg_text text = {0};
        erg_layout_export(&text, ERG_EXPORT_MEGATRON, model, &layout);
        assert_non_null(strstr(text.data, cases[i].megatron));
        erg_text_release(&text);
        erg_layout_export(&text, ERG_EXPORT_TORCHTITAN, model, &layout);
        assert_non_null(strstr(text.data, cases[i].torchtitan));
        erg_text_release(&text);
    }
    erg_model_free(model);
}

/* Biases that Megatron-LM has no word for. */
static void biases(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-7b", 0);
    struct erg_layout layout = {.tensor = 1,
                                .context = 1,
                                .pipeline = 1,
                                .data = 1,
                                .virtual_stages = 1,
                                .microbatch = 1,
                                .microbatches = 1,
                                .sequence = 4096};
    struct erg_text text = {0};
    model->qkv_bias = true;
    erg_layout_export(&text, ERG_EXPORT_MEGATRON, model, &layout);
    assert_non_null(strstr(text.data, "\n--disable-bias-linear\n--add-qkv-bias\n"));
    assert_null(strstr(text.data, "NOT THE SAME"));
    erg_text_release(&text);
    model->projection_bias = true;
    erg_layout_export(&text, ERG_EXPORT_MEGATRON, model, &layout);
    assert_non_null(strstr(text.data, "NOT THE SAME: the model has biases on QKV the attention's"));
    erg_text_release(&text);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped), cmocka_unit_test(offloaded), cmocka_unit_test(gpt),
        cmocka_unit_test(unequal), cmocka_unit_test(biases),    cmocka_unit_test(parts_of_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
