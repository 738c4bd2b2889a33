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

/* Weights over whole context groups of two data ranks each, and a replica of that. */
static void sharded(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-3.2-3b", 0);
    struct erg_layout layout = {.tensor = 2,
                                .context = 2,
                                .pipeline = 1,
                                .data = 4,
                                .fsdp = 4,
                                .virtual_stages = 1,
                                .microbatch = 2,
                                .microbatches = 4,
                                .sequence = 4096};
    check(model, &layout, "sharded");
    erg_model_free(model);
}

/* Virtual stages, balanced recomputation and offloading: none of both can be said exactly. */
static void offloaded(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    struct published row = {8192, 256, 256, 2, 2, 8, 2, ERG_RECOMPUTE_BALANCED, 0.2};
    struct erg_layout layout = layout_of(model, &row);
    check(model, &layout, "offloaded");
    erg_model_free(model);
}

/* GPT-3: LayerNorm, biases, learned positions, a tied head; everything recomputed. */
static void gpt(void **state)
{
    (void)state;
    struct erg_model *model = load_model("gpt3-175b", 0);
    struct published row = {2048, 96, 48, 8, 1, 12, 8, ERG_RECOMPUTE_FULL, 0};
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
    const enum erg_recompute recomputes[] = {ERG_RECOMPUTE_BALANCED, ERG_RECOMPUTE_NONE,
                                             ERG_RECOMPUTE_NONE};
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
                                .stage_recompute = recomputes,
                                .stage_offload = offloads};
    check(model, &layout, "unequal");
    erg_model_free(model);
}

/* Norms or the activation alone; stages of which some recompute one, some the other, do both. */
static void parts_of_a_layer(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-7b", 0);
    const enum erg_recompute mixed[] = {ERG_RECOMPUTE_NORMS, ERG_RECOMPUTE_ACTIVATION,
                                        ERG_RECOMPUTE_NONE, ERG_RECOMPUTE_NORMS};
    static const struct {
        enum erg_recompute recompute;
        bool mixed;
        const char *megatron, *torchtitan;
    } cases[] = {
        {ERG_RECOMPUTE_NORMS, false, "\n--recompute-modules layernorm\n", "recomputes norms; this"},
        {ERG_RECOMPUTE_ACTIVATION, false, "\n--recompute-modules mlp\n",
         "recomputes the activation"},
        {ERG_RECOMPUTE_NONE, true,
         "norms activation none norms.\n# Megatron-LM recomputes the same on "
         "all of them: here balanced.\n",
         "recomputes norms and the activation"},
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
                                    .recompute = cases[i].recompute,
                                    .stage_recompute = cases[i].mixed ? mixed : NULL};
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

/* A small model of a config with these keys more, and what both exports of it on 8 GPUs are. */
static const char shape[] =
    "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 1024, \"intermediate_size\": "
    "4096, "
    "\"max_position_embeddings\": 16384, \"num_attention_heads\": 16, \"num_hidden_layers\": 16, "
    "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 100000, "
    "\"tie_word_embeddings\": false, \"vocab_size\": 32768";

static void export_of(const char *keys, long tensor, struct erg_text out[2])
{
    struct erg_error err;
    struct erg_text config = {0};
    struct erg_model *model;
    struct erg_layout layout = {.tensor = tensor,
                                .context = 1,
                                .pipeline = 2,
                                .data = 1,
                                .virtual_stages = 1,
                                .microbatch = 1,
                                .microbatches = 4,
                                .sequence = 4096};
    erg_text_printf(&config, "{%s%s}", shape, keys);
    assert_ok(erg_model_parse(&model, "m", config.data, config.count, &err), &err);
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    erg_layout_export(&out[0], ERG_EXPORT_MEGATRON, model, &layout);
    erg_layout_export(&out[1], ERG_EXPORT_TORCHTITAN, model, &layout);
    erg_text_release(&config);
    erg_model_free(model);
}

/* Rotary frequencies as both programs say them. NULL: nothing is not the same. */
static void rotary_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *megatron, *not_megatron, *torchtitan;
    } cases[] = {
        {"", "\n--position-embedding-type rope\n--rotary-base 100000\n#", "NOT THE SAME", NULL},
        {", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}",
         "--rotary-base 100000\n--rotary-seq-len-interpolation-factor 4\n", "NOT THE SAME",
         "# NOT THE SAME: rotary frequencies are all scaled by a factor of 4 (linear)"},
        {", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.5}",
         "express: by a factor that is not a whole number. That", "interpolation-factor",
         "a factor of 2.5 (linear)"},
        {", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": "
         "1.0, "
         "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}",
         "--rotary-base 100000\n--use-rope-scaling\n--rope-scaling-factor 8\n", "NOT THE SAME",
         NULL},
        {", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": "
         "1.0, "
         "\"high_freq_factor\": 8.0, \"original_max_position_embeddings\": 4096}",
         "# NOT THE SAME: the model's rotary frequencies are scaled with low_freq_factor 1, "
         "high_freq_factor\n# 8 and 4096 original positions; Megatron-LM has 1, 4 and 8192 built "
         "in. That changes neither\n# time nor memory.\n--use-rope-scaling\n",
         "seq-len-interpolation",
         "scaling_factor 8, low_freq_factor 1, high_freq_factor 8, "
         "original_max_position_embeddings 4096\n"},
        {", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 32768}",
         "--rotary-scaling-factor 4\n--yarn-original-max-position-embeddings 32768\n"
         "--yarn-beta-fast 32\n--yarn-beta-slow 1\n--mscale 1\n--mscale-all-dim 0\n"
         "--yarn-correction-range-round-to-int\n--no-rope-fusion\n",
         "NOT THE SAME", "rope_factor 4, original_seq_len 32768, beta_fast 32, beta_slow 1.\n"},
        /* 1.2772588722239782 = 0.1 x 2 x ln(4) + 1. */
        {", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"attention_factor\": "
         "1.2772588722239782, \"truncate\": false}",
         "--yarn-original-max-position-embeddings 16384\n--yarn-beta-fast 32\n"
         "--yarn-beta-slow 1\n--mscale 2\n--mscale-all-dim 0\n"
         "--no-yarn-correction-range-round-to-int\n",
         "NOT THE SAME", "original_seq_len 16384"},
        {", \"rope_scaling\": {\"type\": \"longrope\"}",
         "that Megatron-LM's arguments cannot\n# express. ", "--use-rope-scaling",
         "scaled in a way that must be added there"},
        {", \"partial_rotary_factor\": 0.5", "--rotary-percent 0.5\n", "NOT THE SAME",
         "a share of 0.5 of each head's channels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text out[2] = {0};
        export_of(cases[i].keys, 2, out);
        assert_non_null(strstr(out[0].data, cases[i].megatron));
        assert_null(strstr(out[0].data, cases[i].not_megatron));
        assert_int_equal(strstr(out[0].data, "--position-embedding-type yarn\n") != NULL,
                         strstr(cases[i].keys, "yarn") != NULL);
        if (cases[i].torchtitan)
            assert_non_null(strstr(out[1].data, cases[i].torchtitan));
        else
            assert_null(strstr(out[1].data, "NOT THE SAME: rotary"));
        erg_text_release(&out[0]);
        erg_text_release(&out[1]);
    }
}

/* A name never leaves its comment: what is no comment is the same as without it. */
static void hostile_names_stay_in_their_comment(void **state)
{
    (void)state;
    static const char *const names[] = {"x\\n--load somewhere", "x\\r--load y", "\\u000b--save z",
                                        "a\\u2028--save z\\u0085--exit", "\\\"; rm -rf $(x) `y`"};
    struct erg_text plain[2] = {0};
    export_of("", 2, plain);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct erg_text out[2] = {0}, keys = {0};
        erg_text_printf(&keys, ", \"_name_or_path\": \"%s\"", names[i]);
        export_of(keys.data, 2, out);
        for (int k = 0; k < 2; k++) {
            /* All but the first line, which is a comment. */
            assert_int_equal(out[k].data[0], '#');
            assert_string_equal(strchr(out[k].data, '\n'), strchr(plain[k].data, '\n'));
            for (const char *at = out[k].data; *at != '\n'; at++)
                assert_true((unsigned char)*at >= 0x20);
        }
        erg_text_release(&keys);
        erg_text_release(&out[0]);
        erg_text_release(&out[1]);
    }
    erg_text_release(&plain[0]);
    erg_text_release(&plain[1]);
}

/* 8 KV heads on 16 tensor ranks: Megatron-LM holds each twice, torchtitan refuses. */
static void shared_kv_heads(void **state)
{
    (void)state;
    struct erg_text out[2] = {0};
    export_of("", 16, out);
    assert_non_null(strstr(out[0].data, "--num-query-groups 8\n"));
    assert_null(strstr(out[0].data, "NOT THE SAME"));
    assert_non_null(strstr(out[1].data, "NOT THE SAME: in the plan each of 8 KV heads is on "
                                        "several of 16 tensor ranks"));
    erg_text_release(&out[0]);
    erg_text_release(&out[1]);
}

/* A given vocabulary stays: 50257 words on one GPU, 128256 on 8. */
static void given_vocabularies(void **state)
{
    (void)state;
    static const struct {
        long vocabulary, tensor;
        const char *megatron;
    } cases[] = {
        {50257, 1, "--vocab-size 50257\n--make-vocab-size-divisible-by 1\n"},
        {128256, 8, "--vocab-size 128256\n--make-vocab-size-divisible-by 32\n"},
        {50257, 2, "--vocab-size 50257\n--make-vocab-size-divisible-by 128\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_model *model = load_model("llama-2-7b", cases[i].vocabulary);
        struct erg_layout layout = {.tensor = cases[i].tensor,
                                    .context = 1,
                                    .pipeline = 1,
                                    .data = 1,
                                    .virtual_stages = 1,
                                    .microbatch = 1,
                                    .microbatches = 1,
                                    .sequence = 4096};
        struct erg_text text = {0};
        model->vocab_is_padded = true;
        erg_layout_export(&text, ERG_EXPORT_MEGATRON, model, &layout);
        const char *expected = strstr(cases[i].megatron, "--vocab-size");
        assert_non_null(strstr(text.data, expected));
        erg_text_release(&text);
        erg_model_free(model);
    }
}

/* Experts over ranks, filled up to their capacity, their activation made again. */
static void experts(void **state)
{
    (void)state;
    struct erg_model *model = load_model("mixtral-8x22b", 0);
    struct erg_layout layout = {.tensor = 2,
                                .context = 1,
                                .pipeline = 2,
                                .data = 8,
                                .expert = 8,
                                .expert_capacity = 1,
                                .virtual_stages = 1,
                                .microbatch = 1,
                                .microbatches = 16,
                                .sequence = 4096,
                                .recompute = ERG_RECOMPUTE_BALANCED};
    check(model, &layout, "experts");
    erg_model_free(model);
}

/* Many experts that are all on each rank. */
static void experts_on_every_rank(void **state)
{
    (void)state;
    struct erg_model *model = load_model("qwen3-30b-a3b", 0);
    struct erg_layout layout = {.tensor = 4,
                                .context = 1,
                                .pipeline = 1,
                                .data = 2,
                                .virtual_stages = 1,
                                .microbatch = 2,
                                .microbatches = 4,
                                .sequence = 4096,
                                .recompute = ERG_RECOMPUTE_ACTIVATION};
    check(model, &layout, "experts-everywhere");
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped),
        cmocka_unit_test(sharded),
        cmocka_unit_test(experts),
        cmocka_unit_test(experts_on_every_rank),
        cmocka_unit_test(offloaded),
        cmocka_unit_test(gpt),
        cmocka_unit_test(unequal),
        cmocka_unit_test(biases),
        cmocka_unit_test(parts_of_a_layer),
        cmocka_unit_test(rotary_scaling),
        cmocka_unit_test(hostile_names_stay_in_their_comment),
        cmocka_unit_test(shared_kv_heads),
        cmocka_unit_test(given_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
